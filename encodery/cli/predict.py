"""Predict labels, numbers, tags or answers for raw text: on the command line, in a file or on stdin.

Labels come with probabilities. Models that tag words read a text split at spaces, a list of words, or CoNLL columns;
models that answer questions read a question and its context. Files are jsonl, csv, tsv or Parquet with named columns;
the output keeps every column under its own name, beside the prediction; a csv file keeps its delimiter.
On stdin (`--file -`) each line is a text (for models that read pairs: two texts with a tab between them) or a JSON
object. Several models are an ensemble (mean of probabilities or numbers).
"""

import argparse
import sys
from pathlib import Path

from encodery.cli.parsing import Parser
from encodery.core.text import counted
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    parser.add_argument("models", nargs="+", metavar="RUN", help="run directory, model folder or hub name")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--text", metavar="A", action="append", help="a text; may be given several times")
    given.add_argument("--file", metavar="F", help="a file with texts, or - for stdin")
    parser.add_argument("--text2", metavar="B", action="append", help="the second text of a pair, one for each --text")
    parser.add_argument("--text-column", metavar="NAME", help="column of the text; default: as in training, else text")
    parser.add_argument(
        "--text2-column", metavar="NAME", help="column of the second text; default: as in training, else text2"
    )
    parser.add_argument(
        "--encoding", metavar="NAME", help="encoding of the file, such as cp1252; default: UTF-8 or UTF-16"
    )
    parser.shared("--skip-bad-rows", help="skip rows that cannot be used, and name them")
    parser.add_argument("--head", metavar="TASK", help="use the head of this task, if there are several")
    parser.renamed("--on", "--head")
    parser.add_argument("-o", "--out", metavar="OUT", help="write to a .jsonl, .csv, .tsv or (tags) .conll file")
    parser.formats(
        "jsonl", "tsv", "conll", old={"table": "rich"},
        help="on stdout; rich: one line per text; md: a Markdown table; json: a list; jsonl: one object per line; "
        "conll: a word and its tag per line; default: rich at a terminal, jsonl in a pipe; with -o: jsonl, csv, tsv or "
        "conll, by default as the file's name ends",
    )  # fmt: skip
    parser.shared("--device", "--precision")
    parser.shared("--quiet", help="print no progress")
    parser.shared("--allow-code")
    parser.no_verify()
    parser.examples(
        'encodery predict runs/sst2 --text "a film to remember"',
        'encodery predict runs/sst2 --text "a film to remember" --text "a waste of time"',
        'encodery predict runs/rte --text "A cat sleeps." --text2 "An animal sleeps."',
        "encodery predict runs/reviews --file new.csv --text-column review -o answers.jsonl",
        "encodery predict runs/ner-* --file new.conll -o answers.conll",
        "cat lines.txt | encodery predict runs/sst2 --file -",
        'encodery predict runs/ner --text "EU rejects German call"',
        'encodery predict runs/all --head glue/sst2 --text "a film to remember"',
        'encodery predict runs/squad --text "Who came?" --text2 "The Normans came from France."',
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core.progress import Counting
    from encodery.inference import raw_text
    from encodery.inference.classifier import open_classifier

    if args.text2 is not None and args.text is None:
        raise UserError("--text2 needs --text; for files give --text2-column")
    write = raw_text.writer(Path(args.out), args.format, args.file) if args.out else None
    models = [
        open_classifier(name, args.device, head=args.head, allow_code=args.allow_code, precision=args.precision)
        for name in args.models
    ]
    if args.file is None:
        examples = raw_text.of_words(args.text, args.text2)
    else:
        names = (args.text_column, args.text2_column)
        examples = raw_text.of_file(args.file, models[0], names, args.skip_bad_rows, args.encoding)
    form = args.format or ("rich" if sys.stdout.isatty() else "jsonl")
    with Counting(args.models[0], len(examples) * len(models), args.quiet or len(examples) < 2) as on_progress:
        rows = raw_text.answered(models, examples, on_progress, brief=not write and form == "rich")
        if write:
            write(rows)
            print(f"{args.out}: {counted(len(examples), 'prediction')}")
            gold = "gold.conll" if Path(args.out).suffix == ".conll" else "gold.csv"
            args.next = f"encodery score {args.out} --on {gold}  # once you have labels"
        else:
            raw_text.show(rows, form)
    return 0
