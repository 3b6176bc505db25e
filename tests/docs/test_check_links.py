"""The check of the built documentation finds what is broken; the build itself is `make docs`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check_links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_links", ROOT / "docs" / "check_links.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="#here" id="here">', None),
        ('<a href="sub/other.html#there">', None),
        ('<a href="https://example.org/page">', None),
        ('<a href="sub/">', None),
        ('<a href="missing.html">', "missing.html is not there"),
        ('<a href="#nowhere">', "#nowhere has no such anchor"),
        ('<a href="sub/other.html#nowhere">', "sub/other.html#nowhere has no such anchor"),
        ('<img src="picture.png">', "picture.png is not there"),
        ('<script src="https://example.org/x.js">', "https://example.org/x.js needs the network"),
    ],
)
def test_broken_links(
    check_links: ModuleType, tmp_path: Path, body: str, problem: str | None
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(body, encoding="utf-8")
    (tmp_path / "sub" / "index.html").touch()
    (tmp_path / "sub" / "other.html").write_text('<p id="there">', encoding="utf-8")
    expected = [] if problem is None else [f"index.html: {problem}"]
    assert check_links.broken_links(tmp_path) == expected


def test_a_name_needs_a_description(check_links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    names = importlib.import_module("gpflow_dkp.bijectors").__all__
    described = [f'<dt id="gpflow_dkp.bijectors.{name}">' for name in names[1:]]
    (tmp_path / "api" / "bijectors.html").write_text("".join(described), encoding="utf-8")
    missing = check_links.undescribed_names(tmp_path, ["gpflow_dkp.bijectors"])
    assert missing == [f"gpflow_dkp.bijectors.{names[0]} has no description"]


def test_what_is_not_a_site_is_said_so(
    check_links: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_links.main([str(tmp_path)]) == 2
    assert "build the site first" in capsys.readouterr().err
