"""Models of entailment on HANS: labels by name or by calibration, and the way that the rows take."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from encodery.cli import main
from encodery.config import load
from encodery.errors import UserError
from encodery.inference.classifier import open_classifier
from encodery.inference.evaluate import best_order, evaluate, path_alarm, with_head_for
from encodery.inference.task_argument import TaskSplit, named
from encodery.runs.directory import RunDir
from encodery.tasks.base import Example
from encodery.tasks.hans import Hans

LABELS = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def run(trained) -> RunDir:
    return RunDir.open(trained("pair"))


@pytest.fixture(scope="module")
def toy() -> TaskSplit:
    return TaskSplit(named("toy/hans").model_copy(update={"rows": 60}), "dev")


def foreign(run: RunDir, folder: Path, order: tuple[int, ...], names: dict[str, str] | None) -> Path:
    """The run's model as somebody else would have saved it: outputs in another order, with or without names."""
    shutil.copytree(run.model, folder)
    (folder / "encodery.json").unlink()
    weights = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name][list(order)].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    about = json.loads((folder / "config.json").read_text())
    own = {str(i): LABELS[place] for i, place in enumerate(order)}
    about["id2label"] = names or own
    about["label2id"] = {label: int(i) for i, label in about["id2label"].items()}
    (folder / "config.json").write_text(json.dumps(about))
    return folder


UNNAMED = {str(i): f"LABEL_{i}" for i in range(3)}


@pytest.mark.slow
def test_D18_order_of_outputs_does_not_matter_where_labels_have_names(run, toy, tmp_path):
    known = evaluate([open_classifier(run.path)], toy)
    for number, order in enumerate(((2, 0, 1), (1, 2, 0))):
        other = open_classifier(foreign(run, tmp_path / str(number), order, None))
        found = evaluate([other], toy)
        assert found.scores == pytest.approx(known.scores)
        assert {id: a["said"] for id, a in found.answers.items()} == {id: a["said"] for id, a in known.answers.items()}


@pytest.mark.slow
def test_D18_labels_without_names_are_refused_or_calibrated(run, toy, tmp_path, capsys):
    folder = foreign(run, tmp_path / "unnamed", (2, 0, 1), UNNAMED)
    with pytest.raises(UserError, match="it is unknown which is which"):
        evaluate([open_classifier(folder)], toy)
    named_by_hand = open_classifier(folder, labels=["contradiction", "entailment", "neutral"])
    assert evaluate([named_by_hand], toy).scores == evaluate([open_classifier(run.path)], toy).scores
    # Four training steps teach nothing, so no order of labels stands out, and that is said.
    code = main(["evaluate", str(folder), "--on", "toy/hans", "--calibrate", "toy/nli:dev"])
    assert code == 2
    assert "it is unknown which is right" in capsys.readouterr().err


def test_calibration_finds_the_order_of_labels():
    gold = ["a", "b", "c"] * 20
    guesses = [{"a": 2, "b": 0, "c": 1}[label] for label in gold]
    guesses[:3] = [0, 0, 0]
    found = best_order(guesses, gold, ("a", "b", "c"))
    assert found.labels == ("b", "c", "a")
    assert found.accuracy > 0.95 > 0.5 > found.next_best
    assert "0 = b, 1 = c, 2 = a" in str(found)


@pytest.mark.slow
def test_D19_dev_rows_on_the_way_of_hans_give_the_answers_of_the_run(run):
    own = load.load(run.path).tasks[0][0]
    model = with_head_for(open_classifier(run.path), Hans())
    rows = [Example(f"{i}", e.texts, e.label) for i, e in enumerate(own.examples("train"))]
    through = model.outputs(rows, Hans())
    plain = open_classifier(run.path).outputs(rows)
    assert torch.equal(torch.tensor([r["logits"] for r in through]), torch.tensor([r["logits"] for r in plain]))
    # Both texts get their own segment, as in training.
    features = next(Hans().encode(rows[:1], model.pieces, 32))
    assert set(features.types) == {0, 1}
    assert next(own.encode(rows[:1], model.pieces, 32)).types == features.types


@pytest.mark.slow
def test_D20_answers_that_do_not_come_out_again_are_an_alarm(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    again = RunDir.open(copy)
    own = load.load(copy).tasks[0][0]
    model = with_head_for(open_classifier(run.path), Hans())
    assert path_alarm(model, again, Hans()) is None
    asked_at = []
    model.model.at_precision = lambda name: asked_at.append(name) or nullcontext()
    assert path_alarm(model, again, Hans()) is None
    assert asked_at == ["fp32"]  # that of the run, whatever the model was opened in
    path = again.predictions_path(own.name, "dev")
    known = [json.loads(line) for line in path.read_text().splitlines()]
    turned = {"entailment": "neutral", "neutral": "contradiction", "contradiction": "entailment"}
    path.write_text("".join(json.dumps({**row, "prediction": turned[row["prediction"]]}) + "\n" for row in known))
    again.done.write("2026-01-01T00:00:00Z")
    assert "does not get its input as in training" in str(path_alarm(model, again, Hans()))


@pytest.mark.slow
def test_the_verb_keeps_figures_in_all_forms(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    assert main(["evaluate", str(copy), "--on", "toy/hans", "--collapse", "sum"]) == 0
    said = capsys.readouterr()
    assert "| lexical_overlap |" in said.out
    kept = {path.name.removeprefix("toy-hans-dev.") for path in (copy / "predictions").glob("toy-hans-dev.*")}
    assert kept == {"jsonl", "report.txt", "report.json", "report.csv", "report.md", "mccoy.txt"}
    scores = RunDir.open(copy).read_scores()["evaluations"]["toy/hans:dev"]["scores"]
    own = str(copy / "predictions" / "toy-hans-dev.mccoy.txt")
    assert main(["score", own, "--on", "toy/hans", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["toy/hans:dev"]
    assert plain["predicted_entailment"] >= scores["predicted_entailment"]
    assert main(["score", own, own, "--on", "toy/hans"]) == 0
    assert "± 0.0000" in capsys.readouterr().out
    jsonl = str(copy / "predictions" / "toy-hans-dev.jsonl")
    assert main(["score", jsonl, "--against", own, "--on", "toy/hans"]) == 0
    assert "lexical_overlap non-entailment: only this one right" in capsys.readouterr().out
    assert main(["evaluate", str(copy), "--on", "toy/nli", "--collapse", "sum"]) == 2
