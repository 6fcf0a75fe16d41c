"""Pretraining runs: what generator and discriminator lose, how the mixture moves, and what probes say on the way."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from encodery.report.page.chart import Chart, Section, Series
from encodery.report.page.data import PageData
from encodery.report.page.html import figure, tag
from encodery.report.page.sections.training import drawn, line, of
from encodery.report.records import Record

# Chart -> title, y axis, and which keys of metrics.jsonl are its lines.
CHARTS = {
    "terms": ("Parts of the loss", "loss", r"loss\..*/(discriminator|generator|mlm(?:_\d+)?)"),
    "heldout": ("Losses on held-out text", "loss", r"eval\.(discriminator_loss|generator_loss|mlm_loss(?:_\d+)?)"),
    "detector": ("The discriminator", "share", r"eval\.(discriminator_accuracy|auc|precision|recall|replaced)"),
    "mixture": ("Shares of the mixture", "share", r"eval\.(share_\d+|mixture_entropy)"),
    "probes": ("Probes during training", "score", r"probe\.(.*)"),
}
# Tags have precision and recall, too; these only a discriminator has.
DETECTS = {"eval.discriminator_accuracy", "eval.auc", "eval.replaced"}


def section(page: PageData) -> Section | None:
    """The charts that have a line; a training of several tasks has parts of its loss as well."""
    runs = drawn(page.records)
    detectors = [run for run in runs if any(DETECTS & one.keys() for one in page.metrics(run))]
    charts = [_chart(page, detectors if id == "detector" else runs, id, *about) for id, about in CHARTS.items()]
    charts = [one for one in charts if one.series]
    if not charts:
        return None
    body = tag("div", *map(figure, charts), class_="grid")
    return Section("pretraining", "Pretraining", body, charts)


def _chart(page: PageData, runs: Sequence[Record], id: str, title: str, y: str, pattern: str) -> Chart:
    """A line for each run and key; the colour says which key, and which configuration where several differ.

    Probes stand over the compute where all runs know theirs: objectives differ in what a step costs.
    """
    several = len({page.group(run) for run in runs}) > 1
    lines = [(run, one) for run in runs for one in _lines(page, run, pattern, several)]
    costs = [_tflops(page, run) for run, _ in lines]
    if id == "probes" and all(costs):
        series = [replace(one, x=[step * cost for step in one.x]) for (_, one), cost in zip(lines, costs, strict=True)]
        return Chart(f"pretraining-{id}", title, "TFLOPs", y, series, smooth=True)
    return Chart(f"pretraining-{id}", title, "step", y, [one for _, one in lines], smooth=id in ("terms", "probes"))


def _lines(page: PageData, run: Record, pattern: str, several: bool) -> Iterator[Series]:
    """Those of one run."""
    for key in dict.fromkeys(key for record in page.metrics(run) for key in record):
        match = re.fullmatch(pattern, key)
        if match:
            name = match[1].replace("_", " ")
            one = line(page, run, of(key), group=f"{page.group(run)}: {name}" if several else name)
            if one:
                yield one


def _tflops(page: PageData, run: Record) -> float:
    """Of a step, on average; 0 where a run does not know its cost."""
    last = next((one for one in reversed(page.metrics(run)) if one.get("flops")), None)
    return last["flops"] / last["step"] / 1e12 if last else 0.0
