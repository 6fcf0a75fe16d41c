"""Text for people that several packages write: a count with its noun (`1 run`, `1,024 rows`), a Markdown table."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; bars and line ends inside a cell are kept from ending it."""
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def counted(number: int, noun: str) -> str:
    """The number and the noun, in the singular where it is one; thousands are separated."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def each(number: int, noun: str) -> str:
    """All of them: `the only row`, `both rows`, `all 12 rows`."""
    if number == 1:
        return f"the only {noun}"
    return f"both {noun}s" if number == 2 else f"all {counted(number, noun)}"


def are(number: int) -> str:
    """The verb that goes with the number."""
    return "is" if number == 1 else "are"


def short(text: str, most: int = 80) -> str:
    """The beginning of a long text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def first_line(error: BaseException) -> str:
    """What an error says, without the lines that follow; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def kind_and_line(error: BaseException) -> str:
    """`ConnectionError: no route to host`."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0][:200]}".rstrip(": ")
