"""AMOS's details that are easy to overlook (P26-P36): where gradients go, what is mixed, what is shared."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForTokenClassification,
    ElectraForMaskedLM,
    ElectraForPreTraining,
)

from encodery.config.schema import ModelOptions, NewModel
from encodery.data import rng
from encodery.data.tensor_rng import hashed
from encodery.errors import UserError
from encodery.models import flops
from encodery.models.encoder import load_encoder, new_encoder
from encodery.models.model import Model
from encodery.objectives.amos import Amos
from encodery.objectives.electra import written
from encodery.objectives.parts import vocabulary_loss
from encodery.objectives.parts.amos_generator import scaled
from encodery.objectives.parts.amos_mixture import Noise, mix, noise_of
from encodery.objectives.parts.masking import Masking, mask
from tests.objectives.pretraining import TOKENS, asked, batch_of, text_table, trunk
from tests.toolbox.models import batcher_for, furthest, gradients
from tests.toolbox.tokenizers import word_tokenizer

LENGTHS = [9, 30, 4, 17, 30]
DEEP = {"readouts": [1, 2, 3]}


def amos(options: dict[str, Any] | None = None, **of_trunk: Any) -> Model:
    """A model in float64 whose readouts differ, and whose mixture prefers some."""
    model = asked("amos", DEEP | (options or {}), **of_trunk).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.objective("t").named_parameters():
            parameter.add_(torch.randn_like(parameter) * (1.0 if name == "mixture" else 0.2))
    return model


# The whole objective once more, in plain autograd: with one-hot samples, a product with all words, all logits at once


def hidden_states(net: Any, batch: Any, ids: Tensor, depths: list[int], stop: bool) -> list[Tensor]:
    """Hidden states after some layers, layer by layer; rows layout."""
    if net.config.model_type == "modernbert":
        return modernbert_states(net, batch, ids, depths, stop)
    bias = (1.0 - batch.inputs["attention_mask"][:, None, None].double()) * -1e30
    x = net.embeddings(input_ids=ids, token_type_ids=batch.inputs["token_type_ids"])
    x = net.embeddings_project(x) if hasattr(net, "embeddings_project") else x
    found = []
    for depth, layer in enumerate(net.encoder.layer, start=1):
        x = layer(x, bias)
        if depth in depths:
            found.append(x)
            x = x.detach() if stop else x
    return found


def modernbert_states(net: Any, batch: Any, ids: Tensor, depths: list[int], stop: bool) -> list[Tensor]:
    """The same of ModernBERT, whose layers turn by position, see no further than a window, and end without norm."""
    x, places = net.embeddings(input_ids=ids), torch.arange(ids.shape[1])
    distance = (places[:, None] - places[None]).abs()
    found = []
    for depth, layer in enumerate(net.layers, start=1):
        seen = batch.inputs["attention_mask"][:, None, None].bool()
        if layer.attention_type == "sliding_attention":
            seen = seen & (distance <= net.config.local_attention // 2)
        bias = torch.where(seen, 0.0, -1e30).double().expand(-1, 1, ids.shape[1], -1)
        x = layer(x, bias, position_embeddings=net.rotary_emb(x, places[None], layer.attention_type))
        if depth in depths:
            found.append(net.final_norm(x))
            x = x.detach() if stop else x
    return found


def written_out(model: Model, batch: Any) -> dict[str, Tensor]:
    """All loss terms as sums."""
    question = model.objective("t")
    options, known, generator = question.options, question.vocabulary, question.generator
    masked = mask(batch, options.masking, known)
    states = hidden_states(generator.encoder.net, batch, masked.ids, question.readouts, options.stop_gradients)
    features = [state.flatten(0, 1)[masked.cells] for state in states]
    words = model.encoder.net.get_input_embeddings().weight
    logits = [generator.head(f) @ words.T + generator.head.bias for f in features]
    seen = [f.detach() if options.mixture_detach_features else f for f in features]
    alpha = torch.stack([f @ question.mixture for f in seen], 1).softmax(1)
    z = sum(alpha[:, k, None] * one.detach() for k, one in enumerate(logits))
    z = z.index_fill(1, torch.tensor([known.mask_id]), float("-inf"))
    gumbel = -noise_of(batch, masked).exponential(slice(None), TOKENS).log().double()
    soft = ((z + gumbel) / options.temperature).softmax(1)
    hard = F.one_hot(soft.argmax(1), TOKENS).double()
    sample = Reverse.apply(hard + soft - soft.detach(), options.reversal)
    fake = batch.inputs["input_ids"].flatten().clone()
    fake[masked.cells] = soft.argmax(1)
    rows = words[fake].index_put((masked.cells,), sample @ words)
    fake = fake.view_as(masked.ids)
    hidden = model.encoder.net(
        **{**batch.inputs, "input_ids": None}, inputs_embeds=rows.view(*fake.shape, -1)
    ).last_hidden_state
    label = (fake != batch.inputs["input_ids"]).double()[batch.layout.mask]
    found = F.binary_cross_entropy_with_logits(question.detect(hidden[batch.layout.mask]), label, reduction="sum")
    terms = {"discriminator": 50 * found}
    for depth, one in zip(question.readouts, logits, strict=True):
        terms[f"mlm_{depth}"] = F.cross_entropy(one, masked.truth, reduction="sum")
    return terms


class Reverse(torch.autograd.Function):
    """The gradient of a sample times a factor; that of the words it is multiplied with stays."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


