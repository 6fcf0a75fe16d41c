"""4,000 questions in SQuAD 2.0's layout, half of them without an answer, and a dev set of other articles.

    ENCODERY_DATA=... python stories/squad_questions.py stories/questions

There is no official training file in the data folder this was written for. encodery's stand-in for it has few questions
without an answer; 2,000 of them are taken here, and as many with one. Those about the same texts come first: where
questions without an answer have texts of their own, a model learns the texts instead of the questions.
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
    contexts = {example.texts[1] for example in chosen}
    answered = draw.sample([e for e in train if e.label], sum(bool(e.label) for e in train))
    answered.sort(key=lambda example: example.texts[1] not in contexts)  # stable: random among the same texts
    chosen += answered[: COUNT - len(chosen)]
    draw.shuffle(chosen)
    out.mkdir(parents=True, exist_ok=True)
    for name, examples in (("train", chosen), ("dev", dev)):
        (out / f"{name}.json").write_text(json.dumps(layout(examples)), encoding="utf-8")
        apart = {e.texts[1] for e in examples if e.label}
        without_answer = [e for e in examples if not e.label]
        same = sum(e.texts[1] in apart for e in without_answer)
        print(f"{name}: {len(examples):,} questions, {len(without_answer):,} without an answer")
        print(f"  {same:,} of these are about a text that has the answer to another question")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
