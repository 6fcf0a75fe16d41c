import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import RunFailed, UserError
from encodery.tasks.base import Example
from encodery.tasks.forms.classification import double_unordered
from encodery.tasks.glue import Glue
from tests.toolbox.tokenizers import Characters

MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
HEADERS = {  # file -> (header or None, text columns, label column or None), as in the official archive
    "CoLA/train.tsv": (None, 4, [3], 1),
    "CoLA/dev.tsv": (None, 4, [3], 1),
    "CoLA/test.tsv": ("index\tsentence", 2, [1], None),
    "SST-2/train.tsv": ("sentence\tlabel", 2, [0], 1),
    "SST-2/dev.tsv": ("sentence\tlabel", 2, [0], 1),
    "SST-2/test.tsv": ("index\tsentence", 2, [1], None),
    "MRPC/train.tsv": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", 5, [3, 4], 0),
    "MRPC/dev.tsv": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", 5, [3, 4], 0),
    "MRPC/test.tsv": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", 5, [3, 4], None),
    "STS-B/train.tsv": (
        "index genre filename year old_index source1 source2 sentence1 sentence2 score".replace(" ", "\t"),
        10,
        [7, 8],
        9,
    ),
    "STS-B/dev.tsv": (
        "index genre filename year old_index source1 source2 sentence1 sentence2 score".replace(" ", "\t"),
        10,
        [7, 8],
        9,
    ),
    "STS-B/test.tsv": (
        "index genre filename year old_index source1 source2 sentence1 sentence2".replace(" ", "\t"),
        9,
        [7, 8],
        None,
    ),
    "QQP/train.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 6, [3, 4], 5),
    "QQP/dev.tsv": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 6, [3, 4], 5),
    "QQP/test.tsv": ("id\tquestion1\tquestion2", 3, [1, 2], None),
    "MNLI/train.tsv": (f"{MNLI} sentence1 sentence2 label1 gold_label".replace(" ", "\t"), 12, [8, 9], 11),
    "MNLI/dev_matched.tsv": (
        f"{MNLI} sentence1 sentence2 label1 label2 label3 label4 label5 gold_label".replace(" ", "\t"),
        16,
        [8, 9],
        15,
    ),
    "MNLI/dev_mismatched.tsv": (
        f"{MNLI} sentence1 sentence2 label1 label2 label3 label4 label5 gold_label".replace(" ", "\t"),
        16,
        [8, 9],
        15,
    ),
    "MNLI/test_matched.tsv": (f"{MNLI} sentence1 sentence2".replace(" ", "\t"), 10, [8, 9], None),
    "MNLI/test_mismatched.tsv": (f"{MNLI} sentence1 sentence2".replace(" ", "\t"), 10, [8, 9], None),
    "QNLI/train.tsv": ("index\tquestion\tsentence\tlabel", 4, [1, 2], 3),
    "QNLI/dev.tsv": ("index\tquestion\tsentence\tlabel", 4, [1, 2], 3),
    "QNLI/test.tsv": ("index\tquestion\tsentence", 3, [1, 2], None),
    "RTE/train.tsv": ("index\tsentence1\tsentence2\tlabel", 4, [1, 2], 3),
    "RTE/dev.tsv": ("index\tsentence1\tsentence2\tlabel", 4, [1, 2], 3),
    "RTE/test.tsv": ("index\tsentence1\tsentence2", 3, [1, 2], None),
    "WNLI/train.tsv": ("index\tsentence1\tsentence2\tlabel", 4, [1, 2], 3),
    "WNLI/dev.tsv": ("index\tsentence1\tsentence2\tlabel", 4, [1, 2], 3),
    "WNLI/test.tsv": ("index\tsentence1\tsentence2", 3, [1, 2], None),
    "diagnostic/diagnostic.tsv": ("index\tsentence1\tsentence2", 3, [1, 2], None),
}
FOLDERS = {
    "CoLA": "cola",
    "SST-2": "sst2",
    "MRPC": "mrpc",
    "STS-B": "stsb",
    "QQP": "qqp",
    "MNLI": "mnli",
    "QNLI": "qnli",
    "RTE": "rte",
    "WNLI": "wnli",
    "diagnostic": "ax",
}
SPLITS = {
    "train.tsv": "train",
    "dev.tsv": "dev",
    "test.tsv": "test",
    "dev_matched.tsv": "dev",
    "dev_mismatched.tsv": "dev_mismatched",
    "test_matched.tsv": "test",
    "test_mismatched.tsv": "test_mismatched",
    "diagnostic.tsv": "test",
}


