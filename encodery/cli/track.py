"""Send runs to TensorBoard, W&B, MLflow or trackio: the events in metrics.jsonl and scores.json.

Run it again and only what is new is sent, to the same run there. With --follow it continues while runs are working.
Runs do not depend on it: a tracker that is down cannot stop one.
"""

import argparse
import sys

from encodery.cli.parsing import Parser

PROJECT = "encodery"


def arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, sweeps, or folders above them")
    parser.add_argument(
        "--to", required=True, choices=["tensorboard", "wandb", "mlflow", "trackio"], help="the tracker"
    )
    parser.add_argument("--project", default=PROJECT, help="project or experiment there; default: encodery")
    parser.add_argument(
        "--where", metavar="X",
        help="tensorboard: folder (default tensorboard/); wandb: entity; mlflow: tracking URI; trackio: Space",
    )  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="continue until no run is working")
    parser.add_argument(
        "--every", type=float, default=10.0, metavar="S", help="--follow: seconds between updates; default: 10"
    )
    parser.examples(
        "encodery track runs/ --to tensorboard && tensorboard --logdir tensorboard",
        "encodery track runs/freelb --to wandb --project rte --follow     # the sweep is a group",
        "encodery track runs/rte --to mlflow --where http://127.0.0.1:5000",
        "encodery track runs/ --to trackio",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.track.follow import track

    every = args.every if args.follow else None
    tell = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    total = track(args.folders, args.to, args.project, args.where, every, tell)
    print(f"{total:,} events sent" if total else f"{args.to} has everything already")
    args.next = f"tensorboard --logdir {args.where or 'tensorboard'}" if args.to == "tensorboard" else None
    return 0
