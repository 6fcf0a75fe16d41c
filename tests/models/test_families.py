"""What docs/encoders.md says of each encoder family of transformers is what a walk over tiny models finds."""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from encodery.inference.classifier import logits, open_classifier
from encodery.models import packed
from encodery.objectives.classification import Classification
from tests.toolbox.tokenizers import save_tokenizer

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("fill_encoders", ROOT / "docs" / "fill_encoders.py")
assert SPEC is not None
assert SPEC.loader is not None
fill: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fill)
fill.examine = functools.cache(fill.examine)  # the walk comes by the families of other tests too

NEW = ("eurobert", "nomic_bert", "ultrabert")


@pytest.mark.slow(50)
@pytest.mark.timeout(900)  # three minutes of one idle core
def test_the_table_of_encoder_families_is_what_a_walk_finds() -> None:
    text = fill.PAGE.read_text(encoding="utf-8")
    assert fill.page(fill.walk(), text) == text, "run `make encoders`"


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
def test_new_families_do_all_but_detect_replaced_tokens(name: str) -> None:
    assert set(fill.examine(name).reasons) == {"RTD"}


@pytest.mark.slow
def test_every_family_on_the_page_is_one_of_transformers() -> None:
    text = fill.PAGE.read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert rows == fill.families()
    assert {"bert", "modernbert", *NEW} < set(rows)


def test_what_is_proven_packed_is_what_the_page_says() -> None:
    lines = [line.split(" | ") for line in fill.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    said = {line[0].split("`")[1] for line in lines if line[2] == fill.YES}
    assert said == packed.PROVEN - {"amos"}


@pytest.mark.parametrize("pooling", ["late", "bos", "mean"])
def test_a_classifier_of_others_with_any_pooling_is_read_as_transformers_reads_it(pooling: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = fill.tiny_config("eurobert")
    config.classifier_pooling, config.num_labels = pooling, 3
    stock = AutoModelForSequenceClassification.from_config(config).eval()
    stock.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    model = open_classifier(tmp_path, "cpu")
    texts = ["the cat sleeps near the dog", "a film"]
    given = model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = stock(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
    assert torch.allclose(logits(model, texts), wanted, atol=1e-5)


def test_a_new_head_says_which_tokens_it_reads() -> None:
    encoder = fill.encoder_of("eurobert")
    assert encoder.net.config.classifier_pooling == "late"
    question = Classification(labels=["a", "b"], pooling=encoder.pooling).build(encoder, fill.toy_tokenizer())
    assert encoder.net.config.classifier_pooling == "mean"
    assert question.head.saved is question.head.stock
