"""A report's files: the page, and its tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import assemble, render
from .sources import Source


def write_report(
    sources: Sequence[Source],
    title: str = "Results",
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    latex: Path | None = None,
    csv: Path | None = None,
) -> list[Path]:
    """Write a report of rows in the forms that are asked for; returns the files.

    :param html: a page that needs nothing else, with pictures.
    :param markdown: a file.
    :param latex: a folder, for a .tex file a table.
    :param csv: a folder, for a .csv file a table.
    :raises BenchmarkError: there are no rows.
    :raises OSError: a file cannot be written.
    """
    document = assemble.report(sources, title, with_figures=html is not None)
    texts: dict[Path, str] = {}
    if html:
        texts[html] = render.to_html(document)
    if markdown:
        texts[markdown] = render.to_markdown(document)
    for folder, ending, form in ((latex, "tex", render.to_latex), (csv, "csv", render.to_csv)):
        if folder:
            tables = render.tables_of(document)
            texts |= {folder / f"{table.name}.{ending}": form(table) for table in tables}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)
