"""The best of a sweep, by its metric, as the mean over seeds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.runs.sweep_spec import RunSpec, write_plan
from encodery.sweep import best
from encodery.sweep import best as sweep_best
from encodery.sweep.sweep_file import Metric
from tests.sweep.small_sweeps import planned

GRID = "grid: {optim.lr: [1e-4, 2e-4, 3e-4]}\nseeds: 2\n"


def done(folder: Path, name: str, accuracy: float, evaluations: dict[int, float] | None = None) -> None:
    run = RunDir(folder / name)
    run.path.mkdir(parents=True)
    for step, value in (evaluations or {}).items():
        run.record(step, split="dev", **{"eval.accuracy": value})
    scores = {
        "toy/sentiment:dev": {"accuracy": accuracy, "nll": 1 - accuracy},
        "toy/sentiment:extra": {"accuracy": 0.1},
    }
    run.write_scores({"scores": scores, "main": dict.fromkeys(scores, "accuracy")})
    run.mark_done()


def swept(tmp_path: Path, text: str, about: dict[str, Any] | None = None) -> tuple[Path, list[RunSpec]]:
    specs = planned(text, tmp_path)
    (tmp_path / "out").mkdir()
    write_plan(tmp_path / "out", specs, {"metric": about or {}})
    return tmp_path / "out", specs


def test_the_mean_over_seeds_decides(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, GRID)
    for spec, score in zip(specs, (0.7, 0.95, 0.6, 0.72, 0.5, 0.7), strict=True):  # seed 1 of three rates, then seed 2
        done(folder, spec.name, score)
    [ranked] = best.ranking(folder).values()
    assert [one.spec.axes["optim.lr"] for one in ranked] == [2e-4, 1e-4, 3e-4]
    assert ranked[0].scores == (0.95, 0.5)
    assert str(ranked[0]).startswith("toy/sentiment  0.7250 ± 0.3182 (n=2)  optim.lr=0.0002")


def test_a_file_of_ones_own_is_called_as_its_runs_call_it(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, GRID)
    for spec in specs:
        done(folder, spec.name, 0.5)
        RunDir(folder / spec.name).update_info(task="table/mails")
        RunDir(folder / spec.name).mark_done()
    assert list(best.ranking(folder)) == ["table/mails"]


def test_a_mode_of_min_turns_it_round(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, GRID, {"name": "nll", "mode": "min"})
    for spec, score in zip(specs, (0.7, 0.95, 0.6, 0.72, 0.5, 0.7), strict=True):
        done(folder, spec.name, score)
    assert best.only(best.ranking(folder), None).spec.axes["optim.lr"] == 2e-4


def test_missing_runs_put_a_configuration_behind(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, GRID)
    for spec in specs[:5]:
        done(folder, spec.name, 0.9 if spec.axes["optim.lr"] == 3e-4 else 0.5)
    [ranked] = best.ranking(folder).values()
    assert ranked[-1].spec.axes["optim.lr"] == 3e-4
    assert "1 of 2 runs missing" in str(ranked[-1])


def test_every_task_has_its_own_best_and_export_wants_one(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, "grid: {tasks.name: [toy/sentiment, toy/acceptability], optim.lr: [1e-4, 2e-4]}\n")
    for spec, score in zip(specs, (0.9, 0.8, 0.1, 0.2), strict=True):
        done(folder, spec.name, score)
    tasks = best.ranking(folder)
    assert {task: found[0].mean for task, found in tasks.items()} == {"toy/sentiment": 0.9, "toy/acceptability": 0.2}
    with pytest.raises(UserError, match=re.escape("say which with --task")):
        best.only(tasks, None)
    with pytest.raises(UserError, match=re.escape("--task toy/nli: the sweep has")):
        best.only(tasks, "toy/nli")
    text = best.export(best.only(tasks, "toy/acceptability"), folder)
    assert load.loads(text).config.optim.lr == 2e-4
    assert load.loads(text).config.to_dict() == specs[3].config


def test_only_the_last_stage_is_ranked_over_all_that_it_was_built_on(tmp_path: Path) -> None:
    text = "stages:\n  a: {seeds: 2}\n  b: {needs: a, model: 'stage:a', grid: {optim.lr: [1e-4, 2e-4]}, seeds: 2}\n"
    folder, specs = swept(tmp_path, text)
    for i, spec in enumerate(specs):
        done(folder, spec.name, 1.0 if spec.stage == "a" else 0.5 + 0.01 * i)
    [ranked] = best.ranking(folder).values()
    assert [(len(one.scores), one.spec.stage) for one in ranked] == [(4, "b"), (4, "b")]


TWO_TASKS = """
stages:
  first: {grid: {optim.lr: [1e-3, 1e-2]}}
  then: {needs: first, model: 'stage:first', tasks.name: toy/nli, seeds: 2}
"""


def test_the_settings_of_earlier_stages_make_configurations_and_their_tasks_are_ranked(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, TWO_TASKS)
    for spec in specs:
        done(folder, spec.name, 0.9 if spec.axes.get("optim.lr") == 1e-2 else 0.5)
    tasks = best.ranking(folder)
    assert {task: [len(one.scores) for one in ranked] for task, ranked in tasks.items()} == {
        "toy/nli": [2, 2],
        "toy/sentiment": [1, 1],
    }
    assert {one.label for one in tasks["toy/nli"]} == {"(first: optim.lr=0.001)", "(first: optim.lr=0.01)"}
    assert tasks["toy/sentiment"][0].label == "optim.lr=0.01"
    assert best.only(tasks, None).task == "toy/nli"


def test_an_earlier_stage_without_the_metric_is_left_out(tmp_path: Path) -> None:
    folder, specs = swept(tmp_path, TWO_TASKS, {"name": "accuracy"})
    for spec in specs:
        done(folder, spec.name, 0.5)
    for spec in specs[:2]:
        RunDir(folder / spec.name).write_scores({"scores": {"c:dev": {"loss": 1.0}}, "main": {"c:dev": "loss"}})
    assert list(best.ranking(folder)) == ["toy/nli"]


def test_nothing_done_is_no_ranking(tmp_path: Path) -> None:
    assert best.ranking(swept(tmp_path, GRID)[0]) == {}


def test_where_a_score_is_taken(tmp_path: Path) -> None:
    done(tmp_path, "run", 0.6, {10: 0.3, 20: 0.8, 30: 0.6})
    run = tmp_path / "run"
    wanted = [({}, 0.6), ({"at": "best"}, 0.8), ({"at": "step:10"}, 0.3), ({"at": "step:11"}, None)]
    wanted += [({"at": "best", "mode": "min"}, 0.3), ({"split": "extra"}, 0.1), ({"name": "eval.nll"}, 0.4)]
    assert [sweep_best.score(run, Metric(**options)) for options, _ in wanted] == [value for _, value in wanted]
    assert sweep_best.score(tmp_path / "nothing", Metric()) is None


@pytest.mark.parametrize(
    ("options", "said"), [({"name": "f1"}, "has no f1 for toy/sentiment:dev"), ({"split": "test"}, "no scores on test")]
)
def test_a_metric_that_a_run_does_not_have_is_named(tmp_path: Path, options: dict[str, str], said: str) -> None:
    done(tmp_path, "run", 0.6)
    with pytest.raises(UserError, match=re.escape(said)):
        sweep_best.score(tmp_path / "run", Metric(**options))


def test_scores_of_training_count_too(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps({"step": 5, "loss": 0.25}) + '\n{"step": 6, "lo')
    assert sweep_best.on_the_way(tmp_path / "m.jsonl", "loss") == {5: 0.25}
