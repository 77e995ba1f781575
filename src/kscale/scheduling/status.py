"""Results of plug-ins, and the texts that explain them (upstream: ``framework.Status``, ``FitError``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["FAILING_PREDICATE", "FILTERED_OUT", "NO_NODES", "PREFILTER_FAILED", "Verdict"]


UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
ERROR: Final = "Error"


class Status(msgspec.Struct, frozen=True):
    """A status code and all reasons."""

    code: str
    reasons: tuple[str, ...]


def unschedulable(*reasons: str) -> Status:
    """Return a status of code Unschedulable: evicting pods might help."""
    return Status(UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return a status of code UnschedulableAndUnresolvable: evicting pods would not help."""
    return Status(UNRESOLVABLE, reasons)


def error(reason: str) -> Status:
    """Return a status of code Error: the plug-in could not decide."""
    return Status(ERROR, (reason,))


FAILING_PREDICATE = "FailingPredicateError"
NO_NODES = "NoNodesPassingPredicatesFoundError"
FILTERED_OUT = "PreFilter filtered the Node out"
PREFILTER_FAILED = "PreFilter failed"


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a pod fits a node. If not: the first failing plug-in, where upstream stops.

    ``type``: upstream's error type. ``plugin`` may be empty, or name several (PreFilter node sets). ``code``:
    ``Unschedulable``, ``UnschedulableAndUnresolvable`` or ``Error``. ``unexpected``: upstream's note when it was not an
    ordinary rejection by a Filter. ``numbers``: the amounts that were compared. ``pod`` and ``node`` are empty if the
    verdict is on a class of pods or on a node that does not exist yet.
    """

    pod: str = ""
    ok: bool
    """Whether the pod fits."""
    node: str = ""
    type: str = ""
    plugin: str = ""
    code: str = ""
    reasons: tuple[str, ...] = ()
    """Upstream's reasons, in upstream's order. Empty if upstream gives no reason."""
    unexpected: str = ""
    debug: str = ""
    """Text that upstream adds for its logs."""
    numbers: tuple[dict[str, Any], ...] = ()

    @property
    def why(self) -> tuple[str, ...]:
        """Return the reasons.

        Upstream gives none for a node that PreFilters exclude; kube-scheduler's text is used then.
        """
        if self.unexpected != FILTERED_OUT:
            return self.reasons
        return (f"node(s) didn't satisfy plugin(s) [{' '.join(self.plugin.split(', '))}]",)

    @property
    def message(self) -> str:
        """Return upstream's error text; empty if the pod fits."""
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
        return head + f'predicate "{self.plugin}" didn\'t pass ({"; ".join(parts)})'


def fit_error(reasons: Mapping[str, int], nodes: int, failure: str = "") -> str:
    """Format how many of ``nodes`` nodes gave each reason, sorted as texts.

    A PreFilter's ``failure`` replaces the reasons if it is not empty. Upstream: ``framework.FitError.Error`` without
    what preemption adds; ``ErrNoNodesAvailable`` if there are no nodes.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    text = failure or ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{nodes} nodes are available: {text}."
