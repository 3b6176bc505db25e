"""Formulas as MathML, which browsers draw by themselves: pages need neither network nor scripts for them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

APPLIED = re.compile(r"(<mo>&ApplyFunction;</mo>)(?!\s*<mo[^>]*>[(|])")
"""A function before an argument without brackets: browsers leave no space there."""

BAR = '<mo stretchy="false">|</mo>'
"""Of an absolute value; browsers take it for a relation, with space on both sides."""


def mathml(code: str, node: nodes.Node, *, as_block: bool) -> str:
    """The formula in MathML; in LaTeX with a warning, if docutils cannot read it."""
    try:
        formula = latex2mathml.tex2mathml(code, as_block=as_block)
    except Exception as error:
        LOGGER.warning("formula %r: %s", code, error, location=node)
        return f"<code>{code}</code>"
    formula = formula.replace(BAR, BAR.replace("<mo", '<mo lspace="0" rspace="0"'))
    return APPLIED.sub(r'\1<mspace width="0.167em"></mspace>', formula)


def visit_math(translator: Any, node: nodes.math) -> None:
    """A formula in a line."""
    translator.body.append(mathml(node.astext(), node, as_block=False))
    raise nodes.SkipNode


def visit_displaymath(translator: Any, node: nodes.math_block) -> None:
    """A formula of its own."""
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(mathml(node.astext(), node, as_block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer and make it the site's."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