def moved(model: Model) -> dict[str, Tensor]:
    """The gradients that are not exactly zero."""
    return {name: grad for name, grad in gradients(model).items() if grad.any()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"stop_gradients": False, "reversal": 0.5, "temperature": 1.0}, {"mixture_detach_features": True}],
    ids=str,
)
@pytest.mark.parametrize("kind", ["electra", "modernbert"])
def test_every_gradient_of_every_term_equals_plain_autograd(kind: str, options: dict[str, Any]) -> None:
    model = amos(options, kind=kind, layout="rows")
    batch = batch_of(model, text_table(LENGTHS))
    theirs = written_out(model, batch)
    for name, term in theirs.items():
        term.backward(retain_graph=True)
        wanted = moved(model)
        model.zero_grad()
        mine = model(batch)[1]["t", name]
        mine.backward()
        assert float(mine.detach()) == pytest.approx(float(term.detach()), rel=1e-12)
        found = moved(model)
        assert found.keys() == wanted.keys(), name
        assert furthest(found, wanted) < 1e-12, name
        model.zero_grad()


# Where gradients go


def grads_of(model: Model, term: str, batch: Any) -> dict[str, Tensor]:
    """Gradients of one term."""
    model.zero_grad()
    model(batch)[1]["t", term].backward()
    return moved(model)


@pytest.mark.slow
def test_P26_the_sign_of_the_reversal_turns_the_mixture_and_not_the_encoder() -> None:
    found = {}
    for factor in (-1.0, 1.0):
        model = amos({"reversal": factor, "mixture_detach_features": True})
        found[factor] = grads_of(model, "discriminator", batch_of(model, text_table(LENGTHS)))
    against, along = (found[factor].pop("questions.t.mixture") for factor in (-1.0, 1.0))
    assert against.any()
    assert torch.equal(against, -along)
    assert found[-1.0].keys() == found[1.0].keys()
    assert all(torch.equal(found[-1.0][name], found[1.0][name]) for name in found[1.0])


@pytest.mark.slow
def test_P26_features_get_the_reversed_gradient_too_unless_detached() -> None:
    for detached in (False, True):
        model = amos({"mixture_detach_features": detached})
        found = grads_of(model, "discriminator", batch_of(model, text_table(LENGTHS)))
        blocks = {name.split("layer.")[1][0] for name in found if "generator.encoder.net.encoder" in name}
        assert blocks == (set() if detached else {"0", "1", "2"})


