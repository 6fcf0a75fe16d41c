"""SQuAD: questions whose answer is a stretch of a text (`squad/v1`), or is not there (`squad/v2`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

from encodery.errors import UserError
from encodery.tasks.base import Example, Origin
from encodery.tasks.forms.spans import Spans, examples_of, read_squad
from encodery.tasks.sources import published
from encodery.tasks.sources.published import Published, PublishedSet, finished
from encodery.tasks.sources.readers import BadRow
from encodery.tasks.sources.rows import Loaded, file_digest

FOLDERS = ("", "squad2", "squad", "squad_v2", "SQuAD")


@dataclass(frozen=True)
class StandIn:
    """Other people's questions where the official file is not here: which files, and which articles of a shared one."""

    files: tuple[str, ...]
    note: str
    shared: str | None = None  # a file that train and dev part between them, by article
    first: bool = True  # the first articles (by name), or the others

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.files, *filter(None, [self.shared]))


@dataclass(frozen=True)
class Version:
    """One of SQuAD's versions."""

    dataset: PublishedSet
    official: Mapping[str, str]
    stand_in: Mapping[str, StandIn]


_SHARED = "dev_cs224n_half.parquet"  # a course's half of the official dev set, under ids of its own
_TITLES = 12  # of its 16 articles that train takes
TABLE = {
    "v1": Version(
        PublishedSet(
            "squad_v1",
            ("question", "context"),
            (),
            {"train": 87599, "dev": 10570},
            "rajpurkar/squad",
            parquet_folder="squad",
        ),
        {"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
        {
            "train": StandIn(
                ("squadshifts_new_wiki.parquet", "squad1_part.parquet"),
                "NOT the official training set: SQuADShifts new-wiki and a part of SQuAD 1.1",
            ),
            "dev": StandIn(("xquad_en.parquet",), "NOT the official dev set: XQuAD English, 1,190 questions of it"),
        },
    ),
    "v2": Version(
        PublishedSet(
            "squad_v2",
            ("question", "context"),
            (),
            {"train": 130319, "dev": 11873},
            "rajpurkar/squad_v2",
            parquet_folder="squad",
        ),
        {"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
        {
            "train": StandIn(
                ("squadshifts_new_wiki.parquet", "squad1_part.parquet"),
                "NOT the official training set: SQuADShifts new-wiki, a part of SQuAD 1.1, and 12 articles "
                "of a half of the dev set",
                _SHARED,
            ),
            "dev": StandIn((), "NOT the official dev set: 4 articles of a half of it", _SHARED, first=False),
        },
    ),
}


class Squad(Published, Spans):
    """Questions whose answer is a span of a text; in v2 some have none."""

    parts: ClassVar[Mapping[str, str]] = {
        "v1": "SQuAD 1.1: every question has an answer in the text",
        "v2": "SQuAD 2.0: half of the dev questions have none",
    }

    table: ClassVar[Mapping[str, PublishedSet]] = {name: version.dataset for name, version in TABLE.items()}
    family: ClassVar[str] = "squad"

    @property
    def unanswerable(self) -> bool:
        """Since version 2."""
        return self.part == "v2"

    def lies_in(self, split: str, folder: Path) -> bool:
        """Whether the folder has the official file or a stand-in."""
        return bool(self._paths(split, folder))

    def is_ours(self, split: str, folder: Path) -> bool:
        """Whether other people's questions stand in for the official ones."""
        return any(path.name in self._stand_in(split).names for path in self._paths(split, folder))

    def from_folder(self, split: str, folder: Path) -> Loaded | None:
        """The official file, in JSON or Parquet, else the stand-ins that are here."""
        paths = self._paths(split, folder)
        if not paths:
            return None
        examples: list[Example] = []
        bad: list[BadRow] = []
        stand_in, replaced = self._stand_in(split), self.is_ours(split, folder)
        for path in paths:
            rows, sheet = read_squad(path)
            bad += sheet.bad
            if replaced and path.name == stand_in.shared:
                rows = _part(rows, stand_in.first)
            examples += [replace(e, id=f"{path.stem}:{e.id}") for e in rows] if len(paths) > 1 else rows
        files = {path.name: file_digest(path) for path in paths}
        note = stand_in.note if replaced else None
        return self._finish(split, examples, bad, Origin("folder", "", 0, files=files, note=note), replaced)

    def from_hub(self, split: str, missing: str) -> Loaded:
        sheet, commit = published.rows(self.dataset, split, self.revision, missing)
        return self._finish(split, examples_of(sheet, hidden=False), sheet.bad, Origin("hub", "", 0, revision=commit))

    def columns(self, examples: Sequence[Example]) -> dict[str, list[Any]]:
        """As in the official files, a row a question."""
        return {
            "id": [e.id for e in examples],
            "title": [e.group for e in examples],
            "context": [e.texts[1] for e in examples],
            "question": [e.texts[0] for e in examples],
            "answer_text": [list(cast(tuple[str, ...], e.label)) for e in examples],
            "answer_start": [list(e.extra.get("starts", ())) for e in examples],
            "is_impossible": [e.label == () for e in examples],
        }

    def _stand_in(self, split: str) -> StandIn:
        return TABLE[self.part].stand_in[split]

    def _paths(self, split: str, folder: Path) -> list[Path]:
        names = (TABLE[self.part].official[split], f"{self.dataset.name}_{split}.parquet")
        if official := _first(folder, names):
            return [official]
        return [path for name in self._stand_in(split).names if (path := _first(folder, (name,)))]

    def _finish(
        self, split: str, examples: list[Example], bad: list[BadRow], origin: Origin, replaced: bool = False
    ) -> Loaded:
        official = None if replaced else self.dataset.counts[split]
        loaded = finished(examples, bad, origin, official, self.skip_bad_rows)
        if not self.unanswerable and any(e.label == () for e in examples):
            raise UserError(f"{self.name}:{split} has questions without an answer; use squad/v2")
        return loaded


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    places = (folder / inner / name for name in names for inner in FOLDERS)
    return next((place for place in places if place.is_file()), None)


def _part(examples: Sequence[Example], first: bool) -> list[Example]:
    """The questions of the first articles by name, or of the others: no article is on both sides."""
    titles = sorted({example.group or "" for example in examples})
    chosen = set(titles[:_TITLES] if first else titles[_TITLES:])
    return [example for example in examples if (example.group or "") in chosen]
