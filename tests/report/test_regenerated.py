"""HANS drawn anew is not the published HANS, and every figure says so."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from encodery.inference.evaluate import with_note
from encodery.report import data_curves, table
from encodery.report.page import build
from encodery.report.page.data import gather
from encodery.report.public_card import public_card
from encodery.report.run_card import model_card
from encodery.runs.directory import RunDir
from encodery.tasks.forms.hans_figures import NOT_PUBLISHED, REGENERATED, Report
from tests.report.runs import run, tree

LABEL = f"hans:dev ({NOT_PUBLISHED})"
ABOUT = {"scores": {"accuracy": 0.55}, "main": "accuracy", "heads": ["toy/nli"], "rows": 30000, "note": REGENERATED}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was evaluated on the regenerated file."""
    made = RunDir(run(tmp_path / "a", 0.8))
    made.write_scores(made.read_scores() | {"evaluations": {"hans:dev": ABOUT}})
    cell = {"accuracy": 0.7, "right": 7, "rows": 10, "interval": [0.5, 0.9]}
    report = {side: {"subsequence": cell} for side in ("entailed", "non_entailed", "subcases")}
    made.predictions.mkdir(exist_ok=True)
    (made.predictions / "hans-dev.report.json").write_text(json.dumps(report))
    return tmp_path


def test_W38_in_tables_of_every_form(folder: Path) -> None:
    found = table.table([folder])
    assert f"| {LABEL} | accuracy | 55.00 (1) |" in table.markdown(found)
    assert f"{LABEL} accuracy" in table.markdown(found, "data").splitlines()[0]
    assert f"{LABEL} accuracy" in table.csv_text(found, "data").splitlines()[0]
    assert NOT_PUBLISHED in table.latex(found, "data").partition(r"\midrule")[0]
    assert [row["data"] for row in found.to_dict()] == ["hans:dev", "toy/nli:dev"]  # the key itself stays a key
    assert REGENERATED in found.to_dict()[0]["notes"]


def test_W38_on_the_page(folder: Path) -> None:
    found = gather([folder])
    page = build.page(found, build.sections(found), "HANS")
    assert f"{LABEL}: accuracy 55.00" in page  # the summary
    assert f"{LABEL} by heuristic" in page
    assert f"{LABEL}: right answers in % by subcase" in page
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    bare = re.findall(r"hans:dev(?! \(regenerated)[^<]{0,20}", text)
    assert not [words for words in bare if not words.startswith("hans:dev.")]


def test_W38_on_cards(tmp_path: Path) -> None:
    origins = {"train": {"digest": "d", "rows": 3, "source": "folder"},
               "dev": {"digest": "d", "rows": 3, "source": "folder", "note": REGENERATED}}  # fmt: skip
    made = RunDir(run(tmp_path / "a", 0.5, task="hans", origins=origins))
    made.update_info(seed={"init": 1}, method="plain", environment={})
    made.model.mkdir(exist_ok=True)
    (made.model / "config.json").write_text('{"model_type": "bert"}')
    result = made.read_scores()
    config: dict[str, Any] = tree("hans")
    assert f"| {LABEL} | accuracy | 0.5000 |" in model_card(made, config, result)
    card = public_card(made, config, {})
    assert f"| {LABEL} | accuracy | 0.5000 |" in card
    assert f"name: hans ({NOT_PUBLISHED})" in card


def test_W38_in_the_files_of_an_evaluation() -> None:
    report = Report({}, {}, {}, {}, {"entailment": {"entailment": 1}}, 1)
    pages = {"report.md": "| a |", "report.json": report.json(), "report.csv": "kind,name\nentailed,x\n",
             "report.txt": "Heuristic entailed results:\n"}  # fmt: skip
    found = with_note(pages, REGENERATED)
    assert found["report.md"].startswith(REGENERATED)
    assert json.loads(found["report.json"])["note"] == REGENERATED
    assert found["report.csv"] == f"kind,name,note\nentailed,x,{REGENERATED}\n".replace(
        REGENERATED, f'"{REGENERATED}"' if "," in REGENERATED else REGENERATED
    )
    assert found["report.txt"] == pages["report.txt"]  # McCoy's form stays his
    assert with_note(pages, None) == pages


def test_W38_in_curves() -> None:
    point = data_curves.Point("random", "epochs", 1.0, 1, 4, 10, {"hans:dev": {"accuracy": 0.5}})
    found = data_curves.Curves([point], "hans:dev", {"hans:dev": "accuracy"}, (), {"hans:dev": f" ({NOT_PUBLISHED})"})
    assert LABEL in data_curves.markdown(found)
    assert data_curves.plain(found)["cautions"] == {"hans:dev": f" ({NOT_PUBLISHED})"}
