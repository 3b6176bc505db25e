"""Classes and functions by name: GPflow's, this package's, TensorFlow Probability's, and the user's own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp

from ..networks import ACTIVATIONS
from .container import SavingError

PACKAGES = ("gpflow", "gpflow_dkp")
"""Whose classes a file may name."""

TFP_MODULES = {"tfp.bijectors": tfp.bijectors, "tfp.distributions": tfp.distributions}

FUNCTIONS: dict[str, Callable] = {
    "tf.exp": tf.exp,
    "tf.identity": tf.identity,
    "tf.sigmoid": tf.sigmoid,
    "tf.square": tf.square,
    "tf.nn.softplus": tf.nn.softplus,
    "gpflow.likelihoods.utils.inv_probit": gpflow.likelihoods.utils.inv_probit,
    **{f"gpflow_dkp.networks.{name}": function for name, function in ACTIVATIONS.items()},
}
"""Those that a file may name."""


def import_contents() -> None:
    """Import all that this package has, so that its classes are there by name."""
    package = importlib.import_module(PACKAGES[1])
    for name in package.__all__:
        getattr(package, name)


def name_of_class(cls: type) -> str | None:
    """The shortest public name, None for a class that is neither GPflow's nor this package's."""
    parts = cls.__module__.split(".")
    if parts[0] in PACKAGES:
        for end in range(1, len(parts) + 1):
            module = ".".join(parts[:end])
            if getattr(sys.modules.get(module), cls.__qualname__, None) is cls:
                return f"{module}.{cls.__qualname__}"
    for prefix, library in TFP_MODULES.items():
        # TFP's constructors may return a private twin, as of Chain a _Chain.
        public = getattr(library, cls.__name__.removeprefix("_"), None)
        if inspect.isclass(public) and issubclass(public, cls):
            return f"{prefix}.{public.__name__}"
    return None


def class_named(name: str, custom_objects: Mapping[str, Any], origin: str) -> type:
    """The class of a name that a file gives.

    :raises SavingError: for one that this version does not have, or that `custom_objects` is to have.
    """
    module, _, attribute = name.rpartition(".")
    if not module:
        found = custom_objects.get(name)
        if not inspect.isclass(found):
            raise SavingError(
                f"{origin} has a {name}, which is neither GPflow's nor gpflow_dkp's; give the class by "
                f"load(path, custom_objects={{{name!r}: {name}}})"
            )
        return found
    if module.split(".")[0] in PACKAGES:
        # Only what is imported already: a name in a file is not to import anything.
        found = getattr(sys.modules.get(module), attribute, None)
    else:
        found = getattr(TFP_MODULES.get(module), attribute, None)
    if not inspect.isclass(found):
        raise SavingError(
            f"{origin} has a {name}, which the versions installed here do not have; install those that it "
            "was saved with"
        )
    return found


def custom_name(value: Any, path: str) -> str:
    """The name under which `custom_objects` is to have the class of `value`.

    :raises SavingError: for an object of which attributes are not all.
    """
    cls = type(value)
    root = cls.__module__.split(".")[0]
    ours = any(base.__module__.split(".")[0] in PACKAGES for base in cls.__mro__)
    keeps_all = isinstance(value, tf.Module) or dataclasses.is_dataclass(cls) or ours
    if not keeps_all or root in ("keras", "tf_keras", "tensorflow", "tensorflow_probability"):
        raise SavingError(
            f"{path}: got a {cls.__module__}.{cls.__qualname__}, which cannot be saved; allowed are GPflow's "
            "and gpflow_dkp's classes, and those of yours that are a tf.Module or a dataclass"
        )
    return cls.__name__


def name_of_function(function: Callable, path: str) -> str:
    """The name of a function, or that under which `custom_objects` is to have it.

    :raises SavingError: for one without a name.
    """
    for name, known in FUNCTIONS.items():
        if known is function:
            return name
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise SavingError(
            f"{path}: got the function {function!r}, which has no name and cannot be saved; define it by def"
        )
    return name


def function_named(name: str, custom_objects: Mapping[str, Any], origin: str) -> Callable:
    """The function of a name that a file gives."""
    function = FUNCTIONS.get(name, custom_objects.get(name))
    if not callable(function):
        raise SavingError(
            f"{origin} has a function {name}, which is none of gpflow_dkp's; give it by "
            f"load(path, custom_objects={{{name!r}: {name}}})"
        )
    return function
