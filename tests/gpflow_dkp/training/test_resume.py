"""A run that stops anywhere and is started again ends with the numbers of an unbroken one."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from fit_cases import numbers, toy_data, toy_model
from gpflow.kernels import Matern52

from gpflow_dkp.layers import SparseGP
from gpflow_dkp.models import DeepKernelProcess, LatentVariableDGP
from gpflow_dkp.training import CheckpointError, ExponentialDecay, History, fit
from gpflow_dkp.training.checkpoint import Checkpoints, UnusableCheckpoint

DATA = toy_data()


class Stop(Exception):  # noqa: N818
    """Stands for a kill."""


def stop_at(last: int):  # type: ignore[no-untyped-def]
    def callback(step: int) -> None:
        if step >= last:
            raise Stop

    return callback


def run(
    directory: Path | None, *, stop: int | None = None, depth: int = 1, **settings: Any
) -> tuple[DeepKernelProcess, History]:
    model = toy_model("DWP", depth)
    arguments = {
        "checkpoint_seconds": 0.0,
        "callbacks": [] if stop is None else [stop_at(stop)],
        "num_steps": 170,
        "batch_size": 7,
        "kl_annealing_steps": 30,
        "seed": 3,
        "validation_data": toy_data(5),
        "validation_steps": 50,
        **settings,
    }
    history = fit(
        model,
        DATA,
        checkpoint_dir=directory,
        progress=False,
        **arguments,
    )
    return model, history


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run of 60 steps, to be copied."""
    directory = tmp_path_factory.mktemp("finished")
    run(directory, num_steps=60)
    return directory


@pytest.fixture(scope="module")
def unbroken() -> list[Any]:
    """The numbers of a run that never stopped."""
    return numbers(*run(None))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of 50 steps of a run that was stopped after 100, to be copied."""
    directory = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Stop):
        run(directory, stop=100)
    return directory


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copied")


@pytest.fixture
def deep_unbroken() -> list[Any]:
    """The numbers of a run with a hidden layer: they are of random draws."""
    return numbers(*run(None, depth=2))


@pytest.fixture
def deep_stopped(tmp_path: Path) -> Path:
    """Where the same run was stopped after 100 steps."""
    with pytest.raises(Stop):
        run(tmp_path / "run", stop=100, depth=2)
    return tmp_path / "run"


def test_stopped_twice_and_started_again(deep_unbroken: list[Any], deep_stopped: Path) -> None:
    with pytest.raises(Stop):
        run(deep_stopped, stop=150, depth=2)
    assert numbers(*run(deep_stopped, depth=2)) == deep_unbroken


def test_run_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    model, history = run(tmp_path)
    names = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"latest", "step-170"}  # only the newest checkpoint is kept
    again, again_history = run(tmp_path, stop=0)
    assert numbers(again, again_history) == numbers(model, history)
    assert again_history == history
    assert float(again.kl_weight) == 1.0


def test_stop_before_the_first_checkpoint_starts_anew(tmp_path: Path, unbroken: list) -> None:
    with pytest.raises(Stop):
        run(tmp_path / "run", stop=50)
    assert numbers(*run(tmp_path / "run")) == unbroken


def test_interrupt_in_a_callback_leaves_a_checkpoint_of_that_step(tmp_path: Path) -> None:
    """Also where no checkpoint was due."""
    unbroken = numbers(*run(None))

    def interrupt(step: int) -> None:
        if step == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, callbacks=[interrupt], checkpoint_seconds=1e6)
    assert json.loads((tmp_path / "latest.json").read_text())["step"] == 100
    seen: list[int] = []
    resumed = run(tmp_path, callbacks=[seen.append])
    assert seen == [150, 170]
    assert numbers(*resumed) == unbroken


@pytest.mark.skipif(os.name != "posix", reason="no folder is synced elsewhere")
def test_checkpoints_are_on_the_disk_before_the_index_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of the step, with all that they hold; the folder with the new index after it."""
    synced: dict[int, int] = {}  # sizes by inode
    folder_synced: list[bool] = []
    named: list[set[str]] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_size
        if status.st_ino == tmp_path.stat().st_ino:
            folder_synced[-1] = True

    def checked_replace(path: Path, target: Path) -> Path:
        assert target == tmp_path / "latest.json"
        name = json.loads(path.read_text())["name"]
        files = [*tmp_path.glob(f"{name}.*"), path]
        for file in files:
            assert synced.get(file.stat().st_ino) == file.stat().st_size, file.name
        named.append({file.name.removeprefix(name) for file in files})
        synced.clear()
        folder_synced.append(False)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", checked_replace)
    run(tmp_path, num_steps=60)
    parts = {".index", ".data-00000-of-00001", ".history.json", "latest.partial"}
    assert named == [parts, parts]
    assert folder_synced == [True, True]


