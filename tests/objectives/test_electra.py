"""ELECTRA's details that are easy to overlook (P1-P13, P18, P19), and parity with transformers."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import (
    AutoModelForSequenceClassification,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ModernBertForMaskedLM,
    ModernBertForTokenClassification,
)

from encodery.config.schema import OptimOptions
from encodery.errors import UserError
from encodery.models.amos import AmosForMaskedLM, AmosForPreTraining
from encodery.objectives.electra import Electra, written
from encodery.objectives.parts.electra_generator import generator_config
from encodery.objectives.parts.masking import mask
from encodery.training.optim import Optimizer, Param, clip
from tests.objectives.pretraining import CLS, MASK, TOKENS, asked, batch_of, text_table, trunk
from tests.toolbox.models import batcher_for
from tests.toolbox.tokenizers import word_tokenizer

LENGTHS = [9, 30, 4, 17, 30]
TABLES = ["word_embeddings", "position_embeddings", "token_type_embeddings"]
EMBEDDINGS = [*(f"{name}.weight" for name in TABLES), "LayerNorm.weight", "LayerNorm.bias"]
WIDE = {"generator_size": 0.5}
FULL = {"generator_size": 1.0, "generator_layers": 0.5}


def corrupted(model: Any, batch: Any) -> tuple[Any, torch.Tensor, Any]:
    """Masked batch, what the discriminator reads, and the outputs."""
    question = model.objective("t")
    masked = mask(batch, question.options.masking, question.vocabulary)
    outputs = model.outputs(batch)
    return masked, written(batch, masked, outputs["sample"]), outputs


# Tying


def tied(model: Any) -> bool:
    main, side = model.encoder.net.embeddings, model.objective("t").generator.encoder.net.embeddings
    names = [name for name, _ in main.named_parameters()]
    assert set(names) == {name for name in EMBEDDINGS if model.encoder.kind != "amos" or "type" not in name}
    same = all(main.get_parameter(name).data_ptr() == side.get_parameter(name).data_ptr() for name in names)
    output = model.objective("t").generator.weight
    return same and output.data_ptr() == main.word_embeddings.weight.data_ptr()


@pytest.mark.parametrize("kind", ["electra", "bert", "amos"])
def test_P1_embeddings_are_the_same_tensors_and_stay_so(kind: str) -> None:
    model = asked("electra", FULL if kind == "amos" else WIDE, kind=kind)
    assert tied(model)
    assert tied(model.to("cpu").double().float())
    assert tied(copy.deepcopy(model))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    assert tied(model)
    optimizer = optimizer_of(model)
    model(batch_of(model, text_table(LENGTHS)))[1]["t", "discriminator"].backward()
    optimizer.step(1.0)
    assert tied(model)


def optimizer_of(model: Any, **options: Any) -> Optimizer:
    """As a run makes it."""
    body = [Param(f"encoder.net.{n}", p, d) for n, p, d in model.encoder.named_depths()]
    heads = [Param(f"questions.{n}", p, None) for n, p in model.questions.named_parameters()]
    return Optimizer([*body, *heads], OptimOptions(**options), model.encoder.layers)


def test_P2_the_word_matrix_is_one_parameter() -> None:
    model = asked("electra", WIDE)
    words = model.encoder.net.embeddings.word_embeddings.weight
    listed = [p for p in optimizer_of(model).named().values() if p is words]
    assert len(listed) == 1
    assert len([p for p in model.parameters() if p is words]) == 1


def test_P17_one_norm_over_generator_and_discriminator() -> None:
    model = asked("electra", WIDE)
    terms = model(batch_of(model, text_table(LENGTHS)))[1]
    torch.stack(list(terms.values())).sum().backward()
    once = {id(p): p.grad.double().square().sum() for p in model.parameters() if p.grad is not None}
    generator = [p for p in model.objective("t").generator.parameters() if id(p) in once]
    assert len(generator) > 10
    assert clip(model.parameters(), 0.0) == pytest.approx(math.sqrt(float(sum(once.values()))), rel=1e-5)


@pytest.mark.parametrize(
    ("hidden", "share", "width", "heads"),
    [(256, 0.25, 64, 1), (768, 0.33333, 256, 4), (1024, 0.25, 256, 4), (256, 1.0, 256, 4)],
)
def test_P3_the_generator_is_narrower_but_as_deep(hidden: int, share: float, width: int, heads: int) -> None:
    config = trunk("electra").net.config
    config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.embedding_size = (
        hidden,
        4 * hidden,
        12,
        128,
    )
    config.num_attention_heads = hidden // 64
    small = generator_config(Electra(generator_size=share), config)
    assert (small.hidden_size, small.num_attention_heads, small.num_hidden_layers) == (width, heads, 12)
    assert small.intermediate_size == pytest.approx(4 * width, abs=1)
    assert small.embedding_size == 128


def test_heads_of_the_generator_are_as_wide_as_the_encoder_s() -> None:
    config = trunk("electra").net.config
    config.hidden_size, config.num_attention_heads, config.intermediate_size = 64, 4, 256
    assert generator_config(Electra(generator_size=0.5), config).num_attention_heads == 2


# Corruption


@pytest.mark.parametrize("layout", ["rows", "packed"])
def test_P6_P7_labels_and_no_mask_for_the_discriminator(layout: str) -> None:
    model = asked("electra", WIDE, layout=layout)
    with torch.no_grad():  # a generator that likes the mask token above all
        model.objective("t").generator.head.generator_lm_head.bias[MASK] = 50.0
    batch = batch_of(model, text_table(LENGTHS * 8))
    masked, fake, outputs = corrupted(model, batch)
    assert (masked.ids == MASK).any()
    assert not (fake == MASK).any()
    true, read = batch.tokens(batch.inputs["input_ids"]), batch.tokens(fake)
    chosen = torch.zeros(batch.inputs["input_ids"].numel(), dtype=torch.bool)
    chosen[masked.cells] = True
    selected = chosen[batch.layout.cells]
    label = outputs["replaced"]
    assert label.any()
    assert not label.all()
    assert (selected & (read != true))[label].all()
    assert torch.equal(selected & ~label, selected & (read == true))


def test_P8_a_generator_that_knows_the_truth_replaces_nothing() -> None:
    model = asked("electra", WIDE)
    table = text_table(LENGTHS)
    table.ids[(table.ids > 4)] = 9  # one word everywhere
    with torch.no_grad():
        model.objective("t").generator.head.generator_lm_head.bias[9] = 1000.0
    outputs = model.outputs(batch_of(model, table))
    assert not outputs["replaced"].any()
    assert outputs["lucky"].all()


def test_P9_padding_does_not_count_but_the_first_token_does() -> None:
    model = asked("electra", WIDE, layout="rows")
    batch = batch_of(model, text_table(LENGTHS))
    ids = batch.inputs["input_ids"].clone()
    ids[~batch.layout.mask] = 17
    other = replace(batch, inputs={**batch.inputs, "input_ids": ids})
    one, two = (model(b)[1]["t", "discriminator"] for b in (batch, other))
    assert torch.equal(one, two)
    outputs = model.outputs(batch)
    logits = outputs["logits"].clone()
    first = int((batch.tokens(batch.inputs["input_ids"]) == CLS).nonzero()[0])
    logits[first] += 1
    question = model.objective("t")
    assert question.losses({**outputs, "logits": logits}, batch)["discriminator"] != one
    assert question.counts(batch)["discriminator"] == sum(LENGTHS)


@pytest.mark.parametrize("sharing", ["tied", "none", "gdes"])
def test_P10_nothing_flows_from_the_discriminator_into_the_generator(sharing: str) -> None:
    model = asked("electra", WIDE | {"embedding_sharing": sharing})
    shared = {id(p) for p in model.encoder.parameters()}
    own = [(n, p) for n, p in model.objective("t").generator.named_parameters() if id(p) not in shared]
    model(batch_of(model, text_table(LENGTHS)))[1]["t", "discriminator"].backward()
    assert own
    assert [n for n, p in own if p.grad is not None] == []
    words = model.encoder.net.get_input_embeddings().weight
    assert words.grad is not None
    assert words.grad.any()


def test_gdes_gives_the_encoders_words_no_gradient_of_the_generator() -> None:
    model = asked("electra", WIDE | {"embedding_sharing": "gdes"})
    words, own = model.encoder.net.get_input_embeddings().weight, model.objective("t").generator.words
    assert not words.detach().any()  # it begins with nothing of its own to add
    model(batch_of(model, text_table(LENGTHS)))[1]["t", "generator"].backward()
    assert words.grad is None
    assert own.grad is not None
    assert own.grad.any()


@pytest.mark.parametrize("sharing", ["tied", "gdes"])
def test_first_outputs_do_not_depend_on_how_embeddings_are_shared(sharing: str) -> None:
    plain, other = (asked("electra", WIDE | {"embedding_sharing": s}) for s in ("tied", sharing))
    batch = batch_of(plain, text_table(LENGTHS))
    side = other.objective("t").generator.state_dict()
    other.objective("t").generator.load_state_dict(
        plain.objective("t").generator.state_dict() if sharing == "gdes" else side
    )
    torch.testing.assert_close(plain.outputs(batch)["logits"], other.outputs(batch)["logits"])


def test_P12_samples_do_not_depend_on_the_precision_of_the_noise() -> None:
    model = asked("electra", WIDE)
    batch = batch_of(model, text_table(LENGTHS))
    assert (
        mask(batch, model.objective("t").options.masking, model.objective("t").vocabulary).uniform.dtype
        == torch.float32
    )
    model.autocast_to = torch.bfloat16
    outputs = model.outputs(batch)
    assert outputs["nll"].dtype == outputs["generator"].dtype == torch.float32
    assert torch.isfinite(model(batch)[1]["t", "discriminator"])


@pytest.mark.parametrize("init", ["hf", "google"])
def test_P13_loss_at_the_start(init: Any) -> None:
    from encodery.config.schema import ModelOptions, NewModel
    from encodery.models.encoder import new_encoder

    torch.manual_seed(0)
    encoder = new_encoder(ModelOptions(new=NewModel(kind="electra", size="tiny", init=init)), word_tokenizer())
    question = Electra().build(encoder, word_tokenizer())
    batch = replace(batcher_for(encoder).batch(text_table([60] * 20), np.arange(20), "t", 0), noise=1)
    outputs = question.eval()(encoder.eval(), batch)
    totals, counts = question.losses(outputs, batch), question.counts(batch)
    loss = sum(float(totals[name]) / counts[name] for name in totals)
    assert loss == pytest.approx(math.log(TOKENS) + 50 * math.log(2), rel=0.05)


def test_P18_P19_projection_after_the_norm_and_gelu_by_erf() -> None:
    model = asked("electra", WIDE)
    net = model.encoder.net
    order = []
    for name in ("embeddings.LayerNorm", "embeddings.dropout", "embeddings_project"):
        net.get_submodule(name).register_forward_hook(lambda *_, name=name: order.append(name))
    model.encoder(batch_of(model, text_table([9])))
    assert order == ["embeddings.LayerNorm", "embeddings.dropout", "embeddings_project"]
    one = torch.ones(1)
    for activation in (
        net.encoder.layer[0].intermediate.intermediate_act_fn,
        model.objective("t").detect.activation,
        model.objective("t").generator.head.generator_predictions.activation,
    ):
        assert float(activation(one)) == pytest.approx(0.841345, abs=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [WIDE, {"uniform_generator": True}, WIDE | {"masking": {"positions": "with_replacement"}}], ids=str
)
def test_P23_corruption_and_gradient_do_not_depend_on_cutting(options: dict[str, Any]) -> None:
    model = asked("electra", options).double()
    table = text_table(LENGTHS * 2)
    found = []
    for most in (None, 3, 1):
        micro = batcher_for(model.encoder, most=most).split(table, np.arange(len(table)), "t", 0)
        samples = {}
        for batch in micro:
            batch = replace(batch, noise=11)
            outputs, terms = model(batch)
            torch.stack(list(terms.values())).sum().backward()
            for i, row in enumerate(batch.ids.tolist()):
                samples[row] = outputs["sample"][outputs["sequence"] == i].tolist()
        found.append((samples, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}))
        model.zero_grad()
    for samples, grads in found[1:]:
        assert samples == found[0][0]
        assert all(torch.allclose(grads[n], g, rtol=1e-9, atol=1e-10) for n, g in found[0][1].items())


# Parity and folders


class ModernBertDetector(ModernBertForTokenClassification):
    """With ELECTRA's loss: one logit for each token."""

    def forward(self, labels: torch.Tensor, **inputs: Any) -> Any:  # type: ignore[override]
        found = super().forward(**inputs)
        found.logits = found.logits.squeeze(-1)
        asked = labels != -100
        found.loss = F.binary_cross_entropy_with_logits(found.logits[asked], labels[asked].float())
        return found


