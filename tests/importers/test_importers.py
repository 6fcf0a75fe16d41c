"""Foreign ELECTRA checkpoints become transformers folders with every key accounted for and the same logits."""

import copy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from encodery.cli import main
from encodery.errors import UserError
from encodery.importers import electra_pytorch, google_electra, tf_checkpoint
from encodery.importers.electra import Heads
from tests.importers import tf_writer

HEADS = Heads(4, 2)
IDS = torch.tensor([[2, 7, 9, 11, 3]])


def pair(wide_generator: bool = False):
    """A discriminator and a generator that share their embeddings, as in pretraining."""
    torch.manual_seed(0)
    shared = {"vocab_size": 50, "embedding_size": 16, "max_position_embeddings": 24, "num_hidden_layers": 2}
    width = 32 if wide_generator else 8
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    small = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": 2}
    discriminator = ElectraForPreTraining(ElectraConfig(**shared, **sizes)).eval()
    generator = ElectraForMaskedLM(ElectraConfig(**shared, **small)).eval()
    for model in (discriminator, generator):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    return discriminator, generator


def google_name(key: str, model: str) -> str:
    """transformers' name to Google's, written down from the map, not from the code."""
    if key == "generator_lm_head.bias":
        return "generator_predictions/output_bias"
    name = key.replace("dense_prediction.", "dense_1.").replace(".layer.", ".layer_")
    if model == "generator" and not name.startswith(("electra.embeddings.", "generator_predictions")):
        name = name.replace("electra.", "generator.", 1)
    norm = "LayerNorm" in name
    for old, new in ((".weight", ".gamma" if norm else ".kernel"), (".bias", ".beta" if norm else ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name.replace("_embeddings.kernel", "_embeddings").replace(".", "/")


def as_google(discriminator, generator) -> dict[str, np.ndarray]:
    found = {}
    for model, net in (("discriminator", discriminator), ("generator", generator)):
        for key, value in net.state_dict().items():
            if key == "generator_lm_head.weight":
                continue
            name = google_name(key, model)
            array = value.numpy()
            found[name] = np.ascontiguousarray(array.T if name.endswith("kernel") else array)
            found[f"{name}/adam_m"] = found[f"{name}/adam_v"] = np.zeros_like(found[name])
    return found | {"global_step": np.array(7, dtype=np.int64)}


def check_folders(out, discriminator, generator) -> None:
    for name, kind, net in (
        ("discriminator", ElectraForPreTraining, discriminator),
        ("generator", ElectraForMaskedLM, generator),
    ):
        model, info = kind.from_pretrained(out / name, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        given = model.state_dict()
        assert all(torch.equal(given[key], value) for key, value in net.state_dict().items())
        both = [copy.deepcopy(one).eval() for one in (model, net)]  # sums depend in their last bits on how memory lies
        with torch.no_grad():
            assert torch.equal(*(one(IDS).logits for one in both))


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True], ids=["small", "small++"])
def test_google_checkpoint_gives_both_models(tmp_path, wide):
    nets = pair(wide)
    tf_writer.write(tmp_path / "model.ckpt", as_google(*nets))
    said = google_electra.convert(tmp_path / "model.ckpt", tmp_path / "out", HEADS, None)
    check_folders(tmp_path / "out", *nets)
    assert "width 32" in said[0]
    assert ("width 32" in said[1]) == wide
    assert "no vocab.txt" in said[2]


@pytest.mark.slow
def test_google_verb_finds_the_checkpoint_and_its_vocabulary(tmp_path, capsys):
    folder = tmp_path / "electra_small"
    folder.mkdir()
    nets = pair()
    tf_writer.write(folder / "electra_small", as_google(*nets))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    options = ["--heads", "4", "--generator-heads", "2"]
    assert main(["import", "google-electra", str(folder), str(tmp_path / "out"), *options]) == 0
    assert "loads without a missing or unexpected key" in capsys.readouterr().out
    check_folders(tmp_path / "out", *nets)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out/discriminator")
    assert tokenizer("Hello WORLD")["input_ids"] == [2, 5, 6, 3]
    assert main(["import", "google-electra", str(folder), str(tmp_path / "out"), *options]) == 2
    assert main(["import", "google-electra", str(folder), str(tmp_path / "two")]) == 2
    assert "--heads" in capsys.readouterr().err


@pytest.mark.slow
def test_google_checkpoint_with_other_variables_is_refused(tmp_path):
    tensors = as_google(*pair()) | {"task_specific/mnli/kernel": np.zeros(3, np.float32)}
    tf_writer.write(tmp_path / "x", tensors)
    with pytest.raises(UserError, match="not of pretraining: task_specific/mnli/kernel"):
        google_electra.convert(tmp_path / "x", tmp_path / "out", HEADS, None)
    tensors = as_google(*pair())
    del tensors["electra/encoder/layer_1/output/dense/bias"]
    tf_writer.write(tmp_path / "y", tensors)
    with pytest.raises(UserError, match=r"1 tensors are missing: electra\.encoder\.layer\.1\.output\.dense\.bias"):
        google_electra.convert(tmp_path / "y", tmp_path / "out", HEADS, None)
    assert not (tmp_path / "out").exists()


class L:
    """Pickled as fastcore's: a class by its name, and a dict with its items."""

    def __init__(self, items):
        self.items = items


@pytest.fixture
def fastcore(monkeypatch):
    """The module as it is where electra_pytorch runs; not there when the file is opened."""
    module = types.ModuleType("fastcore.foundation")
    module.L = L
    monkeypatch.setattr(L, "__module__", "fastcore.foundation")
    monkeypatch.setitem(sys.modules, "fastcore", types.ModuleType("fastcore"))
    monkeypatch.setitem(sys.modules, "fastcore.foundation", module)
    yield
    assert electra_pytorch.LIST not in torch.serialization.get_safe_globals()  # allowed for this file alone


@pytest.mark.slow
@pytest.mark.parametrize("form", ["state dict", "model and opt"])
def test_electra_pytorch_file_gives_both_models(tmp_path, form, fastcore, monkeypatch):
    discriminator, generator = pair()
    tensors = {
        f"{name}.{key}": value
        for name, net in (("discriminator", discriminator), ("generator", generator))
        for key, value in net.state_dict().items()
    }
    tensors["generator.electra.embeddings.position_ids"] = torch.arange(24)[None]
    torch.save(
        tensors if form == "state dict" else {"model": tensors, "opt": {"state": [], "hypers": L([{"lr": 1e-3}])}},
        tmp_path / "x.pth",
    )
    monkeypatch.delitem(sys.modules, "fastcore.foundation")
    monkeypatch.delitem(sys.modules, "fastcore")
    electra_pytorch.convert(tmp_path / "x.pth", tmp_path / "out", HEADS, None)
    check_folders(tmp_path / "out", discriminator, generator)


class Evil:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"discriminator.x": Evil()}}, "cannot be opened as weights"),
        ({"model": {}, "opt": {"hypers": Evil()}}, "cannot be opened as weights"),
        ({"weights": torch.zeros(2)}, "do not begin with discriminator"),
        ([1, 2], "is neither a state dict"),
    ],
)
def test_S1_electra_pytorch_refuses_what_is_no_weight(tmp_path, content, message, capsys):
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(UserError, match=message):
        electra_pytorch.convert(tmp_path / "x.pth", tmp_path / "out", HEADS, None)
    assert capsys.readouterr().out == ""


