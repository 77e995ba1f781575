"""What a pod that fits no node is told: the message of kube-scheduler's event and condition (``FitError``)."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["fit_error"]


def fit_error(reasons: Mapping[str, int], nodes: int, failure: str = "") -> str:
    """How often each reason was given by one of ``nodes`` nodes, sorted as texts; or the PreFilter's ``failure``.

    Upstream: ``framework.FitError.Error`` without what preemption adds; of no nodes at all ``ErrNoNodesAvailable``.
    """
    if not nodes:
        return "no nodes available to schedule pods"
    text = failure or ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{nodes} nodes are available: {text}."
