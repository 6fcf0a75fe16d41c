"""The lower layers of petit with its head for masked words: where a generator of ELECTRA or AMOS begins.

python stories/pretraining/generator.py --layers 2 generator-2
"""

import argparse
from pathlib import Path

from transformers import AutoTokenizer, ModernBertForMaskedLM

import encodery.models

PETIT = Path(encodery.models.__file__).parent / "petit"


def main() -> None:
    """Cut and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    args = parser.parse_args()
    model = ModernBertForMaskedLM.from_pretrained(PETIT).float()
    model.model.layers = model.model.layers[: args.layers]
    model.config.num_hidden_layers = args.layers
    model.config.layer_types = model.config.layer_types[: args.layers]
    model.save_pretrained(args.out)
    AutoTokenizer.from_pretrained(PETIT).save_pretrained(args.out)
    print(f"{args.out}: {args.layers} layers, {sum(p.numel() for p in model.parameters()):,} weights")


if __name__ == "__main__":
    main()
