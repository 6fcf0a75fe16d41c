import importlib

import pytest

from encodery.find import find, names
from encodery.options import Options


@pytest.mark.parametrize("room", ["tasks", "methods", "objectives"])
def test_every_file_of_a_room_is_a_component_or_a_known_helper(room):
    """A helper file begins with _ (or stands in find._HELPERS), or people would see it among the names."""
    importlib.import_module(f"encodery.{room}")
    assert names(room)
    for name in names(room):
        assert issubclass(find(room, name), Options)
