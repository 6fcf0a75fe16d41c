"""Show runs on one HTML page: a summary in words, scores, curves, predictions, data, maps.

The page is self-contained (nothing is loaded from the network) and shows what the folders hold: runs, sweeps, the
folders of `select`, `curve`, `embed`, `heads`, `gradts`, `evaluate --attack`, `--by` and `--on hans`. docs/report.md
explains each part.
"""

import argparse
import sys
import time
from pathlib import Path

from encodery.cli.parsing import Parser
from encodery.core.text import counted

EVERY = 10  # seconds between two looks of --watch


def arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, sweeps, or folders above them")
    parser.add_argument("-o", "--out", metavar="FILE", default="report.html", help="default: report.html")
    parser.add_argument("--title", help="default: the names of the folders")
    parser.add_argument(
        "--baseline",
        metavar="NAME|KEY=VALUE",
        help="baseline to compare with, as in `encodery table`; default: the plain method",
    )
    parser.add_argument("--metric", metavar="NAME", help="metric to compare by; default: each task's main metric")
    parser.add_argument("--no-text", action="store_true", help="leave out all texts of the data; keep ids and labels")
    parser.add_argument(
        "--reference", metavar="CSV", action="append", default=[],
        help="a curve to compare with: columns step and loss, lr, tokens_per_second or score; repeatable",
    )  # fmt: skip
    parser.add_argument("--figures", metavar="DIR", help="also write figures as PDF, SVG and PNG in a paper's size")
    parser.add_argument("--all", action="store_true", help="include runs that are no longer in the plan of their sweep")
    parser.add_argument(
        "--watch", action="store_true", help="rewrite the page whenever something changes, until Ctrl-C"
    )
    parser.examples(
        "encodery report runs/ -o report.html",
        "encodery report runs/sweep --baseline plain --no-text --figures figures/",
        "encodery report runs/pretraining --reference theirs.csv --watch",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    out = Path(args.out)
    _require(out)
    if not args.watch:
        write(args, out)
        args.next = f"open {out} in a browser"
        return 0
    seen: object = None
    while True:
        now = _state(args.folders)
        if now != seen:
            write(args, out, reload=EVERY)
            seen = now
        time.sleep(EVERY)


def options(folders: list[str]) -> argparse.Namespace:
    """The defaults, for verbs that end with a page."""
    parser = Parser("encodery report", "")
    arguments(parser)
    return parser.parse_args(folders)


def write(args: argparse.Namespace, out: Path, reload: int | None = None) -> None:
    """Read everything, write page and figures, say where."""
    from encodery.core import files
    from encodery.report.page import references as page_references
    from encodery.report.page.build import page, sections
    from encodery.report.page.data import gather

    references = [page_references.read(Path(path)) for path in args.reference]
    data = gather(
        args.folders, args.baseline, text=not args.no_text, every=args.all, references=references, metric=args.metric
    )
    made = sections(data)
    title = args.title or ", ".join(Path(folder).resolve().name for folder in args.folders)
    files.write_atomic(out, page(data, made, title, reload=reload))
    for remark in data.remarks:
        print(remark, file=sys.stderr)
    print(f"{out} ({out.stat().st_size / 1e6:.1f} MB: {', '.join(one.title.lower() for one in made)})", flush=True)
    if args.figures:
        from encodery.report.page.print_figures import write as draw

        pictures = draw([picture for one in made for picture in one.pictures], Path(args.figures))
        print(f"{counted(len(pictures), 'file')} in {args.figures}")


def _require(out: Path) -> None:
    """What would be refused at the end is refused before the work."""
    from encodery.errors import UserError

    if out.is_dir():
        raise UserError(f"-o {out}: is a folder; name a file, such as {out / 'report.html'}")
    if not out.resolve().parent.is_dir():
        raise UserError(f"-o {out}: the folder {out.parent} does not exist")


def _state(folders: list[str]) -> list[tuple[str, int, int]]:
    """Name, size and time of every file that a page is made of."""
    from encodery.report.page.data import below

    state = []
    for path in below([Path(folder) for folder in folders], "*"):
        try:
            about = path.stat()
        except FileNotFoundError:  # it was a temporary one
            continue
        state.append((str(path), about.st_size, about.st_mtime_ns))
    return state
