"""Convert checkpoints of other programs to transformers folders, DIR/discriminator and DIR/generator.

google-electra: TensorFlow checkpoints of google-research/electra (TensorFlow is not needed).
electra_pytorch: .pth files of richarddwang/electra_pytorch.
amos: Microsoft's AMOS base++, fairseq's .pt file or the transformers folder, with sp.model and dict.txt. It is the only
AMOS model ever released: the large++ in their table is not public.
bin: an encoder on the hub or in a folder that has only pytorch_model.bin. It is opened once, as weights only, verified
bit by bit, and written to DIR as safetensors with its config and tokenizer.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser

PROGRAMS = ("google-electra", "electra_pytorch", "amos", "bin")


def arguments(parser: Parser) -> None:
    parser.add_argument("program", choices=PROGRAMS, help="which program wrote it; bin: pytorch_model.bin")
    parser.add_argument(
        "checkpoint", metavar="CKPT", help="model.ckpt, its folder, a .pth or .pt file; bin: a hub name or a folder"
    )
    parser.add_argument("folder", metavar="DIR", help="a folder that does not exist yet")
    parser.add_argument(
        "--vocab",
        metavar="PATH",
        help="vocab.txt; amos: folder of sp.model and dict.txt; default: next to the checkpoint",
    )
    parser.add_argument("--heads", type=int, metavar="N", help="heads of the discriminator; default: width / 64")
    parser.add_argument("--generator-heads", type=int, metavar="N", help="heads of the generator; default: width / 64")
    parser.add_argument("--revision", metavar="REV", help="bin: commit, tag or branch on the hub")
    parser.examples(
        "encodery import google-electra electra_small/electra_small electra-small",
        "encodery import electra_pytorch electra_small_100.0%.pth my-electra --vocab vocab.txt",
        "encodery import amos amos-base++/model.pt amos-base",
        "encodery train --model electra-small/discriminator --tasks glue/rte",
        "encodery import bin google/electra-small-discriminator electra-small",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from importlib import import_module

    from encodery.errors import UserError

    if args.program == "bin":
        if args.vocab or args.heads or args.generator_heads:
            raise UserError("--vocab and --heads are for checkpoints without a config; bin has its own")
        from encodery.importers.pytorch_bin import convert

        print(*convert(args.checkpoint, Path(args.folder), args.revision), sep="\n")
        args.next = f"encodery train --model {args.folder} --tasks glue/rte"
        return 0
    if args.revision:
        raise UserError("--revision is for bin: a file has none")
    from encodery.importers.electra import Heads

    importer = import_module(f"encodery.importers.{args.program.replace('-', '_')}")
    heads = Heads(args.heads, args.generator_heads)
    vocab = Path(args.vocab) if args.vocab else None
    for line in importer.convert(Path(args.checkpoint), Path(args.folder), heads, vocab):
        print(line)
    args.next = f"encodery train --model {args.folder}/discriminator --tasks glue/rte"
    return 0
