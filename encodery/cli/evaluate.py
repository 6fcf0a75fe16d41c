"""Evaluate trained models on tasks: predictions and scores. Several models are an ensemble (mean of probabilities).

Models are runs, model folders or hub names. Answers of one run are kept in it; other answers are kept with -o.

A pretrained model is scored on plain text: the held-out part of its corpus (--on corpus, as the run calls it), a text
file, or a folder that `encodery prepare` made. Masks and samples are drawn from --seed.

With --attack the word embeddings of each sequence are moved against the model, within a radius: scores and loss for
every radius, a line and a curve per model. They are kept as JSON, CSV and SVG in each run's attacks/, or with -o.

With --without-heads the output of these attention heads is zero: what a ranking of `encodery heads` is worth. Such
answers are kept only with -o.

On hans a model of MNLI, RTE or the like answers: three labels become two (--collapse), by their names. A model whose
labels have no names needs --labels or --calibrate. Figures in McCoy's form and ours lie beside the predictions.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli import attacks, on_text
from encodery.cli.parsing import Parser
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.evaluate import Evaluation


def arguments(parser: Parser) -> None:
    """Which models, on what."""
    parser.add_argument("models", nargs="+", metavar="RUN|MODEL", help="run directory, model folder or hub name")
    parser.add_argument(
        "--on", nargs="+", action="extend", required=True, metavar="TASK[:SPLIT]",
        help="such as glue/rte:dev; a config or run whose task is meant; of pretrained models a text file or "
        "prepared folder. Default split: dev, else test",
    )  # fmt: skip
    parser.add_argument("--head", metavar="NAME", help="the task whose head answers, if names do not decide it")
    parser.add_argument("--labels", metavar="A,B,…", help="names of the outputs of a model that calls them LABEL_0, …")
    parser.add_argument("--seed", type=int, default=0, help="of masks on plain text; default: 0, as while training")
    parser.add_argument(
        "--calibrate", metavar="TASK[:SPLIT]",
        help="find the order of unnamed labels: the one that answers these rows best, if it is unmistakable",
    )  # fmt: skip
    parser.add_argument("--without-heads", metavar="L.H,…", help="heads that are switched off: 3.4 is layer 3, head 4")
    parser.add_argument(
        "--collapse", choices=["argmax", "sum"], help="hans: how three labels become two; default: argmax"
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="keep predictions and scores there")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.no_verify()
    attack = parser.add_argument_group("attack")
    attack.add_argument(
        "--attack", choices=["pgd", "fgsm", "random"],
        help="pgd: several ascents of the loss; fgsm: one; random: a control without gradient",
    )  # fmt: skip
    attack.add_argument("--radius", metavar="R,…", help="such as 0,0.1,0.3,1 (the default); 0 is no attack")
    attack.add_argument("--attack-steps", type=int, metavar="N", help="ascents, or random points; default: 5")
    attack.add_argument(
        "--radius-scale", choices=["absolute", "token_norm"],
        help="token_norm: radii are multiples of each model's mean token norm (linf: of that / √width)",
    )  # fmt: skip
    attack.add_argument("--norm", choices=["l2", "linf"], help="of each sequence's perturbation; default: l2")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress, no notes")
    parser.examples(
        "encodery evaluate runs/mnli --on glue/mnli:dev_mismatched glue/ax",
        "encodery evaluate runs/rte-* --on glue/rte -o ensemble",
        "encodery evaluate runs/reviews --on table/reviews:test",
        "encodery evaluate runs/electra@25% --on corpus:dev news.txt --json",
        "encodery evaluate runs/mnli --on hans",
        "encodery evaluate runs/rte --on glue/rte:dev --without-heads 3.4,5.0",
        "encodery evaluate somebody/bert-mnli --on hans --calibrate glue/mnli:dev",
        "encodery evaluate runs/rte-plain runs/rte-freelb --on glue/rte:dev --attack pgd --radius 0,0.1,0.3,1",
        "encodery evaluate textattack/bert-base-uncased-RTE --on glue/rte --labels entailment,not_entailment",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Answer, score, keep, print."""
    attacks.require_complete(args)
    if args.attack:
        return attacks.run(args)
    from encodery.classifier import open_classifier
    from encodery.evaluate import evaluate, require_shared_rows
    from encodery.models.hub import kept_on_the_way
    from encodery.on import asked
    from encodery.progress import Counting
    from encodery.rundir import RunDir

    runs = [RunDir.open(path) for path in args.models if Path(path, "run.json").is_file()]
    keep = _keeper(args, runs)
    whose = runs or kept_on_the_way(args.models)
    questions = [one for text in args.on for one in asked(text, args.data, whose, allow_code=args.allow_code)]
    if any(not one.task.labelled for one in questions):
        if args.without_heads:
            raise UserError("--without-heads: it is for models that answer; plain text is scored with all heads")
        return on_text.run(args, whose, questions, keep)
    for one in questions if len(args.models) > 1 else ():
        require_shared_rows(runs, one)
    questions = [_collapsed(one, args.collapse) for one in questions]
    names = args.labels.split(",") if args.labels else None
    models = [
        open_classifier(path, args.device, labels=names, allow_code=args.allow_code, undecided=True)
        for path in args.models
    ]
    models = _calibrated(models, args) if args.calibrate else models
    printed: dict[str, Any] = {}
    for one in questions:
        rows = len(one.task.examples(one.split)) * len(models)
        with Counting(one.key, rows, args.quiet) as tick, _without(models, args.without_heads) as off:
            found = replace(evaluate(models, one, args.head, tick), without=off)
        found = _checked(found, models, runs, args.allow_code)
        path = keep(found)
        printed[one.key] = found.plain() | ({"predictions": str(path)} if path else {})
        if not args.json:
            _print(found, path, args.quiet)
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    return 0