FAMILIES = {
    "amos": (AmosForMaskedLM, AmosForPreTraining),
    "modernbert": (ModernBertForMaskedLM, ModernBertDetector),
}


@pytest.mark.parametrize("kind", ["electra", "bert", "amos", "modernbert"])
@pytest.mark.parametrize("sharing", ["tied", "none", "gdes"])
def test_losses_equal_transformers_two_models_on_the_same_masks_and_samples(
    kind: str, sharing: str, tmp_path: Path
) -> None:
    size = FULL if kind in ("amos", "modernbert") and sharing != "none" else WIDE
    model = asked("electra", size | {"embedding_sharing": sharing}, kind=kind, layout="rows")
    with torch.no_grad():
        model.encoder.net.get_input_embeddings().weight.add_(torch.randn(TOKENS, 1) * 0.1)
    batch = batch_of(model, text_table(LENGTHS))
    masked, fake, outputs = corrupted(model, batch)
    model.save(tmp_path / "m", word_tokenizer(), {"format": 1})
    labels = torch.full_like(fake.flatten(), -100)
    labels[masked.cells] = masked.truth
    guesser, detector = FAMILIES.get(kind, (ElectraForMaskedLM, ElectraForPreTraining))
    generator, first = guesser.from_pretrained(tmp_path / "m/generator", output_loading_info=True)
    discriminator, second = detector.from_pretrained(tmp_path / "m/discriminator", output_loading_info=True)
    assert not any(report[key] for report in (first, second) for key in ("missing_keys", "unexpected_keys"))
    with torch.no_grad():
        theirs = generator.eval()(**{**batch.inputs, "input_ids": masked.ids}, labels=labels.view_as(fake)).loss
        replaced = (fake != batch.inputs["input_ids"]).long()
        replaced[batch.inputs["attention_mask"] == 0] = -100
        found = discriminator.eval()(**{**batch.inputs, "input_ids": fake}, labels=replaced)
    question = model.objective("t")
    terms, counts = question.losses(outputs, batch), question.counts(batch)
    assert float(terms["generator"].detach()) / counts["generator"] == pytest.approx(float(theirs), abs=1e-5)
    assert float(terms["discriminator"].detach()) / counts["discriminator"] / 50 == pytest.approx(
        float(found.loss), abs=1e-5
    )
    torch.testing.assert_close(batch.tokens(found.logits), outputs["logits"], atol=1e-5, rtol=0)
    assert (tmp_path / "m/discriminator/encodery.json").exists()
    assert (tmp_path / "m/discriminator/tokenizer.json").exists()


