"""The part of `encodery evaluate` that scores pretrained models on plain text."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.evaluate import Evaluation
    from encodery.on import Asked
    from encodery.on_text import Pretrained
    from encodery.rundir import RunDir


def run(
    args: argparse.Namespace, runs: "Sequence[RunDir]", questions: "Sequence[Asked]",
    keep: "Callable[[Evaluation], Path | None]",
) -> int:  # fmt: skip
    """Score one model on every text; keep and print."""
    from encodery.on_text import open_pretrained, trained_on
    from encodery.progress import spell_scores

    if any(one.task.labelled for one in questions):
        raise UserError("--on: plain text and tasks with labels need other models; ask for them one after the other")
    if len(args.models) > 1:
        raise UserError("plain text is scored model by model: give one")
    model = open_pretrained(args.models[0], args.device, allow_code=args.allow_code)
    printed: dict[str, Any] = {}
    for one in questions:
        if not args.quiet and any(trained_on(run, one) for run in runs):
            print(f"WARNING {one.key}: this model was trained on this text", file=sys.stderr)
        found = _score(args, model, one)
        path = keep(found)
        printed[one.key] = found.plain()
        if not args.json:
            print(f"{one.key}  {spell_scores(found.scores or {}, found.main)}" + (f"  ({path})" if path else ""))
    if args.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))
    return 0


def _score(args: argparse.Namespace, model: "Pretrained", one: "Asked") -> "Evaluation":
    from encodery.on_text import sequences
    from encodery.progress import Counting, Portion

    with Portion(one.key, args.quiet) as portion:
        table = model.blocks(one, portion)
    with Counting(one.key, sequences(table), args.quiet) as tick:
        return model.evaluate(one, table, args.seed, tick)
