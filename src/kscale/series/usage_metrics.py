"""Whether a series of Prometheus is of CPU or of memory, by what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kscale.errors import InputError, Problem

__all__ = ["METRICS", "resource_of"]

METRICS: Final = ("cpu", "memory")
"""What may be said of series that do not say it themselves."""
_COUNTER: Final = "_seconds_total"
_SIGNS: Final = {
    "cpu": re.compile(r"cpu|(?<![a-z])cores?(?![a-z])"),
    "memory": re.compile(r"memory|(?<![a-z])(?:mem|rss)(?![a-z])"),
}


def resource_of(labels: Mapping[str, str], given: str, file: str, place: str, source: str) -> str:
    """``cpu`` or ``memory``: by the label ``resource``, else by the metric's name, as ``given``, or by the file's name.

    A name with ``cpu`` or ``cores`` in it is of CPU; ``container_memory_working_set_bytes``, ``container_mem_rss`` and
    the like are of memory. Raises ``InputError`` where nothing tells, and for a counter of seconds that nobody took the
    rate of: as cores it would be the CPU time of a container's whole life.
    """
    name = labels.get("__name__", "")
    if name.endswith(_COUNTER):
        text = f"{name} counts seconds since a container began, and says nothing of cores: ask for rate({name}[5m])"
        raise InputError(Problem(text, source, place))
    for told in (labels.get("resource", ""), name, given, file):
        found = [name for name, sign in _SIGNS.items() if sign.search(told.lower())]
        if len(found) == 1:
            return found[0]
    what = f"the metric {name!r}" if name else "a series without a metric's name (__name__) or a label resource"
    raise InputError(Problem(f"{what} may be of CPU or of memory: say which (--metric)", source, place))
