"""S8: code of a run directory, at every verb and by every way to name a config; it runs with --allow-code alone."""

import ast
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import encodery
from encodery.cli.verbs import VERBS
from tests.toolbox.faults import command

PACKAGE = Path(encodery.__file__).parent
EVIL = """
from pathlib import Path
from encodery.methods.plain import Plain
from encodery.tasks.toy import Toy
Path({marker!r}).touch()
class Method(Plain): pass
class Task(Toy): pass
"""
CONFIG = """
model: {{new: {{kind: bert, size: tiny, config: {{hidden_size: 16, num_attention_heads: 2, intermediate_size: 32}}}}}}
tasks: [{task}]
{method}
train: {{max_steps: 2, batch_size: 8, max_length: 32}}
device: cpu
"""
METHOD = {"task": "{name: toy/nli, count: 32}", "method": "method: {kind: 'evil.py:Method'}"}
TASK = {"task": "{kind: 'evil.py:Task', part: nli}", "method": ""}

# Each way to name the config: the word on the command line, and files that are written for it. R is the run directory.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "the run directory": ("R", {}),
    "its config": ("R/config.yaml", {}),
    "another config in it": ("R/other.yaml", {"R/other.yaml": "extends: config.yaml\n"}),
    "a config in a folder of it": ("R/model/x.yaml", {"R/model/x.yaml": "extends: ../config.yaml\n"}),
    "extends": ("own.yaml", {"own.yaml": "extends: R/config.yaml\n"}),
    "extends of extends": ("own.yaml", {"own.yaml": "extends: mid.yaml\n", "mid.yaml": "extends: R/config.yaml\n"}),
    "the file itself": (
        "own.yaml",
        {"own.yaml": CONFIG.format(task=METHOD["task"], method="method: R/evil.py:Method")},
    ),
    "its copy": (
        "own.yaml",
        {"own.yaml": CONFIG.format(task=METHOD["task"], method="method: R/code/1-evil.py:Method")},
    ),
}
TAKES_CONFIG: dict[str, list[list[str]]] = {
    "train": [["train", "C", "-o", "out"], ["train", "C", "--seeds", "2", "-o", "out"]],
    "prepare": [["prepare", "C"]],
    "inspect": [["inspect", "C"]],
    "config": [["config", "C"], ["config", "C", "--diff", "C"], ["config", "good.yaml", "--diff", "C"]],
    "evaluate": [["evaluate", "M", "--on", "C"]],
    "score": [["score", "answers.jsonl", "--on", "C"]],
    "embed": [["embed", "M", "--on", "C"]],
    "heads": [["heads", "M", "--on", "C"]],
    "sweep": [["sweep", "plan", "C"], ["sweep", "run", "C", "-o", "out"], ["sweep", "plan", "based.yaml"],
              ["sweep", "run", "based.yaml", "--retries", "0", "-o", "out"], ["sweep", "plan", "varied.yaml"]],
    "curve": [["curve", "C", "--dry-run", "--fractions", "[0.5]"], ["curve", "C", "--seeds", "1", "-o", "out"]],
    "gradts": [["gradts", "C", "--dry-run", "--primary", "toy/nli"]],
    "select": [["select", "C"], ["select", "--pool.kind", "R/evil.py:Task", "--pool.part", "nli"]],
    "tokenizer": [["tokenizer", "C", "-o", "out"], ["tokenizer", "--corpus.kind", "R/evil.py:Task", "-o", "out"]],
    "glue": [["glue", "R", "--only", "rte", "--seeds", "1", "--method.kind", "R/evil.py:Method", "-o", "out"]],
}  # fmt: skip
# Verbs that read run directories, or nothing; they run no code of R either.
READS_RUNS: dict[str, list[list[str]]] = {
    "predict": [["predict", "R", "--text", "a"]],
    "serve": [["serve", "R", "--port", "0"]],
    "evaluate": [["evaluate", "R", "--on", "toy/nli"], ["evaluate", "R", "--on", "R"]],
    "embed": [["embed", "R", "--on", "toy/nli:dev"]],
    "heads": [["heads", "R", "--on", "toy/nli"]],
    "submit": [["submit", "R", "-o", "out.zip"]],
    "watch": [["watch", "R", "--once"]],
    "table": [["table", "R"]],
    "report": [["report", "R", "-o", "out.html"]],
    "export": [["export", "R", "out"]],
    "publish": [["publish", "R", "-o", "out"]],
    "track": [["track", "R", "--to", "tensorboard"]],
    "import": [["import", "electra", "R", "out"]],
    "recipes": [["recipes", "show", "R"]],
    "data": [["data", "check", "R"]],
    "demo": [["demo", "R"]],
    "tasks": [["tasks", "R"]],
    "doctor": [["doctor", "R"]],
    "train": [["train", "good.yaml", "--method.kind", "R/evil.py:Method", "-o", "out"]],
}


