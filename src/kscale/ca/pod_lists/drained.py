"""Pods of nodes that are being drained will need a place (``core/podlistprocessor/currently_drained_nodes.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod, is_static_pod

__all__ = ["WithDrained", "is_recreatable", "with_drained_pods"]


class WithDrained(msgspec.Struct, kw_only=True):
    """The pods, and what was logged about nodes that are not there."""

    pods: list[Pod]
    warnings: list[str] = []


def is_recreatable(pod: Pod) -> bool:
    """Whether the pod would come back elsewhere. Pods without controller count as if they did."""
    return not (is_static_pod(pod) or is_mirror_pod(pod) or is_daemonset_pod(pod))


def with_drained_pods(
    pods: Sequence[Pod], draining: Iterable[str], pods_on: Callable[[str], Iterable[Pod] | None]
) -> WithDrained:
    """The pods, then copies without node of those on the nodes being drained. Pods being deleted are left out.

    ``pods_on`` gives the pods of a node, None for a node that does not exist.
    """
    found = WithDrained(pods=list(pods))
    for name in draining:
        on_node = pods_on(name)
        if on_node is None:
            found.warnings.append(f"Couldn't get node {name} info, assuming the node got deleted already")
            continue
        found.pods += [
            replace(pod, spec=replace(pod.spec, node_name=""))
            for pod in on_node
            if pod.metadata.deletion_timestamp is None and is_recreatable(pod)
        ]
    return found
