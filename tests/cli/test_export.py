import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import encodery as en
from tests import tiny


def test_a_stock_head_opens_in_transformers(trained, tmp_path, encodery):
    said = encodery("export", trained("pair"), tmp_path / "model")
    assert said.code == 0
    assert "AutoModelForSequenceClassification" in said.out
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {"config.json", "model.safetensors", "README.md"}
    pair = ("the cat", "a dog")
    assert en.load(tmp_path / "model")(pair) == en.load(trained("pair"))(pair)


@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_other_heads_say_what_the_folder_holds(kind, tmp_path, encodery):
    config = tiny.config(tmp_path, tiny.single(tmp_path)) | {"model": tiny.model(tmp_path, kind, head="linear")}
    run = en.train(config, tmp_path / "run")
    said = encodery("export", run.path, tmp_path / "model")
    assert said.code == 0
    assert "encodery.load" in said.out
    assert "heads/" in said.out
    assert en.load(tmp_path / "model")("a cat") == en.load(run)("a cat")


def test_a_copy_that_differs_is_not_exported(trained, tmp_path, encodery, monkeypatch):
    import shutil

    def broken(origin, beside, **options):
        copytree(origin, beside, **options)
        weights = load_file(beside / "model.safetensors")
        weights["classifier.bias"] += torch.tensor([0.1, 0.0])
        save_file(weights, beside / "model.safetensors", metadata={"format": "pt"})

    copytree = shutil.copytree
    monkeypatch.setattr("encodery.export.shutil.copytree", broken)
    said = encodery("export", trained("single"), tmp_path / "model")
    assert said.code == 1
    assert "differ by 1.0e-01" in said.err
    assert list(tmp_path.iterdir()) == []


def test_refusals(trained, tmp_path, encodery):
    said = encodery("export", trained("single"), tmp_path)
    assert said.code == 2
    assert "already there" in said.err
    assert "does not exist" in encodery("export", trained("single"), tmp_path / "a" / "b").err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({}))
    assert "no model/ yet" in encodery("export", tmp_path / "run", tmp_path / "b").err
