"""Tables of runs that were made by hand: what is grouped, shown, flagged and compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from encodery.errors import UserError
from encodery.report import stats, table
from encodery.report.examples import task_of
from encodery.runs.directory import RunDir
from encodery.tasks.toy import Toy
from tests.report.runs import run, seeds, tree
from tests.toolbox.tasks import write_csv


def only(found: table.Table, **settings: str) -> Any:
    """The one row with these settings (dots as two underscores)."""
    wanted = {key.replace("__", "."): value for key, value in settings.items()}
    rows = [row for row in found.rows if wanted.items() <= row.settings.items()]
    assert len(rows) == 1
    return rows[0]


# One row per configuration


def test_seeds_of_a_configuration_are_one_row(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.7, 0.8, 0.9])
    found = table.table([tmp_path])
    assert found.rows[0].summary[:2] == (3, pytest.approx(0.8))
    assert found.settings == []
    assert "| toy/nli:dev | accuracy | 80.00 ± 10.00 (3) | 55.16 to 104.84 | 80.00 | 90.00 | 10 s |" in table.markdown(
        found
    )


def test_a_selection_for_each_seed_is_one_selection(tmp_path: Path) -> None:
    for name, score in (("random", 0.5), ("stream", 0.6)):
        for seed in (1, 2):
            subset = f"/curve/selections/{name}-seed-{seed}"
            run(tmp_path / f"{name}{seed}", score, seed=seed, tasks__0__subset=subset)
    found = table.table([tmp_path]).rows
    assert [(row.settings["tasks.0.subset"], row.summary.n) for row in found] == [
        ("random", 2),  # absolute paths lose what does not tell them apart
        ("stream", 2),
    ]


def test_only_what_varies_is_a_column_and_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7, optim__lr=2e-5, train__epochs=3)
    run(tmp_path / "b", 0.8, optim__lr=3e-5, train__epochs=3.0, data="elsewhere", device="cpu", train__log=7)
    found = table.table([tmp_path])
    assert found.settings == ["optim.lr"]
    assert [row.settings["optim.lr"] for row in found.rows] == ["2e-05", "3e-05"]


def test_a_run_of_so_many_steps_has_no_epochs(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7, train__epochs=1)
    run(tmp_path / "b", 0.8, train__epochs=1, train__max_steps=5)
    run(tmp_path / "c", 0.9, train__epochs=2, train__max_steps=5, seed=2)
    found = table.table([tmp_path])
    assert [(row.settings["train.epochs"], row.settings["train.max_steps"]) for row in found.rows] == [
        ("1", ""),
        ("", "5"),
    ]


def test_keys_of_a_component_that_the_other_run_does_not_have_are_no_difference(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    run(tmp_path / "b", 0.8, method={"kind": "freelb", "adv_lr": 0.1, "steps": 3})
    assert table.table([tmp_path]).settings == ["method.kind"]
    run(tmp_path / "c", 0.9, method={"kind": "freelb", "adv_lr": 0.2, "steps": 3})
    found = table.table([tmp_path])
    assert found.settings == ["method.kind", "method.adv_lr"]
    assert only(found, method__kind="plain").settings["method.adv_lr"] == ""


def test_data_folders_and_empty_sections_are_no_columns_but_their_content_is(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    run(tmp_path / "b", 0.8, **{"tasks__0__data": "elsewhere", "tasks__0__root": "/here"}, seed=2)
    assert len(table.table([tmp_path]).rows) == 1
    run(tmp_path / "c", 0.8, **{"tasks__0__objective": {"label_smoothing": 0.1}})
    assert table.table([tmp_path]).settings == ["tasks.0.objective.label_smoothing"]


def test_separate_seeds_are_told_apart(tmp_path: Path) -> None:
    for data in (1, 2):
        run(tmp_path / str(data), 0.7, seed__data=data)
    assert set(table.table([tmp_path]).rows[0].values) == {1, "1/2"}


def test_the_same_run_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    run(tmp_path / "b", 0.7)
    found = table.table([tmp_path])
    assert found.rows[0].summary.n == 1
    assert any("only the first is counted" in remark for remark in found.remarks)


@pytest.mark.parametrize("what", ["missing", "damaged"])
def test_metrics_that_cannot_be_read_are_named_by_what_is_wrong(tmp_path: Path, what: str) -> None:
    file = run(tmp_path / "a", 0.7) / "metrics.jsonl"
    file.unlink() if what == "missing" else file.write_text("{\n")
    (row,) = table.table([tmp_path]).rows
    assert row.summary.mean == 0.7
    assert f"no training time: metrics.jsonl is {what}" in row.notes


def test_a_twin_that_was_evaluated_on_more_data_has_the_same_data(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.5)
    for name, gold in (("b", "e"), ("c", "f")):
        more = RunDir.open(run(tmp_path / name, 0.5))
        about = {"scores": {"accuracy": 0.4}, "main": "accuracy", "task": {"kind": "table"}, "digest": gold}
        more.write_scores(more.read_scores() | {"evaluations": {"table/gold:test": about}})
    run(tmp_path / "d", 0.5, origins={"dev": {"digest": "other", "rows": 3}})
    a, b, c, d = (tmp_path / name for name in "abcd")
    made = table.table([tmp_path])
    twins = [line for line in made.remarks if "only the first is counted" in line]
    assert sorted(line.removesuffix(": only the first is counted") for line in twins) == [
        f"{b} has the settings and the seed of {a}",
        f"{c} has the settings and the seed of {a}",
    ]
    assert [(row.data, row.notes[0]) for row in made.rows] == [
        ("table/gold:test", "other rows: b"),
        ("table/gold:test", "other rows: c"),
        ("toy/nli:dev", "other rows: a"),
        ("toy/nli:dev", f"other rows: {d.name}"),
    ]


def test_a_note_of_the_run_is_not_repeated_by_a_later_evaluation(tmp_path: Path) -> None:
    note = "0.1 of a.csv set aside by label, split_seed 0"
    made = RunDir(run(tmp_path / "a", 0.5, origins={"dev": {"digest": "d", "rows": 3, "note": note}}))
    about = {"scores": {"accuracy": 0.5}, "main": "accuracy", "note": note, "seen": "1 row was trained on"}
    made.write_scores(made.read_scores() | {"evaluations": {"toy/nli:dev": about}})
    made.mark_done()
    assert table.table([tmp_path]).rows[0].notes == [f"dev {note}", "1 row was trained on"]


def test_seeds_on_other_rows_are_no_seeds_of_one_row(tmp_path: Path) -> None:
    for seed, rows in ((1, "first"), (2, "second"), (3, "first")):
        run(tmp_path / f"seed-{seed}", 0.5, seed=seed, origins={"dev": {"digest": rows, "rows": 3}})
    made = table.table([tmp_path])
    assert [list(row.values) for row in made.rows] == [[1, 3], [2]]
    assert any("not all configurations were scored on the same rows" in remark for remark in made.remarks)


def folds(folder: Path, values: list[float], failed: int = 0) -> Path:
    """A folder with a run for each fold, the last ones failed."""
    for number, value in enumerate([*values, *[None] * failed], 1):
        part = f"fold {number} of {len(values) + failed} of a.csv, split_seed 0"
        entry = {"tasks.0.folds": len(values) + failed, "tasks.0.fold": number}
        origins = {"dev": {"digest": f"d{number}", "rows": 3, "note": part}}
        run(folder / f"fold-{number}", value, origins=origins, state=None if value else "failed", **entry)
    return folder


def test_folds_of_a_cross_validation_are_one_configuration(tmp_path: Path) -> None:
    folds(tmp_path / "folds", [0.6, 0.7, 0.8])
    found = table.table([tmp_path / "folds"])
    assert found.settings == []
    assert found.rows[0].summary == (3, pytest.approx(0.7), pytest.approx(0.1), 0.7, None)
    assert found.rows[0].notes == ["dev each of 3 folds of a.csv, split_seed 0"]
    assert list(found.rows[0].values) == ["1 fold 1", "1 fold 2", "1 fold 3"]
    assert stats.FOLDS in found.remarks
    for seed, lr in enumerate((1, 2, 3)):
        run(tmp_path / f"lr-{lr}", 0.5 + seed / 10, optim__lr=lr)
    best = [line for line in table.table([tmp_path]).remarks if "is the best of" in line]
    assert len(best) == 1
    assert best[0].startswith("toy/nli:dev: 70.00 is the best of 4 configurations")


def test_a_fold_that_failed_is_named_and_one_alone_keeps_its_note(tmp_path: Path) -> None:
    row = table.table([folds(tmp_path, [0.6, 0.8], failed=1)]).rows[0]
    assert table.spell(row) == f"70.00 ± 14.14 (2 of 3 {table.FAILED})"
    assert row.notes[-1].startswith("seed 1 fold 3 failed")
    alone = table.table([tmp_path / "fold-2"])
    assert alone.rows[0].notes == ["dev fold 2 of 3 of a.csv, split_seed 0"]
    assert "fewer than 3 folds in some rows: differences there may well be chance" in alone.remarks


def test_less_is_better_for_errors_and_they_are_not_times_100(tmp_path: Path) -> None:
    seeds(tmp_path, [0.7, 0.8], task="toy/similarity")
    for folder in tmp_path.iterdir():
        made = RunDir(folder)
        made.write_scores(made.read_scores() | {"scores": {"toy/similarity:dev": {"accuracy": 0.5, "rmse": 1.25}}})
    found = table.table([tmp_path], metric="rmse")
    assert "1.2500 ± 0.0000 (2)" in table.markdown(found)
    with pytest.raises(UserError, match="they have accuracy, rmse"):
        table.table([tmp_path], metric="f9")


# What went wrong


def test_W20_a_failed_seed_is_not_counted_and_is_marked(tmp_path: Path) -> None:
    seeds(tmp_path, [0.7, 0.8, 0.9, 0.8])
    run(tmp_path / "seed-5", None, seed=5, state="failed")
    found = table.table([tmp_path])
    assert len(found.rows) == 1
    said = table.markdown(found)
    assert "80.00 ± 8.16 (4 of 5 ✗)" in said
    assert "seed 5 failed: it was failed" in said
    assert found.rows[0].to_dict()["failed"] == 1


def test_W20_one_seed_has_no_spread(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.75)
    found = table.table([tmp_path])
    assert "| 75.00 (1) |" in table.markdown(found)
    assert found.rows[0].to_dict()["sd"] is None
    assert any("fewer than 3 seeds" in remark for remark in found.remarks)


def test_stopped_and_pruned_runs_are_never_final(tmp_path: Path) -> None:
    seeds(tmp_path, [0.7, 0.8])
    run(tmp_path / "seed-3", None, seed=3, state="stopped")
    given_up = run(tmp_path / "seed-4", 0.1, seed=4)
    (given_up / "status.json").write_text(json.dumps({"state": "pruned"}))
    torn = run(tmp_path / "seed-5", 0.9, seed=5)
    (torn / "status.json").write_text('{"sta')
    found = table.table([tmp_path]).rows[0]
    assert found.values == {1: 0.7, 2: 0.8, 5: 0.9}
    assert [record.state for record in found.missing] == ["stopped", "pruned"]


def test_a_configuration_that_only_failed_is_a_row(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    run(tmp_path / "b", None, optim__lr=9.0, state="failed")
    found = table.table([tmp_path])
    assert "– (0 of 1 ✗)" in table.markdown(found)
    assert only(found, optim__lr="9").data == "toy/nli"


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    (run(tmp_path / "b", 0.7, seed=2) / "scores.json").write_text("{}")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{}")
    found = table.table([tmp_path])
    assert "seed 2 damaged" in table.markdown(found)
    assert any("config.yaml missing" in remark for remark in found.remarks)


def test_alarms_are_told_once_for_a_configuration(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        alarms = [f"training loss 0.69{seed} is near ln 2"] if seed < 3 else []
        run(tmp_path / str(seed), 0.5, seed=seed, alarms=alarms)
    said = table.markdown(table.table([tmp_path]))
    assert said.count("ALARM") == 1
    assert "ALARM in 2 of 3 seeds, such as: training loss 0.691 is near ln 2" in said


def with_majority(folder: Path, easy: float) -> None:
    """The commonest label gets `easy` in every run below the folder."""
    for path in sorted(folder.glob("**/scores.json")):
        result = json.loads(path.read_text())
        result["majority"] = {data: dict.fromkeys(scores, easy) for data, scores in result["scores"].items()}
        path.write_text(json.dumps(result))
        (path.parent / "DONE").unlink()
        RunDir(path.parent).mark_done()


def test_a_run_at_or_below_the_majority_is_named_under_the_table(tmp_path: Path) -> None:
    seeds(tmp_path / "low", [0.72, 0.406], optim__lr=1e-3)
    seeds(tmp_path / "equal", [0.5, 0.5], optim__lr=1e-4)
    seeds(tmp_path / "fine", [0.7, 0.8], optim__lr=1e-5)
    with_majority(tmp_path, 0.5)
    said = [line for line in table.table([tmp_path]).remarks if "majority" in line]
    assert said == [
        "toy/nli:dev: 2 of 2 runs of optim.lr=0.0001 are not better than the majority baseline "
        "(seed-1: 50.00 against 50.00; seed-2: 50.00 against 50.00); see docs/after-an-alarm.md",
        "toy/nli:dev: 1 of 2 runs of optim.lr=0.001 is not better than the majority baseline "
        "(seed-2: 40.60 against 50.00); see docs/after-an-alarm.md",
    ]


def test_of_an_error_more_is_not_better_than_the_majority_and_a_perfect_run_is_not_named(tmp_path: Path) -> None:
    run(tmp_path / "mse", {"rmse": 1.2})
    with_majority(tmp_path, 1.0)
    assert any("(mse: 1.2000 against 1.0000)" in line for line in table.table([tmp_path]).remarks)
    run(tmp_path / "all" / "right", 1.0)
    with_majority(tmp_path / "all", 1.0)
    assert not any("majority" in line for line in table.table([tmp_path / "all"]).remarks)


def test_what_many_rows_say_is_said_once_under_a_pivot(tmp_path: Path) -> None:
    for number, (lr, size) in enumerate([(1e-5, 16), (1e-5, 32), (2e-5, 16), (2e-5, 32)]):
        alarms = ["training loss 0.691 is near ln 2"] if number else []
        run(tmp_path / str(number), 0.5, alarms=alarms, optim__lr=lr, train__batch_size=size)
    said = table.markdown(table.table([tmp_path]), "train.batch_size")
    assert said.count("ALARM") == 1
    assert "3 of 4 rows: ALARM in 1 of 1 seed: training loss 0.691 is near ln 2" in said


def test_time_in_all_counts_every_run_once(tmp_path: Path) -> None:
    """Though each has a row for dev and one for dev_mismatched."""
    for seed in (1, 2):
        found = RunDir(run(tmp_path / str(seed), 0.5, seed=seed, more={"toy/nli:dev_mismatched": {"accuracy": 0.4}}))
        found.metrics_file.path.write_text('{"step": 20, "seconds": 30.0}\n')
        found.done.write("2026-01-01T00:00:00Z")
    said = table.markdown(table.table([tmp_path]))
    assert said.count("10.0 min") == 2
    assert "2 runs trained for 20.0 min in all, each on one device" in said


def test_no_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs below"):
        table.table([tmp_path])


# A sweep's folder


def spec(name: str, config: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"id": name[:8], "name": name, "config": config, "axes": {}, "needs": [], "unknown": 1, **more}


def test_W16_what_left_the_plan_leaves_the_table_unless_all(tmp_path: Path) -> None:
    low, high = tree(optim__lr=1e-5), tree(optim__lr=1e-4)
    run(tmp_path / "low", 0.7, config=low)
    run(tmp_path / "high", 0.8, config=high)
    plan = {"runs": [spec("low", low, variant="slow"), spec("more", tree(seed=2, optim__lr=1e-5))]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    found = table.table([tmp_path])
    assert found.settings == []
    assert "70.00 (1 of 2)" in table.markdown(found)
    assert "1 queued" in table.markdown(found)
    assert any(
        "1 run is no longer in the plan of its sweep and is left out (--all includes it)" in remark
        for remark in found.remarks
    )
    assert table.table([tmp_path], every=True).settings == ["optim.lr"]
    assert table.table([tmp_path], "slow").rows[0].more["is_baseline"]
    with pytest.raises(UserError, match=r"no row matches it.*no longer in the plan of their sweep match it \(--all"):
        table.table([tmp_path], "optim.lr=1e-4")
    with pytest.raises(UserError, match=r"what varies: \w+$"):
        table.table([tmp_path], "optim.lr=1e-3")
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(UserError, match=r"plan\.json is damaged"):
        table.table([tmp_path])


def test_a_planned_run_that_failed_before_it_began_is_failed(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "status.json").write_text(json.dumps({"state": "oom", "error": "a\nOut of memory\n"}))
    (tmp_path / "plan.json").write_text(json.dumps({"runs": [spec("a", tree()), spec("b", tree(seed=2))]}))
    said = table.markdown(table.table([tmp_path]))
    assert "70.00 (1 of 2 ✗)" in said
    assert "seed 2 oom: Out of memory" in said


@pytest.mark.parametrize("entry", [{"name": "moods"}, {"name": "table/moods"}, {"train": "x/moods.csv"}])
def test_a_queued_run_of_own_files_is_known_by_its_task(tmp_path: Path, entry: dict[str, str]) -> None:
    first, second = tree(), tree(seed=2, optim__lr=1.0)
    for one in (first, second):
        one["tasks"] = [{"kind": "table", **entry}]
    run(tmp_path / "a", 0.7, "table/moods", config=first)
    (tmp_path / "plan.json").write_text(json.dumps({"runs": [spec("a", first), spec("b", second)]}))
    rows = [(row.settings["optim.lr"], row.data, row.summary.n) for row in table.table([tmp_path]).rows]
    assert rows == [("2e-05", "table/moods:dev", 1), ("1", "table/moods", 0)]


def test_what_a_sweep_changed_to_save_memory_makes_no_other_row(tmp_path: Path) -> None:
    plan = [spec(str(seed), tree(seed=seed, train__token_budget=100)) for seed in (1, 2)]
    run(tmp_path / "1", 0.7, config=tree(seed=1, train__token_budget=100))
    run(tmp_path / "2", 0.8, config=tree(seed=2, train__token_budget=50), seed=2)
    assert len(table.table([tmp_path]).rows) == 2
    (tmp_path / "plan.json").write_text(json.dumps({"runs": plan}))
    assert [row.summary.n for row in table.table([tmp_path]).rows] == [2]


def test_a_run_that_went_on_with_other_settings_says_so(tmp_path: Path) -> None:
    RunDir(run(tmp_path / "a", 0.7)).notice("continued with changed settings: optim.lr: 1 there, 2 now")
    RunDir(tmp_path / "a").notice("threads was 1, is now 2")
    assert table.table([tmp_path]).rows[0].notes == ["continued with changed settings: optim.lr: 1 there, 2 now"]


# Against a baseline


def test_differences_are_taken_seed_by_seed(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.70, 0.75, 0.60, 0.9], optim__lr=2e-5)
    seeds(tmp_path / "b", [0.72, 0.78, 0.61], optim__lr=3e-5)
    found = table.table([tmp_path], "optim.lr=2e-5")
    more = only(found, optim__lr="3e-05").more
    assert more["difference"] == pytest.approx(0.02)
    assert more["pairs"] == 3
    half = 4.302653 * 0.01 / 3**0.5  # Student's factor for two degrees of freedom
    assert (more["low"], more["high"]) == pytest.approx((0.02 - half, 0.02 + half), abs=1e-6)
    assert more["p_t"] == pytest.approx(0.0742, abs=1e-4)  # t = 3.4641 with 2 degrees of freedom
    assert more["p_flips"] == 2 / 8
    assert only(found, optim__lr="2e-05").more["difference"] is None
    assert not more["better"]  # the mean of all seeds of the baseline is higher
    assert any("cannot give less than 0.25" in remark for remark in found.remarks)


@pytest.mark.parametrize("baseline", ["optim.lr=2e-5", "optim.lr=0.00002", "2e-5", "seed-1"])
def test_a_baseline_is_named_in_many_ways(tmp_path: Path, baseline: str) -> None:
    seeds(tmp_path / "a", [0.70, 0.75], optim__lr=2e-5)
    seeds(tmp_path / "b", [0.72, 0.78], first=3, optim__lr=3e-5)
    found = table.table([tmp_path], baseline)
    assert only(found, optim__lr="2e-05").more["is_baseline"]
    other = only(found, optim__lr="3e-05")
    assert other.more["difference"] == pytest.approx(0.025)  # no seed in common: the means
    assert other.more["pairs"] == 0
    assert other.more["p_t"] is None
    assert "**75.00 ± 4.24 (2)**" in table.markdown(found)


def test_a_cell_of_a_grid_is_compared_with_its_neighbour(tmp_path: Path) -> None:
    for batch in (16, 32):
        seeds(tmp_path / f"plain-{batch}", [0.5 + batch / 100] * 2, train__batch_size=batch)
        method = {"kind": "freelb", "adv_lr": 0.1}
        seeds(tmp_path / f"freelb-{batch}", [0.6 + batch / 100] * 2, train__batch_size=batch, method=method)
    for baseline in ("method.kind=plain", "plain"):
        found = table.table([tmp_path], baseline)
        assert [row.more["difference"] for row in found.rows if not row.more["is_baseline"]] == pytest.approx([0.1] * 2)
    assert any("2 comparisons" in remark for remark in found.remarks)


def test_a_baseline_that_could_be_several_rows_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "plain", 0.7)
    for rate in (0.1, 0.2):
        run(tmp_path / str(rate), 0.8, method={"kind": "freelb", "adv_lr": rate})
    with pytest.raises(UserError, match=r"has several \(method\.kind=freelb, method\.adv_lr=0\.1; .*be more specific"):
        table.table([tmp_path], "freelb")


def test_an_unknown_baseline_says_what_varies(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7, optim__lr=2e-5)
    run(tmp_path / "b", 0.7, optim__lr=3e-5)
    with pytest.raises(UserError, match=r"what varies: optim\.lr"):
        table.table([tmp_path], "optim.lr=9")


def test_holm_adjusts_over_the_whole_table(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.70, 0.75, 0.60], optim__lr=1e-5)
    seeds(tmp_path / "b", [0.72, 0.78, 0.61], optim__lr=2e-5)
    seeds(tmp_path / "c", [0.80, 0.86, 0.69], optim__lr=3e-5)
    rows = table.table([tmp_path], "1e-5").rows[1:]
    raw, adjusted = [row.more["p_t"] for row in rows], [row.more["p_holm"] for row in rows]
    assert adjusted == pytest.approx([max(raw), 2 * min(raw)])


def test_W36_pivoted_columns_keep_difference_interval_and_test(tmp_path: Path) -> None:
    for batch in (16, 32):
        seeds(tmp_path / f"a{batch}", [0.70, 0.75, 0.60], optim__lr=1e-5, train__batch_size=batch)
        seeds(tmp_path / f"b{batch}", [0.80, 0.86, 0.69], optim__lr=3e-5, train__batch_size=batch)
    found = table.table([tmp_path], "optim.lr=1e-5")
    p = found.rows[-1].more["p_holm"]
    text = table.markdown(found, "train.batch_size")
    low, high = found.rows[-1].more["low"], found.rows[-1].more["high"]
    assert f"; +10.00 [{100 * low:.2f}, {100 * high:.2f}], p {p:.3f}" in text
    assert "68.33 ± 7.64 (3); baseline" in text
    assert "McNemar" in text.rpartition("|")[2]  # what is not in the cells is said
    assert f"[{100 * low:.2f}, {100 * high:.2f}], p" in table.csv_text(found, "train.batch_size")
    assert "baseline" not in table.markdown(table.table([tmp_path]), "train.batch_size")


def test_W36_every_kind_of_test_is_adjusted(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.70, 0.75, 0.60, 0.66], optim__lr=1e-5)
    seeds(tmp_path / "b", [0.72, 0.78, 0.61, 0.65], optim__lr=2e-5)
    seeds(tmp_path / "c", [0.80, 0.86, 0.69, 0.71], optim__lr=3e-5)
    rows = table.table([tmp_path], "1e-5").rows[1:]
    raw, adjusted = [row.more["p_flips"] for row in rows], [row.more["p_flips_holm"] for row in rows]
    assert adjusted == pytest.approx(stats.holm(raw))
    assert "p (flips, Holm)" in table.markdown(table.table([tmp_path], "1e-5"))


def test_W35_a_table_has_the_interval_of_each_mean_from_three_seeds_on(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.70, 0.75, 0.80], optim__lr=1e-5)
    seeds(tmp_path / "b", [0.72, 0.78], optim__lr=2e-5)
    found = table.table([tmp_path], "1e-5")
    three, two = found.rows
    assert three.interval == pytest.approx((0.75 - 4.302653 * 0.05 / 3**0.5, 0.75 + 4.302653 * 0.05 / 3**0.5), abs=1e-6)
    assert (two.interval, two.more["low"]) == (None, None)
    assert "| 62.58 to 87.42 |" in table.markdown(found)
    assert found.to_dict()[0]["mean_low"] == pytest.approx(0.625793, abs=1e-5)


# Over examples


def nli_run(folder: Path, wrong: set[int], seed: int, **settings: Any) -> None:
    """A run on toy/nli that answers all but some examples rightly."""
    task = Toy(part="nli", dev_rows=40, train_rows=20, test_rows=20)
    examples, origin = task.examples("dev"), task.origin("dev")
    sizes = {f"tasks__0__{name}": getattr(task, name) for name in ("train_rows", "dev_rows", "test_rows")}
    about = {"dev": {"digest": origin.digest, "rows": origin.rows}}
    run(folder, 1 - len(wrong) / 40, seed=seed, origins=about, **sizes, **settings)
    says = {"entailment": "neutral", "neutral": "contradiction", "contradiction": "entailment"}
    rows = [
        {"id": e.id, "prediction": says[str(e.label)] if place in wrong else e.label}
        for place, e in enumerate(examples)
    ]
    RunDir(folder).write_predictions("toy/nli", "dev", rows)


def test_mcnemar_counts_examples_that_one_alone_has_right(tmp_path: Path) -> None:
    nli_run(tmp_path / "a", set(range(10)), 1)
    nli_run(tmp_path / "b", {9, 10}, 1, optim__lr=1e-3)
    more = table.table([tmp_path], "optim.lr=2e-5").rows[1].more
    assert more["p_mcnemar"] == pytest.approx(2 * (1 + 10) / 2**10)  # 9 against 1
    assert more["mcnemar_seeds"] == 1


def test_no_test_over_examples_without_the_same_rows(tmp_path: Path) -> None:
    nli_run(tmp_path / "a", {1}, 1)
    nli_run(tmp_path / "b", {2}, 1, optim__lr=1e-3)
    RunDir(tmp_path / "b").update_info(data={"dev": {"digest": "other"}})
    found = table.table([tmp_path], "optim.lr=2e-5")
    assert found.rows[1].more["p_mcnemar"] is None
    assert found.rows[1].more["difference"] is None
    assert any("not all configurations were scored on the same rows" in remark for remark in found.remarks)
    for name in "ab":
        RunDir(tmp_path / name).update_info(data={"dev": {"digest": "changed"}})
    found = table.table([tmp_path], "optim.lr=2e-5")
    assert any("its rows are not the ones" in remark for remark in found.remarks)


def file_run(folder: Path, trained: Path, asked: Path, right: int, **settings: Any) -> None:
    """A run on one file that was evaluated on another, whose first rows it answers rightly."""
    config = tree(**settings)
    config["tasks"] = [{"kind": "table", "train": str(trained), "dev": str(trained)}]
    dev = {"dev": {"digest": task_of(config).origin("dev").digest, "rows": 12}}
    made = RunDir(run(folder, 0.5, task="table/reviews", config=config, origins=dev))
    task = {"kind": "table", "test": str(asked)}
    read = task_of({"tasks": [task]})
    key = f"table/{asked.stem}:test"
    about = {"scores": {"accuracy": right / 12}, "main": "accuracy", "task": task, "digest": read.origin("test").digest}
    made.write_scores(made.read_scores() | {"evaluations": {key: about}})
    other = {"good": "bad", "bad": "good"}
    rows = [
        {"id": e.id, "prediction": e.label if place < right else other[str(e.label)]}
        for place, e in enumerate(read.examples("test"))
    ]
    made.write_predictions(f"table/{asked.stem}", "test", rows)


@pytest.mark.parametrize("name", ["reviews.csv", "gold.csv"])
def test_mcnemar_counts_the_examples_of_an_evaluated_file(tmp_path: Path, name: str) -> None:
    """Also of one that is called as the file of the training, which has no such split."""
    (tmp_path / "elsewhere").mkdir()
    trained, asked = tmp_path / "reviews.csv", tmp_path / "elsewhere" / name
    for path, word in ((trained, "film"), (asked, "book")):
        write_csv(path, ["text", "label"], [(f"{word} {i}", ("good", "bad")[i % 2]) for i in range(12)])
    file_run(tmp_path / "runs" / "a", trained, asked, 2)
    file_run(tmp_path / "runs" / "b", trained, asked, 10, optim__lr=1e-3)
    found = table.table([tmp_path / "runs"], "optim.lr=2e-5")
    data = f"table/{asked.stem}:test"
    assert next(row for row in found.rows if row.data == data and row.settings["optim.lr"] == "0.001").more[
        "p_mcnemar"
    ] == pytest.approx(2 / 2**8)  # 8 against 0
    assert not any(f"no test over examples of {data}" in remark for remark in found.remarks)
    asked.unlink()
    remarks = table.table([tmp_path / "runs"], "optim.lr=2e-5").remarks
    assert any(f"no test over examples of {data}" in remark for remark in remarks)


# Best of many, order


def test_the_best_of_many_comes_with_what_it_is_worth(tmp_path: Path) -> None:
    for place, value in enumerate([0.5, 0.6, 0.7, 0.8]):
        run(tmp_path / str(place), value, optim__lr=10.0**-place)
    remark = next(r for r in table.table([tmp_path]).remarks if "best of" in r)
    assert "80.00 is the best of 4 configurations" in remark
    assert "65.00 of 1, 71.25 of 2" in remark


def test_rows_are_sorted_by_a_column(tmp_path: Path) -> None:
    for rate, value in ((2.0, 0.5), (10.0, 0.7), (1.0, 0.6)):
        run(tmp_path / str(rate), value, optim__lr=rate)
    order = {
        sort: [row.settings["optim.lr"] for row in table.table([tmp_path], sort=sort).rows]
        for sort in (None, "mean", "optim.lr")
    }
    assert order[None] == order["optim.lr"] == ["1", "2", "10"]
    assert order["mean"] == ["10", "1", "2"]
    with pytest.raises(UserError, match="choose from mean"):
        table.table([tmp_path], sort="nothing")


# Shapes


def test_a_setting_s_values_become_columns(tmp_path: Path) -> None:
    for batch in (16, 32):
        for rate in (0.1, 0.2):
            seeds(tmp_path / f"{batch}-{rate}", [batch / 100, rate], train__batch_size=batch, optim__lr=rate)
    lines = table.markdown(table.table([tmp_path]), "train.batch_size").splitlines()
    assert lines[0] == "| optim.lr | data | metric | train.batch_size=16 | train.batch_size=32 |"
    assert lines[2] == "| 0.1 | toy/nli:dev | accuracy | 13.00 ± 4.24 (2) | 21.00 ± 15.56 (2) |"
    assert len([line for line in lines if line.startswith("| 0.")]) == 2
    with pytest.raises(UserError, match=r"does not vary; choose from optim\.lr, train\.batch_size, data"):
        table.markdown(table.table([tmp_path]), "train.epochs")


def test_tasks_become_columns_although_their_recipes_differ(tmp_path: Path) -> None:
    run(tmp_path / "a", 0.7, "toy/nli", train__epochs=3)
    run(tmp_path / "b", 0.8, "toy/paraphrase", train__epochs=9)
    lines = table.markdown(table.table([tmp_path]), "data").splitlines()
    assert lines[0] == "| toy/nli:dev accuracy | toy/paraphrase:dev accuracy |"
    assert lines[2] == "| 70.00 (1) | 80.00 (1) |"
    assert "- differs only from task to task and is not shown: train.epochs" in lines


def test_latex_is_escaped(tmp_path: Path) -> None:
    seeds(tmp_path / "a", [0.7, 0.8], method={"kind": "my_method.py:A&B"})
    seeds(tmp_path / "b", [0.6, 0.8], method={"kind": "50%$#{}~^\\"})
    said = table.latex(table.table([tmp_path]))
    assert r"my\_method.py:A\&B" in said
    assert r"50\%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in said
    assert r"75.00 $\pm$ 7.07 (2)" in said
    body = [line for line in said.splitlines() if line.endswith(r"\\")]
    assert len({line.replace(r"\&", "").count("&") for line in body}) == 1


def test_csv_and_json_hold_unrounded_numbers(tmp_path: Path) -> None:
    seeds(tmp_path, [0.7, 0.8, 0.85])
    found = table.table([tmp_path])
    header, line = table.csv_text(found).splitlines()
    assert dict(zip(header.split(","), line.split(","), strict=True))["mean"] == repr(found.rows[0].summary.mean)
    rows = json.loads(table.json_text(found))["rows"]
    assert rows[0]["values"] == {"1": 0.7, "2": 0.8, "3": 0.85}
    assert rows[0]["seconds"] == 10.0


# Runs that were trained on other tasks than those they are scored on


def several(folder: Path, tasks: list[str], score: float, seed: int = 1) -> Path:
    """A run of several tasks with a score of each, as `train` and the task-selection studies leave them."""
    config = tree(tasks[0], seed)
    config["tasks"] = [{"name": name, "data": None, "weight": 1.0, "objective": {}} for name in tasks]
    run(folder, score, tasks[0], seed, config=config)
    made = RunDir(folder)
    made.update_info(task=" + ".join(tasks), tasks=tasks)
    scores = {f"{name}:dev": {"accuracy": score} for name in tasks}
    made.write_scores({"scores": scores, "main": dict.fromkeys(scores, "accuracy"), "majority": {}, "chosen": {}})
    made.mark_done()
    return folder


def test_W40_a_run_of_one_task_and_one_of_several_are_rows_of_their_own(tmp_path: Path) -> None:
    run(tmp_path / "alone", 0.7, "toy/nli")
    several(tmp_path / "both", ["toy/nli", "toy/topic"], 0.8)
    several(tmp_path / "three", ["toy/nli", "toy/topic", "toy/sentiment"], 0.9)
    several(tmp_path / "three-2", ["toy/nli", "toy/topic", "toy/sentiment"], 0.8, seed=2)
    found = table.table([tmp_path])
    nli = {row.settings["tasks"]: row.summary.n for row in found.rows if row.data == "toy/nli:dev"}
    assert nli == {"toy/nli": 1, "toy/nli + toy/topic": 1, "toy/nli + toy/topic + toy/sentiment": 2}
    assert not any("has the settings" in remark for remark in found.remarks)
    assert "toy/nli + toy/topic" in table.markdown(found)


def test_W40_a_failed_run_of_several_tasks_is_no_missing_seed_of_one(tmp_path: Path) -> None:
    run(tmp_path / "alone", 0.7, "toy/nli")
    config = tree("toy/nli", 2)
    config["tasks"] = [config["tasks"][0], {**config["tasks"][0], "name": "toy/topic"}]
    run(tmp_path / "both", None, "toy/nli + toy/topic", 2, state="failed", config=config)
    rows = {row.settings["tasks"]: len(row.missing) for row in table.table([tmp_path]).rows}
    assert rows == {"toy/nli": 0, "toy/nli + toy/topic": 1}


def test_W40_runs_of_different_tasks_keep_their_evaluations_on_a_third_one(tmp_path: Path) -> None:
    for name in ("toy/nli", "toy/topic"):
        run(tmp_path / name.replace("/", "-"), 0.7, name)
        made = RunDir(tmp_path / name.replace("/", "-"))
        about = {"scores": {"accuracy": 0.5}, "main": "accuracy", "rows": 3, "heads": [name]}
        made.write_scores(made.read_scores() | {"evaluations": {"toy/hans:dev": about}})
        made.mark_done()
    found = table.table([tmp_path])
    assert [row.settings["tasks"] for row in found.rows if row.data == "toy/hans:dev"] == ["toy/nli", "toy/topic"]
    assert not any("has the settings" in remark for remark in found.remarks)


# Nothing of the machine


def test_W41_a_table_has_no_absolute_paths_and_tells_equal_names_apart(tmp_path: Path) -> None:
    home = tmp_path / "home" / "me"
    for place, name in enumerate(("one/encoder", "two/encoder", "three/other")):
        run(tmp_path / str(place), 0.7, model__name=str(home / name), tasks__0__subset=str(home / "first"))
    run(
        tmp_path / "bad",
        None,
        state="failed",
        model__name=str(home / "three/other"),
        seed=2,
        tasks__0__subset=str(home / "first"),
    )
    RunDir(tmp_path / "bad").update_info(ended={"state": "failed", "error": f"{home}/data/x.csv: has no rows"})
    found = table.table([tmp_path])
    assert [row.settings["model.name"] for row in found.rows[:3]] == ["one/encoder", "other", "two/encoder"]
    for text in (table.markdown(found), table.csv_text(found, None), table.json_text(found), table.latex(found, None)):
        assert str(home) not in text
    assert "…/x.csv: has no rows" in table.markdown(found)
    meant = table.table([tmp_path], f"model.name={home}/two/encoder")
    assert [row.settings["model.name"] for row in meant.rows if row.more["is_baseline"]] == ["two/encoder"]
