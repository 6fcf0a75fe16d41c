"""A sweep file becomes run specs: which, in which order, under which names."""

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.cli import main
from encodery.config import load
from encodery.errors import UserError
from encodery.runs.identity import identity_of_config
from encodery.runs.sweep_spec import RunSpec, read_about, read_plan, write_plan
from encodery.sweep.plan import Planner, commands, name_of, short
from encodery.sweep.sweep_file import parse, read
from encodery.training import build
from tests.sweep.small_sweeps import planned, sweep_file
from tests.toolbox.timing import least

SEED_GRID = """
fixed: {method.kind: freelb}
grid:
  method.adv_lr: [0.05, 0.1]
  train.batch_size: [16, 32]
zip:
  - {method.init_mag: 0.1, method.max_norm: 0.1}
  - {method.init_mag: 0.2, method.max_norm: 0.2}
"""


def axes(specs: list[RunSpec], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(spec.axes.get(key) for key in keys) for spec in specs]


def value(spec: RunSpec, key: str) -> Any:
    assert spec.config is not None
    return load.flat(spec.config)[key]


def test_W9_grid_zip_and_seeds_multiply(tmp_path: Path) -> None:
    specs = planned(SEED_GRID + "seeds: [1, 2, 3]\n", tmp_path)
    expected = [
        (lr, size, mag, mag, seed)
        for seed in (1, 2, 3)
        for lr, size, mag in itertools.product((0.05, 0.1), (16, 32), (0.1, 0.2))
    ]
    keys = ("method.adv_lr", "train.batch_size", "method.init_mag", "method.max_norm", "seed")
    assert axes(specs, *keys) == expected
    assert [tuple(value(s, k) for k in (*keys[:4], "seed.init")) for s in specs] == expected
    assert len({spec.id for spec in specs}) == len({spec.name for spec in specs}) == 24


def test_W9_exclude_removes_the_stated_ones(tmp_path: Path) -> None:
    text = (
        SEED_GRID
        + "seeds: 3\nexclude: [{train.batch_size: 32, method.adv_lr: 5e-2}, {seed: 3, method.init_mag: 0.2}]\n"
    )
    found = axes(planned(text, tmp_path), "train.batch_size", "method.adv_lr", "method.init_mag", "seed")
    whole = set(itertools.product((16, 32), (0.05, 0.1), (0.1, 0.2), (1, 2, 3)))
    assert set(found) == {(b, lr, m, s) for b, lr, m, s in whole if (b, lr) != (32, 0.05) and (s, m) != (3, 0.2)}


def test_W9_duplicates_across_variants_run_once(tmp_path: Path) -> None:
    text = """
grid: {method.adv_lr: [0.05, 0.1], train.batch_size: [16, 32]}
variants:
  freelb: {method.kind: freelb}
  plain: {method.kind: plain}
  again: {method: freelb, optim.lr: 2e-5}
"""
    specs = planned(text, tmp_path)
    found = [(s.variant, s.axes.get("method.adv_lr"), s.axes["train.batch_size"]) for s in specs]
    freelb = [("freelb", lr, size) for lr in (0.05, 0.1) for size in (16, 32)]
    assert found == [*freelb, ("plain", None, 16), ("plain", None, 32)]


def test_a_variant_overrules_grid_and_fixed(tmp_path: Path) -> None:
    text = """
fixed: {method.kind: freelb, train.epochs: 2}
grid: {method.adv_lr: [0.05, 0.1]}
variants: {main: {}, zero: {method: {adv_lr: 0.7}, train.epochs: 5}}
"""
    specs = planned(text, tmp_path)
    assert [(s.variant, value(s, "method.adv_lr"), value(s, "train.epochs")) for s in specs] == [
        ("main", 0.05, 2.0), ("main", 0.1, 2.0), ("zero", 0.7, 5.0),
    ]  # fmt: skip


def test_a_variant_extends_its_own_recipe_and_keeps_its_epochs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: base.yaml\ntrain: {epochs: 7}\noptim: {lr: 1e-3}\n")
    (tmp_path / "b.yaml").write_text("extends: base.yaml\ntrain: {epochs: 2}\nmethod: freelb\n")
    text = "variants: {a: {extends: a.yaml}, b: {extends: b.yaml, grid: {method.steps: [2, 3]}}}\n"
    specs = planned(text + "fixed: {optim.clip: 0.5}\n", tmp_path)
    assert [(s.variant, value(s, "train.epochs"), s.axes.get("method.steps")) for s in specs] == [
        ("a", 7.0, None), ("b", 2.0, 2), ("b", 2.0, 3),
    ]  # fmt: skip
    assert {value(s, "optim.clip") for s in specs} == {0.5}


