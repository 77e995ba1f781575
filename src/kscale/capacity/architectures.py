"""Processor architectures that new nodes of a cluster may have.

Not in upstream.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kscale.objects.api.core import Node, NodeSelector, Pod
from kscale.objects.node_selectors import compile_node_selector
from kscale.objects.pod_owners import is_daemonset_pod, is_mirror_pod
from kscale.snapshot.cluster import Cluster

__all__ = ["ARCHITECTURES", "Architectures", "arch_of", "architectures_of"]

ARCHITECTURES = ("amd64", "arm64")

_KEYS = ("kubernetes.io/arch", "beta.kubernetes.io/arch")


@dataclass(frozen=True, slots=True)
class Architectures:
    """Architectures as ``kubernetes.io/arch`` names them.

    A dump does not say for which architectures an image exists. A pod that names none is therefore assumed to run on
    the architectures of the existing nodes only.

    Attributes
    ----------
    nodes : frozenset of str
        Architectures of the existing nodes.
    needed : frozenset of str
        Architectures that some pod requires and no node has.
    accepted : frozenset of str
        Architectures that every pod names as one it may run on.
    """

    nodes: frozenset[str]
    needed: frozenset[str]
    accepted: frozenset[str]

    @property
    def allowed(self) -> frozenset[str]:
        """Return the architectures that new nodes may have; empty if neither nodes nor pods name any."""
        return self.nodes | self.needed | self.accepted


def arch_of(node: Node) -> str:
    """Return the architecture in a node's labels; empty without one."""
    labels = node.metadata.labels or {}
    return next((labels[key] for key in _KEYS if labels.get(key)), "")


def architectures_of(cluster: Cluster) -> Architectures:
    """Return the architectures of the cluster's nodes, and those that the constraints of its pods allow.

    Pods of DaemonSets, mirror pods and pods that have ended do not count: they follow the nodes, or need none.
    """
    nodes = frozenset(filter(None, map(arch_of, cluster.nodes())))
    constraints: list[frozenset[str] | None] = []
    for pod in cluster.pods():
        if pod.status.phase in ("Succeeded", "Failed") or is_daemonset_pod(pod) or is_mirror_pod(pod):
            continue
        constraints.append(_get_named_architectures(pod))
    named = [names for names in constraints if names is not None]
    all_name_some = bool(named) and len(named) == len(constraints)
    needed = (
        frozenset().union(*(names for names in named if not names & nodes)) if nodes or all_name_some else frozenset()
    )
    accepted = named[0].intersection(*named[1:]) if all_name_some else frozenset()
    return Architectures(nodes, needed, accepted)


def _get_named_architectures(pod: Pod) -> frozenset[str] | None:
    """Return the architectures on which a pod may run by its node selector and affinity, None if they name none."""
    wanted = {key: value for key, value in (pod.spec.node_selector or {}).items() if key in _KEYS}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    selector = None if affinity is None else _reduce_to_architecture(affinity.required)
    if not wanted and selector is None:
        return None
    compiled = None if selector is None else compile_node_selector(selector)
    return frozenset(
        arch
        for arch in ARCHITECTURES
        if all(value == arch for value in wanted.values())
        and (compiled is None or compiled.matches(dict.fromkeys(_KEYS, arch), ""))
    )


def _reduce_to_architecture(selector: NodeSelector | None) -> NodeSelector | None:
    """Return the selector's terms reduced to the architecture; None if some term does not restrict it."""
    terms = []
    for term in selector.node_selector_terms if selector is not None else ():
        expressions = [expression for expression in term.match_expressions if expression.key in _KEYS]
        if not expressions:
            return None
        terms.append(msgspec.structs.replace(term, match_expressions=expressions, match_fields=[]))
    return NodeSelector(node_selector_terms=terms) if terms else None
