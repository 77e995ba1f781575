"""An answer as one self-contained page of HTML: no network, nothing to install, text that needs no JavaScript."""

from __future__ import annotations

from kscale.html.page import page

__all__ = ["page"]
