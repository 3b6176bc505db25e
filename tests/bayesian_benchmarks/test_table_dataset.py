"""A user's CSV file as a dataset, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesian_benchmarks.datasets import (
    ClassificationDataset,
    TableDataset,
    add_dataset,
    get_dataset,
    list_datasets,
)
from bayesian_benchmarks.errors import BadDataError, BadSplitError, BenchmarkError, DataFileError

ROWS = [f"{i},{i * i},{i % 3}" for i in range(20)]


def write(path: Path, rows: list[str], header: str = "a, price ,b") -> Path:
    file = path / "houses.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def test_target_and_features(tmp_path: Path) -> None:
    csv = TableDataset.open(write(tmp_path, ROWS), "price")
    dataset = csv.get(3)
    assert (csv.name, dataset.N, dataset.D, len(dataset.X_test)) == ("houses.csv", 20, 2, 2)
    X = dataset.scaling.restore_X(dataset.X_train)
    Y = dataset.scaling.restore_Y(dataset.Y_train)
    np.testing.assert_allclose(X[:, :1] ** 2, Y, atol=1e-9)
    with pytest.raises(BadSplitError, match=r"houses.csv has no split 20"):
        csv.get(20)


@pytest.mark.parametrize("name", ["target", "y", "Y", "Target"])
def test_a_column_of_the_usual_name_is_the_target(tmp_path: Path, name: str) -> None:
    assert TableDataset.open(write(tmp_path, ROWS, f"a,{name},b")).targets == (name,)


def test_an_edited_file_is_another_dataset(tmp_path: Path) -> None:
    csv = TableDataset.open(write(tmp_path, ROWS), "price")
    edited = TableDataset.open(write(tmp_path, ROWS[1:]), "price")
    assert csv.digest != edited.digest
    assert csv.get().N == 20  # of the file as it was: it is read once
    assert edited.get().N == 19


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
        (["1;2"] * 20, "price;b", r"is separated by semicolons; save it with commas"),
        (ROWS, "a,price,a", r"two columns are called a; give each a name of its own"),
        (replaced(4, "1,2,1e200"), "a,price,b", r"1e\+200 in row 5 .*'b', is too large"),
        (replaced(4, "1,-1e200,1"), "a,price,b", r"-1e\+200 in row 5 .*'price', is too large"),
        (["1"] * 20, "price", r"has one column; a target and at least one feature"),
        (replaced(4, "1,2,3,4,5"), "a,price,b", r"not a comma-separated table.*line 6"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path, rows: list[str], header: str, message: str
) -> None:
    with pytest.raises(BenchmarkError, match=message) as caught:
        TableDataset.open(write(tmp_path, rows, header), "price")
    assert "\n" not in str(caught.value)


def test_the_target_must_be_said_when_it_is_not_clear(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="with --target; the columns are a, price, b"):
        TableDataset.open(write(tmp_path, ROWS))


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.csv").write_bytes(content)
    with pytest.raises(BadDataError, match=r"empty.csv is empty"):
        TableDataset.open(tmp_path / "empty.csv")


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(BadDataError, match="not a comma-separated table in UTF-8"):
        TableDataset.open(tmp_path / "binary.csv")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"Cannot read .*no.csv \(No such file or directory\)"):
        TableDataset.open(tmp_path / "no.csv")
    with pytest.raises(DataFileError, match="Cannot read"):
        TableDataset.open(tmp_path)


LABELLED = [f"{i},{i % 3},{i * i}" for i in range(30)]


def test_labels(tmp_path: Path) -> None:
    csv = TableDataset.open(write(tmp_path, LABELLED, "a,kind,b"), "kind", task="classification")
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
        ([*LABELLED, "1,,2"], r"1 value is missing or infinite, the first in row 31"),
        ([*LABELLED, "1,red,2"], r"houses.csv: Class 3 has 1 row; each class needs at least 2"),
        ([*(r.replace(",1,", ",b,") for r in LABELLED), "1,,2"], r"no class in row 31 of the data"),
        (["1,0,2", "2,0,3"] * 10, r"the target 'kind' is 0 in every row"),
    ],
)
def test_labels_that_cannot_be_used(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(BadDataError, match=message) as caught:
        TableDataset.open(write(tmp_path, rows, "a,kind,b"), "kind", task="classification")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_called_as_a_published_dataset_is_not_taken_for_it(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS).rename(tmp_path / "yacht")
    assert TableDataset.open(path, "price").name == "yacht.csv"


def test_several_targets(tmp_path: Path) -> None:
    data = TableDataset.open(write(tmp_path, ROWS), ["price", "b"]).get()
    assert (data.D, data.Y_train.shape, data.scaling.Y_std.shape) == (1, (18, 2), (2,))
    np.testing.assert_allclose(
        data.scaling.restore_X(data.X_train) ** 2, data.scaling.restore_Y(data.Y_train)[:, :1]
    )
    with pytest.raises(BadDataError, match="every column is a target"):
        TableDataset.open(write(tmp_path, ROWS), ["a", "price", "b"])
    with pytest.raises(BadDataError, match="2 targets are named; a table of classes has one"):
        TableDataset.open(write(tmp_path, ROWS), ["a", "b"], task="classification")


def test_classes_with_names(tmp_path: Path) -> None:
    names = ["red", "green", "blue"]
    rows = [f"{i},{names[i % 3]} ,{i * i}" for i in range(30)]
    table = TableDataset.open(write(tmp_path, rows, "a,kind,b"), "kind", task="classification")
    assert table.classes == ("blue", "green", "red")
    np.testing.assert_array_equal(table.Y, [2 - i % 3 for i in range(30)])
    assert table.get().num_classes == 3


def test_repeated_rows_are_told(tmp_path: Path) -> None:
    assert TableDataset.open(write(tmp_path, ROWS), "price").notes == ()
    (note,) = TableDataset.open(write(tmp_path, [*ROWS, ROWS[3], ROWS[3]]), "price").notes
    assert "2 of 22 rows repeat another one" in note


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers goes with it."""
    from bayesian_benchmarks.datasets import registry

    monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))


