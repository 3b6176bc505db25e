"""Settings of all tests: they spare time, and make what a test draws its own."""

import functools
import os
import sys
import typing
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

STATES: dict[str, dict[str, Any]] = {}


@pytest.fixture(autouse=True)
def same_numbers_in_every_order(request: pytest.FixtureRequest) -> None:
    """What a test draws does not depend on which tests ran before it in the same process."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        bits = rng.bit_generator
        bits.state = STATES.setdefault(request.module.__name__, bits.state)
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(0)


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
