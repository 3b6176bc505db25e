"""How the gallery's pictures look."""

from __future__ import annotations

from typing import Any

STYLE = {
    "figure.figsize": (8.0, 4.2),
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "savefig.dpi": 100,
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "image.cmap": "magma",
}


def reset(gallery_conf: dict[str, Any] | None, name: str | None) -> None:
    """Matplotlib's defaults, then the style: before each example."""
    import matplotlib as mpl

    mpl.rcdefaults()
    mpl.use("agg")
    mpl.rcParams.update(STYLE)
