"""docs/modules.md is what the code says, and every file says what it is."""

import functools
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("fill_modules", ROOT / "docs" / "fill_modules.py")
assert SPEC is not None
assert SPEC.loader is not None
fill = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fill)
fill.summary = functools.cache(fill.summary)  # several tests ask it of every file


def test_the_module_map_is_current() -> None:
    assert fill.PAGE.read_text(encoding="utf-8") == fill.page(ROOT / "encodery"), "run `make docs`"


def test_every_module_has_a_line() -> None:
    bare = [path for path in (ROOT / "encodery").rglob("*.py") if path.name != "__init__.py" and not fill.summary(path)]
    assert not bare


def test_a_module_that_is_not_on_the_map_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "new.py").write_text('"""Something new.\n\nMore."""\n')
    assert "## package\n\n- `new.py`: Something new.\n" in fill.page(tmp_path / "package")
