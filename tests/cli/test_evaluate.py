import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import encodery as en
from encodery.analysis.attack import Level
from encodery.report import robustness
from encodery.runs.directory import RunDir
from encodery.scoring.glue_submission import write_submission
from tests.toolbox.runs import config_for
from tests.toolbox.tasks import glue_nli, pair_task, parquet, sentences, single_task, write_csv

THREE = ["entailment", "neutral", "contradiction"]


@pytest.fixture(scope="module")
def mnli(tmp_path_factory) -> Path:
    """A run on a little MNLI, with a data folder beside it."""
    folder = tmp_path_factory.mktemp("mnli")
    data = folder / "data"
    glue_nli(data, "mnli_train", 24)
    glue_nli(data, "mnli_dev_matched", 9, start=100)
    glue_nli(data, "mnli_dev_mismatched", 6, start=200)
    glue_nli(data, "mnli_test_matched", 5, hidden=True, start=300)
    glue_nli(data, "ax_test", 1104, hidden=True, start=400)
    parquet(data / "glue", "rte_dev", sentence1=["a"], sentence2=["b"], label=[0], idx=[0])
    parquet(data / "extra", "snli_dev", premise=["a cat", "a dog"], hypothesis=["b", "c"], label=[0, 2])
    parquet(data / "extra", "paws_dev", sentence1=["a"], sentence2=["b"], label=[0], id=[7])
    config = config_for(folder, {"name": "glue/mnli"}, data=str(data))
    config["model"]["new"]["config"]["initializer_range"] = 0.2
    return en.train(config, folder / "run").path


@pytest.fixture
def own(mnli, tmp_path) -> Path:
    """A copy that a test may write to."""
    return Path(shutil.copytree(mnli, tmp_path / "run"))


def permuted(run: Path, target: Path, order: list[int]) -> Path:
    """The same model as if it had been trained with its labels in another order."""
    shutil.copytree(run, target)
    folder = target / "model"
    weights = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name][torch.tensor(order)].contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    names = [THREE[i] for i in order]
    card = json.loads((folder / "encodery.json").read_text())
    about = card["tasks"]["glue/mnli"]
    about["labels"] = about["objective"]["labels"] = names
    (folder / "encodery.json").write_text(json.dumps(card))
    config = json.loads((folder / "config.json").read_text())
    config["id2label"], config["label2id"] = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    (folder / "config.json").write_text(json.dumps(config))
    RunDir(target).mark_done()  # the digests of what was changed
    return target


def foreign(run: Path, target: Path, names: list[str]) -> Path:
    """The model as a stranger's folder."""
    shutil.copytree(run / "model", target, ignore=shutil.ignore_patterns("encodery.json"))
    config = json.loads((target / "config.json").read_text())
    config["id2label"], config["label2id"] = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    (target / "config.json").write_text(json.dumps(config))
    return target


def predictions(path: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["id"]: row["prediction"] for row in rows}


@pytest.mark.slow(0.5)
def test_a_run_keeps_predictions_and_scores(own, encodery):
    before = RunDir(own).read_scores()
    said = encodery("evaluate", own, "--on", "glue/mnli", "nli/snli:validation", "--quiet")
    assert said.code == 0, said.err
    assert [line.split()[0] for line in said.out.splitlines()] == [
        "glue/mnli:dev", "glue/mnli:dev_mismatched", "nli/snli:dev",
    ]  # fmt: skip
    run = en.Run(own)  # DONE still fits the scores
    after = run.directory.read_scores()
    assert {key: value for key, value in after.items() if key != "evaluations"} == before
    assert set(after["evaluations"]) == {"glue/mnli:dev", "glue/mnli:dev_mismatched", "nli/snli:dev"}
    assert after["evaluations"]["glue/mnli:dev"]["scores"] == pytest.approx(before["scores"]["glue/mnli:dev"])
    assert run.scores["nli/snli:dev"]["accuracy"] in (0.0, 0.5, 1.0)
    assert len(run.predictions("nli/snli:dev")) == 2
    assert after["evaluations"]["nli/snli:dev"]["part"] == "part: 2 of 9,842"


