"""S1: pickles in the places where others keep theirs; none of them is opened."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.toolbox.faults import command
from tests.toolbox.models import small_encoder
from tests.toolbox.tokenizers import save_tokenizer


class Trap:
    """Leaves a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mknod, (self.marker,)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    small_encoder("bert", vocab_size=45).net.save_pretrained(folder)
    return save_tokenizer(folder)


def bomb(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps({"weight": Trap(marker)}))


def zipped_bomb(path: Path, marker: Path) -> None:
    torch.save({"weight": Trap(marker)}, path)


def array_bomb(path: Path, marker: Path) -> None:
    with open(path, "wb") as stream:
        np.save(stream, np.array([Trap(marker)], dtype=object), allow_pickle=True)


@pytest.mark.parametrize("make", [bomb, zipped_bomb])
@pytest.mark.parametrize(
    "verb",
    [
        ["predict", "M", "--text", "a"],
        ["embed", "M", "--on", "toy/nli:dev", "-o", "out"],
        ["train", "--model", "M", "--tasks", "toy/nli", "--train.max_steps", "1"],
    ],
)
def test_S1_pickled_weights_of_a_model_folder_are_never_opened(make, verb, model, tmp_path) -> None:
    for name in ("pytorch_model.bin", "adapter_model.bin", "training_args.bin", "optimizer.pt", "model.pt"):
        make(model / name, tmp_path / "RAN")
    (model / "model.safetensors").unlink()
    adapter = {"peft_type": "LORA", "base_model_name_or_path": str(model), "r": 2, "target_modules": ["query"]}
    (model / "adapter_config.json").write_text(json.dumps(adapter))
    ended = command([str(model) if word == "M" else word for word in verb], tmp_path)
    assert ended.code == 2, ended.output
    assert not ended.is_bug
    assert not (tmp_path / "RAN").exists()


def test_S1_a_pickled_adapter_beside_good_weights_is_never_opened(model, tmp_path) -> None:
    zipped_bomb(model / "adapter_model.bin", tmp_path / "RAN")
    adapter = {"peft_type": "LORA", "base_model_name_or_path": str(model), "r": 2, "target_modules": ["query"]}
    (model / "adapter_config.json").write_text(json.dumps(adapter))
    ended = command(["embed", str(model), "--on", "toy/nli:dev", "-o", "out"], tmp_path)
    assert not ended.is_bug, ended.output
    assert not (tmp_path / "RAN").exists()


def test_S1_arrays_of_objects_are_never_opened(model, tmp_path) -> None:
    words = ["embed", str(model), "--on", "toy/nli:dev", "-o", "out"]
    assert command(words, tmp_path).code == 0
    array_bomb(tmp_path / "out" / "vectors.npy", tmp_path / "RAN")
    select = ["select", "--pool", "toy/nli", "--split", "dev", "--selector.kind", "clusters", "--embeddings", "out"]
    assert command([*select, "-o", "chosen"], tmp_path).code != 0
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("make", [bomb, zipped_bomb])
@pytest.mark.parametrize("program", ["electra-pytorch", "amos"])
def test_S1_import_reads_weights_only(program, make, tmp_path) -> None:
    make(tmp_path / "their.pt", tmp_path / "RAN")
    ended = command(["import", program, "their.pt", "out"], tmp_path)
    assert ended.code == 2, ended.output
    assert not ended.is_bug
    assert not (tmp_path / "RAN").exists()
