import json
import shutil

import encodery as en
from tests.toolbox.tasks import glue_nli


def test_predictions_of_a_run_score_as_the_run_did(trained, encodery):
    run = en.Run(trained("single"))
    file = run.directory.predictions_path("table/moods", "dev")
    said = encodery("score", file, "--on", f"{run.path}:dev", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["table/moods:dev"] == run.scores["table/moods:dev"]
    line = encodery("score", file, "--on", run.path).out
    assert line.startswith("table/moods:dev  accuracy 0.")


def test_anybodys_file_on_a_named_task(tmp_path, encodery):
    data = glue_nli(tmp_path, "mnli_dev", 3).parent
    glue_nli(tmp_path, "mnli_dev_mismatched", 3)
    (tmp_path / "mine.tsv").write_text("index\tprediction\n0\tentailment\n1\tentailment\n2\tcontradiction\n")
    said = encodery("score", tmp_path / "mine.tsv", "--on", "glue/mnli:dev", "--data", data)
    assert said.code == 0
    assert said.out.startswith("glue/mnli:dev  accuracy 0.6667")
    said = encodery("score", tmp_path / "mine.tsv", "--on", "glue/mnli", "--data", data)
    assert said.code == 2
    assert "which split? glue/mnli:dev, glue/mnli:dev_mismatched" in said.err


def test_R11_what_is_wrong_with_a_file_is_named(trained, tmp_path, encodery):
    run = en.Run(trained("single"))
    file = tmp_path / "short.jsonl"
    lines = run.directory.predictions_path("table/moods", "dev").read_text().splitlines()
    file.write_text("\n".join(lines[1:]) + "\n")
    said = encodery("score", file, "--on", run.path)
    assert said.code == 2
    assert "no prediction for 1 id (0)" in said.err
    assert "cannot be read" in encodery("score", tmp_path / "none.jsonl", "--on", run.path).err
    shutil.copy(run.path / "config.yaml", tmp_path / "moods.yaml")  # a config will do as well
    assert encodery("score", file, "--on", f"{tmp_path / 'moods.yaml'}:train").code == 2
