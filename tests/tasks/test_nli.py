import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encodery.tasks import catalogue, split_name, task_classes
from encodery.tasks.glue import Glue
from encodery.tasks.nli import Nli


def test_a_set_without_dev_is_divided_by_question(tmp_path):
    rows = {"premise": [f"p{i}" for i in range(60)], "hypothesis": [f"h{i % 20}" for i in range(60)]}
    pq.write_table(pa.table(rows | {"label": [i % 2 for i in range(60)]}), tmp_path / "scitail_part.parquet")
    task = Nli(part="scitail", data=str(tmp_path))
    train, dev = task.examples("train"), task.examples("dev")
    assert (len(train), len(dev)) == (54, 6)
    assert not {e.texts[1] for e in train} & {e.texts[1] for e in dev}
    assert task.origin("dev").note == "our own split, not the published one"
    assert task.origin("train").part == "part: 54 of 23,097"
    assert not task.has("test")
    assert [e.id for e in dev] == [e.id for e in Nli(part="scitail", data=str(tmp_path)).examples("dev")]


def test_our_own_dev_part_is_not_called_another_release(tmp_path):
    """The file is larger than the published dev set, and the tenth of it may be larger or smaller."""
    from encodery.tasks.sources.check_folder import check

    rows = {"premise": [f"p{i}" for i in range(1400)], "hypothesis": [f"h{i // 4}" for i in range(1400)]}
    pq.write_table(pa.table(rows | {"label": [i % 2 for i in range(1400)]}), tmp_path / "scitail_part.parquet")
    assert Nli(part="scitail", data=str(tmp_path)).origin("dev").note == "our own split, not the published one"
    found = {status.name: status for status in check(tmp_path)}
    assert found["nli/scitail:dev"].state == "part"
    assert found["nli/scitail:dev"].words == "140 rows; our own split, not the published one (scitail_part.parquet)"
    assert found["nli/scitail:train"].words.startswith("1,260 of 23,097 rows; our own split")


def test_label_names_are_those_of_mnli():
    for part in ("snli", "anli", "sick"):
        assert Nli(part=part).labels == Glue(part="mnli").labels
    assert Nli(part="scitail").labels == ("entailment", "neutral")


@pytest.mark.real
def test_real_counts(real_data):
    expected = {
        ("snli", "dev"): 9842,
        ("snli", "test"): 9824,
        ("anli", "dev"): 3200,
        ("sick", "train"): 4500,
        ("sick", "dev"): 500,
        ("sick", "test"): 4927,
    }
    for (part, split), rows in expected.items():
        task = Nli(part=part, data=str(real_data))
        assert (task.origin(split).rows, task.origin(split).part) == (rows, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("glue/rte", ("glue/rte", None)),
        ("glue/mnli:validation_matched", ("glue/mnli", "dev")),
        ("glue/mnli:test_mismatched", ("glue/mnli", "test_mismatched")),
        ("mine.py:MyTask", ("mine.py:MyTask", None)),
        ("mine.py:MyTask:dev", ("mine.py:MyTask", "dev")),
        ("dev", ("dev", None)),
    ],
)
def test_split_names(text, found):
    assert split_name(text) == found


def test_catalogue_lists_every_part():
    entries = {entry.name: entry for entry in catalogue()}
    assert entries["glue/stsb"].kind == "regression"
    assert entries["glue/mnli"].splits == ("train", "dev", "dev_mismatched", "test", "test_mismatched")
    assert entries["table"].description.startswith("Your own files")
    assert {"glue", "nli", "table"} <= set(task_classes())
