"""The tables of docs/papers.md: what they name exists, and what has no name has a reason."""

from __future__ import annotations

import ast
import csv
import functools
import importlib
import re
from pathlib import Path

import pytest

import bayesian_benchmarks
import gpflow_dkp.models

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "paper_items"
PAPERS = {
    "uai23": "[UAI23]",
    "neurips21": "[NeurIPS21]",
    "icml21": "[ICML21]",
    "neurips22": "[NeurIPS22]",
    "icml19": "[ICML19]",
}
COLUMNS = ["item", "what", "here", "note"]


def rows(paper: str) -> list[dict[str, str]]:
    with (FOLDER / f"{paper}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def names(row: dict[str, str]) -> list[str]:
    return row["here"].split("; ") if row["here"] else []


def problem(name: str) -> str | None:
    """What is wrong with a name of the column `here`, None if it exists."""
    if name.startswith("config:"):
        path = f"bayesian_benchmarks/configs/{name.removeprefix('config:')}.yaml"
        return None if (ROOT / path).is_file() else f"{path} is not there"
    if "/" not in name:
        return None if is_in_python(name) else f"{name} cannot be imported"
    path, test, function = name.partition("::")
    path, hash_sign, anchor = path.partition("#")
    if not (ROOT / path).is_file():
        return f"{path} is not there"
    if test and function not in functions_of(path):
        return f"{path} has no function {function}"
    if hash_sign and anchor not in anchors_of(path):
        return f"{path} has no anchor {anchor}"
    return None


def is_in_python(name: str) -> bool:
    parts = name.split(".")
    if parts[0] not in {gpflow_dkp.__name__, bayesian_benchmarks.__name__}:
        return False
    for size in range(len(parts), 0, -1):
        module_name = ".".join(parts[:size])
        try:
            found = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            continue
        try:
            functools.reduce(getattr, parts[size:], found)
        except AttributeError:
            return False
        return True
    return False


@functools.cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@functools.cache
def anchors_of(path: str) -> set[str]:
    """Of targets, and of headings as MyST makes them."""
    text = (ROOT / path).read_text(encoding="utf-8")
    headings = re.findall(
        r"^#{1,4} +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
    )
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))


def test_all_five_papers_are_on_the_page() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAPERS)
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    shown = re.findall(r"^### (\[\w+\])\n```\{paper-items\} (\w+)\n```$", text, re.M)
    assert {paper: tag for tag, paper in shown} == PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_the_names_exist(paper: str) -> None:
    found = {row["item"]: [problem(name) for name in names(row)] for row in rows(paper)}
    wrong = {item: [text for text in texts if text] for item, texts in found.items()}
    assert not {item: texts for item, texts in wrong.items() if texts}


@pytest.mark.parametrize("paper", PAPERS)
def test_each_item_stands_once_with_a_name_or_a_reason(paper: str) -> None:
    of_paper = rows(paper)
    assert len(of_paper) > 20
    assert list(of_paper[0]) == COLUMNS
    for row in of_paper:
        assert all(cell is not None and cell == cell.strip() for cell in row.values()), row
        assert row["item"]
        assert names(row) or row["note"], row
        assert len(set(names(row))) == len(names(row)), row
    items = [row["item"] for row in of_paper]
    assert sorted({item for item in items if items.count(item) > 1}) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpflow_dkp.models.DWP.elbo", None),
        ("gpflow_dkp.models.NoModel", "cannot be imported"),
        ("gpflow_dkp.no_module.Name", "cannot be imported"),
        ("numpy.linalg", "cannot be imported"),
        ("config:ober2023", None),
        ("config:ober2024", "ober2024.yaml is not there"),
        ("scripts/plot_prior.py", None),
        ("scripts/plot_posterior.py", "is not there"),
        ("tests/docs/test_paper_items.py::test_the_names_exist", None),
        ("tests/docs/test_paper_items.py::test_nothing", "has no function test_nothing"),
        ("docs/mathematics.md#math-6", None),
        ("docs/mathematics.md#numerics", None),
        ("docs/mathematics.md#math-99", "has no anchor math-99"),
    ],
)
def test_wrong_names_are_found(name: str, message: str | None) -> None:
    found = problem(name)
    assert found is None if message is None else found is not None and message in found
