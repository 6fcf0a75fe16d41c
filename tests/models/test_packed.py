"""The packed layout is the padded model, for every architecture on the list, and refuses all others."""

from typing import Any

import numpy as np
import pytest
import torch

from encodery.data.batches import Batch
from encodery.data.layouts import Group
from encodery.errors import RunFailed, UserError
from encodery.methods.base import Totals
from encodery.methods.plain import Plain
from encodery.models import packed, packed_check
from encodery.models.encoder import Encoder
from encodery.training.loop import count
from tests.toolbox.models import KINDS, batcher_for, furthest, gradients, random_table, small_encoder, small_model

PACKED = sorted(packed.PROVEN)
LENGTHS = [60, 58, 50, 40, 23, 17, 9, 9, 9, 5, 5, 2, 1]  # longer than ModernBERT's window, equal ones, one token


def pass_through(encoder: Encoder, layout: str) -> tuple[torch.Tensor, dict[str, torch.Tensor], Batch]:
    """Hidden states of all tokens in the order of the table, and the gradients of a fixed function of them."""
    table = random_table(LENGTHS)
    batch = batcher_for(encoder, layout).batch(table, np.arange(len(table)), "t", 0)
    hidden = batch.tokens(encoder(batch))
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(3), dtype=hidden.dtype)
    encoder.zero_grad()
    (hidden * weight).sum().div(hidden.numel()).backward()
    return hidden.detach(), gradients(encoder), batch


@pytest.mark.parametrize("kind", PACKED)
def test_packed_equals_padded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, plain = small_encoder(kind, "packed"), small_encoder(kind, "padded")
    calls = []
    attend = packed.attend
    monkeypatch.setattr(packed, "attend", lambda *a: calls.append(1) or attend(*a))
    hidden, grads, batch = pass_through(encoder, "packed")
    assert len(calls) == encoder.layers * len(batch.inputs["groups"]) > encoder.layers
    calls.clear()
    wanted, wanted_grads, _ = pass_through(plain, "padded")
    assert not calls
    assert float((hidden - wanted).abs().max()) < 1e-6 * max(1, float(wanted.abs().max()))
    assert furthest(grads, wanted_grads) < 1e-5


@pytest.mark.parametrize("kind", PACKED)
def test_packed_equals_padded_in_float64(kind: str) -> None:
    hidden, grads, _ = pass_through(small_encoder(kind, "packed").double(), "packed")
    wanted, wanted_grads, _ = pass_through(small_encoder(kind, "padded").double(), "padded")
    assert float((hidden - wanted).abs().max()) < 1e-12
    assert furthest(grads, wanted_grads) < 1e-12


def test_modernbert_has_layers_with_a_window_and_without_here() -> None:
    """Else the comparison above would prove little."""
    config = small_encoder("modernbert").net.config
    assert len(set(config.layer_types)) == 2
    assert config.sliding_window < max(LENGTHS)


@pytest.mark.parametrize("kind", ["deberta-v2", "mpnet"])
def test_what_does_not_ask_the_attention_interface_refuses_packed_and_works_in_rows(kind: str) -> None:
    with pytest.raises(UserError, match=f"packed is not verified for {kind}; use rows"):
        small_encoder(kind, "packed")
    encoder = small_encoder(kind)
    assert encoder.layout == "rows"
    hidden, grads, _ = pass_through(encoder, "rows")
    wanted, wanted_grads, _ = pass_through(small_encoder(kind, "padded"), "padded")
    assert torch.equal(hidden, wanted)
    assert furthest(grads, wanted_grads) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["stock", "linear"])
