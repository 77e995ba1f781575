"""Decisions about nodes as watches have brought them are those about the node objects themselves.

Each field of a node that decisions read has a case in which it makes a difference. The rules look at a whole cluster,
so that the columns that live stores make of nodes are held against the objects, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import fields

from builders import N0, at, template
from builders import node as built
from ca_loops import Cloud, Life
from kscale.ca.legacy.scale_up import compute_resources_left_limits
from kscale.ca.nodes import get_readiness, get_to_be_deleted_time
from kscale.ca.options import AutoscalingOptions
from kscale.effects import SECOND
from kscale.objects.api.core import ContainerImage, Node, NodeSpec, NodeStatus, Pod, Taint
from kscale.objects.api.meta import ApiStruct, Condition, KubeObject, ObjectMeta
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.place import place
from kscale.scheduling.scores.inputs import PulledImages
from kscale.snapshot.cluster import Cluster
from live_store import document, watched_cluster
from unit.snapshot.test_pod_fields import Spy, owner_of

Make = Callable[[Iterable[KubeObject]], Cluster]
Rule = Callable[[Make, Node], object]
AMOUNTS = {"cpu": "1", "memory": "1000", "pods": "110"}


def node_of(**parts: dict[str, Any]) -> Node:
    """A node that is ready, with other metadata, spec or status."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(minutes=-2)}
    data: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"a": "b"}},
        "spec": {"providerID": "n1"},
        "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [ready]},
    }
    for part, changes in parts.items():
        data[part] |= changes
    return from_dict(data, Node)


# -- rules -------------------------------------------------------------------------------------------------------------


def placed(make: Make, node: Node, **spec: Any) -> object:
    """Where a pending pod fits."""
    requests = {"cpu": "900m"}
    data = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}], **spec},
    }
    return place(make([node, from_dict(data, Pod)]).snapshot()).placed


def node_state(make: Make, node: Node) -> object:
    """Whether a node is ready, since when, and whether it is being deleted."""
    return [(get_readiness(each), get_to_be_deleted_time(each)) for each in make([node]).snapshot().columns.objects]


def counted(make: Make, node: Node) -> object:
    """What is left of the limits of a cluster, by the rules of release 1.3."""
    nodes = make([node]).snapshot().columns.objects
    return compute_resources_left_limits(AutoscalingOptions().resource_limiter, [], {}, nodes)


def scored(make: Make, node: Node) -> object:
    """What a node gets for an image that it has pulled."""
    return PulledImages(make([node, built("n2", 1000, 1000)]).snapshot()).scores(["app:1"]).tolist()


def lived(make: Make, node: Node, **flags: Any) -> object:
    """What the loops of a process do to a node that nobody needs."""
    groups = [NodeGroup(id="g", min_size=0, max_size=9, nodes=["n1", "n2"], template=template(built("t", 1000, 1000)))]
    busy = from_dict(
        {
            "metadata": {"name": "busy", "namespace": "default", "uid": "busy"},
            "spec": {"nodeName": "n2", "containers": [{"resources": {"requests": {"cpu": "700m"}}}]},
            "status": {"phase": "Running"},
        },
        Pod,
    )
    cloud = Cloud(groups, [deepcopy(node), built("n2", 1000, 1000, ready=True)], [busy])
    life = Life(cloud, N0, scale_down_unneeded_time=timedelta(seconds=20), **flags)
    life.cluster = make
    reports = [life.loop(N0 + 10 * number * SECOND) for number in range(1, 6)]
    unremovable = [
        sorted((name, item.reason) for name, item in each.scale_down.unremovable.items()) for each in reports
    ]
    states = [to_builtins(each.state.cluster.readiness) for each in reports]
    return cloud.calls, cloud.marks, unremovable, states, [(each.reason, each.message) for each in cloud.events]


def waits(make: Make, node: Node) -> object:
    """What a deletion that others may delay comes to."""
    return lived(make, node, node_deletion_delay_timeout=timedelta(minutes=2))


# -- fields ------------------------------------------------------------------------------------------------------------

TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
OLD = at(days=-1)


def ready(**changes: Any) -> dict[str, Any]:
    """A status with another Ready condition."""
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": at(minutes=-2)}
    return {"conditions": [{**condition, **changes}]}


