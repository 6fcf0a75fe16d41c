"""Evaluate trained models on tasks: predictions and scores. Several models are an ensemble (mean of probabilities).

Models are runs, model folders or hub names. Predictions of a single run are stored in its folder; store others with -o.

A pretrained model is scored on plain text: the held-out part of its corpus (--on corpus, as the run calls it), a text
file, or a folder written by `encodery prepare`. Masks and samples are drawn from --seed.

--attack perturbs the word embeddings of each sequence against the model, within a radius: scores and loss for
every radius, a line and a curve per model. They are stored as JSON, CSV and SVG in each run's attacks/, or with -o.

--by adds the scores for each value of a column, with 95 % intervals over rows: a column of your data, or one
of a published data set (hard, genre). They are stored beside the predictions, for `table --by` and the page.

--without-heads sets the output of these attention heads to zero, to test a ranking of `encodery heads`. Such
predictions are stored only with -o.

On hans, use a model trained on MNLI, RTE or similar: three labels become two (--collapse), by their names. A model
whose labels have no names needs --labels or --calibrate. Scores, also in McCoy's format, are beside the predictions.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser, columns_of
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.analysis.attack import Attack
    from encodery.inference.evaluate import Evaluation
    from encodery.inference.evaluate_text import Pretrained
    from encodery.inference.task_argument import TaskSplit
    from encodery.runs.directory import RunDir


# The part of `encodery evaluate` that attacks models.


RADII = "0,0.1,0.3,1"
STEPS = 5


def require_complete(args: argparse.Namespace) -> None:
    """The options of an attack mean nothing without one, nor do some values."""
    given = [name for name in ("radius", "radius_scale", "attack_steps", "norm") if getattr(args, name) is not None]
    if given and not args.attack:
        raise UserError(f"--{given[0].replace('_', '-')}: needs an attack; add --attack pgd")
    if args.attack_steps is not None and args.attack_steps < 1:
        raise UserError("--attack-steps: must be at least 1")
    if args.attack == "fgsm" and args.attack_steps not in (None, 1):
        raise UserError("--attack-steps: fgsm is one step; use --attack pgd for more")


def radii(text: str) -> list[float]:
    """`0,0.1,0.3,1`, smallest first."""
    try:
        found = sorted({float(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0 <= radius < math.inf for radius in found):
        raise UserError(f"--radius: expected numbers of 0 or more, such as {RADII}, not {text!r}")
    return found


def evaluate_under_attack(args: argparse.Namespace) -> int:
    """Attack every model on every split; keep and print."""
    from encodery.analysis.attack import Attack, require_labels
    from encodery.core import files
    from encodery.inference.classifier import open_classifier
    from encodery.inference.evaluate import require_shared_rows
    from encodery.inference.task_argument import splits_of
    from encodery.report import robustness
    from encodery.runs.directory import RunDir

    runs = {path: RunDir.open(path) for path in args.models if files.is_run(path)}
    own, sizes = list(runs.values()), radii(args.radius or RADII)
    _require_places(args, own)
    steps = 1 if args.attack == "fgsm" else args.attack_steps or STEPS
    attack = Attack(args.attack, steps, args.norm or "l2", args.radius_scale or "absolute")
    splits = splits_of(args.on, args.data, own, **_reading(args))
    for asked in splits:
        require_labels(asked, asked.task.examples(asked.split))
        if len(args.models) > 1:
            require_shared_rows(own, asked, ", or attack one at a time, each on its own rows")
    names = args.labels.split(",") if args.labels else None
    models = {path: open_classifier(path, args.device, labels=names, undecided=True) for path in args.models}
    printed: dict[str, Any] = {}
    for asked in splits:
        about = _about_attack(args, asked, attack, own)
        levels, pictures = _attack_models(args, models, asked, attack, sizes, partial(_keep, args, runs, about))
        printed[asked.key] = about | {"models": levels}
        if not args.json:
            _print_attack(about, robustness.table(levels, asked.task.main_metric), pictures, args)
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    return 0


def _about_attack(
    args: argparse.Namespace, asked: "TaskSplit", attack: "Attack", own: "list[RunDir]"
) -> dict[str, Any]:
    """Everything but the radii that the figures depend on, and what must stand beside them."""
    from encodery.training.seen_rows import seen

    rows = len(asked.task.examples(asked.split))
    about = {"data": asked.key, "main": asked.task.main_metric, "rows": rows}
    about |= {"digest": asked.task.origin(asked.split).digest}
    about |= _origin(asked, seen(own, asked, args.allow_code))
    about |= {"attack": attack.kind, "steps": attack.steps, "norm": attack.norm}
    about |= {} if attack.scale == "absolute" else {"scale": attack.scale}
    return about | {key: value for key, value in (("head", args.head), ("labels", args.labels)) if value}


def _attack_models(
    args: argparse.Namespace,
    models: dict[str, Any],
    asked: "TaskSplit",
    attack: "Attack",
    sizes: list[float],
    keep: "Callable[[str, list[dict[str, Any]]], Path | None]",
) -> tuple[dict[str, list[dict[str, Any]]], list[Path]]:
    """What is left of each model at every radius, kept as soon as a model is done; and the pictures of it."""
    from encodery.analysis.attack import under_attack
    from encodery.core.progress import Counting

    rows = len(asked.task.examples(asked.split))
    levels: dict[str, list[dict[str, Any]]] = {}
    pictures: dict[str, Path] = {}
    try:
        with Counting(asked.key, rows * len(sizes) * len(models), args.quiet) as on_progress:
            for path, model in models.items():
                at_radii = under_attack(model, asked, sizes, attack, args.head, on_progress)
                levels[path] = [level.to_dict() for level in at_radii]
                if picture := keep(path, levels[path]):
                    pictures[path] = picture
    except KeyboardInterrupt:
        kept = [f"{path} in {picture.with_suffix('.json')}" for path, picture in pictures.items()]
        raise KeyboardInterrupt(f"Kept of {asked.key}: {', '.join(kept) or 'nothing'}.") from None
    return levels, list(dict.fromkeys(pictures.values()))


def _origin(asked: "TaskSplit", trained_on: str | None) -> dict[str, str]:
    """What must stand beside the figures: parts, data that are not official, rows that were trained on."""
    origin = asked.task.origin(asked.split)
    about = {"part": origin.part, "note": origin.note, "seen": trained_on}
    return {key: value for key, value in about.items() if value}


def _require_places(args: argparse.Namespace, runs: list[Any]) -> None:
    """What would be refused at the end is refused before the work."""
    from encodery.inference.evaluate import require_folder, require_run

    if len(set(args.models)) < len(args.models):
        raise UserError("a model is named twice")
    if args.out:
        require_folder(Path(args.out))
        return
    for one in runs:
        require_run(one)


def _keep(
    args: argparse.Namespace, runs: dict[str, Any], about: dict[str, Any], model: str, levels: list[dict[str, Any]]
) -> Path | None:
    """All models together in the folder of -o, else each in its own run; radii that were kept before stay there."""
    from encodery.report import robustness

    folder, weights = _folder_for(args, runs.get(model)), _weights(runs.get(model))
    if folder is None:
        return None
    with folder.lock():
        sentence = robustness.replaced(folder, about, {model: levels}, weights)
        picture = robustness.keep(folder, about, {model: levels}, weights)
    if sentence and not args.quiet:
        print(f"WARNING {about['data']}: {sentence}", file=sys.stderr)
    return picture


def _folder_for(args: argparse.Namespace, run: "RunDir | None") -> "RunDir | None":
    from encodery.core import files
    from encodery.runs.directory import RunDir

    if not args.out:
        return run
    with files.io_trouble(f"{args.out} cannot be written", Path(args.out).parent):
        Path(args.out).mkdir(parents=True, exist_ok=True)
    return RunDir(args.out)


def _weights(run: "RunDir | None") -> str | None:
    """The digests of a run's weights: figures of other weights are not joined with theirs."""
    listed = run.done.read().get("files", {}) if run is not None else {}
    names = sorted(name for name in listed if name.startswith("model/") and name.endswith(".safetensors"))
    return " ".join(listed[name]["sha256"] for name in names) or None


