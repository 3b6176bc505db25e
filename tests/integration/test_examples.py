"""The Python examples of the README and the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_an_example() -> None:
    assert examples(ROOT / "README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run_in_order(document: Path) -> None:
    namespace: dict[str, object] = {"__name__": "example"}
    for code in examples(document):
        exec(compile(code, str(document), "exec"), namespace)
