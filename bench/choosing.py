"""Memory and time of selection on 400,000 × 384 embeddings: k-means with k = 512, the stream, stratified random choice.

Wanted: below 4 GB in all, k-means and stream below 3 minutes on two cores. The vectors are random mixtures; making them
counts, as reading them would. On a busy machine the CPU seconds of one thread tell more than the clock.
"""

import argparse
import resource
import time

import common
import numpy as np


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--k", type=int, default=512)
    parser.add_argument("--centers", type=int, default=2000, help="rows that k-center chooses")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    from threadpoolctl import threadpool_limits

    from encodery.selectors.base import Pool
    from encodery.selectors.clusters import ByCluster
    from encodery.selectors.kcenter import KCenter
    from encodery.selectors.random import Random
    from encodery.tasks.base import Example

    labels = ("entailment", "neutral", "contradiction")
    examples = [Example(str(i), ("a premise", "a hypothesis"), labels[i % 3]) for i in range(args.rows)]
    ids = [example.id for example in examples]
    pool = Pool(examples, labels, vectors=lambda: (ids, mixture(args.rows, args.width)))
    rows = []
    with threadpool_limits(args.threads):
        for name, selector, count in (
            ("random, stratified", Random(stratify=["label"]), args.rows),
            ("clusters, stream", ByCluster(k=args.k), args.rows),
            ("clusters, proportional", ByCluster(k=args.k, pick="proportional"), args.rows),
            ("k-center", KCenter(), args.centers),
        ):
            begin, cpu = time.perf_counter(), time.process_time()
            order = selector(pool, count).order
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            spent = {"seconds": round(seconds, 1), "CPU seconds": round(cpu, 1), "peak GB": round(peak, 2)}
            rows.append({"selector": name, "chosen": len(order), **spent})
            print(rows[-1], flush=True)
    common.show(f"selection from {args.rows:,} × {args.width} (wanted: stream < 180 s, < 4 GB)", rows)
    common.write("choosing", args, {"rows": rows})
    return 0


def mixture(rows: int, width: int, kinds: int = 1000) -> np.ndarray:
    """Normal clouds around random centres, made in blocks."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(kinds, width)).astype(np.float32)
    found = np.empty((rows, width), np.float32)
    for i in range(0, rows, 50_000):
        part = found[i : i + 50_000]
        part[:] = centres[rng.integers(0, kinds, len(part))] + rng.normal(size=part.shape).astype(np.float32)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