def test_electra_pytorch_names_missing_and_damaged_files(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        electra_pytorch.models(tmp_path / "x.pth")
    (tmp_path / "x.pth").write_bytes(b"garbage")
    with pytest.raises(UserError, match="cannot be opened"):
        electra_pytorch.models(tmp_path / "x.pth")


names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@pytest.mark.slow
@given(st.dictionaries(names, shapes, max_size=40), st.integers(1, 9))
def test_any_checkpoint_is_read_back(tmp_path_factory, shapes, per_block):
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    prefix = tmp_path_factory.mktemp("tf") / "m"
    tf_writer.write(prefix, tensors, per_block)
    found = tf_checkpoint.read(prefix)
    assert set(found) == set(tensors)
    assert all(
        np.array_equal(found[name], value) and found[name].shape == value.shape for name, value in tensors.items()
    )


def test_a_checkpoint_that_tensorflow_wrote() -> None:
    """From the saver of TensorFlow 2.21: shared beginnings of names, a step, other types, a tensor without rows."""
    found = tf_checkpoint.read(Path(__file__).parent / "by_tensorflow" / "small.ckpt")
    for layer in range(12):
        for place, name in enumerate(("query", "value")):
            wanted = (np.arange(6, dtype=np.float32) + 100 * layer + 10 * place).reshape(2, 3)
            np.testing.assert_array_equal(
                found.pop(f"electra/encoder/layer_{layer}/attention/self/{name}/kernel"), wanted
            )
    assert found.pop("electra/half").tolist() == [0.5, -2.0]
    assert found.pop("electra/double").tolist() == [[0.1]]
    assert found.pop("empty").shape == (0, 4)
    assert int(found.pop("global_step")) == 1234567
    assert not found


def test_checksums_are_those_of_the_standard():
    assert tf_checkpoint._crc32c(b"123456789") == 0xE3069283 == tf_writer.crc32c(b"123456789")


def test_damaged_checkpoints_are_named(tmp_path):
    prefix = tmp_path / "m"
    tf_writer.write(prefix, {f"v{i}": np.zeros((3, 4), np.float32) for i in range(20)})
    index, data = tmp_path / "m.index", tmp_path / "m.data-00000-of-00001"
    whole = index.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", whole[:10] + bytes([whole[10] ^ 1]) + whole[11:]):
        index.write_bytes(damaged)
        with pytest.raises(UserError, match=r"m\.index: is not an index"):
            tf_checkpoint.read(prefix)
    index.write_bytes(whole)
    data.write_bytes(data.read_bytes()[:-2])
    with pytest.raises(UserError, match="ends inside v9"):
        tf_checkpoint.read(prefix)
    data.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        tf_checkpoint.read(prefix)
    with pytest.raises(UserError, match=r"there is no .*nothing\.index"):
        tf_checkpoint.find_prefix(tmp_path / "nothing")
    assert tf_checkpoint.find_prefix(tmp_path) == tf_checkpoint.find_prefix(tmp_path / "m.index") == prefix
