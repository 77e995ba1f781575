"""The documentation: Sphinx reads the pages (MyST Markdown) and the docstrings of the public names."""

from __future__ import annotations

from importlib import metadata

project = "kscale"
author = "The kscale authors"
release = version = metadata.version("kscale-core")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
exclude_patterns = ["schemas"]
html_theme = "furo"
html_title = f"kscale {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