@contextmanager
def _without(models: list[Any], text: str | None) -> Iterator[tuple[str, ...]]:
    """Inside, these heads of all models say nothing."""
    if text is None:
        yield ()
        return
    from encodery.models.gates import parse, without

    heads = parse(text)
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(without(model.model.encoder, heads))
        yield tuple(f"{layer}.{head}" for layer, head in heads)


def _collapsed(one: Any, how: str | None) -> Any:
    if how is None:
        return one
    if "collapse" not in type(one.task).model_fields:
        raise UserError(f"--collapse: {one.task.name} takes the labels as they are; it is for hans")
    return one._replace(task=one.task.model_copy(update={"collapse": how}))


def _calibrated(models: list[Any], args: argparse.Namespace) -> list[Any]:
    """Models whose labels have no names get them from a labelled split; what was found is printed."""
    from encodery.calibrate import calibrated
    from encodery.on import asked

    found = []
    for model in models:
        if model.head.unnamed:
            model, order = calibrated(model, asked(args.calibrate, args.data)[0])
            print(f"{model.source}: {order}", file=sys.stderr)
        found.append(model)
    return found


def _checked(found: "Evaluation", models: list[Any], runs: list[Any], allow_code: bool) -> "Evaluation":
    """A run's own dev answers must come out again on the way that another task's rows took."""
    from encodery.calibrate import path_alarm
    from encodery.evaluate import with_head_for

    task = found.asked.task
    if not task.also_labels or len(models) != 1 or not runs or found.without:
        return found
    sentence = path_alarm(with_head_for(models[0], task, found.heads[0]), runs[0], task, allow_code)
    return replace(found, alarms=(*found.alarms, sentence)) if sentence else found


def _keeper(args: argparse.Namespace, runs: list[Any]) -> "Callable[[Evaluation], Path | None]":
    """Where answers go; what would be refused at the end is refused before the work."""
    from encodery.evaluate import keep_in_folder, keep_in_run, require_folder, require_run

    if args.out:
        folder = Path(args.out)
        require_folder(folder)
        return lambda found: keep_in_folder(folder, found, args.models)
    if len(args.models) == 1 and runs and not args.without_heads:
        require_run(runs[0])
        return lambda found: keep_in_run(runs[0], found)
    return lambda found: None


def _print(found: "Evaluation", path: Path | None, quiet: bool) -> None:
    from encodery.progress import spell_scores

    about = found.plain()
    for key in ("part", "note"):
        if key in about and not quiet:
            print(f"WARNING {found.asked.key} {about[key]}", file=sys.stderr)
    scores = spell_scores(found.scores, found.main) if found.scores else "labels are hidden: predictions only"
    page = found.pages().get("report.md")
    if page:
        print(f"{found.label}\n\n{page}" + (f"({path})" if path else ""))
    else:
        print(f"{found.label}  {scores}" + (f"  ({path})" if path else ""))
    for sentence in found.alarms:
        print(f"ALARM {found.asked.key}: {sentence}", file=sys.stderr)
