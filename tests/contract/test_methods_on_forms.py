"""Every method on tags, spans and rankings: a finite gradient on every weight, the same however the step is cut."""

from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.errors import UserError
from encodery.training import build, loop
from encodery.training.loop import TrainState
from tests.contract.test_methods import STILL, ZERO, fast_for, loud, share, started
from tests.toolbox.models import furthest, gradients
from tests.toolbox.runs import metrics_of, resolve, run, settings, weights_of
from tests.training.test_forms import FORMS

SMALL = {"train_rows": 24, "dev_rows": 8, "test_rows": 4}
TASKS: dict[str, dict[str, Any]] = {
    "tags": {"name": "toy/ner", **SMALL},
    "spans": {"name": "toy/qa", "stride": 6, **SMALL},
    "joint": {"name": "toy/qa", "stride": 6, "head": "joint", "objective": {"inner": 8}, **SMALL},
}

# VAT climbs the difference of two nearly equal answers. In single precision what cancels there is rounding (measured:
# up to 8e-6 of the gradient with the joint head, 1.2e-7 with the others); in double the cut must not matter at all.
DOUBLE = {"vat": 1e-12}


def tree(folder: Path, form: str, method: dict[str, Any], **options: Any) -> dict[str, Any]:
    task = TASKS.get(form) or FORMS[form](folder)
    whole = settings(folder, method=method, model=STILL, train={"batch_size": 6, "max_length": 24, **options})
    whole["model"]["tokenizer"] = "toy"
    return {**whole, "tasks": [task]}


def step(folder: Path, form: str, kind: str, method: dict[str, Any], **options: Any) -> dict[str, torch.Tensor]:
    """The gradient of the first step."""
    resolved = resolve(tree(folder, form, {"kind": kind, **method}, **options))
    parts = build.build(resolved, build.find_inputs(resolved))
    parts.model.train()
    if kind in DOUBLE:
        parts.model.double()
    state = TrainState(9, budget=parts.batcher.budget)
    running = started(parts, resolved.method, state)
    loop.gradient(parts.model, running, parts.batches, state, "mean")
    trained = [p for p in parts.model.parameters() if p.requires_grad]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in trained)
    return gradients(parts.model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fast_for("freelb"))
@pytest.mark.parametrize("form", [*TASKS, "ranking", "long"])
def test_the_gradient_does_not_depend_on_how_a_step_is_cut(
    tmp_path: Path, form: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = loud(kind, monkeypatch)
    if kind == "importance":  # it weighs rows by the gradient at their one answer
        with pytest.raises(UserError, match="one label or number per text"):
            step(tmp_path, form, kind, options)
        return
    whole = step(tmp_path, form, kind, options)
    assert kind == "plain" or share(whole, step(tmp_path, form, kind, ZERO[kind][0])) > 0.01
    for cut in ({"token_budget": 40}, {"layout": "rows", "micro_batch": 5}, {"layout": "padded"}):
        assert furthest(whole, step(tmp_path, form, kind, options, **cut)) < DOUBLE.get(kind, 1e-6), cut


@pytest.mark.slow
@pytest.mark.parametrize("form", [*TASKS, "ranking", "long"])
def test_R1_R4_it_goes_on_to_the_same_bits(tmp_path: Path, form: str) -> None:
    options = {"save": "2 steps", "max_steps": 5, "token_budget": 60, "evaluate": "end"}
    whole = tree(tmp_path, form, {"kind": "freelb"}, **options)
    straight = run(whole, tmp_path / "straight")

    def kill(report: Any) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(whole, tmp_path / "killed", watch=kill)
    killed = run(whole, tmp_path / "killed")
    assert metrics_of(killed) == metrics_of(straight)
    assert killed.read_scores() == straight.read_scores()
    a, b = weights_of(killed), weights_of(straight)
    assert all(torch.equal(a[name], b[name]) for name in b)
    heads = [path.relative_to(straight.path) for path in (straight.path / "model").rglob("heads/*")]
    assert all((killed.path / path).read_bytes() == (straight.path / path).read_bytes() for path in heads)
