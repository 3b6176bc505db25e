"""A table's columns as numbers: one-hot categories, and one clear line for what has no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_dkp.tables import Columns, TableError, read_table

TABLE = pd.DataFrame(
    {
        "rooms": [1, 2, 3, 4],
        "city": ["Rome", "Paris", "Rome", "Oslo"],
        "new": [True, False, True, True],
        "area": [10.5, 20.0, 30.0, 45.5],
    }
)


def test_categories_are_one_hot_and_numbers_as_they_are() -> None:
    columns = Columns.of(TABLE, "homes")
    assert columns.feature_names == ["rooms", "city=Oslo", "city=Paris", "city=Rome", "new", "area"]
    expected = [
        [1, 0, 0, 1, 1, 10.5],
        [2, 0, 1, 0, 0, 20.0],
        [3, 0, 0, 1, 1, 30.0],
        [4, 1, 0, 0, 1, 45.5],
    ]
    np.testing.assert_array_equal(columns.matrix(TABLE, "homes"), expected)
    assert columns.describe() == ("3 columns of numbers, city as 3 columns (Oslo, Paris, Rome)")


def test_the_order_of_new_columns_does_not_matter() -> None:
    columns = Columns.of(TABLE, "homes")
    shuffled = TABLE[["area", "new", "city", "rooms"]]
    np.testing.assert_array_equal(columns.matrix(shuffled, "homes"), columns.matrix(TABLE, "homes"))


def test_pandas_categories_are_as_text() -> None:
    typed = TABLE.assign(city=TABLE["city"].astype("category"))
    assert Columns.of(typed, "homes") == Columns.of(TABLE, "homes")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"area": [10.5, np.nan, np.inf, 1.0], "city": ["Rome", None, "Oslo", "Oslo"]},
            r"by column: city 1, area 2 \(of 4 rows\)",
        ),
        ({"city": ["2024-01-05", "2024-02-01", "2023-05-05", "2022-01-01"]}, "'city' has dates"),
        ({"city": ["1.5.2024", "3.6.2024", "05.12.2023", "1.1.2020"]}, "'city' has dates"),
        ({"area": pd.to_datetime(["2024-01-05"] * 4)}, "'area' has dates"),
        ({"area": [1.0, 2.0, 1e200, 3.0]}, "1e\\+200 in row 3, column 'area', is too large"),
    ],
)
def test_what_has_no_number_is_refused(change: dict[str, Any], message: str) -> None:
    table = TABLE.assign(**change)
    with pytest.raises(TableError, match=message) as raised:
        Columns.of(table, "homes").matrix(table, "homes")
    assert "\n" not in str(raised.value)


def test_names_are_no_categories() -> None:
    table = pd.DataFrame({"name": [f"person {i}" for i in range(60)]})
    with pytest.raises(TableError, match=r"60 different texts, such as .person 0.*--drop"):
        Columns.of(table, "people")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.drop(columns=["area", "city"]), "has no column city, area, which the model"),
        (TABLE.assign(id=1, note="x"), "has a column id, note, which the model was not trained"),
        (TABLE.assign(city="Bern"), "'city' has 'Bern' in row 1.*it had Oslo, Paris, Rome"),
        (TABLE.assign(area="big"), "column 'area' has text, such as 'big'; it had numbers"),
        (TABLE.assign(area=np.nan), r"by column: area 4 \(of 4 rows\)"),
    ],
)
def test_new_data_of_another_kind_is_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(TableError, match=message):
        Columns.of(TABLE, "homes").matrix(table, "new")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("1,2\n3,4\n", "has no header"),
        ("a;b\n1;2\n", "separated by semicolons"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
        ("a,b,a\n1,2,3\n", "two columns are called a"),
        ("a\n1\n", "has one column"),
        ('a,b\n"1,2\n', "is not a comma-separated table"),
    ],
)
def test_files_that_hold_no_table_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=message):
        read_table(path)


def test_parquet_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    TABLE.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path), TABLE)
    path.write_text("nothing of the sort")
    with pytest.raises(TableError, match="is no Parquet file"):
        read_table(path)
