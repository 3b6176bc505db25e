"""What a report is made of, before it is HTML, Markdown, LaTeX or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mark = Literal["", "better", "worse", "close"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    :param text: ours, or what there is to say.
    :param beside: the published figure, if there is one.
    :param distance: ours less the published one in standard errors, more is better; None where unknown.
    :param sort: by which a column is sorted; the text where None.
    :param best: whether it is the best of its line.
    """

    text: str
    beside: str = ""
    distance: float | None = None
    sort: float | None = None
    best: bool = False

    @property
    def mark(self) -> Mark:
        """How ours compares with the published figure: within two standard errors it is close."""
        if self.distance is None:
            return ""
        return "close" if abs(self.distance) <= 2 else "better" if self.distance > 0 else "worse"

    @property
    def plain(self) -> str:
        """All of it in one line."""
        beside = f" [{self.beside}]" if self.beside else ""
        distance = f" {self.distance:+.1f}" if self.distance is not None else ""
        return f"{self.text}{beside}{distance}"


@dataclass(frozen=True)
class Table:
    """A table.

    :param title: one line.
    :param name: of its own file, letters and hyphens.
    :param header: of each column.
    :param rows: as many cells each.
    :param note: what it means.
    """

    title: str
    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture, as SVG."""

    title: str
    svg: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Some tables and pictures under one heading.

    :param anchor: what links name it by.
    :param lines: of text, each a paragraph.
    """

    title: str
    anchor: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Document:
    """A report.

    :param lines: of text below the title.
    """

    title: str
    sections: Sequence[Section]
    lines: Sequence[str] = ()
