"""The results store: unique rows, whole rows, several processes, and its text form."""

from __future__ import annotations

import multiprocessing
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from bayesian_benchmarks.errors import StoreError
from bayesian_benchmarks.results import ResultRow, ResultsStore
from bayesian_benchmarks.results.environment import git_commit, hardware, versions

ROW = ResultRow(
    task="regression",
    dataset="yacht",
    split=3,
    model="dgp",
    settings_hash="abc",
    seed=0,
    depth=2,
    settings='{"depth": 2, "note": "a, \\"b\\""}',
    metrics={"elbo_per_point": 1.0 / 3.0, "seconds": 12.0},
    recorded_at="2023-01-02T03:04:05+00:00",
    hardware="a processor, 2 cores",
    versions="python 3.11",
    git_commit="0123",
)
FAILED = replace(ROW, split=4, status="failed", error="RuntimeError: no", metrics={})


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    return ResultsStore(tmp_path / "new" / "results.sqlite")


def test_rows_come_back_as_they_were(store: ResultsStore) -> None:
    assert store.add(ROW)
    assert store.add(FAILED)
    assert store.rows() == [ROW, FAILED]
    assert store.rows("ok") == [ROW]
    assert store.statuses() == {ROW.key: "ok", FAILED.key: "failed"}
    assert ResultsStore(store.path).rows() == [ROW, FAILED]


def test_a_finished_row_stays_and_a_failed_one_is_replaced(store: ResultsStore) -> None:
    store.add_all([ROW, FAILED])
    assert not store.add(replace(ROW, metrics={"elbo_per_point": 9.0}))
    assert store.add(replace(FAILED, status="ok", error="", metrics={"elbo_per_point": 2.0}))
    assert [row.metrics.get("elbo_per_point") for row in store.rows()] == [1.0 / 3.0, 2.0]
    assert not store.add(FAILED)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "other"},
        {"dataset": "boston"},
        {"split": 9},
        {"model": "dwp"},
        {"settings_hash": "x"},
        {"seed": 1},
    ],
)
def test_every_part_of_the_key_counts(store: ResultsStore, change: dict) -> None:
    assert store.add_all([ROW, replace(ROW, **change)]) == 2


def test_all_or_nothing(store: ResultsStore) -> None:
    with pytest.raises(StoreError, match="CHECK constraint"):
        store.add_all([ROW, replace(FAILED, status="maybe")])
    assert store.rows() == []


def _add_many(path: Path, first: int) -> None:
    store = ResultsStore(path)
    for split in range(first, first + 20):
        store.add(replace(ROW, split=split))


def test_several_processes_write(store: ResultsStore) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_many, args=(store.path, 10 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [row.split for row in store.rows()] == list(range(40))


def test_export_and_import_are_inverse(store: ResultsStore, tmp_path: Path) -> None:
    store.add_all([FAILED, ROW, replace(ROW, dataset="boston", metrics={"crps": 1e-17})])
    assert store.export(tmp_path / "text" / "rows.csv") == 3
    other = ResultsStore(tmp_path / "other.sqlite")
    assert other.import_(tmp_path / "text" / "rows.csv") == 3
    assert other.rows() == store.rows()
    other.export(tmp_path / "again.csv")
    text = (tmp_path / "again.csv").read_bytes()
    assert text == (tmp_path / "text" / "rows.csv").read_bytes()
    other.import_(tmp_path / "again.csv")
    assert other.rows() == store.rows()


def test_export_does_not_depend_on_the_order_of_writing(tmp_path: Path) -> None:
    rows = [replace(ROW, split=split) for split in range(5)]
    texts = []
    for number, order in enumerate((rows, rows[::-1])):
        store = ResultsStore(tmp_path / f"{number}.sqlite")
        store.add_all(order)
        store.export(tmp_path / f"{number}.csv")
        texts.append((tmp_path / f"{number}.csv").read_text())
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[0].startswith("task,dataset,split,model,depth,seed,status,error,")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_import_of_something_else(store: ResultsStore, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    if text:
        with pytest.raises(StoreError, match=r"x.csv is not an exported results store"):
            store.import_(tmp_path / "x.csv")
    with pytest.raises(StoreError, match=r"Cannot read .*no.csv"):
        store.import_(tmp_path / "no.csv")
    assert store.rows() == []


def test_files_that_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 1000)
    with pytest.raises(StoreError, match=r"Cannot use .*text as a results store"):
        ResultsStore(tmp_path / "text")
    with pytest.raises(StoreError, match="Cannot use"):
        ResultsStore(tmp_path)
    with pytest.raises(StoreError, match="Cannot make the folder"):
        ResultsStore(tmp_path / "text" / "results.sqlite")


def test_a_store_of_a_later_version_is_left_alone(store: ResultsStore) -> None:
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreError, match="of version 7, this program reads version 1"):
        ResultsStore(store.path)


def test_export_to_where_it_cannot_be(store: ResultsStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Cannot write"):
        store.export(tmp_path)


def test_the_environment_is_told() -> None:
    assert "python 3" in versions()
    assert "numpy" in versions()
    assert "cores" in hardware()
    assert git_commit() == "" or len(git_commit().removesuffix("-modified")) == 40
