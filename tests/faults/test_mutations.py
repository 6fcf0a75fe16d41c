"""Configs and command lines with random mistakes: each is taken or refused with a sentence, in a bounded time."""

import json
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from encodery.cli.verbs import VERBS
from tests.toolbox.fault_counts import Tally
from tests.toolbox.faults import command
from tests.toolbox.runs import run, settings
from tests.toolbox.tasks import write_rows

CASES, SEED = 500, 20
WRONG: list[Any] = [
    None, True, 0, -1, 1, 2.5, 1e-30, 1e18, float("nan"), float("inf"), 10**30, "", " ", "x", "nan", "1e5", "3 steps",
    "-1 steps", "50%", "toy/nli", "é", "\ud800", "a\0b", "a\nb", "${HOME}", "!!python/object:os.system", "x" * 5000,
    [], [[]], [1], [None], ["a", 1], {}, {"a": 1}, {"kind": "x"}, {"kind": None}, {"name": 3}, {"": ""},
    {"kind": "bert"},
]  # fmt: skip
BYTES = [
    b"\t",
    b"\0",
    b"\xff",
    b"\xc3",
    b"{",
    b"]",
    b":",
    b"- ",
    b"&a ",
    b"*a",
    b"!!int ",
    b"'",
    b'"',
    b"|\n",
    b"%",
    b"#",
]
WORDS = [
    "", " ", "-", "--", "=", "a=", "=a", "--=", "-x", "--x", "--x=1", "nan", "inf", "-1", "0", "1e999", "9" * 40, "[",
    "{a", "{}", "null", "true", "x" * 5000, "é", "\udcff", "a\nb", "%s", "%", "{0}", "toy/nli", "toy/nli:dev",
    "toy/nli:x", "F", "D", "run", "run@50%", "run/model", "c.yaml", "nothing.yaml", "recipe:", "recipe:x", "tasks",
    "tasks.0", "tasks.kind=x", "optim.lr=", "optim.lr=x", "optim=3", "train.epochs=[1]", "model=3", "seed=x", "--seeds",
    "--device", "--on", "-o",
]  # fmt: skip
LINES = {
    "train": [
        "c.yaml --optim.lr 1e-3 -o out",
        "--model run --tasks toy/nli --tasks.count 8 --train.max_steps 1 -o out",
    ],
    "tokenizer": ["--corpus.files T.txt --size 60 -o out"],
    "prepare": ["--model.tokenizer tokenizer --tasks.kind corpus --tasks.files T.txt -o out"],
    "predict": ["run --text w1 --device cpu", "run --file T.txt --format jsonl", "run --file -"],
    "evaluate": ["run --on table/train:dev --device cpu", "run --on table/train:dev"],
    "score": ["answers.jsonl --on toy/nli:dev"],
    "submit": ["run -o out"],
    "inspect": ["c.yaml --tasks.0.count 4"],
    "table": ["run --format json", "run --columns optim.lr --metric accuracy"],
    "report": ["run -o out.html"],
    "embed": ["run --on table/train:dev -o out --device cpu", "run --on toy/nli:dev --pooling mean"],
    "select": ["--pool toy/nli --selector.kind random --count 5 -o out"],
    "curve": ["c.yaml --dry-run --fractions [0.5] --seeds 1"],
    "heads": ["run --on table/train:dev -o out --device cpu"],
    "gradts": ["study.yaml --dry-run --primary toy/nli"],
    "sweep": ["plan c.yaml --optim.lr 1,2 --seeds 2", "status run", "best run --metric accuracy", "stop D", "retry D"],
    "recipes": ["", "show toy/nli", "copy toy/nli out.yaml"],
    "tasks": ["", "toy", "toy/nli"],
    "config": ["c.yaml --optim.lr 1e-3", "c.yaml --diff run", "recipe:toy/nli train.epochs=2"],
    "export": ["run out", "run out --dtype float16"],
    "publish": ["run -o out"],
    "track": ["run --to tensorboard"],
    "import": ["electra D out", "amos F out"],
    "data": ["check c.yaml", "check D"],
}
# They work for minutes, run until they are stopped, or ask the machine: their options are those of the others.
LONG = {"demo", "glue", "watch", "doctor", "serve"}


def limits() -> None:
    """A command that takes longer is ended by a signal, one that wants the whole memory is refused."""
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as Python's own
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(150)
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder with a finished run, its config, a text, a file that is none of these, and a folder."""
    tree = settings(tmp_path, rows=16, dev=8, train={"max_steps": 2, "batch_size": 8})
    run(tree, tmp_path / "run")
    (tmp_path / "c.yaml").write_text(json.dumps(tree))
    write_rows(tmp_path / "more.csv", 8, 3)
    (tmp_path / "T.txt").write_text("w1 w2 w3\n\nw4 w5\n" * 8)
    (tmp_path / "F").write_bytes(bytes(range(256)))
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "x.json").write_text("[")
    (tmp_path / "answers.jsonl").write_text('{"id": "1", "prediction": "neutral"}\n')
    (tmp_path / "study.yaml").write_text("tasks: [toy/paraphrase, toy/nli]\nprimary: toy/nli\nstrategy: thres\n")
    return tmp_path


def tried(words: list[str], room: Path, tally: Tally, what: str, about: object) -> int:
    """One command: no traceback, no "bug", an exit code of ours, in time."""
    kept = {path.name for path in room.iterdir()}
    ended = command(words, room, before=limits)
    well = not ended.is_bug and ended.code in (0, 1, 2)
    tally.case(what, well, f"{words} ended with {ended.code} {about!r}\n{ended.output[-1500:]}")
    for path in [one for one in room.iterdir() if one.name not in kept and not one.name.startswith(".")]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return ended.code


def places(tree: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a tree of mappings and lists."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [above, *(place for key, value in inner for place in places(value, (*above, key)))]


def change(tree: Any, place: tuple[Any, ...], how: Callable[[Any, Any], None]) -> None:
    """Call it with what holds the place, and the place's key there."""
    for key in place[:-1]:
        tree = tree[key]
    how(tree, place[-1])