@pytest.mark.usefixtures("registry")
def test_a_dataset_in_one_call(tmp_path: Path) -> None:
    X, y = np.arange(40.0).reshape(20, 2) % 7, np.arange(20.0)
    add_dataset("of-arrays", (X, y))
    add_dataset("of-csv", write(tmp_path, ROWS), "price")
    frame = pd.DataFrame({"a": y, "b": y % 3, "target": y**2})
    add_dataset("of-frame", frame)
    (tmp_path / "t.arff").write_text(
        "@relation r\n@attribute a numeric\n@attribute kind {u, v}\n@data\n"
        + "\n".join(f"{i}.5,{'uv'[i % 2]}" for i in range(20))
    )
    add_dataset("of-arff", tmp_path / "t.arff", "kind", task="classification")
    for name, shape in (("of-arrays", (18, 2)), ("of-csv", (18, 2)), ("of-frame", (18, 2))):
        data = get_dataset(name, 3)
        assert (data.name, data.X_train.shape) == (name, shape)
    assert get_dataset("of-arff", task="classification").num_classes == 2
    restored = get_dataset("of-frame")
    roots = np.sqrt(restored.scaling.restore_Y(restored.Y_test))
    np.testing.assert_allclose(roots, np.round(roots), atol=1e-6)
    assert "of-arrays" in list_datasets()
    with pytest.raises(BadDataError, match=r"bad: X of shape \(20, 2\) and y of shape \(19,\)"):
        add_dataset("bad", (X, y[1:]))
    with pytest.raises(BadDataError, match="bad: target names a column"):
        add_dataset("bad", (X, y), "y")
    (tmp_path / "no.arff").write_text("nothing")
    with pytest.raises(BadDataError, match=r"no.arff is no ARFF file|no.arff has 0 rows"):
        add_dataset("bad", tmp_path / "no.arff", "y")


def test_parquet(tmp_path: Path, registry: None) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": np.arange(20.0), "y": np.arange(20.0) % 3})
    frame.to_parquet(tmp_path / "t.parquet")
    assert TableDataset.open(tmp_path / "t.parquet").get().D == 1
    (tmp_path / "bad.parquet").write_text("hello")
    with pytest.raises(BadDataError, match=r"bad.parquet is no Parquet file"):
        TableDataset.open(tmp_path / "bad.parquet")