def test_an_axis_over_methods_leaves_out_what_one_does_not_have(tmp_path: Path) -> None:
    specs = planned("grid: {method.adv_lr: [0.1, 0.2], method: [plain, freelb]}\n", tmp_path)
    assert axes(specs, "method.kind", "method.adv_lr") == [("plain", None), ("freelb", 0.1), ("freelb", 0.2)]


def test_a_mapping_as_a_value_of_an_axis_is_laid_over_the_config(tmp_path: Path) -> None:
    keys = ("method.kind", "method.adv_lr")
    mixed = planned("grid: {method: [freelb, {kind: pgd, adv_lr: 0.3}]}\n", tmp_path)
    assert [tuple(value(spec, key) for key in keys) for spec in mixed] == [("freelb", 0.1), ("pgd", 0.3)]
    assert mixed[1].name.endswith("-kind-pgd-adv_lr-0.3-seed-1")
    two = "grid: {method: [{adv_lr: 0.2, kind: freelb}, {kind: freelb, adv_lr: 0.3}, plain]}\n"
    assert axes(planned(two, tmp_path), *keys) == [("freelb", 0.2), ("freelb", 0.3), ("plain", None)]
    drawn = "search: {random: {n: 3, space: {method: [{kind: pgd, adv_lr: 0.3}]}}}\n"
    assert [tuple(value(spec, key) for key in keys) for spec in planned(drawn, tmp_path)] == [("pgd", 0.3)]


def test_a_variant_and_the_command_line_overrule_an_axis_of_mappings(tmp_path: Path) -> None:
    grid = "grid: {method: [{kind: freelb, adv_lr: 0.2}, {kind: pgd, adv_lr: 0.3}]}\n"
    specs = planned(grid + "variants: {a: {}, b: {method: plain}}\n", tmp_path)
    assert [(s.variant, value(s, "method.kind")) for s in specs] == [("a", "freelb"), ("a", "pgd"), ("b", "plain")]
    assert [value(spec, "method.kind") for spec in planned(grid, tmp_path, "--method", "plain")] == ["plain"]


def test_an_axis_over_tasks_goes_before_their_options(tmp_path: Path) -> None:
    text = "grid: {tasks.fraction: [0.5, 1.0], tasks: [toy/nli, toy/paraphrase]}\nfixed: {tasks.train_rows: 8}\n"
    found = axes(planned(text, tmp_path), "tasks.fraction", "tasks")
    assert found == list(itertools.product((0.5, 1.0), ("toy/nli", "toy/paraphrase")))


def test_settings_at_the_top_make_a_config_a_sweep_of_one(tmp_path: Path) -> None:
    [spec] = planned("optim: {lr: 1e-3}\nseed: 4\n", tmp_path)
    assert (value(spec, "optim.lr"), spec.axes) == (1e-3, {"seed": 4})


def test_the_id_is_the_identity_that_the_run_itself_writes_down(tmp_path: Path) -> None:
    for spec in planned(SEED_GRID, tmp_path)[:2]:
        resolved = load.load(dict(spec.config or {}))
        assert identity_of_config(resolved, build.find_inputs(resolved).digests)[:8] == spec.id


