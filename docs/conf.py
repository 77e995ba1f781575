"""The documentation: Sphinx reads the pages (MyST Markdown) and the docstrings of the public names."""

from __future__ import annotations

from importlib import metadata
from typing import Any

project = "kscale"
author = project_copyright = "The kscale authors"
release = version = metadata.version("kscale-core")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_google_docstring = False
suppress_warnings = ["ref.python"]  # a type in a NumPy section may be on several pages of the reference
root_doc = "index"
exclude_patterns = ["schemas"]
html_theme = "furo"
html_title = f"kscale {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]

myst_heading_anchors = 4
smartquotes_action = "qe"  # quotes and ellipses; no dashes, which would change the names of flags
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}


def without_numbers(*about: Any) -> None:
    """Fields of named tuples that have no text of their own: Python's would say their number."""
    lines: list[str] = about[-1]
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", without_numbers)
