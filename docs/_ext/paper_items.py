"""The directive `paper-items NAME`: docs/paper_items/NAME.csv as a table.

Its column `here` holds names separated by semicolons: a dotted Python name, `config:NAME` of a benchmark
config, `model:NAME` of a benchmark model, or a file of the repository, with `::test_name` of a test or
`#anchor` of a page, which tests/docs/test_paper_items.py checks.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from docstrings import target_of
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[1] / "paper_items"


def marked(name: str) -> str:
    """A name in Markdown, as a link where the site has its page. Of a test's file the folder is left out."""
    if name.startswith("docs/"):
        path = name.removeprefix("docs/")
        return f"[`{path}`]({path})"
    if name.startswith("tests/"):
        return f"`{name.rpartition('/')[2]}`"
    documented = "/" not in name and target_of(name, name.partition(".")[0])
    return f"{{py:obj}}`{name} <{documented}>`" if documented else f"`{name}`"


def lines_of(rows: list[dict[str, str]]) -> list[str]:
    """The rows as a table in Markdown."""
    lines = ["| item | what | here | note |", "| --- | --- | --- | --- |"]
    for row in rows:
        cells = [row[column].replace("|", r"\|") for column in ("item", "what", "note")]
        here = "<br>".join(marked(name) for name in row["here"].split("; ") if name)
        lines.append(f"| {cells[0]} | {cells[1]} | {here} | {cells[2]} |")
    return lines


class PaperItems(SphinxDirective):
    """What a paper has, with the names that have it here."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table."""
        path = FOLDER / f"{self.arguments[0]}.csv"
        self.env.note_dependency(str(path))
        with path.open(encoding="utf-8", newline="") as file:
            lines = lines_of(list(csv.DictReader(file)))
        parent = nodes.container()
        self.state.nested_parse(StringList(lines, str(path)), 0, parent)
        for table in parent.findall(nodes.table):
            table["classes"].append("paper-items")
        return list(parent.children)


def setup(app: Any) -> dict[str, Any]:
    """Connect."""
    app.add_directive("paper-items", PaperItems)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
