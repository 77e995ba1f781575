"""A result as one self-contained HTML page that needs no network, no installation and, for its text, no JavaScript."""

from __future__ import annotations

from kscale.html.page import page

__all__ = ["page"]
