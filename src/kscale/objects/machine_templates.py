"""What a new machine of Cluster API will be, while there is none (upstream: ``TemplateNodeInfo``, ``Labels`` and
``Taints`` of ``cloudprovider/clusterapi``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kscale.objects.cluster_api import MachineOwner
from kscale.objects.core import Node, NodeSpec, NodeStatus, Taint
from kscale.objects.infrastructure import Infrastructure
from kscale.objects.meta import ObjectMeta
from kscale.objects.names import label_value_errors, qualified_name_errors
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.selectors import parse_int64

__all__ = ["CAPACITY", "DEFAULT_ARCHITECTURE", "machine_template"]

DEFAULT_ARCHITECTURE: Final = "amd64"
"""Of machines of which nothing says it."""

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
"""How the annotations begin that say what a machine will be."""
_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_COUNTS: Final = frozenset({"maxPods", "gpu-count"})
_MOST_PODS: Final = "110"
_NODE_ROLE: Final = "node-role.kubernetes.io"
_MANAGED: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


def machine_template(
    owner: MachineOwner, infrastructure: Infrastructure | None, architecture: str = DEFAULT_ARCHITECTURE
) -> tuple[NodeTemplate | None, list[str]]:
    """What a new node is, by annotations before the infrastructure (whose number of pods never counts, as upstream has
    it); None if neither says its cpu and memory. Besides, which parts of annotations do not count, and why.
    ``architecture``: where ``infrastructure`` is None.

    Raises ValueError for amounts that cannot be read.
    """
    notes = owner.metadata.annotations or {}
    capacity = _capacity(notes, infrastructure)
    if not {"cpu", "memory"} <= capacity.keys():
        return None, []
    uncounted: list[str] = []
    node = Node(
        metadata=ObjectMeta(
            name=f"{owner.name}-template", labels=_labels(owner, infrastructure, uncounted, architecture)
        ),
        spec=NodeSpec(taints=_taints(owner, uncounted)),
        status=NodeStatus(capacity=capacity, allocatable=dict(capacity)),
    )
    return NodeTemplate(node=node), uncounted


def _capacity(notes: Mapping[str, str], infrastructure: Infrastructure | None) -> dict[str, Quantity]:
    capacity = {} if infrastructure is None else dict(infrastructure.capacity)
    capacity["pods"] = Quantity(_MOST_PODS)
    resources = {**_AMOUNTS, "gpu-count": notes.get(f"{CAPACITY}gpu-type", "")}
    for key, resource in resources.items():
        amount = _amount(notes, key)
        if resource and amount is not None:
            capacity[resource] = amount
    return capacity


def _amount(notes: Mapping[str, str], key: str) -> Quantity | None:
    """None: none is said; zero says nothing."""
    text = notes.get(CAPACITY + key)
    if not text:
        return None
    try:
        if key in _COUNTS and parse_int64(text) is None:
            raise QuantityError("a count is an integer")
        amount = Quantity(text)
    except QuantityError:
        raise ValueError(f"annotation {CAPACITY}{key}: {text!r} is no amount") from None
    if amount.sign < 0:
        raise ValueError(f"annotation {CAPACITY}{key}: {text!r} is negative")
    return amount if amount.sign else None


def _labels(
    owner: MachineOwner, infrastructure: Infrastructure | None, uncounted: list[str], architecture: str
) -> dict[str, str]:
    """Of the system, then those that Cluster API keeps on nodes as on their machines, then those of the annotation."""
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    if infrastructure is not None:  # upstream's labels are empty then where the infrastructure does not tell its system
        labels["kubernetes.io/os"] = infrastructure.operating_system
        labels["kubernetes.io/arch"] = infrastructure.architecture
    given = owner.spec.template.spec.metadata.labels or {}
    labels |= {key: value for key, value in given.items() if _is_managed(key)}
    for pair in _listed(owner, "labels"):
        key, equal, value = pair.partition("=")
        if equal:
            labels[key] = value
        else:
            uncounted.append(f"annotation {CAPACITY}labels: {pair!r} is no label and does not count")
    return labels


def _is_managed(key: str) -> bool:
    """``isManagedLabel``: whether Cluster API brings it from a machine to its node."""
    domain = key.partition("/")[0]
    return domain == _NODE_ROLE or any(domain == each or domain.endswith(f".{each}") for each in _MANAGED)


def _taints(owner: MachineOwner, uncounted: list[str]) -> list[Taint]:
    """Those of the machines; one of the annotation takes the place of the first with its key and effect."""
    taints = [
        Taint(key=each.key, value=each.value, effect=each.effect) for each in owner.spec.template.spec.taints or ()
    ]
    for text in _listed(owner, "taints"):
        taint = _taint(text)
        if taint is None:
            uncounted.append(f"annotation {CAPACITY}taints: {text!r} is no taint and does not count")
            continue
        same = (i for i, each in enumerate(taints) if (each.key, each.effect) == (taint.key, taint.effect))
        at = next(same, len(taints))
        taints[at : at + 1] = [taint]
    return taints


def _taint(text: str) -> Taint | None:
    """``parseTaint``: ``key[=value]:effect``, or a key alone; None: it is none."""
    pair, *effects = text.split(":")
    if len(effects) > 1:
        return None
    key, *values = pair.split("=") if effects else [pair]
    if len(values) > 1 or qualified_name_errors(key) or any(label_value_errors(value) for value in values):
        return None
    return Taint(key=key, value="".join(values), effect="".join(effects))


def _listed(owner: MachineOwner, key: str) -> list[str]:
    """The parts of an annotation as they are: upstream trims none."""
    text = (owner.metadata.annotations or {}).get(CAPACITY + key, "")
    return [part for part in text.split(",") if part]
