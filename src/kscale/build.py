"""Build and version information of this installation, for bug reports. kscale's own: not in upstream."""

from __future__ import annotations

import os
import platform
from typing import Any

import msgspec
import numpy as np

from kscale._native import _build
from kscale.version import __version__

__all__ = ["build_info"]


def build_info() -> dict[str, Any]:
    """Return the versions of kscale and its dependencies, the compiler, and the CPU level of the dispatched loops."""
    return {
        "kscale": __version__,
        **_build.build_info(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "msgspec": msgspec.__version__,
        "cpus": os.cpu_count(),
    }