def tolerating(**toleration: Any) -> Rule:
    return partial(placed, tolerations=[toleration])


CASES: dict[tuple[type[ApiStruct], str], tuple[Node, Node, Rule]] = {
    (ObjectMeta, "name"): (node_of(), node_of(metadata={"name": "n3"}), placed),
    (ObjectMeta, "creation_timestamp"): (
        node_of(metadata={"creationTimestamp": OLD}, status=ready(status="False", lastTransitionTime=OLD)),
        node_of(metadata={"creationTimestamp": at()}, status=ready(status="False", lastTransitionTime=OLD)),
        lived,
    ),
    (ObjectMeta, "labels"): (
        node_of(),
        node_of(metadata={"labels": {"a": "c"}}),
        partial(placed, nodeSelector={"a": "b"}),
    ),
    (ObjectMeta, "annotations"): (
        node_of(),
        node_of(metadata={"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}),
        lived,
    ),
    (NodeSpec, "provider_id"): (node_of(), node_of(spec={"providerID": "another"}), lived),
    (NodeSpec, "unschedulable"): (node_of(), node_of(spec={"unschedulable": True}), placed),
    (NodeSpec, "taints"): (node_of(), node_of(spec={"taints": [TAINT]}), placed),
    (Taint, "key"): (
        node_of(spec={"taints": [TAINT]}),
        node_of(spec={"taints": [{**TAINT, "key": "other"}]}),
        tolerating(key="k", operator="Exists"),
    ),
    (Taint, "value"): (
        node_of(spec={"taints": [TAINT]}),
        node_of(spec={"taints": [{**TAINT, "value": "other"}]}),
        tolerating(key="k", value="v"),
    ),
    (Taint, "effect"): (
        node_of(spec={"taints": [TAINT]}),
        node_of(spec={"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}),
        placed,
    ),
    (Taint, "time_added"): (
        node_of(spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": OLD}]}),
        node_of(spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": at()}]}),
        node_state,
    ),
    (NodeStatus, "capacity"): (node_of(), node_of(status={"capacity": {**AMOUNTS, "cpu": "2"}}), counted),
    (NodeStatus, "allocatable"): (node_of(), node_of(status={"allocatable": {**AMOUNTS, "cpu": "800m"}}), placed),
    (NodeStatus, "conditions"): (node_of(), node_of(status={"conditions": []}), node_state),
    (Condition, "type"): (node_of(), node_of(status=ready(type="Suspended")), node_state),
    (Condition, "status"): (node_of(), node_of(status=ready(status="False")), node_state),
    (Condition, "reason"): (
        node_of(status=ready(status="False", reason="KubeletNotReady")),
        node_of(status=ready(status="False", reason="NodeStatusUnknown")),
        node_state,
    ),
    (Condition, "last_transition_time"): (node_of(), node_of(status=ready(lastTransitionTime=at())), node_state),
    (NodeStatus, "images"): (
        node_of(),
        node_of(status={"images": [{"names": ["app:1"], "sizeBytes": 10**9}]}),
        scored,
    ),
    (ContainerImage, "names"): (
        node_of(status={"images": [{"names": ["app:1"], "sizeBytes": 10**9}]}),
        node_of(status={"images": [{"names": ["app:2"], "sizeBytes": 10**9}]}),
        scored,
    ),
    (ContainerImage, "size_bytes"): (
        node_of(status={"images": [{"names": ["app:1"], "sizeBytes": 10**9}]}),
        node_of(status={"images": [{"names": ["app:1"], "sizeBytes": 2 * 10**8}]}),
        scored,
    ),
}
"""By the struct and its field: two nodes that differ in it, and a rule for which that makes a difference."""
MORE: list[tuple[Node, Node, Rule]] = [
    (
        node_of(),
        node_of(metadata={"annotations": {"delay-deletion.cluster-autoscaler.kubernetes.io/me": "x"}}),
        waits,
    ),
    (node_of(), node_of(spec={"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1"}]}), node_state),
    (node_of(), node_of(status=ready(type="DiskPressure")), node_state),
]


def stored(*, events: bool) -> Make:
    return lambda items: watched_cluster(items, events=events)


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize(
    "case",
    [*CASES.values(), *MORE],
    ids=[*(f"{kind.__name__}.{name}" for kind, name in CASES), *map(str, range(len(MORE)))],
)
def test_a_field_of_a_node_decides_as_in_the_object(case: tuple[Node, Node, Rule], events: bool) -> None:
    one, other, rule = case
    assert rule(Cluster, one) != rule(Cluster, other), "it makes no difference here"
    assert rule(stored(events=events), one) == rule(Cluster, one)
    assert rule(stored(events=events), other) == rule(Cluster, other)


NO_RULES = {
    (NodeStatus, "declared_features"): "of pods that ask for a feature, which no autoscaler's template does",
    (ObjectMeta, "namespace"): "a part of the key of any object",
}
"""What is read of nodes besides."""
OF_NODES_ALONE = (NodeSpec, NodeStatus, ContainerImage)


class OfNodes(Spy):
    """Note the reads of fields of nodes: of structs that pods have, too, those of ``parts`` alone (by identity)."""

    def __init__(self, name: str, own: Any, read_fields: set[tuple[type, str]], parts: set[int]) -> None:
        super().__init__(name, own, read_fields)
        self._parts = parts

    def __get__(self, struct: Any, kind: type) -> Any:
        if struct is None or isinstance(struct, OF_NODES_ALONE) or id(struct) in self._parts:
            return super().__get__(struct, kind)
        return self._own.__get__(struct, kind)


def test_rules_read_no_field_of_a_node_without_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [*CASES.values(), *MORE]
    nodes = [node for one, other, _ in pairs for node in (one, other)]
    parts = {
        id(part)
        for node in nodes
        for part in (node.metadata, *node.spec.taints, *node.status.conditions, *node.status.images)
    }
    read: set[tuple[type, str]] = set()
    with monkeypatch.context() as patch:
        for struct in (ObjectMeta, Taint, Condition, *OF_NODES_ALONE):
            for field in fields(struct):
                home = owner_of(struct, field.name)
                if not isinstance(own := vars(home)[field.name], Spy):
                    patch.setattr(home, field.name, OfNodes(field.name, own, read, parts))
        for one, other, rule in pairs:
            rule(Cluster, one)
            rule(Cluster, other)
    assert read - set(CASES) - set(NO_RULES) == set()
    assert {case for case in CASES if case[0] in OF_NODES_ALONE} <= read


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
def test_live_stores_keep_every_field_of_a_node(events: bool) -> None:
    """Also those that no rule reads today: each by itself, so that none stands in for another."""
    full_node = from_dict(FULL_NODE, Node)
    (stored,) = watched_cluster([FULL_NODE], events=events).nodes()
    assert to_dict(stored) == to_dict(full_node)
    for part in ("metadata", "spec", "status"):
        for name, value in FULL_NODE[part].items():
            alone: dict[str, Any] = {**document(node_of()), part: {**document(node_of())[part], name: value}}
            (stored,) = watched_cluster([alone], events=events).nodes()
            assert to_dict(stored) == to_dict(from_dict(alone, Node)), f"{part}.{name}"


FULL_NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n1", "uid": "u", "resourceVersion": "7", "generation": 3, "creationTimestamp": OLD,
        "deletionTimestamp": OLD, "deletionGracePeriodSeconds": 3, "labels": {"a": "b"}, "annotations": {"x": "y"},
        "finalizers": ["f"], "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "1"}],
    },
    "spec": {
        "providerID": "p", "unschedulable": True, "taints": [{**TAINT, "timeAdded": OLD}], "podCIDR": "10.0.0.0/24",
        "podCIDRs": ["10.0.0.0/24"], "externalID": "e", "configSource": {"configMap": {"name": "c"}},
    },
    "status": {
        "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "phase": "Running", "declaredFeatures": ["F"],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": OLD,
             "lastHeartbeatTime": OLD},
        ],
        "nodeInfo": {"machineID": "1"}, "addresses": [{"type": "Hostname", "address": "b"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}, "images": [{"names": ["i"], "sizeBytes": 7}],
        "volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": "d"}], "config": {"error": "e"},
        "runtimeHandlers": [{"name": "r"}], "features": {"supplementalGroupsPolicy": True},
    },
}  # fmt: skip
