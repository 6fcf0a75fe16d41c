"""The model card of a run: README.md, with the front matter that the hub reads."""

import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from encodery.core import files
from encodery.core.environment import version
from encodery.core.redact import without_paths
from encodery.core.text import counted, markdown_table
from encodery.runs.directory import RunDir, task_and_split
from encodery.tasks.forms.hans_figures import caution

NAMED = 3  # files of a split


def model_card(run: RunDir, config: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What was trained, on what, how well, how to repeat it, and what not to conclude."""
    info = run.info()
    base = _name_of(config["model"].get("name")) or "a new encoder"
    tasks, tag = run.task_names(), pipeline(run)
    pretrained = tag == "fill-mask"
    front = ["---", "library_name: transformers", f"tags: [encodery, {tag}]", "---"]
    lines = [*front, "", f"# {info['task']} with {base}", ""]
    lines += [f"Trained by encodery {version()} with seed {info['seed']['init']} (method: {info['method']}).", ""]
    lines += ["## Scores", "", *_score_table(run, result), ""]
    lines += [line for sentence in own_weights_note(run, result) for line in (sentence, "")]
    lines += threshold_lines(run)
    lines += [line for sentence in result.get("notes", []) for line in (f"**Note:** {sentence}", "")]
    lines += [line for sentence in result["alarms"] for line in (f"**Alarm:** {sentence}", "")]
    lines += ["## Data", "", *_data_lines(info), *chosen_lines(config), ""]
    folder = _place_of(run.path)
    head = f", head={tasks[0]!r}" if len(tasks) > 1 else ""
    python = ["```python", "import encodery as en", f"model = en.load({folder!r}{head})", "```"]
    tune = ["```", f"encodery train --model {shlex.quote(folder)} --tasks glue/rte", "```"]
    lines += ["## Use", "", *(tune if pretrained else python), ""]
    lines += ["## Repeat", "", *repeat_lines(info, shlex.quote(f"{folder}/config.yaml")), ""]
    lines += [f"`config.yaml` beside this page holds every setting; identity {info['identity'][:16]}.", ""]
    lines += ["## Limits", "", *_limits(run, result)]
    return without_paths("\n".join(lines) + "\n")


def repeat_lines(info: Mapping[str, Any], config: str) -> list[str]:
    """The command; of a run that changed on the way what changed when, and the commands for each part."""
    again = f"encodery train {config}"
    changed = [one for one in info.get("changes", []) if one["step"] > 0]
    if not changed:
        return ["```", f"{again} -o another-folder", "```"]
    lines = [
        "The settings changed while it was trained, so `config.yaml`, which holds the last ones, does not repeat it:"
    ]
    lines += ["", *(f"- after step {one['step']:,}: {one['text']}" for one in changed), ""]
    unknown = [one for one in changed if not one["before"]]
    if unknown:
        return [*lines, "What was there before is not a setting, so no command can repeat this run."]
    lines += [
        "Train with the first settings, stop (Ctrl+C) at the step of each change, and continue with the next ones:"
    ]
    commands: list[str] = []
    later: dict[str, Any] = {}
    for change in reversed(changed):
        kinds = tuple(key.removesuffix("kind") for key in change["before"] if key.endswith(".kind"))
        later = {key: value for key, value in later.items() if not key.startswith(kinds)} | change["before"]
        words = " ".join(shlex.quote(f"{key}={files.plain_json(value)}") for key, value in later.items())
        commands.append(f"{again} {words} -o another-folder --allow-change  # stop after step {change['step']:,}")
    commands = [*reversed(commands), f"{again} -o another-folder --allow-change"]
    return [*lines, "", "```", *commands, "```"]


def _place_of(path: Path) -> str:
    """A run's folder as seen from the current one. Of one that lies elsewhere only the name: a card is handed on, and
    where the run lay is nobody's business."""
    whole, here = path.resolve(), Path.cwd()
    if whole != here and here.name and whole.is_relative_to(here):  # from / on it would be the whole path
        return whole.relative_to(here).as_posix()
    return whole.name if path.is_absolute() or whole == here else path.as_posix()


def _name_of(model: str | None) -> str | None:
    """A model of the hub by its name, a folder by the last part of its path."""
    return PurePosixPath(model).name if model and model.startswith(("/", "~", ".")) else model


def pipeline(run: RunDir) -> str:
    """What the hub calls this kind of model."""
    answering = [name for name in run.task_names() if not _is_text(name)]
    return hub_task(run, answering[0]) if answering else "fill-mask"


def hub_task(run: RunDir, task: str) -> str:
    """What the hub calls a task of a run."""
    if _is_text(task):
        return "fill-mask"
    card = run.model / "encodery.json"
    about = files.read_json(card)["tasks"].get(task) if card.is_file() else None
    names = {"tagging": "token-classification", "span": "question-answering", "ranking": "text-ranking"}
    return names.get((about or {"objective": {}})["objective"].get("kind"), "text-classification")


def _is_text(task: str) -> bool:
    return task.partition("/")[0] == "corpus" or task == "toy/corpus"


def labelled(run: RunDir, key: str) -> str:
    """`hans:dev`, and what must stand beside every figure of its rows."""
    task, split = task_and_split(key)
    note = run.rows_of(task, split).get("note")
    return key + caution(note) if note else key


def _score_table(run: RunDir, result: Mapping[str, Any]) -> list[str]:
    rows = []
    for key, scores in result["scores"].items():
        easy = result["majority"].get(key, {})
        label = labelled(run, key)
        rows += [[label, m, f"{v:.4f}", _cell(easy.get(m))] for m, v in scores.items()]
    return [markdown_table(["data", "metric", "model", "majority"], rows)]


def thresholds_of(run: RunDir) -> dict[str, dict[str, Any]]:
    """By task, the thresholds that are kept beside the weights, and where they come from."""
    thresholds: dict[str, dict[str, Any]] = {}
    for task in run.task_names():
        path = run.weights_of(task) / "encodery.json"
        about = files.read_json(path)["tasks"].get(task) if path.is_file() else None
        if about and about.get("thresholds"):
            thresholds[task] = about["thresholds"]
    return thresholds


def threshold_lines(run: RunDir, head: str | None = None) -> list[str]:
    """What every card says of them, in this run's folder and on the hub; of one head where it is published alone."""
    lines = []
    for task, limits in thresholds_of(run).items():
        if head not in (None, task):
            continue
        lines += [f"## Thresholds of {task}", "", _origin_of_thresholds(limits), ""]
        rows = [[label, f"{limit:.4f}"] for label, limit in limits["labels"].items()]
        lines += [markdown_table(["label", "given above"], rows), ""]
    return lines


def _origin_of_thresholds(thresholds: Mapping[str, Any]) -> str:
    use = "encodery applies them; transformers alone does not."
    if not thresholds.get("chosen_on"):
        return f"Set in the config. {use}"
    on, metric, rows = thresholds["chosen_on"], thresholds["metric"], thresholds["rows"]
    gain = f"{metric} {thresholds['score']:.4f} there, {thresholds['score_at_0.5']:.4f} with 0.5"
    warning = f"Scores on {on} are therefore optimistic: judge the model on other rows."
    return f"Chosen on the {counted(rows, 'row')} of {on} ({gain}). {warning} {use}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _data_lines(info: Mapping[str, Any]) -> list[str]:
    lines = []
    for split, origin in info["data"].items():
        more = [text for text in (origin.get("part"), origin.get("note")) if text]
        rows = f"- {split}: {rows_of(origin)} from {_whence(origin)}"
        lines.append(rows + "".join(f"; {m}" for m in more))
    return lines


def chosen_lines(config: Mapping[str, Any]) -> list[str]:
    """What part of train the settings of each task chose."""
    lines = []
    for entry in config["tasks"]:
        chosen = {key: entry[key] for key in ("subset", "fraction", "count") if entry.get(key) not in (None, 1.0)}
        lines += [f"- trained on a part of train: {key} {value}" for key, value in chosen.items()]
        lines += [f"- rows drawn by the scores of {entry['sample_by']}"] if entry.get("sample_by") else []
    return lines


def rows_of(origin: Mapping[str, Any]) -> str:
    """`90 of 300 rows` where a subset, a fraction, a count or a hold-out left some out, else `300 rows`."""
    rows, used = counted(origin["rows"], "row"), origin.get("used")
    return rows if used is None else f"{used:,} of {rows}"


def _whence(origin: Mapping[str, Any]) -> str:
    """The files where there are a few of them, else the kind of source."""
    names = list(origin.get("files") or ())
    return ", ".join(names) if origin["source"] == "folder" and 0 < len(names) <= NAMED else str(origin["source"])


def _limits(run: RunDir, result: Mapping[str, Any]) -> list[str]:
    lines = ["- One seed: differences of a few points between runs of other seeds are normal on small sets."]
    return [*lines, *(f"- {sentence}." for sentence in checkpoint_limits(run, result))]


def checkpoint_limits(run: RunDir, result: Mapping[str, Any]) -> list[str]:
    """Which weights the scores are of, where they were chosen by scores; without full stops."""
    chosen = result["chosen"]
    if not (on := chosen.get("chosen_on")):
        return []
    scored = {task_and_split(key)[0] for key in result["scores"]}
    own = [task for task in run.own_weights() if task in scored]
    each = [f"The checkpoint of {task} (step {chosen['best_of'][task]['step']}) was its best on {on}" for task in own]
    return each or [f"The checkpoint (step {chosen['step']}) was the best on {on}"]


def own_weights_note(run: RunDir, result: Mapping[str, Any]) -> list[str]:
    """Whose the scores are where `train.select: each` kept a model for each task; this card lies in model/ too."""
    if not (own := run.own_weights()):
        return []
    folders = ", ".join(f"`best/{folder.name}`" for folder in own.values())
    step = result["chosen"]["step"]
    return [
        f"Each task is scored with its own best weights ({folders}), which encodery opens with the head that is named. "
        f"`model/` holds those of step {step}, which were not scored here."
    ]
