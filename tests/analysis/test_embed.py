"""Embeddings: each row belongs to its example, whatever the batches; killed work goes on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encodery.analysis import embed as module
from encodery.analysis.embed import Embeddings, EmbedOptions, embed, open_source, plan_of
from encodery.cli import main
from encodery.config.schema import ModelOptions
from encodery.core.shard_folder import in_cache
from encodery.errors import UserError
from encodery.inference.task_argument import TaskSplit, resolve_split
from encodery.models.encoder import load_encoder
from encodery.models.locate import resolve


@pytest.fixture(scope="module")
def run(trained) -> Path:
    return trained("pair")


@pytest.fixture(scope="module")
def source(run):
    return open_source(str(run), "cpu")


@pytest.fixture(scope="module")
def rows(run) -> TaskSplit:
    from encodery.runs.directory import RunDir

    info = RunDir.open(run)
    return resolve_split(f"{info.info()['task']}:train", None, [info])[0]


def by_hand(run: Path, rows: TaskSplit, source, padded: int | None = None) -> torch.Tensor:
    """Hidden states of transformers itself, one example at a time: [layers + 1, n, L, d] as a list."""
    net = load_encoder(resolve(str(run)).path, ModelOptions(name=str(run)), "padded")[0].net.eval()
    found = []
    for feature in rows.task.encode(rows.task.examples(rows.split), source.pieces, 32):
        more = (padded or len(feature.ids)) - len(feature.ids)
        ids, types = [*feature.ids, *[0] * more], [*feature.types, *[0] * more]
        mask = [1] * len(feature.ids) + [0] * more
        with torch.no_grad():
            out = net(
                input_ids=torch.tensor([ids]),
                token_type_ids=torch.tensor([types]),
                attention_mask=torch.tensor([mask]),
                output_hidden_states=True,
            )
        found.append((out, len(feature.ids)))
    return found


@pytest.mark.slow
def test_D5_rows_belong_to_their_examples_for_any_batch_size(run, rows, source, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 16)
    each = [
        embed(source, rows, EmbedOptions(batch_size=n), tmp_path / str(n)) for n in (1, 7, 512)
    ]  # fmt: skip
    hand = by_hand(run, rows, source)
    expected = np.stack([out.last_hidden_state[0, 0].numpy() for out, _ in hand])
    ids = [e.id for e in rows.task.examples(rows.split)]
    for one in each:
        assert one.ids == ids
        assert one.vectors.shape == expected.shape
        assert np.abs(one.vectors - expected).max() < 1e-5
    texts = [e.texts for e in rows.task.examples(rows.split)]
    vectors = each[0].vectors
    for start in range(0, len(ids) - 8, 8):  # the first batch again and again would make these equal
        assert texts[:8] == texts[start : start + 8] or not np.allclose(vectors[:8], vectors[start : start + 8])


@pytest.mark.slow
def test_D6_extraction_is_repeatable_and_padding_does_not_matter(run, rows, source, tmp_path):
    first = embed(source, rows, EmbedOptions(), tmp_path / "a").vectors
    assert np.array_equal(first, embed(source, rows, EmbedOptions(), tmp_path / "b").vectors)
    padded = by_hand(run, rows, source, padded=32)
    assert np.abs(first - np.stack([out.last_hidden_state[0, 0].numpy() for out, _ in padded])).max() < 1e-5
    pooler = embed(source, rows, EmbedOptions(site="pooler"), tmp_path / "p").vectors
    assert np.abs(pooler - np.stack([out.pooler_output[0].numpy() for out, _ in padded])).max() < 1e-5
    assert not np.allclose(pooler, first)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_mean_and_any_layer(run, rows, source, tmp_path, layer):
    found = embed(source, rows, EmbedOptions(site="mean", layer=layer), tmp_path / "m").vectors
    hand = by_hand(run, rows, source)
    expected = np.stack([out.hidden_states[layer][0, :n].mean(0).numpy() for out, n in hand])
    assert np.abs(found - expected).max() < 1e-5


def test_a_killed_command_goes_on_at_the_first_missing_piece(rows, source, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 16)
    whole = embed(source, rows, EmbedOptions(), tmp_path / "whole")
    real, calls = module.shard, []

    def dies(table, begin, *more):
        if begin >= 32 and not calls.count("again"):
            raise KeyboardInterrupt
        calls.append(begin)
        return real(table, begin, *more)

    monkeypatch.setattr(module, "shard", dies)
    with pytest.raises(KeyboardInterrupt):
        embed(source, rows, EmbedOptions(), tmp_path / "part")
    with pytest.raises(UserError, match="no finished embeddings"):
        Embeddings.open(tmp_path / "part")
    calls.append("again")
    part = embed(source, rows, EmbedOptions(), tmp_path / "part")
    assert calls == [0, 16, "again", 32, 48]
    assert np.array_equal(part.vectors, whole.vectors)
    assert sorted(p.name for p in part.folder.iterdir() if not p.name.startswith(".")) == [
        "ids.json", "manifest.json", "meta.json", "vectors.npy",
    ]  # fmt: skip


def test_D23_everything_that_changes_vectors_changes_their_name(rows, source, tmp_path):
    plain = in_cache("embeddings", plan_of(source, rows, EmbedOptions()))
    others = [EmbedOptions(max_length=8), EmbedOptions(site="mean"), EmbedOptions(layer=1), EmbedOptions(int8=True)]
    assert len({plain, *(in_cache("embeddings", plan_of(source, rows, one)) for one in others)}) == 5
    assert in_cache("embeddings", plan_of(source, rows, EmbedOptions(batch_size=3))) == plain
    plan = plan_of(source, rows, EmbedOptions())
    assert plan["rows"] == rows.task.origin("train").digest
    assert {"model", "tokenizer", "max_length", "rows", "reading"} <= plan.keys()
    embed(source, rows, EmbedOptions(), tmp_path / "x")
    with pytest.raises(UserError, match=r"holds other embeddings \(max_length: 32 there, 8 now"):
        embed(source, rows, EmbedOptions(max_length=8), tmp_path / "x")


def test_what_cannot_be_had_is_refused(rows, source):
    with pytest.raises(UserError, match=r"layers 0 \(embeddings\) to 2"):
        plan_of(source, rows, EmbedOptions(layer=3))
    from dataclasses import replace

    with pytest.raises(UserError, match="no trained pooler"):
        plan_of(replace(source, new_pooler=True), rows, EmbedOptions(site="pooler"))
    with pytest.raises(UserError, match="plain text"):
        plan_of(source, resolve_split("corpus/toy:dev")[0], EmbedOptions())


@pytest.mark.slow
def test_the_verb(run, rows, tmp_path, capsys):
    words = ["embed", str(run), "--on", f"{rows.task.name}:train", "-o", str(tmp_path / "e"), "--quiet"]
    assert main(words) == 0
    assert f"{len(rows.task.examples('train'))} × " in capsys.readouterr().out
    assert main([*words[:3], f"{rows.task.name}:test", *words[4:]]) == 2


@pytest.mark.slow
def test_int8_is_close_or_says_what_is_missing(run, rows, tmp_path):
    source = open_source(str(run), "cpu", layout="rows")
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r"pip install 'encodery\[onnx\]'"):
            embed(source, rows, EmbedOptions(int8=True), tmp_path / "q")
        return
    exact = embed(source, rows, EmbedOptions(site="mean"), tmp_path / "e").vectors
    found = embed(source, rows, EmbedOptions(site="mean", int8=True), tmp_path / "q").vectors
    cosine = (exact * found).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
    assert cosine.min() > 0.99
    assert not np.array_equal(exact, found)


@pytest.mark.real
@pytest.mark.slow
def test_D33_quantised_vectors_of_a_whole_dev_set_keep_a_cosine_of_099(real_data, tmp_path):
    pytest.importorskip("onnxruntime")
    model = str(real_data / "models" / "all-MiniLM-L6-v2-fp16")
    source = open_source(model, "cpu", layout="rows")
    (sst2,) = resolve_split("glue/sst2:dev", str(real_data))
    exact, found = (
        embed(source, sst2, EmbedOptions(site="mean", int8=int8), tmp_path / str(int8)).vectors
        for int8 in (False, True)
    )
    cosine = (exact * found).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
    assert len(cosine) == 872
    assert cosine.min() >= 0.99