@pytest.mark.slow
def test_a_lower_precision_stands_beside_the_scores(own, encodery):
    said = encodery("evaluate", own, "--on", "glue/mnli:dev", "--precision", "bf16")
    assert said.code == 0, said.err
    assert RunDir(own).evaluations()["glue/mnli:dev"]["precision"] == "bf16"
    assert encodery("evaluate", own, "--on", "glue/mnli:dev").code == 0
    assert "precision" not in RunDir(own).evaluations()["glue/mnli:dev"]
    given = "predict", own, "--text", "a cat", "--text2", "a dog", "--format", "json"
    exact, rounded = (json.loads(encodery(*given, "--precision", name).out)[0] for name in ("fp32", "bf16"))
    assert exact["prediction"] == rounded["prediction"]
    assert exact["probabilities"] != rounded["probabilities"]
    assert exact["probabilities"] == pytest.approx(rounded["probabilities"], abs=0.02)
    said = encodery("evaluate", own, "--on", "glue/mnli:dev", "--attack", "pgd", "--precision", "bf16")
    assert said.code == 2
    assert "attacks are computed in fp32" in said.err


@pytest.mark.slow
def test_hidden_labels_give_predictions_without_scores(own, encodery):
    said = encodery("evaluate", own, "--on", "glue/mnli:test", "--json")
    found = json.loads(said.out)["glue/mnli:test"]
    assert (found["scores"], found["rows"]) == (None, 5)
    assert len(predictions(Path(found["predictions"]))) == 5
    assert "glue/mnli:test" not in en.Run(own).scores


def test_parts_are_loud(own, encodery):
    said = encodery("evaluate", own, "--on", "glue/mnli:dev")
    assert "WARNING glue/mnli:dev part: 9 of 9,815" in said.err


@pytest.mark.slow
def test_F10_either_order_of_labels_writes_the_same_ax(mnli, tmp_path, encodery):
    files = []
    for number, order in enumerate([[0, 1, 2], [2, 0, 1]]):
        run = permuted(mnli, tmp_path / f"run{number}", order)
        assert encodery("evaluate", run, "--on", "glue/ax", "--quiet").code == 0
        answers = predictions(run / "predictions" / "glue-ax-test.jsonl")
        assert len(set(answers.values())) > 1
        out = tmp_path / f"{number}.zip"
        write_submission({"glue/ax:test": {k: {"prediction": v} for k, v in answers.items()}}, out, "majority")
        files.append(out.read_bytes())
    assert files[0] == files[1]


@pytest.mark.slow(0.5)
def test_several_runs_are_an_ensemble(mnli, tmp_path, encodery):
    other = permuted(mnli, tmp_path / "other", [1, 2, 0])
    weights = load_file(other / "model" / "model.safetensors")
    weights["classifier.bias"] += torch.tensor([1.0, 0.0, -1.0])
    save_file(weights, other / "model" / "model.safetensors", metadata={"format": "pt"})
    RunDir(other).mark_done()  # the digests of what was changed
    out = tmp_path / "both"
    data = mnli.parent / "data"
    said = encodery("evaluate", mnli, other, "--on", "glue/mnli:dev", "-o", out, "--data", data)
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in (out / "predictions" / "glue-mnli-dev.jsonl").read_text().splitlines()]
    examples = [tuple(pair) for pair in zip(sentences(10, 100), sentences(10, 100)[1:], strict=False)]
    each = [en.load(run)(examples) for run in (mnli, other)]
    for row, one, two in zip(rows, *each, strict=True):
        mean = {label: (one.probabilities[label] + two.probabilities[label]) / 2 for label in THREE}
        assert row["probabilities"] == pytest.approx(mean, abs=1e-5)
        assert row["prediction"] == max(mean, key=mean.__getitem__)
    kept = json.loads((out / "scores.json").read_text())["evaluations"]["glue/mnli:dev"]
    assert kept["models"] == [str(mnli), str(other)]
    assert kept["rows"] == 9
    assert encodery("evaluate", mnli, other, "--on", "glue/mnli:dev_mismatched", "-o", out).code == 0
    assert len(json.loads((out / "scores.json").read_text())["evaluations"]) == 2


