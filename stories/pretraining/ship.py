"""Put a pretrained encoder into the package: float16 weights, tokenizer, and the card with its licences.

    python stories/pretraining/ship.py runs/petit/model encodery/models/petit --training "..." --scores scores.md

The card is card.md beside this file; what differs from one encoder to the next is filled in here.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
FORGOTTEN = (
    "dtype",
    "torch_dtype",
    "_name_or_path",
    "transformers_version",
)  # of config.json: says nothing of the model


def ship(source: Path, out: Path, training: str, scores: str) -> None:
    """Convert and count."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.half().contiguous() for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if key not in FORGOTTEN} | {"classifier_pooling": "mean"}
    (out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name in TOKENIZER:
        shutil.copyfile(source / name, out / name)
    card = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    count = sum(tensor.numel() for tensor in weights.values())
    filled = {"{parameters}": f"{count / 1e6:.1f} M", "{training}": training, "{scores}": scores.strip()}
    for blank, words in filled.items():
        card = card.replace(blank, words)
    (out / "README.md").write_text(card, encoding="utf-8")
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{out}: {count:,} weights, {size / 1e6:.1f} MB")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of the pretrained model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--training", required=True, help="a sentence: steps, tokens, optimiser, time")
    parser.add_argument("--scores", type=Path, required=True, help="a file with the table of scores")
    args = parser.parse_args()
    ship(args.source, args.out, args.training, args.scores.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