@pytest.mark.parametrize("name", ["write", "write_text", "replace"])
def test_kill_while_a_checkpoint_is_written_leaves_the_previous_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: Path, unbroken: list
) -> None:
    """At each of the three files, and before the move of the index."""
    directory = shutil.copytree(stopped, tmp_path / "copy")
    with monkeypatch.context() as patch:
        _stop_at_call_of(patch, name)
        with pytest.raises(Stop):
            run(directory)
    assert numbers(*run(directory)) == unbroken


def _stop_at_call_of(patch: pytest.MonkeyPatch, name: str) -> None:
    import tensorflow as tf

    owner: Any = tf.train.Checkpoint if name == "write" else Path
    original = getattr(owner, name)

    def stopping(self: Any, *arguments: Any, **settings: Any) -> Any:
        if name == "write_text":
            original(self, arguments[0][: len(arguments[0]) // 2])
        elif name == "write":
            original(self, *arguments, **settings)
        raise Stop

    patch.setattr(owner, name, stopping)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_steps": 101, "kl_annealing_steps": 59}, "kl_annealing_steps"),
        ({"batch_size": 8}, "batch_size"),
        ({"kl_annealing_steps": 10}, "kl_annealing_steps"),
        ({"learning_rate": 0.5}, "learning_rate"),
        ({"seed": 4}, "seed"),
        ({"depth": 2}, r"model.layers\[0\]"),
    ],
)
def test_checkpoint_of_other_settings(copied: Path, settings: dict, named: str) -> None:
    pattern = f"is of another run: its {named} is"
    with pytest.raises(CheckpointError, match=pattern) as raised:
        run(copied, **{"num_steps": 60, **settings})
    assert "\n" not in str(raised.value)
    assert str(copied) in str(raised.value)
    assert isinstance(raised.value, ValueError)


OTHER_DATA = {
    "another column": lambda X, Y: (X, Y + 1e-3 * X),
    "inputs in another order": lambda X, Y: (X[::-1].copy(), Y),
    "rows in another order": lambda X, Y: (X[::-1].copy(), Y[::-1].copy()),
    "two rows exchanged": lambda X, Y: (X[[1, 0, *range(2, len(X))]], Y[[1, 0, *range(2, len(Y))]]),
}


@pytest.mark.parametrize("name", OTHER_DATA)
def test_checkpoint_of_other_data(copied: Path, name: str) -> None:
    """Rows in another order are other minibatches, or other data altogether."""
    settings = {"num_steps": 60, "batch_size": 7, "kl_annealing_steps": 30, "seed": 3}
    with pytest.raises(CheckpointError, match="another run: its data"):
        fit(
            toy_model(),
            OTHER_DATA[name](*DATA),
            checkpoint_dir=copied,
            progress=False,
            **settings,
        )


@pytest.mark.parametrize("settings", [{"num_samples": 9}, {"jitter": 1e-3}, {"precision": "mixed"}])
def test_checkpoint_of_a_model_with_other_settings(copied: Path, settings: dict) -> None:
    """They change the numbers of every further step as the settings of `fit` do."""
    arguments = {"num_steps": 60, "batch_size": 7, "kl_annealing_steps": 30, "seed": 3}
    with pytest.raises(CheckpointError, match="is of another run"):
        fit(toy_model(**settings), DATA, checkpoint_dir=copied, progress=False, **arguments)


