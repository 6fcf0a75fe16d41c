import json
import os
import subprocess
import sys

import pytest

from encodery import cli
from encodery.cli.parsing import Parser, split
from encodery.cli.verbs import GROUPS, VERBS
from encodery.config.load import load, loads
from encodery.errors import RunFailed, Stopped, UserError
from tests.toolbox.timing import least

HEAVY = ("torch", "transformers", "sklearn", "scipy")


@pytest.fixture
def verb(monkeypatch):
    """Make `encodery tasks` do something else."""
    import encodery.cli.tasks as module

    return lambda action: monkeypatch.setattr(module, "run", action)


def raising(error):
    def run(args, rest):
        raise error

    return run


def test_overview_lists_every_verb_by_group(capsys):
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert cli.main(words) == 0
        said = capsys.readouterr().out
        assert all(f"  {verb.name} " in said for verb in VERBS)
    assert {verb.group for verb in VERBS} <= set(GROUPS)
    assert len({verb.name for verb in VERBS}) == len(VERBS)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("encodery ")


def test_unknown_verb_gives_the_nearest(capsys):
    assert cli.main(["confg"]) == 2
    assert capsys.readouterr().err == "There is no verb 'confg'. Did you mean `encodery config`?\n"
    assert cli.main(["tasks", "--prat"]) == 2
    assert cli.main(["config", "--dif=x", "-q"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(UserError("a"), 2), (RunFailed("b"), 1), (Stopped("c"), 3)])
def test_errors_are_a_sentence_and_an_exit_code(verb, capsys, error, code):
    verb(raising(error))
    assert cli.main(["tasks"]) == code
    assert capsys.readouterr().err == f"{error}\n"


def test_ctrl_c_is_130(verb, capsys):
    verb(raising(KeyboardInterrupt()))
    assert cli.main(["tasks"]) == 130


def test_a_bug_apologises_and_keeps_its_traceback(verb, capsys, monkeypatch, caplog):
    monkeypatch.delenv("ENCODERY_TRACEBACK", raising=False)
    verb(raising(ZeroDivisionError("oh")))
    assert cli.main(["tasks"]) == 1
    said = capsys.readouterr().err
    assert "Sorry, this is a bug in encodery: ZeroDivisionError: oh" in said
    assert "Traceback" not in said
    assert "ZeroDivisionError" in caplog.text
    assert cli.main(["tasks", "--traceback"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("ENCODERY_TRACEBACK", "1")
    cli.main(["tasks"])
    assert "Traceback" in capsys.readouterr().err


def test_S6_a_shown_traceback_hides_tokens(verb, capsys):
    verb(raising(RuntimeError("hf_AbCdEfGhIjKlMnOp")))
    cli.main(["tasks", "--traceback"])
    assert "hf_AbCdEfGhIjKlMnOp" not in capsys.readouterr().err


def test_closed_pipe_is_quiet():
    command = f"{sys.executable} -m encodery recipes | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, env=here())
    assert (done.returncode, done.stderr) == (0, "")


def here():
    """The environment of a child that finds this package wherever the tests run."""
    import encodery

    root = os.path.dirname(os.path.dirname(encodery.__file__))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def test_overrides_are_told_from_options():
    parser = Parser("p", "")
    parser.add_argument("config", nargs="?")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("-o", "--out")
    words = [
        "--model",
        "roberta-base",
        "c.yaml",
        "--seeds",
        "3",
        "--optim.lr",
        "-1",
        "--restart",
        "a.b=c=d",
        "-o",
        "x=y",
        "--z=1",
    ]
    known, rest = split(parser, words)
    assert known == ["c.yaml", "--seeds", "3", "--restart", "-o", "x=y"]
    assert rest == ["--model", "roberta-base", "--optim.lr", "-1", "a.b=c=d", "--z=1"]
    assert split(parser, ["--seeds=3", "--out=a", "recipe:a/b"])[1] == []


# --- verbs ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_components")
def test_config_prints_what_loads_back(capsys, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: m\ntasks: fake/rte\noptim:\n  betas: [0.5, 0.6]\n")
    assert cli.main(["config", str(path), "--method", "freelb", "data=a # b"]) == 0
    said = capsys.readouterr().out
    assert "betas: [0.5, 0.6]" in said
    assert "c.yaml:4" in said
    assert "# command line" in said
    assert loads(said) == load(path, ["method=freelb", "data=a # b"])


@pytest.mark.usefixtures("small_components")
def test_config_notes_and_differences(capsys, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("model: m\ntasks: fake/rte\nmethod: {kind: freelb, steps: 2}\n")
    assert cli.main(["config", str(path), "method=plain"]) == 0
    assert "# note: method changed its kind: dropped steps." in capsys.readouterr().out
    other = tmp_path / "d.yaml"
    other.write_text("model: m\ntasks: fake/rte\nmethod: {kind: freelb}\n")
    assert cli.main(["config", str(path), "--diff", str(other)]) == 0
    assert capsys.readouterr().out == "method.steps: 2 -> 3\n"
    assert cli.main(["config", str(path), "optim.lt=1"]) == 2
    assert "did you mean lr?" in capsys.readouterr().err


def test_recipes_list_show_copy(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["recipes", "list", "rte/electra"]) == 0
    assert "glue/rte/electra-small" in capsys.readouterr().out
    assert cli.main(["recipes", "show", "recipe:glue/rte/electra-small"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# source:")
    assert cli.main(["recipes", "copy", "glue/rte/electra-small", "mine.yaml"]) == 0
    assert (tmp_path / "mine.yaml").read_text() == text
    assert cli.main(["recipes", "copy", "glue/rte/electra-small", "mine.yaml"]) == 2
    assert cli.main(["recipes", "copy", "glue/rte/electra-small", "no/where.yaml"]) == 2
    assert cli.main(["recipes", "show"]) == 2
    assert cli.main(["recipes", "show", "glue/rte/electra-smal"]) == 2
    assert "Did you mean glue/rte/electra-small" in capsys.readouterr().err
    assert cli.main(["recipes", "list", "zzz"]) == 2


def test_tasks_are_listed(capsys):
    assert cli.main(["tasks", "glue"]) == 0
    assert "glue/rte" in capsys.readouterr().out
    assert cli.main(["tasks", "zzz"]) == 2


# --- B13 --------------------------------------------------------------------------------------------------------------

QUICK = [["--help"], ["--version"], ["tasks"], ["recipes"], *([verb.name, "--help"] for verb in VERBS)]
PROBE = """
import json, sys, time
from encodery.cli import main
code = main(sys.argv[1:])
print(json.dumps([code, time.process_time(), sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_B13_help_and_lists_import_nothing_heavy(words):
    light = words[-1] in ("--help", "--version")
    command = [sys.executable, "-c", PROBE, *words]

    def seconds(attempt: int) -> float:
        done = subprocess.run(command, capture_output=True, text=True, env=here(), check=True)
        code, cpu, modules = json.loads(done.stderr)
        assert code == 0
        assert not {*HEAVY, *(["pydantic"] if light else [])} & set(modules)
        return cpu

    spent = least(seconds, 0.3 if light else 60)
    assert spent < 0.3 or not light


def test_S13_an_error_that_a_library_makes_of_sigterm_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dispatch(words: list[str]) -> int:
        cli._sigterm.set()  # as the handler does; the library catches what it raises while it is imported
        raise ImportError("partially initialized")

    monkeypatch.setattr(cli, "_dispatch", dispatch)
    try:
        assert cli.main(["tasks"]) == 3
    finally:
        cli._sigterm.clear()
    assert "stopped by SIGTERM" in capsys.readouterr().err
