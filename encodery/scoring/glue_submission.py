"""The eleven test files that the GLUE site wants, in one zip; every file is checked before anybody sends it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from encodery.core import files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks import split_name
from encodery.tasks.base import Answer
from encodery.tasks.glue import TABLE

HEADER = "index\tprediction"
LARGEST = 100_000_000  # bytes of an unpacked file; the largest real one has 4 million


class File(NamedTuple):
    """One of the eleven: whose answers it holds, and what stands there when nobody has answered."""

    part: str
    split: str
    majority: str

    @property
    def rows(self) -> int:
        """The official number of test rows."""
        return int(TABLE[self.part].counts[self.split] or 0)


# The majority is that of the training set (the first label where it is balanced: MNLI, QNLI); STS-B gets its mean.
# For WNLI all zeros is what most systems send (65.1 % on test): its dev set is adversarial to train, and plain
# fine-tuning falls below that.
FILES: dict[str, File] = {
    "CoLA.tsv": File("cola", "test", "1"),
    "SST-2.tsv": File("sst2", "test", "1"),
    "MRPC.tsv": File("mrpc", "test", "1"),
    "STS-B.tsv": File("stsb", "test", "2.701"),
    "QQP.tsv": File("qqp", "test", "0"),
    "MNLI-m.tsv": File("mnli", "test", "entailment"),
    "MNLI-mm.tsv": File("mnli", "test_mismatched", "entailment"),
    "QNLI.tsv": File("qnli", "test", "entailment"),
    "RTE.tsv": File("rte", "test", "entailment"),
    "WNLI.tsv": File("wnli", "test", "0"),
    "AX.tsv": File("ax", "test", "entailment"),
}


def write_submission(
    answers: Mapping[str, Mapping[str, Answer]],
    out: str | Path,
    fill: Literal["majority"] | None = None,
    sources: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The zip from answers by `glue/rte:test`. What is missing is an error, or is filled and marked in `<zip>.json`.

    `sources` says by task (`rte`) which run answered, for `<zip>.json`; AX is answered by that of MNLI.
    """
    given = {_key(name): found for name, found in answers.items()}
    missing = [name for name, file in FILES.items() if (file.part, file.split) not in given]
    if missing and fill is None:
        raise UserError(f"no test answers for {', '.join(missing)}: train and give these too, or add --fill majority")
    texts = {
        name: _filled(file) if name in missing else _text(name, file, given[file.part, file.split])
        for name, file in FILES.items()
    }
    _write_zip(Path(out), texts)
    check_submission(out)
    parts = {name: "mnli" if file.part == "ax" else file.part for name, file in FILES.items() if name not in missing}
    answered = {name: dict(sources[part]) for name, part in parts.items() if part in sources} if sources else {}
    report = {"zip": Path(out).name, "filled": missing, "rows": {name: file.rows for name, file in FILES.items()}}
    report |= {"answered_by": answered} if answered else {}
    files.write_json(Path(f"{out}.json"), report)
    return report


def _key(name: str) -> tuple[str, str]:
    """`glue/mnli:test` -> (mnli, test)."""
    task, split = split_name(name)
    part = task.removeprefix("glue/")
    if not any((part, split or "test") == (file.part, file.split) for file in FILES.values()):
        legal = ", ".join(f"glue/{file.part}:{file.split}" for file in FILES.values())
        raise UserError(f'"{name}" is not a GLUE test set; there are {legal}')
    return part, split or "test"


def _filled(file: File) -> str:
    return "\n".join([HEADER, *(f"{i}\t{file.majority}" for i in range(file.rows))]) + "\n"


def _text(name: str, file: File, answers: Mapping[str, Answer]) -> str:
    """One file from answers by index."""
    wanted = [str(i) for i in range(file.rows)]
    missing = [id for id in wanted if id not in answers]
    extra = sorted(set(answers) - set(wanted))
    if missing or extra:
        first = f"the first missing is {missing[0]}" if missing else f"index {extra[0]} is not in the test set"
        raise UserError(f"{name}: {len(answers):,} answers for {file.rows:,} test rows; {first}")
    return "\n".join([HEADER, *(f"{id}\t{_shown(name, file, id, answers[id])}" for id in wanted)]) + "\n"


def _shown(name: str, file: File, id: str, answer: Answer) -> str:
    guess = answer["prediction"]
    dataset = TABLE[file.part]
    if dataset.bounds:
        number = float(guess)
        if number != number:
            raise UserError(f"{name}: the answer to {id} is not a number")
        return f"{min(max(number, dataset.bounds[0]), dataset.bounds[1]):.3f}"
    if guess not in dataset.labels:
        raise UserError(f'{name}: the answer to {id} is "{guess}", not one of {", ".join(dataset.labels)}')
    return str(guess)


def _write_zip(path: Path, texts: Mapping[str, str]) -> None:
    """The same answers give the same bytes: no clock enters the zip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)


def check_submission(path: str | Path) -> None:
    """Check any submission: the eleven files, their headers, rows, indices and labels. One error names all faults."""
    try:
        with zipfile.ZipFile(path) as archive:
            faults = _faults(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: is not a readable zip file ({error})") from error
    if faults:
        raise UserError(f"{path}: the GLUE site would not take it:" + "".join(f"\n  {fault}" for fault in faults))


def _faults(archive: zipfile.ZipFile) -> list[str]:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    faults = [f"{name} is missing" for name in FILES if name not in sizes]
    faults += [
        f"{name} does not belong there (the eleven files are at the top level)" for name in sizes if name not in FILES
    ]
    for name in FILES:
        if name in sizes:
            fault = "is far too large" if sizes[name] > LARGEST else _fault(name, archive.read(name))
            faults += [f"{name} {fault}"] if fault else []
    return faults


def _fault(name: str, data: bytes) -> str | None:
    """The first thing that is wrong with a file."""
    try:
        lines = data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        return f"is not valid UTF-8 at byte {error.start + 1}"
    if lines[0] != HEADER:
        return f"must begin with the line index<TAB>prediction, not {lines[0][:80]!r}"
    file = FILES[name]
    for row, line in enumerate(lines[1:]):
        index, tab, guess = line.partition("\t")
        if index != str(row) or not tab:
            return f"line {row + 2} must have the index {row} and one tab, not {line[:80]!r}"
        if not _is_legal(file, guess):
            return f"line {row + 2} has an illegal prediction, {guess[:80]!r}"
    return None if len(lines) - 1 == file.rows else f"has {counted(len(lines) - 1, 'row')} instead of {file.rows:,}"


def _is_legal(file: File, guess: str) -> bool:
    dataset = TABLE[file.part]
    if not dataset.bounds:
        return guess in dataset.labels
    try:
        return dataset.bounds[0] <= float(guess) <= dataset.bounds[1]
    except ValueError:
        return False