@pytest.mark.slow
def test_ensemble_without_a_folder_is_only_printed(mnli, tmp_path, encodery):
    before = {path: path.stat().st_mtime_ns for path in mnli.rglob("*")}
    said = encodery("evaluate", mnli, mnli, "--on", "glue/mnli:dev")
    assert said.code == 0
    assert "accuracy" in said.out
    assert "(" not in said.out
    assert {path: path.stat().st_mtime_ns for path in mnli.rglob("*")} == before


@pytest.mark.slow
def test_numbers_and_several_labels_average(trained, tmp_path, encodery):
    for form, name in (("regression", "table/numbers"), ("multilabel", "table/several")):
        runs = [trained(form, seed) for seed in (1, 2)]
        said = encodery("evaluate", *runs, "--on", f"{name}:dev", "-o", tmp_path / form)
        assert said.code == 0, said.err
        rows = (tmp_path / form / "predictions" / f"{name.replace('/', '-')}-dev.jsonl").read_text().splitlines()
        frames = [en.Run(run).predictions(f"{name}:dev") for run in runs]
        if form == "regression":
            want = (frames[0].prediction + frames[1].prediction) / 2
            assert [json.loads(row)["prediction"] for row in rows] == pytest.approx(want.tolist(), abs=1e-5)
        else:
            want = (frames[0].p_cat + frames[1].p_cat) / 2
            got = [json.loads(row)["probabilities"]["cat"] for row in rows]
            assert got == pytest.approx(want.tolist(), abs=1e-5)


@pytest.mark.slow(0.5)
def test_a_run_or_config_names_its_own_task(trained, tmp_path, encodery):
    run = Path(shutil.copytree(trained("single"), tmp_path / "run"))
    for meant in ("table/moods:dev", f"{run}:dev", str(run)):
        said = encodery("evaluate", run, "--on", meant, "--json")
        assert said.code == 0, said.err
        scores = json.loads(said.out)["table/moods:dev"]["scores"]
        assert scores["accuracy"] == en.Run(run).scores["table/moods:dev"]["accuracy"]


@pytest.mark.slow
def test_models_of_others_need_names_for_their_labels(mnli, tmp_path, encodery):
    data = mnli.parent / "data"
    path = foreign(mnli, tmp_path / "foreign", ["LABEL_0", "LABEL_1", "LABEL_2"])
    said = encodery("evaluate", path, "--on", "glue/mnli:dev", "--data", data)
    assert said.code == 2
    assert "--labels entailment,neutral,contradiction" in said.err
    ours = en.Run(mnli).scores["glue/mnli:dev"]["accuracy"]
    words = ("--on", "glue/mnli:dev", "--data", data, "--json")
    said = encodery("evaluate", path, *words, "--labels", ",".join(THREE))
    assert json.loads(said.out)["glue/mnli:dev"]["scores"]["accuracy"] == ours
    loud = foreign(mnli, tmp_path / "loud", [name.upper() for name in THREE])  # as some are published
    said = encodery("evaluate", loud, *words)
    assert json.loads(said.out)["glue/mnli:dev"]["scores"]["accuracy"] == ours


@pytest.mark.slow(0.5)
def test_refusals(own, mnli, trained, tmp_path, encodery):
    data = mnli.parent / "data"

    def refused(*words):
        said = encodery("evaluate", *words, "--data", data)
        assert (said.code, said.out) == (2, ""), said
        return said.err

    assert "no head fits glue/rte (entailment, not_entailment): glue/mnli says entailment" in refused(
        own, "--on", "glue/rte:dev"
    )
    assert "has no head glue/rte; it has glue/mnli" in refused(own, "--on", "glue/mnli:dev", "--head", "glue/rte")
    assert 'has no split "train"' in refused(own, "--on", "glue/ax:train")
    assert "there is no glue/rt" in refused(own, "--on", "glue/rt")
    assert 'toy/nli has no split "tst"; it has train, dev, test' in refused(own, "--on", "toy/nli:tst")
    assert 'glue/mnli has no split "devv"; it has train, dev, dev_mismatched' in refused(own, "--on", "glue/mnli:devv")
    assert "such as glue/cola" in refused(own, "--on", "glue")
    assert "own files have no task name" in refused(own, "--on", "table/moods")
    assert "is a run" in refused(own, "--on", "glue/mnli", "-o", own)
    assert "no such folder" in refused("./nowhere", "--on", "glue/mnli")
    assert "There is no" not in refused(own)  # --on is missing
    (own / "DONE").unlink()
    assert "not finished" in refused(own, "--on", "glue/mnli:dev")
    assert not (own / "predictions" / "glue-ax-test.jsonl").exists()


