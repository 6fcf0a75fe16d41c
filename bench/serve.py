"""B15: `encodery serve` with 8 client processes against the bare model, on the same cores.

Each client sends batches of 8 texts of about 30 tokens over one connection. The bare model is asked in this process, 8
texts at a time. Server and clients are kept on as many cores as the bare model has threads. Rounds are interleaved;
predictions must be equal. Two ratios are given: texts a second by the wall clock, and texts a second of CPU time
(server and clients together), which a busy machine disturbs less.
"""

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np

WANTED = 0.9
CLIENTS, BATCH = 8, 8
WORDS = "the film was not as good as we had hoped but its music and the quiet end stay with you".split()  # noqa: SIM905


def main() -> int:
    parser = common.options(__doc__ or "", rounds=3)
    parser.add_argument("--requests", type=int, default=6, help="requests of each client in a round")
    parser.add_argument("--onnx", action="store_true", help="also with 8-bit weights behind ONNX Runtime")
    args = parser.parse_args()
    cores = set(sorted(os.sched_getaffinity(0))[: args.threads])
    os.sched_setaffinity(0, cores)  # children inherit it
    import torch

    torch.set_num_threads(args.threads)
    from encodery.inference.classifier import open_classifier

    with tempfile.TemporaryDirectory() as folder:
        source = classifier(common.find_model(args.model), Path(folder) / "model")
        model = open_classifier(source, "cpu")
        batches = [texts(i) for i in range(CLIENTS * args.requests)]
        length = np.mean([len(model.tokenizer(text)["input_ids"]) for text in batches[0]])
        sides = {"serve": [], **({"serve --onnx": ["--onnx"]} if args.onnx else {})}
        rows = []
        for side, options in sides.items():
            with Server(source, options, args.threads) as server:
                compare(model, server, batches[0], exact=not options)
                rows += measure(side, model, server, batches, args.rounds)
    common_lines = (
        f"{CLIENTS} clients × {args.requests} requests × {BATCH} texts of {length:.0f} tokens, {len(cores)} core(s)"
    )
    print(common_lines)
    for side, wall, cpu in rows:
        print(f"{side:14} {wall:.2f} of the bare model by the wall clock, {cpu:.2f} by CPU time (wanted {WANTED})")
    return 0 if all(cpu >= WANTED for _, _, cpu in rows) else 1


def texts(number: int) -> list[str]:
    """Different texts of about 30 tokens."""
    rng = np.random.default_rng(number)
    return [" ".join(rng.choice(WORDS, int(rng.integers(23, 34)))) for _ in range(BATCH)]


def classifier(encoder: Path | None, folder: Path) -> str:
    """A classifier of MiniLM's size: what its head says does not matter here."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig

    from encodery.models.tokenizer import toy_tokenizer

    if encoder is None:
        tokenizer = toy_tokenizer()
        config = BertConfig(vocab_size=len(tokenizer), num_labels=2, **common.MINILM)
        model = AutoModelForSequenceClassification.from_config(config)
    else:
        tokenizer = AutoTokenizer.from_pretrained(encoder)
        model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype="float32")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class Server:
    """`encodery serve` on a free port, on the same cores."""

    def __init__(self, source: str, options: list[str], threads: int):
        command = [sys.executable, "-m", "encodery", "serve", source, "--port", "0", "--threads", str(threads)]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if " is served at " in line)
        self.port = int(line.split(" is served at http://")[1].split(" ")[0].rpartition(":")[2])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(connection: http.client.HTTPConnection, batch: list[str]) -> list[dict[str, Any]]:
    connection.request("POST", "/predict", json.dumps({"texts": batch}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 200, found
    return list(found["predictions"])


def compare(model: Any, server: Server, batch: list[str], exact: bool) -> None:
    found = ask(http.client.HTTPConnection("127.0.0.1", server.port), batch)
    for one, other in zip(found, model(batch), strict=True):
        far = max(abs(one["probabilities"][label] - chance) for label, chance in other.probabilities.items())
        assert far < (1e-4 if exact else 0.1), far


def client(port: int, batches: list[list[str]], start: Any, spent: Any) -> None:
    """One process: a connection, and one request after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    start.wait()
    begin = time.process_time()
    for batch in batches:
        ask(connection, batch)
    spent.put(time.process_time() - begin)


def served(server: Server, batches: list[list[str]]) -> tuple[float, float]:
    """Wall and CPU seconds for all batches."""
    context = multiprocessing.get_context("spawn")
    start, spent = context.Barrier(CLIENTS + 1), context.Queue()
    clients = [
        context.Process(target=client, args=(server.port, batches[i::CLIENTS], start, spent)) for i in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    start.wait()
    begin, before = time.perf_counter(), server.cpu()
    own = [spent.get() for _ in clients]
    wall, cpu = time.perf_counter() - begin, server.cpu() - before
    for one in clients:
        one.join()
    return wall, cpu + sum(own)


def bare(model: Any, batches: list[list[str]]) -> tuple[float, float]:
    begin, before = time.perf_counter(), time.process_time()
    for batch in batches:
        model(batch)
    return time.perf_counter() - begin, time.process_time() - before


def measure(
    side: str, model: Any, server: Server, batches: list[list[str]], rounds: int
) -> list[tuple[str, float, float]]:
    """Ratios of bare to served seconds, medians over interleaved rounds."""
    found = []
    for number in range(rounds):
        order = [lambda: bare(model, batches), lambda: served(server, batches)]
        pair = [call() for call in (order if number % 2 == 0 else order[::-1])]
        alone, together = pair if number % 2 == 0 else pair[::-1]
        found.append((alone[0] / together[0], alone[1] / together[1]))
    wall, cpu = np.median(found, 0)
    return [(side, float(wall), float(cpu))]


if __name__ == "__main__":
    raise SystemExit(main())
