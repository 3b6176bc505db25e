"""Settings of all tests that spare time and change no number of a model."""

import functools
import os
import sys
import typing

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
