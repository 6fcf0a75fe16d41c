"""A data file is a task: with the run's own columns and labels, else as the file says."""

import json
import shutil
from pathlib import Path

import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.inference.task_argument import resolve_split
from encodery.report import table
from encodery.runs.directory import RunDir
from encodery.training.run import train_run
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import mood, sentences, write_csv


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """Trained on columns with other names, and on labels that are numbers."""
    folder = tmp_path_factory.mktemp("files")
    rows = [(f"k{i}", text, 5 if mood(text) == "pos" else 1, "x") for i, text in enumerate(sentences(48))]
    file = write_csv(folder / "train.csv", ["key", "what", "points", "rest"], rows)
    task = {"kind": "table", "train": str(file), "text": "what", "label": "points", "id": "key"}
    return train_run(load.load(config_for(folder, task)), folder / "run")


def gold(path: Path, header: str, delimiter: str = ",") -> Path:
    lines = [delimiter.join((f"g{i}", text, "5")) for i, text in enumerate(sentences(6, 500))]
    path.write_text("\n".join([header.replace(",", delimiter), *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "delimiter"), [("key,what,points", ","), ("key,what,points", ";"), ("key,text,label", ",")]
)
def test_a_file_has_the_columns_and_labels_of_the_run(run, tmp_path, header, delimiter):
    (meant,) = resolve_split(str(gold(tmp_path / "gold.csv", header, delimiter)), runs=[run])
    assert meant.key == "table/gold:test"
    assert meant.task.labels == ("1", "5")  # the file alone has one
    rows = meant.task.examples("test")
    assert [(row.id, row.label) for row in rows] == [(f"g{i}", "5") for i in range(6)]
    assert meant.task.like == "table/train"


def test_columns_by_hand_and_what_a_file_has_not(run, tmp_path):
    file = gold(tmp_path / "gold.csv", "key,foo,bar")
    (meant,) = resolve_split(str(file), runs=[run], columns={"text": "foo", "label": "bar"})
    assert meant.task.examples("test")[0].label == "5"
    with pytest.raises(UserError, match="a file has no splits"):
        resolve_split(f"{file}:dev", runs=[run])
    with pytest.raises(UserError, match="columns are named for a file"):
        resolve_split("toy/nli", columns={"text": "foo"})


def test_an_undecided_column_is_asked_for_by_the_flags_of_the_verb(tmp_path):
    rows = [(text, "ab"[i % 2], "xyz"[i % 3]) for i, text in enumerate(sentences(30))]
    file = write_csv(tmp_path / "gold.csv", ["text", "topic", "priority"], rows)
    with pytest.raises(UserError, match=r"--label-column topic +\(2 values"):
        resolve_split(str(file))
    (meant,) = resolve_split(str(file), labelled=False)  # for vectors a text is enough
    assert len(meant.task.examples("test")) == 30


@pytest.mark.slow
def test_evaluate_score_embed_and_heads_on_a_file(run, tmp_path, encodery):
    file = gold(tmp_path / "gold.csv", "key,what,points")
    said = encodery("evaluate", run.path, "--on", file, "--json", "--quiet")
    found = json.loads(said.out)["table/gold:test"]
    assert (said.code, found["rows"]) == (0, 6)
    answers = run.predictions_path("table/gold", "test")
    scored = encodery("score", answers, "--on", file, "--json")
    assert json.loads(scored.out)["table/gold:test"]["accuracy"] == found["scores"]["accuracy"]
    assert encodery("heads", run.path, "--on", file, "-o", tmp_path / "heads", "--quiet").code == 0
    texts = tmp_path / "new.csv"
    texts.write_text("text\n" + "\n".join(sentences(5)) + "\n")
    assert "5 × 32" in encodery("embed", run.path, "--on", texts, "-o", tmp_path / "vectors", "--quiet").out


@pytest.mark.slow
def test_rows_that_were_trained_on_are_counted(run, tmp_path, encodery):
    own = run.path.parent / "train.csv"
    trained = run.rows_of("table/train", "train")["rows"]
    sentence = f"{trained} of 48 rows have texts that the run was trained on"
    said = encodery("evaluate", run.path, "--on", own)
    assert (said.code, f"WARNING table/train:test {sentence}" in said.err) == (0, True)
    assert sentence in table.markdown(table.table([run.path]))
    said = encodery("evaluate", run.path, "--on", "table/train:train")
    assert f"{trained} of {trained} rows have texts that the run was trained on" in said.err
    assert "trained on" not in encodery("evaluate", run.path, "--on", "table/train:dev").err
    some = tmp_path / "some.csv"
    text = load.load(run.path).tasks[0][0].examples("train")[0].texts[0]
    some.write_text(f"key,what,points\na,zebras like none before,5\nb,{text},5\nc,zebras again,1\n")
    assert "WARNING table/some:test 1 of 3 rows have texts" in encodery("evaluate", run.path, "--on", some).err


@pytest.mark.slow
def test_the_file_of_a_run_is_known_by_its_digest_where_it_was_moved(run, tmp_path, encodery):
    copy = shutil.copytree(run.path, tmp_path / "run")
    moved = shutil.copy(run.path.parent / "train.csv", tmp_path / "moved.csv")
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace(str(run.path.parent), "/nowhere"))
    (copy / "DONE").unlink()
    RunDir(copy).mark_done()
    trained = run.rows_of("table/train", "train")["rows"]
    said = encodery("evaluate", copy, "--on", moved)
    assert (said.code, f"up to {trained} of 48 rows have texts that the run was trained on" in said.err) == (0, True)


