"""Whatever happens to a cluster between loops: what is kept from loop to loop says what a fresh look would."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import kscale
from builders import N0, owner, pod
from kscale import ca
from kscale.ca.nodes import TO_BE_DELETED_TAINT
from kscale.capacity.generate import generate
from kscale.effects import SECOND, to_text
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.api.meta import LabelSelector, ObjectMeta
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions
from kscale.objects.quantity import Quantity

few = settings(max_examples=max(4, settings().max_examples // 25))
PARTS = ("result", "candidates", "unneeded", "eligibility", "unremovable", "failures", "soft_taints", "chosen")


@cache
def objects() -> tuple[Any, ...]:
    with BytesIO() as file:
        generate(8, 60, pending=2, seed=7, lean=True).write(file)
        return tuple(kscale.load(file.getvalue()))


def node_changes(node: Node, draw: Any) -> Node:
    """A node that says something else."""
    what = draw(st.sampled_from(["again", "taint", "leaves", "unready", "kept", "larger", "gpu"]))
    metadata, spec, status = node.metadata, node.spec, node.status
    if what == "taint":
        spec = replace(spec, taints=[Taint(key="DeletionCandidateOfClusterAutoscaler", value=str(N0 // SECOND))])
    elif what == "leaves":
        spec = replace(spec, taints=[Taint(key=TO_BE_DELETED_TAINT, value=str(N0 // SECOND - 100))])
    elif what == "unready":
        off = [replace(each, status="False") if each.type == "Ready" else each for each in status.conditions]
        status = replace(status, conditions=off)
    elif what == "kept":
        metadata = replace(metadata, annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"})
    elif what == "larger":
        status = replace(status, allocatable={**(status.allocatable or {}), "cpu": Quantity("640")})
    elif what == "gpu":
        status = replace(status, allocatable={**(status.allocatable or {}), "nvidia.com/gpu": Quantity("4")})
    return replace(node, metadata=metadata, spec=spec, status=status)


def pod_changes(old: Pod, draw: Any, number: int) -> Pod:
    """Another pod in its place, or the same one that is told to stop, finishes, or asks for more."""
    what = draw(st.sampled_from(["another", "stops", "stopped", "system", "devices", "weak"]))
    metadata, spec = replace(old.metadata, uid=f"{old.key}-{number}"), old.spec
    if what in ("stops", "stopped"):
        since = N0 - (5 if what == "stops" else 3600) * SECOND
        metadata = replace(metadata, deletion_timestamp=to_text(since))
    elif what == "system":
        metadata = replace(metadata, namespace="kube-system", creation_timestamp=to_text(N0 - 3590 * SECOND))
    elif what == "devices":
        container = spec.containers[0]
        requests = {**(container.resources.requests or {}), "nvidia.com/gpu": Quantity("2")}
        resources = replace(container.resources, requests=requests)
        spec = replace(spec, containers=[replace(container, resources=resources), *spec.containers[1:]])
    elif what == "weak":
        spec = replace(spec, priority=-100)
    return replace(old, metadata=metadata, spec=spec)


def happen(cluster: kscale.Cluster, draw: Any, number: int) -> None:
    """Something happens to the cluster."""
    what = draw(st.sampled_from(["node", "gone", "pod", "left", "new", "budget", "waits", "daemonset"]))
    nodes, keys = [*cluster.nodes()], cluster.keys("Pod")
    if what == "node":
        cluster.apply(node_changes(draw(st.sampled_from(nodes)), draw))
    elif what == "gone" and len(nodes) > 4:
        cluster.remove(draw(st.sampled_from(nodes)))
    elif what in ("pod", "left") and keys:
        old = cluster.pod(draw(st.sampled_from(keys)))
        if what == "left":
            cluster.remove(old)
        else:
            cluster.apply(pod_changes(old, draw, number))
    elif what == "new":
        like = draw(st.sampled_from(nodes))
        metadata = replace(like.metadata, name=f"new-{number}", uid=f"new-{number}")
        cluster.apply(replace(like, metadata=metadata, spec=replace(like.spec, provider_id=f"new-{number}", taints=[])))
    elif what == "budget":
        namespace = cluster.pod(keys[0]).metadata.namespace if keys else "default"
        budget = PodDisruptionBudget(metadata=ObjectMeta(name="all", namespace=namespace))
        budget.spec.selector, budget.status.disruptions_allowed = LabelSelector(), draw(st.integers(0, 3))
        cluster.apply(budget)
    elif what == "waits":
        cluster.apply(
            pod(f"waits-{number}", draw(st.sampled_from([100, 900_000])), owner_references=owner("ReplicaSet", "r"))
        )
    elif what == "daemonset":
        cluster.apply(
            DaemonSet(metadata=ObjectMeta(name=f"agent-{number}", namespace="default", uid=f"agent-{number}"))
        )


def groups_of(cluster: kscale.Cluster, own: NodeGroupOptions | None) -> Groups:
    nodes = [*cluster.nodes()]
    names = [node.metadata.name for node in nodes]
    groups = [
        NodeGroup(id="a", max_size=20, nodes=names[::2], options=own),
        NodeGroup(id="b", max_size=20, min_size=1, nodes=names[1:-1:2]),
    ]
    return Groups.of(groups, nodes)


OWN = [
    None,
    NodeGroupOptions(scale_down_utilization_threshold=0.95, scale_down_unneeded_time=20.0),
    NodeGroupOptions(ignore_daemon_sets_utilization=True),
]


@few
@given(data=st.data())
def test_loops_with_caches_equal_loops_without(data: st.DataObject) -> None:
    created = kscale.Cluster(objects())
    options = ca.AutoscalingOptions(
        scale_down_utilization_threshold=0.7, node_info_cache_expire_time=timedelta(minutes=1)
    )
    state: ca.LoopState | None = None
    now = N0
    own = data.draw(st.sampled_from(OWN))
    groups = groups_of(created, own)
    for number in range(4):
        for _ in range(data.draw(st.integers(0, 3))):
            happen(created, data.draw, number)
        now += data.draw(st.sampled_from([1, 12, 40])) * SECOND
        if data.draw(st.booleans()):
            own = data.draw(st.sampled_from(OWN))
            groups = groups_of(created, own)  # else the very same ones, whatever became of their nodes
        cached = ca.run_once(created, groups, now=now, options=options, state=state)
        fresh = ca.run_once(kscale.Cluster(list(created)), Groups(groups), now=now, options=options, state=state)
        assert cached.error == fresh.error
        assert cached.state == fresh.state
        assert cached.observations == fresh.observations
        assert [repr(each) for each in cached.actions] == [repr(each) for each in fresh.actions]
        assert (cached.scale_up is None) == (fresh.scale_up is None)
        if cached.scale_up is not None and fresh.scale_up is not None:
            assert cached.scale_up.record() == fresh.scale_up.record()
        assert (cached.scale_down is None) == (fresh.scale_down is None)
        for part in PARTS if cached.scale_down is not None else ():
            assert getattr(cached.scale_down, part) == getattr(fresh.scale_down, part), part
        state = cached.state
