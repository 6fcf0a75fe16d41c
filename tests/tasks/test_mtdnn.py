"""MT-DNN's files are read as they are: definition, canonical TSV, tokenised JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

import encodery as en
from encodery.cli import main
from encodery.config import load
from encodery.core import yaml
from encodery.errors import UserError
from encodery.tasks.base import Task
from encodery.tasks.mtdnn import Mtdnn
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import sentences
from tests.toolbox.tokenizers import Characters

DEFINITION = """
rte:
  data_format: PremiseAndOneHypothesis
  dropout_p: 0.2
  enable_san: false
  labels: [not_entailment, entailment]
  metric_meta: [ACC]
  loss: CeCriterion
  kd_loss: MseCriterion
  adv_loss: SymKlCriterion
  n_class: 2
  task_type: Classification
cola:
  {data_format: PremiseOnly, enable_san: false, metric_meta: [MCC, ACC], n_class: 2, task_type: Classification}
stsb:
  data_format: PremiseAndOneHypothesis
  metric_meta: [Pearson, Spearman]
  n_class: 1
  task_type: Regression
mnli:
  data_format: PremiseAndOneHypothesis
  enable_san: false
  labels: [contradiction, neutral, entailment]
  metric_meta: [ACC]
  n_class: 3
  split_names: [train, matched_dev, mismatched_dev, matched_test, mismatched_test]
  task_type: Classification
qnnli:
  {data_format: PremiseAndMultiHypothesis, enable_san: false, metric_meta: [ACC], n_class: 1, task_type: Ranking}
ner:
  data_format: Seqence
  enable_san: false
  labels: [O, B-PER, I-PER, X, CLS, SEP]
  metric_meta: [SeqEval]
  n_class: 6
  task_type: SeqenceLabeling
squad:
  {data_format: MRC, enable_san: false, metric_meta: [EmF1], n_class: 2, task_type: SpanClassification, dropout_p: 0.3}
mlm:
  {data_format: MLM, enable_san: false, metric_meta: [ACC], n_class: 2, task_type: MaskLM}
odd:
  {data_format: MRC, enable_san: false, metric_meta: [ACC], n_class: 2, task_type: Classification}
san:
  {data_format: PremiseOnly, enable_san: true, metric_meta: [ACC], n_class: 2, task_type: Classification}
