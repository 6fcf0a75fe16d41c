"""transformers' Trainer with the settings of stories/glue.yaml: what the arm `first` of that sweep is compared with.

    ENCODERY_DATA=... python stories/glue_trainer.py -o stories/results/glue_trainer.json [--tasks mrpc,stsb]

The stock class and its own head over the first token; dynamic padding, one thread. What differs from the sweep is the
order of the rows, the drawing of dropout and the layout. After each seed the file is written; seeds it holds are not
trained again.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

EPOCHS, LENGTH = 3, 128


def encoded(task: Any, split: str, tokenizer: Any) -> list[dict[str, Any]]:
    """The rows of a split as Trainer wants them."""
    numbers = {label: i for i, label in enumerate(task.labels)}
    rows = []
    for example in task.examples(split):
        inputs = dict(tokenizer(*example.texts, truncation=True, max_length=LENGTH))
        rows.append({**inputs, "labels": numbers[example.label] if numbers else float(example.label)})
    return rows


def train(task: Any, model: Path, seed: int) -> dict[str, Any]:
    """One seed: dev scores by encodery's own metrics, and seconds."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    train_rows, dev_rows = encoded(task, "train", tokenizer), encoded(task, "dev", tokenizer)
    transformers.set_seed(seed)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=len(task.labels) or 1, dtype=torch.float32
    )
    arguments = transformers.TrainingArguments(
        output_dir="unused", num_train_epochs=EPOCHS, per_device_train_batch_size=32, learning_rate=2e-5,
        weight_decay=0.0, max_grad_norm=1.0, seed=seed, save_strategy="no", report_to="none", use_cpu=True,
        per_device_eval_batch_size=64, disable_tqdm=True, logging_steps=100,
    )  # fmt: skip
    collator = transformers.DataCollatorWithPadding(tokenizer)
    trainer = transformers.Trainer(net, arguments, train_dataset=train_rows, data_collator=collator)
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    examples = task.examples("dev")
    logits = trainer.predict(dev_rows).predictions
    answers = task.decode({"id": e.id, "logits": row.tolist()} for e, row in zip(examples, logits, strict=True))
    scores = {name: round(value, 6) for name, value in task.score(answers, examples).items()}
    return {"seed": seed, "scores": scores, "seconds": round(seconds, 1)}


def main() -> None:
    """Train what the file does not hold yet."""
    import torch

    from encodery.tasks.glue import Glue

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("stories/results/glue_trainer.json"))
    parser.add_argument("--tasks", default="mrpc,stsb")
    parser.add_argument("--seeds", type=int, default=3)
    models = Path(os.environ["ENCODERY_DATA"]) / "models"
    parser.add_argument("--model", type=Path, default=models / "all-MiniLM-L6-v2-fp16")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = json.loads(args.out.read_text(encoding="utf-8"))["runs"] if args.out.is_file() else []
    done = {(run["task"], run["seed"]) for run in runs}
    for part in args.tasks.split(","):
        for seed in range(1, args.seeds + 1):
            if (f"glue/{part}", seed) in done:
                continue
            runs.append({"task": f"glue/{part}", **train(Glue(part=part), args.model, seed)})
            lines = ",\n".join(json.dumps(run, sort_keys=True) for run in runs)
            args.out.write_text('{"runs": [\n' + lines + "\n]}\n", encoding="utf-8")
            print(lines.rsplit("\n", 1)[-1], flush=True)


if __name__ == "__main__":
    main()