def fixed(part: gpflow.Module) -> gpflow.Module:
    gpflow.set_trainable(part, False)
    return part


def sparse_gp(whiten: bool) -> LatentVariableDGP:
    layer = SparseGP(gpflow.kernels.SquaredExponential(), DATA[0][:4], 1, whiten=whiten)
    return LatentVariableDGP([layer], gpflow.likelihoods.Gaussian(0.1), inference="vi")


def with_layer_jitter(jitter: float) -> DeepKernelProcess:
    model = toy_model("DWP", 2)
    model.hidden_layers[0].jitter = tf.Variable(jitter, trainable=False, dtype=tf.float64)
    return model


OTHER_MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "kernel": (
        toy_model,
        lambda: toy_model(kernels=[Matern52()]),
        r"model.layers\[0\].kernel is gpflow\.kernels\.\w+\.SquaredExponential, this one's .*Matern52",
    ),
    "likelihood": (
        toy_model,
        lambda: toy_model(likelihood=gpflow.likelihoods.StudentT(0.5)),
        r"model.likelihood is .*\.Gaussian, this one's .*\.StudentT",
    ),
    "whitening": (
        lambda: sparse_gp(True),
        lambda: sparse_gp(False),
        r"model.layers\[0\].whiten is True, this one's False",
    ),
    "fixed noise": (
        lambda: toy_model(likelihood=fixed(gpflow.likelihoods.Gaussian(0.1))),
        lambda: toy_model(likelihood=fixed(gpflow.likelihoods.Gaussian(0.5))),
        r"model.likelihood.variance.value is 0\.1, this one's 0\.5",
    ),
    "what is trained": (
        toy_model,
        lambda: toy_model(likelihood=fixed(gpflow.likelihoods.Gaussian(0.5))),
        r"model.likelihood.variance.trainable is True, this one's False",
    ),
    "jitter": (
        toy_model,
        lambda: toy_model(jitter=1e-3),
        r"model.jitter.value is 1e-06, this one's 0\.001",
    ),
    "a layer's jitter": (
        lambda: with_layer_jitter(1e-6),
        lambda: with_layer_jitter(1e-5),
        r"model.layers\[0\].jitter.value is 1e-06, this one's 1e-05",
    ),
    "weight of the KL term": (
        toy_model,
        lambda: weighted(0.3),
        r"model.kl_weight.value is 1\.0, this one's 0\.3",
    ),
    "link": (
        lambda: toy_model(likelihood=gpflow.likelihoods.Poisson()),
        lambda: toy_model(likelihood=gpflow.likelihoods.Poisson(invlink=tf.nn.softplus)),
        r"model.likelihood.invlink is .*, this one's .*softplus",
    ),
    "columns": (
        toy_model,
        lambda: toy_model(kernels=[gpflow.kernels.SquaredExponential(active_dims=[0])]),
        r"model.layers\[0\].kernel.active_dims is slice\(None, None, None\), this one's \[0\]",
    ),
}


