"""The result of a scale-up and its events (upstream: ``processors/status``: ScaleUpStatus,
EventingScaleUpStatusProcessor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from kscale.ca.errors import ErrorRecord
from kscale.ca.events import PodUidLookup, build_pod_events
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.effects import Event
from kscale.objects.argument_types import typed

__all__ = [
    "ALL_OR_NOTHING_REASON",
    "EXECUTION_FAILED_REASON",
    "EXPANDER_FILTERED_REASON",
    "MAX_NODES_TOTAL_REASON",
    "SCALE_UP_ERROR",
    "SCALE_UP_IN_COOLDOWN",
    "SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL",
    "SCALE_UP_NOT_NEEDED",
    "SCALE_UP_NOT_TRIED",
    "SCALE_UP_NO_OPTIONS_AVAILABLE",
    "SCALE_UP_SUCCESSFUL",
    "ConsideredGroup",
    "MadeGroups",
    "NoScaleUpInfo",
    "ScaleUpStatus",
    "build_scale_up_events",
    "format_not_triggered_reasons",
]

SCALE_UP_SUCCESSFUL: Final = "ScaleUpSuccessful"
SCALE_UP_ERROR: Final = "ScaleUpError"
SCALE_UP_NO_OPTIONS_AVAILABLE: Final = "ScaleUpNoOptionsAvailable"
SCALE_UP_NOT_NEEDED: Final = "ScaleUpNotNeeded"
SCALE_UP_NOT_TRIED: Final = "ScaleUpNotTried"
SCALE_UP_IN_COOLDOWN: Final = "ScaleUpInCooldown"
SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL: Final = "ScaleUpLimitedByMaxNodesTotal"

MAX_NODES_TOTAL_REASON: Final = "max total nodes in cluster reached"
ALL_OR_NOTHING_REASON: Final = "not all pods would fit and scale-up is using all-or-nothing strategy"
EXPANDER_FILTERED_REASON: Final = "expansion options filtered out and no longer considered"
EXECUTION_FAILED_REASON: Final = "scale-up execution failed"


class NoScaleUpInfo(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A pod (``namespace/name``) that no option takes, and the reasons by group."""

    pod: str
    rejected_groups: dict[str, list[str]] = {}
    """Groups on whose nodes the pod does not fit, or that failed."""
    skipped_groups: dict[str, list[str]] = {}
    """Groups that were skipped."""


class ConsideredGroup(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A group that was considered; ``exists`` is False for a group that would have to be created first."""

    id: str
    exists: bool = True


class MadeGroups(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Groups that were created for this scale-up."""

    main: str
    extra: list[str] = []


class ScaleUpStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """Result of a scale-up (upstream's ``ScaleUpStatus``). Pods are ``namespace/name``.

    - ``result``: upstream's ``ScaleUpResult``, e.g. ``ScaleUpSuccessful``.
    - ``error``: the error, or None. It comes with ``ScaleUpError``, and with ``ScaleUpSuccessful`` if there is room for
      a provisioning request and the status of one could not be written.
    - ``scale_ups``: the executed plan; empty unless the result is ``ScaleUpSuccessful``.
    - ``pods_triggered``: the pods of the chosen option, in placement order, also if its execution failed.
    - ``pods_await_evaluation``: after a success, pods that some group takes, but not the chosen one.
    - ``pods_remain_unschedulable``: pods that no group takes, and why; without reasons if no group was evaluated.
    - ``considered_groups``: all groups that were evaluated, including those that could be created; empty after an
      error.
    - ``created_groups``: groups that were created for it; those of a scale-up that failed afterwards are not reported.
    - ``failed_resize_groups``, ``failed_creation_groups``: ids of the groups that could not be resized, or created.
    """

    result: str
    error: ErrorRecord | None = None
    scale_ups: list[ScaleUpInfo] = []
    pods_triggered: Sequence[str] = []
    pods_await_evaluation: Sequence[str] = []
    pods_remain_unschedulable: Sequence[NoScaleUpInfo] = []
    considered_groups: list[ConsideredGroup] = []
    created_groups: list[MadeGroups] = []
    failed_resize_groups: list[str] = []
    failed_creation_groups: list[str] = []


def format_not_triggered_reasons(pod: NoScaleUpInfo, existing: Collection[str]) -> list[str]:
    """Format ``<count> <reason>`` for the reasons of existing groups, sorted by text (upstream's order is random)."""
    counts: Counter[str] = Counter()
    for by_group in (pod.rejected_groups, pod.skipped_groups):
        for group, reasons in by_group.items():
            if group in existing:
                counts.update(reasons)
    return sorted(f"{count} {reason}" for reason, count in counts.items())


@typed
def build_scale_up_events(status: ScaleUpStatus, *, uid_of: PodUidLookup = lambda _: "") -> list[Event]:
    """Build an event for every pod that triggered the scale-up of ``status``, and for those that did not.

    The latter get no event if the scale-up failed or succeeded. ``uid_of`` returns the UID of a pod by
    ``namespace/name``; empty if unknown.
    """
    events: list[Event] = []
    existing = {group.id for group in status.considered_groups if group.exists}
    if status.result not in (SCALE_UP_SUCCESSFUL, SCALE_UP_ERROR):
        for pod in status.pods_remain_unschedulable:
            if status.result == SCALE_UP_LIMITED_BY_MAX_NODES_TOTAL:
                why = MAX_NODES_TOTAL_REASON
            else:
                why = ", ".join(format_not_triggered_reasons(pod, existing))
            text = f"pod didn't trigger scale-up: {why}"
            events += build_pod_events([pod.pod], "Normal", "NotTriggerScaleUp", text, uid_of=uid_of)
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        text = f"pod triggered scale-up: [{plan}]"
        events += build_pod_events(status.pods_triggered, "Normal", "TriggeredScaleUp", text, uid_of=uid_of)
    return events
