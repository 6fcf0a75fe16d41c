"""What needs no fine-tuned encoder, beside the scores of stories/petit.yaml and stories/glue.yaml.

    ENCODERY_DATA=... python stories/simple_baselines.py -o stories/results/simple.json

Sentiment: logistic regression on TF-IDF of words and pairs of words, on as many rows as the runs have, five drawings.
Similarity: how many lower-cased words two sentences share (Jaccard), and the cosine of mean vectors of encoders that
were not fine-tuned: petit's word embeddings, its last layer, and MiniLM's.
"""

import argparse
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.models.locate import SHIPPED
from encodery.tasks.glue import Glue

SEEDS = range(1, 6)


def words(text: str) -> set[str]:
    """Lower-cased words without punctuation at their ends."""
    return {word.strip(".,;:!?'\"()") for word in text.lower().split()} - {""}


def overlap(texts: Sequence[str]) -> float:
    """Jaccard's index of two sentences."""
    a, b = words(texts[0]), words(texts[1])
    return len(a & b) / max(len(a | b), 1)


def correlation(task: Any, values: Sequence[float]) -> dict[str, float]:
    """The task's own scores of numbers as answers."""
    examples = task.examples("dev")
    rows = ({"id": e.id, "logits": [float(value)]} for e, value in zip(examples, values, strict=True))
    scores = task.score(task.decode(rows), examples)
    return {name: round(scores[name], 6) for name in ("pearson", "spearman")}


def cosines(folder: Path, pairs: Sequence[Sequence[str]], layer: int) -> list[float]:
    """Of the mean vectors of a layer (0: word embeddings) of both sentences."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    def mean(texts: list[str]) -> torch.Tensor:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        mask = batch["attention_mask"][..., None]
        states = model(**batch, output_hidden_states=True).hidden_states[layer]
        return (states * mask).sum(1) / mask.sum(1)

    found: list[float] = []
    with torch.no_grad():
        for begin in range(0, len(pairs), 64):
            both = list(zip(*pairs[begin : begin + 64], strict=True))
            a, b = (mean(list(texts)) for texts in both)
            found += torch.nn.functional.cosine_similarity(a, b).tolist()
    return found


def tfidf(rows: int, seed: int) -> float:
    """Accuracy on SST-2's dev set after so many rows of its train."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    task = Glue(part="sst2")
    train = random.Random(seed).sample(list(task.examples("train")), rows)
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+"), LogisticRegression(max_iter=1000))
    model.fit([e.texts[0] for e in train], [e.label for e in train])
    dev = task.examples("dev")
    return float(
        np.mean([guess == e.label for guess, e in zip(model.predict([e.texts[0] for e in dev]), dev, strict=True)])
    )


def main() -> None:
    """Compute all of it: a minute of one thread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("stories/results/simple.json"))
    models = Path(os.environ["ENCODERY_DATA"]) / "models"
    parser.add_argument("--minilm", type=Path, default=models / "all-MiniLM-L6-v2-fp16")
    args = parser.parse_args()
    stsb = Glue(part="stsb")
    pairs = [e.texts for e in stsb.examples("dev")]
    similar = {
        "words shared": [overlap(texts) for texts in pairs],
        "petit's word embeddings, cosine": cosines(SHIPPED, pairs, 0),
        "petit's last layer, cosine": cosines(SHIPPED, pairs, -1),
        "MiniLM-L6, cosine": cosines(args.minilm, pairs, -1),
    }
    found = {
        "glue/stsb": {name: correlation(stsb, values) for name, values in similar.items()},
        "glue/sst2": {str(rows): {seed: round(tfidf(rows, seed), 6) for seed in SEEDS} for rows in (1000, 10000)},
    }
    args.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(args.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
