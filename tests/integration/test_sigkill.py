"""SIGKILL a training process, start it again, and compare with one that nobody killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import json, sys
import gpflow, numpy as np
from gpflow_dkp.models import DWP
from gpflow_dkp.training import fit

directory, result = sys.argv[1:]
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(20, 1))
Y = np.sin(3.0 * X) + 0.1 * rng.normal(size=X.shape)
kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
model = DWP(kernels, gpflow.likelihoods.Gaussian(0.5), X[:4].copy(), widths=[2], num_samples=3)
history = fit(
    model, (X, Y), num_steps=1000, batch_size=7, kl_annealing_steps=300, seed=3,
    checkpoint_dir=directory, checkpoint_seconds=0.0, progress=False,
)
parameters = [variable.numpy().tolist() for variable in model.variables]
with open(result, "w") as file:
    json.dump([parameters, history.elbo, history.recoveries], file)
"""


def start(directory: Path, result: Path) -> subprocess.Popen:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(directory), str(result)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


def step_of(directory: Path) -> int:
    try:
        return int(json.loads((directory / "latest.json").read_text())["step"])
    except FileNotFoundError:
        return 0


def test_killed_run_ends_with_the_numbers_of_an_unbroken_one(tmp_path: Path) -> None:
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    process = start(killed, tmp_path / "never.json")
    deadline = time.monotonic() + 120
    try:
        while step_of(killed) < 150 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
    assert 150 <= step_of(killed) < 1000
    assert not (tmp_path / "never.json").exists()

    runs = [start(killed, tmp_path / "killed.json"), start(unbroken, tmp_path / "unbroken.json")]
    try:
        assert [run.wait(120) for run in runs] == [0, 0]
    finally:
        for run in runs:
            run.kill()
            run.wait(30)
    results = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("killed", "unbroken")]
    assert len(results[0][1]) == 1000
    assert results[0] == results[1]
