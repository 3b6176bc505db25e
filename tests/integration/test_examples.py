"""The Python examples of the README and the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_PLUGIN_LINES = 40
"""Of an example that is a file: it is to be read at a glance."""
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "models").glob("*.md")),
]


def examples(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def plugin_name(code: str) -> str | None:
    """The name of the file that an example is to be saved as, said in its first line."""
    found = re.match(r"# (\w+\.py)\n", code)
    return found[1] if found else None


def test_the_readme_has_an_example() -> None:
    assert examples(ROOT / "README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run_in_order(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that name a file are saved as it, as a reader would, and run where they are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    for code in examples(document):
        if name := plugin_name(code):
            assert len(code.splitlines()) <= MAX_PLUGIN_LINES, name
            Path(name).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, str(document), "exec"), namespace)