@pytest.mark.slow
def test_two_files_of_one_name_are_refused_together_and_told_one_after_the_other(run, tmp_path, encodery):
    for month in ("jan", "feb"):
        (tmp_path / month).mkdir()
    jan, feb = gold(tmp_path / "jan/gold.csv", "key,what,points"), tmp_path / "feb/gold.csv"
    feb.write_text("\n".join(jan.read_text().splitlines()[:4]) + "\n")
    said = encodery("evaluate", run.path, "--on", jan, feb)
    assert said.code == 2
    assert f"{jan} and {feb} would both be table/gold:test" in said.err
    assert encodery("evaluate", run.path, "--on", jan, tmp_path / "feb/../jan/gold.csv", "--quiet").code == 0
    assert "is replaced" not in encodery("evaluate", run.path, "--on", jan).err
    said = encodery("evaluate", run.path, "--on", feb)
    assert said.code == 0
    assert f"table/gold:test: the earlier evaluation in {run.path} (6 rows, other rows or labels) is repl" in said.err


@pytest.mark.slow
def test_one_empty_label_is_a_bad_row_and_only_empty_ones_are_no_labels(run, tmp_path, encodery):
    file = gold(tmp_path / "part.csv", "key,what,points")
    answers = tmp_path / "answers.csv"
    answers.write_text("key,prediction\n" + "".join(f"g{i},5\n" for i in range(6)))
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], lines[3].removesuffix("5"), *lines[4:]]) + "\n")
    for words in (("evaluate", run.path), ("score", answers)):
        said = encodery(*words, "--on", file, "--label-column", "points", "--json")
        assert said.code == 2
        assert 'part.csv, line 4, column "points": there is no label' in said.err
        assert "--skip-bad-rows" in said.err
        said = encodery(*words, "--on", file, "--label-column", "points", "--json", "--skip-bad-rows")
        assert (said.code, "accuracy" in said.out) == (0, True)
    file.write_text("\n".join([lines[0], *(line.removesuffix("5") for line in lines[1:])]) + "\n")
    said = encodery("evaluate", run.path, "--on", file)
    assert (said.code, "part.csv has no labels: predictions only" in said.out) == (0, True)
    file.write_text(file.read_text().replace("points", "stars"))
    said = encodery("score", answers, "--on", file)
    assert (said.code, "part.csv has no labels: column stars is empty (--label-column" in said.err) == (2, True)


@pytest.mark.slow
def test_no_other_column_is_the_label_where_a_file_lacks_the_label_of_the_run(run, tmp_path, encodery):
    rows = [(f"g{i}", "low" if i % 2 else "high", text) for i, text in enumerate(sentences(30, 500))]
    file = write_csv(tmp_path / "new.csv", ["key", "priority", "what"], rows)
    said = encodery("embed", run.path, "--on", file, "-o", tmp_path / "vectors", "--quiet")
    assert (said.code, "30 × 32" in said.out) == (0, True)
    said = encodery("evaluate", run.path, "--on", file, "--quiet")
    assert said.code == 0
    assert "new.csv has no labels: predictions only (the run has them in points; --label-column" in said.out
    said = encodery("heads", run.path, "--on", file, "-o", tmp_path / "heads", "--quiet")
    assert (said.code, "new.csv has no labels, and a loss needs them (the run has them in points" in said.err) == (
        2,
        True,
    )
    wrong = write_csv(
        tmp_path / "wrong.csv", ["key", "points", "what"], [(k, "" if k == "g3" else p, t) for k, p, t in rows]
    )
    said = encodery("embed", run.path, "--on", wrong, "-o", tmp_path / "more", "--quiet")  # labels are not looked at
    assert (said.code, "30 × 32" in said.out) == (0, True)


