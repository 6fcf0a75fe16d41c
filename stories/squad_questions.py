"""4,000 questions in SQuAD 2.0's layout, half of them without an answer, and a dev set of other articles.

    ENCODERY_DATA=... python stories/squad_questions.py questions

There is no official training file in the data folder this was written for. encodery's stand-in for it has few questions
without an answer; all of them are taken here, and as many with one, drawn at random, so that "no answer" is learnt.
"""

import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COUNT = 4000


def layout(examples: Sequence[Any]) -> dict[str, Any]:
    """SQuAD's JSON: a paragraph for each context."""
    contexts: dict[str, list[Any]] = defaultdict(list)
    for example in examples:
        contexts[example.texts[1]].append(example)
    paragraphs = [{"context": text, "qas": [question(e) for e in some]} for text, some in contexts.items()]
    return {"version": "v2.0", "data": [{"title": "questions", "paragraphs": paragraphs}]}


def question(example: Any) -> dict[str, Any]:
    """A question with its answers, none where there is none."""
    starts = example.extra.get("starts", ())
    answers = [{"text": text, "answer_start": at} for text, at in zip(example.label, starts, strict=True)]
    return {"id": example.id, "question": example.texts[0], "answers": answers, "is_impossible": not example.label}


def main(out: Path) -> None:
    """Write train.json and dev.json and say what is in them."""
    from encodery.tasks.squad import Squad

    task = Squad(part="v2")
    train, dev = list(task.examples("train")), list(task.examples("dev"))
    draw = random.Random(1)
    without = [e for e in train if not e.label]
    draw.shuffle(without)
    chosen = without[: COUNT // 2]
    chosen += draw.sample([e for e in train if e.label], COUNT - len(chosen))
    draw.shuffle(chosen)
    out.mkdir(parents=True, exist_ok=True)
    for name, examples in (("train", chosen), ("dev", dev)):
        (out / f"{name}.json").write_text(json.dumps(layout(examples)), encoding="utf-8")
        print(f"{name}: {len(examples):,} questions, {sum(not e.label for e in examples):,} without an answer")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
