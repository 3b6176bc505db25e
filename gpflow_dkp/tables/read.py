"""Tables from CSV, Parquet and ARFF files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class TableError(ValueError):
    """A table that cannot be read or used, and where and why.

    >>> import pandas as pd
    >>> gpflow_dkp.tables.Columns.of(pd.DataFrame({"rain": [0.5, np.nan]}), "rain.csv")
    Traceback (most recent call last):
        ...
    gpflow_dkp.tables.read.TableError: rain.csv has missing or infinite values, by column: ...
    """


def read_table(path: str | Path) -> pd.DataFrame:
    """A file's table, by the name's ending: .parquet, .arff, and CSV with a header line for any other.

    :raises TableError: for a file that holds no table, or whose columns have no names of their own.
    :raises OSError: for a file that cannot be read.

    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rain.csv")
    ...     pd.DataFrame({"rain": [0.5, 1.5], "town": ["York", "Bath"]}).to_csv(path, index=False)
    ...     table = gpflow_dkp.tables.read_table(path)
    >>> list(table.columns), len(table)
    (['rain', 'town'], 2)
    """
    path = Path(path)
    readers = {".parquet": _read_parquet, ".arff": _read_arff}
    table = readers.get(path.suffix.lower(), _read_csv)(path)
    return table.rename(columns=lambda column: str(column).strip())


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        with path.open(encoding="utf-8", newline="") as file:
            first = next((line for line in csv.reader(file, skipinitialspace=True) if line), [])
        _check_header(path, [column.strip() for column in first])
        return pd.read_csv(path, skipinitialspace=True, index_col=False)
    except (pd.errors.ParserError, UnicodeDecodeError, csv.Error) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TableError(f"{path} is not a comma-separated table in UTF-8: {reason}") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise TableError(f"{path}: to read Parquet files, pip install pyarrow.") from error
    except OSError:
        raise
    except Exception as error:  # pyarrow's own kinds
        raise TableError(f"{path} is no Parquet file ({' '.join(str(error).split())}).") from error


def _read_arff(path: Path) -> pd.DataFrame:
    import pandas as pd
    from scipy.io import arff

    try:
        values, _ = arff.loadarff(path)
    except (arff.ArffError, NotImplementedError, ValueError, StopIteration) as error:
        raise TableError(f"{path} is no ARFF file ({' '.join(str(error).split())}).") from error
    table = pd.DataFrame(values)
    text = table.select_dtypes("object").columns
    return table.assign(**{name: table[name].str.decode("utf-8") for name in text})


def _check_header(path: Path, columns: list[str]) -> None:
    if not columns:
        raise TableError(f"{path} is empty; a header line and rows of numbers are needed.")
    if all(_is_number(column) for column in columns):
        raise TableError(
            f"{path} has no header: its first line is numbers; put the columns' names there."
        )
    if len(columns) == 1 and ";" in columns[0]:
        raise TableError(f"{path} is separated by semicolons; save it with commas.")
    for number, column in enumerate(columns):
        if not column:
            raise TableError(
                f"{path}: column {number + 1} has no name; name it, or remove it if it is a row index."
            )
        if column in columns[:number]:
            raise TableError(
                f"{path}: two columns are called {column}; give each a name of its own."
            )
    if len(columns) < 2:
        raise TableError(f"{path} has one column; a target and at least one feature are needed.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