def test_own_files_keep_their_kind_beside_the_name_that_they_get(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    files = "{kind: table, train: mine.jsonl, dev: mine.jsonl, name: tickets}"
    text = f"model: {{new: {{kind: bert, size: tiny}}}}\ntasks: {files}\ngrid: {{optim.lr: [1e-4, 2e-4]}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    specs = Planner(read(str(tmp_path / "mine.yaml")), tmp_path / "out").specs()
    tasks = [task for spec in specs for task in (spec.config or {})["tasks"]]
    assert [(task["kind"], task["name"]) for task in tasks] == [("table", "tickets")] * 2


def test_relative_paths_work_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("text,label\ngood,yes\nbad,no\n")
    (tmp_path / "mine.py").write_text(
        "from encodery.methods.plain import Plain\nclass Mine(Plain):\n    '''Mine.'''\n    x: int = 1\n"
    )
    text = """
tasks: {kind: table, form: single, train: rows.csv, dev: rows.csv, text: text, label: label}
method.kind: mine.py:Mine
grid: {method.x: [1, 2]}
"""
    (tmp_path / "sweep.yaml").write_text("model: {new: {}}\n")
    one, two = planned(text.replace("base: base.yaml", ""), tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resolved = load.load(dict(one.config or {}))
    assert identity_of_config(resolved, build.find_inputs(resolved).digests)[:8] == one.id != two.id


def test_W16_adding_a_value_keeps_the_other_runs_and_their_folders(tmp_path: Path) -> None:
    before = planned("grid: {optim.lr: [1e-4]}\nseeds: 2\n", tmp_path)
    for spec in before:
        (tmp_path / "out" / spec.name).mkdir(parents=True)
    after = planned("seeds: 3\ngrid: {train.batch_size: [32], optim.lr: [3e-4, 1e-4]}\n", tmp_path)
    assert {spec.name for spec in before} < {spec.name for spec in after}
    assert len({spec.id for spec in after} - {spec.id for spec in before}) == 4


def test_W16_the_order_of_keys_and_values_changes_no_id(tmp_path: Path) -> None:
    one = planned("grid: {optim.lr: [1e-4, 3e-4], train.batch_size: [8, 16]}\n", tmp_path)
    two = planned("grid: {train.batch_size: [16, 8], optim.lr: [0.0003, 0.0001]}\n", tmp_path)
    assert {spec.id for spec in one} == {spec.id for spec in two}


def test_W16_a_deleted_value_is_not_in_the_plan(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_plan(tmp_path / "out", planned("grid: {optim.lr: [1e-4, 3e-4]}\n", tmp_path))
    write_plan(tmp_path / "out", planned("grid: {optim.lr: [1e-4]}\n", tmp_path), {"metric": {"mode": "min"}})
    assert axes(read_plan(tmp_path / "out"), "seed") == [(1,)]
    assert read_about(tmp_path / "out") == {"metric": {"mode": "min"}}


def test_a_plan_survives_writing_and_reading(tmp_path: Path) -> None:
    specs = planned(SEED_GRID, tmp_path)
    write_plan(tmp_path, specs)
    assert read_plan(tmp_path) == specs


@pytest.mark.slow
def test_W21_ten_thousand_runs_plan_in_five_seconds(tmp_path: Path) -> None:
    text = "fixed: {method.kind: freelb}\nseeds: 5\ngrid:\n"
    text += "  optim.lr: log(1e-6, 1e-3, 20)\n  method.adv_lr: linspace(0, 1, 10)\n  train.batch_size: range(8, 18)\n"
    planned("fixed: {method.kind: freelb}\n", tmp_path)  # files of components are imported once, however many the runs

    def seconds(attempt: int) -> float:
        begin = time.process_time()
        specs = planned(text, tmp_path)
        write_plan(tmp_path, specs)
        spent = time.process_time() - begin
        assert (len(specs), len({spec.id for spec in specs})) == (10_000, 10_000)
        return spent

    assert least(seconds, 5) < 5


def test_W21_unicode_and_spaces_in_paths_and_values(tmp_path: Path) -> None:
    folder = tmp_path / "ünï cödé"
    folder.mkdir()
    specs = planned("variants: {größe eins: {optim.lr: 1e-4}, 'b/../c': {optim.lr: 2e-4}}\n", folder)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,100}", spec.name) for spec in specs)
    assert {spec.variant for spec in specs} == {"größe eins", "b/../c"}


def test_two_runs_with_the_same_first_digits_stay_apart() -> None:
    taken: dict[str, str] = {}
    one, two = "0" * 64, "0" * 8 + "1" * 56
    assert [short(full, taken) for full in (one, two, one, two)] == ["0" * 8, two[:16], "0" * 8, two[:16]]


LITTLE = {"optim.lr": [1e-4, 2e-4, 3e-4], "train.batch_size": [8, 16, 24], "method.adv_lr": [0.1, 0.2]}


@pytest.mark.slow(0.5)
@settings(max_examples=15)
@given(st.data())
def test_expansion_equals_the_product_written_anew(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """grid × zip × seeds against itertools, with exclude as a filter and order as a sort."""
    folder = tmp_path_factory.mktemp("plan")
    keys = data.draw(st.lists(st.sampled_from(sorted(LITTLE)), unique=True, max_size=3))
    grid = {k: data.draw(st.lists(st.sampled_from(LITTLE[k]), unique=True, min_size=1, max_size=3)) for k in keys}
    ties = [{"optim.warmup": x, "optim.clip": x} for x in data.draw(st.lists(st.sampled_from([0.1, 0.2]), unique=True))]
    seeds = data.draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=3))
    out = {"seed": seeds[0], **({keys[0]: grid[keys[0]][0]} if keys else {})} if data.draw(st.booleans()) else None
    tree: dict[str, Any] = {"fixed": {"method.kind": "freelb"}, "grid": grid, "zip": ties, "seeds": seeds}
    lines = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    wanted = [line | tie | {"seed": seed} for seed in seeds for line in lines for tie in (ties or [{}])]
    wanted = [w for w in wanted if not (out and all(w[k] == v for k, v in out.items()))]
    text = "\n".join(f"{key}: {json.dumps(val)}" for key, val in (tree | {"exclude": [out] if out else []}).items())
    found = [
        {k: value(s, "seed.init" if k == "seed" else k) for k in w}
        for s, w in zip(planned(text, folder), wanted, strict=True)
    ]
    assert found == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants: {base: {}, same: {train.batch_size: 16}, big: {train.batch_size: 32}}\nseeds: 2\n",
         "same is equal to base: trained once"),
        ("variants: {one: {optim.lr: 1e-3}, all: {grid: {optim.lr: [1e-3, 2e-3]}}}\n",
         "all and one have 1 run in common: trained once"),
        ("grid: {optim.lr: [1e-3, 2e-3]}\nexclude:\n  - {optim.lr: 64}\n  - {optim.lr: 1e-3}\n",
         "sweep.yaml:5: exclude: no run matches {optim.lr: 64}"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_remarked_on(tmp_path: Path, text: str, said: str) -> None:
    planner = Planner(sweep_file(f"train.batch_size: 16\n{text}", tmp_path), tmp_path / "out")
    planner.specs()
    assert planner.notes() == [said]


# Stages

STAGES = """
stages:
  first: {grid: {optim.lr: [1e-4, 2e-4]}, seeds: [1, 2]}
  then:
    needs: first
    model: stage:first
    variants: {nli: {tasks.name: toy/nli}, para: {tasks.name: toy/paraphrase}}
    seeds: 2
"""


@pytest.mark.slow
def test_a_later_stage_runs_on_every_run_of_the_earlier(tmp_path: Path) -> None:
    specs = planned(STAGES, tmp_path)
    first = [spec for spec in specs if spec.stage == "first"]
    then = [spec for spec in specs if spec.stage == "then"]
    assert (len(first), len(then)) == (4, 4 * 2 * 2)
    assert [spec.stage for spec in specs] == ["first"] * 4 + ["then"] * 16
    for spec in then:
        [need] = spec.needs
        [start] = [one for one in first if one.id == need]
        assert value(spec, "model.name") == str((tmp_path / "out" / start.name).resolve())
        assert spec.axes["model.name"] == start.name
        assert f"-from-{need}" in spec.name
    assert {(s.needs, s.variant, s.axes["seed"]) for s in then} == {
        ((one.id,), variant, seed) for one in first for variant in ("nli", "para") for seed in (1, 2)
    }
    assert [spec.axes["seed"] for spec in then] == [1] * 8 + [2] * 8


@pytest.mark.slow
def test_only_what_hangs_on_a_change_gets_a_new_id(tmp_path: Path) -> None:
    before = planned(STAGES, tmp_path)
    after = planned(STAGES.replace("[1e-4, 2e-4]", "[1e-4, 5e-4]"), tmp_path)
    kept = {spec.id for spec in before} & {spec.id for spec in after}
    assert len(kept) == 2 + 8
    assert {spec.axes["optim.lr"] for spec in after if spec.id in kept and spec.stage == "first"} == {1e-4}


def test_a_stage_may_wait_without_a_reference(tmp_path: Path) -> None:
    specs = planned("stages: {a: {seeds: 2}, b: {needs: [a], optim.lr: 1e-3}}\n", tmp_path)
    assert specs[-1].needs == tuple(spec.id for spec in specs[:2])


def test_init_from_may_name_a_stage(tmp_path: Path) -> None:
    specs = planned("stages: {a: {}, b: {needs: a, fixed: {model.init_from: 'stage:a'}}}\n", tmp_path)
    assert value(specs[1], "model.init_from") == str((tmp_path / "out" / specs[0].name).resolve())
    assert specs[1].needs == (specs[0].id,)


# Errors name file, line and key

TPE = "search: {tpe: {space: {optim.lr: 'uniform(1e-5, 1e-4)'}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("method: freelb\ngrid: {method.adv_1r: [1]}\n", "sweep.yaml:3: method.adv_1r: unknown key of method freelb"),
        ("grid:\n  optim.lr: [0.1, fast]\n", 'sweep.yaml:3: optim.lr: expected a number, not "fast".'),
        ("gird: {optim.lr: [1]}\n", "sweep.yaml:2: gird: unknown key; did you mean grid?"),
        ("grid: {optim.lr: 0.1}\n", "sweep.yaml:2: grid.optim.lr: expected"),
        ("grid:\n  optim.lr: lgo(1, 2, 3)\n", "sweep.yaml:3: grid.optim.lr: there is no lgo(…) here"),
        ("zip: [{optim.lr: 1e-4}, {optim.clip: 1.0}]\n", "zip: every line sets the same keys"),
        ("zip: [{optim.lr: 1e-4}]\ngrid: {optim.lr: [1e-4]}\n", "sweep.yaml:2: zip: optim.lr is an axis of grid too"),
        ("exclude:\n  - {optim.lr: 1}\n", "sweep.yaml:3: exclude: optim.lr does not vary in this sweep"),
        ("variants: {a: {}}\n", "variants: a alone is what fixed is for"),
        ("seeds: [1, -1]\n", "seeds: expected whole numbers from 0 on, not -1"),
        ("seeds: [1, x]\n", "sweep.yaml:2: seeds"),
        ("limits: {timeout: soon}\n", "sweep.yaml:2: limits.timeout: expected a time such as 90s"),
        ("resources: {min_free_memory: 4 apples}\n", "sweep.yaml:2: resources.min_free_memory: expected a size"),
        ("resources: {per_run: 1.5}\n", "sweep.yaml:2: resources.per_run: expected a whole number of devices"),
        ("metric: {at: first}\n", "sweep.yaml:2: metric.at: expected another form"),
        ("search: {kind: tpe}\n", "tpe needs a space"),
        (TPE + "grid: {train.batch_size: [8]}\n", "tpe replaces grid"),
        ("search:\n  random:\n    space: {optim.lr: gauss(1)}\n", "sweep.yaml:4: search.space.optim.lr: there is"),
        ("grid: {}\nearly_stop: {rule: median}\n", "sweep.yaml:3: early_stop compares runs every 100 steps"),
        (
            "train.evaluate: 50 steps\ngrid: {tasks: [toy/nli, toy/similarity]}\nearly_stop: {rule: median}\n",
            "sweep.yaml:4: early_stop: the runs have different main metrics (accuracy, spearman); set the ",
        ),
        ("metric: {name: f1}\nearly_stop: {median: {every: 100}}\n", "sweep.yaml:3: early_stop compares runs every"),
        ("metric: {name: loss}\ntrain.log: 30\nearly_stop: {asha: {min: 100}}\n", "but train.log is '30'"),
        ("stages: {b: {needs: a}}\n", "sweep.yaml:2: stages.b.needs: there is no stage a"),
        ("stages: {a: {needs: b}, b: {needs: a}}\n", "depend on each other in a cycle"),
        ("stages: {a: {}, b: {model: 'stage:a'}}\n", "stage:a is not among the stages that b needs"),
        ("stages: {a b: {}}\n", "cannot be a name"),
        ("grid: {method.adv_1r: [1], method: [plain, freelb]}\n", "adv_1r: no method of this sweep has this key"),
        ("fixed: {method.adv_1r: 1}\ngrid: {method: [plain, freelb]}\n", "sweep.yaml:2: method.adv_1r: no method"),
        ("grid: {method.adv_lrr: [1], method: [plain, freelb]}\n", "has this key; did you mean method.adv_lr."),
        (
            "variants:\n  a: {method: freelb}\n  b: {method.adv_lr: 0.3}\n",
            "sweep.yaml:4: method.adv_lr: method plain has no adv_lr; methods with this key: ",
        ),
        ("variants: {a: {}, b: {method: {adv_lr: 0.3}}}\n", "method.adv_lr: method plain has no adv_lr; methods with"),
        (
            "grid: {method: [plain, {kind: freelb, adv_lrr: 0.3}]}\n",
            "sweep.yaml:2: method.adv_lrr: method freelb has no adv_lrr; did you mean method.adv_lr.",
        ),
        ("grid: {method: [{kind: freelb, 'a b': 1}]}\n", "sweep.yaml:2: method: 'a b' is not a key"),
        (
            "grid:\n  method: [{kind: freelb, adv_lr: 0.2}, plain]\n  method.adv_lr: [0.1]\n",
            "sweep.yaml:4: grid: method.adv_lr is set by two axes",
        ),
        ("grid: {method: [[freelb]]}\n", "sweep.yaml:2: method: expected"),
        ("fixed: {'a b': 1}\n", "'a b' is not a key"),
        ("extends: x.yaml\n", "base and extends are the same"),
        ("variants: {a: {extends: 3}, b: {}}\n", "extends: expected a file"),
    ],
)  # fmt: skip
def test_mistakes_name_file_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        planned(text, tmp_path)