@pytest.mark.slow(0.5)
def test_an_ensemble_of_runs_with_other_dev_rows_is_refused(tmp_path, encodery):
    config = config_for(tmp_path, pair_task(tmp_path))  # its dev part is set aside
    runs = [en.train(config, tmp_path / "one", seed=1).path, en.train(config, tmp_path / "two", seed=2).path]
    other = config | {"tasks": [config["tasks"][0] | {"split_seed": 5}]}
    odd = en.train(other, tmp_path / "odd").path
    said = encodery("evaluate", *runs, "--on", "table/pairs")
    assert (said.code, "WARNING" in said.err) == (0, False)
    assert "note: table/pairs:dev 0.1 of pairs" in said.err
    said = encodery("evaluate", *runs, odd, "--on", "table/pairs")
    assert said.code == 2
    assert f"table/pairs:dev: {odd} had other rows there than {runs[0]}" in said.err


@pytest.mark.slow(0.5)
def test_numbers_as_labels_need_a_word(tmp_path, encodery):
    data = tmp_path / "data"
    for stem in ("mrpc_train", "mrpc_dev"):
        texts = sentences(12)
        columns = {"sentence1": texts, "sentence2": texts[::-1], "label": [i % 2 for i in range(12)]}
        parquet(data / "glue", stem, **columns)
    parquet(data / "extra", "paws_dev", sentence1=["a cat"], sentence2=["b"], label=[0], id=[7])
    run = en.train(config_for(tmp_path, {"name": "glue/mrpc"}, data=str(data)), tmp_path / "run")
    said = encodery("evaluate", run.path, "--on", "nli/paws")
    assert said.code == 2
    assert "--head glue/mrpc" in said.err
    assert encodery("evaluate", run.path, "--on", "nli/paws", "--head", "glue/mrpc").code == 0


def test_a_run_that_is_in_use_is_left_alone(own, encodery, monkeypatch):
    monkeypatch.setattr("encodery.core.lock.PATIENCE", 0.0)
    with RunDir(own).lock():
        said = encodery("evaluate", own, "--on", "glue/mnli:dev")
    assert said.code == 2
    assert "is in use by" in said.err


# --attack


ATTACK = ("--on", "glue/mnli:dev", "--attack", "pgd", "--attack-steps", "2", "--radius", "1,0,0.1", "--quiet")


@pytest.mark.slow
def test_an_attack_is_kept_beside_the_other_evaluations(own, encodery):
    before = (own / "scores.json").read_bytes()
    said = encodery("evaluate", own, *ATTACK)
    assert said.code == 0, said.err
    lines = [line.split() for line in said.out.splitlines() if line.startswith("|")]
    assert lines[0][1:5] == ["radius", "|", "accuracy", "|"]
    assert [line[1] for line in lines[2:]] == ["0", "0.1", "1"]
    stem = own / "attacks" / "glue-mnli-dev-pgd-2-l2"
    kept = json.loads(stem.with_suffix(".json").read_text())
    assert {key: kept[key] for key in ("data", "attack", "norm", "steps", "rows", "main", "part")} == {
        "data": "glue/mnli:dev", "attack": "pgd", "norm": "l2", "steps": 2, "rows": 9, "main": "accuracy",
        "part": "part: 9 of 9,815",
    }  # fmt: skip
    levels = kept["models"][str(own)]
    clean = en.Run(own).scores["glue/mnli:dev"]
    assert {name: levels[0][name] for name in clean} == clean
    rows = list(csv.DictReader(stem.with_suffix(".csv").open()))
    assert [(row["model"], float(row["radius"]), float(row["loss"])) for row in rows] == [
        (str(own), level["radius"], level["loss"]) for level in levels
    ]
    picture = stem.with_suffix(".svg").read_bytes()
    assert b"<svg" in picture
    assert encodery("evaluate", own, *ATTACK).out == said.out  # again: the same, to the byte
    assert stem.with_suffix(".svg").read_bytes() == picture
    assert (own / "scores.json").read_bytes() == before


