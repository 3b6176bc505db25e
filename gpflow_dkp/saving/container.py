"""The file itself: arrays in the safetensors format, the description in its metadata, a digest of both."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

FORMAT = "gpflow-dkp"
FORMAT_VERSION = 1
"""Of the description. A reader refuses later ones."""

LENGTH = struct.Struct("<Q")
"""Of the header, with which a safetensors file begins."""


class SavingError(ValueError):
    """A model that cannot be saved, or a file that is none, cut short, altered or of a later version.

    >>> gpflow_dkp.saving.loads(b"these bytes are of something else")
    Traceback (most recent call last):
        ...
    gpflow_dkp.saving.container.SavingError: the data is no model that gpflow_dkp saved...
    """


def pack(arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]) -> bytes:
    """A file of arrays and a description that JSON takes."""
    from .. import __version__

    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "gpflow_dkp": __version__,
        "gpflow": gpflow.__version__,
        "tensorflow": tf.__version__,
        "description": json.dumps(description, allow_nan=False),
    }
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    metadata["sha256"] = _digest(arrays, metadata)
    return safetensors.numpy.save(arrays, metadata)


def unpack(data: bytes, origin: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description.

    :param origin: what an error calls the file.
    :raises SavingError: for anything else than a whole, unaltered file of no later version.
    """
    metadata = read_metadata(data, origin)
    damaged = f"{origin} is cut short or was altered; take another copy, or save the model again"
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise SavingError(damaged) from error
    if _digest(arrays, metadata) != metadata.get("sha256"):
        raise SavingError(damaged)
    return arrays, json.loads(metadata["description"])


def read_metadata(data: bytes, origin: str) -> dict[str, str]:
    """The file's own notes: its versions, and the description as JSON.

    :raises SavingError: for no file of ours, or one of a later version.
    """
    foreign = f"{origin} is no model that gpflow_dkp saved"
    if len(data) < LENGTH.size:
        raise SavingError(foreign)
    (length,) = LENGTH.unpack_from(data)
    if not 2 <= length <= len(data) - LENGTH.size:
        raise SavingError(f"{foreign}, or it is cut short")
    try:
        header = json.loads(data[LENGTH.size : LENGTH.size + length])
        metadata = {str(name): str(text) for name, text in header["__metadata__"].items()}
        version = int(metadata["version"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SavingError(foreign) from error
    if metadata.get("format") != FORMAT:
        raise SavingError(foreign)
    if version > FORMAT_VERSION:
        raise SavingError(
            f"{origin} has format {version}, of gpflow_dkp {metadata.get('gpflow_dkp', '?')}; this version "
            f"reads formats up to {FORMAT_VERSION}: upgrade gpflow_dkp"
        )
    return metadata


def _digest(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """Of all that the file has, the digest left out."""
    digest = hashlib.sha256()
    notes = {name: text for name, text in metadata.items() if name != "sha256"}
    digest.update(json.dumps(notes, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(np.asarray(array, order="C").tobytes())
    return digest.hexdigest()
