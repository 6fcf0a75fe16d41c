"""Plain text documents without labels, for pretraining: own files, a set of the hub, or a prepared folder.

What is here is text and options; data/prepare.py makes tokens of them.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from encodery.core import files as disk
from encodery.errors import UserError
from encodery.tasks.base import Answer, Example, Features, Origin, Pieces, Task
from encodery.tasks.forms.pretraining_scores import AMOS, ELECTRA, MLM, add_up, scores
from encodery.tasks.sources.documents import Document, Documents, Format, expand, from_files, from_hub, hub_commit
from encodery.tasks.sources.readers import BadRow, refuse
from encodery.tasks.sources.rows import file_digest

TOY_VERSION = 2  # of the toy documents: raise it when the grammar writes others
TOY_DOCUMENTS = 2000
MOST_BAD = 10_000  # bad lines that are counted before a corpus is refused: it may be a file of another kind altogether


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus with a name: where the hub has it, and how its lines are cleaned."""

    about: str
    hub: str | None = None
    hub_config: str | None = None
    min_line: int = 0
    drop_brackets: bool = False


KNOWN = {
    "files": NamedCorpus("own text files, jsonl, Parquet or a set of the hub; `corpus` alone means this"),
    "toy": NamedCorpus("documents of the toy grammar; toy/corpus is the same"),
    "wikipedia": NamedCorpus("English Wikipedia, without short lines", "wikimedia/wikipedia", "20231101.en", 80, True),
    "openwebtext": NamedCorpus("OpenWebText", "Skylion007/openwebtext"),
}


