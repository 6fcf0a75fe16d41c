"""A run whose head reads the mean: trained, resumed, asked, exported, embedded, compared in tables."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import encodery as en
from encodery.analysis.embed import EmbedOptions, embed, open_all
from encodery.errors import UserError
from encodery.models.model import read_card
from encodery.report import table as report_table
from encodery.runs.directory import RunDir
from tests.toolbox.runs import config_for, model_section, run, settings, weights_of
from tests.toolbox.tasks import pair_task
from tests.training.test_session import stop_at


def start(folder: Path, **pooling: bool) -> str:
    """An encoder's folder as sentence-transformers writes it."""
    made = run(settings(folder, train={"max_steps": 1}), folder / "start")
    encoder = Path(shutil.copytree(made.model, folder / "encoder"))  # the files of a finished run must stay as they are
    (encoder / "encodery.json").unlink()
    if pooling:
        (encoder / "1_Pooling").mkdir()
        (encoder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return str(encoder)


def from_start(folder: Path, name: str, **sections: Any) -> dict[str, Any]:
    tree = settings(folder, **sections)
    return {**tree, "model": {"name": name, **sections.get("model", {})}}


def poolings(done: RunDir) -> dict[str, Any]:
    card = read_card(done.model)
    assert card
    return {task: about["objective"]["pooling"] for task, about in card["tasks"].items()}


@pytest.mark.slow(0.5)
def test_F26_a_run_follows_the_folder_of_its_encoder_and_later_runs_follow_the_run(tmp_path: Path) -> None:
    name = start(tmp_path, pooling_mode_mean_tokens=True)
    short = {"max_steps": 2}
    auto = run(from_start(tmp_path, name, train=short), tmp_path / "auto")
    assert poolings(auto) == {"table/train": "mean"}
    assert "pooling: mean, as 1_Pooling/config.json of the model says" in auto.log_file.read_text()
    mean = run(from_start(tmp_path, name, train=short, model={"pooling": "mean"}), tmp_path / "mean")
    first = run(from_start(tmp_path, name, train=short, model={"pooling": "first"}), tmp_path / "first")
    assert all(torch.equal(value, weights_of(mean)[key]) for key, value in weights_of(auto).items())
    assert json.loads((first.model / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
    assert any(not torch.equal(value, weights_of(first)[key]) for key, value in weights_of(auto).items())
    later = run(from_start(tmp_path, str(auto.path), train=short), tmp_path / "later")
    assert poolings(later) == {"table/train": "mean"}


@pytest.mark.slow(0.5)
def test_F27_a_stopped_run_resumes_to_the_bit_whatever_the_folder_says_now(tmp_path: Path) -> None:
    name = start(tmp_path, pooling_mode_max_tokens=True)
    tree = from_start(tmp_path, name, train={"save": "2 steps"})
    whole = run(tree, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=stop_at(5))
    (Path(name) / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    killed = run(tree, tmp_path / "killed")
    assert poolings(killed) == {"table/train": "max"}
    assert all(torch.equal(value, weights_of(whole)[key]) for key, value in weights_of(killed).items())


@pytest.mark.slow(0.5)
def test_F27_a_run_that_began_before_the_key_keeps_reading_first_tokens(tmp_path: Path) -> None:
    name = start(tmp_path)
    tree = from_start(tmp_path, name, train={"save": "2 steps"})
    whole = run(tree, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=stop_at(5))
    info = json.loads((tmp_path / "killed" / "run.json").read_text())
    del info["auto_pooling"], info["pooling"]
    (tmp_path / "killed" / "run.json").write_text(json.dumps(info))
    (Path(name) / "1_Pooling").mkdir()
    (Path(name) / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    with pytest.raises(KeyboardInterrupt):  # twice: the first resume must not forget it
        run(tree, tmp_path / "killed", watch=stop_at(6))
    killed = run(tree, tmp_path / "killed")
    assert poolings(killed) == {"table/train": "first"}
    assert all(torch.equal(value, weights_of(whole)[key]) for key, value in weights_of(killed).items())


@pytest.fixture(scope="module")
def mean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on pairs whose stock head reads the mean."""
    folder = tmp_path_factory.mktemp("mean")
    tree = config_for(folder, pair_task(folder)) | {"model": model_section(folder, "bert", pooling="mean")}
    return Path(en.train(tree, folder / "run").path)


PAIRS = [("the cat", "a dog runs"), ("a good film", "the bird sings here and there")]


def by_hand(folder: Path) -> np.ndarray:
    """Probabilities of the pairs, with nothing of ours but the weights."""
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertConfig, BertModel

    weights = load_file(folder / "model.safetensors")
    plain = json.loads((folder / "config.json").read_text())["encoder"]
    net = BertModel(BertConfig(**plain)).eval()
    net.load_state_dict({k.removeprefix("bert."): v for k, v in weights.items() if k.startswith("bert.")})
    found = []
    for pair in PAIRS:
        with torch.no_grad():
            hidden = net(**AutoTokenizer.from_pretrained(folder)(*pair, return_tensors="pt")).last_hidden_state[0]
            pooled = torch.tanh(net.pooler.dense(hidden.mean(0)))
        found.append((weights["classifier.weight"] @ pooled + weights["classifier.bias"]).softmax(0).numpy())
    return np.stack(found)


def chances(model: Any) -> np.ndarray:
    return np.array([[one.probabilities[name] for name in model.labels] for one in model(PAIRS)])


@pytest.mark.slow(0.5)
def test_predictions_exports_and_evaluations_are_those_of_the_formula(mean: Path, tmp_path: Path, capsys: Any) -> None:
    from encodery.cli import main

    np.testing.assert_allclose(chances(en.load(mean)), by_hand(mean / "model"), atol=1e-6)
    assert main(["export", str(mean), str(tmp_path / "out")]) == 0
    assert "AutoModelForSequenceClassification (after import encodery)" in capsys.readouterr().out
    np.testing.assert_allclose(chances(en.load(tmp_path / "out")), by_hand(mean / "model"), atol=1e-6)
    (tmp_path / "out" / "encodery.json").unlink()  # config.json alone says enough
    np.testing.assert_allclose(chances(en.load(tmp_path / "out")), by_hand(mean / "model"), atol=1e-6)
    key, wanted = next(iter(json.loads((mean / "scores.json").read_text())["scores"].items()))
    assert main(["evaluate", str(mean), "--on", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[key]["scores"] == pytest.approx(wanted)


@pytest.mark.slow
def test_pipelines_of_transformers_open_it(mean: Path) -> None:
    from transformers import pipeline

    told = pipeline("text-classification", model=str(mean / "model"), device="cpu")(
        {"text": "the cat", "text_pair": "a dog"}
    )
    label = told["label"] if isinstance(told, dict) else told[0]["label"]
    assert label == en.load(mean)(("the cat", "a dog")).label


@pytest.mark.slow
@pytest.mark.parametrize("head", ["stock", "linear"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_onnx(head: str, pooling: str, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from transformers import AutoTokenizer

    from encodery.exchange.export_onnx import export_onnx

    tree = config_for(tmp_path, pair_task(tmp_path))
    tree |= {"model": model_section(tmp_path, "bert", pooling=pooling, head=head)}
    done = en.train(tree, tmp_path / "run")
    export_onnx(done.path, tmp_path / "onnx", int8=True)
    given = AutoTokenizer.from_pretrained(tmp_path / "onnx")(
        *zip(*PAIRS, strict=True), padding=True, return_tensors="np"
    )
    logits = ort.InferenceSession(str(tmp_path / "onnx" / "model.onnx")).run(None, dict(given))[0]
    found = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(found, chances(en.load(done)), atol=1e-4)


@pytest.mark.slow
def test_its_encoder_gives_vectors_and_begins_another_run(mean: Path, tmp_path: Path) -> None:
    key = next(iter(json.loads((mean / "scores.json").read_text())["scores"]))
    source, asked = open_all(str(mean), key, None, "cpu", False)
    vectors = embed(source, asked, EmbedOptions(site="mean"), tmp_path / "vectors").vectors
    assert np.isfinite(vectors).all()
    assert vectors.shape[1] == source.encoder.width


@pytest.mark.slow(0.5)
def test_tables_have_a_column_when_runs_differ(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"max_steps": 1})
    for pooling in ("auto", "mean"):
        run({**tree, "model": {**tree["model"], "pooling": pooling}}, tmp_path / "runs" / pooling)
    table = report_table.table([tmp_path / "runs"])
    assert list(table.settings) == ["model.pooling"]
    old = tmp_path / "runs" / "auto" / "config.yaml"  # a run from before the key differs from none at its default
    plain = yaml.safe_load(old.read_text())
    del plain["model"]["pooling"]
    old.write_text(yaml.safe_dump(plain))
    assert [row.settings for row in report_table.table([tmp_path / "runs"]).rows] == [
        {"model.pooling": "auto"}, {"model.pooling": "mean"},
    ]  # fmt: skip


@pytest.mark.slow(0.5)
def test_tags_say_that_the_key_changes_nothing(tmp_path: Path) -> None:
    done = en.train("recipe:toy/ner", tmp_path / "run", model={"pooling": "mean"}, train={"max_steps": 1})
    assert "model.pooling: mean changes nothing" in RunDir.open(done.path).log_file.read_text()


def test_a_wrong_value_is_refused(tmp_path: Path) -> None:
    tree = settings(tmp_path)
    with pytest.raises(UserError, match=r"model\.pooling"):
        run({**tree, "model": {**tree["model"], "pooling": "last"}}, tmp_path / "run")
