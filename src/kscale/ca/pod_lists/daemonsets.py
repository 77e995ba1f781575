"""No node is added for a DaemonSet pod (``core/podlistprocessor/filter_out_daemon_sets.go``)."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod

__all__ = ["without_daemonset_pods"]


def without_daemonset_pods(pods: Iterable[Pod]) -> list[Pod]:
    """The other pods, in their order."""
    return [pod for pod in pods if not is_daemonset_pod(pod)]