def gold(task: Glue, row: int) -> str | float:
    return float(row) if task.part == "stsb" else task.labels[row % len(task.labels)]


def write_official(folder: Path) -> None:
    """Three rows in each official file; texts carry a quotation mark that never closes."""
    for name, (header, width, texts, label) in HEADERS.items():
        task = Glue(part=FOLDERS[name.split("/")[0]])
        lines = [] if header is None else [header]
        for row in range(3):
            cells = [f"c{i}" for i in range(width)]
            for place, column in enumerate(texts):
                cells[column] = f'"row {row} text {place}'
            if label is not None:
                cells[label] = str(gold(task, row))
            lines.append("\t".join(cells))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue_data")
    write_official(folder)
    return folder


@pytest.mark.parametrize("name", HEADERS)
def test_F9_official_tsv_rows_arrive_whole(official, name):
    directory, file = name.split("/")
    _, _, texts, label = HEADERS[name]
    task, split = Glue(part=FOLDERS[directory], data=str(official)), SPLITS[file]
    assert task.has(split)
    rows = task.examples(split)
    assert [e.id for e in rows] == ["0", "1", "2"]
    assert [e.texts for e in rows] == [tuple(f'"row {r} text {p}' for p in range(len(texts))) for r in range(3)]
    assert [e.label for e in rows] == [None if label is None else gold(task, r) for r in range(3)]
    assert task.origin(split).part == f"part: 3 of {task.dataset.counts[split]:,}"
    assert len(task.origin(split).files[file]) == 64


def test_mnli_keeps_the_genre_where_a_file_has_it_and_its_rows_stay_the_same(official, tmp_path):
    tsv = Glue(part="mnli", data=str(official))
    assert [e.extra for e in tsv.examples("train")] == [{"genre": "c3"}] * 3
    columns = {"premise": [], "hypothesis": [], "label": [], "idx": [], "genre": []}
    for place, (example, genre) in enumerate(zip(tsv.examples("train"), ("slate", None, ""), strict=True)):
        for name, value in zip(columns, (*example.texts, place, place, genre), strict=True):
            columns[name].append(value)
    pq.write_table(pa.table(columns), tmp_path / "mnli_train_part.parquet")
    task = Glue(part="mnli", data=str(tmp_path))
    assert [dict(e.extra) for e in task.examples("train")] == [{"genre": "slate"}, {}, {}]
    assert task.origin("train").digest == tsv.origin("train").digest


def test_F8_cola_train_and_dev_have_no_header_but_test_has(official):
    task = Glue(part="cola", data=str(official))
    assert [len(task.examples(split)) for split in task.splits()] == [3, 3, 3]
    assert task.examples("dev")[0].texts == ('"row 0 text 0',)
    assert task.examples("test")[0].texts == ('"row 0 text 0',)


@pytest.mark.parametrize("below", ["", "glue"])
def test_the_folder_may_be_the_root_the_glue_folder_or_a_task_folder(tmp_path, below):
    write_official(tmp_path / below)
    for data in {tmp_path, tmp_path / below, tmp_path / below / "RTE"}:
        assert len(Glue(part="rte", data=str(data)).examples("dev")) == 3


def test_another_tasks_folder_is_not_taken(official):
    assert not Glue(part="wnli", data=str(official / "RTE")).has("dev")