def test_a_classifier_lacks_its_head_alone(tmp_path: Path) -> None:
    model = asked("electra", WIDE)
    model.save(tmp_path / "m", word_tokenizer(), {})
    net, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "m/discriminator", output_loading_info=True
    )
    assert isinstance(net, ElectraForSequenceClassification)
    assert all(name.startswith("classifier.") for name in report["missing_keys"])
    assert all(name.startswith("discriminator_predictions.") for name in report["unexpected_keys"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["electra", "modernbert"])
@pytest.mark.parametrize("sharing", ["tied", "none", "gdes"])
def test_continuing_from_a_saved_pair_gives_the_same_losses(sharing: str, kind: str, tmp_path: Path) -> None:
    from encodery.config.schema import ModelOptions
    from encodery.models.encoder import load_encoder
    from encodery.models.model import Model

    size = 1 if kind == "modernbert" and sharing != "none" else 0.5
    sizes = {"generator_size": size, "generator_layers": 0.5}
    options = Electra(**sizes, embedding_sharing=sharing)  # type: ignore[arg-type]
    model = asked("electra", options.to_dict(), kind=kind)
    model.save(tmp_path / "m", word_tokenizer(), {})
    encoder, _ = load_encoder(tmp_path / "m/discriminator", ModelOptions(name="m"))
    question = options.build(encoder, word_tokenizer())
    assert question.load_heads(encoder, tmp_path / "m/discriminator") == []
    other = Model(encoder, {"t": question}).eval()
    batch = batch_of(model, text_table(LENGTHS))
    one, two = (m(batch)[1] for m in (model, other))
    for key, value in one.items():
        torch.testing.assert_close(value, two[key], rtol=1e-5, atol=1e-5)
    assert "generator is new" in question.load_heads(encoder, tmp_path / "m/discriminator", tmp_path / "nowhere")[0]


def test_other_trunks_and_contradictions_are_refused() -> None:
    for kind in ("roberta", "deberta-v2"):
        with pytest.raises(
            UserError, match=f"electra works on electra, bert, amos, modernbert encoders, not on {kind}"
        ):
            Electra().build(trunk(kind), word_tokenizer())
    with pytest.raises(
        UserError, match=r"^tasks\.objective\.generator_size: 0\.25, but amos encoders have no projection"
    ):
        Electra().build(trunk("amos"), word_tokenizer())
    with pytest.raises(UserError, match=r"modernbert encoders have no projection .* embedding_sharing: none"):
        Electra().build(trunk("modernbert"), word_tokenizer())
    with pytest.raises(UserError, match="a uniform generator has no weights"):
        Electra(uniform_generator=True, one_network=True).build(trunk(), word_tokenizer())
    with pytest.raises(UserError, match="one_network: needs an ELECTRA encoder"):
        Electra(one_network=True).build(trunk("bert"), word_tokenizer())


def test_one_network_has_two_heads_and_nothing_more() -> None:
    model = asked("electra", {"one_network": True})
    body = {id(p) for p in model.encoder.parameters()}
    extra = {n.split(".")[2] for n, p in model.objective("t").named_parameters() if id(p) not in body and "head" in n}
    assert extra <= {"generator_predictions", "generator_lm_head"}
    terms = model(batch_of(model, text_table(LENGTHS)))[1]
    torch.stack(list(terms.values())).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_perturbations_hit_the_discriminator_alone() -> None:
    model = asked("electra", WIDE)
    batch = batch_of(model, text_table(LENGTHS))
    delta = torch.randn(*batch.inputs["input_ids"].shape, model.encoder.site_width("word"))
    plain = model(batch)[1]
    with model.encoder.perturbed(delta):
        moved = model(batch)[1]
    assert torch.equal(plain["t", "generator"], moved["t", "generator"])
    assert not torch.equal(plain["t", "discriminator"], moved["t", "discriminator"])