def _print_attack(about: dict[str, Any], table: str, pictures: list[Path], args: argparse.Namespace) -> None:
    from encodery.cli.print_table import show
    from encodery.tasks.forms.hans_figures import caution

    if not args.quiet:
        for key in ("part", "note", "seen"):
            if key in about:
                print(f"WARNING {about['data']} {about[key]}", file=sys.stderr)
    unit = "mean token norm" if about["norm"] == "l2" else "mean token norm / √width"
    counted = f", in multiples of each model's {unit}" if "scale" in about else ""
    ascents = f", {about['steps']} steps" if about["attack"] != "fgsm" else ""
    label = about["data"] + caution(about.get("note"))
    show(f"{label}  {about['attack']}{ascents}, {about['norm']} radius per sequence{counted}\n\n{table}\n", args.format)
    for path in pictures:
        print(f"({path})", file=sys.stderr if args.format == "csv" else sys.stdout)


# The part of `encodery evaluate` that scores pretrained models on plain text.


def evaluate_on_text(
    args: argparse.Namespace, runs: "Sequence[RunDir]", splits: "Sequence[TaskSplit]",
    keep: "Callable[[Evaluation], Path | None]",
) -> int:  # fmt: skip
    """Score one model on every text; keep and print."""
    from encodery.core.progress import spell_scores
    from encodery.inference.evaluate_text import open_pretrained, trained_on

    if any(one.task.labelled for one in splits):
        raise UserError("--on: plain text and labelled tasks need different models; evaluate them separately")
    if len(args.models) > 1:
        raise UserError("plain text is scored with one model at a time: give one")
    model = open_pretrained(args.models[0], args.device, allow_code=args.allow_code)
    printed: dict[str, Any] = {}
    for asked in splits:
        if not args.quiet and any(trained_on(run, asked) for run in runs):
            print(f"WARNING {asked.key}: this model was trained on this text", file=sys.stderr)
        evaluation = _score(args, model, asked)
        path = keep(evaluation)
        printed[asked.key] = evaluation.to_dict()
        if not args.json and not args.format:
            print(
                f"{asked.key}  {spell_scores(evaluation.scores or {}, evaluation.main)}"
                + (f"  ({path})" if path else "")
            )
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    elif args.format:
        _show_table(printed, args.format)
    return 0


