"""Objects as JSON and arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter

from .classes import custom_name, name_of_class, name_of_function
from .container import SavingError

MODULE_STATE = ("_name", "_scope_name", "_name_scope", "_obj_reference_counts_dict")
"""What TensorFlow keeps in every `tf.Module`."""


class Encoder:
    """Objects by what they are made of.

    JSON has None, booleans, numbers and strings as they are, and all else as an object of one name that says
    how to read it. What several others may hold stands once in `objects`, and is named by its number.

    Attributes: `arrays`, by the path at which each was met first; `objects`; and `custom_classes`, by name.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.objects: list[dict[str, Any]] = []
        self.custom_classes: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def encode(self, value: Any, path: str) -> Any:
        """JSON of a value.

        :param path: where it was met, for arrays' names and errors.
        :raises SavingError: for what cannot be saved.
        """
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        for types, encode in self._ways():
            if isinstance(value, types):
                return encode(value, path)
        if inspect.isclass(value) and issubclass(value, np.generic):
            return {"numpy_type": value.__name__}
        if inspect.isroutine(value):
            return {"function": name_of_function(value, path)}
        return self._reference(value, path, self._plain)

    def _ways(self) -> list[tuple[Any, Callable[[Any, str], Any]]]:
        """How each type is encoded, the first that applies."""
        return [
            (Parameter, lambda v, path: self._reference(v, path, self._parameter)),
            (tf.Variable, lambda v, path: self._reference(v, path, self._variable)),
            (tfp.bijectors.Bijector, lambda v, path: self._reference(v, path, self._constructed)),
            (
                tfp.distributions.Distribution,
                lambda v, path: self._reference(v, path, self._constructed),
            ),
            (tf.Tensor, lambda v, path: {"tensor": self._array(v.numpy(), path)}),
            (np.generic, lambda v, path: {"numpy_scalar": self._array(np.asarray(v), path)}),
            (np.ndarray, self._numpy),
            (tf.DType, lambda v, _: {"tensorflow_dtype": v.name}),
            (np.dtype, lambda v, _: {"numpy_dtype": v.name}),
            (
                slice,
                lambda v, path: {
                    "slice": [self.encode(x, path) for x in (v.start, v.stop, v.step)]
                },
            ),
            (tuple, self._tuple),
            (list, lambda v, path: {"list": self._items(v, path)}),
            (dict, self._dict),
        ]

    def _reference(
        self, value: Any, path: str, encode: Callable[[Any, str], dict]
    ) -> dict[str, int]:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.objects)
            self._alive.append(value)  # so that no other gets its id
            self.objects.append({})
            self.objects[number] = encode(value, path)
        return {"object": number}

    def _plain(self, value: Any, path: str) -> dict[str, Any]:
        """An object by its attributes."""
        cls, encoded = self._class_of(value, path), {}
        left_out = {*MODULE_STATE, *getattr(value, "NOT_SAVED", ())}
        for name, attribute in vars(value).items():
            if name in left_out or name.startswith("_self_"):
                continue
            if isinstance(attribute, tf.types.experimental.PolymorphicFunction):
                continue
            encoded[name] = self.encode(attribute, f"{path}.{name}" if path else name)
        description = {"class": cls, "attributes": encoded}
        if isinstance(value, tf.Module):
            description["name"] = value.name
        return description

    def _parameter(self, value: Parameter, path: str) -> dict[str, Any]:
        variable = value.unconstrained_variable
        return {
            "parameter": self._array(variable.numpy(), path),
            "transform": self.encode(value.transform, f"{path}.transform"),
            "prior": self.encode(value.prior, f"{path}.prior"),
            "prior_on": value.prior_on.value,
            "trainable": value.trainable,
            "unconstrained_shape": variable.shape.as_list(),
            "shape": value.shape.as_list(),
            "name": value.name,
        }

    def _variable(self, value: tf.Variable, path: str) -> dict[str, Any]:
        return {
            "variable": self._array(value.numpy(), path),
            "trainable": value.trainable,
            "shape": value.shape.as_list(),
            "name": value.name.split(":")[0],
        }

    def _constructed(self, value: Any, path: str) -> dict[str, Any]:
        """A bijector or a distribution by its constructor's arguments."""
        accepted = inspect.signature(type(value).__init__).parameters
        if value.parameters is None:
            raise SavingError(
                f"{path}: got a {type(value).__name__} that does not know its arguments; it needs to give "
                "parameters=dict(locals()) to its base class, as TensorFlow Probability's do"
            )
        arguments = {
            name: self.encode(argument, f"{path}.{name}")
            for name, argument in value.parameters.items()
            if name in accepted and name != "self"
        }
        return {"class": self._class_of(value, path), "arguments": arguments}

    def _class_of(self, value: Any, path: str) -> str:
        name = name_of_class(type(value))
        if name is not None:
            return name
        name = custom_name(value, path)
        other = self.custom_classes.setdefault(name, type(value))
        if other is not type(value):
            raise SavingError(
                f"{path}: got two classes of the name {name}, of {other.__module__} and "
                f"{type(value).__module__}; rename one"
            )
        return name

    def _array(self, value: np.ndarray, path: str) -> str:
        if value.dtype.kind not in "fiub":
            raise SavingError(f"{path}: got an array of {value.dtype}, needs numbers")
        name = path or "value"
        while name in self.arrays:
            name += "'"
        self.arrays[name] = value
        return name

    def _numpy(self, value: np.ndarray, path: str) -> dict[str, Any]:
        if value.dtype.kind not in "OU":
            return {"array": self._array(value, path)}
        items = value.ravel().tolist()
        if any(item is not None and type(item) not in (str, bool, int, float) for item in items):
            raise SavingError(f"{path}: got an array of objects, needs numbers or strings")
        return {
            "strings": [self.encode(item, path) for item in items],
            "shape": list(value.shape),
            "dtype": "object" if value.dtype.kind == "O" else "str",
        }

    def _items(self, value: Any, path: str) -> list[Any]:
        return [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]

    def _tuple(self, value: tuple, path: str) -> dict[str, Any]:
        if hasattr(value, "_fields"):
            name = name_of_class(type(value)) or custom_name(value, path)
            return {"named_tuple": name, "items": self._items(value, path)}
        return {"tuple": self._items(value, path)}

    def _dict(self, value: dict, path: str) -> dict[str, Any]:
        return {
            "dict": [
                [self.encode(key, path), self.encode(item, f"{path}[{key!r}]")]
                for key, item in value.items()
            ]
        }
