"""Encoders: loaded whole or not at all, in float32, with every parameter at its depth."""

import json
import socket
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from encodery.config.schema import Lora, ModelOptions, NewModel, OptimOptions
from encodery.errors import RunFailed, UserError
from encodery.inference.model_card import longest_of
from encodery.inference.open_model import load_model
from encodery.models import locate, lora
from encodery.models.encoder import freeze, load_encoder, new_encoder, without_taken, without_unused
from encodery.models.tokenizer import load_tokenizer, toy_tokenizer
from encodery.training import optim
from tests.toolbox.models import KINDS, batcher_for, random_table, small_config, small_encoder, small_model
from tests.toolbox.tokenizers import save_tokenizer

ANY = ModelOptions(name="x")


def saved(folder: Path, kind: str = "bert", **more: Any) -> Path:
    torch.manual_seed(0)
    AutoModel.from_config(small_config(kind, **more)).save_pretrained(folder)
    return folder


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Put tensors into a checkpoint, or take them out; `__` stands for a dot."""
    file = folder / "model.safetensors"
    state = load_file(file)
    for name, tensor in tensors.items():
        state.pop(name.replace("__", "."), None)
        if tensor is not None:
            state[name.replace("__", ".")] = tensor
    save_file(state, file, {"format": "pt"})


# R16


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_checkpoint_loads_without_a_word(kind: str, tmp_path: Path) -> None:
    encoder, notes = load_encoder(saved(tmp_path, kind), ANY)
    assert notes == []
    wanted = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(p, wanted[n]) for n, p in encoder.net.named_parameters())


def test_R16_a_missing_key_of_the_body_is_an_error(tmp_path: Path) -> None:
    change(saved(tmp_path), encoder__layer__1__output__dense__bias=None)
    with pytest.raises(UserError, match=r"missing encoder\.layer\.1\.output\.dense\.bias"):
        load_encoder(tmp_path, ANY)


def test_R16_an_unexpected_key_of_the_body_is_an_error(tmp_path: Path) -> None:
    change(saved(tmp_path), encoder__layer__7__output__dense__bias=torch.zeros(16))
    with pytest.raises(UserError, match=r"unexpected encoder\.layer\.7\.output\.dense\.bias"):
        load_encoder(tmp_path, ANY)


def test_R16_a_misshapen_key_of_the_body_is_an_error(tmp_path: Path) -> None:
    change(saved(tmp_path), encoder__layer__1__output__dense__bias=torch.zeros(17))
    with pytest.raises(UserError, match=r"wrong shape encoder\.layer\.1\.output\.dense\.bias"):
        load_encoder(tmp_path, ANY)


def test_R16_poolers_and_old_heads_are_notes(tmp_path: Path) -> None:
    saved(tmp_path)
    change(tmp_path, pooler__dense__weight=None, pooler__dense__bias=None, cls__predictions__bias=torch.zeros(61))
    encoder, notes = load_encoder(tmp_path, ANY)
    why = "(of an earlier head, such as that of pretraining, which is not used here)"
    assert notes == ["newly initialised: pooler.dense", f"weights left out: cls.predictions {why}"]
    assert without_taken(notes, ["cls.predictions.bias"]) == notes[:1]
    assert without_taken(notes, ["other.bias"]) == notes
    assert without_unused(notes, encoder.net) == notes
    encoder.net.pooler = None  # as heads over tokens do
    assert without_unused(notes, encoder.net) == notes[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_R16_a_classifier_of_transformers_gives_its_body(kind: str, tmp_path: Path) -> None:
    AutoModelForSequenceClassification.from_config(small_config(kind, num_labels=3)).save_pretrained(tmp_path)
    encoder, notes = load_encoder(tmp_path, ANY)
    stored = load_file(tmp_path / "model.safetensors")
    first = next(name for name, _ in encoder.net.named_parameters())
    assert any(name.endswith(first) for name in stored)
    assert all(note.startswith(("newly initialised: pooler", "weights left out: ")) for note in notes)


def test_a_folder_without_safetensors_is_a_sentence(tmp_path: Path) -> None:
    small_config("bert").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="safetensors"):
        load_encoder(tmp_path, ANY)


def test_a_damaged_safetensors_file_is_a_sentence(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{nonsense")
    with pytest.raises(UserError, match=str(tmp_path)):
        load_encoder(tmp_path, ANY)


@pytest.mark.parametrize("content", ["{}", '{"model_type": "never-heard-of"}', "no json"])
def test_an_unknown_architecture_is_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=str(tmp_path)):
        load_encoder(tmp_path, ANY)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with pytest.raises(UserError, match="t5 is not an encoder"):
        load_encoder(tmp_path, ANY)


# Types and dropouts


@pytest.mark.parametrize("kind", ["bert", "electra", "deberta-v2", "modernbert"])
def test_a_half_precision_checkpoint_is_trained_in_float32(kind: str, tmp_path: Path) -> None:
    AutoModel.from_config(small_config(kind)).half().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float16"
    encoder, _ = load_encoder(tmp_path, ANY)
    model = small_model(encoder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", KINDS)
def test_dropouts_are_as_asked(kind: str, tmp_path: Path) -> None:
    options = ModelOptions(name="x", dropout=0.25, attention_dropout=0.375, head_dropout=0.125)
    encoder, _ = load_encoder(saved(tmp_path, kind), options)
    model = small_model(encoder, head_dropout=0.125)
    inner = [m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
    rates = {m.p for m in model.objective("t").head.modules() if isinstance(m, torch.nn.Dropout)}
    config = encoder.net.config
    attention = [getattr(config, n, None) for n in ("attention_probs_dropout_prob", "attention_dropout")]
    assert set(inner) <= {0.25, 0.375}
    assert 0.25 in inner
    assert 0.375 in attention
    assert 0.125 in rates
    assert rates <= {0.125, 0.0}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mpnet"])  # which has no key for it
def test_the_dropout_of_a_stock_head_is_saved_for_transformers(kind: str, tmp_path: Path) -> None:
    encoder, _ = load_encoder(saved(tmp_path / "start", kind), ANY)
    small_model(encoder, head_dropout=0.125).objective("t").head.saved.save_pretrained(tmp_path / "end")
    net = AutoModelForSequenceClassification.from_pretrained(tmp_path / "end")
    inner = set(net.base_model.modules())
    names = [(name, part) for name, part in net.named_modules() if part not in inner and not name.startswith("pooler")]
    assert {part.p for _, part in names if isinstance(part, torch.nn.Dropout)} == {0.125}


def test_dropouts_are_the_checkpoints_if_nothing_is_asked(tmp_path: Path) -> None:
    saved(tmp_path, "bert", hidden_dropout_prob=0.3)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.3, "classifier_dropout": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = small_model(load_encoder(tmp_path, ANY)[0])
    assert [m.p for m in model.objective("t").head.modules() if isinstance(m, torch.nn.Dropout)] == [0.3]


# Depth and freezing


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_its_depth(kind: str) -> None:
    encoder = small_encoder(kind)
    depths = {name: depth for name, _, depth in encoder.named_depths()}
    blocks = {depth for depth in depths.values() if depth is not None}
    assert blocks == ({0, 2} if kind == "albert" else {0, 1, 2})
    for name, depth in depths.items():
        if "pooler" in name:
            assert depth is None, name
        elif "embedding" in name or "rel_" in name or "relative_attention_bias" in name:
            assert depth == 0, name
        elif "layer.0." in name or "layers.0." in name:
            assert depth == (2 if kind == "albert" else 1), name
        elif "layer.1." in name or "layers.1." in name or "final_norm" in name:
            assert depth == 2, name
        else:
            assert depth == 0, name


def test_F3_embeddings_project_lies_with_the_embeddings() -> None:
    encoder = small_encoder("electra")
    assert encoder.depth("embeddings_project.weight") == encoder.depth("embeddings.word_embeddings.weight") == 0
    options = OptimOptions(layer_decay=0.8)
    params = [optim.Param(n, p, d) for n, p, d in encoder.named_depths()]
    rates = {n: g["scale"] for g in optim.groups(params, options, encoder.layers) for n, _ in g["params"]}
    assert rates["embeddings_project.weight"] == rates["embeddings.word_embeddings.weight"] == pytest.approx(0.8**4)
    assert rates["encoder.layer.1.output.dense.weight"] == pytest.approx(0.8**2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tune", ["full", "head", "top:1", "top:2"])
def test_freezing_leaves_what_was_asked_for(kind: str, tune: str) -> None:
    encoder = small_encoder(kind)
    small_model(encoder)
    freeze(encoder, tune)
    upper = {"full": 9, "head": 0, "top:1": 1, "top:2": 2}[tune]
    for name, parameter, depth in encoder.named_depths():
        assert parameter.requires_grad == (depth is None or tune == "full" or depth > encoder.layers - upper), name


def test_freezing_more_layers_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="top:3, but this encoder has 2 layers"):
        freeze(small_encoder(), "top:3")


# LoRA


@pytest.mark.parametrize("kind", ["bert", "deberta-v2", "modernbert", "distilbert"])
def test_lora_trains_and_merges_to_the_same_logits(kind: str) -> None:
    encoder = small_encoder(kind)
    model = small_model(encoder)
    before = {n: p.detach().clone() for n, p in encoder.net.named_parameters()}
    lora.adapt(encoder, Lora(rank=2), seed=5)
    trained = {n for n, p in encoder.net.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in n or "pooler" in n for n in trained)
    batch = batcher_for(encoder).batch(random_table([5, 9, 3]), np.arange(3), "t", 0)
    start = model.outputs(batch)["logits"]
    rate = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    for _ in range(3):
        rate.zero_grad()
        model(batch)[1]["t", "loss"].backward()
        rate.step()
    model.eval()
    tuned = model.outputs(batch)["logits"]
    assert float((tuned - start).detach().abs().max()) > 1e-3
    lora.merge(encoder)
    torch.testing.assert_close(model.outputs(batch)["logits"], tuned, rtol=0, atol=1e-5)
    after = dict(encoder.net.named_parameters())
    assert after.keys() == before.keys()
    assert any(not torch.equal(after[n], before[n]) for n in before if "pooler" not in n)
    lora.merge(encoder)  # nothing is left to merge


def test_lora_begins_equally_for_equal_seeds() -> None:
    found = []
    for seed in (5, 5, 6):
        encoder = small_encoder()
        lora.adapt(encoder, Lora(rank=2), seed)
        found.append(torch.cat([p.reshape(-1) for n, p in encoder.net.named_parameters() if "lora_A" in n]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# New encoders


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "camembert"])
def test_new_encoders_of_all_kinds_read_a_tokenizers_ids(kind: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    options = ModelOptions(new=NewModel(kind=kind, size="tiny"), dropout=0.0)  # type: ignore[arg-type]
    torch.manual_seed(1)
    encoder = new_encoder(options, tokenizer)
    config = encoder.net.config
    assert (encoder.layers, encoder.width, config.vocab_size) == (2, 128, len(tokenizer))
    assert (encoder.form.pad_id, {p.dtype for p in encoder.parameters()}) == (0, {torch.float32})
    table = random_table([5, 9, 3])
    batch = batcher_for(encoder).batch(table.__class__([[2, 5, 3]], [[0, 0, 0]], {}), np.arange(1), "t", 0)
    assert torch.isfinite(encoder(batch)).all()


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert"])
def test_fields_of_a_new_encoder_can_be_set_by_their_usual_names(kind: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    new = NewModel(kind=kind, config={"num_hidden_layers": 3, "max_position_embeddings": 40})  # type: ignore[arg-type]
    encoder = new_encoder(ModelOptions(new=new), tokenizer)
    assert encoder.layers == 3
    assert len({d for _, _, d in encoder.named_depths() if d}) == 3
    assert longest_of(encoder) == 40


def test_an_unknown_field_of_a_new_encoder_is_refused(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path))
    new = NewModel(config={"num_layerz": 3})
    with pytest.raises(UserError, match="BertConfig has no field num_layerz"):
        new_encoder(ModelOptions(new=new), tokenizer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_sequence_fits_the_positions(kind: str) -> None:
    encoder = small_encoder(kind, max_position_embeddings=20)
    n = longest_of(encoder)
    assert n == (18 if kind in ("roberta", "xlm-roberta", "camembert", "mpnet") else 20)
    batch = batcher_for(encoder).batch(random_table([n, 3]), np.arange(2), "t", 0)
    assert torch.isfinite(encoder(batch)).all()


# Folders and the hub


def test_a_local_folder_and_a_run_directory_are_found(tmp_path: Path) -> None:
    saved(tmp_path / "run" / "model")
    for name in ("run", "run/model", str(tmp_path / "run")):
        assert locate.resolve(name, None, tmp_path).path == (tmp_path / "run" / "model").resolve()
    digest = locate.resolve("run", None, tmp_path).digest()
    change(tmp_path / "run" / "model", pooler__dense__bias=torch.ones(16))
    assert locate.resolve("run", None, tmp_path).digest() != digest


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "runs/nowhere", "mine/nowhere"])
def test_a_folder_that_is_not_there_is_a_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "run").mkdir(parents=True)
    (tmp_path / "mine" / "run" / "run.json").write_text("{}")
    with pytest.raises(UserError, match="no such folder"):
        locate.resolve(name)
    with pytest.raises(UserError, match="no such folder"):
        locate.resolve_tokenizer(name, tmp_path)
    with pytest.raises(UserError, match="hub cannot be reached"):
        locate.resolve("somebody/something")


def test_a_folder_of_seeds_is_answered_with_its_runs(tmp_path: Path) -> None:
    for seed in range(1, 8):
        (tmp_path / "rte" / f"seed-{seed}").mkdir(parents=True)
        (tmp_path / "rte" / f"seed-{seed}" / "run.json").write_text("{}")
    for name, near in (("rte", tmp_path), (str(tmp_path / "rte"), None)):
        with pytest.raises(UserError, match=r"a folder of 7 runs; give one of them: .*rte/seed-1, .*seed-5, …"):
            locate.resolve(name, None, near)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The hub cannot be reached; collects who was asked for."""
    asked: list[Any] = []

    def refuse(address: Any, *_: Any, **__: Any) -> None:
        asked.append(address)
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return asked


