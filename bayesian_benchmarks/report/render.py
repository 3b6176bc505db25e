"""A report as one HTML page, as Markdown, and its tables as LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re

from .document import Cell, Document, Figure, Table

MADE_BY = "<!-- Made by `dkp-bench report` (scripts/make_report.py); do not edit. -->"


def to_html(document: Document) -> str:
    """One page that needs nothing else: styles, script and pictures are in it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2").render(document=document)


def to_markdown(document: Document) -> str:
    """Text and tables; of the pictures their titles."""
    parts = [MADE_BY, f"# {document.title}", *document.lines]
    for section in document.sections:
        parts += [f"## {section.title}", *section.lines]
        for table in section.tables:
            parts += [f"### {table.title}", _markdown(table)]
            parts += [table.note] if table.note else []
    return "\n\n".join(parts) + "\n"


def to_latex(table: Table) -> str:
    """A table with booktabs' rules."""
    columns = "l" * len(table.header)
    lines = [
        rf"% {table.title}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_escape, table.header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_latex, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """A table with its numbers in full where there are any."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    beside = [any(row[i].beside for row in table.rows) for i in range(len(table.header))]
    writer.writerow(
        name
        for i, column in enumerate(table.header)
        for name in (
            [column, f"{column} published", f"{column} distance"] if beside[i] else [column]
        )
    )
    for row in table.rows:
        writer.writerow(
            value
            for i, cell in enumerate(row)
            for value in (
                [_number(cell), cell.beside, "" if cell.distance is None else cell.distance]
                if beside[i]
                else [_number(cell)]
            )
        )
    return output.getvalue()


def tables_of(document: Document) -> list[Table]:
    """All tables."""
    return [table for section in document.sections for table in section.tables]


def figures_of(document: Document) -> list[Figure]:
    """All pictures."""
    return [figure for section in document.sections for figure in section.figures]


def _number(cell: Cell) -> str | float:
    return cell.text if cell.sort is None or not cell.text else cell.sort


def _markdown(table: Table) -> str:
    def shown(cell: Cell) -> str:
        text = cell.plain.replace("|", "\\|")
        return f"**{text}**" if cell.best else text

    lines = [list(table.header), ["---"] * len(table.header)]
    lines += [[shown(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _latex(cell: Cell) -> str:
    text = _escape(cell.text)
    if cell.best:
        text = rf"\textbf{{{text}}}"
    if cell.beside:
        text += rf" \emph{{({_escape(cell.beside)})}}"
    return text


def _escape(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    return escaped.replace("±", r"$\pm$").replace("†", r"$\dagger$")
