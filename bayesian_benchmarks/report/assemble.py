"""A report of stores and exports: what is in which section."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import BenchmarkError
from ..store import ResultRow
from ..tasks import directions, metrics_of
from .beside_paper import runs_below_printed_bounds, tables_beside_paper
from .conclusions import FEWEST_DATASETS, conclusions
from .document import Cell, Document, Figure, Section, Table
from .paired import PairedLine, paired_differences
from .pictures import calibration, critical_difference, pit_histograms, training_curves
from .ranks import RankLine, average_ranks
from .sources import Source
from .tables import frame, num_steps, summarise


def report(
    sources: Sequence[Source], title: str = "Results", *, with_figures: bool = True
) -> Document:
    """All sections: what holds, a section a source, what failed, and where the rows come from."""
    sentences = [conclusion.sentence for conclusion in conclusions(sources)]
    first = Section(
        "What the papers conclude, and what our rows say",
        "conclusions",
        [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)],
    )
    sections = [first, *(_section(source, with_figures) for source in sources)]
    failed = [row for source in sources for row in source.rows if row.status != "ok"]
    if failed:
        sections.append(Section("Failed runs", "failures", tables=[_failures(failed)]))
    sections.append(
        Section("Where the rows come from", "provenance", tables=[_provenance(sources)])
    )
    runs = sum(len(source.rows) for source in sources)
    hours = sum(row.metrics.get("seconds", 0.0) for s in sources for row in s.rows) / 3600
    return Document(title, sections, [f"{runs} runs, {hours:.1f} hours of training."])


def _section(source: Source, with_figures: bool) -> Section:
    rows = [row for row in source.rows if row.status == "ok"]
    lines = [f"Rows of {source.path.name}, {len(rows)} of them."]
    if source.paper:
        lines.append(f"Beside the figures of {' and '.join([source.paper, *source.other_papers])}.")
    if below := runs_below_printed_bounds(source):
        lines.append(below)
    tables = [*tables_beside_paper(source), *_paired(source)]
    ranks, metric = _ranks(source), _main_metric(source)
    if ranks:
        tables.append(_ranks_table(source, ranks, metric))
    figures: list[Figure | None] = []
    if with_figures:
        figures = [
            *training_curves(rows, source.counts_output_layer),
            calibration(rows, source.counts_output_layer),
            pit_histograms(rows, source.counts_output_layer),
            critical_difference(ranks, metric) if ranks else None,
        ]
    drawn = [figure for figure in figures if figure]
    return Section(source.name, source.name, lines, [*tables, _times(source)], drawn)


def _main_metric(source: Source) -> str:
    """What models are compared by: the first that the task shows, has a direction and is a test score."""
    task = source.rows[0].task
    known = {name for row in source.rows for name in row.metrics}
    shown = [m for m, metric in metrics_of(task).items() if metric.shown and m in directions()]
    scores = [name for name in shown if name in known and name != "elbo_per_point"]
    return scores[0] if scores else "elbo_per_point"


def _paired(source: Source) -> list[Table]:
    """Differences to the best model, on the splits that both have."""
    metric = _main_metric(source)
    try:
        lines = paired_differences(
            source.rows,
            metric,
            paper=source.paper,
            depth_counts_output_layer=source.counts_output_layer,
        )
    except BenchmarkError:
        return []
    rows = [
        [
            Cell(line.dataset),
            Cell(str(line.depth or "-"), sort=line.depth),
            Cell(line.label),
            Cell(str(line.num_splits), sort=line.num_splits),
            Cell(f"{line.mean:.4g}", sort=line.mean, best=line.is_baseline),
            Cell(
                "" if line.is_baseline else _difference(line),
                sort=line.difference,
            ),
        ]
        for line in lines
    ]
    errors = "one standard error" if lines and lines[0].num_errors == 1 else "two standard errors"
    return [
        Table(
            f"{metric}: paired differences to the best model",
            f"{source.name}-paired",
            ["dataset", "depth", "model", "splits", "mean", "difference"],
            rows,
            f"± {errors} of the paired differences; * not 0 at the 5 % level of a paired t test.",
        )
    ]


def _difference(line: PairedLine) -> str:
    error = "" if math.isnan(line.error) else f" ± {line.error:.2g}"
    return f"{line.difference:+.3g}{error}{'*' if line.is_clear else ''}"


def _ranks(source: Source) -> list[RankLine]:
    """Average ranks, or none of too few models, or of too few datasets that all models have."""
    table = frame(source.rows)
    if table["model"].nunique() < 2:
        return []
    try:
        lines = average_ranks(
            source.rows, _main_metric(source), baseline=str(table["model"].iloc[0])
        )
    except BenchmarkError:
        return []
    return lines if lines[0].num_datasets >= FEWEST_DATASETS else []


def _ranks_table(source: Source, lines: Sequence[RankLine], metric: str) -> Table:
    rows = [
        [Cell(line.model), Cell(f"{line.rank:.2f} ± {line.standard_error:.2f}", sort=line.rank)]
        for line in lines
    ]
    note = f"Over {lines[0].num_splits} splits of datasets that all models have; the best has the highest."
    return Table(
        f"Average ranks by {metric}", f"{source.name}-ranks", ["model", "rank"], rows, note
    )


def _times(source: Source) -> Table:
    """Seconds a run and a step, by dataset, model and depth."""
    lines = summarise(
        source.rows,
        metrics=["seconds", "seconds_per_step"],
        depth_counts_output_layer=source.counts_output_layer,
    )
    rows = []
    for line in lines:
        seconds, step = (ours.mean for ours, _ in line.metrics.values())
        rows.append(
            [
                Cell(line.dataset),
                Cell(str(line.depth or "-"), sort=float(line.depth)),
                Cell(line.label),
                Cell(str(line.num_steps), sort=line.num_steps),
                Cell(f"{seconds:.0f}", sort=seconds),
                Cell(
                    "" if step != step else f"{1e3 * step:.1f}", sort=step if step == step else 0.0
                ),
            ]
        )
    header = ["dataset", "depth", "model", "steps", "seconds a run", "ms a step"]
    return Table("Times of training", f"{source.name}-times", header, rows, "Means over splits.")


def _failures(rows: Sequence[ResultRow]) -> Table:
    cells = [
        [*map(Cell, (row.task, row.dataset, str(row.split), row.model, str(row.depth), row.error))]
        for row in rows
    ]
    header = ["task", "dataset", "split", "model", "depth", "error"]
    return Table("Runs that failed", "failures", header, cells)


def _provenance(sources: Sequence[Source]) -> Table:
    """A line for each source and version of the code."""
    rows = []
    for source in sources:
        for code in sorted({row.code for row in source.rows}):
            of_code = [row for row in source.rows if row.code == code]
            days = sorted(row.recorded_at[:10] for row in of_code)
            schedules = sorted({_schedule(row) for row in of_code})
            rows.append(
                [
                    *(
                        Cell(source.name),
                        Cell(str(len(of_code)), sort=len(of_code)),
                        Cell(code[:12]),
                    ),
                    Cell(" to ".join(dict.fromkeys([days[0], days[-1]]))),
                    Cell(", ".join(sorted({row.hardware for row in of_code}))),
                    *(Cell(", ".join(schedules)), Cell(of_code[-1].versions)),
                ]
            )
    header = ["rows of", "number", "code", "made", "hardware", "schedule", "versions"]
    return Table("Code, machines and versions", "provenance", header, rows)


def _schedule(row: ResultRow) -> str:
    from ..settings import schedule_name

    steps = num_steps(row.settings)
    return f"{steps} {schedule_name(row.settings)}" if steps else ""
