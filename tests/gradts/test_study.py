"""A whole study on tiny tasks: what is trained, what is not trained again, what comes out."""

import functools
import importlib.util
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from encodery.cli import main
from encodery.config import load as config_load
from encodery.core import files
from encodery.core.lock import RunLock
from encodery.core.progress import Progress
from encodery.errors import RunFailed, UserError
from encodery.gradts import runs, study
from encodery.gradts.plan import Plan, load
from encodery.gradts.study import Study
from encodery.report.task_choice import Choices
from encodery.runs.head_matrices import Importance, compare
from encodery.runs.sweep_spec import Outcome
from encodery.sweep import slurm_cluster, state
from encodery.training import build
from encodery.training.run import train_run
from tests.toolbox.forked_python import ForkedPython
from tests.toolbox.tasks import write_rows
from tests.toolbox.tokenizers import save_tokenizer

NAMES = ["table/one", "table/two", "table/three"]
SMALL = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32, "max_position_embeddings": 64}


def write(folder: Path, tasks: int = 3, **keys: Any) -> Path:
    """Three small tasks, or the first two; the third has labels that mean nothing."""
    if not (folder / "tokenizer").exists():
        for number, name in enumerate(("one", "two", "three")):
            write_rows(folder / f"{name}.csv", 24, number, noise=name == "three")
        write_rows(folder / "dev.csv", 24, 9)
        save_tokenizer(folder / "tokenizer")
    entries = [
        {"kind": "table", "name": name, "root": str(folder), "train": f"{name}.csv", "dev": "dev.csv"}
        for name in ("one", "two", "three")
    ]
    tree = {
        "model": {"new": {"kind": "bert", "size": "tiny", "config": SMALL}, "tokenizer": str(folder / "tokenizer")},
        "tasks": entries[:tasks],
        "optim": {"lr": 2e-3},
        "train": {"epochs": 1, "batch_size": 8, "max_length": 16, "log": 1},
        "device": "cpu",
        "primary": "table/one",
        "seeds": 1,
        "importance_seeds": 1,
        **keys,
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs in this process, in order; the names of those that were trained."""
    trained: list[str] = []

    def execute(folder, source, resources, limits, executor, progress):  # type: ignore[no-untyped-def]
        ended: dict[str, Outcome] = {}
        while not source.exhausted(ended, []):
            for spec in source.ready(ended, [], 99):
                if not (folder / spec.name / "DONE").is_file():
                    train_run(config_load.load(json.loads(json.dumps(spec.config))), folder / spec.name)
                    trained.append(f"{folder.name}/{spec.name}")
                ended[spec.id] = Outcome(spec.id, "done")
        return list(ended.values())

    monkeypatch.setattr(runs, "execute", execute)
    return trained


def do(path: Path, out: Path, *words: str) -> Choices:
    return Study(load(path, words, out), Progress(quiet=True)).run()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


def test_a_plan_names_each_strategy_once_and_counts_trials(tmp_path: Path) -> None:
    path = write(tmp_path)
    said = "\n".join(load(path, ["--strategy=trial", "--compare=none,all"], tmp_path / "out").lines())
    assert ": trial, beside none, all; " in said
    assert "\n2 trials (the primary" in said
    said = "\n".join(load(path, ["--strategy=none", "--compare=none"], tmp_path / "out").lines())
    assert ": none; " in said


@pytest.mark.slow
def test_G18_G21_G24_a_study_from_tasks_to_a_table(shared: Path, executed: list[str]) -> None:
    path, out = write(shared), shared / "out"
    plan: Plan = load(path, ["--compare=none,all,thres"], out)
    said = "\n".join(plan.lines())
    assert "3 fine-tuning runs, whose heads are measured by mask" in said
    assert "\n2 trials (the primary" in said
    do(write(shared, tasks=2), out, "--strategy=thres", "--threshold=2", "--compare=none")
    assert len(executed) == 2
    heads = {path: path.read_bytes() for path in (out / "heads").rglob("*.npy")}
    found = do(write(shared), out, "--compare=none,all,thres", "--threshold=-1")
    assert len([name for name in executed if name.startswith("singles/")]) == 3  # a new task is one fine-tuning
    assert all(path.read_bytes() == content for path, content in heads.items())
    assert len(executed) == 3 + 2  # two trials; single-task is there, all tasks are the second trial
    order = [one.name for one in found.rankings["table/one"]]
    assert sorted(order) == ["table/three", "table/two"]
    assert found.rankings["table/one"][0].mean >= found.rankings["table/one"][1].mean
    tried = found.trials["table/one"]
    assert [one.tasks for one in tried] == [(), (order[0],), tuple(order)]
    best = max(range(3), key=lambda k: (tried[k].scores[1], -k))
    rows = {row.strategy: row for row in found.rows}
    assert rows["trial"].tasks == tuple(order[:best]) == found.chosen()["table/one"]  # single-task is a candidate
    assert rows["trial"].scores == tried[best].scores
    assert rows["thres"].tasks == ("table/two", "table/three")  # all of them, in the given order
    assert (rows["none"].trainings, rows["all"].trainings, rows["trial"].trainings) == (1, 1, 5)
    assert rows["trial"].seconds > rows["none"].seconds > 0
    text = (out / "gradts.md").read_text()
    assert "| table/one | trial |" in text
    assert (out / "correlation-seed-1.svg").read_text().startswith("<?xml")
    assert json.loads((out / "gradts.json").read_text())["chosen"]["table/one"] == list(rows["trial"].tasks)
    count, before = len(executed), (out / "heads" / "table-two-seed-1" / "instances.npy").read_bytes()
    again = do(path, out, "--compare=none,all,thres", "--threshold=-1")
    assert len(executed) == count  # nothing is trained or measured again
    assert again.rows == found.rows
    assert (out / "heads" / "table-two-seed-1" / "instances.npy").read_bytes() == before


def scores_of(run: Path) -> dict[str, float]:
    """Task → accuracy on dev."""
    found = json.loads((run / "scores.json").read_text())["scores"]
    return {key.removesuffix(":dev"): scores["accuracy"] for key, scores in found.items()}


@pytest.mark.slow
def test_G32_equal_sets_are_trained_once_for_all_primaries(tmp_path: Path, executed: list[str]) -> None:
    path = write(tmp_path, primary="all", strategy="all", compare=["none"], seeds=2)
    said = "\n".join(load(path, [], tmp_path / "out").lines())
    assert "at most 8 final training runs; identical ones are trained once, for whichever primary" in said
    found = do(path, tmp_path / "out")
    assert len(executed) == 2 * 3 + 2  # each task alone, and all of them together, with two seeds
    runs_of_all = [run for name in executed if set(scores_of(run := tmp_path / "out" / name)) == set(NAMES)]
    by_seed = {config_load.load(run).config.seed.data: scores_of(run) for run in runs_of_all}
    assert sorted(by_seed) == [1, 2]
    for row in found.rows:
        if row.strategy == "all":
            assert row.scores == {seed: scores[row.primary] for seed, scores in by_seed.items()}


@pytest.mark.slow
def test_G32_shared_runs_score_each_primary_with_its_own_best_weights(tmp_path: Path, executed: list[str]) -> None:
    words = ["--train.select=best", "--train.evaluate=1 epoch", "--train.epochs=3", "--optim.lr=5e-3"]
    path = write(tmp_path, primary="all", strategy="all", compare=["none"])
    found = do(path, tmp_path / "out", *words)
    assert len(executed) == 3 + 1
    rows = {row.primary: row.scores[1] for row in found.rows if row.strategy == "all"}
    (shared_run,) = [run for name in executed if len(scores_of(run := tmp_path / "out" / name)) == 3]
    for name in NAMES:  # as a run for this primary alone would have been chosen and scored
        tree = config_load.load(shared_run).config.to_dict()
        tree["train"] |= {"select": "best", "select_on": name}
        alone = train_run(config_load.load(tree), tmp_path / name.replace("/", "-")).path
        assert scores_of(alone)[name] == rows[name]


def test_G32_what_depends_on_the_primary_is_trained_for_each(tmp_path: Path) -> None:
    path = write(tmp_path, primary="all", strategy="all", compare=["none"])
    for words, why in (("--train.patience=2", "train.patience"), ("--mix={kind: mtdnn, ratio: 1}", "mix treats")):
        plan = load(path, [words], tmp_path / "out")
        assert not plan.shares_runs
        assert why in "\n".join(plan.lines())
        here = Study(plan, Progress(quiet=True))
        assert len({here.training(a, ((b, None),), 1).tasks for a, b in (NAMES[:2], NAMES[1::-1])}) == 2


def test_G33_the_released_rule_takes_all_scores_from_the_epoch_of_the_best_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = [
        {"step": 1, "accuracy": 0.7, "macro_f1": 0.9},
        {"step": 2, "accuracy": 0.8, "macro_f1": 0.5},
        {"step": 3, "accuracy": 0.8, "macro_f1": 0.6},
        {"step": 4, "accuracy": 0.6, "macro_f1": 0.4},
    ]
    monkeypatch.setattr(study, "on_the_way", lambda path, primary: way)
    monkeypatch.setattr(study, "scores_of", lambda path, primary: {"accuracy": 0.6, "macro_f1": 0.4})
    plan = load(write(tmp_path), ["--rule=released", "--metric=macro_f1"], tmp_path / "out")
    found = Study(plan, Progress(quiet=True)).trial_of("table/one", {1: tmp_path})
    assert (found.best, found.first, found.last) == ({1: 0.5}, {1: 0.8}, {1: 0.4})


def test_G36_three_fine_tunings_by_default_and_their_cost_is_said(tmp_path: Path) -> None:
    path = write(tmp_path)
    tree = {key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "importance_seeds"}
    path.write_text(yaml.safe_dump(tree))
    said = "\n".join(load(path, [], tmp_path / "out").lines())
    cost = "(3 tasks × 3 seeds; importance_seeds: 1 costs 3)"
    assert f"9 fine-tuning runs, whose heads are measured by mask {cost}" in said
    assert "1 of them are also the single-task runs" in said
    assert "other settings and are additional" in "\n".join(
        load(path, ["--finetune={train.epochs: 2}"], tmp_path / "out").lines()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_G24_a_killed_study_goes_on(tmp_path: Path, shared: Path, executed: list[str]) -> None:
    path, out, reuse = write(shared), tmp_path / "out", f"--reuse={shared / 'out' / 'singles'}"
    child = os.fork()
    if child == 0:
        try:
            do(path, out, reuse)
        finally:
            os._exit(0)
    while not list(out.glob("trials/*/metrics.jsonl")):
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    done = {mark.parent.name: mark.stat().st_mtime_ns for mark in out.glob("trials/*/DONE")}
    assert len(done) < 2
    found = do(path, out, reuse)
    assert {name.partition("/")[0] for name in executed} == {"trials"}  # the fine-tunings were done elsewhere
    assert len(executed) == 2 - len(done)  # what was finished is not run again
    assert all((out / "trials" / name / "DONE").stat().st_mtime_ns == when for name, when in done.items())
    whole = json.loads((shared / "out" / "gradts.json").read_text())  # of a study that nobody killed
    again = json.loads((out / "gradts.json").read_text())
    assert again["trials"] == whole["trials"]
    assert found.chosen()["table/one"] == tuple(whole["chosen"]["table/one"])


@pytest.mark.slow
def test_G22_G23_fine_grained(shared: Path, tmp_path: Path, executed: list[str]) -> None:
    path, everything = write(shared), f"--reuse={shared / 'out'}"
    words = ["--strategy=fg", "--compare=trial", everything, "--rule=released"]
    epochs = ["--train.evaluate=1 epoch"]
    whole = do(path, tmp_path / "a", *words, *epochs, "--fg_threshold=-1")
    rows = {row.strategy: row for row in whole.rows}
    assert rows["fg"].scores == rows["trial"].scores  # every example is kept: the very same run
    assert rows["fg"].tasks == rows["trial"].tasks != ()  # as released: single-task is no candidate
    count = len(executed)
    none = do(path, tmp_path / "a", *words, *epochs, "--fg_threshold=1.5")
    rows = {row.strategy: row for row in none.rows}
    assert rows["fg"].tasks == ()
    assert rows["fg"].scores == rows["none"].scores
    assert len(executed) == count
    some = do(path, tmp_path / "a", *words, *epochs, "--keep_fraction=0.5")
    row = next(row for row in some.rows if row.strategy == "fg")
    assert set(row.kept.values()) == {"12 of 24 examples"}
    subset = tmp_path / "a" / "subsets" / f"table-one-{row.tasks[0].replace('/', '-')}"
    assert len((subset / "selection.jsonl").read_text().splitlines()) == 12
    trained = config_load.load(tmp_path / "a" / executed[-1])
    assert trained.tasks[0][1].subset is None  # the primary's rows are never cut down
    assert {task.name: entry.subset for task, entry in trained.tasks}[row.tasks[0]] == str(subset.resolve())


@pytest.mark.slow
def test_autosem_chooses_by_a_bandit_and_goes_on(shared: Path, tmp_path: Path, executed: list[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    from encodery.gradts import autosem

    path, words = write(shared), ["--strategy=autosem", "--compare=none", f"--reuse={shared / 'out'}"]
    words += ["--autosem.rounds=6", "--autosem.steps=2", "--autosem.keep=1", "--autosem.rows=8"]
    monkeypatch.setattr(autosem, "SAVE", "2 steps")
    score, calls = autosem.Rounds.judged, []

    def fails(self: Any) -> float:
        calls.append(self.state.step)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(self)

    monkeypatch.setattr(autosem.Rounds, "judged", fails)
    with pytest.raises(KeyboardInterrupt):
        do(path, tmp_path / "out", *words)
    found = do(path, tmp_path / "out", *words)
    row = next(row for row in found.rows if row.strategy == "autosem")
    about = json.loads((tmp_path / "out" / "autosem" / "table-one" / "bandit.json").read_text())
    known = {name: value for name, value in about["utilities"].items() if name != "table/one"}
    assert row.tasks == (max(known, key=lambda name: known[name]),)
    assert calls == [2, 4, 6, 8, 8, 10, 12]  # three rounds were kept
    monkeypatch.setattr(autosem.Rounds, "judged", score)
    straight = do(path, tmp_path / "straight", *words)
    other = json.loads((tmp_path / "straight" / "autosem" / "table-one" / "bandit.json").read_text())
    assert other["history"] == about["history"]  # as if nothing had happened
    assert straight.chosen() == found.chosen()


@pytest.mark.slow
def test_G17_only_matrices_of_one_kind_are_compared(shared: Path, tmp_path: Path) -> None:
    folders = [shared / "out" / "heads" / f"table-{name}-seed-1" for name in ("one", "two")]
    heads = [Importance.open(folder) for folder in folders]
    assert compare(heads).values.shape == (2, 2)
    for key, value in (("base", "other"), ("estimator", "kv_weight"), ("heads", 8)):
        (tmp_path / key).mkdir()
        for name in ("instances.npy", "task.npy", "ids.json"):
            (tmp_path / key / name).write_bytes((folders[1] / name).read_bytes())
        files.write_json(tmp_path / key / "meta.json", {**heads[1].meta, key: value})
        with pytest.raises(UserError, match=f"cannot be compared: {key} is"):
            compare([heads[0], Importance.open(tmp_path / key)])


@pytest.mark.slow
def test_G16_a_matrix_without_order_counts_as_0_with_a_warning(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared / "out" / "heads" / "table-one-seed-1"
    meta = Importance.open(folder).meta
    np.save(tmp_path / "task.npy", np.zeros((meta["layers"], meta["heads"])))
    files.write_json(tmp_path / "meta.json", {**meta, "task": "flat"})
    assert main(["heads", "compare", str(folder), str(tmp_path), "--by", "kendall", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)[0]["values"] == [[1.0, 0.0], [0.0, 0.0]]
    assert f"WARNING {tmp_path}: all heads are equally important" in said.err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")
def test_G24_trials_run_as_jobs_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executed: list[str]
) -> None:
    path = write(tmp_path, tasks=2, compare=["none"], resources={"devices": "cpu:2"})
    here = do(path, tmp_path / "here")
    assert len(executed) == 3
    monkeypatch.undo()  # from here on runs are processes
    monkeypatch.setattr(subprocess, "Popen", ForkedPython)
    local = functools.partial(slurm_cluster.execute_slurm, cluster="local")  # submitit's own stand-in for Slurm
    monkeypatch.setattr(slurm_cluster, "execute_slurm", local)
    monkeypatch.chdir(tmp_path)
    assert main(["gradts", str(path), "-o", "there", "--executor", "slurm", "--quiet"]) == 0
    found = {stage: [one.state for one in state.status(Path("there", stage))] for stage in ("singles", "trials")}
    assert found == {"singles": ["done", "done"], "trials": ["done"]}
    there = json.loads(Path("there", "gradts.json").read_text())
    assert there["chosen"] == json.loads((tmp_path / "here" / "gradts.json").read_text())["chosen"]
    rows = {row["strategy"]: row["scores"] for row in there["rows"]}
    assert rows == {row.strategy: {str(seed): score for seed, score in row.scores.items()} for row in here.rows}


@pytest.mark.slow
def test_heads_verb_and_ablation(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((shared / "out" / "singles").glob("*one*/DONE")).parent
    assert main(["heads", str(run), "--on", "table/one", "-o", str(tmp_path / "h"), "--quiet", "--json"]) == 0
    (about,) = json.loads(capsys.readouterr().out)
    assert (about["count"], about["layers"], about["heads"]) == (24, 2, 4)
    found = Importance.open(tmp_path / "h")
    assert np.load(tmp_path / "h" / "instances.npy").shape == (24, 2, 4)
    assert found.ids == [example.id for example in config_load.load(run).tasks[0][0].examples("train")]
    assert np.allclose(found.raw, found.instances.mean(0))
    other = shared / "out" / "heads" / "table-two-seed-1"
    assert main(["heads", "compare", str(tmp_path / "h"), str(other), "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in kinds] == ["kendall", "pearson", "spearman"]
    assert main(["heads", "compare", str(tmp_path / "h"), str(other), "--by", "kendall"]) == 0
    assert "| table/one | 1.000 |" in capsys.readouterr().out
    assert main(["heads", str(run), "--on", "table/one", "-o", str(tmp_path / "h"), "--max-rows", "7"]) == 2
    assert "max_rows: None there, 7 now" in capsys.readouterr().err
    scores = (run / "scores.json").read_bytes()
    words = ["evaluate", str(run), "--on", "table/one:dev", "--quiet", "--json"]
    off = ",".join(f"{layer}.{head}" for layer in (0, 1) for head in range(4))
    assert main([*words, "--without-heads", off, "-o", str(tmp_path / "e")]) == 0
    without = json.loads(capsys.readouterr().out)["table/one:dev"]
    assert without["without_heads"] == off.split(",")
    assert (run / "scores.json").read_bytes() == scores  # a run's own answers are not touched
    assert main([*words, "--without-heads", "2.0"]) == 2


@pytest.mark.slow(0.5)
def test_heads_are_measured_on_the_rows_that_the_run_was_trained_on(shared: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(write(shared).read_text())
    tree["tasks"] = [{**tree["tasks"][0], "count": 10}]
    tree = {key: tree[key] for key in ("model", "tasks", "device")} | {
        "train": {**tree["train"], "holdout": 0.25, "max_steps": 1}
    }
    run = train_run(config_load.load(tree), tmp_path / "run").path
    task_data = build.build(found := config_load.load(run), build.find_inputs(found)).tasks_data[0]
    wanted = [task_data.train.table.example_ids[i] for i in task_data.rows]
    assert len(wanted) == 10
    words = ["heads", str(run), "--on", "table/one", "--quiet", "-o"]
    assert main([*words, str(tmp_path / "few")]) == 0
    assert Importance.open(tmp_path / "few").ids == wanted
    assert main([*words, str(tmp_path / "all"), "--all-rows"]) == 0
    assert len(Importance.open(tmp_path / "all").ids) == 24
    assert main([*words, str(tmp_path / "few"), "--all-rows"]) == 2  # other rows are other numbers
    assert main(["heads", str(run), "--on", "table/one:dev", "--quiet", "-o", str(tmp_path / "dev")]) == 0


@pytest.mark.slow
def test_what_cannot_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    wrong: list[tuple[str, str]] = [
        ("--primary=table/four", "not among the tasks"),
        ("--strategy=fg", "fg_threshold"),
        ("--metric=rmse", "better when lower"),
        ("--thresold=0.5", "threshold"),
    ]
    for word, message in wrong:
        with pytest.raises(UserError, match=message):
            load(path, [word], tmp_path / "out")

    with pytest.raises(UserError, match="table/one has no mcc; it has accuracy"):
        Study(load(path, ["--metric=mcc"], tmp_path / "out"), Progress(quiet=True))

    def execute(folder, source, *_):  # type: ignore[no-untyped-def]
        return [Outcome(spec.id, "failed", error="no luck") for spec in source.ready({}, [], 99)]

    monkeypatch.setattr(runs, "execute", execute)
    with pytest.raises(RunFailed, match="no luck"):
        Study(load(path, [], tmp_path / "out"), Progress(quiet=True)).run()


def test_R8_a_second_study_on_the_folder_is_refused(tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    out.mkdir()
    with RunLock(out), pytest.raises(UserError, match=r"out is in use by process .* another folder with -o"):
        do(path, out, "--strategy=none", "--compare=none")
    assert {file.name for file in out.iterdir()} <= {".lock"}  # nothing of the first was overwritten
