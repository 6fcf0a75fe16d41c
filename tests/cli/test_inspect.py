import json
from pathlib import Path

from tests.toolbox.runs import config_for
from tests.toolbox.tasks import pair_task, single_task, write_csv


def written(folder: Path, task: dict, **more) -> Path:
    file = folder / "config.yaml"
    file.write_text(json.dumps(config_for(folder, task, **more)))
    return file


def test_everything_the_model_will_see(tmp_path, encodery):
    task = single_task(tmp_path)
    rows = [("good cat", "pos"), ("good cat", "pos"), ("bad dog", "neg"), ("bad dog", "pos"), ("film " * 40, "neg")]
    write_csv(tmp_path / "train.csv", ["text", "label"], rows)
    write_csv(tmp_path / "dev.csv", ["text", "label"], [("good cat", "pos"), ("a bird", "neg")])
    said = encodery("inspect", written(tmp_path, task), "--rows", 2)
    assert said.code == 0, said.err
    assert "train: 5 rows from folder" in said.out
    assert "dev: 2 rows" in said.out
    assert "train: neg 2 (40.0%)  pos 3 (60.0%)" in said.out
    assert "train: 2 texts occur more than once, 1 of them with different labels" in said.out
    assert "train and dev share 1 text\n" in said.out
    assert "cut at max_length 32: 1 (20.0%)" in said.out
    assert "longest 42" in said.out
    assert "id 0  pos (label 1)  4 tokens\n    [CLS] good cat [SEP]" in said.out
    assert said.out.count("[CLS]") == 2
    assert "first batch (packed): 5 sequences, 48 tokens\n  48 cells, 0 of them padding" in said.out
    assert "5 rows: 1 step per epoch, 4 in all" in said.out


def test_the_same_as_data_and_tables(tmp_path, encodery):
    task = single_task(tmp_path)
    rows = [("good cat", "pos"), ("good cat", "pos"), ("bad dog", "neg"), ("bad dog", "pos"), ("film " * 40, "neg")]
    write_csv(tmp_path / "train.csv", ["text", "label"], rows)
    write_csv(tmp_path / "dev.csv", ["text", "label"], [("good cat", "pos"), ("a bird", "neg")])
    file = written(tmp_path, task)
    told = json.loads(encodery("inspect", file, "--rows", 2, "--format", "json").out)
    assert [(one["split"], one["rows"]) for one in told["data"]] == [("train", 5), ("dev", 2)]
    assert {"split": "train", "label": "pos", "rows": 3, "share": 0.6} in told["labels"]
    assert told["doubles"] == [
        {"split": "train", "texts": 2, "different labels": 1},
        {"split": "dev", "texts": 0, "different labels": 0, "also in train": 1},
    ]
    assert (told["lengths"][0]["cut"], told["lengths"][0]["longest"]) == (1, 42)
    assert [one["text"] for one in told["rows"]] == ["[CLS] good cat [SEP]"] * 2
    assert told["first batch"][0]["steps"] == 4
    assert "| dev | neg | 1 | 0.5 |" in encodery("inspect", file, "--format", "md").out
    assert "dev,neg,1,0.5" in encodery("inspect", file, "--format", "csv").out


def test_overrides_other_splits_and_layouts(tmp_path, encodery):
    file = written(tmp_path, pair_task(tmp_path))
    words = ("--split", "validation", "--train.layout", "padded", "train.batch_size=8", "train.micro_batch=4")
    said = encodery("inspect", file, *words, "--rows", 0)
    assert said.code == 0, said.err
    assert "lengths of dev" in said.out
    assert "first batch (padded): 8 sequences" in said.out
    assert "micro-batch 2: 4 sequences as 4 × " in said.out
    assert "[CLS]" not in said.out


def test_numbers_several_labels_and_runs(trained, encodery):
    assert "from 0.75 to 2.75" in encodery("inspect", trained("regression")).out
    assert "good" in encodery("inspect", trained("multilabel")).out


def test_refusals(tmp_path, encodery):
    file = written(tmp_path, single_task(tmp_path))
    said = encodery("inspect", file, "--split", "test")
    assert said.code == 2
    assert 'has no split "test"' in said.err
    assert encodery("inspect", file, "--rows", -1).code == 2
    assert encodery("inspect").code == 2


def test_labels_that_differ_in_case_are_told(tmp_path, encodery):
    rows = [(f"text number {i}", "no" if i % 2 else "Yes" if i % 4 else "yes") for i in range(40)]
    file = write_csv(tmp_path / "mails.csv", ["text", "label"], rows)
    said = encodery("inspect", file)
    assert said.code == 0
    assert 'labels that differ in case or blanks only are classes of their own: "Yes", "yes"' in said.out


def test_blanks_at_the_end_of_a_label_are_seen(tmp_path, encodery):
    rows = [(f"text number {i}", "no" if i % 2 else "no ") for i in range(40)]
    said = encodery("inspect", write_csv(tmp_path / "mails.csv", ["text", "label"], rows))
    assert '"no " 18 (50.0%)' in said.out
