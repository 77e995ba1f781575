"""Kinds of workloads as kubectl lets them be typed."""

from __future__ import annotations

from typing import Final

__all__ = ["kind_of"]

_SHORT: Final = {
    "deploy": "Deployment",
    "rs": "ReplicaSet",
    "rc": "ReplicationController",
    "sts": "StatefulSet",
    "ds": "DaemonSet",
    "cj": "CronJob",
    "po": "Pod",
}
_KINDS: Final = {kind.lower(): kind for kind in (*_SHORT.values(), "Job")}


def kind_of(text: str) -> str:
    """``Deployment`` of ``deployments``, ``deploy``, ``deployment.apps``; anything else as it is."""
    name = text.lower().partition(".")[0]
    return _SHORT.get(name) or _KINDS.get(name) or _KINDS.get(name.removesuffix("s")) or text
