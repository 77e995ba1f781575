"""Deprecated names and parameters, which warn in the minor version before they are removed.

A public name to be removed leaves the ``__all__`` of its module and gets an entry in :data:`LEAVING`. The
``__getattr__`` of the module ends with :func:`leaving_name`, so that callers still get the name, and a
``DeprecationWarning``. A parameter to be removed has an entry such as ``kscale.estimate(old=)``, and its function calls
:func:`warn_leaving` if a caller passes it. ``nox -s api`` fails if something is removed that had no entry in the last
release. The mechanism is kscale's own: not in upstream.
"""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any, NamedTuple

__all__ = ["LEAVING", "Leaving", "leaving_name", "warn_leaving"]


class Leaving(NamedTuple):
    """Version since which something warns (``0.2``), and its replacement."""

    since: str
    instead: str
    """The name that replaces a name (``kscale.ca.run_once``), or a text on what replaces a parameter."""

    held: str = ""
    """Full name of the deprecated object, if it is not that of the replacement."""


LEAVING: dict[str, Leaving] = {}
"""Deprecated names and parameters by full name (``kscale.ca.old_name``, ``kscale.estimate(old=)``)."""


def warn_leaving(name: str, *, stacklevel: int = 3) -> None:
    """Emit a DeprecationWarning for the entry ``name`` of :data:`LEAVING`.

    ``stacklevel``: the frame that the warning names, as :func:`warnings.warn` counts. Default: the caller of the
    function that calls this. Raises KeyError if there is no such entry.
    """
    entry = LEAVING[name]
    text = f"{name} goes away: deprecated since {entry.since}; instead: {entry.instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def leaving_name(module: str, name: str) -> Any:
    """Return the object that ``name`` of a ``module`` stood for, with a warning.

    Raises AttributeError, with Python's message, for a name without an entry in :data:`LEAVING`.
    """
    full = f"{module}.{name}"
    if full not in LEAVING:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_leaving(full, stacklevel=4)
    return resolve_name(LEAVING[full].held or LEAVING[full].instead)
