"""The check of built pages in a browser finds what is wrong with them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def check_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_pages", ROOT / "docs" / "check_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(folder: Path, body: str) -> None:
    text = f'<html><head><meta name="viewport" content="width=device-width"></head><body>{body}</body></html>'
    (folder / "page.html").write_text(text)


def test_errors_and_wide_pages_are_told(
    check_pages: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not any(map(shutil.which, check_pages.BROWSERS)):
        pytest.skip("no browser is installed")
    page(tmp_path, "<p>Nothing is wrong.</p>")
    assert check_pages.main([str(tmp_path)]) == 0
    assert "0 problems" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    page(tmp_path, '<div style="width: 900px">wide</div><script>missing();</script>')
    assert check_pages.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told.count("missing is not defined") == 2
    assert "in a window of 390" in told
    assert "in a window of 1280" not in told


def test_without_a_browser_it_says_so(
    check_pages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(check_pages, "BROWSERS", ("no-such-browser",))
    assert check_pages.main([str(tmp_path)]) == 0
    assert "no browser is installed" in capsys.readouterr().out