"""
ROWS = {
    "rte_train.tsv": '0\tentailment\ta cat sleeps\tthe cat sleeps\n1\tnot_entailment\ta dog "runs\tthe cat runs\n',
    "rte_dev.tsv": "0\t1\ta cat\tthe cat\n",
    "cola_train.tsv": "0\t1\tthe cat sleeps\n1\t0\tcat the\n",
    "stsb_train.tsv": "0\t3.5\ta cat\tthe cat\n1\t0.0\ta dog\tthe film\n",
    "mnli_mismatched_dev.tsv": "0\tneutral\ta cat\ta dog\n",
    "qnnli_train.tsv": "7\t0,1,2\t0,1,0\ta cat\ta dog\tthe cat\there\n",
    "ner_train.tsv": '0\t["O", "B-PER"]\t["the", "cat"]\n1\t[\'B-PER\', \'I-PER\']\t[\'dog\', "cat\'s"]\n',
    "squad_train.tsv": "a\t4:::7:::0:::Cat\tthe cat sleeps EOSEOS\twho sleeps\n"
    "b\t-1:::-1:::1:::\tthe cat EOSEOS\twho runs\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "def.yml").write_text(DEFINITION)
    for name, text in ROWS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def task(folder: Path, name: str, **more: Any) -> Task:
    options = {"definition": "def.yml", "task": name, "root": str(folder), **more}
    return Mtdnn.variant(options).model_validate(options)


def test_pairs_labels_and_dropout(folder: Path) -> None:
    rte = task(folder, "rte")
    assert rte.labels == ("not_entailment", "entailment")
    first, second = rte.examples("train")
    assert (first.id, first.texts, first.label) == ("0", ("a cat sleeps", "the cat sleeps"), "entailment")
    assert second.texts[0] == 'a dog "runs'
    assert rte.examples("dev")[0].label == "entailment"  # 1 is a place among the labels
    assert rte.objective()["head_dropout"] == 0.2
    assert not rte.has("test")


@pytest.mark.slow
def test_every_form_of_task(folder: Path) -> None:
    assert task(folder, "cola").labels == ("0", "1")
    assert task(folder, "cola").main_metric == "mcc"
    stsb = task(folder, "stsb")
    assert [e.label for e in stsb.examples("train")] == [3.5, 0.0]
    assert stsb.main_metric == "pearson"
    mnli = task(folder, "mnli")
    assert mnli.splits() == ("train", "dev", "dev_mismatched", "test", "test_mismatched")
    assert mnli.examples("dev_mismatched")[0].label == "neutral"
    (ranked,) = task(folder, "qnnli").examples("train")
    assert (ranked.texts, ranked.label) == (("a cat", "a dog", "the cat", "here"), "1")
    ner = task(folder, "ner")
    assert ner.labels == ("O", "B-PER", "I-PER")
    assert ner.main_metric == "f1"
    assert [e.extra["words"] for e in ner.examples("train")] == [("the", "cat"), ("dog", "cat's")]
    special = task(folder, "ner", train_on_special_labels=True)
    assert special.objective()["labels"] == ["O", "B-PER", "I-PER", "X", "CLS", "SEP"]


def test_questions_are_read_from_the_canonical_file(folder: Path) -> None:
    squad = task(folder, "squad")
    there, gone = squad.examples("train")
    assert (there.texts, there.label, there.extra["starts"]) == (("who sleeps", "the cat sleeps"), ("cat",), (4,))
    assert (gone.texts, gone.label) == (("who runs", "the cat"), ())
    assert squad.objective() == {"kind": "span", "span_head": "simple", "impossible": True, "head_dropout": 0.3}
    assert squad.main_metric == "f1"
    first, _ = squad.encode([there, gone], Characters(), 40)
    start, end = first.targets["start"], first.targets["end"]
    assert there.texts[1][first.marks["begin"][start] : first.marks["end"][end]] == "cat"
    assert task(folder, "squad", head="joint").objective()["span_head"] == "joint"


def test_scores_follow_metric_meta(folder: Path) -> None:
    cola = task(folder, "cola")
    rows = cola.examples("train")
    scores = cola.score({e.id: {"prediction": e.label} for e in rows}, rows)
    assert scores["mcc"] == scores["accuracy"] == 1.0


def test_tokenised_json_goes_to_the_model_as_it_is(folder: Path) -> None:
    (folder / "rte_train.tsv").unlink()
    row = {
        "uid": "5",
        "label": 1,
        "token_id": [2, 7, 8, 3, 9, 3],
        "type_id": [0, 0, 0, 0, 1, 1],
        "attention_mask": [1] * 6,
    }
    (folder / "rte_train.json").write_text(json.dumps(row) + "\n")
    rte = task(folder, "rte")
    assert rte.examples("train")[0].label == "entailment"
    assert "same tokenizer" in str(rte.origin("train").note)
    (features,) = rte.encode(rte.examples("train"), Characters(), 16)
    assert (list(features.ids), list(features.types)) == (row["token_id"], row["type_id"])
    ranked = {"uid": "1", "label": [0, 1], "token_id": [[2, 7, 3], [2, 8, 3]], "type_id": [[0, 0, 0]] * 2}
    (folder / "qnnli_train.tsv").unlink()
    (folder / "qnnli_train.json").write_text(json.dumps(ranked) + "\n")
    found = list(task(folder, "qnnli").encode(task(folder, "qnnli").examples("train"), Characters(), 16))
    assert [(list(f.ids), f.targets["right"], f.group) for f in found] == [([2, 7, 3], 0, 0), ([2, 8, 3], 1, 0)]


def tokenised_tags(**change: Any) -> str:
    """`the`, `cat ##s`, with label numbers as in the definition: O, B-PER, I-PER, X, CLS, SEP."""
    row = {"uid": "5", "label": [4, 0, 1, 3, 5], "token_id": [2, 7, 8, 9, 3], "type_id": [0] * 5}
    return json.dumps(row | change) + "\n"


def test_tokenised_tags_go_to_the_model_as_they_are(folder: Path) -> None:
    (folder / "ner_train.tsv").unlink()
    (folder / "ner_train.json").write_text(tokenised_tags())
    plain, special = task(folder, "ner"), task(folder, "ner", train_on_special_labels=True)
    (example,) = plain.examples("train")
    assert example.label == ("O", "B-PER")
    (features,) = plain.encode([example], Characters(), 16)
    assert (list(features.ids), list(features.types)) == ([2, 7, 8, 9, 3], [0] * 5)
    assert features.token_targets["tag"] == [-100, 0, 1, -100, -100]
    assert features.marks["word"] == [-1, 0, 1, -1, -1]
    (features,) = special.encode([example], Characters(), 16)
    assert features.token_targets["tag"] == [4, 0, 1, 3, 5]
    short = list(task(folder, "ner", stride=1).encode([example], Characters(), 4))  # windows: no word is lost
    assert [list(one.ids) for one in short] == [[2, 7, 8, 3], [2, 8, 9, 3]]
    assert sorted(word for one in short for word in one.marks["word"] if word >= 0) == [0, 1]
    logits = [[0.0] * 3 for _ in range(5)]
    logits[1][0] = logits[2][1] = 9.0
    row = {"id": "5", "logits": logits, "word": [-1, 0, 1, -1, -1]}
    assert plain.decode([row], [example])["5"]["prediction"] == ["O", "B-PER"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": [4, 0, 1, 5]}, "as long as token_id"),
        ({"label": [0, 0, 1, 3, 5]}, "begin with CLS"),
        ({"label": [4, 3, 1, 3, 5]}, "begin with CLS and a word"),
        ({"label": [4, 0, 1, 9, 5]}, "is not a label of this task"),
        ({"label": None}, "as long as token_id"),
    ],
)
def test_bad_tokenised_tags_are_named(change: dict[str, Any], words: str, folder: Path) -> None:
    (folder / "ner_train.tsv").unlink()
    (folder / "ner_train.json").write_text(tokenised_tags(**change))
    with pytest.raises(UserError, match=words):
        task(folder, "ner").examples("train")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "there is no task nothing; it has rte, cola"),
        ("mlm", "mlm.data_format"),
        ("odd", "data_format MRC does not fit Classification"),
        ("san", "enable_san is not supported: set it to false"),
    ],
)
def test_what_is_not_known_here_is_refused_by_name(name: str, words: str, folder: Path) -> None:
    with pytest.raises(UserError, match=words):
        task(folder, name)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("rte", "0\tentailment\ta\tb\tc\n", "line 1: 5 fields instead of 4: is there a tab"),
        ("rte", "0\tentailment\ta\tb\n0\tentailment\ta\tb\n", "occurs twice"),
        ("rte", "0\tmaybe\ta\tb\n", '"maybe" is not a label of this task'),
        ("ner", "0\t['O'\t['a']\n", "is not a list"),
        ("ner", "0\t['O']\t['a', 'b']\n", "1 labels for 2 words"),
        ("qnnli", "0\t0,1\t0,0\ta\tb\tc\n", "does not name its correct candidate"),
        ("ner", "0\t__import__('os')\t['a']\n", "is not a list"),
        ("squad", "0\t4:::7:::cat\tthe cat\twho\n", "is not start:::end:::impossible:::answer"),
        ("squad", "0\t3:::6:::0:::cat\tthe cat\twho\n", 'the answer "cat" is not at offset 3'),
    ],
)
def test_bad_rows_are_named(file: str, text: str, words: str, folder: Path) -> None:
    (folder / f"{file}_train.tsv").write_text(text)
    with pytest.raises(UserError, match=words):
        task(folder, file).examples("train")


def test_tokenised_questions_are_refused_with_advice(folder: Path) -> None:
    (folder / "squad_train.tsv").unlink()
    (folder / "squad_train.json").write_text('{"uid": "1", "token_id": [2, 3], "type_id": [0, 0]}\n')
    with pytest.raises(UserError, match="give the canonical TSV"):
        task(folder, "squad").examples("train")


@pytest.mark.slow
def test_tokenised_tags_and_questions_train(folder: Path) -> None:
    (folder / "ner_train.tsv").unlink()
    rows = [tokenised_tags(uid=str(i), token_id=[2, 7 + i % 5, 8, 9, 3]) for i in range(12)]
    (folder / "ner_train.json").write_text("".join(rows))
    questions = [f"{i}\t4:::7:::0:::cat\tthe cat sleeps\tvery good\n" for i in range(12)]
    (folder / "squad_train.tsv").write_text("".join(questions))
    for name, ending in (("ner", "json"), ("squad", "tsv")):
        (folder / f"{name}_dev.{ending}").write_text((folder / f"{name}_train.{ending}").read_text())
        tree = config_for(folder, {}, train={"max_steps": 2, "evaluate": "end"})
        tree["tasks"] = f"mtdnn:{folder}/def.yml#{name}"
        assert "f1" in en.train(tree, folder / f"run-{name}").scores[f"mtdnn/{name}:dev"]


@pytest.mark.slow
def test_a_config_names_it_in_one_word_and_it_trains(folder: Path) -> None:
    names = ("not_entailment", "entailment")
    rows = "".join(f"{i}\t{names[i % 2]}\t{text}\t{text}\n" for i, text in enumerate(sentences(12)))
    (folder / "rte_train.tsv").write_text(rows)
    tree = config_for(folder, {}, train={"max_steps": 2}) | {"tasks": f"mtdnn:{folder}/def.yml#rte"}
    assert [one.name for one, _ in load.load(tree).tasks] == ["mtdnn/rte"]
    run = en.train(tree, folder / "run")
    assert "accuracy" in run.scores["mtdnn/rte:dev"]
    with pytest.raises(UserError, match="there is no task rtee"):
        load.load({**tree, "tasks": f"mtdnn:{folder}/def.yml#rtee"})


DUMMY = {
    "rte_test.tsv": "0\tnot_entailment\ta cat\tthe cat\n1\tnot_entailment\ta dog\tthe cat\n",
    "cola_test.tsv": "0\t0\tthe cat\n1\t0\tcat the\n",
    "stsb_test.tsv": "0\t0.0\ta cat\tthe cat\n1\t0.0\ta dog\tthe cat\n",
    "ner_test.tsv": '0\t["O", "O"]\t["the", "cat"]\n1\t["O"]\t["dog"]\n',
    "qnnli_test.tsv": "7\t0,1,2\t0,0,0\ta cat\ta dog\tthe cat\there\n8\t0,1,2\t0,0,0\ta cat\ta\tb\tc\n",
}


def labels_of(found: Task, split: str = "test") -> list[Any]:
    return [example.label for example in found.examples(split)]


@pytest.mark.parametrize("file", DUMMY)
def test_G38_the_dummy_labels_of_a_test_file_are_hidden_ones(file: str, folder: Path) -> None:
    """MT-DNN's scripts write the same label into every row of a test file: contradiction, 0, 0.0 or entailment."""
    (folder / file).write_text(DUMMY[file])
    found = task(folder, file.partition("_")[0])
    assert labels_of(found) == [None, None]
    assert "treated as hidden and not scored" in str(found.origin("test").note)
    assert labels_of(found, "train") != [None] * 2