def _score(args: argparse.Namespace, model: "Pretrained", asked: "TaskSplit") -> "Evaluation":
    from encodery.core.progress import Counting, Portion
    from encodery.inference.evaluate_text import sequences

    with Portion(asked.key, args.quiet) as portion:
        table = model.blocks(asked, portion)
    with Counting(asked.key, sequences(table), args.quiet) as on_progress:
        return model.evaluate(asked, table, args.seed, on_progress)


def arguments(parser: Parser) -> None:
    parser.add_argument("models", nargs="+", metavar="RUN|MODEL", help="run directory, model folder or hub name")
    parser.add_argument(
        "--on", nargs="+", action="extend", required=True, metavar="TASK[:SPLIT]",
        help="such as glue/rte:dev; a file with labels such as gold.csv; a config or run with its task; for "
        "pretrained models a text file or prepared folder. Default split: dev, else test",
    )  # fmt: skip
    parser.add_argument("--head", metavar="NAME", help="use the head of this task, if the names are ambiguous")
    parser.add_argument("--labels", metavar="A,B,…", help="names of the outputs, if the model calls them LABEL_0, …")
    parser.add_argument("--seed", type=int, default=0, help="seed of masks on plain text; default: 0, as in training")
    parser.add_argument(
        "--calibrate", metavar="TASK[:SPLIT]",
        help="find the order of unnamed labels on these rows: the most accurate one, if it is clear",
    )  # fmt: skip
    parser.add_argument("--without-heads", metavar="L.H,…", help="heads to switch off: 3.4 is layer 3, head 4")
    parser.add_argument(
        "--collapse", choices=["argmax", "sum"], help="hans: how three labels become two; default: argmax"
    )
    parser.add_argument("--by", metavar="COLUMN,…", help="also score each value of these columns, with intervals")
    parser.add_argument("-o", "--out", metavar="DIR", help="folder for predictions and scores")
    parser.shared("--data", "--device", "--precision", "--allow-code")
    parser.no_verify()
    parser.columns()
    attack = parser.add_argument_group("attack")
    attack.add_argument(
        "--attack", choices=["pgd", "fgsm", "random"],
        help="pgd: several ascents of the loss; fgsm: one; random: a control without gradient",
    )  # fmt: skip
    attack.add_argument("--radius", metavar="R,…", help="such as 0,0.1,0.3,1 (the default); 0 is no attack")
    attack.add_argument("--attack-steps", type=int, metavar="N", help="ascent steps, or random points; default: 5")
    attack.add_argument(
        "--radius-scale", choices=["absolute", "token_norm"],
        help="token_norm: radii are multiples of each model's mean token norm (linf: of that / √hidden size)",
    )  # fmt: skip
    attack.add_argument("--norm", choices=["l2", "linf"], help="norm of each sequence's perturbation; default: l2")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.shared("--format", help="rich, md or csv prints a table, json is the same as --json; default: lines")
    parser.shared("--quiet", help="print neither progress nor notes")
    parser.examples(
        "encodery evaluate runs/mnli --on glue/mnli:dev_mismatched glue/ax",
        "encodery evaluate runs/rte-* --on glue/rte -o ensemble",
        "encodery evaluate runs/reviews --on gold.csv",
        "encodery evaluate runs/reviews --on table/reviews:test",
        "encodery evaluate runs/electra@25% --on corpus:dev news.txt --json",
        "encodery evaluate runs/mnli --on hans",
        "encodery evaluate runs/mnli --on glue/mnli:dev --by hard",
        "encodery evaluate runs/rte --on glue/rte:dev --without-heads 3.4,5.0",
        "encodery evaluate somebody/bert-mnli --on hans --calibrate glue/mnli:dev",
        "encodery evaluate runs/rte-plain runs/rte-freelb --on glue/rte:dev --attack pgd --radius 0,0.1,0.3,1",
        "encodery evaluate textattack/bert-base-uncased-RTE --on glue/rte --labels entailment,not_entailment",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    args.json = args.json or args.format == "json"
    require_complete(args)
    if args.attack and args.by:
        raise UserError("--by: cannot be combined with --attack")
    if args.attack and args.precision != "fp32":
        raise UserError(f"--precision {args.precision}: attacks are computed in fp32; leave it out")
    if args.attack:
        return evaluate_under_attack(args)
    from encodery.core import files
    from encodery.inference.evaluate import require_shared_rows
    from encodery.inference.task_argument import splits_of
    from encodery.models.locate import kept_on_the_way
    from encodery.runs.directory import RunDir

    runs = [RunDir.open(path) for path in args.models if files.is_run(path)]
    keep = _keeper(args, runs)
    whose = runs or kept_on_the_way(args.models)
    splits = splits_of(args.on, args.data, whose, **_reading(args))
    if any(not one.task.labelled for one in splits):
        if args.without_heads:
            raise UserError("--without-heads: is not for plain text, which is scored with all heads")
        if args.by:
            raise UserError("--by: plain text has no columns; use it with labelled tasks")
        if args.precision != "fp32":
            raise UserError(f"--precision {args.precision}: plain text is scored in fp32; leave it out")
        return evaluate_on_text(args, whose, splits, keep)
    for asked in splits if len(args.models) > 1 else ():
        require_shared_rows(runs, asked)
    splits = [_collapsed(one, args.collapse) for one in splits]
    _require_columns(splits, args.by)
    _evaluate_models(args, splits, runs, keep)
    if len(runs) == 1:
        args.next = f"encodery report {runs[0].path}  # its errors, one by one"
    return 0


def _evaluate_models(
    args: argparse.Namespace,
    splits: "Sequence[TaskSplit]",
    runs: "list[RunDir]",
    keep: "Callable[[Evaluation], Path | None]",
) -> None:
    """Open the models, score them on every split; keep and print."""
    from encodery.core.progress import Counting
    from encodery.inference.classifier import open_classifier
    from encodery.inference.evaluate import evaluate, with_head_for
    from encodery.training.seen_rows import seen

    names = args.labels.split(",") if args.labels else None
    models = [
        open_classifier(
            path, args.device, labels=names, allow_code=args.allow_code, undecided=True, precision=args.precision
        )
        for path in args.models
    ]
    models = _calibrated(models, args) if args.calibrate else models
    printed: dict[str, Any] = {}
    for asked in splits:
        rows = len(asked.task.examples(asked.split)) * len(models)
        fitting = [with_head_for(model, asked.task, args.head) for model in models]  # some are opened again for a head
        with Counting(asked.key, rows, args.quiet) as on_progress, _without(fitting, args.without_heads) as off:
            evaluation = replace(evaluate(fitting, asked, args.head, on_progress), without=off)
        evaluation = replace(evaluation, seen=seen(runs, asked, args.allow_code))
        evaluation = _sliced(_checked(evaluation, models, runs, args.allow_code), args.by)
        path = keep(evaluation)
        about = evaluation.to_dict() | ({"slices": evaluation.slices} if args.by else {})
        printed[asked.key] = about | ({"predictions": str(path)} if path else {})
        if not args.json:
            _warn(evaluation, args.quiet)
        if not args.json and not args.format:
            _print(evaluation, path)
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    elif args.format:
        _show_table(printed, args.format)


def _reading(args: argparse.Namespace) -> dict[str, Any]:
    """How the words of --on are read."""
    return {
        "allow_code": args.allow_code,
        "columns": columns_of(args),
        "head": args.head,
        "models": args.models,
    }


@contextmanager
def _without(models: list[Any], text: str | None) -> Iterator[tuple[str, ...]]:
    """Inside, these heads of all models say nothing."""
    if text is None:
        yield ()
        return
    from encodery.models.attention_heads import parse, without

    heads = parse(text)
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(without(model.model.encoder, heads))
        yield tuple(f"{layer}.{head}" for layer, head in heads)


def _collapsed(asked: Any, how: str | None) -> Any:
    if how is None:
        return asked
    if "collapse" not in type(asked.task).model_fields:
        raise UserError(f"--collapse: {asked.task.name} has no labels to collapse; it is for hans")
    return asked._replace(task=asked.task.model_copy(update={"collapse": how}))


def _calibrated(models: list[Any], args: argparse.Namespace) -> list[Any]:
    """Models whose labels have no names get them from a labelled split; what was found is printed."""
    from encodery.inference.evaluate import calibrated
    from encodery.inference.task_argument import resolve_split

    named = []
    for model in models:
        if model.head.unnamed:
            model, order = calibrated(model, resolve_split(args.calibrate, args.data)[0])
            print(f"{model.source}: {order}", file=sys.stderr)
        named.append(model)
    return named


def _require_columns(splits: "Sequence[TaskSplit]", by: str | None) -> None:
    """A column that is not there is refused before the work."""
    from encodery.tasks.sources.columns import column

    for one in splits:
        for name in filter(None, (by or "").split(",")):
            column(one.task, one.split, name)


def _sliced(evaluation: "Evaluation", by: str | None) -> "Evaluation":
    """With the scores of each value of the columns."""
    if not by:
        return evaluation
    from encodery.inference.slices import slices_of

    return replace(evaluation, slices={name: slices_of(evaluation, name) for name in by.split(",") if name})


def _checked(evaluation: "Evaluation", models: list[Any], runs: list[Any], allow_code: bool) -> "Evaluation":
    """A run's own dev answers must come out again on the way that another task's rows took."""
    from encodery.inference.evaluate import path_alarm, with_head_for

    task = evaluation.asked.task
    if not task.also_labels or len(models) != 1 or not runs or evaluation.without:
        return evaluation
    sentence = path_alarm(with_head_for(models[0], task, evaluation.heads[0]), runs[0], task, allow_code)
    return replace(evaluation, alarms=(*evaluation.alarms, sentence)) if sentence else evaluation


def _keeper(args: argparse.Namespace, runs: list[Any]) -> "Callable[[Evaluation], Path | None]":
    """Where answers go; what would be refused at the end is refused before the work."""
    from encodery.inference.evaluate import keep_in_folder, keep_in_run, replaced, require_folder, require_run
    from encodery.runs.directory import RunDir

    if args.out:
        folder = RunDir(Path(args.out))
        require_folder(folder.path)
    elif len(args.models) == 1 and runs and not args.without_heads:
        folder = runs[0]
        require_run(folder)
    else:
        return lambda found: None

    def keep(found: "Evaluation") -> Path:
        if not args.quiet and (sentence := replaced(folder, found)):
            print(f"WARNING {found.asked.key}: {sentence}", file=sys.stderr)
        return keep_in_folder(folder.path, found, args.models) if args.out else keep_in_run(folder, found)

    return keep


def _show_table(printed: dict[str, Any], form: str) -> None:
    """A row for each metric of each task, and of each value of the columns of --by."""
    from encodery.cli import print_table

    rows: list[tuple[object, ...]] = []
    for key, about in printed.items():
        parts = [("all rows", about["scores"], about["rows"])]
        parts += [
            (f"{name}={entry['value']}", entry["scores"], entry["rows"])
            for name, entries in about.get("slices", {}).items()
            for entry in entries
        ]
        rows += [
            (key, part, count, metric, f"{value:.4f}")
            for part, scores, count in parts
            for metric, value in (scores or {}).items()
        ]
    print_table.show(print_table.of_rows(("data", "part", "rows", "metric", "score"), rows), form)


def _warn(evaluation: "Evaluation", quiet: bool) -> None:
    from encodery.tasks.sources.own_files import Own

    about, task = evaluation.to_dict(), evaluation.asked.task
    set_aside = isinstance(task, Own) and not task.loaded(evaluation.asked.split).bad  # else its note is of bad rows
    for key in ("part", "note", "seen"):
        if key in about and not quiet:
            level = "note:" if key == "note" and set_aside else "WARNING"
            print(f"{level} {evaluation.asked.key} {about[key]}", file=sys.stderr)
    for sentence in evaluation.alarms:
        print(f"ALARM {evaluation.asked.key}: {sentence}", file=sys.stderr)


def _print(evaluation: "Evaluation", path: Path | None) -> None:
    from encodery.core.progress import spell_scores

    scores = spell_scores(evaluation.scores, evaluation.main) if evaluation.scores else evaluation.unscored
    page = evaluation.pages().get("report.md")
    if page:
        print(f"{evaluation.label}\n\n{page}" + (f"({path})" if path else ""))
    else:
        print(f"{evaluation.label}  {scores}" + (f"  ({path})" if path else ""))
    if evaluation.slices:
        from encodery.inference.slices import lines

        print("\n".join(lines(evaluation)))
