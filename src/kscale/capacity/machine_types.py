"""Machine types: family and generation, as the name of an instance type says them, and the processor architectures
that new nodes of a cluster may have. Not in upstream.

Sources: the labels of Karpenter's AWS provider (``karpenter.k8s.aws/instance-family`` etc.), Azure's naming conventions
(https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions) and Google's machine series.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import msgspec

from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node, NodeSelector, Pod
from kscale.objects.node_selectors import INSTANCE_TYPES, compile_node_selector
from kscale.objects.pod_owners import is_lost_with_node
from kscale.snapshot.cluster import Cluster

__all__ = [
    "ARCHITECTURES",
    "Architectures",
    "Cloud",
    "TypeName",
    "arch_of",
    "architectures_of",
    "generation_of",
    "instance_type_of",
    "parse_type_name",
]


class Cloud(StrEnum):
    """A cloud, as its instance types' names tell it."""

    AWS = "aws"
    AZURE = "azure"
    GOOGLE = "gcp"


@dataclass(frozen=True, slots=True)
class TypeName:
    """The parts of an instance type's name.

    Attributes
    ----------
    cloud : Cloud or None
        None if the name is of no known form; the other parts are then empty.
    family : str
        What machines have in common that differ in size only: ``m5`` (AWS), ``Dsv5`` (Azure), ``n2-standard`` (Google).
    category : str
        Letters that the family begins with: ``m``, ``D``, ``n``.
    generation : int or None
        Number of the generation: 5 for ``m5``, ``Dsv5`` and 2 for ``n2``. Azure's names without a version are 1.
    size : str
        The rest of the name: ``2xlarge``, ``8`` or ``2``.
    """

    cloud: Cloud | None = None
    family: str = ""
    category: str = ""
    generation: int | None = None
    size: str = ""


_AWS = lazy_pattern(
    r"(?P<family>(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]{1,9})[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)"
)
_AZURE = lazy_pattern(
    r"(?:Standard|Basic)_(?P<category>[A-Z]+)(?P<size>[0-9]+(?:-[0-9]+)?)(?P<features>[a-z]*)"
    r"(?P<accelerator>(?:_(?!v[0-9]+(?:_|$))[A-Za-z0-9]+)*)(?:_v(?P<generation>[0-9]{1,9}))?(?:_[A-Za-z]\w*)?"
)
_GOOGLE = lazy_pattern(
    r"(?P<family>(?P<category>[a-z]+)(?P<generation>[0-9]{1,9})[a-z]*-[a-z]+)(?:-(?P<size>[0-9][a-z0-9-]*))?(?:-lssd|-metal)?"
)


@cache
def parse_type_name(name: str) -> TypeName:
    """Split the name of an instance type into family, generation and size.

    Parameters
    ----------
    name : str
        Such as ``m5.2xlarge``, ``Standard_D8s_v5`` or ``n2-standard-8``.

    Returns
    -------
    TypeName
        Without parts if the name has none of the three clouds' forms.
    """
    if match := _AWS.fullmatch(name):
        return TypeName(Cloud.AWS, match["family"], match["category"], int(match["generation"]), match["size"])
    if match := _AZURE.fullmatch(name):
        version = match["generation"]
        features = match["features"] + match["accelerator"]
        suffix = "" if version is None else f"_v{version}" if match["accelerator"] else f"v{version}"
        family = match["category"] + features + suffix
        return TypeName(Cloud.AZURE, family, match["category"], int(version or 1), match["size"])
    if match := _GOOGLE.fullmatch(name):
        return TypeName(Cloud.GOOGLE, match["family"], match["category"], int(match["generation"]), match["size"] or "")
    return TypeName()


def instance_type_of(node: Node) -> str:
    """Return the instance type in a node's labels; empty if they name none."""
    labels = node.metadata.labels or {}
    return next((labels[key] for key in INSTANCE_TYPES if labels.get(key)), "")


def generation_of(node: Node) -> int | None:
    """Return the generation of a node's machine by the name of its instance type; None if it is unknown."""
    return parse_type_name(instance_type_of(node)).generation


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
    """Return the architecture in a node's labels; empty if they name none."""
    labels = node.metadata.labels or {}
    return next((labels[key] for key in _KEYS if labels.get(key)), "")


def architectures_of(cluster: Cluster) -> Architectures:
    """Return the architectures of the nodes, of the pods that can run on no node, and those that every pod accepts.

    Pods of DaemonSets, mirror pods and pods that have ended do not count: they follow the nodes, or need no node. If no
    node names its architecture, ``needed`` is empty unless every pod names some.
    """
    nodes = frozenset(filter(None, map(arch_of, cluster.nodes())))
    constraints: list[frozenset[str] | None] = []
    for pod in cluster.pods():
        if is_lost_with_node(pod):
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
    """Return the architectures that a pod's node selector and affinity allow; None if they do not restrict them.

    Only those of :data:`ARCHITECTURES` are considered; the set is empty if the pod allows none of them.
    """
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
    """Return the selector with only the conditions on the architecture.

    None if the selector is None or empty, or if some term does not restrict the architecture.
    """
    terms = []
    for term in selector.node_selector_terms if selector is not None else ():
        expressions = [expression for expression in term.match_expressions if expression.key in _KEYS]
        if not expressions:
            return None
        terms.append(msgspec.structs.replace(term, match_expressions=expressions, match_fields=[]))
    return NodeSelector(node_selector_terms=terms) if terms else None
