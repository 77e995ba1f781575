"""The version of kscale, for the facade and for the packages below it. ``pyproject.toml`` states the same version."""

from __future__ import annotations

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