def test_P27_the_head_of_the_readouts_and_the_mixture_each_have_one_teacher() -> None:
    model = amos()
    batch = batch_of(model, text_table(LENGTHS))
    model(batch)[1]["t", "discriminator"].backward()
    heads = model.objective("t").generator.head.named_parameters()
    assert [name for name, p in heads if p.grad is not None and "lm_head.weight" not in name] == []
    assert model.objective("t").mixture.grad.any()
    model.zero_grad()
    torch.stack([v for (_, name), v in model(batch)[1].items() if name != "discriminator"]).sum().backward()
    assert model.objective("t").mixture.grad is None
    assert all(p.grad is not None for p in model.objective("t").generator.parameters())


def stages_of(found: dict[str, Tensor]) -> set[str]:
    """Blocks of the generator, `e` its own embeddings."""
    names = [name.split("generator.encoder.net.")[1] for name in found if "generator.encoder.net." in name]
    return {name.split("layer.")[1][0] if "layer." in name else "e" for name in names}


@pytest.mark.slow
def test_P28_each_stage_learns_from_its_own_readout_alone() -> None:
    model = amos()
    batch = batch_of(model, text_table(LENGTHS))
    found = {depth: stages_of(grads_of(model, f"mlm_{depth}", batch)) for depth in (1, 2, 3)}
    assert found == {1: {"0", "e"}, 2: {"1"}, 3: {"2"}}
    free = amos({"stop_gradients": False})
    assert stages_of(grads_of(free, "mlm_3", batch)) == {"0", "1", "2", "e"}


@pytest.mark.slow
def test_P30_the_sample_does_not_depend_on_the_temperature_but_the_gradient_does() -> None:
    found = []
    for temperature in (0.1, 0.3, 2.0):
        model = amos({"temperature": temperature})
        batch = batch_of(model, text_table(LENGTHS))
        found.append((model.outputs(batch)["sample"], grads_of(model, "discriminator", batch)["questions.t.mixture"]))
    assert all(torch.equal(sample, found[0][0]) for sample, _ in found)
    assert not torch.allclose(found[0][1], found[1][1], rtol=1e-3)


# The mixture


@pytest.mark.slow
def test_P29_shares_sum_to_one_and_differ_between_positions() -> None:
    shares = {}
    for kind in ("learned", "fixed", "random"):
        model = amos({"mixture": kind})
        shares[kind] = model.outputs(batch_of(model, text_table(LENGTHS)))["shares"]
        torch.testing.assert_close(shares[kind].sum(1), torch.ones(len(shares[kind]), dtype=torch.float64))
        assert (model.objective("t").mixture is None) == (kind != "learned")
    assert shares["learned"].std(0).min() > 1e-3
    assert shares["random"].std(0).min() > 0.1
    assert (shares["fixed"] == 1 / 3).all()


def test_P34_logits_are_mixed_so_equal_readouts_give_themselves() -> None:
    logits, shares = torch.randn(5, 7, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    shares = shares / shares.sum(1, keepdim=True)
    torch.testing.assert_close(mix([logits] * 3, shares), logits)
    others = [torch.randn(5, 7, dtype=torch.float64) for _ in range(3)]
    torch.testing.assert_close(mix(others, shares), sum(shares[:, k, None] * others[k] for k in range(3)))


def test_P35_the_encoder_is_given_the_very_embeddings_of_the_samples() -> None:
    model = amos()
    batch = batch_of(model, text_table(LENGTHS))
    seen: dict[str, Any] = {}
    model.encoder.register_forward_pre_hook(lambda _m, _a, given: seen.update(given), with_kwargs=True)
    outputs = model.outputs(batch)
    masked = mask(batch, model.objective("t").options.masking, model.objective("t").vocabulary)
    fake = written(batch, masked, outputs["sample"])
    words = model.encoder.net.get_input_embeddings().weight
    assert not torch.equal(fake, batch.inputs["input_ids"])
    torch.testing.assert_close(seen["embeddings"], words[fake], atol=1e-6, rtol=0)


def test_noise_is_the_houses_own_and_samples_follow_the_mixture() -> None:
    starts = torch.arange(-3, 3) * 10**15
    hashes = hashed(starts, 4).numpy().view(np.uint64)
    places = rng.STRIDE * np.arange(1, 5, dtype=np.uint64)
    assert np.array_equal(hashes, rng.mix(starts.numpy().view(np.uint64)[:, None] + places))
    rows = torch.from_numpy(rng.mix(np.arange(20_000, dtype=np.uint64)).astype(np.int64))
    z = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, -3.0, 1.5], dtype=torch.float64)
    sample = (z - Noise(rows).exponential(slice(None), 7).log()).argmax(1)
    assert chisquare(sample.bincount(minlength=7), 20_000 * z.softmax(0)).pvalue > 1e-3


