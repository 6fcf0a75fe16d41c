"""`encodery sweep`: what the words mean, and what is handed to the executor."""

import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from encodery import cli
from encodery.cli import sweep as sweep_verb
from encodery.cli.parsing import Parser
from encodery.config import load as config_load
from encodery.config.schema import Config
from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome, read_plan, write_plan
from encodery.sweep import command_line, sweep_file
from encodery.sweep.plan import Planner
from encodery.sweep.state import RunStatus
from encodery.sweep.state import write as write_status
from encodery.sweep.sweep_file import Sweep
from tests.sweep.small_sweeps import BASE
from tests.sweep.test_best import done


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.yaml").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """An executor that says of every run that it is done, or what `states` says."""
    calls: list[dict[str, Any]] = []

    def execute(
        folder: Path, source: Any, resources: Any, limits: Any, executor: str, progress: Any, **more: Any
    ) -> Any:
        ended: dict[str, Outcome] = {}
        while not source.exhausted(ended, []):
            for spec in source.ready(ended, [], 2):
                ended[spec.id] = Outcome(spec.id, states.get(len(ended), "done"))
        calls.append({"folder": folder, "resources": resources, "limits": limits, "executor": executor, "ended": ended})
        return list(ended.values())

    states: dict[int, Any] = {}
    module = types.ModuleType("encodery.sweep.execute")
    module.execute = execute  # type: ignore[attr-defined]
    module.retry = lambda folder, ids: ids or ["0123abcd"]  # type: ignore[attr-defined]
    module.stop = lambda folder, now: calls.append({"stopped": folder, "now": now})  # type: ignore[attr-defined]
    module.states = states  # type: ignore[attr-defined]
    monkeypatch.setattr("encodery.sweep.run.execute", execute)
    monkeypatch.setitem(sys.modules, "encodery.sweep.execute", module)
    state = types.ModuleType("encodery.sweep.state")
    state.status = lambda folder: []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "encodery.sweep.state", state)
    return calls


def test_plan_shows_the_runs_and_makes_nothing(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "plan", "run.yaml", "--optim.lr", "1e-4,2e-4", "train.batch_size=8", "--seeds", "2"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^[0-9a-f]{8}", "#", line) for line in lines[:2]] == ["#-lr-0.0001-seed-1", "#-lr-0.0002-seed-1"]
    assert lines[4] == "4 runs, 0 of them done in runs/run"
    assert sorted(path.name for path in room.iterdir()) == ["run.yaml"]
    assert cli.main([*words, "--json"]) == 0
    assert [run["axes"]["optim.lr"] for run in json.loads(capsys.readouterr().out)] == [1e-4, 2e-4] * 2


def test_a_dry_run_is_the_plan(room: Path, executed: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run.yaml", "--optim.lr", "1e-4,1e-3", "-o", "out"]
    assert cli.main(["sweep", "plan", *words]) == 0
    planned = capsys.readouterr().out
    assert cli.main(["sweep", "run", *words, "--dry-run", "--timeout", "1h"]) == 0
    assert capsys.readouterr().out == planned
    assert planned.count("\n") >= 3  # two runs and their number
    assert not executed
    assert not Path("out").exists()
    assert cli.main(["sweep", "run", "--commands", "cmds.txt", "--dry-run"]) == 2
    assert "--commands" in capsys.readouterr().err


def test_plan_names_the_settings_that_a_method_does_not_have(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "plan", "run.yaml", "--method.kind", "plain,freelb", "--method.adv_lr", "0.1,0.2"]
    assert cli.main(words) == 0
    assert "plain has no method.adv_lr: left out there" in capsys.readouterr().out.splitlines()


def test_run_names_them_too(room: Path, executed: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "run", "run.yaml", "--method", "plain,freelb", "--method.adv_lr", "0.1,0.2"]) == 0
    assert "plain has no method.adv_lr: left out there" in capsys.readouterr().err.splitlines()


def test_plan_and_status_say_how_long_the_rest_will_take(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "plan", "run.yaml", "--seeds", "7", "--devices", "cpu:2", "-o", "out"]
    assert cli.main([*words, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)[:2]
    for one, seconds in ((first, 50.0), (second, 70.0)):
        done(room / "out", one["name"], 0.5)
        ended = RunStatus(one["id"], one["name"], "done", started=100.0, ended=100.0 + seconds)
        write_status(room / "out", ended)
    assert cli.main(words) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == "7 runs, 2 of them done in out; about 3.0 min left with 2 at once"  # 5 runs in 3 turns of 60 s


def test_status_tells_what_waits_for_a_failed_run_and_counts_no_time_for_it(room: Path, capsys: Any) -> None:
    stages = "base: run.yaml\nstages: {a: {seeds: 2}, b: {needs: a, model: 'stage:a'}}\n"
    (room / "st.yaml").write_text(stages)
    specs = Planner(sweep_file.read("st.yaml"), room / "out").specs()
    (room / "out").mkdir()
    write_plan(room / "out", specs, {})
    for spec, state in zip(specs, ("failed", "done", "queued", "done"), strict=True):
        write_status(room / "out", RunStatus(spec.id, spec.name, state, started=100.0, ended=160.0))  # type: ignore[arg-type]
    assert cli.main(["sweep", "status", "out", "--watch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f"waiting  {specs[2].name}  waits for {specs[0].id} (failed)"
    assert lines[4:] == ["2 done, 1 failed, 1 waiting", "`encodery sweep retry out` queues failed runs again"]
    assert cli.main(["sweep", "plan", "st.yaml", "-o", "out", "--devices", "cpu:1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("done in out")


def test_status_watches_until_nothing_is_left(room: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = Planner(sweep_file.read("run.yaml"), room / "out").specs()
    (room / "out").mkdir()
    write_plan(room / "out", specs, {})

    def end(_: float) -> None:
        done(room / "out", specs[0].name, 0.5)
        write_status(room / "out", RunStatus(specs[0].id, specs[0].name, "done"))

    monkeypatch.setattr("time.sleep", end)
    assert cli.main(["sweep", "status", "out", "--watch"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if line[0] == "1"] == ["queued", "done"]


def test_run_hands_over_the_plan_the_resources_and_the_limits(room: Path, executed: list[dict[str, Any]]) -> None:
    words = [
        "sweep",
        "run",
        "run.yaml",
        "--optim.lr",
        "1e-4,2e-4",
        "-o",
        "out",
        "--devices",
        "cpu:2",
        "--timeout",
        "2h",
    ]
    assert cli.main([*words, "--retries", "0", "--threads", "1", "--executor", "ray"]) == 0
    [call] = executed
    assert (call["executor"], call["resources"].devices, call["resources"].threads) == ("ray", "cpu:2", 1)
    assert (call["limits"].timeout_seconds, call["limits"].retries) == (7200, 0)
    assert len(call["ended"]) == 2
    assert [spec.id for spec in read_plan(room / "out")] == list(call["ended"])
    assert "# command line: 1e-4,2e-4" in (room / "out" / "sweep.yaml").read_text()


@pytest.mark.parametrize("action", ["plan", "run"])
def test_a_sweep_does_not_move_into_the_directory_of_a_run(
    room: Path, executed: list[dict[str, Any]], capsys: Any, action: str
) -> None:
    """Tables would see that run alone."""
    (room / "runs" / "run").mkdir(parents=True)
    (room / "runs" / "run" / "run.json").write_text("{}")
    (room / "cmds.txt").write_text("echo a\n")
    given = ["sweep", action, "run.yaml", "--optim.lr", "1e-4,5e-4"]
    for out in ([], ["-o", "runs/run"]):
        assert cli.main([*given, *out]) == 2
        assert "runs/run is the directory of a run; give the sweep another folder, such as -o runs/run-sweep" in (
            capsys.readouterr().err
        )
    assert cli.main(["sweep", "run", "--commands", "cmds.txt", "-o", "runs/run"]) == 2
    assert not executed
    assert [entry.name for entry in (room / "runs" / "run").iterdir()] == ["run.json"]


def test_a_plain_config_is_a_sweep_of_one(room: Path, executed: list[dict[str, Any]]) -> None:
    assert cli.main(["sweep", "run", "run.yaml"]) == 0
    assert len(executed[0]["ended"]) == 1
    assert (room / "runs" / "run" / "plan.json").is_file()


TICKETS = "".join(f"{'refund' if i % 2 else 'crash'} {i} für,{'billing' if i % 2 else 'tech'}\n" for i in range(60))


@pytest.mark.parametrize(("name", "encoding"), [("tickets.csv", "cp1252"), ("tickets.tsv", "utf-8")])
def test_a_data_file_is_a_base_as_for_train(
    room: Path, executed: list[dict[str, Any]], capsys: Any, name: str, encoding: str
) -> None:
    (room / "data").mkdir()
    text = "text,team\n" + TICKETS
    (room / "data" / name).write_text(text.replace(",", "\t") if name.endswith("tsv") else text, encoding=encoding)
    words = [f"data/{name}", "--optim.lr", "2e-5,1e-3", "--seeds", "2"]
    assert cli.main(["sweep", "plan", *words]) == 0
    assert "4 runs, 0 of them done in runs/tickets" in capsys.readouterr().out
    assert cli.main(["sweep", "run", *words]) == 0
    specs = read_plan(room / "runs" / "tickets")
    [task] = specs[0].config["tasks"]
    assert len(executed[0]["ended"]) == len(specs) == 4
    assert (task["kind"], task["label"], specs[0].config["model"]["name"]) == ("table", "team", "petit")


@pytest.mark.parametrize(
    "words", [["--tasks", "b.csv"], ["--tasks.file", "b.csv"], ["--tasks", "b.csv,glue/rte"], ["--tasks.name=toy/nli"]]
)
def test_a_data_file_is_not_dropped_where_other_tasks_are_named(room: Path, capsys: Any, words: list[str]) -> None:
    for name in "ab":
        (room / f"{name}.csv").write_text("text,team\n" + TICKETS)
    assert cli.main(["sweep", "plan", "a.csv", *words, "--optim.lr", "2e-5,1e-3"]) == 2
    said = capsys.readouterr().err
    assert "a.csv and tasks " in said
    assert "both say what to train on" in said
    with pytest.raises(UserError, match="both say what to train on"):
        command_line.lay(sweep_file.read("a.csv"), {"tasks": "b.csv"})


def test_a_data_file_may_be_one_of_several_on_an_axis(room: Path, capsys: Any) -> None:
    for name in "ab":
        (room / f"{name}.csv").write_text(f"text,team\n{TICKETS}one of {name},billing\n")
    assert cli.main(["sweep", "plan", "a.csv", "--tasks", "a.csv,b.csv", "--tasks.label", "team"]) == 0
    assert "2 runs" in capsys.readouterr().out
    assert cli.main(["sweep", "plan", "a.csv", "--tasks.label", "team", "--optim.lr", "2e-5,1e-3"]) == 0
    assert "2 runs" in capsys.readouterr().out


def test_a_sweep_in_json_is_no_data_file(room: Path, capsys: Any) -> None:
    (room / "grid.json").write_text('{"base": "run.yaml", "grid": {"optim.lr": [1e-4, 2e-4]}}')
    assert cli.main(["sweep", "plan", "grid.json"]) == 0
    assert "2 runs" in capsys.readouterr().out


def test_the_end_of_a_sweep_says_what_comes_next(
    room: Path, executed: list[dict[str, Any]], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["sweep", "run", "run.yaml", "-o", "out"]) == 0
    assert "next: encodery table out, encodery report out" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "code"), [("failed", 1), ("oom", 1), ("timeout", 1), ("stopped", 3), ("pruned", 0)])
def test_exit_codes(room: Path, executed: list[dict[str, Any]], capsys: Any, state: str, code: int) -> None:
    sys.modules["encodery.sweep.execute"].states[1] = state
    assert cli.main(["sweep", "run", "run.yaml", "--seeds", "2"]) == code
    assert f"1 {state}" in capsys.readouterr().out


def test_a_stopped_sweep_says_how_many_runs_are_left(room: Path, monkeypatch: Any, executed: Any, capsys: Any) -> None:
    stopped = lambda folder, source, *_, **__: [Outcome(source.specs[0].id, "stopped")]  # noqa: E731
    monkeypatch.setattr("encodery.sweep.run.execute", stopped)
    assert cli.main(["sweep", "run", "run.yaml", "--seeds", "3", "-o", "out"]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said == ["2 queued, 1 stopped (out)", "3 runs left: the same command resumes"]


def test_commands_are_runs(room: Path, executed: list[dict[str, Any]]) -> None:
    (room / "cmds.txt").write_text("echo a\necho b\n")
    assert cli.main(["sweep", "run", "--commands", "cmds.txt"]) == 0
    assert [spec.command for spec in read_plan(room / "runs" / "cmds")] == ["echo a", "echo b"]
    assert cli.main(["sweep", "run", "run.yaml", "--commands", "cmds.txt"]) == 2


def test_retry_says_how_to_start_them(room: Path, executed: list[dict[str, Any]], capsys: Any) -> None:
    write_plan(room, [], {"command": ["encodery", "sweep", "run", "my file.yaml"]})
    assert cli.main(["sweep", "retry", "."]) == 0
    assert "start it with: encodery sweep run 'my file.yaml'" in capsys.readouterr().out


def test_stop_hands_over_how(room: Path, executed: list[dict[str, Any]]) -> None:
    assert cli.main(["sweep", "stop", "x", "--now"]) == 0
    assert executed == [{"stopped": Path("x"), "now": True}]


def test_best_prints_and_exports(room: Path, executed: list[dict[str, Any]], capsys: Any) -> None:
    cli.main(["sweep", "run", "run.yaml", "--optim.lr", "1e-4,2e-4", "-o", "out"])
    assert cli.main(["sweep", "best", "out"]) == 2
    assert "no run is done yet" in capsys.readouterr().err
    for spec in read_plan(room / "out"):
        done(room / "out", spec.name, spec.axes["optim.lr"] * 1000)
    assert cli.main(["sweep", "best", "out", "--export", "best.yaml"]) == 0
    said = capsys.readouterr().out
    assert "0.2000 (n=1)  optim.lr=0.0002" in said
    assert "the best of 2 configurations" in said
    assert "exactly as good" not in said
    assert cli.main(["config", "best.yaml"]) == 0
    assert cli.main(["sweep", "best", "out", "--json"]) == 0


def test_best_says_which_are_equal(room: Path, executed: list[dict[str, Any]], capsys: Any) -> None:
    cli.main(["sweep", "run", "run.yaml", "--optim.lr", "1e-4,2e-4,3e-4", "-o", "out"])
    for spec in read_plan(room / "out"):
        done(room / "out", spec.name, 0.5)
    assert cli.main(["sweep", "best", "out"]) == 0
    assert "2 other configurations are exactly as good" in capsys.readouterr().out


def test_import_writes_a_sweep_that_plans(room: Path, capsys: Any) -> None:
    words = ["run.yaml", "--optim.lr", [1e-4, 2e-4], "--seed", [1, 2]]
    content = {"executor": "encodery train", "configs": {"==base==": words, "==more==": []}}
    (room / "search.json").write_text(json.dumps(content))
    assert cli.main(["sweep", "import", "search.json"]) == 0
    assert cli.main(["sweep", "plan", "sweep.yaml"]) == 0
    assert "4 runs" in capsys.readouterr().out
    assert cli.main(["sweep", "import", "search.json"]) == 2
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan"], "give a sweep file, a config"),
        (["plan", "a.yaml", "b.yaml"], "one file at a time"),
        (["plan", "no.yaml"], "no.yaml: there is no such config file"),
        (["plan", "."], ". is a folder"),
        (["status"], "give the sweep's folder"),
        (["status", "."], "not the folder of a sweep"),
        (["status", ".", "optim.lr=1"], "takes no settings"),
        (["run", "run.yaml", "--devices", "gpu zero"], "command line: devices"),
        (["run", "run.yaml", "--threads", "many"], "command line: threads"),
        (["run", "run.yaml", "--timeout", "soon"], "command line: timeout: expected a time"),
        (["plan", "run.yaml", "--seeds", "0"], "--seeds: must be at least 1"),
        (["fly", "run.yaml"], "invalid choice"),
        (
            ["run", "run.yaml", "--resources.devices", "cpu:1"],
            "command line: resources.devices: is a key of sweep files; on the command line write --devices.",
        ),
        (["plan", "run.yaml", "resources.runs_per_device=2"], "on the command line write --runs-per-device."),
        (["plan", "run.yaml", "--resources", "{devices: all}"], "write --devices or --runs-per-device or --threads."),
        (["plan", "run.yaml", "--resources.threads=2", "--limits.retries=0"], "limits.retries: is a key of"),
        (["plan", "run.yaml", "--limits.timeout", "2h"], "on the command line write --timeout."),
        (["plan", "run.yaml", "seeds=5"], "on the command line write --seeds."),
        (["plan", "run.yaml", "--grid.optim.lr", "1e-4,2e-4"], "on the command line write --optim.lr."),
        (["plan", "run.yaml", "--metric.name", "f1"], "has no option on the command line; set it in the file."),
    ],
)
def test_mistakes_end_with_2_and_a_sentence(
    room: Path, executed: list[dict[str, Any]], capsys: Any, words: list[str], said: str
) -> None:
    assert cli.main(["sweep", *words]) == 2
    assert said in capsys.readouterr().err


def test_every_option_for_a_key_of_a_sweep_file_exists() -> None:
    parser = Parser("encodery sweep", "")
    sweep_verb.arguments(parser)
    for key, option in command_line.OPTIONS.items():
        assert option in parser.options()
        section, _, name = key.partition(".")
        fields = Sweep.model_fields
        assert section in fields
        assert not name or name in getattr(fields[section].annotation, "model_fields", {})


def test_train_refuses_a_list_and_names_the_verb_for_it(room: Path, capsys: Any) -> None:
    assert cli.main(["train", "run.yaml", "--optim.lr", "1e-4,2e-4"]) == 2
    said = capsys.readouterr().err
    assert 'optim.lr: expected a number, not "1e-4,2e-4"' in said
    assert "a list of values is a grid: `encodery sweep run`" in said
    assert cli.main(["train", "run.yaml", "--optim.lr", "fast"]) == 2
    assert "grid" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "verb", "keys"),
    [
        ("base: run.yaml\ngrid: {optim.lr: [1e-3]}\nseeds: 5\n", "sweep run", "base, grid, seeds"),
        ("extends: run.yaml\nfractions: [0.5]\nseeds: 5\n", "curve", "fractions"),
        ("extends: run.yaml\nprimary: toy/nli\nseeds: 5\n", "gradts", "primary"),
    ],
)
def test_train_names_the_verb_for_the_file_of_another(text: str, verb: str, keys: str, room: Path, capsys: Any) -> None:
    (room / "cmp.yaml").write_text(text)
    assert cli.main(["train", "cmp.yaml"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"cmp.yaml: is a file for `encodery {verb}` (it has {keys}): `encodery {verb} cmp.yaml` trains its runs."
    ]


def test_every_key_of_a_sweep_file_tells_it_from_a_config() -> None:
    own = set(Sweep.model_fields) - set(Config.model_fields) - {"extends", "metric"}  # other files have these too
    assert own == set(config_load._OTHER_VERBS["sweep run"])


@dataclass
class Status:
    """What an executor knows of a run."""

    id: str
    state: str
    host: str = "here"
    device: str = "cpu"
    attempt: int = 2
    error: str | None = None


def test_status_shows_the_runs_of_the_plan_alone(room: Path, executed: Any, capsys: Any) -> None:
    cli.main(["sweep", "run", "run.yaml", "--seeds", "3", "-o", "out"])
    first, second, third = read_plan(room / "out")
    known = [Status(first.id, "running"), Status(second.id, "failed", error="one\ntwo"), Status("00000000", "done")]
    sys.modules["encodery.sweep.state"].status = lambda folder: known
    capsys.readouterr()
    assert cli.main(["sweep", "status", "out"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"running  {first.name}  here cpu, attempt 2",
        f"failed   {second.name}",
        "         | one",
        "         | two",
        f"queued   {third.name}",
        "1 failed, 1 queued, 1 running",
        "`encodery sweep retry out` queues failed runs again",
    ]
    assert cli.main(["sweep", "status", "out", "--json"]) == 0
    assert [run["state"] for run in json.loads(capsys.readouterr().out)] == ["running", "failed", "queued"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [["sweep", "--help"], ["sweep", "status", "."], ["sweep", "best", "."]])
def test_what_computes_nothing_loads_nothing_heavy(room: Path, words: list[str]) -> None:
    write_plan(room, [])
    code = f"import sys; sys.path.insert(0, {str(Path(cli.__file__).parents[2])!r}); from encodery import cli\n"
    code += f"cli.main({words!r}); print([m for m in ('torch', 'optuna') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert "bug" not in done.stderr