def test_losses_and_gradients_are_equal_in_all_layouts(kind: str, head: str) -> None:
    table = random_table(LENGTHS)
    found = {}
    for layout in ("packed", "rows", "padded"):
        if layout == "packed" and kind not in packed.PROVEN:
            continue
        encoder = small_encoder(kind, layout)
        model = small_model(encoder, head=head, head_dropout=0.0)
        micro = batcher_for(encoder, budget=150).split(table, np.arange(len(table)), "t", 0)
        assert len(micro) > 1
        terms = Plain()(model, micro, Totals(count(model, micro)))
        found[layout] = (float(terms["t", "loss"]), gradients(model))
    loss, grads = found["padded"]
    assert grads
    for other, other_grads in found.values():
        assert other == pytest.approx(loss, rel=1e-6)
        assert furthest(other_grads, grads) < 1e-5


def attention_inputs(**more: Any) -> dict[str, Any]:
    x = torch.randn(1, 2, 4, 3)
    groups = [Group(torch.tensor([4]), 4, 4)]
    return {"query": x, "key": x, "value": x, "attention_mask": None, "groups": groups, **more}


def test_unknown_keywords_are_refused_and_harmless_ones_taken() -> None:
    module = torch.nn.Identity()
    packed.packed_attention(module, **attention_inputs(use_cache=False, a_bias=None))
    with pytest.raises(RuntimeError, match="a_bias"):
        packed.packed_attention(module, **attention_inputs(a_bias=torch.zeros(1)))
    with pytest.raises(RuntimeError, match="attention mask"):
        packed.packed_attention(module, **attention_inputs(attention_mask=torch.zeros(1, 1, 4, 4)))
    with pytest.raises(RuntimeError, match="attention mask"):
        packed.packed_attention(module, **attention_inputs(groups=None))


@pytest.mark.parametrize("kind", PACKED)
def test_the_check_at_load_passes(kind: str) -> None:
    encoder = small_encoder(kind)
    assert packed_check.largest_difference(encoder) < 1e-5
    packed_check.require_equal(encoder)
    assert encoder.net.config._attn_implementation == packed.NAME
    assert encoder.training


def test_the_check_at_load_notices_a_position_that_is_ignored() -> None:
    encoder = small_encoder("bert")
    inner = encoder.net.forward

    def forgetful(*args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    encoder.net.forward = forgetful
    with pytest.raises(RunFailed, match=r"packed layout: this bert differs .* use layout rows"):
        packed_check.require_equal(encoder)


def test_the_check_at_load_notices_a_window_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "near", lambda self, window: self.mask)
    with pytest.raises(RunFailed, match="modernbert differs"):
        packed_check.require_equal(small_encoder("modernbert"))


def test_the_check_at_load_notices_nan() -> None:
    encoder = small_encoder("bert")
    with torch.no_grad():
        encoder.net.embeddings.word_embeddings.weight.fill_(float("nan"))
    with pytest.raises(RunFailed, match="differs"):
        packed_check.require_equal(encoder)


def test_the_check_at_load_does_not_mind_large_numbers() -> None:
    """Rounding grows with the size of the numbers: what counts is the difference beside it."""
    encoder = small_encoder("bert")
    with torch.no_grad():
        encoder.net.encoder.layer[-1].output.LayerNorm.weight.mul_(1e6)
    packed_check.require_equal(encoder)


@pytest.mark.parametrize(("kind", "more"), [("roberta", {"pad_token_id": 5}), ("bert", {"max_position_embeddings": 8})])
def test_the_check_at_load_stays_within_the_positions_there_are(kind: str, more: dict[str, int]) -> None:
    packed_check.require_equal(small_encoder(kind, **{"max_position_embeddings": 20, **more}))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_attention_dropout_works_packed(rate: float) -> None:
    encoder = small_encoder("bert", dropout=rate).train()
    batch = batcher_for(encoder).batch(random_table(LENGTHS), np.arange(len(LENGTHS)), "t", 0)
    torch.manual_seed(0)
    one, two = encoder(batch), encoder(batch)
    torch.manual_seed(0)
    assert torch.equal(encoder(batch), one)
    assert not torch.equal(one, two)