@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_P12_draws_and_losses_are_wide_under_autocast_and_the_mixture_learns(layout: str) -> None:
    model = asked("amos", DEEP, kind="amos", layout=layout)
    batch = batch_of(model, text_table(LENGTHS))
    wide = model.outputs(batch)
    model.autocast_to = torch.bfloat16
    outputs, terms = model(batch)
    assert {outputs[name].dtype for name in ("generator", "nll", "shares", "readout_nll")} == {torch.float32}
    torch.testing.assert_close(outputs["generator"], wide["generator"], rtol=0.02, atol=0.02)
    torch.stack(list(terms.values())).sum().backward()
    assert torch.isfinite(model.objective("t").mixture.grad).all()
    assert model.objective("t").mixture.grad.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "part"), [("amos", "relative_attention_bias.weight"), ("modernbert", "final_norm.weight")]
)
def test_layouts_make_no_difference_with_relative_positions(kind: str, part: str) -> None:
    found = []
    for layout in ("packed", "rows"):
        model = amos(kind=kind, layout=layout)
        torch.stack(list(model(batch_of(model, text_table(LENGTHS)))[1].values())).sum().backward()
        found.append(gradients(model))
    assert found[0][f"encoder.net.{part}"].any()
    assert found[0][f"questions.t.generator.encoder.net.{part}"].any()
    assert furthest(*found) < 1e-10


@pytest.mark.slow
def test_P23_corruption_and_gradient_of_amos_do_not_depend_on_cutting() -> None:
    model = amos()
    table = text_table(LENGTHS * 2)
    found = []
    for most in (None, 3):
        samples = {}
        for batch in batcher_for(model.encoder, most=most).split(table, np.arange(len(table)), "t", 0):
            outputs, terms = model(replace(batch, noise=11))
            torch.stack(list(terms.values())).sum().backward()
            for i, row in enumerate(batch.ids.tolist()):
                samples[row] = outputs["sample"][outputs["sequence"] == i].tolist()
        found.append((samples, gradients(model)))
        model.zero_grad()
    assert found[0][0] == found[1][0]
    assert furthest(found[0][1], found[1][1]) < 1e-10


def test_masks_are_those_of_electra_so_that_comparisons_are_paired() -> None:
    one, two = asked("electra", {"generator_size": 0.5}), asked("amos", {})
    batch = batch_of(one, text_table(LENGTHS))
    first, second = (mask(batch, m.objective("t").options.masking, m.objective("t").vocabulary) for m in (one, two))
    assert torch.equal(first.cells, second.cells)
    assert torch.equal(first.truth, second.truth)
    assert (second.ids.flatten()[second.cells] == two.objective("t").vocabulary.mask_id).all()
    assert one.objective("t").counts(batch)["generator"] == two.objective("t").counts(batch)["mlm_1"]
    as_electra = mask(batch, Amos(masking={"mask": 0.85}).masking, two.objective("t").vocabulary)
    assert isinstance(as_electra.ids, Tensor)
    assert torch.equal(as_electra.ids, mask(batch, Masking(), one.objective("t").vocabulary).ids)


