"""`encodery table` as people type it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.runs import run, seeds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seeds(tmp_path / "a", [0.7, 0.75, 0.8], optim__lr=2e-5)
    seeds(tmp_path / "b", [0.72, 0.8, 0.85], optim__lr=3e-5)
    return tmp_path


@pytest.mark.slow
def test_every_format_holds_both_rows(folder, encodery):
    for form, sign in (("md", "75.00 ± 5.00 (3)"), ("latex", r"75.00 $\pm$ 5.00 (3)"), ("csv", "0.75")):
        said = encodery("table", folder, "--format", form, "--baseline", "optim.lr=2e-5")
        assert said.code == 0, said.err
        assert sign in said.out
    found = json.loads(encodery("table", folder, "--format", "json").out)
    assert [row["optim.lr"] for row in found["rows"]] == ["2e-05", "3e-05"]


def test_many_settings_become_a_legend_in_a_narrow_terminal(tmp_path, encodery, monkeypatch):
    many = {f"method__setting_number_{number}": number for number in range(30)}
    run(tmp_path / "a", 0.75)
    run(tmp_path / "b", 0.5, **many)
    monkeypatch.setenv("COLUMNS", "80")
    lines = encodery("table", tmp_path, "--format", "rich").out.splitlines()
    assert [line.split()[0] for line in lines if "75.00 (1)" in line or "50.00 (1)" in line] in (["a", "b"], ["b", "a"])
    assert "method.setting_number_29=29" in " ".join(lines)


def test_pivot_sort_and_second_level(folder, encodery):
    assert "| optim.lr=2e-05 | optim.lr=3e-05 |" in encodery("table", folder, "--columns", "optim.lr").out
    assert encodery("table", folder, "--sort", "mean").out.splitlines()[2].startswith("| 3e-05 |")
    assert "| models |" in encodery("table", folder, "--over-models", "median").out
    assert encodery("table", folder, "--columns", "optim.lr", "--format", "json").code == 2


@pytest.mark.slow
def test_W24_without_a_terminal_it_prints_and_asks_nothing(folder):
    code = (
        "import sys\nfrom encodery import cli\n"
        f"code = cli.main(['table', {str(folder)!r}, '--baseline', '2e-5'])\n"
        "heavy = [name for name in ('torch', 'transformers', 'sklearn', 'scipy') if name in sys.modules]\n"
        "print(heavy)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")
    assert "**79.00 ± 6.56 (3)**" in done.stdout


def test_a_damaged_folder_is_a_sentence(tmp_path, encodery):
    run(tmp_path / "a", 0.5)
    assert encodery("table", tmp_path / "nowhere").code == 2
    assert "is not a folder" in encodery("table", tmp_path / "nowhere").err
