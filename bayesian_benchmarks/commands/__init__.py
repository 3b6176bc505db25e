"""`dkp-bench`, the benchmark's one command line: a module a command, each with its `main`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from ..errors import UnknownNameError

__all__ = ["COMMANDS", "main"]

NAME = "dkp-bench"

COMMANDS = {
    "uci": "regression on the UCI sets, beside the papers' tables",
    "density": "conditional densities, with latent variables",
    "classification": "labels: accuracy and calibration",
    "ood": "data of another distribution, told by a classifier's uncertainty",
    "tune": "settings of a model, chosen by the bound or on held-out rows",
    "watch": "what a sweep that is running elsewhere is doing",
    "report": "a page, Markdown, LaTeX or CSV of stored results",
}
"""What each does, in one line; each is a module of this package."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dkp-bench`; returns the exit code, 2 for bad input, with one line on standard error."""
    listed = "\n".join(f"  {name:<16} {meaning}" for name, meaning in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog=NAME,
        usage=f"{NAME} COMMAND ...",
        description="Deep kernel processes and their competitors, trained, scored and compared.",
        epilog=f"commands:\n{listed}\n\n`{NAME} COMMAND --help` says what it takes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS
    )
    asked = parser.parse_args(argv)
    if asked.command not in COMMANDS:
        error = UnknownNameError("command", asked.command, COMMANDS)
        parser.exit(2, f"{NAME}: {error}\n")
    command = importlib.import_module(f"{__name__}.{asked.command}")
    exit_code: int = command.main(asked.arguments)
    return exit_code
