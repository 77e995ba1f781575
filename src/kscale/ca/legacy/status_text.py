"""The status of release 1.3, a text (``clusterstate/api/utils.go`` and ``clusterstate.go`` of then)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from kscale.ca.cluster_state import ClusterAutoscalerStatus, ClusterStateRegistry
from kscale.ca.cluster_state.state import GroupReadiness
from kscale.ca.cluster_state.status_document import Condition
from kscale.ca.status_config_map import time_text
from kscale.effects import Moment, from_text

__all__ = ["shown_1_3", "status_1_3"]

_NEVER: Final = "0001-01-01 00:00:00 +0000 UTC"


def shown_1_3(message: str, now: Moment) -> str:
    """What is written of a message, or of a status."""
    return f"Cluster-autoscaler status at {time_text(now)}:\n{message}"


def status_1_3(status: ClusterAutoscalerStatus, state: ClusterStateRegistry) -> str:
    """The status after a loop. ``state``: what it was made of, whose counts that release tells in other words.

    Go says behind each moment what its process's own clock showed, too (``m=+...``); that is left out.
    """
    total, whole = state.total, status.cluster_wide
    candidates = sum(map(len, state.candidates.values()))
    lines = [
        "Cluster-wide:",
        *_told("Health", whole.health, _counts(total)),
        *_told("ScaleUp", whole.scale_up, f"ready={len(total.ready)} registered={len(total.registered)}"),
        *_told("ScaleDown", whole.scale_down, f"candidates={candidates}"),
    ]
    groups = [] if status.node_groups is UNSET else status.node_groups
    if groups:
        lines += ["", "NodeGroups:"]
    for group in groups:
        name, health = str(group.name), group.health
        known = state.readiness.get(name, GroupReadiness())
        target = f"cloudProviderTarget={health.cloud_provider_target}"
        sizes = f"{target} (minSize={health.min_size}, maxSize={health.max_size})"
        lines += [
            f"  Name:        {name}",
            *_told("Health", health, f"{_counts(known)} {sizes}"),
            *_told("ScaleUp", group.scale_up, f"ready={len(known.ready)} {target}"),
            *_told("ScaleDown", group.scale_down, f"candidates={len(state.candidates.get(name, ()))}"),
            "",
        ]
    return "".join(f"{line}\n" for line in lines)


def _told(kind: str, condition: Condition, message: str) -> Sequence[str]:
    return (
        f"  {kind + ':':<12} {condition.status} ({message})",
        f"  {'':13}LastProbeTime:      {_time(condition.last_probe_time)}",
        f"  {'':13}LastTransitionTime: {_time(condition.last_transition_time)}",
    )


def _counts(known: GroupReadiness) -> str:
    late = len(known.long_not_started)
    return (
        f"ready={len(known.ready)} unready={len(known.unready) - late} notStarted={len(known.not_started)} "
        f"longNotStarted={late} registered={len(known.registered)} longUnregistered={len(known.long_unregistered)}"
    )


def _time(text: str | None) -> str:
    return _NEVER if text is None else time_text(from_text(text))
