"""The wheel holds what it should: installed into a fresh environment it lists its recipes."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: str | Path, folder: Path) -> str:
    """The output of a command that must end well; it sees nothing of this checkout."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = tuple(map(str, words))
    done = subprocess.run(words, cwd=folder, env=alone, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what is tracked, so that nothing is left behind in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("encodery", "pyproject.toml", "README.md", "LICENSE"):
        run("cp", "-r", ROOT / name, source, folder=source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source, folder=out)
    (built,) = out.glob("encodery-*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`encodery` in an environment of its own, which borrows the dependencies of this one: nothing is downloaded."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=False)
    paths = sysconfig.get_paths(vars={"base": str(place), "platbase": str(place)})
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", place / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=place)
    (Path(paths["purelib"]) / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return place / "bin" / "encodery"


@pytest.mark.slow
def test_the_wheel_holds_code_and_recipes_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].split("-")[0] for name in names} == {"encodery"}
    assert "encodery/py.typed" in names
    assert "encodery/recipes/glue/rte/electra-small.yaml" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_an_installed_wheel_lists_its_recipes_and_its_version(command: Path, tmp_path: Path) -> None:
    listed = run(command, "recipes", folder=tmp_path)
    assert "glue/rte/electra-small" in listed
    assert run(command, "--version", folder=tmp_path).startswith("encodery 0.")
    where = run(command.with_name("python"), "-c", "import encodery; print(encodery.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(command.parents[1])


@pytest.mark.slow
def test_an_installed_wheel_resolves_a_recipe(command: Path, tmp_path: Path) -> None:
    printed = run(command, "config", "recipe:glue/rte/electra-small", folder=tmp_path)
    assert "google/electra-small-discriminator" in printed