def mutated_tree(tree: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """One to three values replaced, removed, renamed, wrapped or added."""
    tree = json.loads(json.dumps(tree))
    for _ in range(draw.randint(1, 3)):
        place = draw.choice([one for one in places(tree) if one] or [("train",)])

        def how(inner: Any, key: Any, kind: int = draw.randrange(6)) -> None:
            if kind < 3 or isinstance(inner, list):
                inner[key] = draw.choice(WRONG)
            elif kind == 3:
                inner.pop(key, None)
            elif kind == 4:
                inner[draw.choice([f"{key}s", str(key)[:-1], "kind", "name", "extends", "", 3])] = inner.pop(key, None)
            else:
                inner[key] = draw.choice([[inner.get(key)], {str(key): inner.get(key)}, {"kind": inner.get(key)}])

        change(tree, place, how)
    return tree


def mutated_text(text: bytes, draw: random.Random) -> bytes:
    """Bytes put in, taken out or doubled; lines moved."""
    for _ in range(draw.randint(1, 3)):
        at, kind, length = draw.randrange(len(text) + 1), draw.randrange(5), draw.randint(1, 12)
        lines = text.splitlines(keepends=True)
        if kind == 0:
            text = text[:at] + draw.choice(BYTES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + length :]
        elif kind == 2:
            text = text[:at] + text[max(0, at - length) : at] * draw.choice([2, 50]) + text[at:]
        elif kind == 3 and lines:
            text = b"".join(draw.sample(lines, len(lines)))
        else:
            text = text[:at]
    return text


@pytest.mark.timeout(900)
def test_mutated_configs(room: Path, tally: Tally) -> None:
    """Of settings of a tiny run and of recipes: read by config, and by verbs that do more with what is taken."""
    draw = random.Random(SEED)
    own = json.loads((room / "c.yaml").read_text())
    rich = yaml.safe_load(RICH)
    taken = 0
    for number in range(CASES):
        tree = draw.choice([own, rich])
        text = mutated_text(yaml.safe_dump(tree).encode(), draw) if number % 3 == 0 else b""
        text = text or json.dumps(mutated_tree(tree, draw)).encode()
        (room / "m.yaml").write_bytes(text)
        verb = draw.choice([["config"], ["config"], ["config"], ["sweep", "plan"], ["inspect"]])
        taken += tried([*verb, "m.yaml"], room, tally, "mutated configs", text[:3000]) == 0
    assert 20 < taken < CASES - 100  # of either kind, or the mutations are too strong or too weak


RICH = """
model: {new: {kind: bert, size: tiny}, dropout: 0.1, head: stock}
tasks: [{name: toy/nli, count: 32}, {name: toy/sentiment, count: 16}]
method: {kind: freelb, adv_lr: 0.1}
optim: {lr: 1e-3, warmup: 0.1, betas: [0.9, 0.98], weight_decay: 0.01}
train: {epochs: 1, batch_size: 8, max_length: 32, evaluate: 2 steps, save: 2 steps, seed: 1}
seed: {data: 1, init: 2, dropout: 3}
"""


def mutated_line(words: list[str], draw: random.Random) -> list[str]:
    """One to three words put in, taken out, replaced, doubled, cut or joined."""
    words = list(words)
    for _ in range(draw.randint(1, 3)):
        at, kind = draw.randrange(len(words) + 1), draw.randrange(6)
        if kind == 0 or at == len(words):
            words.insert(at, draw.choice(WORDS))
        elif kind == 1:
            words[at] = draw.choice(WORDS)
        elif kind == 2:
            del words[at]
        elif kind == 3:
            words.insert(at, words[draw.randrange(len(words))])
        elif kind == 4:
            words[at] = words[at][: draw.randint(0, max(0, len(words[at]) - 1))]
        else:
            words[at] += draw.choice(WORDS)
    return words


def no_study(line: list[str]) -> list[str]:
    """Without --dry-run a study that a mutation left legal would train for minutes: it is put back."""
    return [*line, "--dry-run"] if {"curve", "gradts"} & set(line[:1]) and "--dry-run" not in line else line


@pytest.mark.timeout(900)
def test_mutated_command_lines(room: Path, tally: Tally) -> None:
    draw = random.Random(SEED)
    seeds = [[verb, *line.split()] for verb, lines in LINES.items() for line in lines]
    codes = set()
    for number in range(CASES):
        words = seeds[number % len(seeds)]
        line = [words[0], *mutated_line(words[1:], draw)] if draw.random() < 0.95 else mutated_line(words, draw)
        if not LONG & set(line[:1]):
            codes.add(tried(no_study(line), room, tally, "mutated command lines", ""))
    assert {0, 2} <= codes


def test_every_verb_is_mutated() -> None:
    assert set(LINES) | LONG == {verb.name for verb in VERBS}
