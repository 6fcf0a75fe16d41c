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


GROUPS = {
    "train": "make a model",
    "use": "ask a model",
    "look": "see what happened",
    "choose": "choose data and tasks",
    "many": "many runs",
    "exchange": "data, settings, models of others",
}

VERBS = (
    Verb("train", "train", "pretrain or fine-tune an encoder; run again = go on", "encodery.cli.train", True),
    Verb("glue", "train", "all GLUE tasks with one model, one table", "encodery.cli.glue", True),
    Verb("tokenizer", "train", "train a vocabulary on a corpus", "encodery.cli.tokenizer", True),
    Verb("prepare", "train", "tokenise a corpus ahead of training", "encodery.cli.prepare", True),
    Verb("demo", "train", "the whole story on toy tasks, no download", "encodery.cli.demo"),
    Verb("predict", "use", "labels and probabilities for raw text", "encodery.cli.predict"),
    Verb("evaluate", "use", "predictions and scores on tasks; several runs = an ensemble", "encodery.cli.evaluate"),
    Verb("score", "use", "scores of anybody's prediction file", "encodery.cli.score"),
    Verb("submit", "use", "the eleven GLUE test files, checked", "encodery.cli.submit"),
    Verb("inspect", "look", "what the model will see", "encodery.cli.inspect", True),
    Verb("watch", "look", "runs and sweeps while they work: progress, loss, time left", "encodery.cli.watch"),
    Verb("table", "look", "any runs as a table: mean ± sd over seeds", "encodery.cli.table"),
    Verb("report", "look", "any runs as one page: scores, curves, answers, data", "encodery.cli.report"),
    Verb("embed", "choose", "one vector for each example of a split", "encodery.cli.embed"),
    Verb("select", "choose", "put training rows in an order: the best first", "encodery.cli.select", True),
    Verb("curve", "choose", "retrain on parts of the data: methods × fractions × seeds", "encodery.cli.curve", True),
    Verb("heads", "choose", "how much a task hangs on each attention head; compare tasks", "encodery.cli.heads"),
    Verb("gradts", "choose", "choose the tasks that help a task, and train with them", "encodery.cli.gradts", True),
    Verb(
        "sweep",
        "many",
        "many runs from one file: plan, run, status, stop, retry, best, import",
        "encodery.cli.sweep",
        True,
    ),
    Verb("recipes", "exchange", "list, show and copy settings with a source", "encodery.cli.recipes"),
    Verb("tasks", "exchange", "list the tasks that have a name", "encodery.cli.tasks"),
    Verb("config", "exchange", "print the settings of a config and where each came from", "encodery.cli.config", True),
    Verb("export", "exchange", "a run's model as a transformers folder or ONNX, verified", "encodery.cli.export"),
    Verb("publish", "exchange", "a finished run with a model card, for the hub", "encodery.cli.publish"),
    Verb("track", "exchange", "runs to TensorBoard, W&B, MLflow or trackio", "encodery.cli.track"),
    Verb("import", "exchange", "checkpoints of other programs as transformers folders", "encodery.cli.import_"),
    Verb("data", "exchange", "fetch data sets ahead, or check a folder", "encodery.cli.data"),
    Verb("doctor", "exchange", "look at this machine: versions, devices, data, hub", "encodery.cli.doctor"),
)