@pytest.mark.slow
def test_several_models_have_a_line_and_a_curve_each(own, mnli, tmp_path, encodery):
    other = permuted(mnli, tmp_path / "other", [1, 2, 0])
    out = tmp_path / "both"
    said = encodery("evaluate", own, other, *ATTACK, "-o", out)
    assert said.code == 0, said.err
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.out.splitlines() if line[:1] == "|"]
    tables = [line for line in lines if line[0] in ("accuracy at radius", "loss at radius", str(own), str(other))]
    assert [line[0] for line in tables] == [
        "accuracy at radius", str(own), str(other), "loss at radius", str(own), str(other),
    ]  # fmt: skip
    assert tables[1][1:] == tables[2][1:]  # the order of the outputs does not matter
    assert tables[4][1:] == tables[5][1:]
    assert sorted(path.name for path in (out / "attacks").iterdir()) == [
        f"glue-mnli-dev-pgd-2-l2.{kind}" for kind in ("csv", "json", "svg")
    ]
    assert not (own / "attacks").exists()
    assert encodery("evaluate", own, other, *ATTACK).code == 0
    for run in (own, other):
        assert list(json.loads((run / "attacks" / "glue-mnli-dev-pgd-2-l2.json").read_text())["models"]) == [str(run)]


@pytest.mark.slow
def test_a_second_attack_adds_its_radii_to_those_of_the_first(own, encodery, monkeypatch):
    words = ("--on", "glue/mnli:dev", "--attack", "random", "--attack-steps", "1", "--radius")
    assert encodery("evaluate", own, *words, "0,1").code == 0
    monkeypatch.chdir(own.parent)
    said = encodery("evaluate", own.name, *words, "0.5,1")  # by another path; 1 again
    assert said.code == 0, said.err
    assert "replaced" not in said.err
    stem = own / "attacks" / "glue-mnli-dev-random-1-l2"
    kept = json.loads(stem.with_suffix(".json").read_text())
    assert [level["radius"] for level in kept["models"][own.name]] == [0, 0.5, 1]
    assert list(kept["models"]) == [own.name]
    assert [row["radius"] for row in csv.DictReader(stem.with_suffix(".csv").open())] == ["0.0", "0.5", "1.0"]


@pytest.mark.slow
def test_figures_of_other_rows_or_weights_are_replaced_with_a_warning(tmp_path):
    run = RunDir(tmp_path)
    about = {"data": "toy/nli:dev", "main": "accuracy", "rows": 4, "digest": "a"}
    about |= {"attack": "pgd", "steps": 5, "norm": "l2"}

    def kept(about, radius, weights, model="m"):
        levels = {model: [{"radius": radius, "loss": radius, "accuracy": 0.5}]}
        sentence = robustness.replaced(run, about, levels, weights)
        stored = json.loads(robustness.keep(run, about, levels, weights).with_suffix(".json").read_text())
        return {name: [level["radius"] for level in found] for name, found in stored["models"].items()}, sentence

    assert kept(about, 1, "w") == ({"m": [1]}, None)
    assert kept(about, 0, "w") == ({"m": [0, 1]}, None)
    assert kept(about, 2, "v", "other") == ({"m": [0, 1], "other": [2]}, None)
    models, sentence = kept(about, 3, "x")
    assert models == {"m": [3], "other": [2]}
    assert "the weights of m were others" in sentence
    models, sentence = kept(about | {"rows": 5, "digest": "b"}, 0.1, "x")
    assert models == {"m": [0.1]}
    assert "other rows or options (4 and now 5 rows)" in sentence


