"""Fixtures of the benchmark's tests: made-up data served over HTTP, and the real data if present."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bayesian_benchmarks.datasets import uci_gal

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_outside_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own data, cache and proxies play no part in a test."""
    for name in ("DATA", "MIRROR"):
        monkeypatch.delenv(f"BAYESIAN_BENCHMARKS_{name}", raising=False)
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """A local copy of the published data; the test is skipped where there is none."""
    for place in (os.environ.get("BAYESIAN_BENCHMARKS_DATA"), REPOSITORY.parent / "shared/data"):
        if place and (Path(place) / uci_gal.COLLECTION).is_dir():
            return Path(place)
    pytest.skip("no local copy of the published data")


@pytest.fixture
def toy_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made-up data in the layout of the published ones, in place of yacht: 20 rows, 2 splits."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(20, 3))
    table[:, 1] = 0.1 + 0.2
    contents = {
        "data.txt": "\n".join(" ".join(map(repr, map(float, row))) for row in table),
        "index_features.txt": "0\n1\n",
        "index_target.txt": "2\n",
    }
    for split in range(2):
        order = rng.permutation(20)
        contents[f"index_train_{split}.txt"] = "\n".join(f"{i:.18e}" for i in order[:18])
        contents[f"index_test_{split}.txt"] = "\n".join(str(i) for i in order[18:])
    folder = tmp_path / "toy" / uci_gal.COLLECTION / "yacht" / "data"
    folder.mkdir(parents=True)
    for name, text in contents.items():
        (folder / name).write_text(text)
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in contents}
    pinned = {"yacht": uci_gal.PinnedFolder("yacht", 2, digests)}
    monkeypatch.setattr(uci_gal, "pinned_folders", lambda: pinned)
    return tmp_path / "toy"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; a file whose name is in `cut_short` ends half-way."""

    cut_short: frozenset[str] = frozenset()
    served: list[str]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.served.append(self.path)
        if Path(self.path).name not in self.cut_short:
            return super().do_GET()
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        return None


class Served:
    """A running server: its address, its handler class and the paths it has served."""

    def __init__(self, folder: Path) -> None:
        self.handler = type("Handler", (QuietHandler,), {"served": []})
        factory = functools.partial(self.handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), factory)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def served(self) -> list[str]:
        return self.handler.served


@pytest.fixture
def toy_server(toy_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """`toy_data` over HTTP, as the address to download from."""
    served = Served(toy_data)
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("BAYESIAN_BENCHMARKS_MIRROR", served.url)
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()