@pytest.fixture
def room(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """A folder with somebody's run directory R, whose code leaves a file where it ran."""

    def make(own: dict[str, str]) -> Path:
        run, code = tmp_path / "R", EVIL.format(marker=str(tmp_path / "RAN"))
        (run / "code").mkdir(parents=True)
        (run / "model").mkdir()
        (run / "evil.py").write_text(code)
        (run / "code" / "1-evil.py").write_text(code)
        digest = hashlib.sha256(code.encode()).hexdigest()
        (run / "code" / "files.json").write_text(json.dumps({"evil.py": ["1-evil.py", digest]}))
        (run / "config.yaml").write_text(CONFIG.format(**own))
        (run / "run.json").write_text(json.dumps({"tasks": ["toy/nli"], "task": "toy/nli"}))
        (tmp_path / "good.yaml").write_text(CONFIG.format(task="toy/nli", method=""))
        (tmp_path / "answers.jsonl").write_text('{"id": "1", "prediction": "neutral"}\n')
        return tmp_path

    return make


def folders_of(room: Path, way: str) -> None:
    name, more = WAYS[way]
    for path, text in more.items():
        (room / path).write_text(text)
    (room / "based.yaml").write_text(f"base: {'R/config.yaml' if name == 'R' else name}\nseeds: [1, 2]\n")
    (room / "varied.yaml").write_text("base: good.yaml\nvariants: {theirs: {extends: R/config.yaml}}\n")


def tried(line: list[str], room: Path, name: str = "") -> str:
    """The command's output, after the checks that hold for every one."""
    words = [name if word == "C" else str(room / "R") if word == "M" else word for word in line]
    ended = command(words, room, stdin="y\n" * 50)
    assert not (room / "RAN").exists(), f"{words}\n{ended.output}"
    assert not ended.is_bug, f"{words}\n{ended.output}"
    return ended.output


@pytest.mark.parametrize("own", [METHOD, TASK], ids=["method", "task"])
@pytest.mark.parametrize("way", WAYS)
def test_S8_no_verb_runs_code_of_a_run_directory_by_any_way_to_name_it(way, own, room) -> None:
    folder = room(own)
    folders_of(folder, way)
    for lines in TAKES_CONFIG.values():
        for line in lines:
            tried(line, folder, WAYS[way][0])
    assert "--allow-code" in tried(["config", "C"], folder, WAYS[way][0])


@pytest.mark.parametrize("verb", ["train", "inspect", "sweep", "curve", "gradts"])
def test_S8_the_refusal_says_what_to_do(verb, room) -> None:
    folder = room(METHOD)
    folders_of(folder, "extends")
    output = tried(TAKES_CONFIG[verb][0], folder, "own.yaml")
    assert "contains its own code (evil.py)" in output
    assert "--allow-code" in output


@pytest.mark.parametrize("own", [METHOD, TASK], ids=["method", "task"])
@pytest.mark.parametrize("verb", READS_RUNS)
def test_S8_verbs_that_read_runs_run_no_code_of_them(verb, own, room) -> None:
    folder = room(own)
    for line in READS_RUNS[verb]:
        tried(line, folder)


@pytest.mark.parametrize("mark", ["run.json", "code/files.json", "DONE", "metrics.jsonl", "checkpoints"])
def test_S8_one_mark_of_a_run_directory_is_enough(mark, room) -> None:
    folder = room(METHOD)
    (folder / "R" / "run.json").unlink()
    (folder / "R" / "code" / "files.json").unlink()
    (folder / "R" / mark).write_text("{}")
    folders_of(folder, "extends")
    assert "--allow-code" in tried(["config", "C"], folder, "own.yaml")


def test_S8_the_lists_have_every_verb() -> None:
    assert set(TAKES_CONFIG) | set(READS_RUNS) == {verb.name for verb in VERBS}


@pytest.mark.parametrize("way", ["the run directory", "extends", "its copy"])
def test_S8_allowed_code_runs(way, room) -> None:
    """With --allow-code it does run, so the tests above could fail; a sweep hands the permission to its runs."""
    folder = room(METHOD)
    folders_of(folder, way)
    name = WAYS[way][0]
    assert command(["config", name, "--allow-code"], folder).code == 0
    assert (folder / "RAN").exists()
    assert command(["config", name], folder).code == 2
    assert command(["sweep", "plan", "based.yaml", "--allow-code"], folder).code == 0


def test_S8_a_sweep_over_allowed_code_trains(room) -> None:
    folder = room(METHOD)
    folders_of(folder, "extends")
    ended = command(["sweep", "run", "based.yaml", "--seeds", "1", "--allow-code", "-o", "out"], folder)
    assert ended.code == 0, ended.output
    assert "1 done" in ended.output


def test_S8_changed_code_is_refused_even_if_allowed(room) -> None:
    folder = room(METHOD)
    copy = folder / "R" / "code" / "1-evil.py"
    copy.write_text(copy.read_text() + "\nx = 1")
    folders_of(folder, "extends")
    ended = command(["config", "own.yaml", "--allow-code"], folder)
    assert ended.code == 2
    assert "is not the file that the run was made with" in ended.output


def test_S8_own_files_beside_own_configs_run(room) -> None:
    folder = room(METHOD)
    (folder / "mine.py").write_text((folder / "R" / "evil.py").read_text())
    (folder / "own.yaml").write_text(CONFIG.format(task="toy/nli", method="method: mine.py:Method"))
    assert command(["config", "own.yaml"], folder).code == 0
    assert (folder / "RAN").exists()


def test_S8_components_are_imported_in_one_place() -> None:
    """Only own_code.py runs a file as a module; nothing of the package calls exec or eval."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", "")) if isinstance(node, ast.Attribute | ast.Name) else ""
            if name in ("exec_module", "spec_from_file_location", "runpy", "exec"):
                found.add(str(path.relative_to(PACKAGE)))
    assert found == {"config/own_code.py", "models/auto_register.py"}  # the latter watches an import of transformers
