"""Reports: tables of stored results beside the published figures, comparisons, pictures."""

from .paper import PaperResult, paper_results
from .tables import Summary, TableLine, agrees, format_table, summarise

__all__ = [
    "PaperResult",
    "Summary",
    "TableLine",
    "agrees",
    "format_table",
    "paper_results",
    "summarise",
]
