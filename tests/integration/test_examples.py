"""The Python examples of the README and the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHORTER = {"max_seconds=10": "max_seconds=2", "num_steps=1000": "num_steps=100"}
"""What the tests spare of the examples' trainings."""
MAX_PLUGIN_LINES = 40
"""Of an example that is a file: it is to be read at a glance."""
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "models").glob("*.md")),
]


def examples(document: Path) -> list[str]:
    text = document.read_text(encoding="utf-8")
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def plugin_name(code: str) -> str | None:
    """The name of the file that an example is to be saved as, said in its first line."""
    found = re.match(r"# (\w+\.py)\n", code)
    return found[1] if found else None


def test_the_readme_has_an_example() -> None:
    assert examples(ROOT / "README.md")


class Reader:
    """Someone who goes through a document's examples from the first, in one session and folder."""

    def __init__(self, document: Path, folder: Path) -> None:
        self.document, self.folder = document, folder
        self.left = examples(document)
        self.num_done = 0
        self.namespace: dict[str, object] = {"__name__": "example"}

    def reach(self, number: int) -> None:
        """Run what is left up to that example.

        One that names a file is saved as it, as a reader would, and runs where it is imported.
        """
        while self.num_done <= number:
            code = self.left[self.num_done]
            self.num_done += 1
            if name := plugin_name(code):
                assert len(code.splitlines()) <= MAX_PLUGIN_LINES, name
                (self.folder / name).write_text(code, encoding="utf-8")
            else:
                exec(compile(code, str(self.document), "exec"), self.namespace)


@pytest.fixture(autouse=True)
def what_is_killed_afterwards(request: pytest.FixtureRequest) -> None:
    """Starts while the README's examples run, in whose process `test_sigkill` is."""
    if "README.md" in request.node.name:
        request.getfixturevalue("held_run")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Reader]:
    return {path: Reader(path, tmp_path_factory.mktemp(path.stem)) for path in DOCUMENTS}


@pytest.mark.parametrize(
    ("document", "number"),
    [
        # One process has all of a document's, so that none is run twice.
        pytest.param(
            path, number, id=f"{path.name}-{number}", marks=pytest.mark.xdist_group(path.name)
        )
        for path in DOCUMENTS
        for number in range(len(examples(path)))
    ],
)
def test_examples_run_in_order(
    document: Path, number: int, readers: dict[Path, Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = readers[document]
    monkeypatch.chdir(reader.folder)
    monkeypatch.syspath_prepend(reader.folder)
    reader.reach(number)
