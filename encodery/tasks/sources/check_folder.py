"""`data check`: is a folder's content what it should be. `data get`: fetch sets ahead, for nodes without internet."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from encodery.core import files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.glue import Glue
from encodery.tasks.hans import Hans
from encodery.tasks.nli import Nli
from encodery.tasks.sources.published import OnHub, Published
from encodery.tasks.squad import Squad
from encodery.tasks.tag import Tag

State = Literal["whole", "other", "part", "wrong", "missing"]
FAMILIES: tuple[type[Published], ...] = (Glue, Nli, Tag, Squad)

# sha256 over texts and labels of copies with the official counts, most of them compared with a second source
# (mrpc train was rebuilt from Microsoft's file); the format of the files does not matter.
DIGESTS: dict[str, str] = {
    "glue/cola:train": "fc6d62793b6156410f433adfa7bff590bd869d3d003319a4b1f8350d23b71158",
    "glue/cola:dev": "a85b674217297c0d6ada49fcadaace68c4626e80cb27c9ffcbb223606e5e8fcc",
    "glue/cola:test": "d08c5739120335c0e3b4e25fcee2502e0fa36cde6905be5d707e5cba34ab3fce",
    "glue/sst2:train": "875c83c4689ede2983df61890389362a8291943d1a5b43e87ac7847b640a3819",
    "glue/sst2:dev": "faebdbc68a350af35fe73ffd4b0d484f3607ae38c6ba30b1128a7b91cb839621",
    "glue/sst2:test": "a445ebbf6978bc7a9f8c9c99b3d14d2ab207e6d187f0f829584ef08bb8d5efd0",
    "glue/mrpc:train": "7114bf2328fe7f56283a04e3ea92eae6bed589e1712c44b0acd30ba4f90c6af4",
    "glue/mrpc:dev": "fc2faad51bdc0e0d89b1797e4c1b2d14f3c620f0b4a3459a1146bea2f66f7d12",
    "glue/mrpc:test": "1834206fdbc149652586eeed45d1a1ffb12121616ab8075150bfa517b8fecc09",
    "glue/stsb:train": "95bdcda1706f823fb256cf09e3b110a9e9a28cb477b3568f1a5ddfc9a54ffcb9",
    "glue/stsb:dev": "ef1f018d57c0aa92ed1d9a5caf4a21bf230c9ab6d3cbb3566726ba612bf50f90",
    "glue/stsb:test": "c3619efd4cd4b50285b67ad1a2a720730ba9e74bcb671f83dcec9a058cfcd3dd",
    "glue/mnli:dev": "bd2d703fede612d0ce9dbe5f5845cb4e3e163b4ccb7a14273e78cdf6adde54b4",
    "glue/mnli:test": "f3fb1684bb1626cd2e7ef61b3d37c7951ff4f4cf862945e4367e1528257c57ad",
    "glue/qnli:dev": "ce9a35f097c2f185d72ba34e888e83176e202888840632617b83696b0155a768",
    "glue/qnli:test": "d3c4b0b84a9f898a447d19212d595775a0b321baebfed03872269518a2eb3fd3",
    "glue/rte:train": "f3a48a147ce56942085b34faee9009cb13dea891e7de55ddd179ec39c989ed7a",
    "glue/rte:dev": "660921034631d37e6084a04bc2880b7ee5f25f613ffaed932c6915371b4fc221",
    "glue/rte:test": "37657973a7eb4e5aeb4429a9626c840b37d1c1b3c97447c76da37effc2091cf5",
    "glue/wnli:train": "d8f8f8b52af8ec3d279e113d1e9f76d8955a1b4c9b343b1bfa93a866981cd7f4",
    "glue/wnli:dev": "045fd6bbcde18f2b0183c89375e7a6c06ac04eb2976fe08396c687ae17835a16",
    "glue/wnli:test": "0d52f17b1b0687e9eb57bba1d0763c19e17ee39e95a817efbe195864212ec9fc",
    "glue/ax:test": "6ded41d40e2d636d25cfc30e86f629da0e920365a7e3884dd46afc5fac7ff6ee",
    # of UD English EWT not train, whose copy here has its documents in another order than the release
    "tag/pos:dev": "1c925a6da226cc90138d166e4e673e1b5044cfed9de844ba160354183e6ff5ab",
    "tag/pos:test": "5b167f3bcad095f571df0652ee261ac7ac484cb4a5729ff164685f1873da3695",
    "tag/ner:train": "bb843ec39ad889f27f6ac30d0557283bfdfeae271d01cd3732c6c12b8d77cb0a",
    "tag/ner:dev": "5e183a1e41e10f6423a178fca5b676597813b98f16dd8e32a23f0d0dce6de40e",
    "tag/ner:test": "6ddfe04ae1d0cb60762f18a7d7e42d7fca4e86f7562b1e9938e7c60551db3581",
}


class Status(NamedTuple):
    """What was found for a split."""

    name: str  # glue/rte:dev
    state: State  # other: all rows, but other words than the copy known here
    rows: int
    words: str

    def __str__(self) -> str:
        return f"{self.name:28} {self.state:8} {self.words}"


def check(folder: str | Path) -> list[Status]:
    """The state of every known set in a folder."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    return [_status(task, split, folder) for task in _tasks(data=str(folder)) for split in task.splits()]


