"""Deep kernel processes in TensorFlow and GPflow."""

__version__ = "0.1.0"
