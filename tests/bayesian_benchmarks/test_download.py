"""Files of known digest: downloads, the cache, and local copies."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesian_benchmarks.datasets import uci_gal
from bayesian_benchmarks.errors import DataFileError

FOLDER = Path(uci_gal.COLLECTION) / "yacht" / "data"


def load(split: int = 0, data_dir: Path | None = None) -> Any:
    return uci_gal.load_split("yacht", split, data_dir)


def test_only_the_split_is_downloaded_and_once(toy_server: Any) -> None:
    first = load()
    assert [Path(path).name for path in toy_server.served] == [
        "data.txt",
        "index_features.txt",
        "index_target.txt",
        "index_train_0.txt",
        "index_test_0.txt",
    ]
    again = load()
    assert len(toy_server.served) == 5
    np.testing.assert_array_equal(first.X_train, again.X_train)
    load(1)
    assert len(toy_server.served) == 7


def test_download_equals_the_local_copy(toy_server: Any, toy_data: Path) -> None:
    downloaded, local = load(), load(data_dir=toy_data)
    np.testing.assert_array_equal(downloaded.X_test, local.X_test)
    assert downloaded.X_train.shape == (18, 2)


def test_altered_download_is_refused_and_not_kept(
    toy_server: Any, toy_data: Path, tmp_path: Path
) -> None:
    file = toy_data / FOLDER / "data.txt"
    good = file.read_bytes()
    file.write_bytes(good.replace(b"1", b"2", 1))
    with pytest.raises(DataFileError, match=r"data.txt is not the published file .* --data-dir"):
        load()
    assert not list((tmp_path / "cache").rglob("*.txt"))
    file.write_bytes(good)
    load()


def test_interrupted_download_goes_on(toy_server: Any, tmp_path: Path) -> None:
    toy_server.handler.cut_short = frozenset({"index_target.txt"})
    with pytest.raises(DataFileError, match=r"index_target.txt"):
        load()
    kept = sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert kept == ["data.txt", "index_features.txt"]
    toy_server.handler.cut_short = frozenset()
    toy_server.served.clear()
    load()
    assert [Path(path).name for path in toy_server.served] == [
        "index_target.txt",
        "index_train_0.txt",
        "index_test_0.txt",
    ]


def test_altered_cache_is_downloaded_again(toy_server: Any, tmp_path: Path) -> None:
    load()
    (tmp_path / "cache" / FOLDER / "data.txt").write_text("1 2 3")
    assert load().X_train.shape == (18, 2)


def test_missing_on_the_server(toy_server: Any, toy_data: Path) -> None:
    (toy_data / FOLDER / "data.txt").unlink()
    with pytest.raises(DataFileError, match=r"Could not download http://.*data.txt \(HTTPError\)"):
        load()


def test_no_network(toy_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_MIRROR", f"http://127.0.0.1:{port}")
    with pytest.raises(
        DataFileError, match=r"check the network and try again, or give a local copy"
    ):
        load()


def test_cache_that_cannot_be_written(
    toy_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataFileError, match=r"Cannot write to the cache directory .*_CACHE"):
        load()


def test_read_only_cache(toy_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load()
    (tmp_path / "cache").chmod(0o555)
    (tmp_path / "cache" / FOLDER).chmod(0o555)
    load()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    with pytest.raises(DataFileError, match=r"cache directory .* \(Perm[a-zA-Z ]+\): set BAYES"):
        load(1)
    (tmp_path / "cache" / FOLDER).chmod(0o755)
    (tmp_path / "cache").chmod(0o755)


def test_local_copy_by_argument_and_environment(
    toy_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_argument = load(data_dir=toy_data)
    inside = load(data_dir=toy_data / uci_gal.COLLECTION)
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_DATA", str(toy_data))
    by_environment = load()
    np.testing.assert_array_equal(by_argument.X_train, by_environment.X_train)
    np.testing.assert_array_equal(by_argument.X_train, inside.X_train)


def test_local_copy_never_touches_the_network(toy_server: Any, toy_data: Path) -> None:
    (toy_data / FOLDER / "data.txt").unlink()
    with pytest.raises(
        DataFileError, match=r"Cannot read yacht/data/data.txt in the data directory"
    ):
        load(data_dir=toy_data)
    assert not toy_server.served


def test_altered_local_copy(toy_data: Path) -> None:
    (toy_data / FOLDER / "data.txt").write_text("1 2 3")
    with pytest.raises(DataFileError, match=r"data.txt is not the published file .* copy it again"):
        load(data_dir=toy_data)


def test_absent_data_dir(toy_data: Path) -> None:
    with pytest.raises(DataFileError, match="The data directory /no/such/place does not exist"):
        load(data_dir=Path("/no/such/place"))