@pytest.mark.parametrize("key", ["base", "extends"])
def test_settings_where_a_file_is_expected_are_answered_with_one_sentence(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError) as error:
        parse(f"seeds: 2\n{key}: {{model: petit}}\n", "sweep.yaml", tmp_path, "sweep")
    assert str(error.value) == (
        f"sweep.yaml:2: {key}: expected a config file, recipe:NAME or a list of these; write settings at the top level."
    )


def test_a_single_value_on_an_axis_is_answered_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        planned("grid: {optim.lr: 1e-3}\n", tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_early_stopping_is_fine_where_every_comparison_has_a_score(tmp_path: Path) -> None:
    rule = "early_stop: {median: {every: 100}}\n"
    assert planned("metric: {name: accuracy}\ntrain.evaluate: 50 steps\n" + rule, tmp_path)
    assert planned("metric: {name: loss}\ntrain.log: 20\n" + rule, tmp_path)
    assert planned("train.evaluate: 50 steps\n" + rule, tmp_path), "the task's main metric"


# The command line


def test_a_comma_list_is_an_axis_and_wins_over_the_file(tmp_path: Path) -> None:
    text = "grid: {optim.lr: [1e-4]}\nfixed: {train: {batch_size: 4}}\n"
    specs = planned(text, tmp_path, "--optim.lr", "2e-4,3e-4", "train.batch_size=8", seeds=2)
    assert axes(specs, "optim.lr", "seed") == [(2e-4, 1), (3e-4, 1), (2e-4, 2), (3e-4, 2)]
    assert {value(spec, "train.batch_size") for spec in specs} == {8}


def test_calls_and_lists_on_the_command_line(tmp_path: Path) -> None:
    specs = planned("", tmp_path, "--optim.lr", "log(1e-5,1e-3,3)", "--optim.betas", "[0.9, 0.98]")
    assert axes(specs, "optim.lr") == [(1e-5,), (1e-4,), (1e-3,)]
    assert {tuple(value(spec, "optim.betas")) for spec in specs} == {(0.9, 0.98)}


def test_another_programs_name_is_answered_with_ours(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task.model.init_mag: unknown key; did you mean method.init_mag\?"):
        planned("method: freelb\n", tmp_path, "--task.model.init_mag", "0.01,0.02")


def test_a_single_value_takes_the_axis_away_also_from_variants(tmp_path: Path) -> None:
    text = "grid: {optim.lr: [1e-4, 2e-4]}\nvariants: {a: {}, b: {optim: {lr: 5e-4}, train.epochs: 1}}\n"
    assert axes(planned(text, tmp_path, "optim.lr=3e-4"), "train.epochs") == [(3.0,), (1.0,)]


def test_single_settings_reach_every_stage(tmp_path: Path) -> None:
    specs = planned(STAGES, tmp_path, "train.max_steps=2")
    assert {value(spec, "train.max_steps") for spec in specs} == {2}


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (STAGES, ["optim.lr=1,2"], "this sweep has stages"),
        ("zip: [{optim.lr: 1e-4, optim.clip: 1.0}]\n", ["optim.lr=1"], "tied to others by zip"),
        ("", ["optim.lr=1,1"], "command line: optim.lr: a value appears twice"),
        ("", ["optim.lr=0.1,slow"], 'command line: optim.lr: expected a number, not "slow"'),
        (
            "",
            ["--optim.betas", "[0.9,0.98],[0.9,0.999]"],
            "command line: optim.betas: value:1: column 11: not YAML",
        ),
        ("", ["optim.rl=0.1"], "command line: optim.rl: unknown key; did you mean lr?"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path: Path, text: str, words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        planned(text, tmp_path, *words)


# Random search and commands


def test_random_draws_are_a_function_of_the_seed_and_grow(tmp_path: Path) -> None:
    text = "search: {random: {n: %d, space: {optim.lr: 'loguniform(1e-5, 1e-3)', train.batch_size: [8, 16]}}}\n"
    five, seven = planned(text % 5, tmp_path), planned(text % 7, tmp_path)
    assert (len(five), len(seven)) == (5, 7)
    assert [spec.id for spec in seven[:5]] == [spec.id for spec in five]
    assert all(1e-5 <= spec.axes["optim.lr"] <= 1e-3 for spec in seven)
    assert planned((text % 5).replace("n: 5", "n: 5, seed: 1"), tmp_path)[0].id != five[0].id


def test_commands_are_runs_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "cmds.txt"
    path.write_text("# all\npython a.py --x 1\n\n  python a.py --x 2\npython a.py --x 1\n")
    specs = commands(path)
    assert [spec.command for spec in specs] == ["python a.py --x 1", "python a.py --x 2"]
    assert all(re.fullmatch(r"[0-9a-f]{8}-[A-Za-z0-9._-]+", spec.name) for spec in specs)
    path.write_text("\n# nothing\n")
    with pytest.raises(UserError, match="it contains no commands"):
        commands(path)


def test_a_large_number_is_not_named_like_a_small_one() -> None:
    assert name_of("0123abcd", "main", None, {"optim.lr": 1e30}) == "0123abcd-lr-1e30"
    assert name_of("0123abcd", "main", None, {"optim.lr": 1e-30}) == "0123abcd-lr-1e-30"


def test_a_folder_without_a_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the folder of a sweep"):
        read_plan(tmp_path)
    (tmp_path / "plan.json").write_text('{"runs": [{"id": 1}]}')
    with pytest.raises(UserError, match="damaged"):
        read_plan(tmp_path)


@pytest.mark.parametrize("name", ["acuracy", "f1_of_something", "discriminator_loss"])
def test_W28_a_metric_that_the_task_does_not_have_is_found_by_the_plan(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"metric.name: toy/sentiment has no {name}.*It has accuracy"):
        planned(f"metric: {{name: {name}}}\n", tmp_path)


@pytest.mark.parametrize("name", ["accuracy", "nll", "acc", "eval_accuracy"])
def test_W28_the_metrics_of_a_task_are_accepted_in_other_spellings_too(tmp_path: Path, name: str) -> None:
    assert len(planned(f"metric: {{name: {name}}}\n", tmp_path)) == 1


@pytest.mark.slow(0.5)
def test_W28_pretraining_has_the_metrics_of_its_objective(tmp_path: Path) -> None:
    text = "tasks: {name: corpus/toy, held_out: 0.1, objective: {kind: KIND}}\nmetric: {name: NAME}\n"

    def fits(kind: str, name: str) -> bool:
        return bool(planned(text.replace("KIND", kind).replace("NAME", name), tmp_path))

    assert fits("electra", "discriminator_loss")
    assert fits("mlm", "perplexity")
    with pytest.raises(UserError, match="toy/corpus has no discriminator_loss"):
        fits("mlm", "discriminator_loss")


def test_W28_a_plan_needs_no_model_on_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(tmp_path / "far/away"), "--tasks", "toy/nli", "--optim.lr", "1e-4,2e-4"]
    words += ["-o", str(tmp_path / "o")]
    assert main(["sweep", "plan", *words]) == 0
    said = capsys.readouterr()
    assert "2 runs, 0 of them done" in said.out
    assert "away is not on this machine" in said.err
    assert main(["sweep", "run", *words, "--devices", "cpu"]) == 2  # which needs it
    assert "no such folder" in capsys.readouterr().err
