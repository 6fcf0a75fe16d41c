"""A CSV of pairs, fine-tuned by a script in the manner of transformers' run_glue, and by `encodery train`: CPU seconds.

    ENCODERY_DATA=… python bench/run_glue.py --model DIR --rows 600 --epochs 2 --repeats 2

Both read the same files, train with the same batch size, rate and length on one thread, evaluate after every epoch and
save a model. What is given is user + system time of the whole command, so that other work on the machine hardly counts.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

PEER = """
import sys
import numpy as np
from datasets import load_dataset
from transformers import (
    AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments,
    set_seed,
)

model_name, train_file, dev_file, out, epochs = sys.argv[1:]
set_seed(1)
data = load_dataset("csv", data_files={"train": train_file, "validation": dev_file})
labels = sorted(data["train"].unique("label"))
ids = {name: i for i, name in enumerate(labels)}
config = AutoConfig.from_pretrained(
    model_name, num_labels=len(labels), label2id=ids, id2label={i: name for name, i in ids.items()}
)
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForSequenceClassification.from_pretrained(
    model_name, config=config, dtype="float32", ignore_mismatched_sizes=True
)

def encode(rows):
    found = tokenizer(rows["sentence1"], rows["sentence2"], max_length=128, truncation=True)
    return {**found, "labels": [ids[name] for name in rows["label"]]}

data = data.map(encode, batched=True, remove_columns=["sentence1", "sentence2", "label"])

def scores(answer):
    said = np.argmax(answer.predictions, axis=1)
    return {"accuracy": float((said == answer.label_ids).mean())}

arguments = TrainingArguments(
    output_dir=out, learning_rate=5e-5, per_device_train_batch_size=32, per_device_eval_batch_size=32,
    num_train_epochs=float(epochs), weight_decay=0.01, warmup_steps=0.1, eval_strategy="epoch", save_strategy="no",
    report_to=[], seed=1, use_cpu=True, disable_tqdm=True,
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=data["train"], eval_dataset=data["validation"],
    processing_class=tokenizer, data_collator=DataCollatorWithPadding(tokenizer), compute_metrics=scores,
)
trainer.train()
trainer.save_model(out)
print("accuracy", trainer.evaluate()["eval_accuracy"])
"""


def files(folder: Path, rows: int) -> None:
    """MRPC as a person has it: two CSV files with named labels."""
    import pandas as pd

    source = Path(os.environ["ENCODERY_DATA"]) / "glue"
    for split, count in (("train", rows), ("dev", rows // 2)):
        table = pd.read_parquet(source / f"mrpc_{split}.parquet").head(count)
        table["label"] = table["label"].map({0: "different", 1: "same"})
        table[["sentence1", "sentence2", "label"]].to_csv(folder / f"{split}.csv", index=False)


def timed(words: list[str], folder: Path) -> tuple[float, str]:
    """CPU seconds (user + system) of a command and its children, and what it printed."""
    alone = {"OMP_NUM_THREADS": "1", "ENCODERY_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "hf")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=folder, env={**os.environ, **alone}, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    found: dict[str, list[float]] = {"run_glue": [], "encodery": []}
    accuracy: dict[str, str] = {}
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files(folder, args.rows)
            (folder / "peer.py").write_text(PEER)
            peer = [sys.executable, "peer.py", args.model, "train.csv", "dev.csv", "out", str(args.epochs)]
            seconds, said = timed(peer, folder)
            found["run_glue"].append(round(seconds, 1))
            accuracy["run_glue"] = said.split()[-1]
            ours = [sys.executable, "-m", "encodery", "train", "train.csv", "--tasks.dev", "dev.csv", "--model"]
            ours += [args.model, f"--train.epochs={args.epochs}", "--optim.lr=5e-5", "--device=cpu", "-o", "run"]
            seconds, _ = timed(ours, folder)
            found["encodery"].append(round(seconds, 1))
            scores = json.loads((folder / "run" / "scores.json").read_text())["scores"]
            accuracy["encodery"] = str(next(iter(scores.values()))["accuracy"])
    print(json.dumps({"cpu_seconds": found, "accuracy": accuracy, **vars(args)}, indent=1))


if __name__ == "__main__":
    main()
