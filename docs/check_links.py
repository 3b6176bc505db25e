"""Check a built site: every internal link leads to a page, every anchor is on it, every name is described.

python docs/check_links.py docs/_build/html
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGES = (
    "gpflow_dkp.bijectors",
    "gpflow_dkp.distributions",
    "gpflow_dkp.gram",
    "gpflow_dkp.layers",
    "gpflow_dkp.means",
    "gpflow_dkp.models",
    "gpflow_dkp.saving",
    "gpflow_dkp.tables",
    "gpflow_dkp.training",
    "bayesian_benchmarks.datasets",
    "bayesian_benchmarks.models",
    "bayesian_benchmarks.report",
    "bayesian_benchmarks.sweep",
    "bayesian_benchmarks.tasks",
)
LOADED = {"link": "href", "script": "src", "img": "src", "source": "src"}
"""What a page loads when it is opened, by tag."""


class Page(HTMLParser):
    """The links and anchors of a page, and the files it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.add(values[LOADED[tag]])


def broken_links(site: Path) -> list[str]:
    """One line for each link of the site that leads nowhere, and each file that it would fetch."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    found = []
    for path, page in sorted(pages.items()):
        shown = path.relative_to(site.resolve())
        for link in sorted(page.links | page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{shown}: {link} needs the network")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{shown}: {link} is not there")
            elif (
                target in pages
                and parts.fragment
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                found.append(f"{shown}: {link} has no such anchor")
    return found


def undescribed_names(site: Path, packages: Iterable[str] = PACKAGES) -> list[str]:
    """Names of the packages' `__all__` without a description in the site."""
    anchors = {
        anchor
        for path in (site / "api").glob("*.html")
        for anchor in Page(path.read_text(encoding="utf-8")).anchors
    }
    names = [f"{name}.{x}" for name in packages for x in importlib.import_module(name).__all__]
    return [f"{name} has no description" for name in names if name not in anchors]


def main(argv: list[str]) -> int:
    """Print what is wrong; 1 if something is."""
    site = Path(argv[0])
    if not (site / "index.html").exists():
        print(f"check_links.py: {site} has no index.html; build the site first.", file=sys.stderr)
        return 2
    problems = broken_links(site) + undescribed_names(site)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(list(site.rglob('*.html')))} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
