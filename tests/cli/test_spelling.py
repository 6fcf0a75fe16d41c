"""Verbs and options: six verbs first, one meaning for an option everywhere, old spellings with a line."""

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from encodery import cli
from encodery.cli.parsing import Parser
from encodery.cli.print_table import FORMATS
from encodery.cli.verbs import FIRST, VERBS, Verb
from tests.toolbox.tasks import write_csv


def parser_of(verb: str) -> Parser:
    parser = Parser(f"encodery {verb}", "")
    import_module(next(one.module for one in VERBS if one.name == verb)).arguments(parser)
    return parser


def test_six_verbs_come_first_and_lines_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines if re.match(r"  \w", line)]
    assert tuple(named[:6]) == FIRST == ("train", "predict", "evaluate", "report", "export", "sweep")
    assert sorted(named) == sorted(verb.name for verb in VERBS)
    assert max(map(len, lines)) <= 100
    assert max(len(line) for line in lines if re.match(r"  \w", line)) <= 80


@pytest.mark.parametrize(
    ("verb", "words", "key", "value"),
    [
        ("predict", ["RUN", "--text", "a", "--on", "glue/rte"], "head", "glue/rte"),
        ("export", ["RUN", "DIR", "--on", "glue/rte"], "head", "glue/rte"),
        ("inspect", ["RUN", "--on=glue/rte"], "head", "glue/rte"),
        ("train", ["--restart"], "restart", True),
        ("glue", ["bert-base", "--restart"], "restart", True),
        ("demo", ["--restart"], "restart", True),
    ],
)
def test_old_spellings_work_with_a_line(
    verb: str, words: list[str], key: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = parser_of(verb)
    assert getattr(parser.parse_args(words), key) == value
    said = capsys.readouterr()
    assert "the old name works until the next release" in said.err
    assert not said.out
    new = [word.replace("--on", "--head").replace("--restart", "--fresh") for word in words]
    assert getattr(parser.parse_args(new), key) == value
    assert not capsys.readouterr().err
    shown = parser.format_help()
    assert not re.search(r"--restart(?!s)", shown)


def test_on_means_data_everywhere() -> None:
    for verb in VERBS:
        option = parser_of(verb.name).options().get("--on")
        if option is not None and option.help != argparse.SUPPRESS:
            assert "head" not in (option.help or ""), verb.name


READS_FILES = "train predict evaluate score embed heads select inspect data prepare tokenizer sweep curve gradts glue"
PRINTS_TABLES = "table glue train curve gradts heads tasks predict watch inspect data evaluate score sweep select"


@pytest.mark.parametrize("verb", READS_FILES.split())
def test_bad_rows_can_be_skipped_by_every_verb_that_reads_files(verb: str) -> None:
    assert "--skip-bad-rows" in parser_of(verb).options()


@pytest.mark.parametrize("verb", PRINTS_TABLES.split())
def test_what_prints_a_table_has_a_format(verb: str) -> None:
    assert tuple(parser_of(verb).options()["--format"].choices or ())[:4] == FORMATS


def test_a_file_is_scored_without_its_bad_rows(tmp_path: Path, encodery) -> None:
    write_csv(tmp_path / "gold.csv", ["id", "text", "label"], [(i, f"a text {i}", "ab"[i % 2]) for i in range(6)])
    with (tmp_path / "gold.csv").open("a") as stream:
        stream.write("7,one field short\n")
    answers = write_csv(tmp_path / "a.csv", ["id", "prediction"], [(i, "ab"[i % 2]) for i in range(6)])
    assert encodery("score", answers, "--on", tmp_path / "gold.csv").code == 2
    found = encodery("score", answers, "--on", tmp_path / "gold.csv", "--skip-bad-rows")
    assert found.code == 0, found.err
    assert "accuracy 1.0000" in found.out
    assert "1 bad row skipped" in found.err


def test_the_settings_of_a_config_have_it_too(tmp_path: Path, encodery) -> None:
    write_csv(tmp_path / "rows.csv", ["text", "label"], [(f"a text {i}", "ab"[i % 2]) for i in range(40)])
    assert "skip_bad_rows: true" in encodery("config", tmp_path / "rows.csv", "--skip-bad-rows").out
    assert "skip_bad_rows: true" not in encodery("config", tmp_path / "rows.csv").out
    (tmp_path / "lines.jsonl").write_text('{"text": "good words here"}\n' * 50 + "{broken\n")
    words = ("tokenizer", "--corpus.files", tmp_path / "lines.jsonl", "--vocab_size", 300, "-o", tmp_path / "v")
    assert encodery(*words).code == 2
    told = encodery(*words, "--skip-bad-rows")
    assert told.code == 0, told.err


@pytest.mark.parametrize("verb", ["table", "recipes", "doctor", "sweep"])
def test_every_verb_can_be_quiet(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.run_verb(next(one for one in VERBS if one.name == verb), ["--help"])
    assert "--quiet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["evaluate", "runs/a", "gold.csv"], "--on gold.csv"), (["predict", "runs/a", "new.tsv"], "--file new.tsv")],
)
def test_a_file_without_its_option_is_answered_with_it(words: list[str], meant: str, encodery) -> None:
    said = encodery(*words)
    assert (said.code, meant in said.err) == (2, True), said.err


def test_a_word_searches_recipes(encodery) -> None:
    found = encodery("recipes", "rte")
    assert found.code == 0
    assert "glue/rte/electra-small" in found.out
    assert found.out == encodery("recipes", "list", "rte").out
    assert encodery("recipes", "no-such-word").code == 2
    assert encodery("recipes", "shw", "glue/rte/electra-small").code == 2
    assert encodery("recipes", "show", "glue/rte/electra-small").code == 0


def test_actions_of_sweep_have_help_of_their_own(encodery) -> None:
    whole, run, stop = (encodery("sweep", *words, "--help").out for words in ([], ["run"], ["stop"]))
    assert "usage: encodery sweep run" in run
    assert "--timeout" in run
    assert "--now" not in run
    assert "--export" not in run
    assert "sweep best" not in run
    assert "--now" in stop
    assert "--timeout" not in stop
    assert all(word in whole for word in ("--timeout", "--now", "--export"))


def at_a_terminal(words: list[str], cwd: Path, most: float = 60.0) -> tuple[int, str, float]:
    """Exit code, what a terminal of 80 columns shows, and when something first was there."""
    main, other = pty.openpty()
    begin = time.monotonic()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-m", "encodery", *words], stdin=other, stdout=other, stderr=other, cwd=cwd, env=env
    )
    os.close(other)
    seen, first = b"", 0.0
    while time.monotonic() - begin < most:
        if select.select([main], [], [], 0.05)[0]:
            try:
                data = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            first = first or time.monotonic() - begin
            seen += data
        elif process.poll() is not None:
            break
    os.close(main)
    return process.wait(timeout=10), seen.decode(errors="replace"), first


