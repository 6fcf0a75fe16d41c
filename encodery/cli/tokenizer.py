"""Train a vocabulary (WordPiece, BPE, Unigram) on a corpus; the result is a transformers tokenizer folder.

The config has the keys kind, vocab_size, lowercase, strip_accents, special_tokens, more_tokens, min_frequency,
alphabet, max_length, and corpus: a corpus task such as {files: text/*.txt}. See docs/corpora.md.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.errors import UserError

SAMPLE = 1000  # lines on which the new vocabulary is tried


def arguments(parser: Parser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", required=True, help="a folder that does not exist yet")
    parser.shared("--skip-bad-rows", "--allow-code")
    parser.examples(
        "encodery tokenizer vocabulary.yaml -o my-tokenizer",
        "encodery tokenizer --corpus.files 'text/*.txt' --kind bpe --vocab_size 16000 -o my-tokenizer",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.config.load import load_beside_task
    from encodery.core.files import atomic_folder
    from encodery.data.corpus.vocabulary import Vocabulary, summary, train
    from encodery.tasks.corpus import Corpus

    rest = without_bad_rows(args, rest, "corpus")
    options, task = load_beside_task(Vocabulary, "corpus", args.config, rest, args.allow_code)
    if not isinstance(task, Corpus):
        raise UserError(f"corpus: {task.name} is not a corpus")
    folder = Path(args.out)
    if folder.exists():
        raise UserError(f"{folder} exists; give a new folder with -o")
    folder.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = train(options, task)
    with atomic_folder(folder) as beside:
        tokenizer.save_pretrained(beside)
    lines = (line for document in task.good() for line in task.lines(document.text))
    print(f"{folder}: {summary(tokenizer, list(islice(lines, SAMPLE)))}")
    if len(tokenizer) < options.vocab_size:
        print(
            f"note: {options.vocab_size:,} tokens were asked for, and this text gives no more than {len(tokenizer):,}",
            file=sys.stderr,
        )
    args.next = (
        f"encodery train --model.new.kind bert --model.tokenizer {folder} --tasks.name corpus --tasks.files FILES"
    )
    return 0
