import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import encodery as en
from tests.toolbox.runs import config_for, model_section
from tests.toolbox.tasks import single_task


@pytest.mark.slow
def test_a_stock_head_opens_in_transformers(trained, tmp_path, encodery):
    said = encodery("export", trained("pair"), tmp_path / "model")
    assert said.code == 0
    assert "AutoModelForSequenceClassification" in said.out
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {"config.json", "model.safetensors", "README.md"}
    pair = ("the cat", "a dog")
    assert en.load(tmp_path / "model")(pair) == en.load(trained("pair"))(pair)


def test_W41_an_exported_folder_names_no_local_path(trained, tmp_path, encodery):
    """Cards and settings are handed on with the weights: model card, encodery.json, the config of transformers."""
    run, folder = trained("single"), tmp_path / "out"
    assert encodery("export", run, folder).code == 0
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".md", ".json")):
        assert str(run.parent) not in path.read_text(), path.name
    assert f"encodery train {run.name}/config.yaml" in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_other_heads_say_what_the_folder_holds(kind, tmp_path, encodery):
    config = config_for(tmp_path, single_task(tmp_path)) | {"model": model_section(tmp_path, kind, head="linear")}
    run = en.train(config, tmp_path / "run")
    said = encodery("export", run.path, tmp_path / "model")
    assert said.code == 0
    assert "encodery.load" in said.out
    assert "heads/" in said.out
    assert en.load(tmp_path / "model")("a cat") == en.load(run)("a cat")


@pytest.mark.slow
def test_a_copy_that_differs_is_not_exported(trained, tmp_path, encodery, monkeypatch):
    import shutil

    def broken(origin, beside, **options):
        copytree(origin, beside, **options)
        weights = load_file(beside / "model.safetensors")
        weights["classifier.bias"] += torch.tensor([0.1, 0.0])
        save_file(weights, beside / "model.safetensors", metadata={"format": "pt"})

    copytree = shutil.copytree
    monkeypatch.setattr("encodery.exchange.export.shutil.copytree", broken)
    said = encodery("export", trained("single"), tmp_path / "model")
    assert said.code == 1
    assert "differ by 1.0e-01" in said.err
    assert list(tmp_path.iterdir()) == []


def test_refusals(trained, tmp_path, encodery):
    said = encodery("export", trained("single"), tmp_path)
    assert said.code == 2
    assert "already exists" in said.err
    assert "does not exist" in encodery("export", trained("single"), tmp_path / "a" / "b").err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({}))
    assert "no model/ yet" in encodery("export", tmp_path / "run", tmp_path / "b").err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "kind", "opens"),
    [
        ("electra", "electra", "transformers.AutoModelForPreTraining;"),
        ("electra", "amos", "transformers.AutoModelForPreTraining (after import encodery);"),
        ("mlm", "bert", "transformers.AutoModelForMaskedLM;"),
    ],
)
def test_P43_a_pretraining_says_what_of_it_is_exported(objective, kind, opens, tmp_path, encodery):
    import transformers

    fields = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    options = {"generator_size": 1, "generator_layers": 0.5} if kind == "amos" else {}
    config = {
        "model": {"new": {"kind": kind, "config": fields | ({"embedding_size": 32} if kind == "electra" else {})}},
        "tasks": [{"name": "toy/corpus", "documents": 20, "objective": {"kind": objective, **options}}],
        "train": {"max_steps": 1, "batch_size": 4, "max_length": 32, "keep_at": []},
    }
    run = en.train(config, tmp_path / "run")
    said = encodery("export", run.path, tmp_path / "model")
    assert said.code == 0
    what = "discriminator" if objective == "electra" else "encoder with its masked language modelling head"
    assert f"the pretrained {what}; opens with {opens} 4 texts give the same hidden states" in said.out
    assert ("the generator, " in said.out) == (objective == "electra")
    assert (tmp_path / "model" / "README.md").is_file()
    opened = getattr(transformers, opens.split(".")[1].split(";")[0].split(" ")[0])
    _, info = opened.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert encodery("export", run.path, tmp_path / "model").code == 2  # it is there already
