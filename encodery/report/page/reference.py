"""A curve of somebody else's, from a CSV file: columns step and loss, lr, tokens_per_second or score."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from encodery.errors import UserError

CURVES = ("loss", "lr", "tokens_per_second", "score")


@dataclass(frozen=True)
class Reference:
    """Points by curve."""

    name: str
    curves: dict[str, tuple[list[float], list[float]]]


def read(path: Path) -> Reference:
    """The file's curves; blank cells are gaps."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            names = [name for name in reader.fieldnames or [] if name in CURVES]
            if "step" not in (reader.fieldnames or []) or not names:
                raise UserError(f"{path}: needs a column step and one of {', '.join(CURVES)}")
            return Reference(path.stem, _curves(path, list(reader), names))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"--reference {path}: {error}") from None


def _curves(
    path: Path, rows: Sequence[dict[str, str]], names: Sequence[str]
) -> dict[str, tuple[list[float], list[float]]]:
    curves: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for line, row in enumerate(rows, start=2):
        for name in names:
            if not (row[name] or "").strip():
                continue
            try:
                step, value = float(row["step"]), float(row[name])
            except (TypeError, ValueError):
                raise UserError(f"{path}, line {line}: {row['step']!r} or {row[name]!r} is no number") from None
            curves[name][0].append(step)
            curves[name][1].append(value)
    return curves
