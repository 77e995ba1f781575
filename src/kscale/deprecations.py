"""What goes away, and says so in the minor version before it does. kscale's own.

A public name that goes leaves the ``__all__`` of its module and stands in :data:`LEAVING`; the ``__getattr__`` of the
module ends with :func:`leaving_name`, so that who still asks for the name gets it, and a ``DeprecationWarning``. A
parameter that goes stands there as ``kscale.estimate(old=)``, and its function calls :func:`warn_leaving` where it is
given. ``nox -s api`` lets nothing go that the last release did not have in this table.
"""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any, NamedTuple

__all__ = ["LEAVING", "Leaving", "leaving_name", "warn_leaving"]


class Leaving(NamedTuple):
    """Since which version something warns (``0.2``), and what is there instead of it."""

    since: str
    instead: str
    """Of a name: the one that takes its place (``kscale.ca.run_once``). Of a parameter: words."""

    held: str = ""
    """Where what goes is found, if that is not what takes its place."""


LEAVING: dict[str, Leaving] = {}
"""By full name (``kscale.ca.old_name``, ``kscale.estimate(old=)``)."""


def warn_leaving(name: str, *, stacklevel: int = 3) -> None:
    """Warns of what stands in :data:`LEAVING` under ``name``.

    ``stacklevel``: whose line the warning names, as :func:`warnings.warn` counts; without it the caller of the function
    that calls this.
    """
    known = LEAVING[name]
    text = f"{name} goes away: deprecated since {known.since}; instead: {known.instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def leaving_name(module: str, name: str) -> Any:
    """What ``name`` of a ``module`` was, with a warning.

    Raises AttributeError, in Python's words, for a name that does not stand in :data:`LEAVING`.
    """
    full = f"{module}.{name}"
    if full not in LEAVING:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_leaving(full, stacklevel=4)
    return resolve_name(LEAVING[full].held or LEAVING[full].instead)