def weighted(weight: float) -> DeepKernelProcess:
    model = toy_model()
    model.kl_weight.assign(weight)
    return model


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_checkpoint_of_another_model(tmp_path: Path, name: str) -> None:
    """Those parameters' shapes agree: nothing else would stop the run from going on as another model."""
    first, second, message = OTHER_MODELS[name]
    data = (DATA[0], np.round(np.abs(DATA[1])))
    settings = {"num_steps": 2, "checkpoint_dir": tmp_path, "progress": False}
    history = fit(first(), data, **settings)
    assert fit(first(), data, **settings) == history
    with pytest.raises(CheckpointError, match=f"is of another run: its {message}") as raised:
        fit(second(), data, **settings)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_longer_run_goes_on_from_the_end_of_a_shorter_one(tmp_path: Path) -> None:
    """Where nothing is a fraction of the steps; its numbers are those of a run of that length."""
    settings = {"learning_rate": ExponentialDecay(0.01, 0.5, 20), "kl_annealing_steps": 30}
    run(tmp_path, num_steps=70, **settings)
    longer = numbers(*run(tmp_path, num_steps=170, **settings))
    assert longer == numbers(*run(None, num_steps=170, **settings))
    with pytest.raises(CheckpointError, match=r"num_steps: got 70, .* has 170 steps already"):
        run(tmp_path, num_steps=70, **settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "kl_annealing_steps and learning_rate depends"),
        ({"learning_rate": 0.01}, "kl_annealing_steps depends"),
        ({"kl_annealing_steps": 3}, "learning_rate depends"),
        ({"kl_annealing_steps": 3, "learning_rate": 0.01, "patience": 9}, "patience depends"),
    ],
)
def test_a_longer_run_whose_schedule_is_another_says_why(
    tmp_path: Path, settings: dict, why: str
) -> None:
    settings = {"checkpoint_dir": tmp_path, "progress": False, "validation_data": DATA, **settings}
    fit(toy_model(), DATA, num_steps=4, **settings)
    pattern = f"its num_steps is 4, this one's 6, on which {why}"
    with pytest.raises(CheckpointError, match=pattern) as raised:
        fit(toy_model(), DATA, num_steps=6, **settings)
    assert "\n" not in str(raised.value)


def test_checkpoint_of_parameters_with_other_transforms(copied: Path) -> None:
    """The stored numbers are of the unconstrained parameters: they would mean other values."""
    model = toy_model()
    model.kernels[0].variance = gpflow.Parameter(1.0, transform=tfp.bijectors.Exp())
    arguments = {"num_steps": 60, "batch_size": 7, "kl_annealing_steps": 30, "seed": 3}
    with pytest.raises(
        CheckpointError, match=r"its model.layers\[0\].kernel.variance.transform is"
    ) as raised:
        fit(model, DATA, checkpoint_dir=copied, progress=False, **arguments)
    assert len(str(raised.value)) < 600


def test_checkpoint_of_parameters_with_other_priors(tmp_path: Path) -> None:
    """Also of two priors of one family: the rest of the run would go elsewhere."""

    def train(scale: float | None) -> None:
        model = toy_model()
        if scale is not None:
            prior = tfp.distributions.Normal(np.float64(0.0), np.float64(scale))
            model.kernels[0].variance.prior = prior
        fit(model, DATA, num_steps=2, checkpoint_dir=tmp_path, progress=False)

    train(1.0)
    train(1.0)  # is done already
    for scale in (2.0, None):
        with pytest.raises(
            CheckpointError, match=r"its model.layers\[0\].kernel.variance.prior is"
        ):
            train(scale)


