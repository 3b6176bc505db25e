"""`gpflow-dkp`: from a table to predictions, and one line for what cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_dkp
from gpflow_dkp.command_line import main
from gpflow_dkp.tables import TableModel

QUICK = ("--steps", "40", "--inducing", "8")


def homes(number: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rooms, city = rng.integers(1, 7, number), rng.choice(["Oslo", "Paris", "Rome"], number)
    area = 20.0 * rooms + rng.normal(0.0, 5.0, number)
    price = 1e5 + 3e3 * area + 5e4 * (city == "Paris") + rng.normal(0.0, 1e4, number)
    return pd.DataFrame({"rooms": rooms, "city": city, "area": area, "price": price})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model of prices, and new homes."""
    folder = tmp_path_factory.mktemp("homes")
    homes(150).to_csv(folder / "homes.csv", index=False)
    homes(30, seed=1).to_csv(folder / "new.csv", index=False)
    arguments = ["fit", "homes.csv", "--target", "price", "--out", "homes.dkp", *QUICK]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(arguments) == 0
    return folder


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def test_fit_says_how_good_it_is_and_draws_it(
    inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", "homes.csv", "--target", "price", "--out", "again.dkp", *QUICK]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "150 rows; features: 2 columns of numbers, city as 3 columns (Oslo, Paris, Rome)" in said
    assert "Trained on 135 rows" in said
    assert "On 15 rows that had no part in the training, the log density is" in said
    assert "90 % intervals hold" in said
    assert (inside / "again.png").stat().st_size > 10_000
    first, second = (gpflow_dkp.load(inside / name) for name in ("homes.dkp", "again.dkp"))
    table = homes(5, seed=2)
    pd.testing.assert_frame_equal(first.predict(table), second.predict(table))


def test_predictions_are_the_model_s(inside: Path) -> None:
    table = pd.read_csv("new.csv")
    arguments = ["predict", "homes.dkp", "new.csv", "--quantiles", "0.1", "0.9", "--out", "out.csv"]
    assert main(arguments) == 0
    written = pd.read_csv("out.csv")
    assert list(written.columns) == ["mean", "std", "quantile_0.1", "quantile_0.9"]
    model = gpflow_dkp.load("homes.dkp")
    X = model.columns.matrix(table.drop(columns="price"), "new.csv")
    mean, std = model.estimator.predict(X, return_std=True)
    np.testing.assert_allclose(written["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(written["std"], std, rtol=1e-12)
    assert (written["quantile_0.1"] < written["quantile_0.9"]).all()
    # A model that had learnt nothing would be a standard deviation off.
    assert np.corrcoef(written["mean"], table["price"])[0, 1] > 0.9


def test_evaluate_counts_coverage(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "homes.dkp", "new.csv", "--picture", "new.png"]) == 0
    said = capsys.readouterr().out
    model, table = gpflow_dkp.load("homes.dkp"), pd.read_csv("new.csv")
    low, high = (
        model.predict(table, [0.05, 0.95])[name] for name in ("quantile_0.05", "quantile_0.95")
    )
    within = float(np.mean((low <= table["price"]) & (table["price"] <= high)))
    assert f"90 % intervals hold {100 * within:.0f} % of the targets" in said
    quality = model.evaluate(table)
    assert f"log density is {quality.log_density:.3f} a row" in said
    errors = model.predict(table)["mean"] - table["price"]
    assert quality.error[0] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert (inside / "new.png").exists()


def test_info_says_what_is_in_the_file(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "homes.dkp"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("DWPRegressor of price, ")
    assert "Trained on 135 rows" in said
    assert "40 steps" in said
    assert f"gpflow_dkp {gpflow_dkp.__version__}" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "nothing.dkp", "new.csv"], "cannot read nothing.dkp"),
        (["predict", "new.csv", "new.csv"], "new.csv is no model that gpflow_dkp saved"),
        (["predict", "homes.dkp", "nothing.csv"], "Cannot read nothing.csv"),
        (["predict", "homes.dkp", "new.csv", "--quantiles", "1.5"], "needs"),
        (["predict", "homes.dkp", "new.csv", "--drop", "garden"], "--drop: there is no column"),
        (["predict", "homes.dkp", "new.csv", "--drop", "area"], "has no column area"),
        (["evaluate", "homes.dkp", "new.csv", "--drop", "price"], "has no column price"),
        (["fit", "homes.csv", "--target", "cost", "--out", "x"], "there is no column 'cost'"),
        (["fit", "homes.csv", "--target", "price", "--out", "no/x"], "make the folder no first"),
        (["fit", "homes.csv", "--target", "price", "--out", "x", "--hold-out", "2"], "--hold-out"),
        (["fit", "homes.csv", "--target", "city", "--model", "nngp", "--out", "x"], "with classes"),
        (
            [
                "fit",
                "homes.csv",
                "--target",
                "price",
                "--model",
                "gwi",
                "--depth",
                "3",
                "--out",
                "x",
            ],
            "--depth: the model gwi does not take it",
        ),
        (["fit", "homes.csv", "--target", "price", "city", "--out", "x"], "classes are one target"),
        (["fit", "homes.csv", "--target", "price", "--steps", "-1", "--out", "x"], "num_steps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("gpflow-dkp: ")
    assert said.count("\n") == 1


def test_classes_from_text(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = homes(120)
    table["size"] = np.where(table["area"] > 70.0, "large", "small")
    table.drop(columns=["price", "rooms"]).to_csv("sizes.csv", index=False)
    arguments = ["fit", "sizes.csv", "--target", "size", "--out", "sizes.dkp", *QUICK]
    assert main([*arguments, "--picture", "sizes.png"]) == 0
    assert "% of the classes are right" in capsys.readouterr().out
    model = gpflow_dkp.load("sizes.dkp")
    assert isinstance(model, TableModel)
    predicted = model.predict(pd.read_csv("sizes.csv"))
    assert list(predicted.columns) == ["size", "p(large)", "p(small)"]
    np.testing.assert_allclose(predicted.drop(columns="size").sum(axis=1), 1.0)
    assert (inside / "sizes.png").exists()


def test_several_targets(inside: Path) -> None:
    table = homes(60)
    table["rent"] = 0.01 * table["price"]
    table.to_csv("two.csv", index=False)
    arguments = [
        "fit",
        "two.csv",
        "--target",
        "price",
        "rent",
        "--hold-out",
        "0",
        "--out",
        "two.dkp",
    ]
    assert main([*arguments, *QUICK]) == 0
    predicted = gpflow_dkp.load("two.dkp").predict(table, [0.5])
    assert list(predicted.columns) == [
        *("price_mean", "price_std", "price_quantile_0.5"),
        *("rent_mean", "rent_std", "rent_quantile_0.5"),
    ]
