"""The words of tiny texts, and a WordPiece vocabulary of them. No torch."""

from pathlib import Path

WORDS = [f"w{i}" for i in range(40)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ENGLISH = [
    "the",
    "a",
    "cat",
    "dog",
    "film",
    "bird",
    "runs",
    "sleeps",
    "sings",
    "good",
    "bad",
    "great",
    "awful",
    "very",
    "not",
    "and",
    "near",
    "here",
    "there",
    "dull",
    "bright",
]


def vocabulary(folder: Path) -> Path:
    """A WordPiece vocabulary of a few words and all letters."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    path = folder / "vocab.txt"
    pieces = dict.fromkeys([*SPECIAL, *ENGLISH, *letters, *(f"##{x}" for x in letters), ".", ","])
    path.write_text("\n".join(pieces) + "\n")
    return path