def damage(directory: Path, name: str) -> None:
    """Harm one of the files in one way."""
    index = directory / "latest.json"
    if name == "no json":
        index.write_text("{")
    elif name == "empty index":
        index.write_text("")
    elif name == "list":
        index.write_text("[]")
    elif name == "no name":
        index.write_text(json.dumps({"step": 60}))
    elif name == "settings of another kind":
        content = json.loads(index.read_text())
        index.write_text(json.dumps({**content, "settings": [1]}))
    elif name == "step of another kind":
        content = json.loads(index.read_text())
        index.write_text(json.dumps({**content, "step": "many"}))
    elif name == "binary index":
        index.write_bytes(b"\xff\xfe\x00")
    elif name.startswith("history"):
        path = next(directory.glob("*.history.json"))
        text = path.read_text()
        if name == "history gone":
            path.unlink()
        elif name == "history truncated":
            path.write_text(text[: len(text) // 2])
        elif name == "history of nothing":
            path.write_text("{}")
        else:
            path.write_text('{"elbo": [], "validation": [], "colour": 1}')
    else:
        path = next(directory.glob("step-*.data-*" if "data" in name else "step-*.index"))
        content = path.read_bytes()
        if "gone" in name:
            path.unlink()
        elif "truncated" in name:
            path.write_bytes(content[: len(content) // 2])
        else:
            path.write_bytes(b"")


@pytest.mark.parametrize(
    "name",
    [
        "no json",
        "empty index",
        "list",
        "no name",
        "settings of another kind",
        "step of another kind",
        "binary index",
        "history gone",
        "history truncated",
        "history of nothing",
        "history of another kind",
        "data gone",
        "data truncated",
        "data empty",
        "tensor index gone",
        "tensor index truncated",
        "tensor index empty",
    ],
)
def test_damaged_checkpoint_is_one_clear_line(copied: Path, name: str) -> None:
    damage(copied, name)
    with pytest.raises(CheckpointError, match=f"{copied}.*remove {copied}") as raised:
        run(copied, num_steps=60)
    assert "\n" not in str(raised.value)


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match="checkpoint_dir: cannot write") as raised:
            run(directory, num_steps=60)
        assert "\n" not in str(raised.value)


def test_checkpoint_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only disk, met at the first checkpoint."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(CheckpointError, match=f"{tmp_path}"):
        run(tmp_path, num_steps=60)


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def half(path: Path, text: str, *_: Any) -> None:
    path.write_bytes(text[: len(text) // 2].encode())
    full()


PLACES: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "sync": (os, "fsync", full),
    "half a file": (Path, "write_text", half),
    "move": (Path, "replace", full),
    "tensors": (tf.train.Checkpoint, "write", full),
}


@pytest.mark.parametrize("places", [("sync", "half a file"), ("move", "tensors")])
@pytest.mark.parametrize("has_one", [False, True])
def test_a_full_disk_leaves_the_checkpoint_that_is_there(
    places: tuple[str, str],
    has_one: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped: Path,
    unbroken: list,
) -> None:
    """Or none, whichever of the new checkpoint's files is the first that has no room."""
    directory = tmp_path / "run"
    if has_one:
        shutil.copytree(stopped, directory)
    else:
        directory.mkdir()
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert bool(before) == has_one
    for name in places:
        with monkeypatch.context() as nearly_full:
            nearly_full.setattr(*PLACES[name])
            with pytest.raises(CheckpointError, match="No space left on device"):
                run(directory)
        left = {path.name: path.read_bytes() for path in directory.glob("[!.]*")}
        left.pop("latest.partial", None)
        assert left == before
    assert numbers(*run(directory)) == unbroken


def test_a_checkpoint_is_not_written_over_itself(tmp_path: Path) -> None:
    for _ in range(3):  # such as of a run that goes back
        checkpoints = Checkpoints(tmp_path, {}, {}, x=tf.Variable(1.0))
        checkpoints.save(5, History([0.1] * 5))
        names = {path.name.split(".")[0] for path in tmp_path.glob("step-*")}
        assert names == {json.loads((tmp_path / "latest.json").read_text())["name"]}
        assert checkpoints.restore() is not None


def test_a_checkpoint_that_cannot_be_read_now_is_not_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, num_steps=60)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(CheckpointError, match=r"cannot read .*Input/output error") as caught:
        run(tmp_path, num_steps=60)
    assert not isinstance(caught.value, UnusableCheckpoint)


def test_history_survives_its_file(tmp_path: Path) -> None:
    history = History([0.1, np.pi], [(2, -1.5)], [1], 2.0, 1.0, 7)
    history.save(tmp_path / "history.json")
    assert History.load(tmp_path / "history.json") == history


def test_checkpoint_of_a_string_path_and_a_nested_directory(tmp_path: Path) -> None:
    directory = str(tmp_path / "some" / "where")
    model = toy_model()
    fit(model, DATA, num_steps=2, checkpoint_dir=directory, progress=False)
    assert (Path(directory) / "latest.json").exists()


def test_seed_of_numpys_integer_type(tmp_path: Path) -> None:
    model = toy_model()
    settings = {"num_steps": 2, "checkpoint_dir": tmp_path, "progress": False}
    history = fit(model, DATA, seed=np.int64(3), **settings)
    assert fit(toy_model(), DATA, seed=3, **settings) == history
