"""Entailment sets besides GLUE, by name: one table more."""

from collections.abc import Mapping
from typing import ClassVar

from encodery.tasks.sources.published import Named, PublishedSet

_PAIR = ("premise", "hypothesis")
_THREE_WAY = ("entailment", "neutral", "contradiction")


def _rounds(split: str) -> tuple[str, ...]:
    return tuple(f"{split}_r{number}" for number in (1, 2, 3))


TABLE: dict[str, PublishedSet] = {
    "snli": PublishedSet(
        name="snli",
        parquet_folder="extra",
        texts=_PAIR,
        labels=_THREE_WAY,
        counts={"train": 549367, "dev": 9842, "test": 9824},
        repository="stanfordnlp/snli",
        skip_unlabelled=True,
    ),
    "anli": PublishedSet(
        name="anli",
        parquet_folder="extra",
        texts=_PAIR,
        labels=_THREE_WAY,
        counts={"train": 162865, "dev": 3200, "test": 3200},
        repository="facebook/anli",
        hub_splits={split: _rounds(split) for split in ("train", "dev", "test")},
        id="uid",
    ),
    "sick": PublishedSet(
        name="sick",
        parquet_folder="extra",
        texts=_PAIR,
        hub_texts=("sentence_A", "sentence_B"),
        labels=_THREE_WAY,
        counts={"train": 4500, "dev": 500, "test": 4927},
        repository="RobZamp/sick",
        hub_revision="refs/convert/parquet",  # its main branch is a script, which `datasets` no longer runs
    ),
    "scitail": PublishedSet(
        name="scitail",
        parquet_folder="extra",
        texts=_PAIR,
        labels=("entailment", "neutral"),
        aliases={"entails": "entailment"},
        counts={"train": 23097, "dev": 1304, "test": 2126},
        repository="allenai/scitail",
        configuration="tsv_format",
        undivided="scitail_part",
        divide_by="hypothesis",  # made from one question each: the published split is by question too
    ),
    "paws": PublishedSet(
        name="paws",
        parquet_folder="extra",
        texts=("sentence1", "sentence2"),
        labels=("0", "1"),
        counts={"train": 49401, "dev": 8000, "test": 8000},
        repository="google-research-datasets/paws",
        configuration="labeled_final",
        id="id",
    ),
}


class Nli(Named):
    """Entailment and paraphrase tasks outside GLUE."""

    parts: ClassVar[Mapping[str, str]] = {
        "snli": "SNLI: does a picture's caption entail a hypothesis (three answers)",
        "anli": "ANLI: entailment questions written against models, rounds 1 to 3",
        "sick": "SICK: entailment of short sentences (three answers)",
        "scitail": "SciTail: does a sentence support an answer to a science question (two answers)",
        "paws": "PAWS: paraphrase or not, at equal words",
    }
    table: ClassVar[Mapping[str, PublishedSet]] = TABLE
    family: ClassVar[str] = "nli"

    @property
    def positive(self) -> str | None:
        """F1 where the question is yes or no."""
        return "1" if self.part == "paws" else None
