"""Tokenizer: train a vocabulary (WordPiece, BPE, Unigram) on a corpus; the result is a transformers tokenizer folder.

The config has the keys kind, vocab_size, lowercase, strip_accents, special_tokens, more_tokens, min_frequency,
alphabet, max_length, and corpus: a corpus task such as {files: text/*.txt}. docs/corpora.md tells more.
"""

import argparse
from itertools import islice
from pathlib import Path

from encodery.cli.parsing import Parser
from encodery.errors import UserError

SAMPLE = 1000  # lines on which the new vocabulary is tried


def arguments(parser: Parser) -> None:
    """From what, to where."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="a folder that does not exist yet")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.examples(
        "encodery tokenizer vocabulary.yaml -o my-tokenizer",
        "encodery tokenizer --corpus.files 'text/*.txt' --kind bpe --vocab_size 16000 -o my-tokenizer",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train, save, and try it on the corpus."""
    from encodery.config import load_beside_task
    from encodery.data.vocabulary import Vocabulary, summary, train
    from encodery.files import atomic_folder
    from encodery.tasks.corpus import Corpus

    options, task = load_beside_task(Vocabulary, "corpus", args.config, rest, args.allow_code)
    if not isinstance(task, Corpus):
        raise UserError(f"corpus: {task.name} is no corpus")
    folder = Path(args.out)
    if folder.exists():
        raise UserError(f"{folder} exists; give a new folder with -o")
    folder.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = train(options, task)
    with atomic_folder(folder) as beside:
        tokenizer.save_pretrained(beside)
    lines = (line for document in task.good() for line in task.lines(document.text))
    print(f"{folder}: {summary(tokenizer, list(islice(lines, SAMPLE)))}")
    return 0