def _tasks(**options: Any) -> Iterator[OnHub]:
    yield from (family.model_validate({"part": part, **options}) for family in FAMILIES for part in family.table)
    yield Hans.model_validate(options)


def _status(task: OnHub, split: str, folder: Path) -> Status:
    name = f"{task.name}:{split}"
    if not task.lies_in(split, folder):
        return Status(name, "missing", 0, f"no file; `encodery data get {task.name}` fetches it")
    try:
        origin = task.origin(split)
    except UserError as error:
        return Status(name, "wrong", 0, str(error))
    official = task.dataset.counts.get(split)
    state, words = _judge(name, task.examples(split), official)
    if task.is_ours(split, folder):  # whatever its size: it is not the published split
        state = "other" if state == "whole" and official else "part"
        words = f"{origin.rows:,} of {counted(origin.of, 'row')}" if origin.of else counted(origin.rows, "row")
    words = "; ".join(filter(None, [words, origin.note]))
    return Status(name, state, origin.rows, f"{words} ({', '.join(origin.files)})")


def _judge(name: str, examples: Sequence[Example], official: int | None) -> tuple[State, str]:
    rows = len(examples)
    if official is not None and rows > official:
        return "wrong", f"{rows:,} rows, more than the official {official:,}"
    if official is not None and rows < official:
        return "part", f"{rows:,} of {official:,} rows"
    if name in DIGESTS and words_digest(examples) != DIGESTS[name]:
        return "other", f"{counted(rows, 'row')}, whose words differ from the copy known here"
    return "whole", counted(rows, "row") + (", digest as known" if name in DIGESTS else "")


def words_digest(examples: Iterable[Example]) -> str:
    """sha256 of texts and labels in order, without ids, which differ between sources."""
    hasher = hashlib.sha256()
    for example in examples:
        hasher.update(repr((example.texts, example.label)).encode())
    return hasher.hexdigest()


def get(names: Sequence[str], to: str | Path) -> list[Path]:
    """Fetch sets (`glue`, `glue/rte`, `squad/v2`) from the hub as Parquet files; what is there already is kept."""
    written = []
    for task in _chosen(names):
        for split in task.splits():
            path = Path(to).expanduser() / task.dataset.parquet_folder / f"{task.dataset.name}_{split}.parquet"
            if not path.is_file():
                _fetch(task, split, path)
                written.append(path)
    return written


def _chosen(names: Sequence[str]) -> list[OnHub]:
    tasks = list(_tasks())
    for name in names:
        if not any(_covers(name, task) for task in tasks):
            legal = ", ".join(sorted({task.family for task in tasks} | {task.name for task in tasks}))
            raise UserError(f'there is no set "{name}" to fetch; there are {legal}')
    return [task for task in tasks if any(_covers(name, task) for name in names)]


def _covers(name: str, task: OnHub) -> bool:
    return name in (task.family, task.name)


def _fetch(task: OnHub, split: str, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    loaded = task.from_hub(split, f"{task.name}:{split} cannot be fetched")
    about = {"repository": task.dataset.repository, "revision": loaded.origin.revision or ""}
    table = pa.table(task.columns(loaded.examples)).replace_schema_metadata(about)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic(path) as stream:
        pq.write_table(table, stream, compression="zstd")
