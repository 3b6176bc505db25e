"""Deep kernel processes in TensorFlow and GPflow.

`models` are what to start with, `training.fit` trains them; `layers`, `gram`, `distributions` and
`bijectors` are what they are made of.
"""

from . import bijectors, distributions, gram, layers, models, training

__version__ = "0.1.0"

__all__ = ["bijectors", "distributions", "gram", "layers", "models", "training"]
