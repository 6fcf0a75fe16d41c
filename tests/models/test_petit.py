"""The encoder that comes with encodery: it is there without a network, and is taken where no other is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from encodery.cli import main
from encodery.config import load
from encodery.config.schema import DEFAULT_MODEL_SETTINGS
from encodery.errors import UserError
from encodery.models import locate
from encodery.sweep.plan import Planner
from encodery.sweep.sweep_file import parse
from encodery.training.build import find_inputs, settings_of_shipped

FOLDER = locate.SHIPPED
ROWS = [("a truly wonderful day", "glad"), ("what a sad and empty house", "sorry")] * 12


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\n" + "".join(f"{text} {i},{label}\n" for i, (text, label) in enumerate(ROWS)))
    return file


def test_it_is_small_and_stored_as_float16() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12e6
    with safe_open(FOLDER / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_transformers_opens_it_and_it_guesses_words() -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = AutoModelForMaskedLM.from_pretrained(FOLDER, dtype=torch.float32)
    batch = tokenizer("The president of the united [MASK] gave a speech.", return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits[0, batch["input_ids"][0] == tokenizer.mask_token_id][0]
    assert tokenizer.convert_tokens_to_ids("states") in logits.topk(5).indices.tolist()
    assert AutoModel.from_pretrained(FOLDER).config.hidden_size == 256


def test_its_card_names_text_and_licences() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(word in card for word in ("OpenStax", "CC BY 4.0", "Wikipedia", "CC BY-SA", "not good for"))
    assert "{" not in card.replace("{#", "")


def test_it_is_taken_with_its_own_rate_where_no_model_is_named(reviews: Path) -> None:
    by_default = load.load(str(reviews))
    assert by_default.config.model.name == "petit"
    assert by_default.config.optim.lr == DEFAULT_MODEL_SETTINGS["optim"]["lr"]
    assert by_default.config.train.epochs == DEFAULT_MODEL_SETTINGS["train"]["epochs"]
    assert any("comes with encodery" in note for note in by_default.notes)
    named = load.load(str(reviews), ["--model", "petit", "--optim.lr", "1e-3"])
    assert (named.config.optim.lr, named.config.train.epochs) == (1e-3, by_default.config.train.epochs)
    assert not named.notes
    assert load.load(str(reviews), ["--model", "roberta-base"]).config.optim.lr == 2e-5


def test_the_origin_of_its_rate_and_epochs_is_petit(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", str(reviews)]) == 0
    lines = {line.split(":")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert lines["lr"].endswith("# default of petit")
    assert lines["epochs"].endswith("# default of petit")
    assert lines["batch_size"].endswith("# default")
    given = load.load(str(reviews), ["--optim.lr", "5e-4"]).origins
    assert (given["optim.lr"], given["train.epochs"]) == ("command line", "default of petit")
    assert load.load(str(reviews), ["--model", "roberta-base"]).origins["optim.lr"] == "default"


@pytest.mark.parametrize("key", ["tokenizer", "init_from", "revision", "generator"])
def test_half_a_model_is_not_completed(reviews: Path, key: str) -> None:
    with pytest.raises(UserError, match="give a name"):
        load.load(str(reviews), [f"--model.{key}", "x"])


def test_a_sweep_takes_it_too(reviews: Path) -> None:
    text = f"tasks: {reviews}\ngrid: {{optim.weight_decay: [0, 0.1]}}\n"
    specs = Planner(parse(text, "sweep.yaml", reviews.parent, "sweep"), reviews.parent / "out").specs()
    configs = [spec.config for spec in specs if spec.config]
    assert [config["model"]["name"] for config in configs] == ["petit", "petit"]
    assert {config["optim"]["lr"] for config in configs} == {DEFAULT_MODEL_SETTINGS["optim"]["lr"]}


def test_a_folder_of_the_same_name_is_a_question(reviews: Path) -> None:
    Path("petit").mkdir()
    assert locate.resolve("petit").path == FOLDER  # nothing in it
    Path("petit/config.json").write_text("{}")
    with pytest.raises(UserError, match=r"write \./petit for the folder, or encodery/petit for the encoder"):
        locate.resolve("petit")
    assert locate.resolve("encodery/petit").path == FOLDER
    assert locate.resolve("./petit").path == Path("petit").resolve()


def test_its_identity_is_its_content() -> None:
    assert locate.resolve("petit").digest() == locate.resolve("encodery/petit").digest()
    assert locate.resolve_tokenizer("petit", Path()).path == FOLDER


@pytest.fixture
def continued(tmp_path: Path) -> Path:
    """A folder with petit's size and vocabulary, as what continues petit leaves one, and another name."""
    return Path(shutil.copytree(FOLDER, tmp_path / "mine"))


def notes_of(*words: str) -> list[str]:
    resolved = load.load(None, words)
    return settings_of_shipped(resolved, find_inputs(resolved))


def test_its_settings_are_named_where_a_model_that_continues_it_gets_the_general_ones(
    reviews: Path, continued: Path
) -> None:
    words = [f"tasks={reviews}", f"model={continued}"]
    (note,) = notes_of(*words)
    assert "--optim.lr 0.0005 --train.epochs 5" in note
    assert note.endswith("the general 2e-05 and 3")
    for given in ("optim.lr=1e-4", "train.epochs=1", "train.max_steps=9"):
        assert notes_of(*words, given) == []
    assert notes_of(f"tasks={reviews}", "model=petit") == []


def test_a_model_of_another_size_is_not_taken_for_one_that_continues_it(reviews: Path, continued: Path) -> None:
    config = json.loads((continued / "config.json").read_text())
    (continued / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 12}))
    assert notes_of(f"tasks={reviews}", f"model={continued}") == []


def test_the_note_on_its_settings_is_said_by_a_training(
    reviews: Path, continued: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(reviews), f"--model={continued}", "-o", "run", "--device=cpu"]) == 0
    assert capsys.readouterr().err.count("--optim.lr 0.0005 --train.epochs 5") == 1


@pytest.mark.slow
def test_a_csv_becomes_a_model_without_network(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(reviews), "-o", "run", "--train.epochs=3", "--device=cpu", "--train.batch_size=4"]) == 0
    assert "model: petit" in capsys.readouterr().err
    assert json.loads(Path("run/run.json").read_text())["task"]
    assert main(["predict", "run", "--text", "a truly wonderful day", "--quiet"]) == 0
    assert "glad" in capsys.readouterr().out
    assert main(["export", "run", "out"]) == 0
    assert AutoModel.from_pretrained("out").config.model_type == "modernbert"
