"""`save` and `load`, and the same as bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpflow

from .classes import import_contents
from .container import SavingError, pack, unpack
from .decoder import Decoder, check_custom_objects, check_default_float
from .encoder import Encoder

BYTES = "the data"
"""What errors call bytes."""


def save(value: Any, path: str | Path) -> None:
    """Write a model, an estimator, or what one is made of, to one file, in the place of one that is there.

    :param path: any name; its folder must exist.
    :raises SavingError: for what cannot be saved, or a path that cannot be written to.

    >>> import pathlib, tempfile
    >>> kernel = gpflow.kernels.SquaredExponential(variance=2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "kernel.safetensors")
    ...     gpflow_dkp.saving.save(kernel, path)
    ...     loaded = gpflow_dkp.saving.load(path)
    >>> np.allclose(loaded(X), kernel(X))
    True
    """
    path = Path(path)
    data = dumps(value)
    try:
        # Whole before it has its name: a kill leaves the file that was there.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise SavingError(
            f"path: cannot write {path} ({error.strerror}); choose another place"
        ) from error


def load(path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """What `save` wrote.

    It predicts what it predicted when it was saved, to the last digit or two, and may be trained on. No code
    of the file's is run, and nothing imported: a file from elsewhere is safe to open.

    :param custom_objects: classes of yours by name, such as {"MyKernel": MyKernel}, and functions.
    :raises SavingError: for a file that is no saved model, is cut short, was altered, is of a later version,
        or has a class that `custom_objects` is to have.

    >>> import pathlib, tempfile
    >>> model = gpflow_dkp.models.DGP.from_data(X, Y, num_inducing=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.safetensors")
    ...     model.save(path)
    ...     loaded = gpflow_dkp.load(path)
    >>> np.allclose(model.predict_y(X, num_samples=4), loaded.predict_y(X, num_samples=4))
    True
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SavingError(
            f"path: cannot read {path} ({error.strerror}); give a file that save wrote"
        ) from error
    return loads(data, custom_objects, origin=str(path))


def dumps(value: Any) -> bytes:
    """What `save` writes.

    >>> data = gpflow_dkp.saving.dumps(gpflow.kernels.Matern32(lengthscales=2.0))
    >>> type(data).__name__
    'bytes'
    >>> np.allclose(gpflow_dkp.saving.loads(data).lengthscales, 2.0)
    True
    """
    encoder = Encoder()
    root = encoder.encode(value, "")
    description = {
        "default_float": gpflow.default_float().__name__,
        "root": root,
        "objects": encoder.objects,
    }
    return pack(encoder.arrays, description)


def loads(
    data: bytes, custom_objects: Mapping[str, Any] | None = None, *, origin: str = BYTES
) -> Any:
    """`load` of bytes.

    :param origin: what errors call them.

    >>> class MyKernel(gpflow.kernels.SquaredExponential):
    ...     pass
    >>> data = gpflow_dkp.saving.dumps(MyKernel(variance=2.0))
    >>> kernel = gpflow_dkp.saving.loads(data, {"MyKernel": MyKernel})
    >>> type(kernel).__name__, np.allclose(kernel.variance, 2.0)
    ('MyKernel', True)
    """
    custom_objects = check_custom_objects(custom_objects)
    arrays, description = unpack(data, origin)
    import_contents()
    try:
        check_default_float(description["default_float"], origin)
        decoder = Decoder(description["objects"], arrays, custom_objects, origin)
        return decoder.decode(description["root"])
    except SavingError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        first, *_ = str(error).splitlines() or [""]
        raise SavingError(
            f"{origin} does not fit the versions installed here ({type(error).__name__}: {first})"
        ) from error


def _umask() -> int:
    """The process' mask of permissions, which can be read only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
