"""The card beside the weights: a damaged one is an error that names the file, whatever is wrong and whoever reads."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from encodery.errors import UserError
from encodery.models.model import CARD, read_card, require_openable

ABOUT = {"objective": {"kind": "classification"}, "max_length": 32, "task": None, "labels": ["a", "b"]}
WRONG: list[Any] = [
    [], 1, None, {}, {"tasks": []}, {"tasks": {}}, {"tasks": {"x": 1}}, {"tasks": {"x": {}}},
    {"tasks": {"x": ABOUT | {"objective": {}}}},
    {"tasks": {"x": ABOUT | {"max_length": True}}}, {"tasks": {"x": ABOUT | {"labels": None}}},
]  # fmt: skip


def test_a_folder_of_somebody_else_has_no_card(tmp_path: Path) -> None:
    assert read_card(tmp_path) is None
    (tmp_path / CARD).write_text(json.dumps({"tasks": {"x": ABOUT}}))
    assert read_card(tmp_path) == {"tasks": {"x": ABOUT}}


@pytest.mark.parametrize("tree", WRONG)
def test_a_card_that_says_too_little_is_damaged(tree: Any, tmp_path: Path) -> None:
    (tmp_path / CARD).write_text(json.dumps(tree))
    with pytest.raises(UserError, match=rf"{CARD} is damaged, .*: restore it from a copy, or export the model again"):
        read_card(tmp_path)


@pytest.mark.parametrize("key", ["max_length", "task", "labels"])
def test_a_head_that_answers_needs_more(key: str, tmp_path: Path) -> None:
    tree = {"tasks": {"x": {name: value for name, value in ABOUT.items() if name != key}}}
    (tmp_path / CARD).write_text(json.dumps(tree))
    assert read_card(tmp_path) == tree
    with pytest.raises(UserError, match=f"{CARD} is damaged, x has no {key}: restore it"):
        require_openable(tmp_path, tree["tasks"])


@pytest.fixture
def damage(trained: Any, tmp_path: Path) -> Callable[[Callable[[Any], Any]], Path]:
    """A model folder whose card was changed."""

    def make(change: Callable[[Any], Any]) -> Path:
        folder = Path(shutil.copytree(Path(trained("pair")) / "model", tmp_path / "theirs"))
        tree = json.loads((folder / CARD).read_text())
        changed = change(tree)
        (folder / CARD).write_text(changed if isinstance(changed, str) else json.dumps(tree))
        return folder

    return make


def torn(tree: Any) -> str:
    return json.dumps(tree)[:100]


def of_task(key: str, value: Any) -> Callable[[Any], None]:
    """A key of the only task set, or left out."""

    def change(tree: Any) -> None:
        (about,) = tree["tasks"].values()
        *outer, last = key.split(".")
        inner = about[outer[0]] if outer else about
        inner[last] = value
        if value is None:
            del inner[last]

    return change


@pytest.mark.parametrize(
    "change",
    [
        torn, of_task("labels", None), of_task("max_length", -1), of_task("objective.form", None),
        of_task("objective.class_weights", "x"),
    ],
)  # fmt: skip
def test_every_verb_names_a_damaged_card(
    change: Callable[[Any], Any], damage: Callable[[Callable[[Any], Any]], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damage(change)
    (folder.parent / "gold.csv").write_text("text,text2,label\na,b,entailment\nc,d,neutral\n")
    words = [["predict", "--text", "a", "--text2", "b"], ["evaluate", "--on", str(folder.parent / "gold.csv")]]
    for verb, *rest in words:
        assert main([verb, str(folder), *rest]) == 2
        said = capsys.readouterr().err
        assert f"{folder / CARD} is damaged" in said
        assert "restore it from a copy" in said
