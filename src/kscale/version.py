"""Version of kscale, of its dependencies and of its build, for bug reports. Not in upstream.

``pyproject.toml`` states the same version.
"""

from __future__ import annotations

import os
import platform
from typing import Any, Final

__all__ = ["__version__", "build_info"]

__version__: Final = "0.1.0"


def build_info() -> dict[str, Any]:
    """Return the versions of kscale and its dependencies, how the native kernels are built, and the number of CPUs.

    ``cpu_level`` is the x86-64 microarchitecture level, such as ``x86-64-v3``, whose code the kernels run on this CPU.
    """
    import msgspec
    import numpy as np

    from kscale._native import _engine

    return {
        "kscale": __version__,
        **_engine.build_info(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "msgspec": msgspec.__version__,
        "cpus": os.cpu_count(),
    }
