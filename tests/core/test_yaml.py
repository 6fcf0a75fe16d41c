import time

import pytest

from encodery.core.yaml import MAX_BYTES, read_file, read_text, scalar, value, write
from encodery.errors import UserError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1\nb: *x", "f:1: anchors and aliases"),
        ("a: 1\nb: *x", "f:2: anchors and aliases"),
        ("a: !!python/object/apply:os.system [ls]", "f:1: tags such as"),
        ("a: !!str 5", "f:1: tags such as"),
        ("a: 1\nb: {c: 1, c: 2}", "f:2: the key 'c' appears twice"),
        ("[" * 100, "nested deeper than 32 levels"),
        ("a:\n" + "".join("  " * i + "- \n" for i in range(1, 60)), "nested deeper|not YAML"),
        ("a: 1\n---\nb: 1", "not YAML"),
        ("a: [1", "f:1: column 6: not YAML"),
        ("? [a]\n: 1", "a key must be a word"),
        ("a: " + "9" * 5000, "too long"),
        ("x" * (MAX_BYTES + 1), "longer than 1,000,000 bytes"),
    ],
)
def test_S2_dangerous_or_broken_yaml_is_refused_with_its_line(text, problem):
    start = time.process_time()
    with pytest.raises(UserError, match=problem):
        read_text(text, "f")
    assert time.process_time() - start < 2


def test_S2_files_are_limited_before_they_are_parsed(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: 1\n" * 300_000)
    with pytest.raises(UserError, match="longer than"):
        read_file(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(UserError, match="byte 3 is not UTF-8"):
        read_file(path)
    with pytest.raises(UserError, match="no such config file"):
        read_file(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        read_file(tmp_path)


def test_lines_of_keys_and_items():
    read = read_text("\ufeffa: 1\nb:\n  - x\n  - c: 2\n    d: |\n      text\ne: ''".lstrip("\ufeff"), "f")
    assert read.tree == {"a": 1, "b": ["x", {"c": 2, "d": "text\n"}], "e": ""}
    assert read.lines["a",] == 1
    assert read.lines["b", 1, "d"] == 5
    assert read.lines["e",] == 7


def test_W1_scalars():
    words = {"2e-5": 2e-5, "1E5": 1e5, ".5": 0.5, "1.": 1.0, "-3": -3, "0x1F": 31, "0o17": 15, "~": None, "": None}
    assert {word: scalar(word) for word in words} == words
    for word in ["1_000", "no", "on", "off", "yes", "1:30", "2026-01-01", "=", "<<", "nan", "inf", "tRue"]:
        assert scalar(word) == word
    assert [value(word) for word in ["true", "'true'", "[1, '2']", " 3 "]] == [True, "true", [1, "2"], 3]


def test_keys_are_text_whatever_they_look_like():
    assert read_text("0: a\nno: b\nnull: c", "f").tree == {"0": "a", "no": "b", "null": "c"}


def test_write_quotes_what_looks_like_something_else():
    tree = {"a": "2e-5", "b": "no", "c": [1e-5, 2.0, 1], "d": "x\ny", "e": {}, "f": [{"g": [1]}], "h": "1" * 400}
    text = write(tree)
    assert read_text(text, "f").tree == tree
    assert "a: '2e-5'" in text
    assert "b: 'no'" in text
    assert "c: [1.0e-05, 2.0, 1]" in text
