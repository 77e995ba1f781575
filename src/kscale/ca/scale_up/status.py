"""The outcome of a scale-up, and the events that tell it (``processors/status/eventing_scale_up_processor.go``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.errors import ErrorRecord
from kscale.ca.event_subjects import UidOf, pod_events
from kscale.effects import Event

__all__ = [
    "ALL_OR_NOTHING",
    "ERROR",
    "EXECUTION_FAILED",
    "EXPANDER_FILTERED",
    "IN_COOLDOWN",
    "LIMITED_BY_MAX_NODES_TOTAL",
    "MAX_NODES_REACHED",
    "NOT_NEEDED",
    "NOT_TRIED",
    "NO_OPTIONS_AVAILABLE",
    "SUCCESSFUL",
    "ConsideredGroup",
    "MadeGroups",
    "RemainingPod",
    "ScaleUpStatus",
    "not_triggered_parts",
    "status_events",
]

SUCCESSFUL: Final = "ScaleUpSuccessful"
ERROR: Final = "ScaleUpError"
NO_OPTIONS_AVAILABLE: Final = "ScaleUpNoOptionsAvailable"
NOT_NEEDED: Final = "ScaleUpNotNeeded"
NOT_TRIED: Final = "ScaleUpNotTried"
IN_COOLDOWN: Final = "ScaleUpInCooldown"
LIMITED_BY_MAX_NODES_TOTAL: Final = "ScaleUpLimitedByMaxNodesTotal"

MAX_NODES_REACHED: Final = "max total nodes in cluster reached"
ALL_OR_NOTHING: Final = "not all pods would fit and scale-up is using all-or-nothing strategy"
EXPANDER_FILTERED: Final = "expansion options filtered out and no longer considered"
EXECUTION_FAILED: Final = "scale-up execution failed"


class RemainingPod(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A pod (``namespace/name``) that no option takes, and the reasons by group."""

    pod: str
    rejected_groups: dict[str, list[str]] = {}
    """Groups on whose nodes it does not fit, or that failed."""
    skipped_groups: dict[str, list[str]] = {}
    """Groups that were not asked."""


class ConsideredGroup(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A group that was looked at; ``exists`` is False for one that would first have to be made."""

    id: str
    exists: bool = True


class MadeGroups(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Groups that were made for this scale-up."""

    main: str
    extra: list[str] = []


class ScaleUpStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """What came of a scale-up (upstream's ``ScaleUpStatus``). Pods are ``namespace/name``.

    - ``result``: upstream's ``ScaleUpResult``, e.g. ``ScaleUpSuccessful``.
    - ``error``: what failed; None: nothing did. It comes with ``ScaleUpError``, and with ``ScaleUpSuccessful`` where
      there is room for a provisioning request and the status of one could not be written.
    - ``scale_ups``: the plan as it was carried out; empty unless the result is ``ScaleUpSuccessful``.
    - ``pods_triggered``: the pods of the option that was chosen, in placement order, also where carrying it out failed.
    - ``pods_await_evaluation``: after a success, pods that some group takes, but not the chosen one.
    - ``pods_remain_unschedulable``: pods that no group takes, and why; without reasons where no group was asked.
    - ``considered_groups``: all groups that were looked at, those that could be made too; empty after an error.
    - ``created_groups``: groups that were made for it; those of a scale-up that was given up afterwards are not told.
    - ``failed_resize_groups``, ``failed_creation_groups``: ids of the groups that could not be resized, or made.
    """

    result: str
    error: ErrorRecord | None = None
    scale_ups: list[ScaleUpInfo] = []
    pods_triggered: Sequence[str] = []
    pods_await_evaluation: Sequence[str] = []
    pods_remain_unschedulable: Sequence[RemainingPod] = []
    considered_groups: list[ConsideredGroup] = []
    created_groups: list[MadeGroups] = []
    failed_resize_groups: list[str] = []
    failed_creation_groups: list[str] = []


def not_triggered_parts(pod: RemainingPod, existing: Collection[str]) -> list[str]:
    """``<count> <reason>`` over the groups that exist, in the order of their texts (upstream's is random)."""
    counts: Counter[str] = Counter()
    for by_group in (pod.rejected_groups, pod.skipped_groups):
        for group, reasons in by_group.items():
            if group in existing:
                counts.update(reasons)
    return sorted(f"{count} {reason}" for reason, count in counts.items())


def status_events(status: ScaleUpStatus, *, uid_of: UidOf = lambda _: "") -> list[Event]:
    """An event for every pod that triggered the scale-up of ``status``; for those that did not, unless it failed or
    succeeded. ``uid_of``: the UID of a pod by ``namespace/name``; empty if it is not known."""
    events: list[Event] = []
    existing = {group.id for group in status.considered_groups if group.exists}
    if status.result not in (SUCCESSFUL, ERROR):
        for pod in status.pods_remain_unschedulable:
            if status.result == LIMITED_BY_MAX_NODES_TOTAL:
                why = MAX_NODES_REACHED
            else:
                why = ", ".join(not_triggered_parts(pod, existing))
            text = f"pod didn't trigger scale-up: {why}"
            events += pod_events([pod.pod], "Normal", "NotTriggerScaleUp", text, uid_of=uid_of)
    if status.scale_ups:
        plan = " ".join(map(str, status.scale_ups))
        text = f"pod triggered scale-up: [{plan}]"
        events += pod_events(status.pods_triggered, "Normal", "TriggeredScaleUp", text, uid_of=uid_of)
    return events
