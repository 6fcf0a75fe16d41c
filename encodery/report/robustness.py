"""Scores and loss against the radius of an attack: as a table, and as JSON, CSV and a picture in a folder."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.files import file_name
from encodery.core.text import markdown_table
from encodery.report.figures import robustness
from encodery.runs.directory import RunDir

Levels = Sequence[Mapping[str, float]]  # one mapping a radius: radius, loss, the scores, the sizes
KEYS = ("attack", "steps", "norm", "scale")  # what makes an attack another one
SIZES = {"per_embedding_norm": "δ / embedding norm", "per_neighbour_distance": "δ / neighbour distance"}


def table(by_model: Mapping[str, Levels], main: str) -> str:
    """One model: a line per radius. Several: a line per model, once for the headline and once for the loss."""
    if len(by_model) == 1:
        levels = next(iter(by_model.values()))
        names = ["radius", main, *(name for name in levels[0] if name not in ("radius", main))]
        return markdown_table(
            [SIZES.get(name, name) for name in names], [[_cell(n, x[n]) for n in names] for x in levels]
        )
    return "\n\n".join(_by_model(by_model, name) for name in (main, "loss"))


def _by_model(found: Mapping[str, Levels], name: str) -> str:
    radii = [f"{level['radius']:g}" for level in next(iter(found.values()))]
    rows = [[model, *(_cell(name, level[name]) for level in levels)] for model, levels in found.items()]
    return markdown_table([f"{name} at radius", *radii], rows)


def _cell(name: str, value: float) -> str:
    return f"{value:g}" if name == "radius" else f"{value:.4f}"


def keep(run: RunDir, about: Mapping[str, Any], by_model: Mapping[str, Levels]) -> Path:
    """Write attacks/glue-rte-dev-pgd-5-l2 (5 steps; relative radii: …-l2-token_norm) as .json, .csv and .svg, in one
    step; returns the picture's path."""
    data = file_name(about["data"].replace(":", "-"))
    stem = "-".join(str(word) for word in (data, *(about[key] for key in KEYS if key in about)))
    with files.io_trouble(f"{run.attacks} cannot be written", run.path.parent):
        run.attacks.mkdir(parents=True, exist_ok=True)
    picture = run.attacks / f"{stem}.svg"
    title = f"{about['data']}, {about['attack']}, {norm_of(about)}"
    with run.change():
        models = {model: list(levels) for model, levels in by_model.items()}
        run.write_json(picture.with_suffix(".json"), {**about, "models": models})
        run.write(picture.with_suffix(".csv"), _csv(by_model))
        run.write(picture, robustness(by_model, about["main"], title))
    return picture


def norm_of(about: Mapping[str, Any]) -> str:
    """The norm of the radii, and what they are multiples of."""
    return f"{about['norm']}, relative to the token norm" if "scale" in about else str(about["norm"])


def _csv(by_model: Mapping[str, Levels]) -> str:
    stream = io.StringIO(newline="")
    names = list(next(iter(by_model.values()))[0])
    writer = csv.DictWriter(stream, ["model", *names], lineterminator="\n")
    writer.writeheader()
    for model, levels in by_model.items():
        writer.writerows({"model": model, **level} for level in levels)
    return stream.getvalue()
