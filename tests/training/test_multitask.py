"""Several tasks on one encoder, as whole runs: scores, heads by name, methods, and going on after a kill."""

import copy
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from encodery.cli import main
from encodery.config.schema import OptimOptions
from encodery.data.mixes import Shuffled
from encodery.data.task_mixing import Mixed
from encodery.errors import UserError
from encodery.exchange import publish
from encodery.exchange.export import export
from encodery.inference import open_model
from encodery.inference.classifier import open_classifier
from encodery.inference.evaluate import evaluate
from encodery.inference.task_argument import resolve_split
from encodery.methods.base import Updating, losses_of
from encodery.runs.directory import RunDir
from encodery.runs.head_matrices import Importance
from encodery.serve.predictor import open_predictor
from encodery.training import build, loop
from encodery.training.loop import TrainState, Update
from encodery.training.optim import Optimizer, Param
from tests.contract.test_methods import fast_for
from tests.toolbox.faults import in_child
from tests.toolbox.runs import metrics_of, resolve, run, settings
from tests.weighting.two import TASKS, three

SMALL = {"train_rows": 24, "dev_rows": 12, "test_rows": 4}
NLI, SIMILARITY, TAGS = ({"name": f"toy/{part}", **SMALL} for part in ("nli", "similarity", "ner"))


