"""What is served: a run's model as a function from texts to answers, and what people may know of it."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.exchange.export import export
from encodery.exchange.export_onnx import INT8, PLAIN, export_onnx
from encodery.inference.classifier import Classifier, open_classifier
from encodery.models import locate
from encodery.models.model import Precision, read_card
from encodery.models.onnx import file as onnx_file
from encodery.runs.directory import RunDir, of_task
from encodery.tasks.base import Answer, Example

Onnx = Literal["int8", "fp32"]
WITH_LOGITS = ("single", "multilabel", "regression", "tagging")  # heads whose ONNX file gives what their answer needs


@dataclass(frozen=True)
class Predictor:
    """A model, and the run that it comes from."""

    model: Classifier
    onnx: Onnx | None
    scores: dict[str, Any]

    def __call__(self, examples: Sequence[Example]) -> list[Answer]:
        """Answers in order, as `predict` gives them."""
        found = self.model.answers(examples)
        return [self.model.head.told(found[example.id]) for example in examples]

    def about(self) -> dict[str, Any]:
        """What people may know: no path of this machine is in it."""
        head = self.model.head
        return {
            "name": Path(self.model.source).name,
            "task": self.model.task,
            "answers": head.answer_kind,
            "labels": list(head.labels),
            "texts": head.texts,
            "max_length": head.max_length,
            "runtime": f"ONNX Runtime, {self.onnx}" if self.onnx else f"PyTorch, {self.model.precision}",
            "scores": self.scores,
        }


def open_predictor(
    source: str,
    device: str = "auto",
    head: str | None = None,
    onnx: Onnx | None = None,
    allow_code: bool = False,
    precision: Precision = "fp32",
) -> Predictor:
    """A run directory, a model folder or a hub name, ready to answer."""
    model = open_classifier(source, device, head=head, allow_code=allow_code, precision=precision)
    if onnx:
        model = replace(model, model=through_onnx(model, source, head, onnx))  # type: ignore[arg-type]
    return Predictor(model, onnx, scores_of(source, model.head.name))


def scores_of(source: str, task: str) -> dict[str, Any]:
    """The scores of a run, with the main metric and the majority baseline; empty for other folders.

    Where each task has weights of its own, the scores of the other tasks are not of those that are served.
    """
    if not Path(source, "scores.json").is_file():
        return {}
    run = RunDir.open(Path(source))
    found = run.read_scores()
    if run.own_weights():
        found = of_task(found, task)
    return {key: found[key] for key in ("scores", "main", "majority", "alarms") if found.get(key)}


# The model through ONNX Runtime: what encodery asks of a model when it predicts, answered by a file.


def through_onnx(model: Classifier, source: str, head: str | None, kind: Onnx) -> "OnnxModel":
    """Export the model as `encodery export --onnx` does, verified against torch, and open the file."""
    if model.head.answer_kind not in WITH_LOGITS:
        raise UserError(
            f"--onnx: a model that answers with {model.head.answer_kind} is served by PyTorch; leave --onnx out"
        )
    with tempfile.TemporaryDirectory(prefix="encodery-") as folder:
        several = len((read_card(locate.resolve(source, head=head).path) or {"tasks": {}})["tasks"]) > 1
        alone = export(source, Path(folder) / "alone", head).folder if several else source
        export_onnx(alone, Path(folder) / "onnx", int8=kind == "int8")
        session = onnx_file.session(Path(folder) / "onnx" / (INT8 if kind == "int8" else PLAIN))
    return OnnxModel(model, session)


class OnnxEncoder:
    """What a batcher asks of an encoder."""

    layout = "rows"

    def __init__(self, form: Any):
        self.form = form

    def parameters(self) -> Iterator[Tensor]:
        """One on the CPU: batches are made there."""
        yield torch.zeros(1)


class OnnxModel:
    """In place of `Model` when texts are answered."""

    training = False

    def __init__(self, model: Classifier, session: Any):
        self.full_model, self.task, self.session = model.model, model.head.name, session
        self.encoder = OnnxEncoder(model.model.encoder.form)
        self.names = onnx_file.input_names(self.encoder.form.types)

    def eval(self) -> "OnnxModel":
        """It never trains."""
        return self

    def train(self, mode: bool = False) -> "OnnxModel":
        """It never trains."""
        return self

    def objective(self, task: str) -> Any:
        """The module that turns outputs into rows for the task."""
        return self.full_model.objective(task)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """Logits, of texts or of their tokens; those of a text's windows are joined as in training."""
        given = {name: batch.inputs[name].numpy() for name in self.names}
        logits = torch.from_numpy(self.session.run(None, given)[0])
        pool = getattr(self.objective(self.task).options, "pool", None)
        return {"logits": batch.per_example(logits, pool) if pool else logits}
