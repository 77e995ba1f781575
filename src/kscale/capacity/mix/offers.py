"""Offers of a mix (node templates with a price and limits), its options, and the pods to place.

Not in upstream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from kscale.capacity.machine_types import instance_type_of
from kscale.capacity.records import UNLIMITED
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import check_fields, typed
from kscale.objects.node_selectors import ZONE
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.pod_owners import is_daemonset_pod, is_lost_with_node
from kscale.objects.pod_resources import to_integers
from kscale.objects.quantity import Quantity
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ALL", "ON_DEMAND", "RESERVED", "SPOT", "MixOptions", "Offer", "SharedLimit", "offers_of", "subjects"]


ON_DEMAND, SPOT, RESERVED = "on-demand", "spot", "reserved"
_MAX_PRICE = 1_000_000  # per hour: costs of plans are counted in billionths
_RESERVED_LABEL = ("karpenter.sh/capacity-type", "reserved")
# Labels and values by which clouds and Karpenter mark spot nodes.
_SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}


class Offer(msgspec.Struct, kw_only=True, frozen=True):
    """A node that can be bought: its ``template``, and its ``price`` per hour.

    ``type`` is counted by ``max_types``; ``capacity_type`` is ``on-demand``, ``spot`` or ``reserved``. A plan has at
    least ``least`` and at most ``most`` new nodes of the offer (None = no limit). ``group``: the node group that the
    offer belongs to; ``zone``: the zone of its nodes.
    """

    name: str
    template: NodeTemplate
    price: float
    type: str = ""
    zone: str = ""
    capacity_type: str = ON_DEMAND
    least: int = 0
    most: int | None = None
    group: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


@typed
def offers_of(groups: Iterable[NodeGroup | Offer], *, anew: bool = False) -> list[Offer]:
    """Convert node groups to offers.

    Parameters
    ----------
    groups : iterable of NodeGroup or Offer
        Groups with template and price; offers are only validated.
    anew : bool
        Ignore the groups' current nodes.

    Returns
    -------
    list of Offer
        One offer per group. Its minimum and maximum are the numbers of nodes missing to the group's minimum and
        maximum size.

    Raises
    ------
    InputError
        Names every group without a template or a price, every duplicate name, bad prices and capacity types, and limits
        that contradict each other.
    """
    result: list[Offer] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for group in groups:
        offer = group if isinstance(group, Offer) else _offer(group, problems, anew=anew)
        if offer is None:
            continue
        place = f"offer {offer.name}" if isinstance(group, Offer) else f"node group {offer.name}"
        if offer.name in names:
            problems.append(Problem("the name comes twice", object=place))
        names.add(offer.name)
        if not (math.isfinite(offer.price) and offer.price >= 0):
            problems.append(Problem(f"{offer.price} is not a price", object=place, field="price"))
        elif offer.price > _MAX_PRICE:
            text = f"{offer.price:g} is more than {_MAX_PRICE:,}: name prices in a larger unit of money"
            problems.append(Problem(text, object=place, field="price"))
        if offer.least < 0 or (offer.most is not None and offer.least > offer.most):
            problems.append(Problem(f"at least {offer.least} and at most {offer.most} nodes", object=place))
        if offer.capacity_type not in (ON_DEMAND, SPOT, RESERVED):
            text = f'"{offer.capacity_type}" is not one of {ON_DEMAND}, {SPOT}, {RESERVED}'
            problems.append(Problem(text, object=place))
        result.append(offer)
    if problems:
        raise InputError(problems)
    return result


def _offer(group: NodeGroup, problems: list[Problem], *, anew: bool) -> Offer | None:
    """Build the offer of a node group. ``anew``: the group's existing nodes do not count against its maximum size.

    Returns None, and adds a problem to ``problems``, if the group has no template or price, or is invalid.
    """
    place = f"node group {group.id}"
    if group.template is None:
        problems.append(Problem("has no template node", object=place))
        return None
    if group.price is None:
        problems.append(Problem("has no price: give it one, or a catalogue that knows it", object=place, field="price"))
        return None
    labels = group.template.node.metadata.labels or {}
    size = 0 if anew else group.target_size if group.target_size is not None else len(group.nodes)
    if group.min_size > group.max_size:
        text = f"min {group.min_size} is more than max {group.max_size}"
        problems.append(Problem(text, object=place, field="min"))
        return None
    spot = any(labels.get(key) == value for key, value in _SPOT_LABELS.items())
    return Offer(
        name=group.id,
        template=group.template,
        price=group.price,
        type=instance_type_of(group.template.node) or group.id,
        zone=labels.get(ZONE, ""),
        capacity_type=SPOT if spot else RESERVED if labels.get(_RESERVED_LABEL[0]) == _RESERVED_LABEL[1] else ON_DEMAND,
        least=max(0, group.min_size - size),
        most=None if group.max_size >= UNLIMITED else max(0, group.max_size - size),
        group=group.id,
    )


_ANY: Final = Quantity("1")


class SharedLimit(msgspec.Struct, kw_only=True, frozen=True):
    """A limit on the new nodes of several offers together: ``most`` of a ``resource``.

    ``resource``: ``nodes``, or a resource of nodes (``most`` in milli-units of cpu, else units). ``offers``: names.
    """

    name: str
    offers: frozenset[str]
    resource: str
    most: int

    def __post_init__(self) -> None:
        check_fields(self)


class MixOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of :func:`kscale.mix`.

    ``max_types``: maximum number of different types of new nodes; ``curve``: also compute the cost for other numbers of
    types. ``spot_share``: maximum share of spot in the new nodes' cpu (None = no limit). ``limits``: maximum of a
    resource (milli-units of cpu, else units; ``nodes`` for their number) on all nodes together, existing ones included.
    ``shared_limits``: limits on the new nodes of some offers, such as the limits of a NodePool. ``existing``: place
    pods on existing nodes where that saves something.

    ``bound_effort``, ``plan_effort``: work for each, in units of about a microsecond; ``tolerance``: a bound so close
    to the linear program is good enough. ``threads`` change the time only, not the result.
    """

    max_types: int | None = None
    curve: bool = False
    spot_share: float | None = None
    limits: dict[str, int] = {}
    shared_limits: list[SharedLimit] = []
    existing: bool = True
    bound_effort: int | None = 1_500_000
    plan_effort: int | None = 1_500_000
    tolerance: float = 2e-4
    threads: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise InputError for invalid values; the message names the option."""
        problems = []
        if self.max_types is not None and self.max_types < 1:
            problems.append(Problem(f"{self.max_types} is not a number of types", field="max_types"))
        if self.spot_share is not None and not 0 <= self.spot_share <= 1:
            problems.append(Problem(f"{self.spot_share} is not a share between 0 and 1", field="spot_share"))
        for name, limit in self.limits.items():
            if limit < 0:
                problems.append(Problem(f"{limit} is negative", field=f"limits[{name}]"))
            if name != "nodes" and name not in to_integers({name: _ANY}):
                problems.append(Problem("no resource of nodes", field=f"limits[{name}]"))
        for number, shared in enumerate(self.shared_limits):
            if shared.most < 0:
                problems.append(Problem(f"{shared.most} is negative", field=f"shared_limits[{number}]"))
        for name in ("bound_effort", "plan_effort"):
            effort = getattr(self, name)
            if effort is not None and effort < 0:
                problems.append(Problem(f"{effort} is negative", field=name))
        if not 0 <= self.tolerance < 1:
            problems.append(Problem(f"{self.tolerance} is not a share between 0 and 1", field="tolerance"))
        if self.threads < 1:
            problems.append(Problem(f"{self.threads} is less than one thread", field="threads"))
        if problems:
            raise InputError(problems)


ALL = "all"


def subjects(
    cluster: Cluster | Snapshot, pods: Sequence[str] | str | None, options: MixOptions
) -> tuple[Snapshot, list[str] | None, MixOptions]:
    """Return (snapshot, names of the pods to place or None for all pending ones, options).

    DaemonSet pods are left out, as new nodes bring their own. For ``pods="all"`` the snapshot is the cluster without
    nodes, and the options exclude existing nodes. Raises InputError for another string, for "all" without a Cluster,
    and for a pod that is not in the snapshot.
    """
    if isinstance(pods, str):
        if pods != ALL:
            raise InputError(f'pods is "{pods}": give a list of names, "{ALL}" or None')
        if not isinstance(cluster, Cluster):
            raise InputError('pods="all" needs a Cluster: the nodes of a snapshot cannot be left out')
        return _make_all_pods_pending(cluster), None, msgspec.structs.replace(options, existing=False)
    snapshot = cluster.snapshot(dra=True) if isinstance(cluster, Cluster) else cluster
    pending = list(snapshot.pending)
    names = pending if pods is None else list(pods)
    try:
        records = snapshot.pending_records if names == pending else snapshot.records(names)
    except KeyError as error:
        raise InputError(f"pods: no pod {error.args[0]!r} in the snapshot") from None
    suspects: Sequence[int] = range(len(records))
    if isinstance(records, PodRows):  # a pod with a controller in this column is no DaemonSet's
        suspects = np.flatnonzero(records.controllers < 0).tolist()
    left_out = {i for i in suspects if is_daemonset_pod(records[i].pod)}
    if not left_out and names == pending:
        return snapshot, None, options
    return snapshot, [name for i, name in enumerate(names) if i not in left_out], options


def _make_all_pods_pending(cluster: Cluster) -> Snapshot:
    """Return a snapshot of the cluster without nodes, in which all its running and pending pods are pending.

    Pods of DaemonSets, mirror pods, terminating pods and pods with scheduling gates are left out.
    """
    result = Cluster(item for item in cluster if not isinstance(item, (Node, Pod)))
    for pod in cluster.pods():
        if is_lost_with_node(pod):
            continue
        if pod.metadata.deletion_timestamp is not None or pod.spec.scheduling_gates:
            continue
        result.apply(
            msgspec.structs.replace(
                pod,
                spec=msgspec.structs.replace(pod.spec, node_name=""),
                status=msgspec.structs.replace(pod.status, phase="Pending", container_statuses=[]),
            )
        )
    return result.snapshot(dra=True)
