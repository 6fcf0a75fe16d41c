import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import encodery as en
from encodery.cli import main
from encodery.config import load
from encodery.data.batches import MicroBatcher
from encodery.data.token_table import memory_table
from encodery.errors import UserError
from encodery.inference import open_model, outputs
from encodery.inference.classifier import Prediction, head_of, logits, open_classifier
from encodery.models.packed import PROVEN
from encodery.tasks.base import Example
from tests.toolbox.runs import NARROW, config_for, model_section
from tests.toolbox.tasks import pair_task, sentences, single_task
from tests.toolbox.vocabulary import vocabulary

KINDS = ("bert", "roberta", "xlm-roberta", "electra", "albert", "distilbert", "deberta-v2", "modernbert", "mpnet")
WIDE = {"initializer_range": 0.2}  # so that answers differ from text to text


def run_of(folder, kind="bert", head="stock", task=single_task):
    model = model_section(folder, kind, head=head)
    model["new"]["config"] |= WIDE
    return en.train(config_for(folder, task(folder)) | {"model": model}, folder / f"{kind}-{head}")


@torch.no_grad()
def stock_logits(folder, texts):
    net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    columns = zip(*texts, strict=True) if isinstance(texts[0], tuple) else [texts]
    return net(**tokenizer(*map(list, columns), padding=True, return_tensors="pt")).logits


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("kind", KINDS)
def test_saved_folder_gives_equal_logits_in_transformers(kind, tmp_path):
    run = run_of(tmp_path, kind)
    texts = sentences(9, 500)
    ours = logits(en.load(run), texts)
    theirs = stock_logits(run.path / "model", texts)
    assert theirs.std() > 0.05  # they say something
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.slow(0.5)
def test_deberta_of_the_first_kind_has_its_own_head_too(tmp_path):
    """New encoders of this kind are not made, published ones are read."""
    fields = {**NARROW, **WIDE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "vocab_size": 99}
    AutoModel.from_config(AutoConfig.for_model("deberta", **fields)).save_pretrained(tmp_path / "net")
    model = {"name": str(tmp_path / "net"), "tokenizer": str(vocabulary(tmp_path))}
    run = en.train(config_for(tmp_path, single_task(tmp_path)) | {"model": model}, tmp_path / "run")
    texts = sentences(9, 500)
    theirs = stock_logits(run.path / "model", texts)
    assert theirs.std() > 0.05
    torch.testing.assert_close(logits(en.load(run), texts), theirs, atol=1e-5, rtol=0)
    assert main(["heads", str(run.path), "--on", "table/moods", "--quiet", "-o", str(tmp_path / "heads")]) == 0


@pytest.mark.slow(0.5)
def test_saved_folder_gives_equal_logits_for_pairs(tmp_path):
    run = run_of(tmp_path, "electra", task=pair_task)
    texts = [("the good cat", "a dog"), ("a film", "very dull and bright bird here"), ("a", "b")]
    torch.testing.assert_close(logits(en.load(run), texts), stock_logits(run.path / "model", texts), atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["linear", "mlp_tanh", "mlp_gelu"])
@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_other_heads_go_round(kind, head, tmp_path):
    run = run_of(tmp_path, kind, head)
    assert sorted(p.name for p in (run.path / "model" / "heads").iterdir()) == ["table-moods.safetensors"]
    frame = run.predictions("table/moods:dev")
    found = en.load(run)(sentences(16, 1000))
    assert [answer.probabilities["pos"] for answer in found] == pytest.approx(frame.p_pos.tolist(), abs=1e-5)
    AutoModel.from_pretrained(run.path / "model")  # the encoder alone opens in transformers


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2", "modernbert"])
@pytest.mark.slow
def test_F21_batch_size_and_padding_do_not_change_answers(kind, tmp_path):
    run = run_of(tmp_path, kind)
    texts = sentences(30, 700)
    found = []
    for layout in [*(["packed"] if kind in PROVEN else []), "rows", "padded"]:
        model, _tokenizer, card = open_model.load_model(run.path / "model", layout=layout)
        head = head_of("table/moods", card["tasks"]["table/moods"])
        pieces = en.load(run).pieces
        for budget, most in ((1 << 20, None), (64, None), (1 << 20, 1), (1 << 20, 7)):
            examples = [Example(str(i), (text,)) for i, text in enumerate(texts)]
            table = memory_table(head.encode(examples, pieces, 32), [e.id for e in examples])
            batcher = MicroBatcher(model.encoder.layout, model.encoder.form, budget, most)
            rows = outputs.outputs_by_example(model, "table/moods", table, batcher)
            found.append(torch.tensor([row["logits"] for row in rows]))
    assert found[0].std() > 0.05
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-5, rtol=0)


