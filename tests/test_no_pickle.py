"""S1: no file is unpickled but by `import`, with weights only; tests/faults/test_pickles.py tries it."""

import re
from pathlib import Path

import encodery.errors

PACKAGE = Path(encodery.errors.__file__).parent
WORDS = re.compile(
    r"torch\.load\b|torch\.save\b|\b(?:c?[pP]ickle|cloudpickle|dill|joblib|shelve|marshal)\b|allow_pickle=True"
)


def offences(text: str) -> list[str]:
    return [match.group() for match in WORDS.finditer(text)]


def test_S1_no_pickle_in_the_package() -> None:
    found = {
        str(path.relative_to(PACKAGE)): offences(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
        if "importers" not in path.relative_to(PACKAGE).parts
    }
    assert len(found) > 10
    assert {name: words for name, words in found.items() if words} == {}


def test_S1_importers_load_weights_only() -> None:
    for path in (PACKAGE / "importers").rglob("*.py"):
        for call in re.findall(r"torch\.load\([^)]*\)", path.read_text(encoding="utf-8")):
            assert "weights_only=True" in call, f"{path}: {call}"


def test_S1_the_search_finds_what_it_seeks() -> None:
    assert offences("import pickle; torch.load(x); np.load(x, allow_pickle=False); unpickled") == [
        "pickle",
        "torch.load",
    ]
