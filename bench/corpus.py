"""B9: preparing a corpus against `datasets.map`, batched, with the same tokenizer, one core each; and peak memory.

The peer only tokenises; ours reads, tokenises, builds blocks and writes shards. CPU seconds, so that a busy machine
does not matter. Memory is measured in fresh processes, on the text once and four times over.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

os.environ["TOKENIZERS_PARALLELISM"] = "false"
TEXT, VOCAB = "text/pretrain_docs.parquet", "vocab/bert_uncased_vocab.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--characters", type=int, default=6_000_000, help="of text")
    parser.add_argument("--threads", type=int, default=1, help="not used: each side has one core")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "SIDE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measure(Path(args.child[0]), args.child[1])
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files, note = texts(Path(folder), args.characters)
        rounds = [{side: child(files[0], side) for side in ("ours", "peer")} for _ in range(args.rounds)]
        large = child(files[1], "ours")
    ratio = common.Spread.of([r["peer"]["seconds"] / r["ours"]["seconds"] for r in rounds])
    rows = [
        {"side": side, "CPU s": common.Spread.of([r[side]["seconds"] for r in rounds]), "MB": rounds[0][side]["MB"]}
        for side in ("ours", "peer")
    ]
    rows.append({"side": "ours, text × 4", "CPU s": f"{large['seconds']:.2f}", "MB": large["MB"]})
    common.show(f"B9 corpus ({note}); peer / ours = {ratio} (wanted: 1.7)", rows)
    common.write("corpus", args, {"ratio": ratio, "rounds": rounds, "four_times": large, "text": note})
    return 0


def texts(folder: Path, characters: int) -> tuple[list[Path], str]:
    """Two files of documents, the second four times as long; real text where it is, else synthetic words."""
    data = os.environ.get("ENCODERY_DATA")
    if data and Path(data, TEXT).is_file():
        import pyarrow.parquet as pq

        documents, note = pq.read_table(Path(data, TEXT)).column("text").to_pylist(), "real text"
        documents = [text for text in documents if len(text) < 200_000]
        vocab = Path(data, VOCAB)
    else:
        vocab = common.synthetic(folder, 40_000, 60, 0.5)
        rows = [json.loads(line)["text"] for line in (folder / "train.jsonl").read_text().splitlines()]
        documents, note = ["\n".join(rows[i : i + 10]) for i in range(0, len(rows), 10)], "synthetic text"
    (folder / "vocab.txt").write_bytes(vocab.read_bytes()) if vocab.parent != folder else None
    chosen, size = [], 0
    for text in documents[:: max(1, sum(map(len, documents)) // characters)]:
        chosen.append(text)
        size += len(text)
    paths = [folder / "once.jsonl", folder / "four.jsonl"]
    for path, times in zip(paths, (1, 4), strict=True):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in chosen * times))
    return paths, f"{note}, {size / 1e6:.1f} M characters in {len(chosen):,} documents"


def child(file: Path, side: str) -> dict[str, Any]:
    """A measurement in a fresh process."""
    command = [sys.executable, __file__, "--child", str(file), side]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
    return found


def measure(file: Path, side: str) -> None:
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab=str(file.parent / "vocab.txt"), do_lower_case=True)
    tokenizer("warm up")
    with tempfile.TemporaryDirectory() as folder:
        seconds = (ours if side == "ours" else peer)(file, Path(folder), tokenizer)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "MB": round(memory)}))


def ours(file: Path, folder: Path, tokenizer: Any) -> float:
    from encodery.data.corpus.prepare import prepare
    from encodery.data.tokenizer import TokenizerPieces
    from encodery.tasks.corpus import Corpus

    pieces = TokenizerPieces(tokenizer)
    begin = time.process_time()
    prepare(folder, Corpus(files=str(file)), pieces, 128, workers=1)
    return time.process_time() - begin


def peer(file: Path, folder: Path, tokenizer: Any) -> float:
    import datasets

    datasets.disable_progress_bars()
    data = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(folder))
    begin = time.process_time()
    data.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns=["text"])
    return time.process_time() - begin


if __name__ == "__main__":
    raise SystemExit(main())
