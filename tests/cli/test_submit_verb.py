import json
import zipfile

import pytest

import encodery as en
from encodery.scoring.glue_submission import FILES
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import glue_nli, parquet, sentences


@pytest.fixture(scope="module")
def wnli(tmp_path_factory):
    """A run on WNLI, whose test set is the smallest, with all its test rows."""
    folder = tmp_path_factory.mktemp("wnli")
    for stem, count in (("wnli_train", 12), ("wnli_dev", 6), ("wnli_test", 146)):
        texts = sentences(count + 1)
        labels = [-1 if stem == "wnli_test" else i % 2 for i in range(count)]
        columns = {"sentence1": texts[:-1], "sentence2": texts[1:], "label": labels, "idx": list(range(count))}
        parquet(folder / "data" / "glue", stem, **columns)
    config = config_for(folder, {"name": "glue/wnli"}, data=str(folder / "data"))
    return en.train(config, folder / "runs" / "wnli").path


@pytest.mark.slow
def test_answers_are_made_kept_and_written(wnli, tmp_path, encodery):
    out = tmp_path / "glue.zip"
    said = encodery("submit", wnli, "-o", out)
    assert said.code == 2
    assert "CoLA.tsv" in said.err
    assert "WNLI.tsv" not in said.err
    assert not out.exists()
    assert not (wnli / "predictions" / "glue-wnli-test.jsonl").exists()  # refused before anything is predicted
    said = encodery("submit", wnli.parent, "-o", out, "--fill", "majority", "--quiet")
    assert said.code == 0, said.err
    kept = (wnli / "predictions" / "glue-wnli-test.jsonl").read_text().splitlines()
    assert len(kept) == 146
    assert en.Run(wnli).directory.read_scores()["evaluations"]["glue/wnli:test"]["scores"] is None
    assert "NOT answered by a model: CoLA.tsv" in said.out
    assert "WNLI" not in said.out
    with zipfile.ZipFile(out) as archive:
        assert set(archive.namelist()) == set(FILES)
        lines = archive.read("WNLI.tsv").decode().splitlines()
    assert [line.split("\t")[1] for line in lines[1:]] == [json.loads(row)["prediction"] for row in kept]
    marked = json.loads((tmp_path / "glue.zip.json").read_text())["filled"]
    assert len(marked) == 10
    assert "WNLI.tsv" not in marked
    assert encodery("submit", "--check", out).code == 0


@pytest.mark.slow
def test_mnli_answers_three_files(tmp_path, encodery):
    data = tmp_path / "data"
    glue_nli(data, "mnli_train", 12)
    glue_nli(data, "mnli_dev", 6)
    glue_nli(data, "ax_test", 1104, hidden=True)
    run = en.train(config_for(tmp_path, {"name": "glue/mnli"}, data=str(data)), tmp_path / "run")
    for split, count in (("test", 9796), ("test_mismatched", 9847)):  # answered before
        rows = ({"id": str(i), "prediction": "neutral"} for i in range(count))
        run.directory.write_predictions("glue/mnli", split, rows)
    out = tmp_path / "glue.zip"
    assert encodery("submit", run.path, "-o", out, "--fill", "majority").code == 0
    filled = json.loads((tmp_path / "glue.zip.json").read_text())["filled"]
    assert not {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"} & set(filled)
    assert len(filled) == 8


@pytest.mark.slow(0.5)
def test_missing_test_rows_are_named(tmp_path, encodery):
    data = tmp_path / "data"
    glue_nli(data, "mnli_train", 12)
    run = en.train(config_for(tmp_path, {"name": "glue/mnli"}, data=str(data)), tmp_path / "run")
    said = encodery("submit", run.path, "-o", tmp_path / "glue.zip", "--fill", "majority")
    assert "glue/mnli:test_mismatched cannot be answered: " in said.err


@pytest.mark.slow
def test_refusals(wnli, trained, tmp_path, encodery):
    assert "Which runs?" in encodery("submit").err
    assert "not a GLUE task" in encodery("submit", trained("single")).err
    assert "there are no runs" in encodery("submit", tmp_path).err
    (tmp_path / "bad.zip").write_text("no zip")
    said = encodery("submit", "--check", tmp_path / "bad.zip")
    assert said.code == 2
    assert "not a readable zip" in said.err
    en.train(en.Run(wnli), tmp_path / "twin", seed=2)
    assert "has two runs" in encodery("submit", wnli, tmp_path / "twin").err


@pytest.mark.slow
def test_the_best_seed_is_picked_and_said(wnli, tmp_path, encodery):
    sweep = tmp_path / "sweep"
    runs = [en.train(en.Run(wnli), sweep / f"seed-{seed}", seed=seed) for seed in (1, 2, 3)]
    scores = {run.path: run.scores["glue/wnli:dev"]["accuracy"] for run in runs}
    said = encodery("submit", sweep, "--pick", "best", "-o", tmp_path / "glue.zip", "--fill", "majority", "--quiet")
    assert said.code == 0, said.err
    chosen = next(path for path in scores if str(path) in said.out)
    assert scores[chosen] == max(scores.values())
    assert "best of 3 seeds on dev" in said.out
    assert "optimistic" in said.err
    report = json.loads((tmp_path / "glue.zip.json").read_text())
    about = report["answered_by"]["WNLI.tsv"]
    assert list(report["answered_by"]) == ["WNLI.tsv"]
    assert (about["run"], about["seed"]) == (chosen.name, int(chosen.name.removeprefix("seed-")))
    assert about["dev"] == {"accuracy": scores[chosen]}
    assert about["picked"].startswith("best of 3 seeds on dev: seed ")
    assert str(tmp_path) not in json.dumps(report)
    assert [path for path in scores if (path / "predictions" / "glue-wnli-test.jsonl").exists()] == [chosen]
    again = encodery("submit", sweep, "--pick", "wnli=2", "-o", tmp_path / "two.zip", "--fill", "majority", "--quiet")
    assert "seed-2  (seed 2, as asked, accuracy" in again.out
    assert (sweep / "seed-2" / "predictions" / "glue-wnli-test.jsonl").exists()
    assert "--pick best, median or wnli=SEED" in encodery("submit", sweep).err


@pytest.mark.slow
def test_missing_test_rows_are_refused_before_anything_is_predicted(wnli, tmp_path, encodery, monkeypatch):
    from encodery.cli import submit

    monkeypatch.setattr(submit, "require_all", lambda parts: None)
    data = tmp_path / "data" / "glue"
    data.mkdir(parents=True)
    said = encodery("submit", en.train(en.Run(wnli), tmp_path / "run", seed=4).path, "--data", data.parent)
    assert said.code == 2
    assert "there are no test rows of glue/wnli:test in the data folder" in said.err
