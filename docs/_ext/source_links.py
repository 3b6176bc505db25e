"""Links of a page to Python files, as they work on GitHub, lead to the highlighted source in the site."""

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


def link_to_source(app: Any, doctree: nodes.document, docname: str) -> None:
    """Replace downloads of modules by links to their source's page."""
    if app.builder.format != "html":
        return
    for node in list(doctree.findall(addnodes.download_reference)):
        module = module_of(node.get("reftarget", ""))
        shown = getattr(app.env, "_viewcode_modules", {})
        if module is None or not shown.get(module.replace("/", ".")):
            continue  # a file whose source has no page stays a download
        page = app.builder.get_relative_uri(docname, posixpath.join("_modules", module))
        node.replace_self(nodes.reference("", "", *node.children, refuri=page, internal=True))


def own_module(app: Any, modname: str, attribute: str) -> str | None:
    """The documented module of what `viewcode` would take for a builtin; None for all else."""
    from sphinx.ext.viewcode import _get_full_modname

    return modname if _get_full_modname(modname, attribute) == "builtins" else None


def setup(app: Any) -> dict[str, Any]:
    """Connect."""
    app.connect("doctree-resolved", link_to_source)
    app.connect("viewcode-follow-imported", own_module)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
