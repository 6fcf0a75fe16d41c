import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.core.files import as_name, check_name, inside
from encodery.errors import UserError


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a b", "ä", "a\n", "-o", "a;b", "$x", "..."])
def test_S4_other_characters_are_refused(name):
    with pytest.raises(UserError, match="cannot be a name"):
        check_name(name)


@given(st.text())
def test_S4_any_text_has_a_check_name(text):
    assert check_name(as_name(text)) == as_name(text)


def test_S4_paths_stay_below_their_root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    assert inside(root, "a/../b") == root.resolve() / "b"
    (root / "link").symlink_to(tmp_path)
    for bad in ["..", "a/../../x", "/etc/passwd", "link/x"]:
        with pytest.raises(UserError, match="points outside"):
            inside(root, bad)