class Corpus(Task):
    """Plain text without labels, for pretraining."""

    parts: ClassVar[Mapping[str, str]] = {name: known.about for name, known in KNOWN.items()}
    labelled: ClassVar[bool] = False
    paths: ClassVar[tuple[str, ...]] = ("files", "prepared", "root")

    part: Literal["files", "toy", "wikipedia", "openwebtext"] = "files"
    """Which corpus."""
    files: str | list[str] | None = None
    """Files, folders or patterns such as `text/*.jsonl`. URLs such as `s3://bucket/*.jsonl` are downloaded once."""
    format: Format = "auto"
    """lines: one sentence per line, with an empty line between documents; document: one document per file; jsonl or
    parquet: one document per row."""
    text: str = "text"
    """Text column of jsonl and Parquet files and of hub data sets."""
    hub: str | None = None
    """Name of a data set on the hub, instead of files."""
    hub_config: str | None = None
    """Configuration of that data set."""
    hub_split: str = "train"
    """Split of that data set."""
    revision: str | None = None
    """Commit, tag or branch on the hub. The run records the commit that it resolved to."""
    streaming: bool = False
    """Stream the hub data set instead of storing it on disk."""
    shares: list[float] | None = None
    """Relative share of each entry of `files` in the training blocks, such as [3, 1]. Default: in proportion to their
    size."""
    prepared: str | None = None
    """A folder written by `encodery prepare CONFIG -o DIR`. No other key is then needed."""
    documents: int | None = Field(default=None, ge=1)
    """Use the first N documents only. For corpus/toy: number of documents to generate (2000)."""
    min_line: int | None = Field(default=None, ge=0)
    """Leave out lines with fewer characters. Default: 80 for corpus/wikipedia, else 0."""
    drop_brackets: bool | None = None
    """Remove the empty `()` that Wikipedia's extraction leaves behind. Default: true for corpus/wikipedia only."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the documents for the dev split, chosen by a hash of their text."""
    blocks: Literal["electra", "full"] = "electra"
    """How text becomes examples. electra: one or two segments of one document; full: blocks filled with as many
    documents as fit."""
    keep_overflow: bool | None = None
    """electra: text that does not fit into an example starts the next one, instead of being discarded. Default: true
    for your own text (`files`, `hub`), false for the named corpora, which follow the papers."""
    order_preserving: bool = False
    """electra: the second segment never contains lines from before the end of the first."""
    deduplicate: Literal["no", "documents", "lines", "both"] = "no"
    """Leave out exact duplicates: of documents, of lines within a document, or both."""
    decontaminate: list[str] = []
    """Leave out documents that contain a sentence from these tasks, such as [glue/sst2:dev]."""
    decontaminate_words: int = Field(default=8, ge=3)
    """Ignore sentences with fewer words, which are too common."""
    seed: int = Field(default=0, ge=0)
    """Seed for building blocks and for the held-out documents."""
    shard_size: int = Field(default=8_000_000, ge=1)
    """Characters per shard, the unit that one worker processes and writes at once."""
    skip_bad_rows: bool = False
    """Skip lines that cannot be read, instead of refusing the file."""
    root: str | None = None
    """Folder that relative paths start from. Default: the folder of the config, else the current directory."""

    _counts: dict[str, int] = PrivateAttr(default_factory=dict)
    _commit: list[str] = PrivateAttr(default_factory=list)
    _called: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _keep_own_text(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("keep_overflow") is not None:
            return given
        own = bool(given.get("files") or given.get("hub"))
        return given | {"keep_overflow": own and given.get("blocks", "electra") == "electra"}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        published = KNOWN[self.part]
        given = [name for name in ("files", "hub", "prepared") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of {' and '.join(given)}")
        if not given and not published.hub and self.part != "toy":
            raise ValueError("a corpus needs files, hub or prepared")
        if given and self.part == "toy":
            raise ValueError(f"the documents of corpus/toy are generated: {given[0]} has no effect")
        if self.shares is not None and (len(self.shares) < 2 or not all(0 < share < inf for share in self.shares)):
            raise ValueError("shares: two or more numbers above 0, one for each entry of files")
        if self.shares and not self.prepared and self.entries != len(self.shares):
            raise ValueError(f"shares: {len(self.shares)} numbers for {self.entries} entries of files")
        if self.streaming and (self.files or self.prepared):
            raise ValueError("streaming is for sets of the hub")
        return self

    @property
    def name(self) -> str:
        """`corpus`, `corpus/wikipedia`, `toy/corpus`."""
        return self._called or {"files": "corpus", "toy": "toy/corpus"}.get(self.part, f"corpus/{self.part}")

    def called(self, name: str) -> Self:
        """The same text under the name that a person used for it."""
        self._called = name
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """None: the text itself is what is asked for."""
        return ()

    @property
    def main_metric(self) -> str:
        """What pretraining is judged by on held-out text."""
        return "loss"

    def metric_names(self, objective: str | None = None) -> tuple[str, ...]:
        """Those of the objective, without AMOS's readouts by layer; empty for one that is not ours."""
        known = {"mlm": MLM, "electra": ELECTRA, "amos": AMOS}
        return known.get(objective or "mlm", ())

    def objective(self) -> dict[str, Any]:
        """Masked words, unless the entry says electra."""
        return {"kind": "mlm"}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """Sums over sequences, added up to those of all: there are no answers of single documents."""
        return {"all": add_up(rows)}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """What pretraining is judged by on held-out text."""
        if not answers["all"]:
            raise UserError(f"{self.name}: there is no text to score on")
        return scores(answers["all"])

    def splits(self) -> tuple[str, ...]:
        """dev is the held-out part."""
        if self.prepared:
            return tuple(split for split, about in self._meta()["splits"].items() if about["rows"])
        return ("train", "dev") if self.held_out else ("train",)

    def has(self, split: str) -> bool:
        """Whether it can be had; a folder or file that is not here is said by `origin`."""
        return split in self.splits()

    def origin(self, split: str) -> Origin:
        """Where the text comes from; `rows` are documents (of a prepared corpus, blocks)."""
        self._require(split)
        if self.prepared:
            meta = self._meta()
            return Origin("prepared", f"{meta['digest']}:{split}", meta["splits"][split]["rows"])
        return Origin(
            "toy" if self.part == "toy" else "folder" if self.files else "hub",
            disk.digest([self.recipe(), self.source(), split]),
            self._count(split),
            files={path.name: file_digest(path) for path in self._paths()},
            revision=self._commit[0] if self._commit else None,
        )

    def recipe(self) -> dict[str, Any]:
        """The options that decide which blocks come out, as plain data."""
        where = {"data", "root", "files", "shares", "hub", "hub_config", "hub_split", "revision", "streaming"}
        where |= {"prepared"}
        plain = {key: value for key, value in self.to_dict().items() if key not in where}
        mixture = {"entries": self.entry_of_files()} if self.shares and self.files else {}
        return plain | mixture | {"min_line": self.shortest_line, "drop_brackets": self.without_brackets}

    def source(self) -> list[Any]:
        """What stands for the text itself: digests of files, a commit of the hub, the grammar's version."""
        if self.part == "toy":
            return ["toy", TOY_VERSION]
        if self.files:
            return [file_digest(path) for path in self._paths()]
        return [*self._hub(), self.hub_split, self._hub_commit()]

    @property
    def cleaning(self) -> NamedCorpus:
        """How lines are cleaned by default: own text under the name of a corpus is not that corpus."""
        return KNOWN["files" if self.files or self.hub else self.part]

    @property
    def shortest_line(self) -> int:
        """Characters below which a line is left out."""
        return self.cleaning.min_line if self.min_line is None else self.min_line

    @property
    def without_brackets(self) -> bool:
        """Whether `()` is taken out."""
        return self.cleaning.drop_brackets if self.drop_brackets is None else self.drop_brackets

    def read(self) -> Documents:
        """All documents as they stand in the source, and what could not be read."""
        number = 0
        for item in self._source():
            yield item
            number += isinstance(item, Document)
            if self.part != "toy" and number == self.documents:
                return

    def good(self) -> Iterator[Document]:
        """The documents that can be read; the first bad line ends it unless those are skipped."""
        for item in self.read():
            if isinstance(item, Document):
                yield item
            elif not self.skip_bad_rows:
                self.refuse_bad_rows()

    def refuse_bad_rows(self) -> None:
        """One error that names the bad lines."""
        refuse(list(islice((item for item in self.read() if isinstance(item, BadRow)), MOST_BAD)))

    def bad_rows(self, split: str) -> Sequence[BadRow]:
        """The lines that `skip_bad_rows` left out."""
        return [] if self.prepared else [item for item in self.read() if isinstance(item, BadRow)]

    def lines(self, text: str, lost: Counter[str] | None = None) -> list[str]:
        """The lines of a document that count: cleaned, none of them empty or too short; `lost` counts the others."""
        cleaned = text.replace("()", "") if self.without_brackets else text
        least = max(self.shortest_line, 1)
        stripped = [raw.strip() for raw in cleaned.split("\n")]
        kept = [line for line in stripped if len(line) >= least]
        if lost is not None and least > 1:
            short = [len(line) for line in stripped if 0 < len(line) < least]
            lost.update(short_lines=len(short), short_characters=sum(short))
        if lost is not None and len(cleaned) < len(text):
            lost.update(bracket_characters=len(text) - len(cleaned))
        return kept

    def split_of(self, text: str) -> str:
        """`dev` for the held-out part: by the text itself, so that equal documents are never on both sides."""
        draw = hashlib.blake2b(f"{self.seed}:{text}".encode(errors="surrogatepass"), digest_size=8).digest()
        return "dev" if int.from_bytes(draw, "big") < self.held_out * 2**64 else "train"

    def examples(self, split: str) -> Sequence[Example]:
        """All documents of the split as rows, in memory: for a look at small corpora."""
        self._require(split)
        if self.prepared:
            raise UserError(f"{self.prepared} holds tokens only; its text is no longer available")
        texts = ((i, self.lines(doc.text)) for i, doc in enumerate(self.good()))
        kept = ((i, "\n".join(lines)) for i, lines in texts if lines)
        return [Example(f"document-{i}", (text,)) for i, text in kept if self.split_of(text) == split]

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Windows of each document, end to end: for a look at it. Pretraining reads blocks (data/blocks.py)."""
        room = max_length - len(pieces.join([], None, max_length)[0])
        for row, example in enumerate(examples):
            (ids,) = pieces.many([example.texts[0]])
            for start in range(0, max(len(ids), 1), room):
                yield Features(row, *pieces.join(ids[start : start + room], None, max_length), {})

    def _require(self, split: str) -> None:
        if split not in self.splits():
            hint = "" if self.prepared or split != "dev" else "; set held_out to have one"
            raise UserError(self.no_split(split) + hint)

    def _count(self, split: str) -> int:
        if not self._counts:
            counts = dict.fromkeys(self.splits(), 0)
            for document in self.good():
                if lines := self.lines(document.text):
                    counts[self.split_of("\n".join(lines))] += 1
            self._counts.update(counts)
        return self._counts[split]

    def _source(self) -> Documents:
        if self.part == "toy":
            from encodery.tasks.toy_grammar.corpus import documents

            size = self.documents or TOY_DOCUMENTS
            return (Document(t, f"document {i}", (i + 1) / size) for i, t in enumerate(documents(self.seed, size)))
        if self.prepared:
            raise UserError(f"{self.prepared} holds tokens only; its text is no longer available")
        if self.files:
            return from_files(self._paths(), self.format, self.text)
        return from_hub(*self._hub(), self.hub_split, self._hub_commit(), self.text, self.streaming)

    def _hub(self) -> tuple[str, str | None]:
        known = KNOWN[self.part]
        return (self.hub, self.hub_config) if self.hub else (known.hub or "", self.hub_config or known.hub_config)

    def _hub_commit(self) -> str:
        if not self._commit:
            self._commit.append(hub_commit(self._hub()[0], self.revision))
        return self._commit[0]

    @property
    def entries(self) -> int:
        """Entries of `files`, the sources of a mixture; other text is one source."""
        return len(self.files) if isinstance(self.files, list) else 1

    def entry_of_files(self) -> list[int]:
        """For each file that is read the first entry of `files` that names it; [0] for other text."""
        if not isinstance(self.files, list):
            return [0] * max(1, len(self._paths()))
        entry: dict[Path, int] = {}
        for number, name in enumerate(self.files):
            for path in self._expanded([name]):
                entry.setdefault(path, number)
        return list(entry.values())

    def _paths(self) -> list[Path]:
        if not self.files:
            return []
        return self._expanded([self.files] if isinstance(self.files, str) else self.files)

    def _expanded(self, names: list[str]) -> list[Path]:
        return expand(names, Path(self.root or "").expanduser().absolute())

    @property
    def prepared_folder(self) -> Path:
        """Where the prepared blocks lie."""
        return Path(self.root or "").expanduser() / Path(self.prepared or "").expanduser()

    @property
    def prepared_length(self) -> int | None:
        """Tokens of the longest block that a prepared folder was made for; None for text."""
        return int(self._meta()["max_length"]) if self.prepared else None

    def _meta(self) -> dict[str, Any]:
        path = self.prepared_folder / "meta.json"
        if not path.is_file():
            begun = (self.prepared_folder / "recipe.json").is_file()
            raise UserError(
                f"prepared: {self.prepared_folder} "
                + ("is not finished; run the same `encodery prepare` again" if begun else "holds no prepared corpus")
            )
        meta: dict[str, Any] = disk.read_json(path)
        return meta
