"""What goes out into the world: complete, honest about seeds, and free of everything local."""

import getpass
import json
import socket
from pathlib import Path

import pytest
import yaml

from encodery.errors import RunFailed, UserError
from encodery.exchange import publish
from encodery.report.public_card import heads_beside, wilson
from encodery.report.run_card import threshold_lines
from encodery.runs.directory import RunDir
from tests.report import runs

HOME = "/home/anneliese/experiments"
ORIGINS = {
    "train": {"digest": "a" * 64, "rows": 35736, "source": "folder", "part": "part: 35,736 of 392,702"},
    "dev": {"digest": "b" * 64, "rows": 400, "source": "hub", "revision": "c0ffee", "note": f"from {HOME}/dev.csv"},
}


def model(run: Path, **config: object) -> Path:
    """A model folder that nobody has to open."""
    folder = run / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "_name_or_path": f"{HOME}/bert", **config}))
    about = {"objective": {"kind": "classification"}, "task": {"train": f"{HOME}/train.csv"}, "max_length": 32}
    (folder / "encodery.json").write_text(json.dumps({"tasks": {"glue/mnli": about}}))
    (folder / "tokenizer.json").write_text(json.dumps({"vocab": {f"{HOME}": 1}}))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / ".hidden.json").write_text("{}")
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three seeds of a FreeLB run on a part of MNLI, whose encoder and data lie in somebody's home."""
    folder = tmp_path / "seeds"
    settings = {"model.name": f"{HOME}/runs/pre", "method.kind": "freelb", "data": f"{HOME}/data"}
    for seed, score in ((1, 0.70), (2, 0.80), (3, 0.60)):
        made = runs.run(folder / f"seed-{seed}", score, "glue/mnli", seed, origins=ORIGINS, **settings)
        packages = {"torch": "2.13", "encodery": "0.1.0"}
        RunDir(made).update_info(
            seed={"init": seed, "data": seed}, method="freelb",
            environment={"host": "annelieses-laptop", "command": f"encodery train {HOME}/x.yaml", "packages": packages},
        )  # fmt: skip
    runs.run(folder / "other", 0.9, "glue/mnli", 9, origins=ORIGINS, **settings | {"optim.lr": 1e-3})
    return model(folder / "seed-2")


def test_the_card_says_what_how_and_how_well(run, tmp_path):
    parcel = publish.pack(run, tmp_path / "out", "me/mnli", "apache-2.0")
    front, _, body = parcel.card.removeprefix("---\n").partition("---\n")
    about = yaml.safe_load(front)
    assert about["license"] == "apache-2.0"
    assert about["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.8}]
    assert "0.7000 ± 0.1000 (3)" in body  # mean and sd of 0.7, 0.8, 0.6; the run with another rate does not count
    assert "best of 3 seeds on these very rows" in body
    low, high = wilson(0.8, 400)
    assert f"{low:.4f} to {high:.4f}" in body
    recipe = ["part: 35,736 of 392,702", "revision c0ffee", "| learning rate | 2e-05 |", "en.load('me/mnli')"]
    cited = ["FreeLB: Enhanced", "Broad-Coverage Challenge Corpus", "GLUE: A Multi-Task", "was not checked"]
    for words in [*recipe, *cited]:
        assert words in body


@pytest.mark.parametrize("alone", [True, False])
def test_the_card_says_that_scores_need_a_threshold(run, tmp_path, alone):
    limits = {"labels": {"entailment": 0.1234}, "chosen_on": "dev", "metric": "f1", "rows": 400, "score": 0.5714}
    card = json.loads((run / "model" / "encodery.json").read_text())
    card["tasks"]["glue/mnli"]["thresholds"] = {**limits, "score_at_0.5": 0.0}
    (run / "model" / "encodery.json").write_text(json.dumps(card))
    if alone:
        (tmp_path / "apart").mkdir()
        run = run.rename(tmp_path / "apart" / "seed-2")
    text = publish.pack(run, tmp_path / "out", "me/mnli").card
    assert "## Thresholds of glue/mnli\n\nChosen on the 400 rows of dev (f1 0.5714 there, 0.0000 with 0.5)." in text
    assert "\n".join(threshold_lines(RunDir(run))).rstrip() in text  # as the run's own card says it
    assert "| entailment | 0.1234 |" in text
    assert "transformers alone does not" in text
    assert "the threshold was chosen on these very rows: the score is optimistic" in text
    assert ("so is the mean: each of the 3 seeds chose its own" in text) == (not alone)
    front = yaml.safe_load(text.removeprefix("---\n").partition("---\n")[0])
    named = front["model-index"][0]["results"][0]["dataset"]["name"]
    assert named == "glue/mnli (threshold chosen on dev)"


def test_a_card_without_thresholds_has_no_section_of_them(run, tmp_path):
    assert "hreshold" not in publish.pack(run, tmp_path / "out").card


@pytest.mark.parametrize("heads", [0, 1, 2])
def test_the_card_says_what_transformers_opens(run, tmp_path, heads):
    for i in range(heads):
        (run / "model" / "heads").mkdir(exist_ok=True)
        (run / "model" / "heads" / f"{i}.safetensors").write_bytes(b"weights")
    RunDir(run).mark_done()
    card = publish.pack(run, tmp_path / "out").card
    assert ("its Auto classes open it too." in card) == (heads == 0)
    lost = "AutoModelForSequenceClassification and the like would put a new, random head on it."
    assert (f"With transformers: {heads_beside(heads)}. {lost}" in card) == (heads > 0)


def test_the_card_gives_each_task_its_own_kind(run, tmp_path):
    about = json.loads((run / "model" / "encodery.json").read_text())["tasks"]
    tasks = {**about, "tag/ner": {"objective": {"kind": "tagging"}, "task": {}, "max_length": 32}}
    (run / "model" / "encodery.json").write_text(json.dumps({"tasks": tasks}))
    made = RunDir(run)
    made.update_info(tasks=list(tasks), data_of={name: {} for name in tasks})
    result = made.read_scores()
    both = {"scores": {"tag/ner:dev": {"f1": 0.5}}, "main": {"tag/ner:dev": "f1"}}
    made.write_scores({**result, **{key: {**result[key], **more} for key, more in both.items()}})
    made.mark_done()
    front = publish.pack(run, tmp_path / "out").card.split("---")[1]
    found = {one["dataset"]["type"]: one["task"]["type"] for one in yaml.safe_load(front)["model-index"][0]["results"]}
    assert found == {"glue/mnli": "text-classification", "tag/ner": "token-classification"}


def test_wilson_is_the_interval_of_the_book():
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)


