"""Every config that names a paper prints the paper's figures beside its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesian_benchmarks import Experiment, ResultRow, expand, load_experiment
from bayesian_benchmarks.configs import list_configs
from bayesian_benchmarks.report import format_table, paper_results, summarise
from bayesian_benchmarks.tasks import find_task, metrics_of

NUM_FIGURES = {
    "aitchison2021": 9 * 6,  # datasets x models
    "aitchison2021_fast": 9 * 6,
    "classification_images": 2 * 3 * 3,  # datasets x models with ReLU kernels x metrics
    "ober2021": 9 * 2 * 2,  # datasets x models x metrics
    "ober2023": 9 * 4 * 4 * 3,  # datasets x depths x models x metrics
    "ober2023_fast": 9 * 2 * 4 * 3,
    "salimbeni2019": 5 * 12,  # datasets x models
    "salimbeni2019_fast": 14 * 4,
    "wild2022": 5 * 2,  # datasets x models
    "wild2022_large": 4 * 2,
    "wild2022_ood": 2 * 4 * 3,  # datasets x models x metrics
}
"""Figures in each config's table, counted by hand."""

PRINTED_NAMES = {
    (f"{ours}_vs_{other}", model): (ours, printed)
    for ours, other in (("fashion_mnist", "mnist"), ("cifar10", "svhn"))
    for model, printed in (
        ("gwi-cnn", "gwi-net"),
        ("cnn-mean-field", "mfvi"),
        ("cnn-map", "map"),
        ("cnn-laplace", "kfac-laplace"),
    )
}


def rows_of(experiment: Experiment, data_dir: Path) -> list[ResultRow]:
    """A made-up row for each run; data that `data_dir` does not have are not needed."""
    return [
        ResultRow(
            **run.key._asdict(),
            depth=run.depth,
            settings=run.settings_json,
            metrics=dict.fromkeys(metrics_of(run.task), 0.5),
        )
        for run in expand(experiment, data_dir, need_data=False)
    ]


def printed_cells(table: str) -> dict[tuple[str, str, str, str], str]:
    """The figures in a markdown table by dataset, depth, model and metric, without verdict."""
    header, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    )
    return {
        (line[0], line[1], line[2], header[i - 1]): line[i].rstrip(" ✓✗")
        for line in lines
        for i, name in enumerate(header)
        if name == "published" and line[i]
    }


def test_every_config_with_a_paper_is_counted() -> None:
    named = {name for name in list_configs() if load_experiment(name).paper}
    assert named == set(NUM_FIGURES)


@pytest.mark.parametrize("name", NUM_FIGURES)
def test_the_papers_figures_stand_in_a_configs_table(name: str, tmp_path: Path) -> None:
    config = load_experiment(name).override(splits=(0,))
    lines = summarise(
        rows_of(config, tmp_path),
        paper=config.paper,
        depth_counts_output_layer=config.depth_counts_output_layer,
    )
    expected = {}
    for dataset in config.datasets:
        for model in config.model_names:
            theirs = PRINTED_NAMES.get((dataset, model), (dataset, model))
            for result in paper_results(config.paper):
                is_shown = result.metric in find_task(config.task).shown
                if is_shown and (result.dataset, result.model) == theirs:
                    depths = set(config.depths) & {result.depth} if result.depth else config.depths
                    text = f"{result.value:.{result.decimals}f}"
                    if result.error is not None:
                        text += f" ± {result.error:.{result.decimals}f}"
                    for depth in depths:
                        expected[dataset, str(depth or "-"), model, result.metric] = text
    assert len(expected) == NUM_FIGURES[name]
    assert printed_cells(format_table(lines, "markdown")) == expected
