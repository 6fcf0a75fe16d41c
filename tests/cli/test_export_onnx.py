"""ONNX files say what torch says, or nobody gets them; int8 keeps its distance small."""

import json
import shutil
import sys

import numpy as np
import pytest

import encodery as en
from encodery.errors import RunFailed, UserError
from encodery.exchange import export_onnx
from encodery.models.onnx import file
from tests.toolbox.runs import config_for, model_section
from tests.toolbox.tasks import single_task

SLOW = pytest.mark.slow


def test_a_missing_extra_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'encodery\[onnx\]'"):
        file.session(tmp_path / "x.onnx")


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_an_export_without_the_extra_is_told_how_to_get_it(trained, tmp_path, encodery, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    said = encodery("export", trained("pair"), tmp_path / "out", "--onnx")
    assert (said.code, said.out) == (2, "")
    assert "ONNX needs two more packages: pip install 'encodery[onnx]'" in said.err
    assert "bug" not in said.err
    assert not (tmp_path / "out").exists()


def test_options_that_belong_to_onnx(trained, tmp_path, encodery):
    assert "need --onnx" in encodery("export", tmp_path, tmp_path / "x", "--int8").err


@SLOW
def test_the_file_answers_as_transformers_does(trained, tmp_path, encodery):
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    said = encodery("export", trained("pair"), tmp_path / "out", "--onnx", "--int8")
    assert said.code == 0, said.err
    assert "largest difference to torch" in said.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.onnx", "model_int8.onnx", "tokenizer.json", "config.json", "onnx.json"} <= names
    assert not any(name.endswith(".safetensors") or name.startswith(".") for name in names)
    told = json.loads((tmp_path / "out" / "onnx.json").read_text())
    assert told["outputs"] == ["logits"]
    assert told["against_torch"]["model.onnx"]["max_difference"] <= 1e-4
    assert told["against_torch"]["model_int8.onnx"]["cosine"] >= 0.99
    assert told["against_torch"]["model_int8.onnx"]["max_difference"] > 0

    from transformers import AutoTokenizer

    pairs = [("the cat", "a dog runs"), ("a good film", "the bird sings here and there")]
    given = AutoTokenizer.from_pretrained(tmp_path / "out")(
        *zip(*pairs, strict=True), padding=True, return_tensors="np"
    )
    session = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    logits = session.run(None, dict(given))[0]
    ours = en.load(trained("pair"))(pairs)
    for row, one in zip(logits, ours, strict=True):
        chances = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        assert chances == pytest.approx([one.probabilities[name] for name in en.load(trained("pair")).labels], abs=1e-4)


@SLOW
def test_a_file_that_differs_is_refused(trained, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    real = file.write

    def wrong(module, types, outputs, path):
        module.net.classifier.bias.data += 0.01
        real(module, types, outputs, path)
        module.net.classifier.bias.data -= 0.01

    monkeypatch.setattr(file, "write", wrong)
    with pytest.raises(RunFailed, match=r"differ by 1\.0e-02 from torch's; not exported"):
        export_onnx.export_onnx(trained("single"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@SLOW
def test_encoders_alone_and_heads_of_our_own(tmp_path):
    pytest.importorskip("onnx")
    model = model_section(tmp_path, "electra", head="linear")
    run = en.train(config_for(tmp_path, single_task(tmp_path)) | {"model": model}, tmp_path / "run")
    found = export_onnx.export_onnx(run.path, tmp_path / "head")
    assert found[0].outputs == ("logits",)
    assert found[0].difference <= 1e-4
    alone = tmp_path / "alone"  # outside the run, whose files must stay as they are
    shutil.copytree(run.path / "model", alone, ignore=shutil.ignore_patterns("heads"))
    found = export_onnx.export_onnx(alone, tmp_path / "encoder")
    assert found[0].outputs == ("last_hidden_state",)


@SLOW
def test_evened_numbers_are_the_same_function(trained, tmp_path):
    """What is moved and scaled before a product is taken back after it, in float32."""
    onnx = pytest.importorskip("onnx")
    from encodery.models.onnx.smooth import even_out

    module, outputs = export_onnx.open_module(trained("pair") / "model")
    file.write(module, True, outputs, tmp_path / "plain.onnx")
    exact = even_out(tmp_path / "plain.onnx", tmp_path / "even.onnx", 60)
    assert len(exact) == 1  # of two layers' wide products the first
    nodes = [node.op_type for node in onnx.load(tmp_path / "even.onnx").graph.node]
    before = [node.op_type for node in onnx.load(tmp_path / "plain.onnx").graph.node]
    assert len(nodes) == len(before) + 2 * 4  # before queries, keys and values and before each wide layer
    ids = np.random.default_rng(1).integers(0, 60, (3, 9))
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    a, b = (file.session(tmp_path / name).run(None, given)[0] for name in ("plain.onnx", "even.onnx"))
    assert np.abs(a - b).max() < 1e-5
