"""Letting go of a compiled training, which TensorFlow and TensorFlow Probability would keep for ever.

Two tables of theirs are global. A custom gradient is registered under a new name each time that it is traced,
with a closure over its graph; and the cache of bijectors keeps the input of each call for as long as there is
its output, which is in the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.framework import ops

BRANCHES = ("body", "cond", "then_branch", "else_branch")
"""Attributes of operations that are graphs of the function itself, and not functions that it calls."""


FUNCTIONS = attrgetter("library.function")
"""Of a GraphDef, the functions that it calls and its loops and branches."""


def release(graph: tf.Graph) -> None:
    """Let a function's graph go with the function, which nothing is to differentiate any more.

    Functions that it calls stay as they are: others may call them, and differentiate them.
    """
    gradients = ops.gradient_registry._registry
    for name in _custom_gradients(graph.as_graph_def()):
        gradients.pop(name, None)
    storage = tfp.bijectors.Bijector._cache.storage
    for key in list(storage):
        if any(_is_within(tensor, graph) for tensor in tf.nest.flatten(key())):
            storage.pop(key, None)


def _custom_gradients(graph: Any) -> Iterator[str]:
    """The names of a GraphDef's custom gradients, those of its loops and branches too."""
    functions = {function.signature.name: function for function in FUNCTIONS(graph)}
    todo = [graph.node]
    while todo:
        for node in todo.pop():
            name = node.attr["_gradient_op_type"].s if "_gradient_op_type" in node.attr else b""
            if name:
                yield name.decode()
            for branch in BRANCHES:
                if branch in node.attr:
                    function = functions.pop(node.attr[branch].func.name, None)
                    if function is not None:
                        todo.append(function.node_def)


def _is_within(tensor: Any, graph: tf.Graph) -> bool:
    """Whether a tensor is of a graph, or of a loop or branch in it."""
    # An eager tensor's graph is an error to ask for.
    inner = getattr(tensor, "graph", None) if tf.is_symbolic_tensor(tensor) else None
    while inner is not None and inner is not graph:
        inner = getattr(inner, "outer_graph", None)
    return inner is graph
