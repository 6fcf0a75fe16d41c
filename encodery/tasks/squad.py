"""SQuAD: questions whose answer is a stretch of a text (`squad/v1`), or is not there (`squad/v2`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pydantic import PrivateAttr, field_validator

from encodery.errors import UserError
from encodery.tasks import hub
from encodery.tasks._squad_files import examples_of, read_squad
from encodery.tasks.base import Example, Origin
from encodery.tasks.known import Known
from encodery.tasks.readers import BadRow, refuse
from encodery.tasks.rows import Loaded, content_digest, file_digest
from encodery.tasks.sources import data_folder
from encodery.tasks.spans import Spans

FOLDERS = ("", "squad2", "squad", "squad_v2", "SQuAD")


@dataclass(frozen=True)
class StandIn:
    """Other people's questions where the official file is not here: which files, and which articles of a shared one."""

    files: tuple[str, ...]
    note: str
    shared: str | None = None  # a file that train and dev part between them, by article
    first: bool = True  # the first articles (by name), or the others


@dataclass(frozen=True)
class Version:
    """One of SQuAD's versions."""

    known: Known
    official: Mapping[str, str]
    stand_in: Mapping[str, StandIn]


_SHARED = "dev_cs224n_half.parquet"  # a course's half of the official dev set, under ids of its own
_TITLES = 12  # of its 16 articles that train takes
TABLE = {
    "v1": Version(
        Known("squad_v1", ("question", "context"), (), {"train": 87599, "dev": 10570}, "rajpurkar/squad"),
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
        Known("squad_v2", ("question", "context"), (), {"train": 130319, "dev": 11873}, "rajpurkar/squad_v2"),
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


class Squad(Spans):
    """Questions whose answer is a stretch of a text, or is not there."""

    parts: ClassVar[Mapping[str, str]] = {
        "v1": "SQuAD 1.1: every question has an answer in the text",
        "v2": "SQuAD 2.0: half of the dev questions have none",
    }

    part: str
    """Which version."""
    revision: str | None = None
    """Commit, tag or branch on the hub; what was used is recorded as a commit."""
    skip_bad_rows: bool = False
    """Go on without questions that cannot be used, instead of refusing the file."""

    _loaded: dict[str, Loaded] = PrivateAttr(default_factory=dict)

    @field_validator("part")
    @classmethod
    def _must_exist(cls, part: str) -> str:
        if part not in TABLE:
            raise ValueError(f"there is no squad/{part}; there are {', '.join(TABLE)}")
        return part

    @property
    def name(self) -> str:
        """`squad/v2`."""
        return f"squad/{self.part}"

    @property
    def unanswerable(self) -> bool:
        """Since version 2."""
        return self.part == "v2"

    def splits(self) -> tuple[str, ...]:
        """The test set was never published."""
        return "train", "dev"

    def has(self, split: str) -> bool:
        """Whether a file of the split lies in the data folder; without a folder the hub is trusted to have it."""
        folder = data_folder(self.data)
        return split in self.splits() and (folder is None or bool(self._paths(split, folder)))

    def examples(self, split: str) -> Sequence[Example]:
        """All questions, in file order."""
        return self._load(split).examples

    def origin(self, split: str) -> Origin:
        """Where they come from."""
        return self._load(split).origin

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The questions that `skip_bad_rows` left out."""
        return self._load(split).bad

    def _paths(self, split: str, folder: Path) -> list[Path]:
        """The official file, in JSON or Parquet, else the stand-ins that are here."""
        version = TABLE[self.part]
        names = (version.official[split], f"{version.known.name}_{split}.parquet")
        if official := _first(folder, names):
            return [official]
        stand_in = version.stand_in[split]
        wanted = (*stand_in.files, *filter(None, [stand_in.shared]))
        return [path for name in wanted if (path := _first(folder, (name,)))]

    def _load(self, split: str) -> Loaded:
        if split not in self.splits():
            raise UserError(f'{self.name} has no split "{split}"; it has {", ".join(self.splits())}')
        if split not in self._loaded:
            folder = data_folder(self.data)
            paths = self._paths(split, folder) if folder else []
            self._loaded[split] = self._of_files(split, paths) if paths else self._of_hub(split, folder)
        return self._loaded[split]

    def _of_files(self, split: str, paths: Sequence[Path]) -> Loaded:
        examples: list[Example] = []
        bad: list[BadRow] = []
        stand_in = TABLE[self.part].stand_in[split]
        replaced = paths[0].name in (*stand_in.files, stand_in.shared)
        for path in paths:
            rows, sheet = read_squad(path)
            bad += sheet.bad
            if replaced and path.name == stand_in.shared:
                rows = _part(rows, stand_in.first)
            examples += [replace(e, id=f"{path.stem}:{e.id}") for e in rows] if len(paths) > 1 else rows
        files = {path.name: file_digest(path) for path in paths}
        note = stand_in.note if replaced else None
        return self._finish(split, examples, bad, Origin("folder", "", 0, files=files, note=note), replaced)

    def _of_hub(self, split: str, folder: Path | None) -> Loaded:
        known = TABLE[self.part].known
        where = f" ({folder} has none of its files)" if folder else ""
        sheet, commit = hub.rows(known, split, self.revision, f"{known.name}, split {split}, is not here{where}")
        return self._finish(split, examples_of(sheet, hidden=False), sheet.bad, Origin("hub", "", 0, revision=commit))

    def _finish(
        self, split: str, examples: list[Example], bad: list[BadRow], origin: Origin, replaced: bool = False
    ) -> Loaded:
        if not self.skip_bad_rows:
            refuse(bad)
        if not self.unanswerable and any(e.label == () for e in examples):
            raise UserError(f"{self.name}:{split} has questions without an answer; use squad/v2")
        notes = [*filter(None, [origin.note]), *([f"{len(bad):,} bad questions skipped"] if bad else [])]
        official, rows = TABLE[self.part].known.counts[split], len(examples)
        of = official if official and rows < official and not replaced else None
        digest = content_digest(examples)
        return Loaded(examples, replace(origin, digest=digest, rows=rows, of=of, note="; ".join(notes) or None), bad)


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    places = (folder / inner / name for name in names for inner in FOLDERS)
    return next((place for place in places if place.is_file()), None)


def _part(examples: Sequence[Example], first: bool) -> list[Example]:
    """The questions of the first articles by name, or of the others: no article is on both sides."""
    titles = sorted({example.group or "" for example in examples})
    chosen = set(titles[:_TITLES] if first else titles[_TITLES:])
    return [example for example in examples if (example.group or "") in chosen]