class Largest(TorchDispatchMode):
    """Remembers how many rows of the vocabulary's width were ever in one tensor."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else [out]:
            if isinstance(one, Tensor) and one.ndim > 1 and one.shape[-1] in (TOKENS, -(-TOKENS // 2)):
                self.rows = max(self.rows, one.numel() // one.shape[-1])
        return out


@pytest.mark.slow
def test_memory_no_more_rows_of_the_vocabulary_than_a_chunk_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_loss, "CELLS", TOKENS * 12)
    model = asked("amos", DEEP)
    batch = batch_of(model, text_table(LENGTHS * 3))
    with Largest() as seen:
        torch.stack(list(model(batch)[1].values())).sum().backward()
    assert 0 < seen.rows <= max(2, model.encoder.width)  # the output matrix transposed is as wide as the vocabulary
    assert len(model.outputs(batch)["sample"]) > model.encoder.width


# The generator


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["electra", "modernbert"])
def test_P31_the_generator_has_no_dropout_unless_asked(kind: str) -> None:
    for on in (False, True):
        model = amos({"generator_dropout": on}, kind=kind, dropout=0.5).train()
        batch = batch_of(model, text_table(LENGTHS))
        masked = mask(batch, model.objective("t").options.masking, model.objective("t").vocabulary)
        one, two = (model.objective("t").generator(batch, masked) for _ in range(2))
        assert torch.equal(one, two) != on
        logits = [model.outputs(batch)["logits"] for _ in range(2)]
        assert not torch.equal(*logits)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["electra", "amos", "modernbert"])
def test_gradient_checkpointing_changes_nothing(kind: str) -> None:
    found = []
    for on in (False, True):
        model = amos(kind=kind).train()
        for net in (model.encoder.net, model.objective("t").generator.encoder.net):
            if on:
                net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.stack(list(model(batch_of(model, text_table(LENGTHS)))[1].values())).sum().backward()
        found.append(gradients(model))
    assert furthest(*found) < 1e-12


@pytest.mark.parametrize("kind", ["electra", "bert", "amos", "modernbert"])
def test_P32_only_the_words_are_shared(kind: str) -> None:
    model = asked("amos", DEEP, kind=kind)
    main, side = model.encoder.net, model.objective("t").generator.encoder.net
    words = main.get_input_embeddings().weight
    assert side.get_input_embeddings().weight is words
    assert model.objective("t").generator.head.weight is words
    shared = {id(p) for p in main.parameters()} & {id(p) for p in side.parameters()}
    assert shared == {id(words)}
    own = "norm.weight" if kind == "modernbert" else "position_embeddings.weight"  # ModernBERT turns by position
    assert own in dict(side.embeddings.named_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("init", ["hf", "google"])
def test_P36_loss_at_the_start(init: Any) -> None:
    torch.manual_seed(0)
    options = ModelOptions(new=NewModel(kind="electra", size="tiny", init=init))
    encoder = new_encoder(options, word_tokenizer())
    question = Amos(readouts=[1, 2, 3]).build(encoder, word_tokenizer())
    batch = replace(batcher_for(encoder).batch(text_table([60] * 20), np.arange(20), "t", 0), noise=1)
    terms, counts = question.losses(question.eval()(encoder.eval(), batch), batch), question.counts(batch)
    loss = sum(float(terms[name].detach()) / counts[name] for name in terms)
    assert loss == pytest.approx(3 * math.log(TOKENS) + 50 * math.log(2), rel=0.05)


def test_the_deepest_readout_is_the_stock_masked_language_model(tmp_path: Path) -> None:
    model = asked("amos", DEEP, kind="modernbert", layout="rows")
    model.save(tmp_path / "m", word_tokenizer(), {"format": 1})
    stock = AutoModelForMaskedLM.from_pretrained(tmp_path / "m/generator", dtype=torch.float32).eval()
    batch, question = batch_of(model, text_table(LENGTHS)), model.objective("t")
    masked = mask(batch, question.options.masking, question.vocabulary)
    inputs = {name: batch.inputs[name] for name in ("attention_mask",)} | {"input_ids": masked.ids}
    logits = stock(**inputs).logits.flatten(0, 1)[masked.cells]
    wanted = F.cross_entropy(logits, masked.truth, reduction="none")
    torch.testing.assert_close(model.outputs(batch)["readout_nll"][:, -1], wanted, rtol=1e-5, atol=1e-5)


def test_a_modernbert_generator_may_be_deeper_than_its_encoder() -> None:
    model = asked("amos", {"readouts": [1, 2, 7]}, kind="modernbert")
    own, types = (net.config.layer_types for net in (model.encoder.net, model.objective("t").generator.encoder.net))
    assert len(types) == 7 > len(own)
    assert types[: len(own)] == own


def test_readouts_scale_with_the_encoder() -> None:
    assert {n: scaled(n) for n in (2, 4, 6, 12, 24)} == {
        2: [1, 2], 4: [1, 2, 3], 6: [2, 3, 4], 12: [4, 6, 8], 24: [4, 6, 8],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readouts": [2, 1]}, "in rising order"),
        ({"readouts": []}, "in rising order"),
        ({"readouts": [1, 2], "mlm_weights": [1.0]}, "1 weights for 2 readouts"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Amos(**options).build(trunk(), word_tokenizer())


@pytest.mark.slow
def test_a_mixture_that_learns_nothing_costs_nothing() -> None:
    batch = batch_of(asked("amos", DEEP), text_table(LENGTHS))
    for options in ({"reversal": 0.0}, {"mixture": "fixed"}):
        model = amos(options)
        torch.stack(list(model(batch)[1].values())).sum().backward()
        still = model.objective("t").mixture
        assert still is None or still.grad is None


# Folders


STOCK = {
    "electra": (ElectraForPreTraining, ElectraForMaskedLM),  # the exportable variant
    "amos": (AutoModelForPreTraining, AutoModelForMaskedLM),
    "modernbert": (AutoModelForTokenClassification, AutoModelForMaskedLM),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", STOCK)
def test_both_folders_open_in_transformers_and_pretraining_goes_on(kind: str, tmp_path: Path) -> None:
    model = asked("amos", DEEP, kind=kind)
    with torch.no_grad():
        model.objective("t").mixture.normal_()
    model.save(tmp_path / "m", word_tokenizer(), {"format": 1})
    for auto, part in zip(STOCK[kind], ("discriminator", "generator"), strict=True):
        net, report = auto.from_pretrained(tmp_path / "m" / part, output_loading_info=True)
        assert net.config.model_type == kind
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
    batch = batch_of(model, text_table(LENGTHS))
    encoder, _ = load_encoder(tmp_path / "m/discriminator", ModelOptions(name="m"))
    question = Amos(readouts=[1, 2, 3]).build(encoder, word_tokenizer())
    assert question.load_heads(encoder, tmp_path / "m/discriminator") == []
    one, two = (m(batch)[1] for m in (model, Model(encoder, {"t": question}).eval()))
    for key, value in one.items():
        torch.testing.assert_close(value, two[key], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_generator_from_elsewhere_does_not_take_the_encoders_words_away(tmp_path: Path) -> None:
    asked("amos", DEEP).save(tmp_path / "m", word_tokenizer(), {})
    other = asked("amos", DEEP)
    with torch.no_grad():
        other.encoder.net.get_input_embeddings().weight.add_(1.0)
    before = other.encoder.net.get_input_embeddings().weight.detach().clone()
    other.objective("t").load_heads(other.encoder, tmp_path / "m/discriminator", tmp_path / "m/generator")
    assert torch.equal(other.encoder.net.get_input_embeddings().weight, before)


# Cost (spec 4)


@pytest.mark.parametrize(
    ("layers", "width", "length", "words", "ratio"),
    [(12, 256, 128, 30522, 1.95), (12, 256, 512, 30522, 1.92), (12, 768, 512, 32768, 1.81)],
)
def test_cost_of_amos_beside_mlm_by_the_formula_of_the_reference(
    layers: int, width: int, length: int, words: int, ratio: float
) -> None:
    net, side = (flops.Net(width, 4 * width, width, words, (None,) * n) for n in (layers, 8))
    lengths, asked_for = np.array([length]), 0.15 * length
    one = flops.amos(net, side, 3, lengths, asked_for, dense=True)
    assert one / flops.mlm(net, lengths, asked_for, dense=True) == pytest.approx(ratio, abs=0.02)