@pytest.mark.timeout(10)
@pytest.mark.parametrize("find", [locate.resolve, lambda name: locate.resolve_tokenizer(name, Path())])
def test_an_unreachable_hub_is_one_sentence_at_once(no_network: list[Any], find: Any) -> None:
    with pytest.raises(UserError, match=r"never/heard-of is not on this disk and the hub cannot be reached") as caught:
        find("never/heard-of")
    assert "\n" not in str(caught.value)
    assert no_network == [("hub.example", 443)]


def test_behind_a_proxy_the_proxy_is_asked(no_network: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    with pytest.raises(UserError, match="cannot be reached"):
        locate.require_hub("model x")
    assert no_network == [("proxy.example", 3128)]


def snapshot(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry of the hub's cache on this disk, as huggingface_hub lays it out."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    base, commit = root / f"models--{name.replace('/', '--')}", "a" * 40
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(commit)
    (base / "snapshots" / commit).mkdir(parents=True)
    return base / "snapshots" / commit


def test_a_snapshot_on_this_disk_needs_no_network(
    no_network: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import huggingface_hub

    folder = saved(snapshot(tmp_path, "some/model", monkeypatch))
    plain = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *a, **k: plain(*a, **{**k, "cache_dir": str(tmp_path)})
    )
    found = locate.resolve("some/model")
    assert (found.path, found.revision) == (folder, "a" * 40)
    assert found.digest() == f"some/model@{'a' * 40}"
    assert not no_network
    (folder / "model.safetensors").unlink()  # somebody fetched the config alone: the hub must be asked for the rest
    with pytest.raises(UserError, match="cannot be reached"):
        locate.resolve("some/model")


class Answer:
    """What a hub's client keeps of an answer."""

    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, status_code: int) -> None:
        self.status_code, self.request = status_code, None


def not_in_the_cache_either(code: int | None) -> Exception:
    """As the hub's client says it: wrapped, whether the hub refused, was out of order, or could not be reached."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    error = LocalEntryNotFoundError("no appropriate snapshot folder")
    error.__cause__ = (
        ConnectionError("cable cut") if code is None else HfHubHTTPError(f"error {code}", response=Answer(code))  # type: ignore[arg-type]
    )
    return error


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (503, RunFailed, "model some/model: the hub says error 503, also after 3 more attempts; run the same command"),
        (403, UserError, "model some/model: the hub says error 403; check the name"),
        (None, RunFailed, r"model some/model: the hub gave no answer \(cable cut\); run the same command later"),
    ],
)
def test_a_hub_that_gives_nothing_is_a_sentence(
    code: int | None, kind: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: Any, **options: Any) -> str:
        raise not_in_the_cache_either(None if "local_files_only" in options else code)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(locate, "require_hub", lambda what: None)
    monkeypatch.setattr("encodery.core.hub_requests.time.sleep", lambda _: None)
    with pytest.raises(kind, match=sentence):
        locate.resolve("some/model")


# Tokenizers


def test_a_tokenizer_folder_or_a_vocabulary_is_enough(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "words")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    for name, vocabulary in (("words", 45), ("vocab.txt", 6)):
        options = ModelOptions(new=NewModel(), tokenizer=name)
        found = load_tokenizer(options, locate.resolve_tokenizer(name, tmp_path), None, toy=False)
        assert len(found) == vocabulary
    assert found("cat Cat").input_ids == [2, 5, 5, 3]


def test_a_new_model_without_a_tokenizer_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"model\.tokenizer: a new model needs one"):
        load_tokenizer(ModelOptions(new=NewModel()), None, None, toy=False)
    with pytest.raises(UserError, match=r"tokenizer \./nowhere: no such"):
        locate.resolve_tokenizer("./nowhere", Path())


def test_a_tokenizers_content_has_a_digest(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\nb")
    before = locate.resolve_tokenizer("vocab.txt", tmp_path).digest()
    (tmp_path / "vocab.txt").write_text("a\nc")
    assert locate.resolve_tokenizer("vocab.txt", tmp_path).digest() != before


# Saved folders


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_folder_loads_in_transformers_with_equal_logits(kind: str, tmp_path: Path) -> None:
    encoder = small_encoder(kind)
    model = small_model(encoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path / "words"))
    about = {"objective": {"kind": "classification", **model.objective("t").options.to_dict()}}
    model.save(tmp_path / "model", tokenizer, {"tasks": {"t": about}})
    table = random_table([5, 19, 3, 8])
    batch = batcher_for(encoder).batch(table, np.arange(4), "t", 0)
    ours = model.outputs(batch)["logits"]
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert stock.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert "packed" not in (tmp_path / "model" / "config.json").read_text()
    padded = batcher_for(encoder, "padded").batch(table, np.arange(4), "t", 0)
    torch.testing.assert_close(stock(**padded.inputs).logits, ours, rtol=0, atol=1e-6)
    again, _, _ = load_model(tmp_path / "model", device="cpu")
    assert torch.equal(again.outputs(batch)["logits"], ours)


@pytest.mark.parametrize("head", ["linear", "mlp_tanh", "mlp_gelu"])
@pytest.mark.parametrize("kind", ["bert", "electra", "mpnet"])
def test_other_heads_lie_beside_the_encoder_and_come_back(kind: str, head: str, tmp_path: Path) -> None:
    encoder = small_encoder(kind)
    model = small_model(encoder, head=head).eval()
    tokenizer = AutoTokenizer.from_pretrained(save_tokenizer(tmp_path / "words"))
    about = {"objective": {"kind": "classification", **model.objective("t").options.to_dict()}}
    model.save(tmp_path / "model", tokenizer, {"tasks": {"t": about}})
    batch = batcher_for(encoder).batch(random_table([5, 19, 3, 8]), np.arange(4), "t", 0)
    again, _, _ = load_model(tmp_path / "model", device="cpu")
    assert torch.equal(again.outputs(batch)["logits"], model.outputs(batch)["logits"])
    _, report = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert all("pooler" in name for name in report["missing_keys"])


def test_somebody_elses_classifier_is_opened(tmp_path: Path) -> None:
    stock = AutoModelForSequenceClassification.from_config(small_config("roberta", num_labels=4)).eval()
    stock.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    model, _, card = load_model(tmp_path, device="cpu")
    assert card["tasks"]["foreign"]["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"]
    batch = batcher_for(model.encoder).batch(random_table([5, 9]), np.arange(2), "foreign", 0)
    padded = batcher_for(model.encoder, "padded").batch(random_table([5, 9]), np.arange(2), "foreign", 0)
    torch.testing.assert_close(model.outputs(batch)["logits"], stock(**padded.inputs).logits, rtol=0, atol=1e-6)


def test_a_bare_encoder_is_no_classifier(tmp_path: Path) -> None:
    save_tokenizer(saved(tmp_path))
    with pytest.raises(UserError, match="is not a classifier; train it first"):
        load_model(tmp_path, device="cpu")


def test_googles_initialisation_is_as_wide_as_the_config_says() -> None:
    """Normal, cut at two deviations: of those 0.88 remain."""
    made = NewModel(kind="electra", size="tiny", init="google", config={"initializer_range": 0.05})
    weight = new_encoder(ModelOptions(new=made), toy_tokenizer()).net.encoder.layer[0].output.dense.weight
    assert float(weight.abs().max()) <= 0.1
    assert float(weight.std()) == pytest.approx(0.05 * 0.88, rel=0.02)
