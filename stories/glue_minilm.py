"""Five GLUE tasks with a small real encoder on a CPU, beside the majority baseline and transformers' Trainer.

    ENCODERY_DATA=... python stories/glue_minilm.py --out runs/stories [--tasks mrpc,cola] [--peer mrpc] [--threads 2]

Both trainers get the same settings (SETTINGS below), the same epochs and the same number of seeds; what differs is
the order of the data, the drawing of dropout and the layout. Finished runs are not repeated.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

SETTINGS = ["optim.lr=1e-4", "optim.warmup=0.1", "optim.weight_decay=0.01", "optim.eps=1e-6", "optim.clip=1.0"]
EPOCHS = {"mrpc": 3, "rte": 3, "cola": 3, "stsb": 2, "sst2": 2}
ROWS = {"sst2": 10000}  # a part, drawn at random


def ours(task: str, model: Path, out: Path, seeds: int, threads: int) -> list[dict[str, Any]]:
    """Train for all seeds; scores and seconds of each."""
    from encodery.config import load
    from encodery.core.progress import Progress
    from encodery.training.run import train_run

    found = []
    for seed in range(1, seeds + 1):
        overrides = [
            *SETTINGS,
            f"model.name={model}",
            f"train.epochs={EPOCHS[task]}",
            f"seed={seed}",
            f"threads={threads}",
        ]
        overrides += [f"tasks.count={ROWS[task]}"] if task in ROWS else []
        resolved = load.load(f"recipe:glue/{task}/minilm-l3", overrides)
        run = train_run(resolved, out / task / f"seed-{seed}", progress=Progress(every=60))
        seconds = sum(r.get("seconds", 0) * resolved.config.train.log for r in run.metrics() if "loss" in r)
        found.append({"scores": run.read_scores(), "seconds": seconds})
    return found


def peer(task: str, model: Path, seeds: int, threads: int) -> list[dict[str, float]]:
    """transformers' Trainer with dynamic padding and the same settings."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    from encodery.tasks.glue import Glue

    torch.set_num_threads(threads)
    glue = Glue(part=task)
    tokenizer = AutoTokenizer.from_pretrained(model)
    number = {label: i for i, label in enumerate(glue.labels)}

    def rows(split: str) -> list[dict[str, Any]]:
        made = []
        for example in glue.examples(split):
            row = dict(tokenizer(*example.texts, truncation=True, max_length=128))
            made.append({**row, "labels": number[example.label] if number else float(example.label)})
        return made

    train, dev = rows("train"), rows("dev")
    found = []
    for seed in range(1, seeds + 1):
        torch.manual_seed(seed)
        net = AutoModelForSequenceClassification.from_pretrained(
            model, num_labels=len(number) or 1, dtype=torch.float32
        )
        arguments = TrainingArguments(
            output_dir="unused", num_train_epochs=EPOCHS[task], per_device_train_batch_size=32, learning_rate=1e-4,
            warmup_steps=0.1, weight_decay=0.01, adam_epsilon=1e-6, max_grad_norm=1.0, seed=seed, save_strategy="no",
            report_to="none", use_cpu=True, per_device_eval_batch_size=64, disable_tqdm=True, logging_steps=50,
        )  # fmt: skip
        trainer = Trainer(net, arguments, train_dataset=train, data_collator=DataCollatorWithPadding(tokenizer))
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
        logits = trainer.predict(dev).predictions  # in the order of the set: no grouping by length here
        examples = glue.examples("dev")
        answers = glue.decode({"id": e.id, "logits": row.tolist()} for e, row in zip(examples, logits, strict=True))
        found.append({**glue.score(answers, examples), "seconds": seconds})
    return found


def main() -> None:
    """Train what is not trained yet, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/glue-minilm"))
    parser.add_argument("--tasks", default=",".join(EPOCHS))
    parser.add_argument("--peer", default="mrpc,cola")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--model", type=Path, default=Path(os.environ["ENCODERY_DATA"]) / "models/paraphrase-MiniLM-L3-v2-fp16"
    )
    args = parser.parse_args()
    result: dict[str, Any] = {"threads": args.threads, "model": args.model.name}
    for task in filter(None, args.tasks.split(",")):
        result[task] = {"ours": ours(task, args.model, args.out, args.seeds, args.threads)}
        write(args.out, result)
    for task in filter(None, args.peer.split(",")):
        result.setdefault(task, {})["peer"] = peer(task, args.model, args.seeds, args.threads)
        write(args.out, result)
    print(table(result))


def write(out: Path, result: dict[str, Any]) -> None:
    """Keep what is done so far."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(result, indent=1))


def table(result: dict[str, Any]) -> str:
    """One row a task: ours, Trainer, majority."""
    lines = ["| task | metric | ours | Trainer | majority |", "|---|---|---|---|---|"]
    for task, found in result.items():
        if not isinstance(found, dict) or "ours" not in found:
            continue
        key = next(iter(found["ours"][0]["scores"]["scores"]))
        for metric in found["ours"][0]["scores"]["scores"][key]:
            mine = [r["scores"]["scores"][key][metric] for r in found["ours"]]
            theirs = [r[metric] for r in found.get("peer", [])]
            easy = found["ours"][0]["scores"]["majority"][key].get(metric)
            lines.append(
                f"| {task} | {metric} | {spell(mine)} | {spell(theirs)} | {spell([easy] if easy is not None else [])} |"
            )
    return "\n".join(lines)


def spell(values: list[float]) -> str:
    """`81.2 ± 0.4 (2)`."""
    if not values:
        return ""
    sd = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{sd}" + (f" ({len(values)})" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
