"""Files of known digest: from a local copy of the data, or downloaded once and cached."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from ..errors import DataFileError

CACHE_VARIABLE = "BAYESIAN_BENCHMARKS_CACHE"
DATA_VARIABLE = "BAYESIAN_BENCHMARKS_DATA"
MIRROR_VARIABLE = "BAYESIAN_BENCHMARKS_MIRROR"
TIMEOUT_SECONDS = 30.0
LOCAL_COPY_HINT = f"give a local copy of the data with --data-dir (or {DATA_VARIABLE})"


def pinned_file(
    base_url: str,
    collection: str,
    file: str,
    sha256: str,
    data_dir: Path | None,
    *,
    url: str | None = None,
) -> Path:
    """Local path of the file `base_url` + `collection`/`file`, or of `url`, its content checked.

    With `data_dir`, or the environment variable `BAYESIAN_BENCHMARKS_DATA`, the file is looked up
    there and the network is never used. Otherwise it is downloaded, from `base_url` or from the
    address in `BAYESIAN_BENCHMARKS_MIRROR`, into `BAYESIAN_BENCHMARKS_CACHE` or the user's cache
    directory. A download is checked before it takes its final name, so an interrupted one leaves
    nothing behind and a second call goes on with the files that are still missing.

    :raises DataFileError: the file is missing, altered, or cannot be downloaded or cached.
    """
    directory = local_directory(data_dir)
    if directory is not None:
        return _local_file(directory, collection, file, sha256)
    mirror = os.environ.get(MIRROR_VARIABLE)
    if url is None or mirror:
        url = (mirror or base_url).rstrip("/") + f"/{collection}/{file}"
    return _downloaded_file(url, Path(collection) / file, sha256)


def local_directory(data_dir: Path | None) -> Path | None:
    """Where the user keeps local copies: `data_dir`, or what `BAYESIAN_BENCHMARKS_DATA` says.

    :raises DataFileError: the directory does not exist.
    """
    directory = data_dir or _path_from(DATA_VARIABLE)
    if directory is not None and not directory.is_dir():
        raise DataFileError(f"The data directory {directory} does not exist.")
    return directory


def _path_from(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


def _local_file(directory: Path, collection: str, file: str, sha256: str) -> Path:
    root = directory / collection
    path = (root if root.is_dir() else directory) / file
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataFileError(
            f"Cannot read {file} in the data directory {directory} ({_reason(error)}); it must be "
            f"laid out as {collection}/{file}."
        ) from error
    if digest != sha256:
        raise DataFileError(
            f"{path} is not the published file (SHA-256 {digest[:12]}..., expected "
            f"{sha256[:12]}...): it was altered or cut short; copy it again."
        )
    return path


def _downloaded_file(url: str, file: Path, sha256: str) -> Path:
    import pooch
    from requests.exceptions import RequestException

    pooch.get_logger().setLevel(logging.WARNING)
    cache = _path_from(CACHE_VARIABLE) or Path(pooch.os_cache("bayesian_benchmarks"))
    path = cache / file
    try:
        pooch.retrieve(
            url,
            known_hash=f"sha256:{sha256}",
            path=path.parent,
            fname=path.name,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS),
        )
    except RequestException as error:
        raise DataFileError(
            f"Could not download {url} ({type(error).__name__}): check the network and try again, "
            f"or {LOCAL_COPY_HINT}."
        ) from error
    except OSError as error:
        raise DataFileError(
            f"Cannot write to the cache directory {cache} ({_reason(error)}): set {CACHE_VARIABLE} "
            f"to a directory that can be written to, or {LOCAL_COPY_HINT}."
        ) from error
    except ValueError as error:
        raise DataFileError(
            f"The download of {url} is not the published file (its SHA-256 differs): it was "
            f"altered or cut short, and nothing was kept; try again, or {LOCAL_COPY_HINT}."
        ) from error
    return path


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
