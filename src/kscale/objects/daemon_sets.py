"""Which nodes a daemon set wants a pod on (upstream: ``pkg/controller/daemon/util``, ``NodeShouldRunDaemonPod``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kscale.objects.apps import DaemonSet
from kscale.objects.core import Node, PodSpec, Toleration
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.taints import first_untolerated

__all__ = ["daemon_tolerations", "should_run"]

# (key, effect, for pods on the host's network only), in upstream's order
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute", False),
    ("node.kubernetes.io/unreachable", "NoExecute", False),
    ("node.kubernetes.io/disk-pressure", "NoSchedule", False),
    ("node.kubernetes.io/memory-pressure", "NoSchedule", False),
    ("node.kubernetes.io/pid-pressure", "NoSchedule", False),
    ("node.kubernetes.io/unschedulable", "NoSchedule", False),
    ("node.kubernetes.io/network-unavailable", "NoSchedule", True),
)


def daemon_tolerations(spec: PodSpec) -> Iterator[Toleration]:
    """What the DaemonSet controller lets its pods tolerate on top of what they say."""
    for key, effect, host_only in _TOLERATED:
        if spec.host_network or not host_only:
            yield Toleration(key=key, operator="Exists", effect=effect)


def should_run(daemonset: DaemonSet, node: Node) -> bool:
    """Whether the daemon set wants a pod on the node; resources are not looked at."""
    spec = daemonset.spec.template.spec
    if spec.node_name and spec.node_name != node.name:
        return False
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is not None and not compile_node_selector(required).matches(labels, node.name):
        return False
    return first_untolerated([*spec.tolerations, *daemon_tolerations(spec)], node.spec.taints) is None
