"""Configurations in few words: what varies, long ones by what is unusual in them, and no two with one name."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from encodery.core.redact import without_paths
from encodery.core.text import short
from encodery.report.groups import setting, varying
from encodery.report.records import Record

LONG = 40  # letters of a value that is told in full
USUAL = "the usual settings"


class Configurations:
    """Names for the configurations of some runs, by task."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.keys = varying(records)
        last = Counter(key.rpartition(".")[2] for key in self.keys)
        self.names = {
            key: word if last[word := key.rpartition(".")[2]] == 1 and word != "kind" else key for key in self.keys
        }
        self._values = {key: trimmed({self._text(one.settings, key) for one in records}) for key in self.keys}
        self._scopes: dict[str | None, tuple[list[str], dict[str, str]]] = {}
        self._given: dict[tuple[str | None, int, str], list[str]] = {}
        self._named: dict[str | None, Mapping[str, str]] = {}

    def label(self, settings: Mapping[str, Any], task: str | None, most: int) -> str:
        """Only what varies (among runs of the task); a method by its name alone."""
        keys, usual = self._scope(task)
        values = {key: text for key in keys if (text := self._text(settings, key))}
        full = self._full(settings, keys)
        if name := self._variants(task).get(full):
            return short(name, most)
        label = full
        if len(full) > most:
            own = [self._word(key, text) for key, text in values.items() if text != usual.get(key)]
            label = short(", ".join(own) or USUAL, most)
        alike = self._given.setdefault((task, most, label), [])
        if full not in alike:
            alike.append(full)
        place = alike.index(full)
        return f"{label} ({place + 1})" if place else label

    def _scope(self, task: str | None) -> tuple[list[str], dict[str, str]]:
        """The keys that tell runs of a task apart, and the commonest value of each."""
        if task not in self._scopes:
            those = [one for one in self.records if task in (None, one.task)] or self.records
            keys = self.keys if task is None else telling(those)
            usual = {key: Counter(self._text(one.settings, key) for one in those).most_common(1)[0][0] for key in keys}
            self._scopes[task] = keys, usual
        return self._scopes[task]

    def _full(self, settings: Mapping[str, Any], keys: Sequence[str]) -> str:
        return ", ".join(self._word(key, text) for key in keys if (text := self._text(settings, key)))

    def _variants(self, task: str | None) -> Mapping[str, str]:
        """The names that a sweep gave its variants, where each is one configuration and no two share one."""
        if task not in self._named:
            keys, _ = self._scope(task)
            those = [one for one in self.records if one.variant and task in (None, one.task)]
            pairs = {(self._full(one.settings, keys), str(one.variant)) for one in those}
            is_name = len(pairs) == len({full for full, _ in pairs}) == len({name for _, name in pairs})
            self._named[task] = dict(pairs) if is_name else {}
        return self._named[task]

    def _text(self, settings: Mapping[str, Any], key: str) -> str:
        return without_paths(setting(settings, key))

    def _word(self, key: str, text: str) -> str:
        text = self._values.get(key, {}).get(text, text)
        return text if key == "method.kind" else f"{self.names.get(key, key)} {text}"


def telling(those: Sequence[Record]) -> list[str]:
    """The settings that vary, without those that another one tells: init_mag where max_norm always moves with it."""
    kept: list[str] = []
    for key in varying(those):
        if not any(_together(those, key, other) for other in kept):
            kept.append(key)
    return kept


def _together(those: Sequence[Record], a: str, b: str) -> bool:
    """Whether each of two settings says the other one."""
    seen = {(setting(one.settings, a), setting(one.settings, b)) for one in those}
    return len(seen) == len({one for one, _ in seen}) == len({two for _, two in seen})


def trimmed(values: set[str]) -> dict[str, str]:
    """Long values without the words that all long ones begin and end with."""
    long = sorted(value for value in values if len(value) > LONG)
    if len(long) < 2:
        return {}
    words = [re.findall(r"[^\s/_.,:=-]+|[\s/_.,:=-]+", value) for value in long]
    first = _shared(words)
    last = _shared([list(reversed(one[first:])) for one in words])
    cut = [one[first : len(one) - last] for one in words]
    return {
        value: ("…" if first else "") + "".join(inner).strip() + ("…" if last else "")
        for value, inner in zip(long, cut, strict=True)
    }


def _shared(words: Sequence[Sequence[str]]) -> int:
    """How many words all begin with."""
    return next((i for i, those in enumerate(zip(*words, strict=False)) if len(set(those)) > 1), min(map(len, words)))
