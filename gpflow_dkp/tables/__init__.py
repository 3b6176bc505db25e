"""Files of data: tables with names, categories and targets, and models of them.

`read_table` reads one, `Columns` makes numbers of it, a `TableModel` is an estimator that takes tables.
"""

from .columns import Column, Columns
from .quality import Quality
from .read import TableError, read_table
from .table_model import TableModel

__all__ = ["Column", "Columns", "Quality", "TableError", "TableModel", "read_table"]
