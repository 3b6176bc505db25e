"""How Sphinx builds this site: `make docs`."""

from __future__ import annotations

import functools
import os
import sys
import typing
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

HERE = Path(__file__).parent
LOCAL_DATA = HERE.parent.parent / "shared/data"
"""Where the tests look too; without it the gallery downloads what it uses."""

if LOCAL_DATA.is_dir():
    os.environ.setdefault("BAYESIAN_BENCHMARKS_DATA", str(LOCAL_DATA))
if sys.version_info < (3, 12):
    # As in tests/conftest.py; a page that trains three models takes a seventh less.
    for function in ("_get_protocol_attrs", "_is_callable_members_only"):
        setattr(typing, function, functools.cache(getattr(typing, function)))

sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from check_shapes import DocstringFormat, set_rewrite_docstrings  # noqa: E402

set_rewrite_docstrings(DocstringFormat.NONE)  # docstrings say shapes themselves

from gpflow_dkp import __version__  # noqa: E402

project = "gpflow-dkp"
author = "the gpflow-dkp authors"
copyright = author  # of the footer
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "paper_items",
    "source_links",
]
exclude_patterns = ["_build", "gallery/*", "Thumbs.db", ".DS_Store"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions
language = "en"
nitpicky = False
smartquotes_action = "D"  # dashes; a prime is a prime
viewcode_line_numbers = True
viewcode_follow_imported_members = False

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4

# Docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

# Pictures
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 0,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "default_thumb_file": None,
    "plot_gallery": "True",
    "reset_modules": ("gallery_style.reset",),
}

# Pages
html_theme = "furo"
html_title = f"gpflow-dkp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "native"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