def test_the_pool_of_select_is_a_file_with_settings(tmp_path, encodery):
    rows = [(text, "ab"[i % 2], "xyz"[i % 3]) for i, text in enumerate(sentences(30))]
    file = write_csv(tmp_path / "pool.csv", ["text", "topic", "priority"], rows)
    words = ("select", "--pool", file, "--selector", "random", "--count", "5", "-o", tmp_path / "chosen")
    said = encodery(*words)
    assert said.code == 2
    assert "--pool.label topic " in said.err
    said = encodery(*words, "--pool.label", "topic")
    assert (said.code, "5 of 27 rows" in said.out) == (0, True)


@pytest.mark.slow
def test_a_pool_that_lacks_the_label_of_the_run_gets_no_other_label(run, tmp_path, encodery):
    rows = [(f"g{i}", "low" if i % 2 else "high", text) for i, text in enumerate(sentences(30, 500))]
    file = write_csv(tmp_path / "pool.csv", ["key", "priority", "what"], rows)
    words = ("select", "--pool", file, "--selector.kind", "clusters", "--embed.model", run.path, "--count", "5")
    said = encodery(*words, "-o", tmp_path / "chosen", "--export", tmp_path / "five.csv")
    assert (said.code, "5 of 30 rows" in said.out) == (0, True), said.err
    assert "pool: pool.csv has no labels (the run has them in points); all its rows are the pool" in said.err
    assert "high" not in said.err
    assert len((tmp_path / "five.csv").read_text().splitlines()) == 6
    said = encodery(*words, "-o", tmp_path / "more", "--pool.label", "priority")
    assert (said.code, "5 of 27 rows" in said.out) == (0, True), said.err


def test_select_from_a_file(tmp_path, encodery):
    rows = [(text, mood(text)) for text in sentences(40)]
    file = write_csv(tmp_path / "pool.csv", ["text", "label"], rows)
    said = encodery("select", "--pool", file, "--selector", "random", "--count", "5", "-o", tmp_path / "chosen")
    assert said.code == 0
    assert "5 of 36 rows" in said.out  # a tenth is set aside, as it is when the file is trained on
    assert "pool: 36 rows of pool.csv; 4 others are set aside as dev" in said.err


@pytest.mark.slow
def test_the_page_shows_the_errors_on_a_file_and_no_path(run, tmp_path, encodery):
    texts = sentences(6, 700)
    rows = [(f"g{i}", f"{text} xyzzy", "1" if mood(text) == "pos" else "5") for i, text in enumerate(texts)]
    file = write_csv(tmp_path / "wrong.csv", ["key", "what", "points"], rows)  # what it learnt is wrong here
    assert encodery("evaluate", run.path, "--on", file, "--quiet").code == 0
    wrong = list(map(json.loads, run.predictions_path("table/wrong", "test").read_text().splitlines()))
    gold = {row[0]: row[2] for row in rows}
    assert any(row["prediction"] != gold[row["id"]] for row in wrong)
    said = encodery("report", run.path, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "table/wrong:test: no examples are shown" not in said.err + page
    assert "xyzzy" in page
    assert str(tmp_path) not in page
    file.write_text(file.read_text().replace("xyzzy", "plugh"))  # other rows than those that were scored
    said = encodery("report", run.path, "-o", tmp_path / "page.html")
    assert "are not the ones that" in said.err
    assert "plugh" not in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_vectors_of_a_whole_file_serve_the_part_of_it_that_is_a_pool(run, tmp_path, encodery, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"g{i}", text, mood(text)) for i, text in enumerate(sentences(30, 500))]
    write_csv(tmp_path / "pool.csv", ["id", "text", "label"], rows)
    assert encodery("embed", run.path, "--on", "pool.csv", "-o", "vectors", "--quiet").code == 0
    words = ("select", "--selector.kind", "clusters", "--embeddings", "vectors", "--count", "5", "-o", "chosen")
    said = encodery(*words, "--pool", "pool.csv")
    assert (said.code, "5 of 27 rows" in said.out) == (0, True), said.err
    write_csv(tmp_path / "other.csv", ["id", "text", "label"], [(id, f"{text}!", label) for id, text, label in rows])
    said = encodery(*words, "--pool", "other.csv")
    assert said.code == 2
    assert "was made from table/pool:test (30 rows), but it is used for table/other:train (27 rows)" in said.err


