"""The page "your own task, method, objective in one file" tells the truth: its files train."""

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


def test_the_page_has_a_task_a_method_and_an_objective() -> None:
    assert CONFIGS == ["larger.yaml", "echo.yaml", "agree.yaml", "noisy.yaml", "focal.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_the_files_of_the_page_train(name: str, folder: Path) -> None:
    from encodery.training.run import train_run

    resolved = load.load(folder / name, FEW)
    run = train_run(resolved, folder / "run")
    assert run.is_done
    task = "echo" if name == "echo.yaml" else "larger"
    assert set(run.read_scores()["scores"]) == {f"own/{task}:dev"}
    kept = json.loads((run.path / "code" / "files.json").read_text())
    assert set(kept) == {f"{task}.py", name.replace("yaml", "py")}


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
