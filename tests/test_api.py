"""The Python interface of the README, as strangers use it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import encodery as en
from encodery.cli import main
from encodery.errors import RunFailed, UserError
from encodery.runs.directory import RunDir
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import sentences, single_task, write_csv


def weights(run):
    from safetensors.torch import load_file

    return load_file(Path(run) / "model" / "model.safetensors")


def test_import_is_light():
    code = "import sys, encodery; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_train_is_a_function_whatever_was_imported_before():
    import encodery.training.loop
    import encodery.training.run
    import encodery.training.session  # noqa: F401

    assert all(callable(getattr(en, name)) for name in ("train", "load", "steps", "table"))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = en.nonsense


def test_inspect_gives_the_tables_of_the_command_as_data_frames(tmp_path, capsys):
    write_csv(tmp_path / "moods.csv", ["text", "label"], [(f"text {i}", "xy"[i % 2]) for i in range(40)])
    found = en.inspect(tmp_path / "moods.csv", rows=3, train={"max_length": 8})
    assert (
        main(["inspect", str(tmp_path / "moods.csv"), "--rows", "3", "--train.max_length", "8", "--format=json"]) == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert list(found) == list(shown)
    assert [set(frame.columns) for frame in found.values()] == [set().union(*rows) for rows in shown.values()]
    assert found["rows"]["text"].tolist() == [row["text"] for row in shown["rows"]]
    assert (len(found["rows"]), found["lengths"]["max_length"][0]) == (3, 8)
    assert len(en.inspect(tmp_path / "moods.csv", split="validation", rows=0)["lengths"]) == 1
    for wrong, said in ({"rows": -1}, "0 or more"), ({"head": "table/x"}, "not a task"), ({"split": "x"}, "no split"):
        with pytest.raises(UserError, match=said):
            en.inspect(tmp_path / "moods.csv", **wrong)


def test_train_lays_sections_over_a_config(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    run = en.train(config, tmp_path / "run", optim={"lr": 3e-5}, seed=7, train={"max_steps": 2})
    assert run.config["optim"]["lr"] == 3e-5
    assert run.config["seed"] == {"init": 7, "data": 7}
    assert (run.config["train"]["max_steps"], run.config["train"]["batch_size"]) == (2, 8)
    assert run.path == tmp_path / "run"
    assert set(run.scores) == {"table/moods:dev"}
    assert 0 <= run.scores["table/moods:dev"]["accuracy"] <= 1
    assert repr(run) == f"Run({str(run.path)!r})"


@pytest.mark.slow
def test_train_needs_no_config_and_reads_files(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    one = en.train(out=tmp_path / "a", **config)
    (tmp_path / "mood.yaml").write_text(json.dumps(config))
    other = en.train(tmp_path / "mood.yaml", tmp_path / "b")
    assert one.scores == other.scores
    again = en.train(one, tmp_path / "c")  # a run is a config too
    assert again.scores == one.scores


@pytest.mark.slow(0.5)
def test_train_again_leaves_a_finished_run_and_refuses_another(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    run = en.train(config, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    assert en.train(config, run).path == run.path
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    with pytest.raises(UserError, match=r"optim\.lr"):
        en.train(config, run, optim={"lr": 1.0})
    assert en.train(config, run, restart=True, optim={"lr": 1e-4}).config["optim"]["lr"] == 1e-4
    assert (tmp_path / "run.old-1").is_dir()


def test_metrics_and_predictions_are_data_frames(trained):
    run = en.Run(trained("single"))
    metrics = run.metrics()
    assert metrics["loss"].dropna().tolist()
    assert metrics["step"].max() == 4
    frame = run.predictions("table/moods:dev")
    assert list(frame.columns) == ["id", "prediction", "p_neg", "p_pos"]
    assert len(frame) == 16
    assert ((frame.p_neg + frame.p_pos - 1).abs() < 1e-9).all()
    with pytest.raises(UserError, match="table-moods-dev"):
        run.predictions("table/moods:test")
    assert en.Run(RunDir(run.path)).scores == en.Run(str(run.path)).scores == run.scores


def test_run_refuses_other_folders(tmp_path):
    with pytest.raises(UserError, match="not a complete run"):
        en.Run(tmp_path)


@pytest.mark.slow(0.5)
def test_load_answers_a_text_a_pair_and_lists(trained):
    model = en.load(trained("single"))
    one = model("the good cat")
    assert isinstance(one, en.Prediction)
    assert one.label in model.labels == ("neg", "pos")
    assert model.task == "table/moods"
    assert set(one.probabilities) == {"neg", "pos"}
    assert sum(one.probabilities.values()) == pytest.approx(1)
    many = model(["the good cat", "a bad dog"])
    assert [answer.label for answer in many][:1] == [one.label]
    assert many[0].probabilities == pytest.approx(one.probabilities, abs=1e-5)
    assert model([]) == []
    assert type(model.encoder).__name__ == "BertModel"
    assert model.tokenizer("cat")["input_ids"][0] == 2
    pair = en.load(en.Run(trained("pair")))(("the cat", "a dog"))
    assert pair.label in ("entailment", "neutral", "contradiction")


def test_load_answers_numbers_and_several_labels(trained):
    number = en.load(trained("regression"), device="cpu")("the cat runs")
    assert isinstance(number.value, float)
    assert number.label is None
    assert number.labels is None
    several = en.load(trained("multilabel"))("the cat runs")
    assert isinstance(several.labels, tuple)
    assert set(several.probabilities) == {"cat", "dog", "good"}
    assert several.labels == tuple(label for label, p in several.probabilities.items() if p > 0.5)


def test_load_refuses_what_the_model_cannot_read(trained):
    with pytest.raises(UserError, match="reads pairs"):
        en.load(trained("pair"))("only one")
    with pytest.raises(UserError, match="reads single texts"):
        en.load(trained("single"))(("one", "two"))
    with pytest.raises(TypeError, match="a list of these"):
        en.load(trained("single"))([3])
    with pytest.raises(UserError, match="no such folder"):
        en.load("./nowhere")


def test_load_says_which_element_is_no_text(trained):
    model = en.load(trained("single"))
    with pytest.raises(TypeError, match=r"^element 1: expected a text, .* not None"):
        model(["good", None])
    with pytest.raises(TypeError, match=r"^element 0: character 1 \('\\ud800'\) is half of a surrogate pair"):
        model(["a\ud800b"])
    assert model([]) == []
    with pytest.raises(UserError, match="load: one model at a time"):
        en.load([trained("single"), trained("single")])


def test_a_dotted_key_is_shown_as_a_section(tmp_path):
    with pytest.raises(UserError, match=r"^train.epochs: in Python write train=\{'epochs': 1\}$"):
        en.train({}, tmp_path / "run", **{"train.epochs": 1})


def test_load_gives_the_predictions_of_the_run(trained):
    run = en.Run(trained("single"))
    answers = en.load(run)(sentences(16, 1000))
    frame = run.predictions("table/moods:dev")
    assert [answer.label for answer in answers] == frame.prediction.tolist()
    assert [answer.probabilities["pos"] for answer in answers] == pytest.approx(frame.p_pos.tolist(), abs=1e-6)


@pytest.mark.slow
def test_steps_is_the_loop_and_resumes(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path), train={"max_steps": 6, "evaluate": "2 steps"})
    whole = en.train(config, tmp_path / "whole")
    taken = []
    for report in en.steps(config, tmp_path / "parts"):
        taken.append(report.step)
        if report.step == 3:
            break
    assert not (tmp_path / "parts" / "DONE").exists()
    taken += [report.step for report in en.steps(config, tmp_path / "parts")]
    assert taken == [1, 2, 3, 4, 5, 6]
    assert list(en.steps(config, tmp_path / "parts")) == []  # it is done
    parts = en.Run(tmp_path / "parts")
    assert parts.scores == whole.scores
    assert parts.metrics()["loss"].tolist() == pytest.approx(whole.metrics()["loss"].tolist(), nan_ok=True, abs=0)
    ours, theirs = weights(parts), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow(0.5)
def test_table_takes_runs(tmp_path):
    config = config_for(tmp_path, single_task(tmp_path))
    runs = [en.train(config, tmp_path / "runs" / str(seed), seed=seed) for seed in (1, 2)]
    for frame in (en.table(*runs), en.table(tmp_path / "runs"), en.table(*(run.directory for run in runs))):
        assert frame["n"].tolist() == [2]


def test_F22_init_from_brings_the_encoder_and_no_head(tmp_path, trained):
    from encodery.config import load as settings
    from encodery.training import build

    donor = trained("pair")
    config = config_for(tmp_path, single_task(tmp_path)) | {"model": {"name": str(donor), "init_from": str(donor)}}
    resolved = settings.load(config)
    built = build.build(resolved, build.find_inputs(resolved))
    gift = weights(donor)
    body = {f"bert.{name}": value for name, value in built.model.encoder.net.state_dict().items()}
    assert all(torch.equal(body[name], gift[name]) for name in body if "pooler" not in name)
    head = built.model.objective("table/moods").head
    assert head.classifier.weight.shape == (2, 32)
    assert gift["classifier.weight"].shape == (3, 32)
    assert built.card["tasks"]["table/moods"]["labels"] == ["neg", "pos"]


def test_F23_the_folder_says_what_the_model_is(trained):
    from encodery.data.tokenizer import TokenizerPieces

    run = trained("pair")
    card = json.loads((run / "model" / "encodery.json").read_text())
    about = card["tasks"]["table/pairs"]
    assert about["task"]["name"] == "table/pairs"
    assert about["task"]["form"] == "pair"
    assert about["labels"] == ["entailment", "neutral", "contradiction"]
    assert (about["head"], about["max_length"], about["texts"]) == ("stock", 32, 2)
    assert card["tokenizer"] == TokenizerPieces(en.load(run).tokenizer).digest
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "neutral", "2": "contradiction"}


@pytest.mark.slow(0.5)
def test_predict_evaluate_export_and_report_are_functions(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = trained("single")
    rows = [("k1", "a good film", "pos", 7), ("k2", "an awful bird", "neg", 8), ("k3", "a great dog", "pos", 9)]
    file = write_csv(tmp_path / "gold.csv", ["id", "text", "label", "price"], rows)
    answers = en.predict(run, file, out="answers.csv")
    assert list(answers["id"]) == ["k1", "k2", "k3"]
    assert list(answers["price"]) == ["7", "8", "9"]
    assert {"label", "prediction", "p_pos", "p_neg"} <= set(answers.columns)
    assert Path("answers.csv").read_text().startswith("id,text,label,price,prediction,p_")
    scores = en.evaluate(run, file, out="kept")["table/gold:test"]
    assert scores["accuracy"] == sum(answers["label"] == answers["prediction"]) / 3
    texts = [(row["text"], row["label"]) for _, row in answers.iterrows()]
    other = write_csv(tmp_path / "other.csv", ["text", "right"], texts)
    with pytest.raises(UserError, match=r"label= names its column"):
        en.evaluate(run, other)
    assert en.evaluate(run, other, label="right")["table/other:test"] == scores
    import encodery.report.table  # noqa: F401  (which gives the name `encodery.report` to the package)

    assert en.report(run, out="page.html").stat().st_size > 10_000
    assert (en.export(run, "model") / "model.safetensors").is_file()
    with pytest.raises(UserError, match="no such data file"):
        en.predict(run, tmp_path / "nowhere.csv")
    with pytest.raises(UserError, match="no such data file"):
        en.predict(run, "nowhere.csv")


@pytest.mark.slow(6)
def test_run_sweep_is_the_command_and_resumes(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    config = config_for(tmp_path, single_task(tmp_path))
    rates = np.array([1e-5, 3e-4])
    more = {"grid": {"optim.lr": rates}, "resources": {"devices": "cpu:1"}, "train": {"max_steps": 3}}
    sweep = en.run_sweep(config, "lr", **more)
    again = en.run_sweep(config, "lr", **more | {"seeds": 2})
    assert len(sweep.runs) == 4  # the plan of the folder is the later one
    assert [(run.config["optim"]["lr"], run.config["seed"]["init"]) for run in again.runs] == [
        (1e-5, 1), (3e-4, 1), (1e-5, 2), (3e-4, 2),
    ]  # fmt: skip
    assert "resuming" not in (again.runs[0].path / "log.txt").read_text()
    assert {run.config["train"]["max_steps"] for run in again.runs} == {3}
    scores = [(run.config["optim"]["lr"], run.scores["table/moods:dev"]["accuracy"]) for run in again.runs]
    means = [np.mean([score for lr, score in scores if lr == rate]) for rate in rates]
    ranking = again.ranking()
    assert list(ranking["mean"]) == pytest.approx(sorted(means, reverse=True))
    assert list(ranking["n"]) == [2, 2]
    assert again.best().path == Path(ranking["best_run"][0])
    assert len(again.table()) == 2
    assert [run.path for run in en.Sweep("lr").runs] == [run.path for run in again.runs]
    (tmp_path / "sweep.yaml").write_text(json.dumps(config | {"grid": {"optim.lr": [0.1]}, "train": {"max_steps": 3}}))
    failing = {"grid": {"optim.lr": (1e-5, 1e30)}, "limits": {"retries": 0}, "resources": {"devices": "cpu:1"}}
    with pytest.raises(RunFailed, match=r"lr-1e30-seed-1: failed: .*(?s:.)*encodery sweep retry bad"):
        en.run_sweep("sweep.yaml", "bad", **failing)
    assert [run.config["optim"]["lr"] for run in en.Sweep("bad").runs] == [1e-5]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"gird": {"optim.lr": [1]}}, "Python: gird: unknown key; did you mean grid"),
        ({"grid": {"optim.lrr": [1, 2]}}, r"Python: optim\.lrr: unknown key; did you mean"),
        ({"grid": {"optim.lr": 3}}, r"Python: grid: optim\.lr: expected a list"),
        ({"grid": [1e-5, 3e-5]}, r"Python: grid: expected keys with lists of values, as in .* not \[1e-05, 3e-05\]"),
        ({"optim": {"lrr": 1}}, r"Python: optim\.lrr: unknown key"),
        ({"optim.lr": 1}, "in Python write optim="),
        ({"seeds": 0}, "seeds: expected at least one seed"),
    ],
)
def test_run_sweep_names_what_is_wrong(tmp_path, given, answer):
    config = config_for(tmp_path, single_task(tmp_path))
    with pytest.raises(UserError, match=answer):
        en.run_sweep(config, tmp_path / "bad", **given)


def test_a_folder_without_a_plan_is_no_sweep(tmp_path):
    with pytest.raises(UserError, match=r"is not the folder of a sweep"):
        en.Sweep(tmp_path)


def test_a_data_frame_is_told_to_become_a_file(trained):
    import pandas as pd

    frame = pd.DataFrame({"text": ["good"], "label": ["pos"]})
    with pytest.raises(UserError, match=r"train: a data frame is no file: write it"):
        en.train(frame)
    with pytest.raises(UserError, match=r"evaluate: a data frame is no file"):
        en.evaluate(trained("single"), frame)


def test_a_model_takes_lists_series_and_data_frames(trained):
    import pandas as pd

    model = en.load(trained("single"))
    texts = ["a good film", "an awful bird", "the cat sleeps"]
    want = [one.label for one in model(texts)]
    assert [one.label for one in model(pd.Series(texts, index=[5, 6, 7]))] == want
    frame = pd.DataFrame({"text": texts, "n": [1, 2, 3]}, index=["a", "b", "c"])
    found = model(frame)
    assert list(found.index) == ["a", "b", "c"]
    assert list(found["prediction"]) == want
    assert list(found.columns) == ["text", "n", "prediction", *(f"p_{label}" for label in model.labels)]
    assert list(frame.columns) == ["text", "n"]
    assert list(model(frame.iloc[:0]).columns) == list(found.columns)
    with pytest.raises(UserError, match='no column "text"'):
        model(frame.rename(columns={"text": "words"}))
    assert model("a good film").answer == want[0]


@pytest.mark.parametrize("missing", ["None", "nan", "<NA>"])
def test_a_cell_without_a_text_is_named_by_its_row(trained, missing):
    import pandas as pd

    model = en.load(trained("single"))
    value = {"None": None, "nan": float("nan"), "<NA>": pd.NA}[missing]
    frame = pd.DataFrame({"text": ["a film", "", value]}, index=["a", "b", "c"], dtype=object)
    with pytest.raises(TypeError) as wrong:
        model(frame)
    assert f'column "text", row \'c\': there is no text ({missing}); frame["text"].fillna("")' in str(wrong.value)
    with pytest.raises(TypeError, match=r"the series, row 'c': there is no text .* series\.dropna\(\) leaves"):
        model(frame["text"])
    assert len(model(frame.dropna(subset=["text"]))) == 2  # the empty one counts
    frame.loc["c", "text"] = 5
    with pytest.raises(TypeError, match=r"row 'c': expected a text, not 5; .*astype\(str\)"):
        model(frame)
