"""Settings of all tests: they spare time, and make what a test draws its own."""

import functools
import gc
import importlib
import itertools
import os
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
    # Before TensorFlow is imported. Two processes with a thread pool for every core each get in each other's
    # way, and the models of tests are too small for one. The processes that tests start inherit it.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

if sys.version_info < (3, 12):
    # Every operation asks `isinstance(value, Protocol)` a few times, and before Python 3.12, which keeps it,
    # each answer collects the protocol's attributes anew: a sixth of the time of eager tests.
    for function in ("_get_protocol_attrs", "_is_callable_members_only"):
        setattr(typing, function, functools.cache(getattr(typing, function)))

gc.set_threshold(50_000, 10, 10)
"""Traced functions are many objects that stay: to look for garbage among them as often as Python does by
default is 4.7 % of the time of tests, so rarely 2.6 %.
"""

STATES: dict[str, dict[str, Any]] = {}
TIMES = itertools.count()


@functools.cache
def uses_of_the_seed() -> list[int | None]:
    """One item for each of TensorFlow's random operations with a state since this list was emptied."""
    from tensorflow.python.framework import random_seed

    uses: list[int | None] = []
    get_seed = random_seed.get_seed

    def watched(op_seed: int | None) -> Any:
        uses.append(op_seed)
        return get_seed(op_seed)

    random_seed.get_seed = watched
    return uses


@functools.cache
def spare_the_cache_of_bijectors() -> None:
    """Bijectors keep what they computed, found again by a hash of their parts: a sixth of the time of
    tests, as each reading of a parameter asks, with a new tensor that is never found.
    """
    import tensorflow as tf
    from tensorflow_probability.python.bijectors.bijector import Bijector

    def call_forward(self: Bijector, x: Any, name: str, **arguments: Any) -> tf.Tensor:
        with tf.name_scope(name):
            return self._forward(tf.convert_to_tensor(x, dtype_hint=self.dtype), **arguments)

    Bijector._call_forward = call_forward


@functools.cache
def spare_the_stacks_of_operations() -> None:
    """Each operation of a graph keeps the stack that made it, which under pytest is deep."""
    from tensorflow.python.util import tf_stack

    stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: stack


AS_USERS_RUN_THEM = ("integration", "scripts")
"""Folders of examples, scripts, and what is compared with another process."""


def rewrite_graphs(wanted: bool) -> None:
    """Grappler rewrites each graph before its first step, for speed in steps that most tests do not take: a
    sixth of the time of tests that train. The processes that tests start have it, as users do.
    """
    import tensorflow as tf

    if tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"] == wanted:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not wanted})


def set_seed() -> None:
    """`tf.random.set_seed(0)` where it makes a difference: it drops all kernels, 0.1 s to make anew.
    Also each hundredth time, for their memory, some MB a test.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    if uses_of_the_seed() or context.global_seed() != 0 or next(TIMES) % 100 == 99:
        tf.random.set_seed(0)
        uses_of_the_seed().clear()


@pytest.fixture(autouse=True)
def same_numbers_in_every_order(request: pytest.FixtureRequest) -> None:
    """What a test draws does not depend on which tests ran before it in the same process."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        bits = rng.bit_generator
        bits.state = STATES.setdefault(request.module.__name__, bits.state)
    if "tensorflow" in sys.modules:
        spare_the_stacks_of_operations()
        rewrite_graphs(request.node.path.parent.name in AS_USERS_RUN_THEM)
        set_seed()
    if "tensorflow_probability" in sys.modules:
        spare_the_cache_of_bijectors()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `xdist_group` be heeded: pytest 9.2 reads a test's name where pytest-xdist 3.8 writes no group."""
    for item in items:
        with_group = getattr(item, "_nodeid", item.nodeid)
        if with_group != item.nodeid:
            item._id = type(item._id).parse(with_group)  # type: ignore[attr-defined]


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that commands would give to a worker process each are done in this one."""
    from worker_cases import do_jobs_here

    do_jobs_here(monkeypatch)


@pytest.fixture
def import_plugin_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of `benchmarks/` by its name; what it registers is forgotten after the test."""
    from bayesian_benchmarks.models import registry

    def import_plugin(name: str) -> Any:
        monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))
        monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return import_plugin
