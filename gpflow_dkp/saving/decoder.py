"""Objects again, from JSON and arrays. No code of the file's is run: it has none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from .classes import class_named, function_named
from .container import SavingError


class Decoder:
    """What `Encoder` described.

    :param objects: of the description.
    :param arrays: by name.
    :param custom_objects: the reader's classes and functions by name.
    :param origin: what an error calls the file.
    """

    def __init__(
        self,
        objects: Sequence[Mapping[str, Any]],
        arrays: Mapping[str, np.ndarray],
        custom_objects: Mapping[str, Any],
        origin: str,
    ) -> None:
        self._described = objects
        self._arrays = arrays
        self._custom_objects = custom_objects
        self._origin = origin
        self._made: dict[int, Any] = {}
        self._ways: dict[str, Callable[[Any], Any]] = {
            "object": self._object,
            "float": float,
            "tensor": lambda v: tf.constant(self._arrays[v]),
            "numpy_scalar": lambda v: self._arrays[v][()],
            "array": lambda v: self._arrays[v].copy(),
            "strings": self._strings,
            "tensorflow_dtype": tf.as_dtype,
            "numpy_dtype": np.dtype,
            "numpy_type": lambda v: np.dtype(v).type,
            "function": lambda v: function_named(v, self._custom_objects, self._origin),
            "slice": lambda v: slice(*map(self.decode, v)),
            "list": lambda v: [self.decode(item) for item in v],
            "tuple": lambda v: tuple(self.decode(item) for item in v),
            "dict": lambda v: {self.decode(key): self.decode(item) for key, item in v},
        }

    def decode(self, value: Any) -> Any:
        """The value that JSON describes."""
        if not isinstance(value, dict):
            return value
        if "named_tuple" in value:
            cls: Any = self._class(value["named_tuple"])
            return cls._make(self.decode(item) for item in value["items"])
        if "strings" in value:
            return self._strings(value)
        ((way, content),) = value.items()
        return self._ways[way](content)

    def _object(self, number: int) -> Any:
        if number not in self._made:
            described = self._described[number]
            if "parameter" in described:
                self._made[number] = self._parameter(described)
            elif "variable" in described:
                self._made[number] = self._variable(described)
            elif "arguments" in described:
                self._made[number] = self._constructed(described)
            else:
                self._plain(number, described)
        return self._made[number]

    def _plain(self, number: int, described: Mapping[str, Any]) -> None:
        """An object with its attributes, which may hold it in turn."""
        cls: Any = self._class(described["class"])
        made = self._made[number] = cls.__new__(cls)
        is_module = isinstance(made, tf.Module)
        if is_module:
            tf.Module.__init__(made, name=described["name"])
        for name, attribute in described["attributes"].items():
            if not name.isidentifier() or name.startswith("__"):
                raise SavingError(f"{self._origin} has an attribute of the name {name!r}")
            if is_module:
                setattr(made, name, self.decode(attribute))
            else:
                vars(made)[name] = self.decode(attribute)

    def _parameter(self, described: Mapping[str, Any]) -> Parameter:
        unconstrained = self._arrays[described["parameter"]]
        transform = self.decode(described["transform"])
        # Made at an unconstrained 0, and then set to the values themselves: on the way through the
        # transform and back they would be rounded.
        parameter = Parameter(
            transform.forward(tf.zeros_like(unconstrained)),
            transform=transform,
            prior=self.decode(described["prior"]),
            prior_on=described["prior_on"],
            trainable=described["trainable"],
            dtype=unconstrained.dtype,
            name=described["name"],
            unconstrained_shape=described["unconstrained_shape"],
            constrained_shape=described["shape"],
        )
        parameter.unconstrained_variable.assign(unconstrained)
        return parameter

    def _variable(self, described: Mapping[str, Any]) -> tf.Variable:
        return tf.Variable(
            self._arrays[described["variable"]],
            trainable=described["trainable"],
            shape=tf.TensorShape(described["shape"]),
            name=described["name"],
        )

    def _constructed(self, described: Mapping[str, Any]) -> Any:
        cls = self._class(described["class"])
        if not issubclass(cls, (tfp.bijectors.Bijector, tfp.distributions.Distribution)):
            raise SavingError(f"{self._origin} gives arguments to {cls.__name__}, which takes none")
        arguments = {name: self.decode(v) for name, v in described["arguments"].items()}
        return cls(**arguments)

    def _class(self, name: str) -> type:
        return class_named(name, self._custom_objects, self._origin)

    def _strings(self, value: Mapping[str, Any]) -> np.ndarray:
        items = [self.decode(item) for item in value["strings"]]
        return np.array(items, dtype=value["dtype"]).reshape(value["shape"])


def check_custom_objects(custom_objects: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Names and classes or functions; none for None.

    :raises ValueError: for anything else.
    """
    custom_objects = {} if custom_objects is None else custom_objects
    if not isinstance(custom_objects, Mapping):
        raise ValueError(
            f"custom_objects: got {type(custom_objects).__name__}, needs a dictionary of classes by name"
        )
    for name, value in custom_objects.items():
        if not (isinstance(name, str) and (inspect.isclass(value) or callable(value))):
            raise ValueError(f"custom_objects: got {name!r}: {value!r}, needs classes by name")
    return custom_objects


def check_default_float(name: str, origin: str) -> None:
    """Raise `SavingError` unless GPflow's default float is that of the file."""
    if name != gpflow.default_float().__name__:
        raise SavingError(
            f"{origin} was saved with GPflow's default float {name}, this process has "
            f"{gpflow.default_float().__name__}; call gpflow.config.set_default_float(numpy.{name}) first"
        )
