"""Models that have only pytorch_model.bin: opened once as weights only, the same to the bit, and named by `train`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForPreTraining

from encodery.cli import main
from encodery.errors import UserError
from encodery.importers.pytorch_bin import convert
from encodery.models import locate
from encodery.models.tokenizer import toy_tokenizer
from tests.toolbox.runs import run


def pickled(folder: Path, parts: int = 1) -> BertForPreTraining:
    """A model as older versions of transformers saved it: tied tensors, half precision, a NaN."""
    tokenizer = toy_tokenizer()
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(vocab_size=len(tokenizer), intermediate_size=32, **sizes))
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    state = model.state_dict()
    state["cls.seq_relationship.bias"] = torch.tensor([float("nan"), 1.0]).half()
    names = list(state)
    if parts == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return model
    places = {name: f"pytorch_model-{1 + i % parts:05d}-of-{parts:05d}.bin" for i, name in enumerate(names)}
    for file in set(places.values()):
        torch.save({name: state[name] for name in names if places[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
def test_P40_a_bin_becomes_safetensors_bit_by_bit_and_trains(
    tmp_path: Path, parts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    model = pickled(old, parts)
    tree: dict[str, Any] = {
        "model": {"name": str(old)},
        "tasks": [{"name": "toy/nli", "train_rows": 16, "dev_rows": 8}],
        "train": {"max_steps": 1, "batch_size": 8, "max_length": 32},
    }
    with pytest.raises(UserError, match=f"encodery import bin {old} old-safetensors"):
        run(tree, tmp_path / "refused")
    assert main(["import", "bin", str(old), str(new)]) == 0
    assert "all are identical bit for bit, and the encoder loads" in capsys.readouterr().out
    found = load_file(new / "model.safetensors")
    assert found.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        if name != "cls.seq_relationship.bias":
            assert torch.equal(found[name], value)
    assert found["cls.seq_relationship.bias"].dtype == torch.float16
    assert found["cls.seq_relationship.bias"].isnan().tolist() == [True, False]
    assert not list(new.glob("*.bin*"))
    tree["model"]["name"] = str(new)
    assert run(tree, tmp_path / "run").is_done


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_P40_nothing_but_tensors_is_opened_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pickled(tmp_path / "old")
    for content, message in (
        ({"x": Evil()}, "cannot be opened as weights"),
        ({"x": 1}, "something other than named tensors"),
        ({"bert.x": torch.zeros(2)}, "the weights do not fit the architecture"),
    ):
        torch.save(content, tmp_path / "old" / "pytorch_model.bin")
        with pytest.raises(UserError, match=message):
            convert(str(tmp_path / "old"), tmp_path / "new")
        assert sorted(one.name for one in tmp_path.iterdir()) == ["old"]
    assert capsys.readouterr().out == ""


def test_P40_what_needs_no_conversion_or_is_not_there_is_said(tmp_path: Path) -> None:
    pickled(tmp_path / "old")
    convert(str(tmp_path / "old"), tmp_path / "new")
    for name, message in (
        (str(tmp_path / "new"), r"there is no pytorch_model\.bin"),
        (str(tmp_path / "nowhere"), "no such folder"),
    ):
        with pytest.raises(UserError, match=message):
            convert(name, tmp_path / "again")
    (tmp_path / "old" / "model.safetensors").write_bytes((tmp_path / "new" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="has safetensors weights already"):
        convert(str(tmp_path / "old"), tmp_path / "again")
    with pytest.raises(UserError, match="already exists"):
        convert(str(tmp_path / "old"), tmp_path / "new")
    assert main(["import", "bin", str(tmp_path / "old"), str(tmp_path / "again"), "--heads", "4"]) == 2


def test_P40_a_hub_model_without_safetensors_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "0123abc"
    pickled(snapshot)
    monkeypatch.setattr(locate, "_download", lambda *_: snapshot)
    with pytest.raises(UserError, match=r"encodery import bin owner/old old-safetensors"):
        locate.resolve("owner/old")
    assert "owner/old at 0123abc" in convert("owner/old", tmp_path / "new")[0]
