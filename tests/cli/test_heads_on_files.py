"""Which head of a model reads a data file, and how."""

import json
import shutil
from pathlib import Path

import pytest

import encodery as en
from encodery.analysis.embed import open_source
from encodery.config import load
from encodery.errors import UserError
from encodery.exchange.export import export
from encodery.inference import open_model
from encodery.inference.open_model import open_encoder
from encodery.inference.task_argument import resolve_split
from encodery.runs.directory import RunDir
from encodery.training.run import train_run
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import mood, sentences, write_csv

TEXTS = sentences(32)
ROWS = {
    "sent": [(text, "yes" if mood(text) == "pos" else "no") for text in TEXTS],
    "topic": [(text, "no" if i % 2 else "yes") for i, text in enumerate(TEXTS)],
    "three": [(text, "law" if i % 2 else "sport") for i, text in enumerate(TEXTS)],
    "houses": [(text, i * 1.5) for i, text in enumerate(TEXTS)],
}


def table(path: Path, rows, columns=("text", "label")) -> Path:
    return write_csv(path, list(columns), rows)


def tagged(path: Path, texts) -> Path:
    lines = ("\n".join(f"{word} {'B-X' if len(word) > 4 else 'O'}" for word in text.split()) for text in texts)
    path.write_text("\n\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """Two tasks with the same labels, one with others, a number and tags; the first has metrics of its own."""
    folder = tmp_path_factory.mktemp("heads")
    tasks = [{"kind": "table", "train": str(table(folder / f"{name}.csv", rows))} for name, rows in ROWS.items()]
    tasks[0] |= {"metric": "f1", "metrics": ["precision", "recall"]}
    tasks[3] |= {"form": "regression"}
    tasks.append({"kind": "table", "form": "tags", "train": str(tagged(folder / "words.conll", TEXTS))})
    settings = config_for(folder, tasks[0], train={"select": "each"})
    return train_run(load.load({**settings, "tasks": tasks}), folder / "run")


def test_a_file_that_two_heads_fit_is_answered_by_none_of_them_unasked(run, tmp_path, encodery):
    file = table(tmp_path / "new.csv", ROWS["topic"][:12])
    said = encodery("evaluate", run.path, "--on", file)
    assert said.code == 2
    assert "the heads table/sent, table/topic all fit table/new; choose one with --head" in said.err
    with pytest.raises(UserError, match="all fit table/new; choose one with --head"):
        en.evaluate(run.path, file)
    said = encodery("evaluate", run.path, "--on", file, "--head", "table/topic", "--json", "--quiet")
    found = json.loads(said.out)["table/new:test"]
    assert (found["heads"], found["main"]) == (["table/topic"], "accuracy")  # and not f1, which is the first task's
    opened = en.load(run.path, head="table/topic")
    assert en.evaluate(opened, file)["table/new:test"] == found["scores"]


@pytest.mark.parametrize(("name", "head"), [("three", "table/three"), ("houses", "table/houses"), ("tags", None)])
def test_a_file_that_fits_one_head_is_answered_by_it(run, tmp_path, name, head):
    file = table(tmp_path / "new.csv", ROWS[name]) if head else tagged(tmp_path / "new.conll", TEXTS[:6])
    (meant,) = resolve_split(str(file), runs=[run])
    assert meant.task.like == (head or "table/words")
    assert meant.task.examples("test")[0].label is not None


def test_the_named_head_reads_a_file_with_its_own_labels(run, tmp_path, encodery):
    file = table(tmp_path / "new.csv", ROWS["three"][:8])
    assert en.evaluate(run.path, file, head="table/three")["table/new:test"].keys() >= {"accuracy"}
    said = encodery("heads", run.path, "--on", file, "--head", "table/three", "-o", tmp_path / "heads", "--quiet")
    assert said.code == 0, said.err
    words = ("evaluate", run.path, "--on", file, "--head", "table/three", "--quiet")
    assert encodery(*words, "--attack", "fgsm", "--radius", "0").code == 0


def test_vectors_are_of_the_weights_and_the_rows_of_the_named_head(run, tmp_path, encodery, monkeypatch):
    """The encoder is shared, but after `train.select: each` the best weights of each task are not."""
    own = run.weights_of("table/three")
    assert own != run.model
    words = ["embed", run.path, "--on", run.path / "config.yaml"]
    assert "choose one with --head" in encodery(*words, "-o", tmp_path / "none").err
    assert encodery(*words, "--head", "table/three", "-o", tmp_path / "three", "--quiet").code == 0
    meta = json.loads((tmp_path / "three" / "meta.json").read_text())
    assert meta["task"] == "table/three"
    opened = []
    monkeypatch.setattr(open_model, "open_encoder", lambda *given: opened.append(given[0]) or open_encoder(*given))
    for head in ("table/three", None):
        open_source(str(run.path), "cpu", head=head)
    assert opened == [own.resolve(), run.model.resolve()]
    said = encodery("embed", run.path, "--on", table(tmp_path / "new.csv", ROWS["three"][:8]), "--head", "three")
    assert "has no head three; it has " in said.err
    assert "did you mean table/three?" in said.err
    with pytest.raises(UserError, match="petit: has no heads that can be named"):
        open_source("petit", "cpu", head="table/three")


def test_columns_decide_before_labels_do(tmp_path, run):
    moved = shutil.copytree(run.path, tmp_path / "run")
    card = json.loads((moved / "model/encodery.json").read_text())
    card["tasks"]["table/topic"]["task"]["label"] = "area"
    (moved / "model/encodery.json").write_text(json.dumps(card))
    file = table(tmp_path / "new.csv", ROWS["topic"], ("text", "area"))
    assert resolve_split(str(file), runs=[RunDir(moved)])[0].task.like == "table/topic"


def test_a_file_that_fits_no_head_or_another_form_is_told_why(run, tmp_path):
    file = table(tmp_path / "new.csv", [(text, "ja" if i % 2 else "nein") for i, text in enumerate(TEXTS)])
    with pytest.raises(UserError, match=r"fits none of the heads of (.|\n)*table/three: .*none is one of the labels"):
        resolve_split(str(file), runs=[run])
    words = tagged(tmp_path / "new.conll", TEXTS[:6])
    with pytest.raises(UserError, match="has the form tags, but the head table/sent answers single"):
        resolve_split(str(words), runs=[run], head="table/sent")
    one_wrong = table(tmp_path / "wrong.csv", [*ROWS["three"], ("a text", "spot")])
    with pytest.raises(UserError, match='"spot" is not a label of this task'):
        resolve_split(str(one_wrong), runs=[run])[0].task.examples("test")


def test_an_evaluation_by_another_head_says_that_it_replaces_the_first(run, tmp_path, encodery):
    file = table(tmp_path / "twice.csv", ROWS["topic"][:8])
    words = ("evaluate", run.path, "--on", file, "--head")
    assert "is replaced" not in encodery(*words, "table/topic").err + encodery(*words, "table/topic").err
    assert "(8 rows, by the head table/topic) is replaced by that of table/sent" in encodery(*words, "table/sent").err


def test_a_head_is_proposed_by_the_end_of_its_name(run, tmp_path):
    file = table(tmp_path / "new.csv", ROWS["houses"])
    with pytest.raises(UserError, match=r"has no head houses; it has .*; did you mean table/houses\?"):
        resolve_split(str(file), runs=[run], head="houses")
    with pytest.raises(UserError, match=r"did you mean table/houses\?"):
        en.load(run.path, head="house")


def test_an_exported_folder_reads_a_file_as_its_run_does(run, tmp_path, encodery):
    export(run.path, tmp_path / "houses", "table/houses")
    file = table(tmp_path / "new.csv", ROWS["houses"][:8])
    asked = en.evaluate(run.path, file)
    assert en.evaluate(tmp_path / "houses", file) == asked
    for folder in (tmp_path / "houses", run.path / "best/table-houses"):
        said = encodery("evaluate", folder, "--on", file, "--json", "--quiet")
        assert said.code == 0, said.err
        assert json.loads(said.out)["table/new:test"]["scores"].keys() == asked["table/new:test"].keys()


def test_predictions_for_one_of_several_tasks_are_scored(run, encodery):
    answers = run.predictions_path("table/topic", "dev")
    said = encodery("score", answers, "--on", f"{run.path}:dev", "--head", "table/topic", "--json")
    assert json.loads(said.out)["table/topic:dev"].items() >= run.read_scores()["scores"]["table/topic:dev"].items()
    config = encodery("score", answers, "--on", f"{run.path / 'config.yaml'}:dev", "--head", "table/topic", "--json")
    assert config.out == said.out
    for words, sentence in {
        (f"{run.path}:dev",): "has 5 tasks: table/sent, table/topic, table/three, table/houses, table/words; choose",
        ("table/topic:dev",): "such as RUN:dev (of several tasks, --head table/topic chooses this one)",
        (f"{run.path}:dev", "--head", "topic"): "has no task topic; it has",
        ("toy/nli:dev", "--head", "table/topic"): "--head table/topic: toy/nli:dev is toy/nli; --head is for a",
    }.items():
        said = encodery("score", answers, "--on", *words)
        assert (said.code, sentence in said.err) == (2, True), said.err
