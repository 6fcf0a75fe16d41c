"""Files of ManyTasks become sweeps of ours, or commands."""

import json
import re
import shlex
from pathlib import Path

import pytest

from encodery.core.yaml import read_text
from encodery.errors import UserError
from encodery.importers import manytasks
from encodery.sweep import sweep_file
from encodery.sweep.sweep_file import Sweep

# The example of ParaGen's adversarial classification, which the FreeLB table was made with.
SEED = {
    "executor": "paragen-run",
    "cuda": [0, 1, 2, 3, 4, 5, 6, 7],
    "concurrency": 8,
    "configs": {
        "==base==": ["--config", "glue/configs/RTE.yaml", "--task.model.adv_lr", [0.05, 0.1]],
        "==more==": [
            ["--task.model.init_mag", size, "--task.model.max_norm", size] for size in ("0.01", "0.02", "0.03", "0.06")
        ],
    },
}
# The example on ManyTasks' front page, with its comments and its trailing commas.
README = """{
  "executor": "python some.py",
  "cuda": [4, 5, 6, 7],
  "concurrency": 4,           # num of tasks to run in parallel
  "cuda_per_task": 1,
  "configs": {
    # basic configurations
    "==base==": [
      "arg0",
      "--a", [50, 100],       # `--a` takes value from [50, 100]
      "--name", "a_${a}"      # "${a}" refers to the value of `--a`
    ],
    // more disjoint configurations
    "==more==": [
      [ "--c1", [1, 2] ],            /* [1, 2] */
      [ "--c2", "$<x|y>.$<1:4>" ],
    ]
  }
}
"""


def imported(tmp_path: Path, content: object) -> manytasks.Imported:
    path = tmp_path / "search.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return manytasks.read(path)


def of(tmp_path: Path, *words: object, executor: str = "echo") -> list[str]:
    return imported(tmp_path, {"executor": executor, "configs": {"==base==": list(words), "==more==": []}}).commands


def test_W8_the_seeds_search_is_eight_runs_with_the_right_pairs(tmp_path: Path) -> None:
    found = imported(tmp_path, SEED)
    assert found.sweep is not None
    tree = read_text(found.sweep, "sweep.yaml").tree
    assert tree["base"] == "recipe:freelb/paragen/rte"
    assert tree["grid"] == {"method.adv_lr": [0.05, 0.1]}
    assert tree["zip"] == [{"method.init_mag": x, "method.max_norm": x} for x in (0.01, 0.02, 0.03, 0.06)]
    sweep = sweep_file.parse(found.sweep, "sweep.yaml", tmp_path, "x").sweep
    assert isinstance(sweep, Sweep)
    assert any("recipe:freelb/paragen/rte" in note for note in found.notes)


def test_W8_the_front_page_of_manytasks_is_sixteen_runs_in_its_order(tmp_path: Path) -> None:
    first = [f"python some.py arg0 --a {a} --name a_{a} --c1 {c}" for a in (50, 100) for c in (1, 2)]
    then = [
        f"python some.py arg0 --a {a} --name a_{a} --c2 {x}.{i}" for a in (50, 100) for x in "xy" for i in (1, 2, 3)
    ]
    assert imported(tmp_path, README).commands == first + then


def test_values_that_count(tmp_path: Path) -> None:
    assert of(tmp_path, "$<1:6:2;3>") == ["echo 001", "echo 003", "echo 005"]
    assert of(tmp_path, "--n", "$<range(2,6,2)>") == ["echo --n 2", "echo --n 4"]
    assert of(tmp_path, "x_$<1:3;3>.txt") == ["echo x_001.txt", "echo x_002.txt"]


def test_flags_bare_words_and_negative_numbers(tmp_path: Path) -> None:
    assert of(tmp_path, "data", "--fast", "--x", -1, "--on", "$<?>") == [
        "echo data --fast --x -1 --on",
        "echo data --fast --x -1",
    ]


def test_words_with_spaces_stay_one_word(tmp_path: Path) -> None:
    [line] = of(tmp_path, "--say", "good day", executor="python 'my script.py'")
    assert shlex.split(line) == ["python", "my script.py", "--say", "good day"]


def test_references(tmp_path: Path) -> None:
    assert of(tmp_path, "data", "--k", "abcd", "--to", "${1}/${k[1:3]}/${k[abcd:7,_:0]}") == [
        "echo data --k abcd --to data/bc/7"
    ]


def test_files_and_lines_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.sh").touch()
    (tmp_path / "a.sh").touch()
    (tmp_path / "urls.txt").write_text("one\n\ntwo\n")
    assert of(tmp_path, "$<files:*.sh;nameonly>") == ["echo a.sh", "echo b.sh"]
    assert of(tmp_path, "$<lines:urls.txt>") == ["echo one", "echo two"]


def test_commands_of_ours_become_a_sweep(tmp_path: Path) -> None:
    base = ["recipe:toy/nli", "--optim.lr", [1e-4, 5e-4], "--train.epochs", 1]
    more = [["--method.kind", "freelb", "--method.steps", [2, 3]], ["--method.kind", "plain"]]
    found = imported(tmp_path, {"executor": "encodery train", "configs": {"==base==": base, "==more==": more}})
    assert found.sweep is not None
    tree = read_text(found.sweep, "x").tree
    assert tree["base"] == "recipe:toy/nli"
    assert tree["fixed"] == {"train.epochs": 1}
    assert [len(block["zip"]) for block in tree["variants"].values()] == [4, 2]


def test_an_argument_without_counterpart_keeps_the_commands(tmp_path: Path) -> None:
    content = {"executor": "paragen-run", "configs": {"==base==": ["--task.model.depth", [1, 2]], "==more==": []}}
    found = imported(tmp_path, content)
    assert found.commands == ["paragen-run --task.model.depth 1", "paragen-run --task.model.depth 2"]
    assert any("--task.model.depth" in note for note in found.notes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{\n"executor": "x",\n oops }', "search.json:3: not JSON"),
        ("[]", "search.json:1: not a ManyTasks file"),
        ('{"executor": "x"}', "needs executor and configs"),
        ('{"executor": "x", "configs": {"==base==": ["$<os.getcwd()>"]}}', "Python code is not run"),
        ('{"executor": "x", "configs": {"==base==": ["--aa", "1", "--b", "${a}"]}}', "did you mean aa"),
        ('{"executor": "x", "configs": {"==base==": ["--a", "${a}"]}}', "refers to itself"),
        ('{"executor": "x", "configs": {"==base==": ["$<lines:no.txt>"]}}', "no.txt"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        imported(tmp_path, content)


def test_comments_inside_texts_stay(tmp_path: Path) -> None:
    assert of(tmp_path, "http://a#b", "/* c */,]") == [shlex.join(["echo", "http://a#b", "/* c */,]"])]
