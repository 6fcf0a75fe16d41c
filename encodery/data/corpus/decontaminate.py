"""Finding benchmark sentences in a corpus, and repeated texts: exact, after letters are lowered and marks dropped."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from encodery.config.components import find
from encodery.errors import UserError
from encodery.tasks import split_name
from encodery.tasks.base import Task

_APART = re.compile(r"\s+(n't|'\w)")  # benchmark files often write "does n't" and "it 's"
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Words as they are compared."""
    return _WORD.findall(_APART.sub(r"\1", text.lower()))


def benchmark_sentences(names: Sequence[str], data: str | None) -> dict[str, list[str]]:
    """The texts of the named tasks; a name without a split means all its splits that are here."""
    by_task: dict[str, list[str]] = {}
    for name in names:
        stem, split = split_name(name)
        task = _task(stem, data)
        splits = [split] if split else [one for one in task.splits() if task.has(one)]
        texts = (text for one in splits for example in task.examples(one) for text in example.texts)
        by_task[name] = sorted(set(texts))
    return by_task


def _task(name: str, data: str | None) -> Task:
    head, _, part = name.partition("/")
    kind = find("tasks", head)
    if not issubclass(kind, Task) or part not in kind.parts:
        raise UserError(f"decontaminate: there is no task {name}; `encodery tasks` lists them")
    part_of = {"part": part} if "part" in kind.model_fields else {}  # hans is whole
    task = kind.model_validate(part_of | {"data": data})
    assert isinstance(task, Task)
    return task


class Benchmark:
    """Sentences to be found inside documents, by their first `least` words; shorter ones are left out."""

    def __init__(self, sentences: Mapping[str, Iterable[str]], least: int) -> None:
        self.least = least
        self.by_head: dict[tuple[str, ...], list[tuple[tuple[str, ...], str]]] = {}
        self.too_short = 0
        for task, texts in sentences.items():
            for text in texts:
                sentence = tuple(words(text))
                if len(sentence) < least:
                    self.too_short += 1
                else:
                    self.by_head.setdefault(sentence[:least], []).append((sentence, task))
        self.heads = frozenset(self.by_head)

    def find(self, text: str) -> tuple[str, str] | None:
        """(task, sentence) of the first sentence that stands in the text."""
        if not self.heads:
            return None
        said = words(text)
        heads = list(zip(*(said[i:] for i in range(self.least)), strict=False))
        if self.heads.isdisjoint(heads):
            return None
        for place, head in enumerate(heads):
            for whole, task in self.by_head.get(head, ()):
                if tuple(said[place : place + len(whole)]) == whole:
                    return task, " ".join(whole)
        return None


class Seen:
    """Texts that were there before, as 8 bytes each: sorted arrays whose sizes double, so that adding stays cheap."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []

    def new(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is here for the first time; from now on all of them were."""
        hashes = np.array([_hash(text) for text in texts], dtype=np.uint64)
        _, first = np.unique(hashes, return_index=True)
        fresh = np.zeros(len(hashes), dtype=bool)
        fresh[first] = True
        for old in self.arrays:
            place = np.minimum(np.searchsorted(old, hashes), len(old) - 1)
            fresh &= old[place] != hashes
        self._add(np.sort(hashes[fresh]))
        result: list[bool] = fresh.tolist()
        return result

    def _add(self, some: np.ndarray) -> None:
        if not len(some):
            return
        while self.arrays and len(self.arrays[-1]) <= 2 * len(some):
            some = np.sort(np.concatenate([self.arrays.pop(), some]), kind="stable")
        self.arrays.append(some)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")
