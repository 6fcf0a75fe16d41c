from pathlib import Path

import pytest

from encodery import components
from encodery.config.components import find, names
from encodery.config.own_code import Code
from encodery.core.options import Options
from encodery.errors import UserError


@pytest.mark.parametrize("room", ["tasks", "methods", "objectives", "weighting", "mix", "select"])
def test_every_public_file_is_a_component(room: str) -> None:
    """What is none begins with _ or is in a sub-package, or people would see it among the names."""
    assert names(room)
    for name in names(room):
        assert issubclass(find(room, name), Options)


def test_an_old_import_path_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from encodery.tasks.classify import Classification\n")
    with pytest.raises(UserError, match=r"mine.py:1: .*import what components need from encodery.components"):
        Code().find("tasks", "mine.py:Mine", tmp_path)


@pytest.mark.parametrize("name", components.__all__)
def test_every_name_for_own_files_is_there(name: str) -> None:
    assert getattr(components, name) is not None


def test_a_name_that_is_not_for_own_files_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"encodery\.components has no Nonsense; it has ActiveMethod, Attack"):
        components.Nonsense  # noqa: B018
