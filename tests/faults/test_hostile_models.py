"""S3: a model folder with code of its own, at every verb, with standard input saying yes to every question."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoTokenizer

import encodery
from encodery.cli.verbs import VERBS
from tests.toolbox.faults import command
from tests.toolbox.models import small_encoder
from tests.toolbox.tokenizers import save_tokenizer

PACKAGE = Path(encodery.__file__).parent
DOOR = PACKAGE / "models" / "pretrained.py"
EVIL = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast
class Config(BertConfig): model_type = "evil"
class Model(BertModel): config_class = Config
class Tokenizer(PreTrainedTokenizerFast): pass
"""
CLASSES = {"AutoConfig": "evil.Config"} | {
    f"AutoModel{purpose}": "evil.Model"
    for purpose in ("", "ForSequenceClassification", "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
}
TOKENIZER = {"tokenizer_class": "Tokenizer", "auto_map": {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}}
# What is changed in config.json and tokenizer_config.json of a good folder.
FOLDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all": ({"model_type": "evil", "auto_map": CLASSES}, TOKENIZER),
    "known-type": ({"auto_map": CLASSES}, TOKENIZER),
    "tokenizer": ({}, TOKENIZER),
    "kernel": ({"attn_implementation": "evil/kernel"}, {}),
}
DATA = ["--device", "cpu", "--train.max_steps", "2", "--train.batch_size", "8"]
STUDY = "tasks: [{name: toy/paraphrase, count: 16}, {name: toy/nli, count: 16}]\nprimary: toy/nli\nstrategy: thres\n"

