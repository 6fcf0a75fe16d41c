"""B7, B10: head importance of each example against one example at a time; all correlations against scipy.

B7   the original way: one example at a time, unpadded, transformers' own class, gradients of all weights, then the mean
     |gradient| of the key and value matrices. Ours: one backward pass for many examples, `mask` (the default) and
     `kv_weight`. Equal: kv_weight with the original, mask with itself one by one, both to 1e-5 of the largest value.
B10  Kendall's tau of every example's matrix with 8 tasks' matrices, ties included, against scipy.stats.kendalltau.
"""

import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

SIZES = {"6x12, 384": 3.0, "12x12, 768": 2.0}  # wanted
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}


def main() -> int:
    parser = common.options(__doc__ or "", rounds=5, tasks=("nli/sick", "glue/mrpc"))
    parser.add_argument("--examples", type=int, default=48, help="of the small encoder; a third for the large one")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--instances", type=int, default=400, help="rows for the correlations")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    rows, found = [], {}
    for size in args.sizes:
        for task in args.tasks:
            examples = args.examples if size.startswith("6x") else max(8, args.examples // 3)
            one = Sides(size, task, examples, common.find_model(args.model))
            one.require_equal()
            seconds = rounds(one, args)
            for side in ("mask", "kv_weight"):
                ratio = common.Spread.of([p / o for p, o in zip(seconds["original"], seconds[side], strict=True)])
                wanted = SIZES[size] if side == "mask" else ""
                rows.append(
                    {"heads": size, "task": task, "examples": examples, "ours": side, "original / ours": ratio,
                     "wanted": wanted, "ms an example": 1000 * min(seconds[side]) / examples}
                )  # fmt: skip
            found[f"{size} {task}"] = seconds
    common.show("B7 head importance per example, against one at a time with all gradients", rows)
    taus = correlations(args)
    common.show("B10 Kendall's tau of instances with 8 tasks, against scipy", taus)
    common.write("heads", args, {"importance": rows, "seconds": found, "correlations": taus})
    return 0


def rounds(one: "Sides", args: Any) -> dict[str, list[float]]:
    """Interleaved."""
    clock = common.clock(args.clock)
    seconds: dict[str, list[float]] = {"original": [], "mask": [], "kv_weight": []}
    for _ in range(args.rounds):
        for side, known in seconds.items():
            begin = clock()
            one.run(side)
            known.append(clock() - begin)
    return seconds


class Sides:
    """One encoder with a classifier, as ours and as transformers has it, and some rows."""

    def __init__(self, size: str, task: str, examples: int, model: Path | None):
        from transformers import AutoModelForSequenceClassification

        from encodery.config import load
        from encodery.training import build

        tree = common.run_config(model, task)
        if size.startswith("12x"):
            tokenizer = str(model) if model else tree["model"]["tokenizer"]
            tree["model"] = {"new": {"kind": "bert", "config": BASE}, "tokenizer": tokenizer}
        resolved = load.load(tree)
        built = build.build(resolved, build.find_inputs(resolved))
        self.model, self.batcher, self.task = built.model.eval(), built.batcher, built.task.name
        self.table = built.batches.table
        rng = np.random.default_rng(0)
        self.rows = np.sort(rng.choice(len(self.table), examples, replace=False))
        folder = tempfile.mkdtemp(prefix="encodery-bench-")
        self.model.objective(self.task).head.stock.save_pretrained(folder)
        self.peer = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="sdpa").eval()

    def run(self, side: str) -> np.ndarray:
        """[examples, layers, heads]."""
        return np.stack([self.original(row) for row in self.rows]) if side == "original" else self.ours(side, self.rows)

    def original(self, row: int) -> np.ndarray:
        """One example: everything gets a gradient; two matrices of each layer are looked at."""
        import torch

        table, here = self.table, slice(int(self.table.starts[row]), int(self.table.starts[row + 1]))
        ids, types = (torch.from_numpy(np.array(x[here], np.int64))[None] for x in (table.ids, table.types))
        label = torch.tensor([int(table.targets["label"][row])])
        self.peer.zero_grad(set_to_none=True)
        self.peer(
            input_ids=ids, token_type_ids=types, attention_mask=torch.ones_like(ids), labels=label
        ).loss.backward()
        found, heads = [], self.peer.config.num_attention_heads
        for layer in self.peer.base_model.encoder.layer:
            inner = layer.attention.self
            grads = [module.weight.grad.abs().unflatten(0, (heads, -1)) for module in (inner.key, inner.value)]
            found.append(sum(grad.mean((1, 2)) for grad in grads).numpy())
        return np.stack(found)

    def ours(self, estimator: Any, rows: np.ndarray) -> np.ndarray:
        """Many examples in a backward pass."""
        from dataclasses import replace

        from encodery.analysis.head_importance import BUDGET, MOST, HeadOptions, of_batch

        batcher = replace(self.batcher, budget=BUDGET, max_sequences=MOST)
        order = rows[np.argsort(-np.asarray(self.table.lengths[rows]), kind="stable")]
        found = {}
        for i in range(0, len(order), MOST):
            for batch in batcher.split(self.table, order[i : i + MOST], self.task, 0):
                values = of_batch(self.model, batch, HeadOptions(estimator=estimator)).abs().numpy()
                found |= dict(zip(batch.ids.tolist(), values, strict=True))
        return np.stack([found[int(row)] for row in rows])

    def require_equal(self) -> None:
        """A speed counts only beside equal numbers."""
        rows = self.rows[:8]
        original = np.stack([self.original(row) for row in rows])
        alone = np.concatenate([self.ours("mask", rows[i : i + 1]) for i in range(len(rows))])
        pairs = [("kv_weight", original), ("mask", alone)]
        for side, wanted in pairs:
            apart = float(np.abs(self.ours(side, rows) - wanted).max() / np.abs(wanted).max())
            assert apart < 1e-5, f"{side}: differs by {apart:.1e} of the largest value"


def correlations(args: Any) -> list[dict[str, Any]]:
    """The same numbers by scipy and by us; some ties."""
    from scipy.stats import kendalltau

    from encodery.core.rank_correlation import correlations as ours

    rows, clock = [], common.clock(args.clock)
    for heads in (72, 144):
        rng = np.random.default_rng(heads)
        instances = rng.random((args.instances, heads)).round(2)  # rounding makes ties
        tasks = rng.random((8, heads)).round(2)
        few = instances[: max(10, args.instances // 20)]
        ratios = []
        for _ in range(args.rounds):
            begin = clock()
            theirs = np.array([[kendalltau(a, b)[0] for b in tasks] for a in few])
            middle = clock()
            mine = ours(instances, tasks)
            ratios.append((middle - begin) / len(few) / ((clock() - middle) / len(instances)))
        apart = float(np.abs(mine[: len(few)] - theirs).max())
        assert apart < 1e-12, f"taus differ by {apart:.1e}"
        rows.append({"heads": heads, "scipy / ours": common.Spread.of(ratios), "wanted": 20.0, "apart": f"{apart:.0e}"})
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