def tree(folder: Path, tasks: list[dict[str, Any]], **sections: Any) -> dict[str, Any]:
    train = {"batch_size": 6, "max_length": 24, "max_steps": 6, "log": 2, "evaluate": "3 steps"} | sections.pop(
        "train", {}
    )
    whole = settings(folder, train=train, **sections)
    whole["model"]["tokenizer"] = "toy"
    return {**whole, "tasks": tasks}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run on labels, numbers and tags, in which every task has its own best weights."""
    folder = tmp_path_factory.mktemp("several")
    tasks = [{**NLI, "weight": 2.0}, {**SIMILARITY, "batch_size": 3, "lr_scale": 0.5}, TAGS]
    return run(tree(folder, tasks, train={"select": "each"}), folder / "run")


def copied(run: RunDir, path: Path) -> RunDir:
    """A run to write into."""
    shutil.copytree(run.path, path)
    return RunDir(path)


@pytest.mark.slow(0.5)
def test_every_task_is_scored_and_its_loss_is_shown(trained: RunDir) -> None:
    result = trained.read_scores()
    assert sorted(result["scores"]) == ["toy/ner:dev", "toy/nli:dev", "toy/similarity:dev"]
    assert result["main"]["toy/similarity:dev"] == "spearman"
    assert sorted(result["chosen"]["best_of"]) == ["toy/ner", "toy/nli", "toy/similarity"]
    records = trained.metrics()
    assert {"loss.toy/nli", "loss.toy/ner", "loss.toy/similarity"} <= set().union(*records)
    assert [r["task"] for r in records if r.get("step") == 3 and "task" in r] == [
        "toy/nli",
        "toy/similarity",
        "toy/ner",
    ]
    assert sum("eval.mean" in r for r in records) == 2
    assert trained.info()["tasks"] == ["toy/nli", "toy/similarity", "toy/ner"]
    assert "head='toy/nli'" in (trained.path / "README.md").read_text()


@pytest.mark.slow(0.5)
def test_G30_heads_are_kept_by_name_and_found_in_any_order(trained: RunDir, tmp_path: Path) -> None:
    assert sorted(p.stem for p in (trained.model / "heads").iterdir()) == ["toy-ner", "toy-nli", "toy-similarity"]
    model, _, card = open_model.load_model(trained.model, device="cpu")
    for name, about in reversed(card["tasks"].items()):
        alone, _, _ = open_model.load_model(trained.model, device="cpu", head=name)
        mine = alone.objective(name).state_dict()
        stored = load_file(trained.model / "heads" / f"{name.replace('/', '-')}.safetensors")
        assert mine.keys() == stored.keys()
        assert all(torch.equal(mine[key], stored[key]) for key in stored)
        assert about["task"]["name"] == name
    extra = open_model.objective_modules(
        model.encoder,
        {"toy/new": open_model.make_objective({"kind": "classification", "labels": ["a", "b"], "head": "linear"})},
        None,
        1,
    )
    from encodery.models.model import Model

    with pytest.raises(UserError, match="no head for toy-new"):
        Model(model.encoder, extra).load_heads(trained.model)
    with pytest.raises(UserError, match="has no head toy/qa; it has"):
        open_model.load_model(trained.model, device="cpu", head="toy/qa")


@pytest.mark.slow(0.5)
def test_a_head_must_be_named_where_there_are_several(trained: RunDir) -> None:
    with pytest.raises(UserError, match="has several heads, name one of them: toy/ner, toy/nli, toy/similarity"):
        open_classifier(trained.path, "cpu")
    found = open_classifier(trained.path, "cpu", head="toy/similarity")(("a cat", "a dog"))
    assert found.value is not None
    model = open_classifier(trained.path, "cpu", undecided=True)
    for name in ("toy/nli", "toy/ner"):
        (one,) = resolve_split(f"{name}:dev", None, [trained])
        assert one.task.to_dict()["dev_rows"] == 12, "the run's own options"
        assert evaluate([model], one).heads == (name,)


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(("task", "opens"), [("toy/nli", "SequenceClassification"), ("toy/ner", "TokenClassification")])
def test_heads_are_exported_one_by_one_as_stock_classes(trained: RunDir, tmp_path: Path, task: str, opens: str) -> None:
    done = export(trained.path, tmp_path / "out", task)
    assert done.opens_with == f"transformers.AutoModelFor{opens}"
    assert done.difference < 1e-6
    assert list(json.loads((tmp_path / "out" / "encodery.json").read_text())["tasks"]) == [task]
    assert not (tmp_path / "out" / "heads").exists()
    with pytest.raises(UserError, match="name one of them"):
        export(trained.path, tmp_path / "other")


@pytest.mark.slow
def test_every_task_can_have_its_own_best_weights(trained: RunDir) -> None:
    best = trained.read_scores()["chosen"]["best_of"]
    for name, about in best.items():
        at = next(r for r in trained.metrics() if r.get("task") == name and r["step"] == about["step"])
        assert at[f"eval.{about['metric']}"] == about["score"]
        assert trained.read_scores()["scores"][f"{name}:dev"][about["metric"]] == about["score"]
        assert (trained.best / name.replace("/", "-") / "encodery.json").is_file()


@pytest.mark.slow(0.5)
def test_scores_are_those_of_the_weights_that_answer(trained: RunDir, tmp_path: Path) -> None:
    """select: each: a head is opened with the weights that were best for its task, however it is named."""
    said, done = trained.read_scores()["scores"], copied(trained, tmp_path / "run")
    chosen = trained.read_scores()["chosen"]
    assert any(one["step"] != chosen["step"] for one in chosen["best_of"].values()), "else nothing is tested here"
    undecided = open_classifier(done.path, "cpu", undecided=True)
    for task in trained.task_names():
        (asked,) = resolve_split(f"{task}:dev", None, [done])
        ways = [undecided, open_classifier(done.path, "cpu", head=task)]
        for model in [*ways, open_classifier(export(done.path, tmp_path / task[4:], task).folder, "cpu")]:
            assert evaluate([model], asked).scores == pytest.approx(said[f"{task}:dev"], abs=1e-6)
        served = open_predictor(str(done.path), "cpu", head=task)
        assert served.about()["scores"]["scores"] == {f"{task}:dev": said[f"{task}:dev"]}
        assert torch.equal(*(next(one.model.parameters()) for one in (served.model, ways[1])))
        assert main(["evaluate", str(done.path), "--on", f"{task}:dev", "--quiet", "--device", "cpu"]) == 0
        before, after = (one.read_predictions(task, "dev") for one in (trained, done))
        for id, answer in after.items():
            same = pytest.approx(answer["prediction"]) if task == "toy/similarity" else answer["prediction"]
            assert before[id]["prediction"] == same, "what replaces the predictions are the same ones"
    shutil.rmtree(done.best)
    with pytest.raises(UserError, match=r"best/toy-ner is missing, which the scores of toy/ner are of"):
        open_classifier(done.path, "cpu", head="toy/ner")
    shared = open_classifier(done.model, "cpu", head="toy/ner")
    assert shared.folder == done.model.resolve(), "the folder itself is still there to be asked"


@pytest.mark.slow(0.5)
def test_heads_that_are_switched_off_are_those_of_the_tasks_own_weights(trained: RunDir, tmp_path: Path) -> None:
    off, out = ["--without-heads", "0.0,0.1,1.0,1.1", "--quiet"], tmp_path / "off"
    assert main(["evaluate", str(trained.path), "--on", "toy/similarity:dev", *off, "-o", str(out)]) == 0
    silent = RunDir(out).read_predictions("toy/similarity", "dev")
    whole = trained.read_predictions("toy/similarity", "dev")
    assert any(abs(whole[id]["prediction"] - one["prediction"]) > 1e-4 for id, one in silent.items())


@pytest.mark.slow(0.5)
def test_cards_say_whose_the_scores_are(trained: RunDir, tmp_path: Path) -> None:
    best = trained.read_scores()["chosen"]["best_of"]
    card = (trained.path / "README.md").read_text()
    assert (
        "Each task is scored with its own best weights (`best/toy-nli`, `best/toy-similarity`, `best/toy-ner`)" in card
    )
    assert f"The checkpoint of toy/ner (step {best['toy/ner']['step']}) was its best on dev." in card
    assert "- The checkpoint (step" not in card
    with pytest.raises(
        UserError, match=r"its scores are of these: publish one task with --head; it has toy/ner, toy/n"
    ):
        publish.pack(trained.path, tmp_path / "all")
    with pytest.raises(UserError, match=r"has no head toy/qa; it has toy/ner"):
        publish.pack(trained.path, tmp_path / "all", head="toy/qa")


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("task", ["toy/similarity", "toy/ner"])
def test_one_head_is_published_with_its_own_weights_and_scores(trained: RunDir, tmp_path: Path, task: str) -> None:
    said = trained.read_scores()
    parcel = publish.pack(trained.path, tmp_path / "out", "me/one", head=task)
    model, (asked,) = open_classifier(parcel.folder, "cpu"), resolve_split(f"{task}:dev", None, [trained])
    assert evaluate([model], asked).scores == pytest.approx(said["scores"][f"{task}:dev"], abs=1e-6)
    assert json.loads((parcel.folder / "scores.json").read_text())["scores"].keys() == {f"{task}:dev"}
    front, _, body = parcel.card.removeprefix("---\n").partition("---\n")
    about = yaml.safe_load(front)
    kind = {"toy/ner": "token-classification"}.get(task, "text-classification")
    assert (about["pipeline_tag"], [one["task"]["type"] for one in about["model-index"][0]["results"]]) == (
        kind,
        [kind],
    )
    assert f"{task} (learnt together with toy/nli, " in body
    assert "en.load('me/one')" in body
    assert f"The checkpoint of {task} (step {said['chosen']['best_of'][task]['step']}) was its best on dev" in body
    others = {"toy/nli", "toy/similarity", "toy/ner"} - {task}
    assert not any(f"| {other}:dev |" in body or f"The checkpoint of {other}" in body for other in others)


@pytest.mark.slow(0.5)
def test_the_mean_or_one_task_decides(tmp_path: Path) -> None:
    whole = tree(tmp_path, [NLI, SIMILARITY], train={"select": "best", "select_on": "toy/similarity"})
    done = run(whole, tmp_path / "run")
    chosen = done.read_scores()["chosen"]
    assert chosen["best"] == chosen["best_of"]["toy/similarity"]
    with pytest.raises(UserError, match="select_on: toy/qa is not a task of this run; it has toy/nli"):
        run(tree(tmp_path, [NLI], train={"select_on": "toy/qa"}), tmp_path / "other")
    with pytest.raises(UserError, match="toy/nli is listed twice"):
        run(tree(tmp_path, [NLI, NLI]), tmp_path / "twice")
    with pytest.raises(UserError, match="pcgrad needs several tasks in a step"):
        run(tree(tmp_path, [NLI, SIMILARITY], mix="uniform", weighting="pcgrad"), tmp_path / "pcgrad")


# Steps


def heads_of(model: Any) -> dict[str, dict[str, torch.Tensor]]:
    return {task: {n: p.detach().clone() for n, p in model.objective(task).named_parameters()} for task in model.names}


def optimizer_of(model: Any, **options: Any) -> Optimizer:
    params = [Param(n, p, None) for n, p in model.named_parameters()]
    return Optimizer(params, OptimOptions(lr=1e-2, weight_decay=0.5, decay="all", **options), 2)


def test_G25_a_step_changes_no_head_of_another_task() -> None:
    model, stream = three(Shuffled())
    optimizer, before = optimizer_of(model), heads_of(model)
    busy = []
    for report in loop.train(model, build_plain(), stream, optimizer, lambda _: 1.0, TrainState(6)):
        now = heads_of(model)
        (task,) = {name.rpartition("/")[0] for name in report.terms}
        busy.append(task)
        for name in TASKS:
            same = all(torch.equal(now[name][key], before[name][key]) for key in now[name])
            assert same == (name != task), f"{name} in a step of {task}"
        before = now
    assert set(busy) == set(TASKS), "each had its turn, so momentum was there to move the idle ones"


def build_plain() -> Any:
    from encodery.methods.plain import Plain

    return Plain()


def test_G26_one_task_in_a_mix_trains_as_it_does_alone() -> None:
    model, stream = three(Shuffled())
    alone = next(iter(stream.streams))
    other = copy.deepcopy(model)
    single = type(alone)(alone.task, alone.table, alone.rows, 4, 1, 1, alone.batcher)
    first = list(loop.train(model, build_plain(), single, optimizer_of(model), lambda _: 1.0, TrainState(5)))
    mixed = Mixed.of([single], Shuffled(), 1, 3, None)
    second = list(loop.train(other, build_plain(), mixed, optimizer_of(other), lambda _: 1.0, TrainState(5)))
    assert [r.loss for r in first] == [r.loss for r in second]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_rates_of_tasks_scale_their_heads_and_the_encoder_in_their_steps() -> None:
    model, stream = three(Shuffled())
    heads = {id(p): task for task in model.names for p in model.objective(task).parameters()}
    rates = {"t/labels": 0.0, "t/number": 3.0}
    params = [
        Param(n, p, None, rates.get(heads[id(p)], 1.0) if id(p) in heads else 1.0, id(p) in heads)
        for n, p in model.named_parameters()
    ]
    optimizer = Optimizer(params, OptimOptions(lr=1e-3, weight_decay=0.0), 2)
    update = Update(model, stream, optimizer, lambda _: 1.0, TrainState(6), 0.0, rates)
    for step in range(6):
        update.state.step = step
        assert update.shared_rate() == rates.get(stream.at(step)[0].task, 1.0)
    state, before = TrainState(6), [p.detach().clone() for p in model.parameters()]
    for report in loop.train(model, build_plain(), stream, optimizer, lambda _: 1.0, state, rates=rates):
        moved = any(not torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
        assert moved == (not next(iter(report.terms)).startswith("t/labels"))
        before = [p.detach().clone() for p in model.parameters()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Any]]:
    """Model and stream of two tasks, built once, and any method."""
    folder = tmp_path_factory.mktemp("methods")
    first = resolve(tree(folder, [NLI, SIMILARITY], mix={"kind": "shuffled", "per_step": 1}))
    parts = build.build(first, build.find_inputs(first))

    def get(kind: str) -> tuple[Any, Any]:
        return parts, resolve(tree(folder, [NLI, SIMILARITY], method=kind)).method

    return get


@pytest.mark.slow
@pytest.mark.parametrize("kind", fast_for("plain", "freelb", "smart", "freeat"))
def test_every_method_works_with_several_tasks(made: Callable[[str], tuple[Any, Any]], kind: str) -> None:
    parts, options = made(kind)
    model = copy.deepcopy(parts.model).train()
    running, state = options.start(model), TrainState(9, budget=parts.batcher.budget)
    if isinstance(running, Updating):  # as the loop does
        params = [Param(n, p, None) for n, p in model.named_parameters()]
        optimizer = Optimizer(params, OptimOptions(lr=1e-5), 2)
        running.update = Update(model, parts.batches, optimizer, lambda _: 1.0, state, 0.0).early
    seen = set()
    for state.step in range(8):
        micro, _, terms = loop.gradient(model, running, parts.batches, state, "mean")
        (task,) = {batch.task for batch in micro}
        assert {key[0] for key in losses_of(terms)} == {task}
        for name in model.names:
            grads = [p.grad for p in model.objective(name).parameters()]
            assert all((g is not None) == (name == task) for g in grads)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
        assert all(p.grad is not None for p in model.encoder.net.embeddings.parameters())
        model.zero_grad(set_to_none=True)
        seen.add(task)
    assert seen == {"toy/nli", "toy/similarity"}


@pytest.mark.parametrize("weighting", ["constant", "uncertainty", "pcgrad", "gradnorm"])
def test_freeat_updates_within_a_step_and_wants_one_task_there(
    made: Callable[[str], tuple[Any, Any]], tmp_path: Path, weighting: str
) -> None:
    streams, several = made("plain")[0].batches.streams, {"kind": "shuffled", "per_step": 2}
    both = {"method": "freeat", "weighting": weighting}
    for mix in (several, "together"):
        with pytest.raises(UserError, match="freeat updates within a step, which can hold one task only"):
            build.mixed(streams, resolve(tree(tmp_path, [NLI, SIMILARITY], mix=mix, **both)))
    if weighting in ("constant", "uncertainty"):
        build.mixed(streams, resolve(tree(tmp_path, [NLI, SIMILARITY], mix="shuffled", **both)))


# Going on

HARD: dict[str, dict[str, Any]] = {
    "uncertainty": {"method": "freelb", "mix": {"kind": "temperature", "per_step": 2}},
    "gradnorm": {"method": "smart"},
    "pcgrad": {"method": "sam"},
    "constant": {"method": "importance", "mix": "annealed"},
}


def same(a: RunDir, b: RunDir) -> None:
    assert metrics_of(a) == metrics_of(b)
    assert a.read_scores() == b.read_scores()
    for path in [p.relative_to(b.path) for p in (b.path / "model").rglob("*.safetensors")]:
        assert (a.path / path).read_bytes() == (b.path / path).read_bytes(), path


@pytest.mark.parametrize(
    "kind", ["uncertainty", *(pytest.param(k, marks=pytest.mark.slow) for k in ("gradnorm", "pcgrad", "constant"))]
)
def test_R1_R4_killed_in_mid_run_it_goes_on_to_the_same_bits(tmp_path: Path, kind: str) -> None:
    whole = tree(
        tmp_path, [NLI, SIMILARITY], weighting=kind, **HARD[kind],
        train={"save": "2 steps", "max_steps": 5, "log": 1, "evaluate": "end"},
    )  # fmt: skip
    straight = run(whole, tmp_path / "straight")

    def kill(report: Any) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(lambda: run(whole, tmp_path / "killed", watch=kill)) == -signal.SIGKILL
    same(run(whole, tmp_path / "killed"), straight)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlm", "electra"])
def test_plain_text_goes_with_labels(tmp_path: Path, kind: str) -> None:
    text = {"name": "toy/corpus", "objective": {"kind": kind}, "count": 40}
    done = run(tree(tmp_path, [text, NLI], mix="uniform", train={"max_steps": 4, "evaluate": "end"}), tmp_path / "run")
    assert list(done.read_scores()["scores"]) == ["toy/nli:dev"]
    model, _, _ = open_model.load_model(done.model, device="cpu")
    stored = load_file(done.model / "heads" / "toy-corpus.safetensors")
    tied = model.objective("toy/corpus").state_dict()
    assert all(torch.equal(tied[name], value) for name, value in stored.items())
    assert open_classifier(done.path, "cpu").head.name == "toy/nli", "only one head answers texts"


@pytest.mark.slow(0.5)
def test_heads_of_each_task_are_measured_with_its_own_head(
    trained: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = ["toy/nli", "toy/similarity", "toy/ner"]
    assert main(["heads", str(trained.path), "--on", *tasks, "--quiet", "-o", str(tmp_path)]) == 0
    assert ", as layer.head: " in capsys.readouterr().out
    found = [Importance.open(tmp_path / f"{name.replace('/', '-')}-train") for name in tasks]
    assert [(one.meta["head"], one.meta["count"]) for one in found] == [(name, 24) for name in tasks]
    assert not np.allclose(found[0].raw, found[1].raw)
    assert main(["heads", str(trained.path), "--on", "toy/nli", "--head", "toy/ner"]) == 2


def test_tables_know_the_runs_of_several_tasks(trained: RunDir) -> None:
    from encodery.report import table

    found = table.table([trained.path]).to_dict()
    assert {row["data"] for row in found} >= {"toy/nli:dev", "toy/ner:dev", "toy/similarity:dev"}
    assert np.isfinite([row["mean"] for row in found]).all()
