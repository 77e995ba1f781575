"""The documentation: Sphinx reads the pages (MyST Markdown) and the docstrings of the public names."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from docutils import nodes
from sphinx import addnodes

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


def put_functions_first(app: Any, doctree: nodes.document) -> None:
    """Move the functions of a reference page before its classes and constants, and leave the rest in its order."""
    del app
    for section in doctree.findall(nodes.section):
        entries: list[list[nodes.Node]] = [[]]
        """What precedes the first description, and each description with its index entry and what follows it."""
        for child in section.children:
            if isinstance(child, addnodes.desc):
                before = entries[-1]
                entries.append([before.pop()] if before and isinstance(before[-1], addnodes.index) else [])
            elif isinstance(child, nodes.section):
                break
            entries[-1].append(child)
        rest = section.children[sum(map(len, entries)) :]
        described = sorted(entries[1:], key=lambda entry: not _is_function(entry))
        section.children = [node for entry in [entries[0], *described, [*rest]] for node in entry]


def _is_function(entry: list[nodes.Node]) -> bool:
    return any(isinstance(node, addnodes.desc) and node["objtype"] == "function" for node in entry)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", without_numbers)
    app.connect("doctree-read", put_functions_first, priority=100)  # before the contents of the page are collected
