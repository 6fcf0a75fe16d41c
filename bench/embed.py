"""B8: embedding a task against sentence-transformers' `encode`, same texts, batch size and threads; also int8.

Sentences go through both; in float32 vectors must agree (cosine at least 0.9999), for int8 the lowest is reported.
Without sentence-transformers the peer is its loop written out: sorted by length, padded per batch, mean of the tokens.
"""

from pathlib import Path
from typing import Any

import common
import numpy as np

WANTED = {"fp32": 1.1, "int8": 1.6}


def main() -> int:
    parser = common.options(__doc__ or "", rounds=3, tasks=("glue/sst2", "glue/mrpc"))
    parser.add_argument("--texts", type=int, default=2000, help="sentences of each task")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--int8", action="store_true", help="also quantised (needs ONNX Runtime)")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    model, clock = common.find_model(args.model), common.clock(args.clock)
    if model is None:
        print("B8 needs a pretrained encoder: set ENCODERY_DATA or --model")
        return 1
    sides = ["fp32", *(["int8"] if args.int8 else [])]
    rows, found = [], {}
    for task in args.tasks:
        texts = sentences(task, args.texts)
        peer, kind = the_peer(model, args.batch)
        ours = {side: our_side(model, texts, args.batch, side == "int8") for side in sides}
        seconds: dict[str, list[float]] = {side: [] for side in ["peer", *sides]}
        for _ in range(args.rounds):
            begin = clock()
            theirs = peer(texts)
            seconds["peer"].append(clock() - begin)
            for side, call in ours.items():
                begin = clock()
                vectors = call()
                seconds[side].append(clock() - begin)
                cosine = lowest_cosine(vectors, theirs)
                assert side == "int8" or cosine >= 0.9999, f"{task}: our vectors are others, cosine {cosine}"
        for side in sides:
            ratio = common.Spread.of([p / o for p, o in zip(seconds["peer"], seconds[side], strict=True)])
            cosine = lowest_cosine(ours[side](), theirs)
            rows.append(
                {"task": task, "ours": side, "peer / ours": ratio, "wanted": WANTED[side], "cosine": f"{cosine:.4f}"}
            )
            found[f"{task} {side}"] = {"ratio": ratio, "seconds": seconds}
    common.show(f"B8 embedding, batches of {args.batch}, against {kind}", rows)
    common.write("embed", args, {"peer": kind, "results": found})
    return 0


def sentences(task: str, count: int) -> list[str]:
    """First texts of a real training set."""
    from encodery.inference.task_argument import named

    return [example.texts[0] for example in named(task).examples("train")[:count]]


def our_side(model: Path, texts: list[str], batch: int, int8: bool) -> Any:
    """A function that embeds the texts anew, tokenising included."""
    from encodery.analysis import embed as module
    from encodery.data.token_table import memory_table
    from encodery.inference.answer_head import Head
    from encodery.tasks.base import Example

    source = module.open_source(str(model), "cpu", layout="rows" if int8 else "auto")
    reader = Head(called="bench", form="single", names=["a", "b"], max_length=128)
    examples = [Example(str(i), (text,)) for i, text in enumerate(texts)]
    options = module.EmbedOptions(site="mean", int8=int8)
    give = module._giver(source, options, {"layer": source.encoder.layers})

    def run() -> np.ndarray:
        table = memory_table(reader.encode(examples, source.pieces, 128), [e.id for e in examples])
        return module.shard(table, 0, len(examples), give, batch, source.encoder)

    return run


def the_peer(model: Path, batch: int) -> tuple[Any, str]:
    """sentence-transformers with mean pooling, or its loop written out."""
    try:
        from sentence_transformers import SentenceTransformer, models
    except ImportError:
        return plain_loop(model, batch), "its loop written out (sentence-transformers is not installed)"
    inner = models.Transformer(str(model), max_seq_length=128, model_kwargs={"dtype": "float32"})
    pooling = models.Pooling(inner.auto_model.config.hidden_size)
    whole = SentenceTransformer(modules=[inner, pooling], device="cpu")
    return lambda texts: whole.encode(texts, batch_size=batch, show_progress_bar=False), "sentence-transformers"


def plain_loop(model: Path, batch: int) -> Any:
    """Sorted by length in characters, padded per batch, mean over the mask, as sentence-transformers does it."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    net = AutoModel.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.backend_tokenizer.no_padding()

    def encode(texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        found: list[Any] = [None] * len(texts)
        with torch.no_grad():
            for i in range(0, len(texts), batch):
                rows = order[i : i + batch]
                given = [texts[j] for j in rows]
                inputs = tokenizer(given, padding=True, truncation=True, max_length=128, return_tensors="pt")
                mask = inputs["attention_mask"][..., None].float()
                hidden = net(**inputs).last_hidden_state
                for j, vector in zip(rows, ((hidden * mask).sum(1) / mask.sum(1)).numpy(), strict=True):
                    found[j] = vector
        return np.stack(found)

    return encode


def lowest_cosine(a: np.ndarray, b: np.ndarray) -> float:
    both = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(1) / both).min())


if __name__ == "__main__":
    raise SystemExit(main())
