"""Deprecated names and parameters, which warn for a minor version before they are removed. Not in upstream.

A deprecated public name is removed from its module's ``__all__`` and added to :data:`LEAVING`. The module's
``__getattr__`` ends with :func:`leaving_name`, which returns the object with a ``DeprecationWarning``. A deprecated
parameter is listed as ``kscale.estimate(old=)``, and its function calls :func:`warn_leaving` when it is passed.
``nox -s api`` fails if a name is removed that the last release did not list.
"""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any, NamedTuple

__all__ = ["LEAVING", "Leaving", "leaving_name", "warn_leaving"]


class Leaving(NamedTuple):
    """Deprecation of a name: the version that warns first (``0.2``), and the replacement."""

    since: str
    instead: str
    """Full name of the replacement (``kscale.ca.run_once``), or for a parameter a description."""

    held: str = ""
    """Full name of the deprecated object, if it differs from the replacement."""


LEAVING: dict[str, Leaving] = {}
"""Deprecated names and parameters by full name (``kscale.ca.old_name``, ``kscale.estimate(old=)``)."""


def warn_leaving(name: str, *, stacklevel: int = 3) -> None:
    """Emit the DeprecationWarning for ``name`` in :data:`LEAVING`.

    ``stacklevel``: as in :func:`warnings.warn`; by default the warning names the caller of the function that calls
    this.
    """
    entry = LEAVING[name]
    text = f"{name} goes away: deprecated since {entry.since}; instead: {entry.instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def leaving_name(module: str, name: str) -> Any:
    """Return the deprecated object ``name`` of a ``module``, with a warning.

    Raises AttributeError, with Python's message, for a name that is not in :data:`LEAVING`.
    """
    full = f"{module}.{name}"
    if full not in LEAVING:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_leaving(full, stacklevel=4)
    return resolve_name(LEAVING[full].held or LEAVING[full].instead)
