"""The GLUE tasks: one class, one table."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from encodery.tasks.sources.published import Named, PublishedSet, Tsv

YES_NO = ("0", "1")
ENTAILS = ("entailment", "not_entailment")
THREE_WAY = ("entailment", "neutral", "contradiction")
HUB = "nyu-mll/glue"


def _tsv(
    texts: tuple[str, ...], label: str | None, test_texts: tuple[str, ...] | None = None
) -> dict[str, tuple[Tsv, ...]]:
    """The usual three files; test files have no label."""
    train, dev = Tsv("train.tsv", texts, label), Tsv("dev.tsv", texts, label)
    return {"train": (train,), "dev": (dev,), "test": (Tsv("test.tsv", test_texts or texts),)}


def _counts(train: int, dev: int, test: int) -> dict[str, int | None]:
    return {"train": train, "dev": dev, "test": test}


_COLA = ("source", "label", "star", "sentence")  # train and dev have no header, test has
_PAIR = ("sentence1", "sentence2")
_MRPC = ("#1 String", "#2 String")
_MSR_TRAIN = "msr_paraphrase_train.txt"  # Microsoft's own file: GLUE's dev rows are those in dev_ids.tsv
_MATCHED = {"dev": ("validation_matched",), "test": ("test_matched",)}

TABLE: dict[str, PublishedSet] = {
    "cola": PublishedSet(
        name="cola",
        texts=("sentence",),
        labels=YES_NO,
        counts=_counts(8551, 1043, 1063),
        repository=HUB,
        configuration="cola",
        folders=("CoLA", "COLA", "cola"),
        tsv={
            "train": (Tsv("train.tsv", ("sentence",), "label", _COLA),),
            "dev": (Tsv("dev.tsv", ("sentence",), "label", _COLA),),
            "test": (Tsv("test.tsv", ("sentence",)),),
        },
    ),
    "sst2": PublishedSet(
        name="sst2",
        texts=("sentence",),
        labels=YES_NO,
        counts=_counts(67349, 872, 1821),
        repository=HUB,
        configuration="sst2",
        folders=("SST-2", "sst2", "sst-2"),
        tsv=_tsv(("sentence",), "label"),
    ),
    "mrpc": PublishedSet(
        name="mrpc",
        texts=_PAIR,
        labels=YES_NO,
        counts=_counts(3668, 408, 1725),
        repository=HUB,
        configuration="mrpc",
        folders=("MRPC", "mrpc"),
        tsv={
            "train": (
                Tsv("train.tsv", _MRPC, "Quality"),
                Tsv(_MSR_TRAIN, _MRPC, "Quality", listed=("dev_ids.tsv", False)),
            ),
            "dev": (Tsv("dev.tsv", _MRPC, "Quality"), Tsv(_MSR_TRAIN, _MRPC, "Quality", listed=("dev_ids.tsv", True))),
            "test": (Tsv("test.tsv", _MRPC), Tsv("msr_paraphrase_test.txt", _MRPC)),
        },
    ),
    "stsb": PublishedSet(
        name="stsb",
        texts=_PAIR,
        labels=(),
        bounds=(0.0, 5.0),
        counts=_counts(5749, 1500, 1379),
        repository=HUB,
        configuration="stsb",
        folders=("STS-B", "stsb", "sts-b"),
        tsv=_tsv(_PAIR, "score"),
    ),
    "qqp": PublishedSet(
        name="qqp",
        texts=("question1", "question2"),
        labels=YES_NO,
        counts=_counts(363846, 40430, 390965),
        repository=HUB,
        configuration="qqp",
        folders=("QQP", "qqp"),
        tsv=_tsv(("question1", "question2"), "is_duplicate"),
        skip_short=True,
        stand_in={"dev": ("qqp_holdout_part", "NOT the official dev set: rows cut from train")},
    ),
    "mnli": PublishedSet(
        name="mnli",
        texts=("premise", "hypothesis"),
        labels=THREE_WAY,
        counts={"train": 392702, "dev": 9815, "dev_mismatched": 9832, "test": 9796, "test_mismatched": 9847},
        repository=HUB,
        configuration="mnli",
        hub_splits=_MATCHED,
        folders=("MNLI", "mnli"),
        extra=("genre",),
        tsv={
            "train": (Tsv("train.tsv", _PAIR, "gold_label"),),
            "dev": (Tsv("dev_matched.tsv", _PAIR, "gold_label"),),
            "dev_mismatched": (Tsv("dev_mismatched.tsv", _PAIR, "gold_label"),),
            "test": (Tsv("test_matched.tsv", _PAIR),),
            "test_mismatched": (Tsv("test_mismatched.tsv", _PAIR),),
        },
    ),
    "qnli": PublishedSet(
        name="qnli",
        texts=("question", "sentence"),
        labels=ENTAILS,
        counts=_counts(104743, 5463, 5463),
        repository=HUB,
        configuration="qnli",
        folders=("QNLI", "qnli"),
        tsv=_tsv(("question", "sentence"), "label"),
    ),
    "rte": PublishedSet(
        name="rte",
        texts=_PAIR,
        labels=ENTAILS,
        counts=_counts(2490, 277, 3000),
        repository=HUB,
        configuration="rte",
        folders=("RTE", "rte"),
        tsv=_tsv(_PAIR, "label"),
    ),
    "wnli": PublishedSet(
        name="wnli",
        texts=_PAIR,
        labels=YES_NO,
        counts=_counts(635, 71, 146),
        repository=HUB,
        configuration="wnli",
        folders=("WNLI", "wnli"),
        tsv=_tsv(_PAIR, "label"),
    ),
    "ax": PublishedSet(
        name="ax",
        texts=("premise", "hypothesis"),
        labels=THREE_WAY,
        counts={"test": 1104},
        repository=HUB,
        configuration="ax",
        folders=("AX", "ax", "diagnostic", "MNLI"),
        tsv={"test": (Tsv("AX.tsv", _PAIR), Tsv("diagnostic.tsv", _PAIR))},
    ),
}


class Glue(Named):
    """The nine GLUE tasks and the diagnostic set."""

    parts: ClassVar[Mapping[str, str]] = {
        "cola": "CoLA: is a sentence acceptable English",
        "sst2": "SST-2: sentiment of a film review's phrase",
        "mrpc": "MRPC: do two news sentences say the same",
        "stsb": "STS-B: how similar are two sentences, 0 to 5",
        "qqp": "QQP: do two questions ask the same",
        "mnli": "MNLI: does a premise entail a hypothesis (three answers), matched and mismatched",
        "qnli": "QNLI: does a sentence answer a question",
        "rte": "RTE: does a text entail a hypothesis",
        "wnli": "WNLI: whom does a pronoun mean (its dev set is adversarial to train)",
        "ax": "AX: the diagnostic set, for a model trained on MNLI",
    }
    table: ClassVar[Mapping[str, PublishedSet]] = TABLE
    family: ClassVar[str] = "glue"

    target_scale: float = Field(default=1.0, gt=0)
    """STS-B: the model learns score / target_scale (5.0 in Google's ELECTRA). Predictions are always on the scale from
    0 to 5."""

    @property
    def positive(self) -> str | None:
        """F1 is a metric of the two paraphrase tasks."""
        return "1" if self.part in ("mrpc", "qqp") else None

    @property
    def scale(self) -> float:
        """What scores are divided by for the model."""
        return self.target_scale

    @property
    def main_metric(self) -> str:
        """Matthews' correlation for CoLA and AX, Spearman's for STS-B, else accuracy."""
        return {"cola": "mcc", "ax": "mcc", "stsb": "spearman"}.get(self.part, "accuracy")

    def _single_scores(self, gold: list[str], guess: list[str]) -> dict[str, float]:
        scores = super()._single_scores(gold, guess)
        if self.main_metric != "mcc":
            return scores
        from encodery.tasks.forms import metrics

        return scores | {"mcc": metrics.matthews(gold, guess)}
