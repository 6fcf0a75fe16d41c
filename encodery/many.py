"""The same run for several seeds, one after the other in this process."""

import argparse
from pathlib import Path

from encodery import config, world
from encodery.errors import RunFailed, UserError
from encodery.progress import Progress
from encodery.run import train_run
from encodery.rundir import RunDir


def train_seeds(args: argparse.Namespace, rest: list[str]) -> tuple[list[RunDir], dict[str, str]]:
    """Train for one or several seeds: the runs that ended well, and a sentence for each that failed."""
    first = config.load(args.config, rest, allow_code=args.allow_code)
    if args.seeds is None:
        resolved = [(args.out, first)]
    elif args.seeds < 1:
        raise UserError("--seeds: at least 1")
    else:
        start = first.config.seed.init
        seeds = range(start, start + args.seeds)
        again = [config.load(args.config, [*rest, f"seed={s}"], allow_code=args.allow_code) for s in seeds]
        outs = [Path(args.out) / f"seed-{s}" if args.out else None for s in seeds]
        resolved = list(zip(outs, again, strict=True))
    runs, failures = [], {}
    for out, one in resolved:
        try:
            progress = Progress(args.quiet)
            runs.append(train_run(one, out, restart=args.restart, allow_change=args.allow_change, progress=progress))
        except RunFailed as error:
            if len(resolved) == 1 or world.size() > 1:  # several processes cannot go on apart
                raise
            failures[f"seed {one.config.seed.init}"] = str(error)
    world.leave()
    return runs, failures
