"""AMOS's encoder: its bias by distance, written out, and its place among transformers' Auto classes."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from encodery.models.amos import AmosModel, buckets
from tests.toolbox.models import small_config, small_encoder

IDS = torch.tensor([[0, 5, 9, 7, 2], [0, 8, 2, 1, 1]])
MASK = (IDS != 1).long()


def test_P33_buckets_of_the_distances() -> None:
    found = buckets(200, 32, 128)
    assert (int(found.min()), int(found.max()), int(found[7, 7])) == (0, 30, 15)
    assert int(found[0, 8]) == 23  # the key stands 8 to the right
    assert int(found[8, 0]) == 7
    assert all(int(found[0, n]) == 30 for n in range(126, 200))
    assert [int(found[0, n]) for n in range(8)] == list(range(15, 23))
    wide = buckets(200, 64, 128)
    assert (int(wide.min()), int(wide.max()), int(wide[0, 0])) == (0, 62, 31)


@pytest.mark.parametrize(("bins", "furthest"), [(32, 128), (64, 128), (128, 256)])
def test_P33_buckets_follow_the_formula(bins: int, furthest: int) -> None:
    side, exact = bins // 2, bins // 4
    found = buckets(300, bins, furthest)[0]
    for n in range(300):
        far = exact + math.ceil(math.log(max(n, 1) / exact) / math.log((furthest - 1) / exact) * (side - 1 - exact))
        assert int(found[n]) - side + 1 == (n if n < exact else min(side - 1, far))


def written_out(net: Any, ids: torch.Tensor) -> torch.Tensor:
    """One sequence without padding, head by head."""
    config, length = net.config, ids.shape[1]
    x = net.embeddings.word_embeddings(ids[0]) + net.embeddings.position_embeddings.weight[:length]
    x = net.embeddings.LayerNorm(x)
    rows = buckets(length, config.rel_pos_bins, config.max_rel_pos)
    size = config.hidden_size // config.num_attention_heads
    for layer in net.encoder.layer:
        own, parts = layer.attention.self, []
        for head in range(config.num_attention_heads):
            q, k, v = (f(x)[:, head * size : (head + 1) * size] for f in (own.query, own.key, own.value))
            scores = q @ k.T * size**-0.5 + net.relative_attention_bias.weight[rows, head]
            parts.append(scores.softmax(1) @ v)
        out = layer.attention.output
        x = out.LayerNorm(x + out.dense(torch.cat(parts, 1)))
        x = layer.output.LayerNorm(x + layer.output.dense(torch.nn.functional.gelu(layer.intermediate.dense(x))))
    return x


def test_the_bias_is_added_to_the_scores_of_every_layer_and_padding_is_not_seen() -> None:
    net = small_encoder("amos", "rows").net.double().eval()
    found = net(input_ids=IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(found[0], written_out(net, IDS[:1]))
    torch.testing.assert_close(found[1, :3], written_out(net, IDS[1:, :3]))


def test_gradient_checkpointing_changes_nothing() -> None:
    grads = []
    for on in (False, True):
        net = small_encoder("amos", "rows").net.double().train()
        if on:
            net.gradient_checkpointing_enable()
        net(input_ids=IDS, attention_mask=MASK).last_hidden_state.square().sum().backward()
        grads.append(net.relative_attention_bias.weight.grad)
    assert grads[0].any()
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("auto", "labels"),
    [
        (AutoModelForPreTraining, {"labels": torch.tensor([[0, 1, 0, 0, 0], [0, 1, 0, -100, -100]])}),
        (AutoModelForSequenceClassification, {"labels": torch.tensor([0, 1])}),
        (AutoModelForTokenClassification, {"labels": torch.where(MASK > 0, 1, -100)}),
        (AutoModelForQuestionAnswering, {f"{end}_positions": torch.tensor([1, 2]) for end in ("start", "end")}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_every_head_saves_loads_and_learns(auto: Any, labels: dict[str, Any], tmp_path: Path) -> None:
    model = auto.from_config(small_config("amos")).eval()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    again, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    one, two = (m.eval()(input_ids=IDS, attention_mask=MASK, **labels) for m in (model, again))
    assert torch.equal(one.loss, two.loss)
    two.loss.backward()
    assert again.amos.relative_attention_bias.weight.grad is not None
    body, report = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(body, AmosModel)
    assert not report["missing_keys"]


def test_the_name_is_known_with_its_defaults() -> None:
    """In new processes, and in either order of the imports: tests/training/test_forms.py."""
    assert AutoConfig.for_model("amos").rel_pos_bins == 32


@pytest.mark.slow
@pytest.mark.parametrize("init", ["hf", "google"])
def test_places_begin_as_wide_as_asked_in_encoder_and_generator(init: str) -> None:
    from encodery.config.schema import ModelOptions
    from encodery.models.encoder import new_encoder
    from encodery.objectives.electra import Electra
    from tests.toolbox.tokenizers import word_tokenizer

    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 16, "rel_pos_bins": 1024}
    torch.manual_seed(0)
    for wide, low, high in ((None, 0.015, 0.025), (3.0, 2.8, 3.2)):
        new = {"kind": "amos", "size": "tiny", "init": init, "config": {**sizes, "relative_initializer_range": wide}}
        encoder = new_encoder(ModelOptions.model_validate({"new": new}), word_tokenizer())
        question = Electra(generator_size=1.0, generator_layers=0.5).build(encoder, word_tokenizer())
        assert question.generator is not None
        for net in (encoder.net, question.generator.encoder.net):
            assert low < float(net.relative_attention_bias.weight.detach().std()) < high
