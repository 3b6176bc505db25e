"""`dkp-bench watch`: what a sweep that another process does is doing."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..errors import BenchmarkError, ConfigError
from ..store import count_rows
from ..sweep.costs import duration
from ..sweep.shared import KnownSweep, known_sweeps
from ..sweep.table import table_of

NAME = "dkp-bench watch"

DESCRIPTION = """\
Show what the sweeps on a results store are doing: runs done and failed, those under way with their steps,
and the time left. Nothing is written. It ends when no sweep is under way, or with Ctrl-C, which
leaves the sweep alone."""

EXAMPLES = """\
examples:
  %(prog)s runs/results.sqlite
      a table, renewed every two seconds
  %(prog)s runs/results.sqlite --once
      a few lines, for a script or a log

exit codes: 0 the sweeps have ended, or --once; 2 bad input; 130 interrupted with Ctrl-C."""

QUIET_SECONDS = 30.0
"""After which a sweep's last word is called old: a run that is compiled in its own process says nothing."""


def main(argv: Sequence[str] | None = None, name: str = NAME) -> int:
    """Run the command line; returns the exit code.

    :param name: of the command, before its errors and in its help.
    """
    arguments = _parser(name).parse_args(argv)
    try:
        _check(arguments)
        if not arguments.once:
            _follow(arguments.store, arguments.seconds)
        print(*_lines(arguments.store), sep="\n", flush=True)
    except BenchmarkError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # such as of `| head`
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("store", type=Path, metavar="STORE", help="the --store of the sweep")
    parser.add_argument("--once", action="store_true", help="print it once, as plain lines")
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="between two looks (default 2)"
    )
    return parser


def _check(arguments: argparse.Namespace) -> None:
    if not (math.isfinite(arguments.seconds) and arguments.seconds > 0):
        raise ConfigError(f"--seconds is {arguments.seconds}; it must be above 0.")
    count_rows(arguments.store)


def _follow(store: Path, seconds: float) -> None:
    """Show the sweeps until none is under way: as a table on a terminal, else as lines where they differ."""
    console = Console()
    if not console.is_terminal:
        before: list[str] = []
        while _under_way(store):
            lines = list(_lines(store))
            if lines != before:
                print(*lines, sep="\n", flush=True)
            before = lines
            time.sleep(seconds)
        return
    with Live(console=console, transient=True) as live:
        while sweeps := _under_way(store):
            parts = [part for sweep in sweeps for part in (_head(sweep), table_of(sweep.state))]
            live.update(Group(*(Text(p) if isinstance(p, str) else p for p in parts)), refresh=True)
            time.sleep(seconds)


def _under_way(store: Path) -> list[KnownSweep]:
    return [sweep for sweep in known_sweeps(store) if sweep.is_alive]


def _lines(store: Path) -> Iterator[str]:
    """The sweeps, and the rows of the store."""
    sweeps = known_sweeps(store)
    for sweep in sweeps:
        yield _head(sweep)
        if sweep.is_alive:
            yield from sweep.state.lines()
    if not any(sweep.is_alive for sweep in sweeps):
        yield f"No sweep is under way on {store}."
    counts = count_rows(store)
    yield f"In {store} are {counts['ok']} finished runs and {counts['failed']} failed ones."


def _head(sweep: KnownSweep) -> str:
    who = f"Process {sweep.process} on {sweep.host}"
    if not sweep.is_alive:
        state = sweep.state
        return (
            f"{who} was killed, at {state.num_ended} of {state.num_runs} runs: last heard of "
            f"{duration(sweep.seconds_ago)} ago. The same command goes on from there."
        )
    old = sweep.seconds_ago > QUIET_SECONDS
    return f"{who}{f', {duration(sweep.seconds_ago)} ago' if old else ''}:"
