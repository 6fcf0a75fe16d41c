"""What all tasks on anyone's own files share: where the files are, and a dev part set aside where there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example, Origin
from encodery.tasks.sources.folds import Strata, assign, require_enough
from encodery.tasks.sources.readers import BadRow
from encodery.tasks.sources.rows import Loaded, Read, content_digest, file_digest, set_aside

WHOLE = "whole"  # all rows of a training file of which a part is dev, in the order of the file; nothing trains on it

UNNAMED = "table/train"  # what the draws of a file go by whose task has no name of its own


class Own(Read):
    """Base: a subclass reads all files at once, in `_read_all`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)
    paths: ClassVar[tuple[str, ...]] = ("train", "dev", "test", "root")
    told_by_content: ClassVar[tuple[str, ...]] = ("equal_texts",)

    train: str | None = None
    """File with the training rows."""
    dev: str | None = None
    """File with the dev rows. Without it, a part of train is set aside."""
    test: str | None = None
    """File with the test rows. It may lack labels, all of them: where some rows have one, a row without is bad."""
    dev_fraction: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of train to set aside if there is no dev file. 0: train on all rows and score none, for a last training
    once everything is chosen."""
    split_seed: int = Field(default=0, ge=0)
    """Seed that decides which rows are set aside."""
    equal_texts: Literal["together", "apart"] = "together"
    """Whether rows with equal texts stay on the same side of an automatic split. `group` takes precedence. Runs started
    before this key existed keep `apart`."""
    folds: int | None = Field(default=None, ge=2)
    """Cross-validation: number of parts to split train into. `encodery train --folds 5` sets this key and fold."""
    held_fold: int | None = Field(default=None, ge=1, alias="fold")
    """Cross-validation: the fold to use as the dev set, from 1. The others are trained on."""
    called: str | None = Field(default=None, alias="name", min_length=1, max_length=100)
    """Name of the task: table/<name>, in any script. Default: the name of the training file."""
    root: str | None = None
    """Folder that relative paths start from. Default: the folder of the config, else the current directory."""
    _fold_of: dict[str, int] = PrivateAttr(default_factory=dict)
    _like: str | None = PrivateAttr(default=None)

    @property
    def like(self) -> str | None:
        """The task of a run that asks the same of other rows, with the same columns and labels."""
        return self._like

    def asking_like(self, name: str | None) -> Self:
        """The task, which is another run's in all but its rows."""
        self._like = name
        return self

    @field_validator("called")
    @classmethod
    def _printable(cls, given: str | None) -> str | None:
        if given is not None and not (given.isprintable() and given.removeprefix("table/").strip()):
            raise ValueError("expected a name in printable characters")
        if given is not None and ".." in given.split("/"):
            raise ValueError("expected a name, not a path with ..")
        return given

    @model_validator(mode="after")
    def _has_files(self) -> Self:
        if not self._files():
            raise ValueError("a table needs a file: give train, dev or test")
        if (self.folds is None) != (self.held_fold is None):
            raise ValueError("folds and fold belong together")
        if self.folds is not None and self.held_fold is not None:
            if self.held_fold > self.folds:
                raise ValueError(f"fold {self.held_fold} of {self.folds} folds does not exist")
            if self.train is None or self.dev is not None:
                raise ValueError("folds are parts of train, each the dev set once: give train and no dev file")
        return self

    @property
    def name(self) -> str:
        """`table/reviews`."""
        called = self.called or _printed(Path(next(iter(self._files().values()))).stem)
        return f"table/{called.removeprefix('table/')}"

    @property
    def drawn_as(self) -> str:
        """Own files count by their content: to rename one must not draw another head."""
        return self.name if self.called else UNNAMED

    def splits(self) -> tuple[str, ...]:
        """Those with a file, and dev where a part of train is set aside."""
        files = self._files()
        return tuple(s for s in ("train", "dev", "test") if s in files or (s == "dev" and self.divided))

    @property
    def needed(self) -> tuple[str, ...]:
        """Every file that was named: a mistyped dev file must not mean no dev set."""
        return tuple(self._files()) or ("train",)

    def has(self, split: str) -> bool:
        """Whether the file is here; a dev part that is set aside needs the training file."""
        file = split if split in self._files() else "train"
        return split in self.splits() and self._path(file).is_file()

    def _read_all(self) -> Mapping[str, Loaded]:
        """All files that are here, so that one error can name the bad rows of all of them."""
        raise NotImplementedError

    @property
    def _set_aside_by(self) -> str | None:
        """What keeps rows together when a part is set aside, for the note."""
        return getattr(self, "group", None)

    def _files(self) -> dict[str, str]:
        given = {"train": self.train, "dev": self.dev, "test": self.test}
        return {split: path for split, path in given.items() if path is not None}

    def _path(self, split: str) -> Path:
        return Path(self.root or "").expanduser() / Path(self._files()[split]).expanduser()

    def file_name(self, split: str) -> str:
        """The file that holds a split, for messages."""
        return _printed(self._path(split if split in self._files() else "train").name)

    def loaded(self, split: str) -> Loaded:
        """A file that is not here is an error only when its rows are asked for."""
        file = self.source_of(split)
        if file in self._files() and not self._path(file).exists():
            raise UserError(self._why_not(file))
        if not self._loaded:
            found = dict(self._read_all())
            divide = self._with_dev if self.folds is None else self._with_fold
            parted = "train" in found and self.divided
            self._loaded.update({**divide(found), WHOLE: found["train"]} if parted else found)
        if split not in self._loaded:
            raise UserError(self._why_not(split))
        return self._loaded[split]

    def source_of(self, split: str) -> str:
        """The split whose file has the rows: an automatic dev part is in the file of train."""
        return "train" if split in ("dev", WHOLE) and self.dev is None else split

    @property
    def divided(self) -> bool:
        """Whether dev is a part of the training file."""
        return self.train is not None and self.dev is None and (self.dev_fraction > 0 or self.folds is not None)

    def _why_not(self, split: str) -> str:
        if split in self._files():
            return f"{self.name}: the file of split {split}, {self._path(split)}, does not exist"
        return self.no_split(split)

    def _finished(self, split: str, examples: list[Example], bad: list[BadRow]) -> Loaded:
        path = self._path(split)
        note = f"{counted(len(bad), 'bad row')} skipped" if bad else None
        if not examples:
            raise UserError(f"{path}: has no rows that can be used")
        files = {path.name: file_digest(path)}
        return Loaded(examples, Origin("folder", content_digest(examples), len(examples), files=files, note=note), bad)

    def _with_dev(self, splits: dict[str, Loaded]) -> dict[str, Loaded]:
        train = splits["train"]
        together = self.equal_texts == "together"
        rest, aside = set_aside(train.examples, self.dev_fraction, self.split_seed, together=together)
        by = "label" + ", equal texts together" * together
        if any(e.group is not None for e in train.examples):
            by = str(self._set_aside_by)
        note = f"{self.dev_fraction:g} of {self._path('train').name} set aside by {by}, split_seed {self.split_seed}"
        return splits | {
            "train": replace(train, examples=rest, origin=renewed(train.origin, rest, train.origin.note)),
            "dev": Loaded(aside, renewed(train.origin, aside, note)),  # the bad rows are told of train
        }

    def _with_fold(self, splits: dict[str, Loaded]) -> dict[str, Loaded]:
        """One fold as dev, the others as train."""
        assert self.folds is not None
        assert self.held_fold is not None
        train, strata, least = splits["train"], *self._strata(splits["train"].examples)
        try:
            require_enough(train.examples, strata, least, self.folds)
            folds = assign(train.examples, strata, self.folds, self.split_seed)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None
        self._fold_of.update({e.id: fold + 1 for e, fold in zip(train.examples, folds, strict=True)})
        rest = [e for e in train.examples if self._fold_of[e.id] != self.held_fold]
        aside = [e for e in train.examples if self._fold_of[e.id] == self.held_fold]
        by = f", rows of one {self._set_aside_by} together" if self._set_aside_by else ""
        note = f"fold {self.held_fold} of {self.folds} of {self._path('train').name}{by}, split_seed {self.split_seed}"
        return splits | {
            "train": replace(train, examples=rest, origin=renewed(train.origin, rest, train.origin.note)),
            "dev": Loaded(aside, renewed(train.origin, aside, note)),  # the bad rows are told of train
        }

    def _strata(self, examples: Sequence[Example]) -> tuple[Strata, int]:
        """What every fold should have its share of, and in how many groups of rows each must be at least."""
        return [()] * len(examples), 0

    @property
    def fold_of(self) -> Mapping[str, int]:
        """The fold of each training row by its id, in the order of the file."""
        self.loaded("train")
        return self._fold_of


def renewed(origin: Origin, examples: Sequence[Example], note: str | None) -> Origin:
    """The origin of a part of the rows."""
    return replace(origin, digest=content_digest(examples), rows=len(examples), note=note)


def _printed(stem: str) -> str:
    """The name of a file as text: bytes that are no UTF-8, line ends and the like become a sign."""
    text = stem.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