def foreign(folder, labels=None):
    """A classifier as others publish it: no card of ours."""
    run = run_of(folder, task=pair_task)
    path = folder / "foreign"
    net = AutoModelForSequenceClassification.from_pretrained(run.path / "model")
    names = labels or [f"LABEL_{i}" for i in range(3)]
    net.config.id2label, net.config.label2id = dict(enumerate(names)), {n: i for i, n in enumerate(names)}
    net.config.problem_type = None
    net.save_pretrained(path)
    AutoTokenizer.from_pretrained(run.path / "model").save_pretrained(path)
    return path, run


@pytest.mark.slow(0.5)
def test_models_of_others_answer(tmp_path):
    path, run = foreign(tmp_path, ["yes", "perhaps", "no"])
    model = en.load(path)
    assert model.labels == ("yes", "perhaps", "no")
    assert model.task is None
    ours = en.load(run)(("the cat", "a dog"))
    assert list(model(("the cat", "a dog")).probabilities.values()) == pytest.approx(list(ours.probabilities.values()))
    assert model("one text is fine too: nobody knows better").label in model.labels


@pytest.mark.slow(0.5)
def test_labels_can_be_given_to_models_of_others_only(tmp_path):
    path, run = foreign(tmp_path)
    assert open_classifier(path).head.unnamed
    assert open_classifier(path, labels=["a", "b", "c"]).labels == ("a", "b", "c")
    for labels in (["a", "b"], ["a", "b", "b"]):
        with pytest.raises(UserError, match="3 different names"):
            open_classifier(path, labels=labels)
    with pytest.raises(UserError, match="--labels is for models without them"):
        open_classifier(run.path, labels=["a", "b", "c"])


@pytest.mark.slow
def test_a_head_that_is_not_there_is_named(trained):
    with pytest.raises(UserError, match="has no head glue/mnli; it has table/moods"):
        en.load(trained("single"), head="glue/mnli")


@pytest.mark.slow
def test_a_body_without_head_is_no_classifier(trained, tmp_path):
    AutoModel.from_pretrained(trained("single") / "model").save_pretrained(tmp_path / "body")
    AutoTokenizer.from_pretrained(trained("single") / "model").save_pretrained(tmp_path / "body")
    with pytest.raises(UserError, match="not a classifier"):
        en.load(tmp_path / "body")


def test_a_prediction_shows_only_what_there_is():
    assert repr(Prediction(label="a", probabilities={"a": 0.75, "b": 0.25})) == (
        "Prediction(label='a', probabilities={'a': 0.75, 'b': 0.25})"
    )
    assert repr(Prediction(value=0.0)) == "Prediction(value=0.0)"
    assert repr(Prediction(text="", start=None)) == "Prediction(text='')"


@pytest.mark.slow(1)
def test_answers_at_lower_precision_are_those_of_the_training_at_it(tmp_path):
    """The dev answers of a run in bf16 come out again in bf16; in fp32, the default, they are rounded less."""
    model = model_section(tmp_path, "bert", head="linear")
    model["new"]["config"] |= WIDE
    config = config_for(tmp_path, single_task(tmp_path)) | {"model": model}
    config["train"] = {**config.get("train", {}), "precision": "bf16"}
    run = en.train(config, tmp_path / "run")
    stored = run.predictions("table/moods:dev").set_index("id")
    examples = load.load(run.path).tasks[0][0].examples("dev")

    def apart(precision):
        opened = en.load(run, precision=precision)
        assert opened.precision == precision
        assert next(opened.model.parameters()).dtype == torch.float32
        answers = opened.answers(examples)
        label = next(name for name in stored.columns if name.startswith("p_"))
        chances = [answers[id]["probabilities"][label[2:]] for id in stored.index]
        return max(abs(a - b) for a, b in zip(chances, stored[label], strict=True))

    assert apart("bf16") < 1e-6 < apart("fp32") < 0.05
    assert apart("fp16") < 0.05
    assert en.load(run).precision == "fp32"
