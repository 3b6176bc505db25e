"""Out-of-distribution detection: pairs of datasets, the scores against direct counts, the registration."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from bayesian_benchmarks import get_dataset, load_experiment, register_dataset, run_task
from bayesian_benchmarks.datasets import (
    ClassificationDataset,
    FeatureScaling,
    OodDataset,
    OodSplitData,
    SplitData,
    TableDataset,
    list_datasets,
    ood_pairs,
)
from bayesian_benchmarks.errors import BadDataError, ConfigError, DataFileError, UnknownNameError
from bayesian_benchmarks.report import summarise
from bayesian_benchmarks.settings import OodSettings
from bayesian_benchmarks.store import ResultRow
from bayesian_benchmarks.tasks import directions, find_task, list_tasks, metrics_of
from bayesian_benchmarks.tasks.classification_metrics import entropy
from bayesian_benchmarks.tasks.ood import METRICS, auroc, evaluate
from bayesian_benchmarks.tasks.training import bound

PAIRS = [
    *("cifar10_vs_svhn", "digits_noisy", "digits_rotated"),
    *("fashion_mnist_vs_mnist", "mnist_10k_halves", "mnist_vs_fashion_mnist"),
]
SETTINGS = OodSettings(
    num_steps=4,
    kl_annealing_steps=1,
    num_inducing=8,
    elbo_samples=2,
    test_samples=3,
    likelihood_samples=2,
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(14, 3))
LABELS = np.arange(12) % 3


def make_pair(**changes: Any) -> OodDataset:
    parts = {"X_train": X[:9], "Y_train": LABELS[:9], "X_test": X[9:12], "Y_test": LABELS[9:]}
    data = OodSplitData(**({**parts, "X_ood": X[10:]} | changes))
    return OodDataset.from_split("made-up", 0, data)


def pairs_in_order(inside: np.ndarray, outside: np.ndarray) -> float:
    """The Mann-Whitney statistic by its definition: pairs with the larger score outside, ties half."""
    wins = sum(float(b > a) + 0.5 * float(b == a) for a in inside for b in outside)
    return wins / (len(inside) * len(outside))


# Scores


def test_auroc_counts_pairs() -> None:
    inside, outside = RNG.normal(size=40), RNG.normal(size=25) + 0.5
    assert auroc(inside, outside) == pytest.approx(pairs_in_order(inside, outside))
    ties = np.round(inside), np.round(outside)
    assert auroc(*ties) == pytest.approx(pairs_in_order(*ties))
    assert auroc(inside, inside.max() + 1.0 + outside**2) == 1.0
    assert auroc(np.zeros(3), np.zeros(4)) == 0.5


def test_entropy_is_of_each_point_and_takes_zeros() -> None:
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    expected = [-sum(x * np.log(x) for x in row if x > 0) for row in p]
    np.testing.assert_allclose(entropy(p), expected)
    np.testing.assert_allclose(entropy(p)[[0, 1, 3]], [np.log(2), 0.0, np.log(3)])


class Classifier:
    """A linear softmax in two samples, with a variance of f for each class; records what is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.weights = np.random.default_rng(1).normal(size=(2, 3, 3))

    def elbo(self, data: Any, **_: object) -> float:
        return -1.5 * 9

    def predict_mixture(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        self.asked.append((num_samples, seed))
        logits = X @ self.weights
        mean = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return mean, mean

    def predict_f(self, X: np.ndarray, *, num_samples: int, seed: int) -> Any:
        self.asked.append((num_samples, seed))
        return X, X**2 * [1.0, 2.0, 3.0]


def test_scores_are_those_of_their_definitions() -> None:
    model, data = Classifier(), make_pair(X_ood=RNG.normal(size=(30, 3)) * 2.0)
    scores = evaluate(model, data, settings=SETTINGS, seed=7)
    assert set(model.asked) == {(3, 7)}
    p, q = (
        np.mean(model.predict_mixture(x, num_samples=3, seed=7)[0], axis=0)
        for x in (data.X_test, data.X_ood)
    )
    direct = {
        "auroc_entropy": [-(r * np.log(r)).sum(1) for r in (p, q)],
        "auroc_max_probability": [1.0 - r.max(1) for r in (p, q)],
        "auroc_variance": [(x**2 @ [1.0, 2.0, 3.0]) / 3.0 for x in (data.X_test, data.X_ood)],
    }
    for name, (inside, outside) in direct.items():
        assert scores[name] == pytest.approx(pairs_in_order(inside, outside)), name
    labels = data.Y_test[:, 0]
    assert scores["accuracy"] == np.mean(p.argmax(1) == labels)
    assert scores["test_log_likelihood"] == pytest.approx(np.log(p[np.arange(3), labels]).mean())
    bounds = bound(model, (data.X_train, data.Y_train), settings=SETTINGS)
    assert bounds["elbo_per_point"] == pytest.approx(-1.5)
    assert (scores["num_test_points"], scores["num_ood_points"]) == (3.0, 30.0)


def test_a_variance_that_is_not_finite_is_said_so() -> None:
    class Broken(Classifier):
        def predict_f(self, X: np.ndarray, **_: Any) -> Any:
            return X, np.full_like(X, np.nan)

    with pytest.raises(FloatingPointError, match="a predicted variance of the trained model is"):
        evaluate(Broken(), make_pair(), settings=SETTINGS)


def test_a_short_ood_run_has_every_metric() -> None:
    scores = run_task(get_dataset("digits_rotated", task="ood"), "nngp:relu", settings=SETTINGS)
    assert set(METRICS) - set(scores) <= {"seconds_per_step", "epoch_seconds"}
    assert scores["num_test_points"] == scores["num_ood_points"] == 179.0
    assert all(0.0 <= scores[name] <= 1.0 for name in METRICS if name.startswith("auroc"))


# Datasets


def test_the_other_distribution_has_the_training_parts_scaling() -> None:
    data = make_pair()
    np.testing.assert_allclose(data.X_ood, (X[10:] - X[:9].mean(0)) / X[:9].std(0), atol=1e-12)
    np.testing.assert_allclose(data.X_ood[:2], data.X_test[1:], atol=1e-12)
    assert isinstance(data.scaling, FeatureScaling)
    assert (data.N, data.D, data.num_classes) == (12, 3, 3)


def test_rotated_digits() -> None:
    data, digits = get_dataset("digits_rotated", 2), get_dataset("digits", 2)
    assert isinstance(data, OodDataset)
    assert not isinstance(digits, OodDataset)
    assert isinstance(digits, ClassificationDataset)
    for part in ("X_train", "Y_train", "X_test", "Y_test"):
        np.testing.assert_array_equal(getattr(data, part), getattr(digits, part))
    pictures = data.X_test.reshape(-1, 8, 8)
    turned = np.stack([np.rot90(picture) for picture in pictures]).reshape(-1, 64)
    np.testing.assert_array_equal(data.X_ood, turned)


def test_noisy_digits_are_the_same_each_time() -> None:
    data, again, other = (get_dataset("digits_noisy", split) for split in (1, 1, 2))
    assert isinstance(data, OodDataset)
    np.testing.assert_array_equal(data.X_ood, again.X_ood)  # type: ignore[union-attr]
    pixels = data.scaling.restore_X(data.X_ood)
    assert (pixels.min(), pixels.max()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(16.0))
    inner = np.abs(data.scaling.restore_X(data.X_test) - 8.0) < 3.0
    assert (data.X_ood - data.X_test)[inner].std() * data.scaling.X_std == pytest.approx(4, rel=0.1)
    assert not np.array_equal(other.X_ood, data.X_ood)  # type: ignore[union-attr]


def write_images(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    """MNIST's format."""
    folder.mkdir(exist_ok=True)
    for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        (folder / f"{part}-{kind}-ubyte").write_bytes(head + values.astype(np.uint8).tobytes())


@pytest.fixture
def local_images(tmp_path: Path) -> Path:
    """Small images in the layout of the published ones."""
    for name, size in (("mnist", 6), ("fashion_mnist", 6)):
        for part, number in (("train", 50), ("t10k", 100)):
            pixels = RNG.integers(0, 256, size=(number, size, size))
            write_images(tmp_path / name, part, pixels, np.arange(number) % 10)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
        batch = {
            "data": RNG.integers(0, 256, size=(20, 3072)),
            "labels": (np.arange(20) % 10).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    return tmp_path


def test_halves_of_mnist(local_images: Path) -> None:
    data = get_dataset("mnist_10k_halves", 1, data_dir=local_images)
    assert isinstance(data, OodDataset)
    assert (len(data.X_train), len(data.X_test), len(data.X_ood)) == (40, 10, 50)
    assert data.num_classes == 5
    raw = (local_images / "mnist" / "t10k-images-idx3-ubyte").read_bytes()[16:]
    images = np.frombuffer(raw, np.uint8).reshape(100, 36)
    np.testing.assert_allclose(
        data.scaling.restore_X(data.X_ood), images[np.arange(100) % 10 >= 5], atol=1e-9
    )


def test_real_halves_of_mnist(real_data: Path) -> None:
    data = get_dataset("mnist_10k_halves", data_dir=real_data)
    assert isinstance(data, OodDataset)
    assert (len(data.X_train) + len(data.X_test), len(data.X_ood), data.D) == (5139, 4861, 784)


def test_pairs_of_published_sets(local_images: Path) -> None:
    data = get_dataset("fashion_mnist_vs_mnist", data_dir=local_images)
    assert isinstance(data, OodDataset)
    fashion = get_dataset("fashion_mnist", data_dir=local_images)
    mnist = get_dataset("mnist", data_dir=local_images)
    np.testing.assert_array_equal(data.X_train, fashion.X_train)
    np.testing.assert_allclose(
        data.scaling.restore_X(data.X_ood), mnist.scaling.restore_X(mnist.X_test), atol=1e-9
    )
    other = get_dataset("mnist_vs_fashion_mnist", data_dir=local_images)
    np.testing.assert_array_equal(other.X_test, mnist.X_test)
    write_images(local_images / "mnist", "t10k", np.zeros((4, 5, 6)), np.arange(4))
    with pytest.raises(
        BadDataError,
        match=r"shape \(6, 6\) in the training part and of shape \(5, 6\) in the out-of-distribution",
    ):
        get_dataset("fashion_mnist_vs_mnist", data_dir=local_images)


def test_svhn_is_a_pinned_matlab_file(local_images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataFileError, match=r"it must be laid out as svhn/test_32x32\.mat"):
        get_dataset("cifar10_vs_svhn", data_dir=local_images)
    pixels = RNG.integers(0, 256, size=(32, 32, 3, 7)).astype(np.uint8)
    path = local_images / "svhn" / "test_32x32.mat"
    path.parent.mkdir()
    scipy.io.savemat(path, {"X": pixels, "y": np.ones((7, 1))})
    with pytest.raises(DataFileError, match=r"test_32x32\.mat is not the published file"):
        get_dataset("cifar10_vs_svhn", data_dir=local_images)
    monkeypatch.setattr(ood_pairs, "SVHN_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    data = get_dataset("cifar10_vs_svhn", data_dir=local_images)
    assert isinstance(data, OodDataset)
    assert (data.X_train.shape, data.X_ood.shape) == ((100, 3072), (7, 3072))
    third = data.scaling.restore_X(data.X_ood)[2].reshape(32, 32, 3)
    np.testing.assert_allclose(third, pixels[..., 2], atol=1e-9)


def test_svhn_is_downloaded_from_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def pinned_file(*arguments: Any, url: str) -> Path:
        asked.extend([*arguments, url])
        raise DataFileError("stop")

    monkeypatch.setattr(ood_pairs, "pinned_file", pinned_file)
    empty = np.zeros((1, 32, 32, 3))
    with pytest.raises(DataFileError):
        ood_pairs.svhn(SplitData(empty, empty, empty, empty), 0, None)
    address = "http://ufldl.stanford.edu/housenumbers/"
    assert asked[:3] == [address, "svhn", "test_32x32.mat"]
    assert asked[-1] == f"{address}test_32x32.mat"
    assert len(asked[3]) == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X_ood": X[:, :2]}, r"shape \(3,\) in the training part and of shape \(2,\) in the out-"),
        ({"X_ood": np.full((2, 3), np.inf)}, "6 NaN or infinite values in the out-of-distribution"),
        ({"X_ood": X[:0]}, r"the out-of-distribution part has X of shape \(0, 3\)"),
        ({"Y_train": np.zeros(9, int)}, "every training label is 0"),
    ],
)
def test_bad_pairs_are_said_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDataError, match=message) as caught:
        make_pair(**changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("made-up: ")


def test_a_loader_without_the_other_distribution() -> None:
    @register_dataset("one-sided", num_splits=1, task="ood")
    def load(split: int, data_dir: Path | None) -> SplitData:
        return SplitData(X[:9], LABELS[:9], X[9:12], LABELS[9:])

    try:
        with pytest.raises(
            BadDataError, match=r"one-sided: its loader returned SplitData; .*X_ood"
        ):
            get_dataset("one-sided")
    finally:
        from bayesian_benchmarks.datasets import registry

        del registry._SOURCES["one-sided", "ood"]


def test_a_table_has_no_other_distribution(tmp_path: Path) -> None:
    path = tmp_path / "flowers.csv"
    path.write_text("a,y\n" + "1,0\n2,1\n" * 10)
    with pytest.raises(BadDataError, match="one table has no out-distribution; register a dataset"):
        TableDataset.open(path, task="ood")


# Registration and configuration


def test_every_list_of_tasks_has_the_same() -> None:
    assert set(list_tasks()) >= {"regression", "classification", "density", "ood"}
    assert set(find_task("ood").shown) <= set(metrics_of("ood")) & set(directions())
    assert list_datasets("ood") == PAIRS
    with pytest.raises(UnknownNameError, match="Unknown dataset 'digits'"):
        get_dataset("digits", task="ood")


def test_packaged_ood_configs() -> None:
    experiment = load_experiment("wild2022_ood")
    assert isinstance(experiment.settings, OodSettings)
    differs = {"gwi": None, "likelihood": "softmax"}
    assert experiment.settings.model_copy(update=differs) == OodSettings()
    assert experiment.paper == "wild2022"
    assert experiment.model_depth(2) == 3
    assert set(experiment.datasets) <= set(PAIRS)
    quick = load_experiment("quick_ood")
    assert quick.task == "ood"
    assert set(quick.datasets) == {"digits_rotated", "digits_noisy"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: {likelihood: probit}", r"settings.likelihood: .*'softmax' or 'robust-max'"),
        ("settings: {natural_gradient: null}", r"settings.natural_gradient: no such field"),
        ("depths: [-1]", r"depths: a depth is from 0 to 1000"),
        ("task: odd", r"Unknown task 'odd'\. Did you mean ood"),
    ],
)
def test_ood_configs_are_checked(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    fields = {"task": "task: ood", "depths": "depths: [2]"} | {text.split(":")[0]: text}
    path.write_text("\n".join(["models: ['nngp:relu']", *fields.values()]))
    with pytest.raises(ConfigError, match=message):
        load_experiment(path)


def test_the_papers_figures_stand_beside_the_pairs() -> None:
    row = ResultRow(
        task="ood",
        dataset="fashion_mnist_vs_mnist",
        split=0,
        model="gwi-cnn",
        settings_hash="0",
        seed=0,
        depth=3,
        settings='{"num_steps": 10}',
        metrics={"accuracy": 0.93, "test_log_likelihood": -0.2, "auroc_entropy": 0.96},
    )
    (line,) = summarise([row], metrics=list(row.metrics), paper="wild2022")
    printed = {name: figure for name, (_, figure) in line.metrics.items() if figure}
    values = {name: figure.value for name, figure in printed.items()}
    assert values == {"accuracy": 0.9325, "test_log_likelihood": -0.25, "auroc_entropy": 0.959}
