"""The page "your own task, method, objective … in one file" tells the truth: its files train."""

import json
from pathlib import Path

import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.runs.identity import identity_of_config
from tests.docs.pages import ROOT, blocks, write_named

PAGE = ROOT / "docs" / "own-component.md"
CONFIGS = [block.name for block in blocks(PAGE, "yaml") if block.name]
FEW = ["train.max_steps=3", "train.batch_size=8", "train.evaluate=end", "device=cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, in an empty folder that is not the one where the command runs."""
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "files"
    place.mkdir()
    write_named(PAGE, place)
    return place


def test_the_page_has_one_of_each_kind_that_a_config_names() -> None:
    tasks, methods = ["larger.yaml", "echo.yaml"], ["agree.yaml", "noisy.yaml", "momentum.yaml"]
    assert [*tasks, *methods, "focal.yaml", "ending.yaml", "logarithm.yaml"] == CONFIGS


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_the_files_of_the_page_train(name: str, folder: Path) -> None:
    from encodery.training.run import train_run

    resolved = load.load(folder / name, FEW)
    run = train_run(resolved, folder / "run")
    assert run.is_done
    both = name in ("ending.yaml", "logarithm.yaml")
    tasks = ["larger", "echo"] if both else ["echo"] if name == "echo.yaml" else ["larger"]
    assert set(run.read_scores()["scores"]) == {f"own/{task}:dev" for task in tasks}
    kept = json.loads((run.path / "code" / "files.json").read_text())
    assert set(kept) == {*(f"{task}.py" for task in tasks), name.replace("yaml", "py")}


def test_the_selector_of_the_page_selects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from encodery.cli import main

    monkeypatch.chdir(folder)
    rows = [f"{'long ' * (i % 7)}text {i},{'ab'[i % 2]}" for i in range(70)]
    Path("reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (command,) = [line for block in blocks(PAGE, "bash") for line in block.text.splitlines() if " select " in line]
    words = command.replace("--count 100", "--count 9").split()[1:]
    assert main([*words, "-o", "chosen"]) == 0
    meta = json.loads(Path("chosen/selection.meta.json").read_text())
    assert meta["code"].keys() == {"longest.py"}
    chosen = [json.loads(line)["id"] for line in Path("chosen/selection.jsonl").read_text().splitlines()]
    assert {int(id) % 7 for id in chosen} == {6}
    Path("longest.py").write_text(Path("longest.py").read_text() + "\n# changed\n")
    assert main([*words, "-o", "chosen"]) == 2  # another selector: it does not replace what runs may point at
    Path("run.json").write_text("{}")  # code of what looks like somebody's run is not run
    assert main([*words, "-o", "other"]) == 2
    assert main([*words, "-o", "other", "--selector.kind", "larger.py:Larger", "--allow-code"]) == 2


@pytest.mark.slow
def test_the_adversarial_method_of_the_page_is_freelb_without_momentum(folder: Path) -> None:
    from encodery.training.run import train_run

    few = [*FEW, "model.dropout=0", "model.attention_dropout=0"]
    own = train_run(load.load(folder / "momentum.yaml", [*few, "method.momentum=0"]), folder / "own")
    known = ["method.kind=freelb", "method.steps=3", "method.adv_lr=0.05", "method.scale=token_norm"]
    freelb = train_run(load.load(folder / "larger.yaml", [*few, *known]), folder / "freelb")
    losses = [[line["loss"] for line in run.metrics() if "loss" in line] for run in (own, freelb)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    other = train_run(load.load(folder / "momentum.yaml", few), folder / "other")
    assert [line["loss"] for line in other.metrics() if "loss" in line] != losses[0]


@pytest.mark.slow
def test_a_model_with_an_own_objective_opens_only_with_allow_code(folder: Path, capsys: pytest.CaptureFixture) -> None:
    import encodery
    from encodery.cli import main
    from encodery.training.run import train_run

    run = train_run(load.load(folder / "focal.yaml", FEW), folder / "run")
    with pytest.raises(UserError, match="allow-code"):
        encodery.load(run.path)
    answer = encodery.load(run.path, allow_code=True)(("3", "4"))
    assert answer.label in {"first", "second"}
    assert main(["evaluate", str(run.path), "--on", "own/larger:dev", "--allow-code", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["own/larger:dev"]["scores"]
    assert again == pytest.approx(run.read_scores()["scores"]["own/larger:dev"])


@pytest.mark.parametrize("name", CONFIGS)
def test_own_code_is_part_of_the_run_s_identity(name: str, folder: Path) -> None:
    before = identity_of_config(load.load(folder / name), {})
    source = folder / name.replace("yaml", "py")
    source.write_text(source.read_text() + "\n# changed\n")
    assert identity_of_config(load.load(folder / name), {}) != before


def test_a_wrong_key_of_an_own_component_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"weigth.*did you mean weight"):
        load.load(folder / "agree.yaml", ["method.weigth=1"])


def test_a_card_alone_runs_no_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from encodery.inference.open_model import make_objective

    monkeypatch.chdir(folder)
    (folder / "evil.py").write_text("raise SystemExit('this file was run')\n")
    with pytest.raises(UserError, match="allow-code"):
        make_objective({"kind": "evil.py:Evil", "labels": ["a", "b"]})
