"""The notebooks run from top to bottom, and hold nothing of the machine they were written on."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHOWN = {
    "what_the_model_sees": ["[CLS]", "first batch (packed)", "first batch (padded)", "replaced"],
    "from_runs_to_a_table": ["mean ± sd", "(2)", "tabular", "p_positive"],
}


def test_every_notebook_is_known():
    assert {page.stem for page in PAGES} == set(SHOWN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_is_clean(page):
    text = page.read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert not any(word in text for word in ("/home/", "/root", "/tmp/", "/Users/", "C:\\\\"))


@pytest.mark.slow(10)
@pytest.mark.timeout(900)  # a kernel starts slowly on a busy machine
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_runs(page, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(page, as_version=4)
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = json.dumps([cell.get("outputs") for cell in notebook.cells], ensure_ascii=False)
    assert [words for words in SHOWN[page.stem] if words not in said] == []
    assert list(tmp_path.iterdir()) == []  # nothing is left beside the page
