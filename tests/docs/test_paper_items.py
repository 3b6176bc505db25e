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
from bayesian_benchmarks.models import find_model

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
    if name.startswith("model:"):
        model = name.removeprefix("model:")
        return None if find_model(model) else f"{model} is no model of the benchmark"
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


@functools.cache
def claims_of(paper: str) -> dict[str, str]:
    """Name and docstring of each test of the paper's claims."""
    tree = ast.parse((ROOT / claims_file(paper)).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {
        f.name: f"{f.name} {ast.get_docstring(f)}" for f in functions if f.name.startswith("test")
    }


def claims_file(paper: str) -> str:
    return f"tests/papers/test_{paper}_claims.py"


def says(text: str, item: str) -> bool:
    """Whether a test's name and docstring name an item.

    That is by its number or letter, or, of a statement whose number could not be confirmed, in quotes and
    with a section of docs/mathematics.md.
    """
    place = item.partition(":")[0]
    numbered = re.search(
        r"(equation|section|appendix|figure|table|algorithm)s? [A-Z\d]|\(\d", place
    )
    if not numbered and not re.search(r"docs/mathematics\.md \d", text):
        return False
    said, looked_for = (
        " ".join(re.sub(r"[_.\s]+", " ", part).lower().split())
        for part in (text, place if numbered else f'"{item}"')
    )
    return re.search(rf"(?<!\w){re.escape(looked_for)}(?!\w| \d)", said) is not None


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


@pytest.mark.parametrize("paper", PAPERS)
def test_each_claim_says_where_the_paper_makes_it(paper: str) -> None:
    """Each test of tests/papers stands in a row, and its name or docstring names that row's item."""
    without = []
    for name, text in claims_of(paper).items():
        test = f"{claims_file(paper)}::{name}"
        if not any(test in names(row) and says(text, row["item"]) for row in rows(paper)):
            without.append(name)
    assert len(claims_of(paper)) > 2
    assert not without


@pytest.mark.parametrize(
    ("text", "item", "expected"),
    [
        ("test_equation_12_the_variance", "equation 12", True),
        ("test_equation_12_the_variance", "equation 1", False),
        ("test_section_3_4_samples", "section 3.4", True),
        ("test_section_3_4_samples", "section 3", False),
        ("test_equations_18_to_22_the_first_entry", "equations 18 to 22", True),
        ("test_it Appendix\n    B.", "appendix B", True),
        ("test_it Section 4: of finite width.", "section 4: Bayesian neural networks", True),
        ("test_it Submission section 2.5, (16).", "submission section 2.5, (16)", True),
        ("test_it (16).", "submission section 2.5, (16)", False),
        ('test_it The statement "bound in K" (docs/mathematics.md 8).', "bound in K", True),
        ('test_it The statement "bound in K".', "bound in K", False),
        ("test_bound_in_k (docs/mathematics.md 8).", "bound in K", False),
        ("test_it None", "section 1", False),
    ],
)
def test_what_names_an_item(text: str, item: str, expected: bool) -> None:
    assert says(text, item) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpflow_dkp.models.DWP.elbo", None),
        ("gpflow_dkp.models.NoModel", "cannot be imported"),
        ("gpflow_dkp.no_module.Name", "cannot be imported"),
        ("numpy.linalg", "cannot be imported"),
        ("config:ober2023", None),
        ("config:ober2024", "ober2024.yaml is not there"),
        ("model:lv-gp-gp:iwvi", None),
        ("model:lv-gp-gp:hmc", "lv-gp-gp:hmc is no model of the benchmark"),
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
