"""`encodery evaluate` of pretrained models on plain text."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import encodery as en
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.tasks.forms.pretraining_scores import ELECTRA
from encodery.tasks.toy_grammar.corpus import documents
from tests.toolbox.runs import run
from tests.training.test_pretraining import settings


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short ELECTRA on a text file, and a short MLM on full blocks; only read from."""
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "text.txt").write_text("\n\n".join(documents(0, 60)))
    own = {"name": "corpus", "files": str(folder / "text.txt")}
    made = {}
    for kind, more in (("electra", {}), ("mlm", {"blocks": "full"})):
        tree = settings({"kind": kind}, train={"max_steps": 4, "evaluate": "end", "keep_at": [25]})
        tree["model"]["tokenizer"] = "toy"
        tree["tasks"] = [{"held_out": 0.2, "objective": {"kind": kind}} | own | more]
        made[kind] = run(tree, folder / kind).path
    return made


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: Path(shutil.copytree(runs[kind], tmp_path / kind))


def scores(said: Any, key: str) -> dict[str, float]:
    assert said.code == 0, said.err
    found: dict[str, float] = json.loads(said.out)[key]["scores"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["electra", "mlm"])
def test_held_out_text_gives_the_scores_of_training(kind: str, copy: Any, encodery: Any) -> None:
    own = copy(kind)
    before = RunDir.open(own).read_scores()["scores"]["corpus:dev"]
    said = encodery("evaluate", own, "--on", "corpus", "--json", "--quiet")
    assert scores(said, "corpus:dev") == pytest.approx(before, abs=1e-6)
    assert RunDir.open(own).read_scores()["evaluations"]["corpus:dev"] == json.loads(said.out)["corpus:dev"]
    other = [scores(encodery("evaluate", own, "--on", "corpus", "--json", "--seed", "3"), "corpus:dev") for _ in "ab"]
    assert other[0] == other[1] != pytest.approx(before, abs=1e-6)
    line = encodery("evaluate", own, "--on", "corpus:dev", "--quiet").out
    assert line.startswith(f"corpus:dev  loss {before['loss']:.4f}  ")


@pytest.mark.slow
def test_python_gives_the_scores_of_the_command(runs: dict[str, Path], tmp_path: Path) -> None:
    own, news = runs["mlm"], tmp_path / "news.txt"
    news.write_text("\n\n".join(documents(9, 12)))
    before = RunDir.open(own).read_scores()["scores"]["corpus:dev"]
    assert en.evaluate(own, "corpus:dev")["corpus:dev"] == pytest.approx(before, abs=1e-6)
    other = en.evaluate(en.Run(own), news, seed=3, out=tmp_path / "kept")
    assert list(other) == [f"{news}:train"]
    kept = json.loads((tmp_path / "kept" / "scores.json").read_text())["evaluations"]
    assert kept[f"{news}:train"]["scores"] == other[f"{news}:train"]
    with pytest.raises(UserError, match="one model at a time"):
        en.evaluate([own, runs["electra"]], news)


@pytest.mark.slow
def test_other_text_is_read_as_the_runs_own(copy: Any, tmp_path: Path, encodery: Any) -> None:
    own, news = copy("electra"), tmp_path / "news.txt"
    news.write_text("\n\n".join(documents(9, 12)))
    found = scores(encodery("evaluate", own, "--on", news, "--json"), f"{news}:train")
    assert set(found) == set(ELECTRA)
    config = tmp_path / "c.yaml"
    config.write_text(f"model: {{name: {own}}}\ntasks: {{name: corpus, files: {news}}}\ntrain: {{max_length: 48}}\n")
    assert encodery("prepare", config, "-o", tmp_path / "blocks", "--workers", "1", "--quiet").code == 0
    assert scores(encodery("evaluate", own, "--on", tmp_path / "blocks", "--json"), f"{tmp_path}/blocks:train") == found
    assert set(RunDir.open(own).read_scores()["evaluations"]) == {f"{news}:train", f"{tmp_path}/blocks:train"}


@pytest.mark.slow
def test_text_that_was_trained_on_is_said(runs: dict[str, Path], copy: Any, encodery: Any) -> None:
    own = copy("electra")
    text = runs["electra"].parent / "text.txt"
    for meant in ("corpus:train", text):
        assert "was trained on this text" in encodery("evaluate", own, "--on", meant).err
    assert "was trained on" not in encodery("evaluate", own, "--on", "corpus:dev").err


@pytest.mark.slow
def test_models_on_the_way_and_models_of_others(copy: Any, tmp_path: Path, encodery: Any) -> None:
    own = copy("mlm")
    words = ("--on", "corpus", "--json", "--quiet")
    early, late = (scores(encodery("evaluate", f"{own}{share}", *words), "corpus:dev") for share in ("@25%", ""))
    assert early["loss"] > late["loss"]
    assert list(RunDir.open(own).read_scores()["evaluations"]) == ["corpus:dev"]  # of the last model alone
    folder = Path(shutil.copytree(own / "model", tmp_path / "foreign", ignore=shutil.ignore_patterns("encodery.json")))
    said = encodery("evaluate", folder, "--on", f"{own}:dev", "--json", "--quiet")
    assert scores(said, "corpus:dev")["loss"] == pytest.approx(late["loss"], rel=0.1)  # blocks of other lengths


@pytest.mark.slow
def test_refusals(runs: dict[str, Path], trained: Any, tmp_path: Path, encodery: Any) -> None:
    electra, mlm = runs["electra"], runs["mlm"]
    text = electra.parent / "text.txt"
    headless = Path(shutil.copytree(electra / "model/discriminator", tmp_path / "discriminator"))
    (headless / "encodery.json").unlink()
    for words, sentence in (
        ((electra, mlm, "--on", text), "give one"),
        ((electra, "--on", text, "toy/nli"), "evaluate them separately"),
        ((trained("single"), "--on", text), "does not look"),  # a file is a task of this run, and needs labels
        ((headless, "--on", text), "no head that predicts masked words"),
        ((electra, "--on", "corpus:test"), 'no split "test"'),
    ):
        said = encodery("evaluate", *words)
        assert said.code == 2
        assert sentence in said.err