def test_environment_names_the_folder(official, monkeypatch):
    monkeypatch.setenv("GLUE_DIR", str(official))
    assert len(Glue(part="rte").examples("dev")) == 3
    monkeypatch.setenv("ENCODERY_DATA", str(official / "nowhere"))
    with pytest.raises(UserError, match="from ENCODERY_DATA"):
        Glue(part="rte").has("dev")


def test_mrpc_from_microsofts_own_files(tmp_path):
    folder = tmp_path / "MRPC"
    folder.mkdir()
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = [f"{i % 2}\t{i}\t{i + 100}\ta{i}\tb{i}\r\n" for i in range(4)]
    (folder / "msr_paraphrase_train.txt").write_bytes((head + "".join(rows)).encode())
    (folder / "msr_paraphrase_test.txt").write_bytes((head + "".join(rows)).encode())
    (folder / "dev_ids.tsv").write_text("id1\tid2\n2\t102\n")
    task = Glue(part="mrpc", data=str(tmp_path))
    assert [e.texts for e in task.examples("train")] == [("a0", "b0"), ("a1", "b1"), ("a3", "b3")]
    assert [(e.texts, e.label) for e in task.examples("dev")] == [(("a2", "b2"), "0")]
    assert [e.label for e in task.examples("test")] == [None] * 4


def test_qqp_malformed_rows_are_skipped_and_counted(official, tmp_path):
    (tmp_path / "QQP").mkdir()
    text = (official / "QQP/train.tsv").read_text() + "7\t8\tonly three\n"
    (tmp_path / "QQP/train.tsv").write_text(text)
    task = Glue(part="qqp", data=str(tmp_path))
    assert len(task.examples("train")) == 3
    assert task.origin("train").note == "1 malformed rows of the official file skipped"


def test_R11_bad_rows_of_an_official_file_are_named(official, tmp_path):
    (tmp_path / "RTE").mkdir()
    text = (official / "RTE/dev.tsv").read_text() + "4\ta\tb\tentailmnt\n5\tshort\n6\ta\tb\t\n"
    (tmp_path / "RTE/dev.tsv").write_text(text)
    with pytest.raises(UserError) as error:
        Glue(part="rte", data=str(tmp_path)).examples("dev")
    for words in (
        'line 5, column "label": "entailmnt" is not a label',
        'did you mean "entailment"',
        "line 6",
        "line 7",
    ):
        assert words in str(error.value)
    skipping = Glue(part="rte", data=str(tmp_path), skip_bad_rows=True)
    assert len(skipping.examples("dev")) == 3
    assert [bad.line for bad in skipping.bad_rows("dev")] == [5, 6, 7]
    assert skipping.origin("dev").note == "3 bad rows skipped"


def parquet(folder: Path, stem: str, **columns) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{stem}.parquet")


def test_parts_and_stand_ins_are_said_aloud(tmp_path):
    parquet(tmp_path / "glue", "qqp_train_part", question1=["a"], question2=["b"], label=[1])
    parquet(tmp_path / "glue", "qqp_holdout_part", question1=["a"], question2=["b"], label=[0])
    task = Glue(part="qqp", data=str(tmp_path))
    assert task.origin("train").part == "part: 1 of 363,846"
    assert task.origin("dev").note.startswith("NOT the official dev set")
    assert task.examples("dev")[0].label == "0"


def test_whole_files_win_over_parts_and_official_dev_over_stand_ins(tmp_path):
    for stem, text in {"qqp_dev": "whole", "qqp_dev_part": "part", "qqp_holdout_part": "other"}.items():
        parquet(tmp_path, stem, question1=[text], question2=["b"], label=[1])
    assert Glue(part="qqp", data=str(tmp_path)).examples("dev")[0].texts[0] == "whole"


