"""A user's CSV file as a dataset, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks.datasets import ClassificationDataset, CsvDataset
from bayesian_benchmarks.errors import BadDataError, BadSplitError, BenchmarkError, DataFileError

ROWS = [f"{i},{i * i},{i % 3}" for i in range(20)]


def write(path: Path, rows: list[str], header: str = "a, price ,b") -> Path:
    file = path / "houses.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def test_target_and_features(tmp_path: Path) -> None:
    csv = CsvDataset.open(write(tmp_path, ROWS), "price")
    dataset = csv.get(3)
    assert (csv.name, dataset.N, dataset.D, len(dataset.X_test)) == ("houses.csv", 20, 2, 2)
    X = dataset.scaling.restore_X(dataset.X_train)
    Y = dataset.scaling.restore_Y(dataset.Y_train)
    np.testing.assert_allclose(X[:, :1] ** 2, Y, atol=1e-9)
    with pytest.raises(BadSplitError, match=r"houses.csv has no split 20"):
        csv.get(20)


@pytest.mark.parametrize("name", ["target", "y", "Y", "Target"])
def test_a_column_of_the_usual_name_is_the_target(tmp_path: Path, name: str) -> None:
    assert CsvDataset.open(write(tmp_path, ROWS, f"a,{name},b")).target == name


def test_an_edited_file_is_another_dataset(tmp_path: Path) -> None:
    csv = CsvDataset.open(write(tmp_path, ROWS), "price")
    edited = CsvDataset.open(write(tmp_path, ROWS[1:]), "price")
    assert csv.sha256 != edited.sha256
    with pytest.raises(DataFileError, match="has changed since"):
        csv.get()


def replaced(row: int, text: str) -> list[str]:
    return [*ROWS[:row], text, *ROWS[row + 1 :]]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (replaced(4, "1,,2"), "a,price,b", r"1 value is missing or infinite, the first in row 5 "),
        (replaced(4, "1,inf,2"), "a,price,b", r"in row 5 of the data, column 'price'"),
        (replaced(4, "1,2"), "a,price,b", r"row 5 of the data, column 'b'"),
        (replaced(4, "1,cheap,2"), "a,price,b", r"not numbers in column price; encode"),
        (["red,1,2"] * 20, "a,price,b", r"not numbers in column a;"),
        (["2020-01-01,1,2"] * 20, "a,price,b", r"not numbers in column a;"),
        (ROWS[:1], "a,price,b", r"has 1 row; at least 10 are needed"),
        (ROWS[:9], "a,price,b", r"has 9 rows; at least 10 are needed"),
        ([], "a,price,b", r"has 0 rows; at least 10"),
        (ROWS, "a,cost,b", r"Unknown target column of houses.csv 'price'.*Known: a, b, cost"),
        (["1,7,2", "3,7,5"] * 8, "a,price,b", r"the target 'price' is 7 in every row"),
        (ROWS, "0,0,1", r"has no header: its first line is numbers"),
        (ROWS, ",price,b", r"column 1 has no name; name it, or remove it if it is a row index"),
        (["1"] * 20, "price", r"has one column; a target and at least one feature"),
        (replaced(4, "1,2,3,4,5"), "a,price,b", r"not a comma-separated table.*line 6"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, rows: list[str], header: str, message: str
) -> None:
    with pytest.raises(BenchmarkError, match=message) as caught:
        CsvDataset.open(write(tmp_path, rows, header), "price")
    assert "\n" not in str(caught.value)


def test_the_target_must_be_said_when_it_is_not_clear(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="with --target; the columns are a, price, b"):
        CsvDataset.open(write(tmp_path, ROWS))


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.csv").write_bytes(content)
    with pytest.raises(BadDataError, match=r"empty.csv is empty"):
        CsvDataset.open(tmp_path / "empty.csv")


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(BadDataError, match="not a comma-separated table in UTF-8"):
        CsvDataset.open(tmp_path / "binary.csv")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"Cannot read .*no.csv \(No such file or directory\)"):
        CsvDataset.open(tmp_path / "no.csv")
    with pytest.raises(DataFileError, match="Cannot read"):
        CsvDataset.open(tmp_path)


LABELLED = [f"{i},{i % 3},{i * i}" for i in range(30)]


def test_labels(tmp_path: Path) -> None:
    csv = CsvDataset.open(write(tmp_path, LABELLED, "a,kind,b"), "kind", task="classification")
    data = csv.get(4)
    assert isinstance(data, ClassificationDataset)
    assert (data.name, data.N, data.D, data.num_classes) == ("houses.csv", 30, 2, 3)
    np.testing.assert_array_equal(np.bincount(data.Y_test[:, 0]), [1, 1, 1])
    first_column = data.scaling.restore_X(data.X_train)[:, 0].round().astype(int)
    np.testing.assert_array_equal(first_column % 3, data.Y_train[:, 0])
    np.testing.assert_array_equal(csv.get(4).X_test, data.X_test)
    assert not np.array_equal(csv.get(5).X_test, data.X_test)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["1,0.5,2", *LABELLED],
            r"the label 0.5 in row 1 of the data, column 'kind', is no integer",
        ),
        ([*LABELLED, "1,-1,2"], r"the label -1 in row 31 .* number the classes 0, 1, 2"),
        ([*LABELLED, "1,1e300,2"], r"the label 1e\+300 in row 31 .* is no integer from 0 up"),
        ([*LABELLED, "1,3,2"], r"houses.csv: Class 3 has 1 row; each class needs at least 2"),
        (
            [*LABELLED, "1,4,2", "2,4,2"],
            r"houses.csv: no row of class 3, and there are labels up to 4",
        ),
        ([*LABELLED, "1,red,2"], r"not numbers in column kind; encode it as numbers"),
        (["1,0,2", "2,0,3"] * 10, r"the target 'kind' is 0 in every row"),
    ],
)
def test_labels_that_cannot_be_used(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(BadDataError, match=message) as caught:
        CsvDataset.open(write(tmp_path, rows, "a,kind,b"), "kind", task="classification")
    assert "\n" not in str(caught.value)
