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


def test_answers_to_rows_whose_ids_repeat_are_scored_in_their_order(trained, tmp_path, encodery):
    run = en.Run(trained("single"))
    gold = tmp_path / "gold.csv"
    rows = [("a", "so wonderful", "glad"), ("a", "so sad", "sorry"), ("b", "what a day", "glad")]
    gold.write_text("id,text,label\n" + "".join(f"{','.join(row)}\n" for row in rows))
    answers = tmp_path / "answers.csv"
    assert encodery("predict", run.path, "--file", gold, "-o", answers).code == 0
    said = encodery("score", answers, "--on", gold)
    assert said.code == 0, said.err
    assert "values of id repeat, so its rows are taken in their order" in said.err
    told = [line.split(",")[3] for line in answers.read_text().splitlines()[1:]]
    right = sum(one == row[2] for one, row in zip(told, rows, strict=True)) / 3
    assert f"accuracy {right:.4f}" in said.out


def test_answers_whose_ids_repeat_are_refused_in_another_order_than_the_labels(tmp_path, encodery):
    gold, answers = tmp_path / "gold.csv", tmp_path / "answers.csv"
    gold.write_text("id,text,label\na,so fine,glad\na,so sad,sorry\nb,what now,glad\n")
    answers.write_text("id,text,prediction\na,so sad,sorry\na,so fine,glad\nb,what now,glad\n")
    said = encodery("score", answers, "--on", gold)
    assert said.code == 2
    assert "1 id (a) appears more than once" in said.err
    answers.write_text("id,text,prediction\na,so fine,glad\na,so sad,sorry\n")
    assert encodery("score", answers, "--on", gold).code == 2