def test_unknown_official_ids_get_names_of_their_own(tmp_path):
    parquet(
        tmp_path, "mnli_dev_mismatched_part", idx=[7, None], premise=["a", "c"], hypothesis=["b", "d"], label=[0, 2]
    )
    rows = Glue(part="mnli", data=str(tmp_path)).examples("dev_mismatched")
    assert [e.id for e in rows] == ["7", "row-1"]
    assert [e.label for e in rows] == ["entailment", "contradiction"]


def test_R11_faults_in_parquet_are_named(tmp_path):
    texts = ["a", None, "c", "d", "e"]
    parquet(tmp_path, "rte_dev", idx=[0, 1, 2, 2, 4], sentence1=texts, sentence2=["b"] * 5, label=[0, 1, 2, 1, -1])
    with pytest.raises(UserError) as error:
        Glue(part="rte", data=str(tmp_path)).examples("dev")
    for words in (
        'row 2, column "sentence1": null is not text',
        "2 is not a label number",
        "row 5, column",
        "no label",
    ):
        assert words in str(error.value)


def test_a_missing_column_is_named(tmp_path):
    parquet(tmp_path, "rte_dev", sentence1=["a"], sentence_2=["b"], label=[0])
    with pytest.raises(UserError, match=r'no column "sentence2" .did you mean "sentence_2"'):
        Glue(part="rte", data=str(tmp_path)).examples("dev")
    parquet(tmp_path, "rte_train", sentence1=["a"], sentence2=["b"])
    with pytest.raises(UserError, match='no column "label"'):
        Glue(part="rte", data=str(tmp_path)).examples("train")


def test_unreachable_hub_is_one_sentence_with_advice(tmp_path):
    with pytest.raises(UserError) as error:
        Glue(part="rte", data=str(tmp_path)).examples("dev")
    text = str(error.value)
    assert "\n" not in text
    assert all(word in text for word in ("rte", "dev", str(tmp_path), "nyu-mll/glue", "ENCODERY_DATA"))


@pytest.mark.parametrize(("spelling", "part"), [("sst-2", "sst2"), ("STS-B", "stsb"), ("MNLI", "mnli")])
def test_other_spellings(spelling, part):
    assert Glue(part=spelling).name == f"glue/{part}"


def test_unknown_part_and_split_are_named():
    with pytest.raises(ValueError, match="there is no glue/cloa; there are cola"):
        Glue(part="cloa")
    with pytest.raises(UserError, match='glue/rte has no split "dev_mismatched"; it has train, dev, test'):
        Glue(part="rte").examples("dev_mismatched")


def answers(task, guesses):
    return {str(i): {"prediction": guess} for i, guess in enumerate(guesses)}


def rows(labels):
    return [Example(str(i), ("a", "b"), label) for i, label in enumerate(labels)]


def test_F12_dev_metric_names():
    for part, names in {
        "mrpc": {"accuracy", "f1"},
        "qqp": {"accuracy", "f1"},
        "stsb": {"pearson", "spearman"},
        "cola": {"mcc"},
        "mnli": {"accuracy"},
    }.items():
        task = Glue(part=part)
        labels = [0.5, 3.0, 4.0] if part == "stsb" else [task.labels[0], task.labels[1], task.labels[1]]
        found = task.score(answers(task, labels), rows(labels))
        assert names <= set(found)
        assert all(found[name] == pytest.approx(1.0) for name in names)
        assert task.main_metric in found
    cola = Glue(part="cola")
    assert cola.score(answers(cola, ["1", "1"]), rows(["0", "1"]))["mcc"] == 0.0


def test_F12_missing_answers_and_hidden_labels_are_errors():
    task = Glue(part="rte")
    with pytest.raises(UserError, match="1 of 2 examples have no answer: 1"):
        task.score(answers(task, ["entailment"]), rows(["entailment"] * 2))
    with pytest.raises(UserError, match="hidden"):
        task.score(answers(task, ["entailment"]), rows([None]))


