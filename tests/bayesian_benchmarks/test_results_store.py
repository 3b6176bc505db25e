"""The results store: unique rows, whole rows, several processes, and its text form."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesian_benchmarks import Experiment, Settings, expand
from bayesian_benchmarks.errors import StoreError
from bayesian_benchmarks.models import model_source
from bayesian_benchmarks.settings import GWISettings
from bayesian_benchmarks.store import ResultRow, ResultsStore, digest_of
from bayesian_benchmarks.sweep import environment
from bayesian_benchmarks.sweep.environment import git_commit, hardware, versions
from bayesian_benchmarks.sweep.run import Run
from bayesian_benchmarks.tasks import find_task

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = {  # the rows of a plugin's models
    "aitchison2021_by_batch": "diwp_by_batch",
    "classification_images_by_batch": "diwp_by_batch",
}
SETTINGS = '{"depth": 2, "note": "a, \\"b\\""}'
ROW = ResultRow(
    task="regression",
    dataset="yacht",
    split=3,
    model="dgp",
    settings_hash=digest_of(SETTINGS),
    seed=0,
    depth=2,
    settings=SETTINGS,
    evaluation='{"test_samples": 100}',
    history={"step": [10, 20], "elbo": [-1.5, 0.25]},
    fingerprint="0123456789ab",
    threads=2,
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
    assert store.find(FAILED.key) == FAILED
    assert store.find(ROW.key._replace(seed=9)) is None
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


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.csv")), ids=lambda p: p.stem)
def test_every_row_is_found_by_the_run_of_its_settings(
    path: Path, store: ResultsStore, import_plugin_of_benchmarks: Callable[[str], Any]
) -> None:
    """Settings that came later are in no key of a run that does not ask for them."""
    if path.stem in PLUGINS:
        import_plugin_of_benchmarks(PLUGINS[path.stem])
    assert store.import_(path) == len(store.rows()) > 0
    for row in store.rows():
        settings = json.loads(row.settings)
        named = {name: settings.pop(name) for name in ("depth", "data", "code") if name in settings}
        run = Run(
            *(row.task, row.dataset, row.split, row.model, named.pop("depth"), row.seed),
            model_source(row.model).read(find_task(row.task).settings(**settings)),
            **named,
        )
        assert run.settings_json == row.settings
        assert run.key == row.key


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


LARGE = 20_000_000
"""Bytes of a file that is none of ours."""


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"a,b\n1,2\n", b"PK\x03\x04\xff\xfe" * 9, b'task,"dataset\n' + b"x," * 9),
        *(bytes(LARGE), b"a" * LARGE, b"," * LARGE, b"\xff\x00\x8b\n" * (LARGE // 4)),
    ],
    ids=range(8),
)
def test_import_of_something_else(store: ResultsStore, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(text)
    with pytest.raises(StoreError, match=r"x.csv is not an exported results store") as caught:
        store.import_(tmp_path / "x.csv")
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match=r"Cannot read .*no.csv"):
        store.import_(tmp_path / "no.csv")
    assert store.rows() == []


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        (",3,dgp,", f",{10**30},dgp,", "the split 1000000000000000000000000000000 is too large"),
        ('"{""test_samples"": 100}"', "[" * 100_000, "maximum recursion depth"),
        ('"{""test_samples"": 100}"', "x" * 200_000, "field larger than field limit"),
    ],
)
def test_import_of_an_export_with_what_is_none_in_it(
    store: ResultsStore, tmp_path: Path, was: str, becomes: str, message: str
) -> None:
    store.add(ROW)
    store.export(tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_text()
    assert was in text
    (tmp_path / "rows.csv").write_text(text.replace(was, becomes))
    with pytest.raises(StoreError, match=rf"rows.csv is not an exported .*{message}") as caught:
        store.import_(tmp_path / "rows.csv")
    assert len(str(caught.value)) < 500


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
    with pytest.raises(StoreError, match="of version 7, this program reads version 2"):
        ResultsStore(store.path)


def test_export_to_where_it_cannot_be(store: ResultsStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is there and is no export"):
        store.export(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Cannot write"):
        store.export(tmp_path / "file" / "rows.csv")


def test_the_environment_is_told() -> None:
    assert "python 3" in versions()
    assert "numpy" in versions()
    assert "cores" in hardware()
    assert git_commit() == "" or len(git_commit().removesuffix("-modified")) == 40


def test_an_export_that_is_cut_short_or_altered_is_refused(
    store: ResultsStore, tmp_path: Path
) -> None:
    store.add_all([ROW, FAILED])
    store.export(tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_text()
    other = ResultsStore(tmp_path / "other.sqlite")
    for length in range(len(text) - 2, text.index("\n") + 1, -7):
        (tmp_path / "cut.csv").write_text(text[:length])
        with contextlib.suppress(StoreError):
            other.import_(tmp_path / "cut.csv")
            assert set(other.rows()) <= {ROW, FAILED}
    altered = text.replace('""depth"": 2', '""depth"": 3')
    assert altered != text
    (tmp_path / "altered.csv").write_text(altered)
    with pytest.raises(StoreError, match=r"yacht split 3 dgp do not have the hash"):
        other.import_(tmp_path / "altered.csv")


def test_export_writes_over_nothing_but_an_export(store: ResultsStore, tmp_path: Path) -> None:
    store.add(ROW)
    houses = tmp_path / "houses.csv"
    for content in (b"price,rooms\n1,2\n", b"\xff\xfe\x00", b"x"):
        houses.write_bytes(content)
        with pytest.raises(StoreError, match=r"houses.csv is there and is no export"):
            store.export(houses)
        assert houses.read_bytes() == content
    houses.write_bytes(b"")
    assert store.export(houses) == store.export(houses) == 1


def test_rows_can_be_removed_and_replaced(store: ResultsStore) -> None:
    store.add_all([ROW, FAILED])
    assert store.add(replace(ROW, metrics={"crps": 2.0}), replace=True)
    assert store.rows("ok")[0].metrics == {"crps": 2.0}
    assert store.remove([ROW.key, ROW.key._replace(seed=5)]) == 1
    assert store.rows() == [FAILED]


def test_frame(store: ResultsStore) -> None:
    store.add_all([ROW, FAILED])
    frame = store.frame()
    assert list(frame["split"]) == [3, 4]
    assert frame["elbo_per_point"].iloc[0] == 1.0 / 3.0
    assert np.isnan(frame["elbo_per_point"].iloc[1])
    assert list(frame["test_samples"]) == [100, 100]
    assert list(frame["note"]) == ['a, "b"'] * 2
    assert list(frame["depth"]) == [2, 2]
    assert "settings.depth" not in frame


def test_a_frame_has_settings_by_which_it_can_be_grouped(store: ResultsStore) -> None:
    """Nested ones, lists, one of some rows alone, and one that is called like a metric."""
    settings = [
        {"depth": 2, "num_steps": 10, "rates": [0.1, [0.2]], "seconds": 5.0},
        {"depth": 2, "num_steps": 20, "schedule": {"beta_2": 0.9, "decay": {"rates": [0.3]}}},
    ]
    texts = [json.dumps(values, sort_keys=True) for values in settings]
    rows = [replace(ROW, settings=text, settings_hash=digest_of(text)) for text in texts]
    store.add_all(rows)
    frame = store.frame().set_index("num_steps")
    assert dict(frame["seconds"]) == {10: 12.0, 20: 12.0}
    assert frame.loc[10, "settings.seconds"] == 5.0
    assert np.isnan(frame.loc[20, "settings.seconds"])
    assert frame.loc[20, "schedule.beta_2"] == 0.9
    assert frame.loc[20, "schedule.decay.rates"] == (0.3,)
    assert list(frame.groupby("rates").groups) == [(0.1, (0.2,))]


def test_the_frame_of_an_empty_store_has_the_fields(store: ResultsStore) -> None:
    frame = store.frame()
    assert len(frame) == 0
    assert {"dataset", "model", "status"} <= set(frame.columns)


VERSION_1 = """
CREATE TABLE runs (
    task TEXT NOT NULL, dataset TEXT NOT NULL, split INTEGER NOT NULL, model TEXT NOT NULL,
    settings_hash TEXT NOT NULL, seed INTEGER NOT NULL, depth INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')), error TEXT NOT NULL,
    metrics TEXT NOT NULL, recorded_at TEXT NOT NULL, hardware TEXT NOT NULL,
    versions TEXT NOT NULL, git_commit TEXT NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (task, dataset, split, model, settings_hash, seed)
)
"""


def test_a_store_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    """Its rows are found by the runs that made them, and its file is of this version then."""
    experiments = {
        "dgp": Settings(num_steps=7),
        "gwi-net": Settings(num_steps=7, gwi=GWISettings(num_folds=3)),
        "svgp": Settings(num_steps=7, gwi=GWISettings(num_folds=3)),
    }
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(VERSION_1)
        for model, settings in experiments.items():
            later = {"ard", "input_bias", "shared_precision", "schedule"}
            content = {"depth": 1, **settings.model_dump(exclude=later)}
            if settings.gwi is None:
                del content["gwi"]
            else:
                later = {"networks", "separate_kernels", "covariance"}
                later |= {"weight_variance", "image_activation"}
                content["gwi"] = {k: v for k, v in content["gwi"].items() if k not in later}
            text = json.dumps(content, sort_keys=True)
            values = ("regression", "yacht", 0, model, digest_of(text), 0, 1, "ok", "")
            rest = (json.dumps({"elbo_per_point": 1.0}), "2025", "h", "v", "c", text)
            connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 15)})", values + rest)
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = ResultsStore(path)
    for model, settings in experiments.items():
        experiment = Experiment(
            models=(model,), datasets=("yacht",), splits=(0,), depths=(1,), settings=settings
        )
        (run,) = expand(experiment)
        row = store.find(run.key)
        assert row is not None, model
        assert row.settings == run.settings_json
        assert row.evaluation == run.evaluation_json
        name = "objective_per_point" if model == "gwi-net" else "elbo_per_point"
        assert row.metrics == {name: 1.0}
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


def test_the_commit_is_this_repositorys_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that lies in another project's folder is none of that project's commits."""
    installed = tmp_path / "site-packages" / "environment.py"
    installed.parent.mkdir()
    installed.write_text("")
    for command in ("init", "commit --allow-empty -m x"):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", *identity, *command.split()], cwd=tmp_path, check=True, capture_output=True
        )
    monkeypatch.setattr(environment, "__file__", str(installed))
    assert git_commit() == ""
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert len(git_commit().removesuffix("-modified")) == 40