@pytest.mark.slow
def test_at_a_terminal_something_moves_before_torch_is_there(tmp_path: Path) -> None:
    code, seen, _ = at_a_terminal(["doctor"], tmp_path)
    assert code == 0, seen
    frames = set(re.findall(r"([⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]) encodery doctor: starting", seen))
    assert len(frames) >= 2  # it moves
    assert seen.index("starting") < seen.index("python")
    assert seen.rindex("\r\x1b[K") < seen.index("python")  # and is gone before the first line


@pytest.mark.slow(0.5)
def test_in_a_pipe_nothing_moves_and_nothing_is_advised(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "encodery", "tasks", "toy"], capture_output=True, text=True, cwd=tmp_path, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )  # fmt: skip
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


@pytest.mark.slow(0.5)
def test_a_finished_verb_says_what_to_do_next_at_a_terminal(tmp_path: Path) -> None:
    code, seen, _ = at_a_terminal(["tasks", "toy"], tmp_path)
    assert code == 0
    assert "next: encodery train --model roberta-base --tasks toy/" in seen
    assert "|---" not in seen  # an aligned table


NEXT = (*FIRST, "table", "glue", "embed", "select", "curve", "gradts")


@pytest.mark.parametrize("verb", NEXT)
def test_a_verb_knows_what_comes_next(verb: str) -> None:
    assert "args.next" in (Path(cli.__file__).parent / f"{verb}.py").read_text(encoding="utf-8")


def test_doctor_names_every_extra_and_refuses_a_wrong_folder(encodery, monkeypatch, tmp_path: Path) -> None:
    import tomllib

    root = Path(cli.__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    monkeypatch.setattr("encodery.cli.doctor._network", list)
    monkeypatch.delenv("GLUE_DIR", raising=False)
    monkeypatch.setenv("ENCODERY_DATA", str(tmp_path))
    found = encodery("doctor")
    assert found.code == 0
    assert all(f"extra {name} " in found.out for name in extras)
    for names, told in (({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False)):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda names=names: names)
        assert ("try --train.precision bf16" in encodery("doctor").out) is told
    monkeypatch.setenv("ENCODERY_DATA", str(tmp_path / "nowhere"))
    found = encodery("doctor")
    assert found.code == 1
    assert "ENCODERY_DATA" in found.err


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.name not in ("serve", "demo")], ids=lambda v: v.name)
def test_every_verb_knows_what_comes_next(verb: Verb) -> None:
    """serve runs until it is stopped, and the demo ends with such a line of its own."""
    assert "args.next = " in Path(str(import_module(verb.module).__file__)).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["embed", "petit", "--on", "a.csv", "--max-rows", "9"],
            "It is an option of heads. See `encodery embed --help`",
        ),
        (["tasks", "--max-rows=9"], "It is an option of heads. See `encodery tasks --help`"),
        (
            ["tasks", "--head", "x"],
            "It is an option of predict, serve, evaluate, score, …. See `encodery tasks --help`",
        ),
        (["embed", "petit", "--on", "a.csv", "--count", "9"], "--count 9. See `encodery embed --help`"),  # not --out
        (["embed", "petit", "--on", "a.csv", "--max_length", "9"], "Did you mean --max-length?"),
        (["embed", "petit", "--on", "a.csv", "--max-seq-length=9"], "Did you mean --max-length?"),
        (["embed", "petit", "--on", "a.csv", "--output", "x"], "Did you mean --out?"),
        (["embed", "petit", "--on", "a.csv", "--batch", "9"], "Did you mean --batch-size?"),
    ],
)
def test_an_unknown_option_is_answered_with_one_that_is_like_it_or_with_none(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err
