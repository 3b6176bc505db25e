"""Checkpoints from which a killed run goes on to the same numbers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from .history import History

_ABSENT = object()


class CheckpointError(ValueError):
    """The checkpoint directory holds nothing that this run can go on from, or cannot be written to.

    >>> import tempfile
    >>> model = gpflow_dkp.models.NNGP.from_data(X, Y, num_inducing=3)
    >>> with tempfile.NamedTemporaryFile() as file:  # where a folder is needed
    ...     gpflow_dkp.training.fit(model, (X, Y), num_steps=1, checkpoint_dir=file.name)
    Traceback (most recent call last):
        ...
    gpflow_dkp.training.checkpoint.CheckpointError: checkpoint_dir: cannot write ...
    """


class UnusableCheckpoint(CheckpointError):  # noqa: N818  # says what happened
    """The checkpoint is damaged, or of another run."""


class Checkpoints:
    """The state of one run in a directory: the newest complete checkpoint wins.

    A checkpoint is TensorFlow's, with the history beside it. Both are complete before the index
    file names them, and the index file is replaced in one move: a kill at any moment leaves the
    previous checkpoint in force.

    :param directory: made if absent; one run each.
    :param settings: what must agree for a run to go on.
    :param reasons: of settings' names, why they must.
    :param items: what `tf.train.Checkpoint` saves.
    """

    def __init__(
        self, directory: str | Path, settings: dict[str, Any], reasons: dict[str, str], **items: Any
    ) -> None:
        self._directory = Path(directory)
        self._reasons = reasons
        self._settings = json.loads(json.dumps(settings))
        self._items = items
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint_dir: cannot write {self._directory} ({error.strerror}); "
                "choose another directory"
            ) from error

    @property
    def _index(self) -> Path:
        return self._directory / "latest.json"

    def save(self, step: int, history: History) -> None:
        """Write the state after `step` steps, then drop the previous one.

        :raises CheckpointError: if it cannot be written, such as to a full disk; the previous one stays.
        """
        name = f"step-{step}"
        partial = self._index.with_suffix(".partial")
        try:
            if self._name_of_last() == name:
                name += "-again"  # what is in force is not written over
            index = {"name": name, "step": step, "settings": self._settings}
            history.save(self._directory / f"{name}.history.json")
            tf.train.Checkpoint(**self._items).write(str(self._directory / name))
            partial.write_text(json.dumps(index))
            # The files are on the disk before the index names them.
            for path in [*self._directory.glob(f"{name}.*"), partial]:
                _sync(path)
            partial.replace(self._index)
            if os.name == "posix":  # elsewhere a folder cannot be opened
                _sync(self._directory)
        except (OSError, tf.errors.OpError) as error:
            with contextlib.suppress(OSError):
                if self._name_of_last() != name:
                    self._remove(f"{name}[._]*")
            raise CheckpointError(
                f"checkpoint_dir: cannot write to {self._directory} ({error}); free space there or "
                "choose another directory"
            ) from error
        self._remove("step-*", but=name)

    def _name_of_last(self) -> str | None:
        """That of the checkpoint in force; None where there is none.

        :raises OSError: that cannot be seen.
        """
        try:
            name: str = json.loads(self._index.read_text())["name"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return name

    def _remove(self, pattern: str, but: str | None = None) -> None:
        """Remove checkpoints' files, and what is left of one half written."""
        for path in self._directory.glob(pattern):
            if path.name.split(".")[0] == but:
                continue
            with contextlib.suppress(OSError):
                if path.is_dir():  # TensorFlow's, while it writes
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def restore(self) -> tuple[int, History] | None:
        """Restore the items; the number of steps done and the history, or None if there is no checkpoint.

        :raises UnusableCheckpoint: if it belongs to other settings or is damaged.
        :raises CheckpointError: if it cannot be read, which says nothing of it.
        """
        if not self._index.exists():
            return None
        start_anew = f"remove {self._directory} to start anew"
        try:
            index = json.loads(self._index.read_text())
            settings, name, step = dict(index["settings"]), index["name"], int(index["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnusableCheckpoint(
                f"checkpoint {self._index} cannot be read; {start_anew}"
            ) from error
        except OSError as error:
            raise self._unread(error) from error
        # Those with reasons last: what they follow from may differ as well.
        for key in sorted(
            {*settings, *self._settings}, key=lambda key: (key in self._reasons, key)
        ):
            theirs, ours = _brief(settings, key), _brief(self._settings, key)
            if settings.get(key, _ABSENT) == self._settings.get(key, _ABSENT):
                continue
            because = f", {self._reasons[key]}" if key in self._reasons else ""
            raise UnusableCheckpoint(
                f"checkpoint {self._directory} is of another run: its {key} is {theirs}, this one's {ours}"
                f"{because}; use the same settings, or {start_anew}"
            )
        try:
            history = History.load(self._directory / f"{name}.history.json")
            status = tf.train.Checkpoint(**self._items).read(str(self._directory / name))
            status.assert_consumed()
        except tf.errors.ResourceExhaustedError as error:
            raise self._unread(error) from error
        except (
            FileNotFoundError,
            LookupError,
            ValueError,
            TypeError,
            AssertionError,
            tf.errors.OpError,
        ) as error:
            raise UnusableCheckpoint(
                f"checkpoint {self._directory / name} is incomplete or damaged; {start_anew}"
            ) from error
        except OSError as error:
            raise self._unread(error) from error
        return step, history

    def _unread(self, error: Exception) -> CheckpointError:
        """Of a checkpoint that may be good: such as of a network file system that does not answer."""
        reason = " ".join(str(error).split())[:200]
        return CheckpointError(
            f"checkpoint_dir: cannot read {self._directory} ({reason}); try again"
        )


def _sync(path: Path) -> None:
    """Wait until the system has written a file, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _brief(settings: dict[str, Any], key: str) -> str:
    """A setting in an error message."""
    if key not in settings:
        return "absent"
    text = str(settings[key])
    return text if len(text) < 100 else f"{text[:97]}..."
