"""A sweep's state as a table for a terminal: the runs under way, a line each, above a total."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .costs import duration
from .state import RunState, SweepState

UNKNOWN = "-"


def table_of(state: SweepState) -> RenderableType:
    """What `rich` prints."""
    runs = Table(box=None, pad_edge=False, header_style="dim")
    runs.add_column("run", no_wrap=True, overflow="ellipsis")
    for name in ("step", "bound", "steps/s", "left"):
        runs.add_column(name, justify="right", no_wrap=True)
    for run in state.running:
        runs.add_row(Text(run.name), *map(Text, _cells(run)))
    total = Table.grid(padding=(0, 1))
    total.add_row(ProgressBar(total=1.0, completed=state.part, width=24), Text(state.total))
    return Group(runs, total) if state.running else total


def _cells(run: RunState) -> tuple[str, str, str, str]:
    speed, left = run.steps_per_second, run.seconds_left
    when = UNKNOWN if left is None else duration(left)
    return (
        f"{run.step} of {run.num_steps}",
        UNKNOWN if run.bound is None else f"{run.bound:.4f}",
        UNKNOWN if speed is None else f"{speed:.3g}",
        "scores" if run.is_scored else when,
    )
