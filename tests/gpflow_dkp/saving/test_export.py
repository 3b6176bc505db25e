"""A SavedModel predicts what the model does, in a process that imports TensorFlow alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_dkp import models
from gpflow_dkp.saving import SavingError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 2))
Y = np.sin(X[:, :1])
PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
for line in sys.stdin:
    model, arrays, out = line.rstrip("\\n").split("\\t")
    served = tf.saved_model.load(model)
    data = np.load(arrays)
    moments = served.predict_y(data["X"])
    first = served.predict_y(data["X"][:1])
    np.savez(
        out,
        mean=moments["mean"],
        variance=moments["variance"],
        first=first["mean"],
        quantiles=served.predict_quantiles(data["X"])["quantiles"]
        if hasattr(served, "predict_quantiles")
        else [],
        log_density=served.signatures["predict_log_density"](
            X=tf.constant(data["X"]), Y=tf.constant(data["Y"])
        )["log_density"],
    )
    assert not {"gpflow", "tensorflow_probability", "gpflow_dkp"} & set(sys.modules)
    print("done", flush=True)
"""
"""Serves a model for each line: the model's folder, the file of its data, and that of what comes out."""


class Server:
    """A process with TensorFlow alone; it is there when it has been asked first."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def serve(
        self, model: models.MonteCarloModel, folder: Path, targets: np.ndarray = Y, **settings: Any
    ) -> dict[str, np.ndarray]:
        """What it gives of the exported model."""
        model.export(folder / "served", **settings)
        np.savez(folder / "data.npz", X=X, Y=targets)
        files = [str(folder / name) for name in ("served", "data.npz", "out.npz")]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*files, sep="\t", file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n", self._log.read_text()
        return dict(np.load(folder / "out.npz"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server") / "log.txt")
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


@pytest.mark.parametrize("name", ["dwp", "lv-gp-gp"])
def test_tensorflow_alone_predicts_the_same(name: str, server: Server, tmp_path: Path) -> None:
    if name == "dwp":
        model: Any = models.DWP.from_data(X, Y, num_inducing=5)
    else:
        model = models.LatentVariableDGP.from_architecture("LV-GP-GP", (X, Y), num_inducing=5)
    levels = (0.1, 0.9)
    out = server.serve(model, tmp_path, num_samples=7, seed=3, levels=levels)
    posterior = model.posterior(7, seed=3)
    mean, variance = posterior.predict_y(X)
    np.testing.assert_allclose(out["mean"], mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(out["variance"], variance, rtol=1e-10)
    np.testing.assert_allclose(out["first"], mean[:1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        out["quantiles"], posterior.predict_quantiles(X, levels), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(
        out["log_density"], posterior.predict_log_density((X, Y)), rtol=1e-9, atol=1e-10
    )


def test_labels_of_classes_are_one_column(server: Server, tmp_path: Path) -> None:
    labels = np.digitize(X[:, :1], [-0.5, 0.5]).astype(float)
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = models.DWP.from_data(X, labels, num_inducing=5, likelihood=likelihood)
    out = server.serve(model, tmp_path, labels, num_samples=7, seed=3)
    posterior = model.posterior(7, seed=3)
    np.testing.assert_allclose(out["mean"], posterior.predict_y(X)[0], rtol=1e-10)
    np.testing.assert_allclose(
        out["log_density"], posterior.predict_log_density((X, labels)), rtol=1e-9
    )


def test_a_path_that_cannot_be_written_to_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = models.NNGP.from_data(X, Y, num_inducing=5)
    with pytest.raises(SavingError, match="cannot write"):
        model.export(tmp_path / "file" / "served")
    assert tf.executing_eagerly()
