"""A column of a data file, and what its values look like: text, label, numbers, lists, dates."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from encodery.tasks.sources.labels import has_decimal_comma

FEW_LABELS = 20  # more different whole numbers than this are a quantity
MOST_LABELS = 200  # different values of a column that no name marks as the label
WORDS_OF_TEXT = 4  # words in the mean value of a column of texts

# Names of columns, by how sure they are. Spelled as `plain` spells them.
TEXTS = (
    "text sentence review body message content comment tweet post utterance document article abstract mail "
    "review_text review_body comment_text full_text ticket_text sms",
    "description question query input prompt ticket subject title headline summary instruction sentence1 text1 premise",
)
_OFFERED = ("candidate", "given", "proposed", "suggested", "student", "user", "model")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{2,4}( .*)?")
_LINK = re.compile(r"(https?://|www\.)\S+|\S+@\S+\.\w+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Column:
    """A column and what its values look like."""

    name: str
    values: list[Any]  # those that are not empty

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Its name in plain spelling; of a nested key also the last word."""
        return tuple(dict.fromkeys((plain(self.name), plain(self.name.rpartition(".")[2]))))

    @cached_property
    def partners(self) -> tuple[str, ...]:
        """Its names as those of one of two texts: `first_text` is the first, a `candidate_answer` an answer."""
        bare = [re.sub(f"^({'|'.join(_OFFERED)})_", "", name).removesuffix("_text") for name in self.names]
        return (*self.names, *bare)

    @cached_property
    def distinct(self) -> Counter[str]:
        return Counter(value if isinstance(value, str) else json.dumps(value, default=str) for value in self.values)

    @cached_property
    def numbers(self) -> list[float] | None:
        """The values as numbers, if they all are."""
        if self.decimal_commas:
            return [float(str(value).replace(",", ".")) for value in self.values]
        if not self.values or not all(is_number(value) for value in self.values):
            return None
        return [float(value) for value in self.values]

    @cached_property
    def decimal_commas(self) -> bool:
        """Whether they are numbers such as `3,8`: most have one comma, none has more."""
        commas = [isinstance(value, str) and has_decimal_comma(value) for value in self.values]
        return sum(commas) > len(commas) / 2 and all(
            comma or is_number(value) for comma, value in zip(commas, self.values, strict=True)
        )

    @cached_property
    def whole_numbers(self) -> bool:
        return self.numbers is not None and all(number.is_integer() for number in self.numbers)

    @cached_property
    def words(self) -> float:
        """Words of the mean value; 0 for what is no text."""
        if not self.values or not all(isinstance(value, str) for value in self.values) or self.numbers is not None:
            return 0.0
        return sum(len(value.split()) for value in self.values) / len(self.values)

    @cached_property
    def lists(self) -> bool:
        return bool(self.values) and all(isinstance(value, list) for value in self.values)

    @cached_property
    def marks(self) -> bool:
        """Whether it only says yes or no, as 0 and 1."""
        return bool(self.values) and {str(value).lower() for value in self.values} <= {
            "0", "1", "0.0", "1.0", "true", "false",
        }  # fmt: skip

    @cached_property
    def technical(self) -> bool:
        """Dates, links and addresses: neither a text nor a label."""
        some = self.values[:200]
        fits = sum(isinstance(v, str) and bool(_DATE.fullmatch(v) or _LINK.fullmatch(v)) for v in some)
        return (bool(some) and fits > 0.9 * len(some)) or any(not isinstance(v, str | int | float | list) for v in some)

    @cached_property
    def texts(self) -> bool:
        """Whether it looks like free text: several words, and seldom the same twice."""
        return not self.technical and self.words >= WORDS_OF_TEXT and len(self.distinct) > 0.3 * len(self.values)

    @cached_property
    def sentences(self) -> bool:
        """Whether it may be text although the same comes often: more different values than labels have, or its name."""
        several = not self.technical and self.words >= WORDS_OF_TEXT
        return self.texts or (several and (len(self.distinct) > FEW_LABELS or self.names[-1] in TEXTS[0].split()))

    def labels(self, least: int) -> bool:
        """Whether it could be a label: some values that come again, or numbers."""
        if self.technical or self.texts or self.lists or len(self.distinct) < least:
            return False
        if self.numbers is not None:
            return not self.whole_numbers or len(self.distinct) < len(self.values)
        return len(self.distinct) <= min(MOST_LABELS, len(self.values) / 2)

    def about(self) -> str:
        """`4 values: low, high, …` for an error message."""
        if not self.values:
            return "empty in every row"
        if self.numbers is not None and len(self.distinct) > FEW_LABELS:
            return f"numbers from {min(self.numbers):g} to {max(self.numbers):g}"
        if self.texts:
            return f"texts of {self.words:.0f} words"
        first = ", ".join(str(value)[:20] for value, _ in self.distinct.most_common(4))
        count = f"{len(self.distinct)} value{'' if len(self.distinct) == 1 else 's'}"
        return f"{count}: {first}{', …' if len(self.distinct) > 4 else ''}"


def plain(name: str) -> str:
    """`Review Text` as review_text, `sentence_1` as sentence1."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return re.sub(r"_(?=\d+$)", "", re.sub(r"[\s-]+", "_", spaced).lower())


def is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(NUMBER.fullmatch(value.strip()))
    return isinstance(value, int | float) and not isinstance(value, bool)
