"""One table says which way a metric is better; every place that chooses, ranks or prints goes by it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.gradts.plan import require_direction
from encodery.report import pick_seed, records, table
from encodery.report.page.data import PageData
from encodery.report.table import scaled
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import read_plan, write_plan
from encodery.sweep import best, optuna_search
from encodery.sweep import best as of_runs
from encodery.sweep.sweep_file import Metric, Sweep
from encodery.tasks.base import Example
from encodery.tasks.forms import metric_names, metric_table, pretraining_scores
from encodery.tasks.forms.hans_figures import Cell, Report
from encodery.tasks.forms.metric_table import METRICS, among, metric, spelled
from encodery.training import best_checkpoint
from tests.report.runs import run
from tests.sweep.small_sweeps import planned, sweep_file

VALUES = (0.4, 0.2, 0.3)  # of three seeds or configurations
LAYERS = ("2", "11")


def task_of(name: str, **options: Any) -> Any:
    return load.load({"model": "m", "tasks": [{"name": name, **options}]}).tasks[0][0]


def of_tasks() -> Iterator[str]:
    """What scoring gives: of every form of question, with everything that an answer may carry."""
    for part in ("sentiment", "topic", "similarity", "nli", "pos", "ner", "qa"):
        task = task_of(f"toy/{part}", train_rows=30, dev_rows=20, test_rows=2)
        yield from task.metric_names()
    pairs = {"cola": ("unacceptable", "acceptable"), "mrpc": ("not_equivalent", "equivalent")}
    for name, labels in pairs.items():
        rows = [Example(str(i), ("a",), labels[i % 2]) for i in range(4)]
        chances = {labels[0]: 0.5, labels[1]: 0.5}
        yield from task_of(f"glue/{name}").score(
            {e.id: {"prediction": labels[0], "probabilities": chances} for e in rows}, rows
        )
    yield "mrr"  # of rankings
    parts = {"lexical_overlap": Cell(1, 2), "subsequence": Cell(1, 2)}
    yield from Report(parts, parts, {}, {}, {}, 8).scores()


def of_pretraining() -> Iterator[str]:
    for kind in ("mlm", "electra", "amos"):
        yield from task_of("corpus/toy").metric_names(kind)
    sums: dict[str, Any] = {"asked": 2.0, "mixture_entropy": 1.0}
    for layer in LAYERS:
        sums |= {f"{name}_{layer}": 1.0 for name in ("mlm_loss", "mlm_accuracy", "replaced", "share")}
    yield from pretraining_scores.readouts(sums)


def of_own_data() -> Iterator[str]:
    for form in ("single", "multilabel", "regression"):
        yield from metric_names.names(form)
    yield from ("f1_spam", "recall_loss", "roc_auc_error")  # of labels, whatever they are called


EVERY = list(dict.fromkeys([*of_tasks(), *of_pretraining(), *of_own_data()]))
ORDERED = [name for name in EVERY if metric(name).better != "neither"]
NEUTRAL = [name for name in EVERY if metric(name).better == "neither"]
LOWER = {"nll", "ece", "brier", "rmse", "perplexity"}


def goal(name: str) -> float:
    """The best of the values, by an own rule."""
    loss = name.endswith("loss") or name.startswith("mlm_loss_")
    return min(VALUES) if name in LOWER or (loss and name != "recall_loss") else max(VALUES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three configurations, each with every metric there is."""
    folder = tmp_path_factory.mktemp("runs")
    for i, value in enumerate(VALUES):
        run(folder / f"lr-{i}", dict.fromkeys(EVERY, value), optim__lr=float(i + 1))
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a sweep."""
    folder = tmp_path_factory.mktemp("sweep")
    specs = planned("grid: {optim.lr: [1e-4, 2e-4, 3e-4]}\n", folder)
    (folder / "out").mkdir()
    for spec, value in zip(specs, VALUES, strict=True):
        done = RunDir(folder / "out" / spec.name)
        done.path.mkdir()
        for step, now in ((1, value), (2, value / 2), (3, value)):
            done.record(step, **{f"eval.{name}": now for name in EVERY})
        done.write_scores({"scores": {"toy/sentiment:dev": dict.fromkeys(EVERY, value)}, "main": {}})
        done.mark_done()
    write_plan(folder / "out", specs, {})
    return folder / "out"


def test_W26_every_metric_that_a_task_gives_is_in_the_table() -> None:
    assert [name for name in EVERY if not metric_table.is_listed(name)] == []
    assert {"discriminator_loss", "mlm_loss_11", "masked_loss", "mrr", "mcc", "best_f1_threshold"} <= set(EVERY)
    assert len(EVERY) > 60


@pytest.mark.parametrize("name", ORDERED)
def test_W26_training_tables_page_and_sweeps_agree_on_the_best(name: str, runs: Path, swept: Path) -> None:
    wanted = goal(name)
    others = [value for value in VALUES if value != wanted]
    # The choice of a checkpoint
    assert all(best_checkpoint.better((name, wanted), {"score": value}) for value in others)
    assert not any(best_checkpoint.better((name, value), {"score": wanted}) for value in others)
    # Tables and the page
    found = table.table([runs], metric=name, sort="mean")
    assert found.rows[0].summary.mean == wanted
    page = PageData([runs], records.read([runs])[0], found, None)
    assert page.rows_of("toy/nli:dev")[0].summary.mean == wanted
    # Sweeps: best, the best on the way, and which way a search looks
    goes_by = Metric(name=name)
    one = min(swept.iterdir(), key=lambda path: path.name)
    on_the_way = of_runs.on_the_way(one / "metrics.jsonl", name) if one.is_dir() else {}
    if on_the_way:
        low, high = min(on_the_way.values()), max(on_the_way.values())
        assert of_runs.score(one, Metric(name=name, at="best")) == (low if wanted == min(VALUES) else high)
    assert goes_by.looks_for(name) == ("min" if wanted == min(VALUES) else "max")


@pytest.mark.parametrize("name", ORDERED)
def test_W26_sweep_best_and_export_take_the_better_run(name: str, swept: Path, tmp_path: Path) -> None:
    specs = {spec.axes["optim.lr"]: spec for spec in read_plan(swept)}
    write_plan(swept, specs.values(), {"metric": Metric(name=name).to_dict()})
    [ranked] = best.ranking(swept).values()
    assert ranked[0].mean == goal(name)
    assert ranked[0].goal == f"{'lowest' if goal(name) == min(VALUES) else 'highest'} {name}"


@pytest.mark.parametrize("name", ["accuracy", "loss", "discriminator_loss", "rmse", "mcc"])
def test_W26_pick_takes_the_better_seed(name: str, tmp_path: Path) -> None:
    for seed, value in enumerate(VALUES, 1):
        run(tmp_path / f"{seed}", {name: value}, "glue/rte", seed)
    found, _ = pick_seed.pick([tmp_path], "best")
    assert found["glue/rte"].run.name == str(VALUES.index(goal(name)) + 1)


@pytest.mark.parametrize("name", EVERY)
def test_W26_tables_scale_by_the_table(name: str, runs: Path) -> None:
    row = table.table([runs], metric=name).rows[0]
    shown = scaled(row, 0.1234)
    assert shown == ("0.1234" if metric(name).scale == 1 else "12.34")
    assert (metric(name).scale == 1) == (goal(name) == min(VALUES) or "threshold" in name or "entropy" in name)


@pytest.mark.parametrize("name", NEUTRAL)
def test_W26_nothing_is_chosen_by_a_metric_without_a_better_side(name: str, runs: Path) -> None:
    assert table.table([runs], metric=name).rows[0].summary.best is None
    with pytest.raises(UserError, match="neither better when higher nor when lower"):
        Metric(name=name).looks_for(name)
    with pytest.raises(UserError, match="select_metric"):
        best_checkpoint.require_metric(name, {name: 0.1}, "corpus")
    assert Metric(name=name, mode="min").looks_for(name) == "min"  # as asked


@pytest.mark.parametrize("name", EVERY)
def test_W26_studies_take_metrics_that_are_better_when_higher(name: str) -> None:
    if metric(name).better == "higher":
        require_direction([name])
    else:
        with pytest.raises(UserError, match=name):
            require_direction([name])


@pytest.mark.parametrize(("task", "mode"), [("toy/sentiment", "maximize"), ("corpus/toy", "minimize")])
def test_W26_a_search_without_a_named_metric_goes_by_the_main_one(task: str, mode: str, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    text = f"tasks: {{name: {task}}}\nsearch: {{tpe: {{n: 2, space: {{optim.lr: 'uniform(0.1, 1)'}}}}}}\n"
    if task == "corpus/toy":
        text = text.replace("corpus/toy}", "corpus/toy, held_out: 0.1}")
    file = sweep_file(text, tmp_path)
    from encodery.sweep.plan import Planner

    found = optuna_search.Tpe(Planner(file, tmp_path / "out"), {})
    try:
        assert found.trials.direction == mode
    finally:
        found.close()


def test_W26_an_old_plan_that_says_max_by_default_is_read_as_auto(swept: Path) -> None:
    specs = read_plan(swept)
    write_plan(swept, specs, {"metric": {"name": "loss", "mode": "max", "at": "last", "split": None}})
    (swept / "sweep.yaml").write_text("metric: {name: loss}\n")
    assert best.metric_of(swept).mode == "auto"
    [ranked] = best.ranking(swept).values()
    assert ranked[0].mean == min(VALUES)
    (swept / "sweep.yaml").write_text("metric: {name: loss, mode: max}\n")
    assert best.metric_of(swept).mode == "max"
    (swept / "sweep.yaml").unlink()


def test_names_of_other_programs_are_understood() -> None:
    assert spelled("eval_accuracy") == spelled("acc") == "accuracy"
    assert spelled("Matthews_Correlation") == "mcc"
    assert spelled("exact_match") == spelled("EM") == "exact"
    assert spelled("my_score") == "my_score"
    assert among("acc", {"acc": 1.0, "accuracy": 2.0}) == "acc"
    assert among("f1-macro", METRICS) == "macro_f1"


@pytest.mark.parametrize("name", ["my_loss", "loss.rte", "word_error", "mae", "dev_perplexity"])
def test_a_loss_of_an_own_task_is_better_when_lower(name: str) -> None:
    assert metric(name).lower
    assert Sweep(metric=Metric(name=name)).metric.looks_for(name) == "min"
