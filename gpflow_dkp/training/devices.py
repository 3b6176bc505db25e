"""A step's work shared by several devices: to each some of its samples, or some rows of one sample.

The variables and the optimiser stay where they are. Each device computes the objective's share and its
gradient; both are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import tensorflow as tf

from ..checks import brief
from ..random import PartOfSeed, Points, Seed, part_of_seed
from .data import Minibatch

OF_OTHER_DEVICES = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.experimental.MultiWorkerMirroredStrategy,
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.ParameterServerStrategy,
)


class Share(NamedTuple):
    """What one device does of a step: samples `start` to `stop` of S, and of their rows one of some groups.

    :param device: None for TensorFlow's choice.
    :param samples: S.
    :param groups: in which the rows are divided, nearly equal; more than one for a single sample only.
    """

    device: str | None = None
    start: int = 0
    stop: int = 1
    samples: int = 1
    group: int = 0
    groups: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the step."""
        return self.stop - self.start == self.samples and self.groups == 1

    def on_device(self) -> AbstractContextManager:
        """Where its operations run."""
        return nullcontext() if self.device is None else tf.device(self.device)

    def part_of(self, batch: Minibatch) -> Minibatch:
        """The rows that it has of a minibatch."""
        if self.groups == 1:
            return batch
        first, end, size = self._points(batch)
        data = None if batch.data is None else tuple(part[first:end] for part in batch.data)
        rows = batch.rows
        if rows is None and isinstance(size, int):  # otherwise it is not known which they are
            rows = tf.range(size)
        return Minibatch(data, None if rows is None else rows[first:end], end - first)

    def seed_of(self, seed: Seed, batch: Minibatch) -> PartOfSeed:
        """The seed of the random numbers that it has of a step's."""
        points = None if self.groups == 1 else self._points(batch)
        return part_of_seed(seed, slice(self.start, self.stop), self.samples, points)

    def of_samples(self, dtype: tf.DType) -> tf.Tensor:
        """Its part of the samples []."""
        return tf.constant((self.stop - self.start) / self.samples, dtype)

    def of_work(self, batch: Minibatch, dtype: tf.DType) -> tf.Tensor:
        """Its part of the samples' rows []."""
        first, end, size = self._points(batch)
        return self.of_samples(dtype) * tf.cast(end - first, dtype) / tf.cast(size, dtype)

    def _points(self, batch: Minibatch) -> Points:
        first, end = (i * batch.size // self.groups for i in (self.group, self.group + 1))
        return Points(first, end, batch.size)


def shares_of(devices: Sequence[str], samples: int, rows: int | None) -> list[Share]:
    """Nearly equal shares of a step of S samples, one a device; rows are divided where devices are left.

    :param samples: S.
    :param rows: of a minibatch, None where that differs: no device is left without one.
    """
    number = len(devices)
    if number <= samples:
        ends = [(i + 1) * samples // number for i in range(number)]
        starts = [0, *ends[:-1]]
        return [
            Share(device, start, stop, samples)
            for device, start, stop in zip(devices, starts, ends, strict=True)
        ]
    shares = []
    for sample in range(samples):
        own = devices[sample::samples][:rows]
        shares += [
            Share(device, sample, sample + 1, samples, group, len(own))
            for group, device in enumerate(own)
        ]
    return shares


def devices_of(strategy: tf.distribute.Strategy | None) -> list[str]:
    """The devices that a strategy has on this machine, none of None and of the default strategy.

    :raises ValueError: for what is no strategy, or has other devices.
    """
    needs = "needs a tf.distribute strategy of CPUs or GPUs of this process, as MirroredStrategy, or None"
    if strategy is None:
        return []
    if not isinstance(strategy, tf.distribute.Strategy):
        raise ValueError(f"strategy: got {brief(strategy)}, {needs}")
    if isinstance(strategy, OF_OTHER_DEVICES):
        kind = type(strategy).__name__
        raise ValueError(f"strategy: got a {kind}, of TPUs or several machines, {needs}")
    try:
        devices = [str(device) for device in strategy.extended.worker_devices]
    except RuntimeError:  # the default strategy
        return []
    here = {
        (device.device_type, _index(device.name)) for device in tf.config.list_logical_devices()
    }
    for device in devices:
        spec = tf.DeviceSpec.from_string(device)
        known = (spec.device_type, spec.device_index or 0) in here
        if spec.device_type not in ("CPU", "GPU") or spec.task not in (None, 0) or not known:
            raise ValueError(f"strategy: got one with the device {device}, {needs}")
    return devices


def check_variables(model: tf.Module) -> None:
    """Raise `ValueError` for variables that a strategy has copies of."""
    if any(isinstance(variable, tf.distribute.DistributedValues) for variable in model.variables):
        raise ValueError(
            "strategy: the model was made in a strategy's scope, needs ordinary variables; make it outside"
        )


def _index(device: str) -> int:
    return int(tf.DeviceSpec.from_string(device).device_index or 0)