def test_G38_test_labels_that_are_true_are_scored(folder: Path) -> None:
    (folder / "cola_test.tsv").write_text(DUMMY["cola_test.tsv"])
    real = task(folder, "cola", test_labels="real")
    assert labels_of(real) == ["0", "0"]
    assert real.origin("test").note is None
    (folder / "cola_test.tsv").write_text("0\t0\tthe cat\n1\t1\tcat the\n")
    assert labels_of(task(folder, "cola")) == ["0", "1"]
    assert labels_of(task(folder, "cola", test_labels="dummy")) == [None, None]


@pytest.mark.slow
def test_G38_evaluate_predicts_a_test_file_with_dummy_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rte_test.tsv").write_text(DUMMY["rte_test.tsv"])
    tree = config_for(folder, {}, train={"max_steps": 1}) | {"tasks": f"mtdnn:{folder}/def.yml#rte"}
    en.train(tree, folder / "run")
    capsys.readouterr()
    assert main(["evaluate", str(folder / "run"), "--on", "mtdnn/rte:test"]) == 0
    said = capsys.readouterr()
    assert "labels are hidden: predictions only" in said.out
    assert "accuracy" not in said.out
    assert "both rows have the same label (not_entailment)" in said.err


def test_rankings_may_name_their_labels(folder: Path) -> None:
    text = DEFINITION.replace("metric_meta: [ACC], n_class: 1", "labels: [no, yes], metric_meta: [ACC], n_class: 1")
    (folder / "def.yml").write_text(text)
    (folder / "qnnli_train.tsv").write_text("7\t0,1,2\tno,yes,no\ta cat\ta dog\tthe cat\there\n")
    (folder / "qnnli_dev.tsv").write_text("7\t0,1,2\tno,no,no\ta cat\ta dog\tthe cat\there\n")
    assert labels_of(task(folder, "qnnli"), "train") == ["1"]
    with pytest.raises(UserError, match="does not name its correct candidate"):
        task(folder, "qnnli").examples("dev")


def test_G39_a_key_that_a_definition_has_twice_is_noted_and_the_last_one_taken(folder: Path) -> None:
    """As MT-DNN's own ner_task_def.yml has it for pos and chunk."""
    twice = DEFINITION.replace("  dropout_p: 0.2\n", "  dropout_p: 0.2\n  loss: First\n  dropout_p: 0.3\n")
    (folder / "def.yml").write_text(twice)
    rte = task(folder, "rte")
    assert rte.objective()["head_dropout"] == 0.3
    note = str(rte.origin("train").note)
    assert "def.yml:6: the key rte.dropout_p appears twice (first in line 4); the last one is taken" in note
    assert "rte.loss" in note
    assert task(folder, "cola").origin("train").note is None
    with pytest.raises(UserError, match="'dropout_p' appears twice"):  # our own files may not
        yaml.read_file(folder / "def.yml")
