import socket
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encodery.errors import UserError
from encodery.tasks.glue import Glue
from encodery.tasks.hans import Hans
from encodery.tasks.nli import Nli
from encodery.tasks.sources import check_folder as data
from encodery.tasks.squad import Squad
from encodery.tasks.tag import Tag

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeSet(list):
    """What load_dataset gives, as far as we use it."""

    @property
    def column_names(self):
        return list(self[0])


@pytest.fixture
def fake_hub(monkeypatch):
    """A hub with four rows in every split; remembers what it was asked for."""
    asked = []

    def load_dataset(repository, configuration, *, split, revision):
        asked.append((repository, configuration, split, revision))
        hidden = split.startswith("test")
        return FakeSet(
            {"premise": f"p {split} {i}", "hypothesis": f"h{i}", "sentence1": f"a{i}", "sentence2": f"b{i}"}
            | {"uid": f"{split}-{i}", "idx": i, "label": -1 if hidden else i % 2, "sentence_A": "x", "sentence_B": "y"}
            | {"heuristic": "constituent", "subcase": f"s{i}", "template": "temp1"}
            | {"tokens": ["so", f"w{i}"], "upos": [2, 7], "ner_tags": [0, 1 + i], "id": f"{split}{i}", "title": "t"}
            | {
                "context": "abc",
                "question": f"q{i}",
                "answers": {"text": ["bc"][i % 2 :], "answer_start": [1][i % 2 :]},
            }
            for i in range(4)
        )

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, **_: SimpleNamespace(sha=COMMIT))
    return asked


def test_the_commit_is_pinned_and_recorded(fake_hub):
    task = Glue(part="rte")
    assert [e.label for e in task.examples("dev")] == ["entailment", "not_entailment"] * 2
    assert fake_hub == [("nyu-mll/glue", "rte", "validation", COMMIT)]
    origin = task.origin("dev")
    assert (origin.source, origin.revision, origin.part) == ("hub", COMMIT, "part: 4 of 277")
    assert [e.label for e in task.examples("test")] == [None] * 4


def test_matched_and_mismatched_have_their_hub_names(fake_hub):
    task = Glue(part="mnli")
    for split in ("dev", "dev_mismatched", "test", "test_mismatched"):
        task.examples(split)
    assert [split for _, _, split, _ in fake_hub] == [
        "validation_matched",
        "validation_mismatched",
        "test_matched",
        "test_mismatched",
    ]


def test_rounds_are_joined_and_ids_stay_unique(fake_hub):
    rows = Nli(part="anli").examples("dev")
    assert len({e.id for e in rows}) == 12
    assert [split for _, _, split, _ in fake_hub] == ["dev_r1", "dev_r2", "dev_r3"]


def test_sick_has_other_column_names_there(fake_hub):
    assert Nli(part="sick").examples("dev")[0].texts == ("x", "y")


def test_snli_rows_without_gold_label_are_left_out(fake_hub, monkeypatch):
    rows = FakeSet({"premise": "p", "hypothesis": "h", "label": label} for label in (0, -1, 2))
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: rows)
    task = Nli(part="snli")
    assert [e.label for e in task.examples("train")] == ["entailment", "contradiction"]
    assert task.origin("train").note == "1 row without a gold label left out"


def test_an_unreachable_hub_is_one_sentence(monkeypatch):
    def no_network(*_, **__):
        raise OSError("Temporary failure in name resolution")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", no_network)
    with pytest.raises(UserError) as error:
        Glue(part="rte").examples("train")
    assert "\n" not in str(error.value)
    assert "--data or ENCODERY_DATA" in str(error.value)


def test_a_broken_download_is_one_sentence(fake_hub, monkeypatch):
    def broken(*_, **__):
        raise ValueError("checksum\nmany lines")

    monkeypatch.setattr("datasets.load_dataset", broken)
    with pytest.raises(UserError, match="ValueError: checksum") as error:
        Glue(part="rte").examples("train")
    assert "\n" not in str(error.value)


def test_get_writes_files_that_are_found_again(fake_hub, tmp_path):
    written = data.get(["glue/rte", "nli/anli"], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        *(f"glue/rte_{split}.parquet" for split in ("train", "dev", "test")),
        *(f"extra/anli_{split}.parquet" for split in ("train", "dev", "test")),
    ]
    for split in ("dev", "test"):
        for kind, part in ((Glue, "rte"), (Nli, "anli")):
            there, here = kind(part=part), kind(part=part, data=str(tmp_path))
            assert here.examples(split) == there.examples(split)
            assert here.origin(split).digest == there.origin(split).digest
    assert pq.read_schema(written[0]).metadata[b"revision"] == COMMIT.encode()
    assert data.get(["glue/rte"], tmp_path) == []


