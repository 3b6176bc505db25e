"""Results: the store, the published figures, and tables of both."""

from .paper import PaperResult, paper_results
from .store import ResultRow, ResultsStore
from .tables import Summary, TableLine, agrees, format_table, summarise

__all__ = [
    "PaperResult",
    "ResultRow",
    "ResultsStore",
    "Summary",
    "TableLine",
    "agrees",
    "format_table",
    "paper_results",
    "summarise",
]
