"""Models as files: all that a prediction needs in one safetensors file, which runs no code when it is read.

`save` and `load`, and `dumps` and `loads` for bytes. A file has every object by the name of its class, which
is one of GPflow's or of this package's, or of the reader's `custom_objects`, with its attributes; parameters
by their unconstrained values, transforms, priors and whether they are trained. Objects that several others
hold are one again. `MonteCarloModel.export` writes predictions for processes with TensorFlow alone.
"""

from .container import FORMAT_VERSION, SavingError
from .saved import dumps, load, loads, save

__all__ = ["FORMAT_VERSION", "SavingError", "dumps", "load", "loads", "save"]
