"""The verbs prepare and tokenizer, as a person uses them."""

import json
import re

import pytest

from encodery.cli import main
from encodery.data.corpus.blocks import BlockTable
from encodery.tasks.toy_grammar.corpus import documents


def test_a_text_that_gives_fewer_tokens_than_asked_for_is_noted(tmp_path, text, capsys):
    words = ["tokenizer", "--corpus.files", str(text), "--vocab_size"]
    assert main([*words, "50", "-o", str(tmp_path / "small")]) == 0
    assert "asked for" not in capsys.readouterr().err
    assert main([*words, "30000", "-o", str(tmp_path / "large")]) == 0
    said = capsys.readouterr()
    (number,) = re.findall(
        r"note: 30,000 tokens were asked for, and this text gives no more than ([\d,]+)$", said.err, re.M
    )
    assert f"{number} tokens;" in said.out


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents(0, 40)))
    return path


def test_a_vocabulary_then_blocks_then_their_use(tmp_path, text, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocabulary.yaml").write_text("corpus: {files: text.txt}\nkind: wordpiece\nvocab_size: 200\n")
    assert main(["tokenizer", "vocabulary.yaml", "-o", "pieces"]) == 0
    assert "tokens per word" in capsys.readouterr().out
    assert main(["tokenizer", "vocabulary.yaml", "-o", "pieces"]) == 2
    config = (
        "model: {new: {kind: electra}, tokenizer: pieces}\n"
        "tasks: {name: corpus, files: text.txt, held_out: 0.2}\n"
        "train: {max_length: 32}\n"
    )
    (tmp_path / "run.yaml").write_text(config)
    capsys.readouterr()
    assert main(["prepare", "run.yaml", "-o", "blocks", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "read: 40 documents" in out
    assert "train:" in out
    assert "dev:" in out
    table = BlockTable(tmp_path / "blocks", "train")
    assert f"{len(table):,} blocks" in out
    assert main(["prepare", "run.yaml", "-o", "blocks"]) == 0  # done already: says it again
    assert capsys.readouterr().out == out
    report = json.loads((tmp_path / "blocks/report.json").read_text())
    assert report["made"]["train"]["blocks"] == len(table)


def test_the_toy_corpus_goes_into_the_cache(capsys):
    words = ["--model.new.kind", "electra", "--tasks.name", "toy/corpus", "--tasks.documents", "30"]
    assert main(["prepare", *words, "--train.max_length", "32"]) == 0
    assert "read: 30 documents" in capsys.readouterr().out


@pytest.mark.slow
def test_a_task_is_prepared_too(capsys):
    words = ["--model.tokenizer", "toy", "--tasks.name", "toy/nli", "--tasks.train_rows", "20"]
    assert main(["prepare", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["prepare", *words, "-o", "x"]) == 2
    assert "-o is for one corpus" in capsys.readouterr().err


def test_errors_name_file_line_and_key(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.yaml").write_text("kind: wordpeace\ncorpus:\n  fils: x\nvocab_sise: 3\n")
    assert main(["tokenizer", "v.yaml", "-o", "out"]) == 2
    said = capsys.readouterr().err
    assert "v.yaml:1: kind: expected" in said
    assert "v.yaml:3: corpus.fils: unknown key of task corpus; did you mean files?" in said
    assert "v.yaml:4: vocab_sise: unknown key; did you mean vocab_size?" in said
    assert main(["tokenizer", "--corpus", "toy/nli", "-o", "out"]) == 2
    assert "toy/nli is not a corpus" in capsys.readouterr().err
    assert main(["prepare", "--model.new.kind", "bert", "--tasks.name", "corpus/toy", "--workers", "0"]) == 2
    assert main(["prepare", "--model.new.kind", "bert", "--model.tokenizer", "toy", "--tasks.name", "corpus"]) == 2
    assert "a corpus needs files, hub or prepared" in capsys.readouterr().err
