"""Links of a page to Python files, as they work on GitHub, lead to pages of the site.

To the highlighted source of a module, and to the page of an example of the gallery.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gpflow_dkp", "bayesian_benchmarks")


def module_of(target: str) -> str | None:
    """The page of a Python file's source, by the file's path, or None for other files."""
    path = (ROOT / "docs" / target).resolve()
    if path.suffix != ".py" or not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "/".join(parts) if parts[0] in PACKAGES else None


def page_of(app: Any, target: str) -> str | None:
    """The page that shows a Python file, None where there is none: then the link stays a download."""
    path = Path(target)
    if path.parent.name == "gallery":
        return f"examples/{path.stem}"
    module = module_of(target)
    if module and getattr(app.env, "_viewcode_modules", {}).get(module.replace("/", ".")):
        return posixpath.join("_modules", module)
    return None


def link_to_page(app: Any, doctree: nodes.document, docname: str) -> None:
    """Replace downloads of files that have a page by links to it."""
    if app.builder.format != "html":
        return
    for node in list(doctree.findall(addnodes.download_reference)):
        page = page_of(app, node.get("reftarget", ""))
        if page is not None:
            uri = app.builder.get_relative_uri(docname, page)
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def link_to_gallery(app: Any, docname: str, source: list[str]) -> None:
    """The gallery's folder, where a page links to it, is the page that is made of it."""
    source[0] = source[0].replace("](gallery/GALLERY_HEADER.rst)", "](examples/index.rst)")


def own_module(app: Any, modname: str, attribute: str) -> str | None:
    """The documented module of what `viewcode` would take for a builtin; None for all else."""
    from sphinx.ext.viewcode import _get_full_modname

    return modname if _get_full_modname(modname, attribute) == "builtins" else None


def setup(app: Any) -> dict[str, Any]:
    """Connect."""
    app.connect("source-read", link_to_gallery)
    app.connect("doctree-resolved", link_to_page)
    app.connect("viewcode-follow-imported", own_module)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
