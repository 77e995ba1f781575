"""Build information of this installation, for bug reports. Not in upstream."""

from __future__ import annotations

import os
import platform
from typing import Any

import msgspec
import numpy as np

from kscale._native import _build

__all__ = ["build_info"]


def build_info() -> dict[str, Any]:
    """Return version, compiler, CPU level of the dispatched loops, and versions of Python, NumPy and msgspec."""
    from kscale import __version__

    return {
        "kscale": __version__,
        **_build.build_info(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "msgspec": msgspec.__version__,
        "cpus": os.cpu_count(),
    }
