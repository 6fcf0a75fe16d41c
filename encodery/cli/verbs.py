"""The list of verbs. A verb's file is imported only when the verb is used.

The file offers `arguments(parser)`, which declares its options, and `run(args, rest) -> int`, which does it and
returns the exit code. `rest` holds the overrides (`optim.lr=1e-5`) of a verb that takes a config, in order.
What it needs from the rest of the house is imported inside `run`, because `--help` must answer at once.
"""

from typing import NamedTuple


class Verb(NamedTuple):
    """A word after `encodery`."""

    name: str
    group: str
    help: str
    module: str
    overrides: bool = False  # takes a config, so words such as optim.lr=1e-5 change its settings


FIRST = ("train", "predict", "evaluate", "report", "export", "sweep")  # what most people need, shown above the others

GROUPS = {
    "train": "train a model",
    "use": "use a model",
    "look": "see what happened",
    "choose": "choose data and tasks",
    "many": "many runs",
    "exchange": "data, settings, import and export",
}

VERBS = (
    Verb("train", "train", "pretrain or fine-tune an encoder; run again to resume", "encodery.cli.train", True),
    Verb("glue", "train", "train one model on all GLUE tasks; one table", "encodery.cli.glue", True),
    Verb("tokenizer", "train", "train a vocabulary on a corpus", "encodery.cli.tokenizer", True),
    Verb("prepare", "train", "tokenise a corpus ahead of training", "encodery.cli.prepare", True),
    Verb("demo", "train", "run the whole workflow on small tasks, without a download", "encodery.cli.demo"),
    Verb("predict", "use", "predict labels and probabilities for raw text", "encodery.cli.predict"),
    Verb("serve", "use", "serve a model over HTTP: JSON, and a page to try it", "encodery.cli.serve"),
    Verb("evaluate", "use", "predict and score tasks; several runs are an ensemble", "encodery.cli.evaluate"),
    Verb("score", "use", "score any prediction file", "encodery.cli.score"),
    Verb("submit", "use", "write the eleven GLUE test files, checked", "encodery.cli.submit"),
    Verb("inspect", "look", "show the data as the model will read it", "encodery.cli.inspect", True),
    Verb("watch", "look", "follow runs and sweeps: progress, time left, failures", "encodery.cli.watch"),
    Verb("table", "look", "compare runs: mean ± sd over seeds, differences, tests", "encodery.cli.table"),
    Verb("report", "look", "runs as one HTML page: scores, curves, predictions, data", "encodery.cli.report"),
    Verb("embed", "choose", "compute one vector for each example of a split", "encodery.cli.embed"),
    Verb("select", "choose", "order training rows, the best first", "encodery.cli.select", True),
    Verb("curve", "choose", "retrain on parts of the data: methods × fractions × seeds", "encodery.cli.curve", True),
    Verb("heads", "choose", "measure how much a task depends on each attention head", "encodery.cli.heads"),
    Verb("gradts", "choose", "choose the tasks that help a task, and train with them", "encodery.cli.gradts", True),
    Verb(
        "sweep",
        "many",
        "many runs: plan, run, status, stop, retry, best, import",
        "encodery.cli.sweep",
        True,
    ),
    Verb("recipes", "exchange", "list, show and copy published settings", "encodery.cli.recipes"),
    Verb("tasks", "exchange", "list the named tasks", "encodery.cli.tasks"),
    Verb("config", "exchange", "print the settings of a config and where each came from", "encodery.cli.config", True),
    Verb("export", "exchange", "write a run's model as a transformers folder or ONNX, verified", "encodery.cli.export"),
    Verb("publish", "exchange", "publish a finished run on the hub, with a model card", "encodery.cli.publish"),
    Verb("track", "exchange", "send runs to TensorBoard, W&B, MLflow or trackio", "encodery.cli.track"),
    Verb("import", "exchange", "convert checkpoints of other programs to transformers folders", "encodery.cli.import_"),
    Verb("data", "exchange", "download data sets, or check a folder", "encodery.cli.data"),
    Verb("doctor", "exchange", "check this machine: versions, devices, data, hub, extras", "encodery.cli.doctor"),
)