def test_a_pool_without_labels_and_its_export_as_the_file_was(tmp_path, encodery):
    lines = [f"T{i};{text}" for i, text in enumerate(sentences(30, 500))]
    (tmp_path / "pool.csv").write_text("\n".join(["ticket_id;message", *lines]) + "\n")
    words = (
        "select",
        "--pool",
        tmp_path / "pool.csv",
        "--selector",
        "random",
        "--count",
        "5",
        "-o",
        tmp_path / "chosen",
    )
    said = encodery(*words)
    assert said.code == 2
    assert "--pool.label none" in said.err
    said = encodery(*words, "--pool.label", "none", "--export", tmp_path / "five.csv")
    assert (said.code, "5 of 30 rows" in said.out) == (0, True), said.err
    assert "pool: pool.csv is read without labels; all its rows are the pool" in said.err
    header, *rows = (tmp_path / "five.csv").read_text().splitlines()
    assert header == "ticket_id;message"
    assert len(rows) == 5
    assert set(rows) <= set(lines)


def test_the_label_is_the_column_with_the_labels_of_the_run_whatever_it_is_called(run, tmp_path):
    rows = [(text, "ab"[i % 2], "15"[i % 2]) for i, text in enumerate(sentences(12, 500))]
    file = write_csv(tmp_path / "gold.csv", ["words", "quality", "judged"], rows)
    (meant,) = resolve_split(str(file), runs=[run])
    assert {row.label for row in meant.task.examples("test")} == {"1", "5"}


@pytest.mark.slow
def test_labels_with_other_names_are_one_error_and_can_be_renamed(run, tmp_path, encodery):
    rows = [(text, "good" if mood(text) == "pos" else "bad") for text in sentences(12, 500)]
    file = write_csv(tmp_path / "gold.csv", ["what", "points"], rows)
    said = encodery("evaluate", run.path, "--on", file)
    assert said.code == 2
    assert 'gold.csv, lines 2 to 13, column "points": none is one of the labels "1", "5"; there are "' in said.err
    assert "--rename-labels" in said.err
    assert "line 2," not in said.err
    mixed = [(text, label if i % 2 else f" {label.upper()}") for i, (text, label) in enumerate(rows)]
    shouted = encodery("evaluate", run.path, "--on", write_csv(tmp_path / "mixed.csv", ["what", "points"], mixed))
    advice = shouted.err.partition("--rename-labels ")[2].partition(")")[0]
    assert sorted(name.removesuffix("=…").lower() for name in advice.split(",")) == ["bad", "good"]  # each once
    said = encodery("evaluate", run.path, "--on", file, "--rename-labels", "good=5,bad=1", "--json", "--quiet")
    same = write_csv(tmp_path / "same.csv", ["what", "points"], [(text, {"good": 5, "bad": 1}[y]) for text, y in rows])
    plain = encodery("evaluate", run.path, "--on", same, "--json", "--quiet")
    assert json.loads(said.out)["table/gold:test"]["scores"] == json.loads(plain.out)["table/same:test"]["scores"]
    for words, sentence in {"good=7": "7 is not a label of the run; it has 1, 5", "good": "expected OLD=NEW"}.items():
        said = encodery("evaluate", run.path, "--on", file, "--rename-labels", words)
        assert (said.code, sentence in said.err) == (2, True)
    quoted = encodery("evaluate", run.path, "--on", file, "--rename-labels", "{good: 5, 'bad': 1}", "--quiet")
    assert quoted.code == 0


@pytest.mark.slow
def test_an_evaluation_in_a_folder_of_its_own_says_what_it_replaces(run, tmp_path, encodery):
    file = gold(tmp_path / "gold.csv", "key,what,points")
    words = ("evaluate", run.path, "--on", file, "-o", tmp_path / "scores")
    assert "replaced" not in encodery(*words).err + encodery(*words).err
    file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")
    assert "(6 rows, other rows or labels) is replaced" in encodery(*words).err


@pytest.mark.slow
def test_an_attack_on_rows_that_were_trained_on_says_so(run, encodery):
    own = run.path.parent / "train.csv"
    said = encodery("evaluate", run.path, "--on", own, "--attack", "fgsm", "--radius", "0")
    assert (said.code, "of 48 rows have texts that the run was trained on" in said.err) == (0, True)


def test_another_file_with_the_directory_of_a_run_is_named(run, tmp_path, encodery):
    rows = [(f"k{i}", text, 5 if mood(text) == "pos" else 1) for i, text in enumerate(sentences(30, 900))]
    other = write_csv(tmp_path / "other.csv", ["key", "what", "points"], rows)
    copy = shutil.copytree(run.path, tmp_path / "run")
    said = encodery("train", copy / "config.yaml", "--tasks.train", other, "-o", copy)
    assert (said.code, f"train.csv' there, '{other}' now" in said.err) == (2, True)