def test_S6_nothing_local_goes_out(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "abcdefghijkl")
    config = json.loads((run / "config.yaml").read_text())
    RunDir(run).write_config(json.dumps(config | {"data": f"{HOME}/abcdefghijkl"}))
    parcel = publish.pack(run, tmp_path / "out")
    ours = {"README.md", "config.yaml", "scores.json"}
    assert set(parcel.sizes) == ours | {"config.json", "encodery.json", "model.safetensors", "tokenizer.json"}
    for name in parcel.sizes:
        text = (tmp_path / "out" / name).read_text()
        assert name == "tokenizer.json" or "anneliese" not in text, name
        assert "abcdefghijkl" not in text
        assert str(tmp_path) not in text
        assert socket.gethostname() not in text or len(socket.gethostname()) < publish.SHORT
    assert yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["model"]["name"] == "pre"
    assert (
        json.loads((tmp_path / "out" / "encodery.json").read_text())["tasks"]["glue/mnli"]["task"]["train"]
        == "train.csv"
    )


@pytest.mark.parametrize("word", ["annelieses-laptop", "{run}", "hf_abcdefghijklmnop"])
def test_S6_what_slips_through_is_refused(run, tmp_path, word, monkeypatch):
    monkeypatch.setattr(publish, "public_text", lambda text: text)
    word = word.format(run=run)
    info = RunDir(run).info()
    RunDir(run).update_info(data=info["data"])
    path = run / "run.json"
    path.write_text(path.read_text().replace("c0ffee", word))
    RunDir(run).mark_done()
    with pytest.raises(RunFailed, match=r"README\.md has") as told:
        publish.pack(run, tmp_path / "out")
    assert "hf_abc" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_only_finished_runs(run, tmp_path, encodery):
    (run / "DONE").unlink()
    said = encodery("publish", run)
    assert (said.code, said.out) == (2, "")
    assert "not finished" in said.err
    with pytest.raises(UserError, match="is not a folder"):
        publish.pack(tmp_path / "nowhere", tmp_path / "out")


def test_the_verb_sends_only_when_told(run, tmp_path, encodery, monkeypatch):
    sent = []
    monkeypatch.setattr(publish, "send", lambda folder, name, private: sent.append((sorted(p.name for p in folder.iterdir()), name, private)) or "there")  # fmt: skip  # noqa: E501
    said = encodery("publish", run, "--to", "me/mnli")
    assert said.code == 0
    assert "nothing was sent: add --yes" in said.out
    assert "model.safetensors" in said.out
    assert encodery("publish", run, "-o", tmp_path / "kept").code == 0
    assert (tmp_path / "kept" / "README.md").is_file()
    assert "already exists" in encodery("publish", run, "-o", tmp_path / "kept").err
    assert sent == []
    assert encodery("publish", run, "--yes").code == 2
    assert "OWNER/NAME" in encodery("publish", run, "--to", "../x", "--yes").err
    assert encodery("publish", run, "--to", "me/mnli", "--yes").out == "sent: there\n"
    assert sent[0][1:] == ("me/mnli", True)
    assert {"README.md", "model.safetensors", "config.yaml"} <= set(sent[0][0])


def test_the_upload_is_one_private_commit(tmp_path, monkeypatch):
    import huggingface_hub

    calls = []

    class Api:
        def create_repo(self, repo_id, *, private, exist_ok):
            calls.append(("create", repo_id, private, exist_ok))
            return f"https://hub/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            calls.append(("upload", repo_id, Path(folder_path)))

    real = huggingface_hub.HfApi
    for name in ("create_repo", "upload_folder"):  # the fake takes nothing that the real one does not
        import inspect

        assert set(inspect.signature(getattr(Api, name)).parameters) <= set(inspect.signature(getattr(real, name)).parameters)  # fmt: skip  # noqa: E501
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(publish, "require_hub", lambda what: None)
    assert publish.send(tmp_path, "me/it") == "https://hub/me/it"
    assert calls == [("create", "me/it", True, True), ("upload", "me/it", tmp_path)]


def test_without_a_network_there_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        publish.send(tmp_path, "me/it")


@pytest.mark.slow
def test_a_published_folder_answers_as_the_run(trained, tmp_path):
    import encodery as en

    run = trained("single")
    parcel = publish.pack(run, tmp_path / "out")
    assert str(run) not in parcel.card
    assert getpass.getuser() not in parcel.card or len(getpass.getuser()) < publish.SHORT
    assert "one seed" in parcel.card.lower()
    assert en.load(tmp_path / "out")("a good film") == en.load(run)("a good film")
