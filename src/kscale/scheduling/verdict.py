"""Why a pod does not fit a node, as data and as upstream's texts."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["FAILING_PREDICATE", "NO_NODES", "Verdict"]

FAILING_PREDICATE = "FailingPredicateError"
NO_NODES = "NoNodesPassingPredicatesFoundError"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a pod fits a node. If not: the first failing plug-in, where upstream stops.

    ``type``: upstream's error type. ``plugin`` may be empty, or name several (PreFilter node sets). ``code``:
    ``Unschedulable``, ``UnschedulableAndUnresolvable`` or ``Error``. ``unexpected``: upstream's note when it was not an
    ordinary rejection by a Filter. ``numbers``: what was compared, for people who ask why.
    """

    pod: str
    ok: bool
    node: str = ""
    type: str = ""
    plugin: str = ""
    code: str = ""
    reasons: tuple[str, ...] = ()
    unexpected: str = ""
    debug: str = ""
    numbers: tuple[dict[str, Any], ...] = ()

    @property
    def resolvable(self) -> bool:
        """Whether removing other pods could help."""
        return self.code == "Unschedulable"

    @property
    def message(self) -> str:
        """Upstream's error text; empty if the pod fits."""
        if self.ok:
            return ""
        head = f"can't schedule pod {self.pod}: "
        if self.type == NO_NODES:
            return f"{head}couldn't find a matching Node with passing predicates"
        parts = [f"predicateReasons=[{', '.join(self.reasons)}]"]
        if self.debug:
            parts.append(f"debugInfo={self.debug}")
        if self.unexpected:
            parts.append(f"unexpectedError={self.unexpected}")
        return f"{head}predicate {go_quote(self.plugin)} didn't pass ({'; '.join(parts)})"


def go_quote(text: str) -> str:
    """A plug-in name in quotes."""
    return f'"{text}"'
