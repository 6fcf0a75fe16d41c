"""What a perturbing method writes down, and what it refuses before the first step."""

import json
from pathlib import Path
from typing import Any

import pytest

import encodery as en
from encodery.errors import UserError
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import single_task


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return config_for(folder, single_task(folder), **more)


@pytest.mark.slow
def test_costly_notes_are_written_whatever_the_rhythm_of_the_log(tmp_path: Path) -> None:
    method = {"kind": "freelb", "steps": 2, "log_attack": 4, "start_step": 1}
    train = {"max_steps": 9, "log": 3, "evaluate": "never"}
    run = en.train(settings(tmp_path, method=method, train=train), tmp_path / "run")
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 8, 9]
    costly = {row["step"] for row in rows if "method.delta_per_embedding_norm" in row}
    assert costly == {2, 4, 8}
    assert costly == {row["step"] for row in rows if "method.loss_clean" in row}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ({"kind": "yopo"}, {"train": {"compile": True}}, "method yopo looks into the first layer"),
        ({"kind": "fgm", "target": "matrix"}, {"model": {"tune": "head"}}, "needs a trained embedding matrix"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(
    method: dict[str, Any], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    tree = settings(tmp_path, method=method | {"start_step": 3}, train=more.get("train", {}))
    tree["model"] = tree["model"] | more.get("model", {})
    with pytest.raises(UserError, match=said):
        en.train(tree, tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_each_number_has_its_own_bound(tmp_path: Path) -> None:
    for kind in ("fgsm", "r3f", "r4f"):
        with pytest.raises(UserError, match="norm_scope"):
            en.train(settings(tmp_path, method={"kind": kind, "norm_scope": "token"}), tmp_path / kind)
