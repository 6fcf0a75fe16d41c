"""The page as a file, in one call."""

from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.report.page.build import page, sections
from encodery.report.page.data import gather


def report(
    *folders: Any,
    out: str | Path = "report.html",
    title: str | None = None,
    baseline: str | None = None,
    metric: str | None = None,
    text: bool = True,
) -> Path:
    """Runs, sweeps and folders above them as one page, as `encodery report` writes it; where the page is.

    A folder is a path or a run. `metric` is compared instead of each task's main one; `text=False` leaves out every
    text of the data.
    """
    paths = [Path(getattr(folder, "path", folder)) for folder in folders]
    found = gather(paths, baseline, text=text, metric=metric)
    shown = title or ", ".join(path.resolve().name for path in paths)
    files.write_atomic(Path(out), page(found, sections(found), shown))
    return Path(out)