def test_F10_labels_are_strings_whatever_the_id_order():
    task = Glue(part="mnli")
    other = Glue(part="ax")
    assert task.labels == other.labels == ("entailment", "neutral", "contradiction")
    found = other.decode([{"id": "3", "logits": [0.0, 1.0, 5.0]}])
    assert found["3"]["prediction"] == "contradiction"
    assert list(found["3"]["probabilities"]) == list(other.labels)


@given(st.lists(st.floats(-1e308, 1e308), min_size=3, max_size=3))
@settings(max_examples=50)
def test_decoding_is_stable(logits):
    found = Glue(part="mnli").decode([{"id": "0", "logits": logits}])["0"]
    assert sum(found["probabilities"].values()) == pytest.approx(1.0)
    assert found["prediction"] == Glue(part="mnli").labels[logits.index(max(logits))]


def test_broken_logits_end_the_run():
    with pytest.raises(RunFailed, match="example 7"):
        Glue(part="rte").decode([{"id": "7", "logits": [float("nan"), 0.0]}])


def test_A29_stsb_is_scored_by_what_the_model_says():
    """As run_glue does: answers beyond 0 and 5 are not cut before the correlation; files for the site are (F11)."""
    task, gold, logits = Glue(part="stsb"), [5.0, 4.8, 0.0, 0.4], [7.0, 5.5, -2.0, 0.1]
    answers = task.decode([{"id": str(i), "logits": [logit]} for i, logit in enumerate(logits)])
    examples = [Example(str(i), ("a", "b"), label) for i, label in enumerate(gold)]
    scores = task.score(answers, examples)
    assert scores["pearson"] == pytest.approx(np.corrcoef(gold, logits)[0, 1])
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] != pytest.approx(np.corrcoef(gold, np.clip(logits, 0, 5))[0, 1])


def test_stsb_scale():
    plain, scaled = Glue(part="stsb"), Glue(part="stsb", target_scale=5.0)
    assert next(f.targets["label"] for f in scaled.encode(rows([5.0, None]), Characters(), 16)) == 1.0
    hidden = next(iter(plain.encode(rows([None]), Characters(), 16))).targets["label"]
    assert math.isnan(hidden)
    assert scaled.decode([{"id": "0", "logits": [0.5]}])["0"]["prediction"] == 2.5
    assert plain.objective() == {
        "kind": "classification",
        "form": "regression",
        "labels": [],
        "low": 0.0,
        "high": 5.0,
    }


def test_encoding_keeps_order_and_hides_labels():
    task = Glue(part="rte")
    examples = [Example(str(i), ("a" * (i % 5), "b"), "entailment" if i % 2 else None) for i in range(2500)]
    features = list(task.encode(examples, Characters(), 8))
    assert [f.example for f in features] == list(range(2500))
    assert {f.targets["label"] for f in features} == {0, -100}
    assert max(len(f.ids) for f in features) <= 8


def test_F6_double_unordered_appends_swaps():
    some = [Example(str(i), (f"a{i}", f"b{i}"), label) for i, label in enumerate("0110")]
    both = double_unordered(some)
    assert both[:4] == some
    assert [(e.texts[::-1], e.label) for e in both[4:]] == [(e.texts, e.label) for e in some]
    assert both[4].id == "0~swapped"
    with pytest.raises(UserError, match="pairs"):
        double_unordered([Example("0", ("a",), "1")])


@pytest.mark.real
def test_F6_double_unordered_sizes(real_data):
    for part, size in {"mrpc": 7336, "stsb": 11498}.items():
        both = double_unordered(Glue(part=part, data=str(real_data)).examples("train"))
        assert len(both) == len({e.id for e in both}) == size


@pytest.mark.real
@pytest.mark.parametrize("part", Glue.parts)
def test_official_counts(real_data, part):
    task = Glue(part=part, data=str(real_data))
    for split in filter(task.has, task.splits()):
        origin = task.origin(split)
        whole = not any("_part" in name for name in origin.files)
        assert (origin.part is None) == whole
        assert origin.rows == len(task.examples(split))
