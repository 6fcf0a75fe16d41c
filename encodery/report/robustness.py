"""Scores and loss against the radius of an attack: as a table, and as JSON, CSV and a picture in a folder."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.files import file_name
from encodery.core.text import markdown_table
from encodery.errors import UserError
from encodery.report.figures import robustness
from encodery.runs.directory import RunDir

Levels = Sequence[Mapping[str, float]]  # one mapping a radius: radius, loss, the scores, the sizes
KEYS = ("attack", "steps", "norm", "scale")  # what makes an attack another one
SAME = ("data", "main", "rows", "digest", "part", *KEYS, "head", "labels")  # what figures of one file share
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


def keep(run: RunDir, about: Mapping[str, Any], by_model: Mapping[str, Levels], weights: str | None = None) -> Path:
    """Write attacks/glue-rte-dev-pgd-5-l2 (5 steps; relative radii: …-l2-token_norm) as .json, .csv and .svg, in one
    step; returns the picture's path. Radii and models that were kept there for the same rows and weights stay."""
    with files.io_trouble(f"{run.attacks} cannot be written", run.path.parent):
        run.attacks.mkdir(parents=True, exist_ok=True)
    picture = _picture(run, about)
    title = f"{about['data']}, {about['attack']}, {norm_of(about)}"
    before = _comparable(run, about)
    models = {} if files.is_run(run.path) else dict(before.get("models", {}))
    models |= {model: _joined(_earlier(run, before, model, weights), levels) for model, levels in by_model.items()}
    digests = {model: digest for model, digest in before.get("weights", {}).items() if model in models}
    digests |= {model: weights for model in by_model if weights}
    with run.change():
        stored = {**about, **({"weights": digests} if digests else {}), "models": models}
        run.write_json(picture.with_suffix(".json"), stored)
        run.write(picture.with_suffix(".csv"), _csv(models))
        run.write(picture, robustness(models, about["main"], title))
    return picture


def replaced(run: RunDir, about: Mapping[str, Any], by_model: Mapping[str, Levels], weights: str | None) -> str | None:
    """What to say of earlier figures under the same name that cannot stand beside these."""
    stored = _stored(run, about)
    if not stored:
        return None
    before, path = _comparable(run, about), _picture(run, about).with_suffix(".json")
    if not before:
        rows = f"{stored.get('rows', 0):,} and now {about['rows']:,} rows"
        return f"the earlier attack in {path} is replaced: it had other rows or options ({rows}); -o DIR keeps both"
    here = [model for model in by_model if _levels_of(run, before, model)]
    if any(not _earlier(run, before, model, weights) for model in here):
        return f"the earlier attack in {path} is replaced: the weights of {', '.join(here)} were others"
    return None


def _picture(run: RunDir, about: Mapping[str, Any]) -> Path:
    data = file_name(about["data"].replace(":", "-"))
    stem = "-".join(str(word) for word in (data, *(about[key] for key in KEYS if key in about)))
    return run.attacks / f"{stem}.svg"


def _stored(run: RunDir, about: Mapping[str, Any]) -> dict[str, Any]:
    """What lies there under this name; nothing if it is damaged."""
    path = _picture(run, about).with_suffix(".json")
    try:
        stored = files.read_json(path) if path.is_file() else {}
    except UserError:
        return {}
    return stored if isinstance(stored, dict) and isinstance(stored.get("models"), dict) else {}


def _comparable(run: RunDir, about: Mapping[str, Any]) -> dict[str, Any]:
    """What lies there, if it differs in nothing but radii and models. Earlier versions kept no digest of the rows."""
    stored = _stored(run, about)
    old = {"digest": about.get("digest"), **stored}
    return stored if all(old.get(key) == about.get(key) for key in SAME) else {}


def _levels_of(run: RunDir, before: Mapping[str, Any], model: str) -> Levels:
    """A run's folder holds itself alone, whatever its path was called from where it was attacked."""
    models = before.get("models", {})
    levels: Levels = next(iter(models.values()), []) if files.is_run(run.path) else models.get(model, [])
    return levels


def _earlier(run: RunDir, before: Mapping[str, Any], model: str, weights: str | None) -> Levels:
    """The levels of the same weights."""
    digests = before.get("weights", {})
    digest = next(iter(digests.values()), None) if files.is_run(run.path) else digests.get(model)
    return _levels_of(run, before, model) if digest in (None, weights) else []


def _joined(earlier: Levels, levels: Levels) -> list[Mapping[str, float]]:
    """By radius, smallest first; of a radius that is there twice the later figures."""
    by_radius = {level["radius"]: level for level in (*earlier, *levels)}
    return [by_radius[radius] for radius in sorted(by_radius)]


def norm_of(about: Mapping[str, Any]) -> str:
    """The norm of the radii, and what they are multiples of."""
    return f"{about['norm']}, relative to the token norm" if "scale" in about else str(about["norm"])


def _csv(by_model: Mapping[str, Levels]) -> str:
    stream = io.StringIO(newline="")
    names = list(dict.fromkeys(name for levels in by_model.values() for level in levels for name in level))
    writer = csv.DictWriter(stream, ["model", *names], lineterminator="\n")
    writer.writeheader()
    for model, levels in by_model.items():
        writer.writerows({"model": model, **level} for level in levels)
    return stream.getvalue()
