import importlib
from pathlib import Path

import pytest

import encodery
from encodery.find import find, names
from encodery.options import Options

PACKAGE = Path(encodery.__file__).parent


@pytest.mark.parametrize("room", ["tasks", "methods", "objectives"])
def test_every_file_of_a_room_is_a_component_or_a_known_helper(room):
    """A helper file begins with _ (or stands in find._HELPERS), or people would see it among the names."""
    importlib.import_module(f"encodery.{room}")
    assert names(room)
    for name in names(room):
        assert issubclass(find(room, name), Options)


def test_S3_remote_code_is_never_trusted():
    word = "trust_" + "remote_code"
    texts = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".yaml")]
    assert not [str(path) for path in texts if word in path.read_text(encoding="utf-8")]
