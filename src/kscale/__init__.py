"""Kubernetes autoscaling decisions from data alone: the same answers as upstream, faster, explained.

``import kscale`` loads NumPy and msgspec only; what costs more is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kscale.errors import InputError, KscaleError

if TYPE_CHECKING:
    from kscale import ca, vpa
    from kscale.build import build_info
    from kscale.objects.quantity import Quantity

__version__ = "0.1.0"

# Public name -> the module that holds it. A name that is its module's own is a module itself.
_LAZY: dict[str, str] = {
    "build_info": "kscale.build",
    "Quantity": "kscale.objects.quantity",
    "ca": "kscale.ca",
    "vpa": "kscale.vpa",
}

__all__ = ["InputError", "KscaleError", "Quantity", "__version__", "build_info", "ca", "vpa"]


def __getattr__(name: str) -> Any:
    try:
        module = import_module(_LAZY[name])
    except KeyError:
        raise AttributeError(f"module 'kscale' has no attribute {name!r}") from None
    value = module if _LAZY[name] == f"kscale.{name}" and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