# Every way to hand a model folder F to a verb; T is a text file, O a folder that is not there yet.
LINES: dict[str, list[list[str]]] = {
    "train": [
        ["train", "--model", "F", "--tasks", "toy/nli", *DATA, "-o", "O"],
        ["train", "--model", "F", "--tasks.name", "corpus", "--tasks.files", "T", *DATA, "-o", "O"],
        ["train", "--model.new.kind", "bert", "--model.tokenizer", "F", "--tasks", "toy/nli", *DATA, "-o", "O"],
        ["train", "--model.new.kind", "bert", "--model.init_from", "F", "--tasks", "toy/nli", *DATA, "-o", "O"],
        ["train", "recipe:toy/nli", "--tasks.teacher", "F", *DATA, "-o", "O"],
    ],
    "glue": [["glue", "F", "--only", "rte", "--seeds", "1", "-o", "O"]],
    "tokenizer": [["tokenizer", "--corpus.files", "T", "--model", "F", "-o", "O"]],
    "prepare": [["prepare", "--model.tokenizer", "F", "--tasks.name", "corpus", "--tasks.files", "T", "-o", "O"]],
    "demo": [["demo", "F"]],
    "predict": [["predict", "F", "--text", "a"], ["predict", "F", "--file", "-"]],
    "evaluate": [["evaluate", "F", "--on", "toy/nli"], ["evaluate", "F", "--on", "T"]],
    "score": [["score", "F", "--on", "toy/nli"]],
    "submit": [["submit", "F", "-o", "O"]],
    "inspect": [["inspect", "--model", "F", "--tasks", "toy/nli"], ["inspect", "F"]],
    "watch": [["watch", "F", "--once"]],
    "serve": [["serve", "F", "--port", "0"], ["serve", "F", "--port", "0", "--onnx"]],
    "table": [["table", "F"]],
    "report": [["report", "F", "-o", "O"]],
    "embed": [["embed", "F", "--on", "toy/nli:dev", "-o", "O"]],
    "select": [["select", "--pool", "toy/nli", "--selector.kind", "clusters", "--embed.model", "F", "-o", "O"]],
    "curve": [["curve", "curve.yaml", "--model", "F", "-o", "O"]],
    "heads": [["heads", "F", "--on", "toy/nli", "-o", "O"]],
    "gradts": [["gradts", "study.yaml", "--model", "F", *DATA, "--seeds", "1", "-o", "O"]],
    "sweep": [
        ["sweep", "plan", "--model", "F", "--tasks", "toy/nli", *DATA],
        ["sweep", "run", "--model", "F", "--tasks", "toy/nli", "--train.max_steps", "2", "--retries", "0", "-o", "O"],
    ],
    "recipes": [["recipes", "show", "F"]],
    "tasks": [["tasks", "F"]],
    "config": [["config", "--model", "F", "--tasks", "toy/nli"], ["config", "F"]],
    "export": [["export", "F", "O"], ["export", "F", "O", "--onnx"]],
    "publish": [["publish", "F", "-o", "O"]],
    "track": [["track", "F", "--to", "tensorboard"]],
    "import": [["import", "electra", "F", "O"]],
    "data": [["data", "check", "F"]],
    "doctor": [["doctor", "F"]],
}
LOADING = {
    "train",
    "predict",
    "serve",
    "evaluate",
    "inspect",
    "embed",
    "heads",
    "export",
    "prepare",
    "select",
}  # at every line


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder as transformers saves it."""
    folder = tmp_path_factory.mktemp("good")
    small_encoder("bert", vocab_size=45).net.save_pretrained(folder)
    return save_tokenizer(folder)


@pytest.fixture
def hostile(good: Path, tmp_path: Path) -> Callable[[str], Path]:
    """The same folder with code in it, which leaves a file where it ran."""

    def make(kind: str) -> Path:
        folder = tmp_path / "F"
        folder.mkdir()
        for path in good.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        for name, more in zip(("config.json", "tokenizer_config.json"), FOLDERS[kind], strict=True):
            (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | more))
        (folder / "evil.py").write_text(EVIL.format(marker=str(tmp_path / "RAN")))
        (tmp_path / "T.txt").write_text("w1 w2 w3\n\nw4 w5\n" * 20)
        (tmp_path / "curve.yaml").write_text("tasks: {name: toy/nli, count: 32}\nfractions: [0.5]\nseeds: 1\n")
        (tmp_path / "study.yaml").write_text(STUDY)
        return folder

    return make


# Every verb meets a folder in which everything is hostile, and one verb of each loader the others.
CASES = [(verb, "all") for verb in LINES] + [
    (verb, kind) for kind in FOLDERS if kind != "all" for verb in ("train", "predict", "embed", "export", "prepare")
]


@pytest.mark.parametrize(("verb", "kind"), CASES)
def test_S3_no_verb_runs_or_asks_about_the_code_of_a_model_folder(verb, kind, hostile, tmp_path) -> None:
    folder = hostile(kind)
    names = {"F": str(folder), "T": str(tmp_path / "T.txt"), "O": str(tmp_path / "out")}
    for line in LINES[verb] if kind == "all" else LINES[verb][:1]:
        ended = command([names.get(word, word) for word in line], tmp_path, stdin="y\n" * 200)
        assert not (tmp_path / "RAN").exists(), line
        assert "run the custom code?" not in ended.output, line
        assert not ended.is_bug, f"{line}\n{ended.output}"
        if verb in LOADING and kind == "all" and "inspect F" not in " ".join(line):
            assert ended.code == 2, f"{line}\n{ended.output}"
            assert "never runs" in ended.output, f"{line}\n{ended.output}"


def test_S3_the_list_has_every_verb() -> None:
    assert set(LINES) == {verb.name for verb in VERBS}


def test_S3_the_trap_works(hostile, tmp_path) -> None:
    """Trusted by somebody, the folder's code does run: the tests above could fail."""
    folder = hostile("all")
    AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert (tmp_path / "RAN").exists()
    (tmp_path / "RAN").unlink()
    with pytest.raises(ValueError, match="custom code"):
        AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def test_S3_every_loader_is_called_through_the_one_door() -> None:
    """`x.from_pretrained(…)` and `x.from_config(…)` stand in models/pretrained.py alone, where trust is refused."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if call and node.func.attr in ("from_pretrained", "from_config", "pipeline"):
                found.append((path, {word.arg: ast.unparse(word.value) for word in node.keywords}))
    assert [path for path, _ in found] == [DOOR, DOOR]
    assert all(words["trust_remote_code"] == "False" for _, words in found)