def test_get_writes_tags_and_questions_that_are_found_again(fake_hub, tmp_path):
    written = data.get(["tag", "squad/v2"], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        *(f"extra/{name}_{split}.parquet" for name in ("ud_ewt", "wnut17") for split in ("train", "dev", "test")),
        *(f"squad/squad_v2_{split}.parquet" for split in ("train", "dev")),
    ]
    assert {(repository, where) for repository, where, _, _ in fake_hub} == {
        ("universal-dependencies/universal_dependencies", "en_ewt"),
        ("leondz/wnut_17", None),
        ("rajpurkar/squad_v2", None),
    }
    for kind, part in ((Tag, "pos"), (Tag, "ner"), (Squad, "v2")):
        there, here = kind(part=part), kind(part=part, data=str(tmp_path))
        assert here.examples("dev") == there.examples("dev")
        assert here.origin("dev").digest == there.origin("dev").digest
        assert here.origin("dev").files
        assert there.origin("dev").revision == COMMIT
    assert here.examples("dev")[0].label == ("bc",)
    assert here.examples("dev")[1].label == ()
    assert data.get(["tag/ner", "squad/v2"], tmp_path) == []


def test_check_tells_official_questions_from_stand_ins(fake_hub, tmp_path):
    data.get(["squad/v2", "tag/pos"], tmp_path)
    found = {status.name: status for status in data.check(tmp_path)}
    assert (found["squad/v2:dev"].state, found["squad/v2:dev"].rows) == ("part", 4)
    assert "4 of 11,873 rows" in str(found["squad/v2:dev"])
    assert "4 of 2,001 rows" in str(found["tag/pos:dev"])
    assert found["squad/v1:dev"].state == found["tag/ner:train"].state == "missing"
    official = tmp_path / "squad/squad_v2_dev.parquet"
    official.rename(official.with_name("dev_cs224n_half.parquet"))  # one article: train takes it, nothing is left
    found = {status.name: status for status in data.check(tmp_path)}
    assert found["squad/v2:dev"].state == "part"
    assert "NOT the official dev set" in str(found["squad/v2:dev"])


def test_get_and_check_know_hans(fake_hub, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="not the published HANS: 4 rows instead of 30,000"):
        data.get(["hans"], tmp_path)
    monkeypatch.setattr("encodery.tasks.hans.miscounted", lambda _: None)
    written = data.get(["hans"], tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in written] == ["hans/hans_train.parquet", "hans/hans_dev.parquet"]
    there, here = Hans(), Hans(data=str(tmp_path))
    assert here.examples("dev") == there.examples("dev")
    assert here.examples("dev")[1].extra == {"heuristic": "constituent", "subcase": "s1", "template": "temp1"}
    written[1].rename(written[1].with_name("hans_eval_regenerated.parquet"))
    found = {status.name: status for status in data.check(tmp_path)}
    assert found["hans:train"].state == found["hans:dev"].state == "part"
    assert "4 rows; regenerated HANS" in str(found["hans:dev"])


def test_get_knows_its_names():
    with pytest.raises(UserError, match='no set "glue/rta" to fetch; there are glue, glue/ax'):
        data.get(["glue/rta"], "nowhere")


def write(folder, stem, rows):
    columns = {"sentence1": ["a"] * rows, "sentence2": ["b"] * rows, "label": [0] * rows}
    pq.write_table(pa.table(columns), folder / f"{stem}.parquet")


def test_check_tells_whole_from_part_wrong_and_missing(tmp_path):
    write(tmp_path, "rte_train", 10)
    write(tmp_path, "rte_dev", 277)
    write(tmp_path, "wnli_dev", 72)
    (tmp_path / "wnli_train.parquet").write_text("no Parquet")
    found = {status.name: status for status in data.check(tmp_path)}
    assert found["glue/rte:train"].state == "part"
    assert found["glue/rte:dev"].state == "other"
    assert found["glue/rte:test"].state == "missing"
    assert found["glue/wnli:dev"].state == found["glue/wnli:train"].state == "wrong"
    assert "wnli_train.parquet" in str(found["glue/wnli:train"])
    with pytest.raises(UserError, match="is not a folder"):
        data.check(tmp_path / "gone")


@pytest.mark.real
@pytest.mark.slow
def test_check_of_the_real_data(real_data):
    states = {status.name: status.state for status in data.check(real_data)}
    assert "wrong" not in states.values()
    assert all(states[name] == "whole" for name in data.DIGESTS)
    assert (states["hans:train"], states["hans:dev"]) == ("missing", "other")  # as many rows, drawn anew


@pytest.mark.slow
def test_the_real_datasets_library_reads_a_local_copy(tmp_path, monkeypatch):
    import datasets

    for split in ("train", "validation", "test"):
        write(tmp_path, split, 3)
    load = datasets.load_dataset
    local = {"data_files": {s: str(tmp_path / f"{s}.parquet") for s in ("train", "validation", "test")}}

    def load_dataset(repository, configuration, *, split, revision):
        return load("parquet", split=split, cache_dir=str(tmp_path / "cache"), **local)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, **_: SimpleNamespace(sha=COMMIT))
    task = Glue(part="rte")
    assert [e.texts for e in task.examples("dev")] == [("a", "b")] * 3
    assert task.examples("train")[0].label == "entailment"
