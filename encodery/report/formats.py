"""A table as Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
from typing import TYPE_CHECKING

from encodery.report.cells import Cell, Sheet, models_sheet, pivot, sheet

if TYPE_CHECKING:
    from encodery.report.tables import Table

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", "±": r"$\pm$",
    "✗": r"$\times$", "–": "--", "…": r"\dots{}",
}  # fmt: skip


def sheets(table: "Table", columns: str | None = None) -> list[Sheet]:
    """The table itself, and the one over models if that was asked for."""
    first = pivot(table, columns) if columns else sheet(table)
    return [first, models_sheet(table.models)] if table.models else [first]


def markdown(table: "Table", columns: str | None = None) -> str:
    """Markdown, scores times 100; remarks below."""
    return "\n\n".join(_markdown(one) for one in sheets(table, columns))


def _markdown(one: Sheet) -> str:
    lines = ["| " + " | ".join(map(_plain, one.header)) + " |", "|" + "---|" * len(one.header)]
    lines += ["| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in one.body]
    notes = [f"- {note}" for note in one.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown_cell(cell: Cell) -> str:
    return f"**{_plain(cell.text)}**" if cell.bold else _plain(cell.text)


def latex(table: "Table", columns: str | None = None) -> str:
    """A tabular for the package booktabs; remarks as comments."""
    return "\n\n".join(_latex(one) for one in sheets(table, columns))


def _latex(one: Sheet) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(cells) + r" \\"

    body = [line([_latex_cell(cell) for cell in cells]) for cells in one.body]
    head = [r"\begin{tabular}{" + "l" * len(one.header) + "}", r"\toprule"]
    head += [line([escaped(word) for word in one.header]), r"\midrule"]
    return "\n".join(
        [*(f"% {' '.join(note.split())}" for note in one.notes), *head, *body, r"\bottomrule", r"\end{tabular}"]
    )


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{escaped(cell.text)}}}" if cell.bold else escaped(cell.text)


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def csv_text(table: "Table", columns: str | None = None) -> str:
    """Comma-separated: numbers unrounded and not times 100; a pivoted table as people read it."""
    stream = io.StringIO()
    if columns:
        one = pivot(table, columns)
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([one.header, *([cell.text for cell in line] for line in one.body)])
        return stream.getvalue()
    rows = table.models or table.plain()
    names = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in ("values", "of_models")]
    whole = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
    whole.writeheader()
    whole.writerows(rows)
    return stream.getvalue()


def json_text(table: "Table") -> str:
    """Everything, the scores of each seed included."""
    found = {"rows": table.plain(), "remarks": table.remarks}
    return json.dumps(found | ({"models": table.models} if table.models else {}), indent=1, ensure_ascii=False)