def test_runs_with_other_dev_rows_are_not_attacked_together(own, tmp_path, encodery):
    other = Path(shutil.copytree(own, tmp_path / "other"))
    info = json.loads((other / "run.json").read_text())
    info["data"]["dev"]["digest"] = "of other rows"
    (other / "run.json").write_text(json.dumps(info))
    RunDir(other).mark_done()
    said = encodery("evaluate", own, other, *ATTACK)
    assert said.code == 2
    assert f"{other} had other rows there than {own}" in said.err
    assert "or attack one at a time" in said.err
    assert not (own / "attacks").exists()


@pytest.mark.slow
def test_an_attack_that_is_stopped_keeps_the_models_that_are_done(own, tmp_path, encodery, monkeypatch):
    other = Path(shutil.copytree(own, tmp_path / "other"))
    done: list[object] = []

    def stopped(model, *words):
        if done:
            raise KeyboardInterrupt
        done.append(model)
        return [Level(0.5, 1.0, {"accuracy": 0.5}, 0.1, 0.1)]

    monkeypatch.setattr("encodery.analysis.attack.under_attack", stopped)
    said = encodery("evaluate", own, other, *ATTACK)
    stem = own / "attacks" / "glue-mnli-dev-pgd-2-l2"
    assert said.code == 130
    assert said.err.strip() == f"Stopped. Kept of glue/mnli:dev: {own} in {stem}.json."
    assert list(json.loads(stem.with_suffix(".json").read_text())["models"]) == [str(own)]
    assert not (other / "attacks").exists()


def test_attacks_that_make_no_sense_are_refused(own, encodery):
    def refused(*words):
        said = encodery("evaluate", own, "--on", "glue/mnli:dev", *words)
        assert (said.code, said.out) == (2, ""), said
        return said.err

    assert "add --attack pgd" in refused("--radius", "0,1")
    assert "add --attack pgd" in refused("--norm", "linf")
    for radius in ("0;1", "-1", "0,nan,1", "inf", ""):
        assert "--radius: expected numbers of 0 or more" in refused("--attack", "pgd", f"--radius={radius or ','}")
    assert "at least 1" in refused("--attack", "pgd", "--attack-steps", "0")
    assert "fgsm is one step" in refused("--attack", "fgsm", "--attack-steps", "3")
    assert "named twice" in encodery("evaluate", own, own, *ATTACK).err
    assert "labels are hidden" in encodery("evaluate", own, "--on", "glue/mnli:test", "--attack", "pgd").err
    assert not (own / "attacks").exists()
    (own / "DONE").unlink()
    assert "not finished" in refused("--attack", "pgd")


@pytest.mark.slow(0.5)
def test_F72_a_run_whose_labels_differ_in_case_says_so_and_evaluates_its_own_labels(tmp_path, encodery):
    labels = ["Positive", "positive", " Positive ", "negative"]
    for name, count in (("train", 24), ("dev", 8)):
        rows = [(text, labels[i % 4]) for i, text in enumerate(sentences(count, len(name)))]
        write_csv(tmp_path / f"{name}.csv", ["text", "label"], rows)
    task = {"kind": "table", "train": str(tmp_path / "train.csv"), "dev": str(tmp_path / "dev.csv")}
    run = en.train(config_for(tmp_path, task), tmp_path / "run").path
    log = (run / "log.txt").read_text()
    assert 'labels that differ in case or blanks only are classes of their own: " Positive ", "Positive"' in log
    found = encodery("evaluate", run, "--on", "table/train:dev", "-o", tmp_path / "out")
    assert (found.code, found.err) == (0, "")


@pytest.mark.slow(0.5)
def test_F72_a_task_that_spells_the_labels_of_a_run_otherwise_is_answered(tmp_path, encodery):
    run = en.train(config_for(tmp_path, single_task(tmp_path)), tmp_path / "run").path
    write_csv(tmp_path / "gold.csv", ["text", "label"], [("a good film", " POS"), ("a cat", "Neg ")])
    (tmp_path / "gold.yaml").write_text(
        f"model: {run}\ntasks: {{kind: table, name: moods, test: {tmp_path / 'gold.csv'}}}\n"
    )
    found = encodery("evaluate", run, "--on", tmp_path / "gold.yaml", "-o", tmp_path / "out")
    assert (found.code, found.err) == (0, "")
