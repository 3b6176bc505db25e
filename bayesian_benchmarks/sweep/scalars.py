"""A run's bound as TensorFlow's scalars, which TensorBoard draws."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ..errors import ConfigError

FLUSH_SECONDS = 10
"""After which a point is on the disk at the latest."""


class Scalars:
    """The folder of one run's event files, made with its first point.

    A run that goes on from a checkpoint adds a file to those that are there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def add(self, step: int, bound: float) -> None:
        """Write the bound per training point after `step` steps.

        :raises OSError: it cannot be written.
        """
        import tensorflow as tf

        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(
                    str(self._folder), flush_millis=1000 * FLUSH_SECONDS
                )
            with self._writer.as_default():
                # What tf.summary.scalar writes, which needs TensorBoard to be installed.
                tf.summary.write("bound", tf.constant(bound, tf.float32), step, _metadata())
        except tf.errors.OpError as error:
            raise OSError(error.message) from error

    def close(self) -> None:
        """Write what is left, as far as it can be."""
        if self._writer is not None:
            import tensorflow as tf

            with contextlib.suppress(tf.errors.OpError):
                self._writer.close()


def _metadata() -> Any:
    """That says that a point is one of TensorBoard's scalars."""
    from tensorflow.compat.v1 import SummaryMetadata

    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return SummaryMetadata(plugin_data=plugin)


def make_folder(path: str | Path) -> Path:
    """The folder of all runs' points, made before anything is trained.

    :raises ConfigError: it cannot be made.
    """
    folder = Path(path).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Cannot make the folder {path} for TensorBoard ({error.strerror or error}); give another."
        ) from error
    return folder
