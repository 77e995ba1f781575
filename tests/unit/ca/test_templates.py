"""Templates of new nodes: what stays of an example, what goes, and which DaemonSet pods come with it."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.ca.templates import (
    TaintConfig,
    build_daemon_set_pod,
    build_template_from_group,
    build_template_from_node,
    copy_template,
)
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.workloads import should_run


def node(*taints: str, labels: dict[str, str] | None = None, **spec: Any) -> Node:
    result = [{"key": key, "effect": "NoSchedule"} for key in taints]
    metadata = {"name": "n1", "uid": "u1", "labels": labels}
    return from_dict({"metadata": metadata, "spec": {"taints": result, "providerID": "p", **spec}}, Node)


def pod(name: str, owner: str = "", uid: str = "", **metadata: Any) -> Pod:
    owners = [{"kind": owner, "name": "o", "uid": uid, "controller": True}] if owner else []
    return from_dict(
        {
            "metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}", "ownerReferences": owners, **metadata},
            "spec": {"nodeName": "n1"},
        },
        Pod,
    )


def daemonset(name: str, **spec: Any) -> DaemonSet:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}], **spec}}
    return from_dict(
        {"metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}"}, "spec": {"template": template}}, DaemonSet
    )


def test_template_node_has_no_identity() -> None:
    template = build_template_from_node(node(labels={"a": "b"}), [], [], "g", suffix="7")
    assert template.node.name == "template-node-for-g-7"
    assert template.node.metadata.uid != "u1"
    assert template.node.spec.provider_id == "p"
    assert template.node.metadata.labels == {
        "a": "b",
        "kubernetes.io/hostname": "template-node-for-g-7",
        "cluster-autoscaler.kubernetes.io/template-node": "true",
    }


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/memory-pressure",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "NodeWithImpairedVolumes",
        "ignore-taint.cluster-autoscaler.kubernetes.io/x",
        "startup-taint.cluster-autoscaler.kubernetes.io/x",
        "status-taint.cluster-autoscaler.kubernetes.io/x",
        "mine",
        "prefix/x",
    ],
)
def test_taints_of_the_moment_are_left_out(key: str) -> None:
    config = TaintConfig(startup_taints=frozenset({"mine"}), startup_taint_prefixes=("prefix/",))
    template = build_template_from_node(node(key, "dedicated"), [], [], "g", suffix="7", taints=config)
    assert [taint.key for taint in template.node.spec.taints] == ["dedicated"]


def test_cordon_is_kept_by_default() -> None:
    cordoned = node(unschedulable=True)
    assert build_template_from_node(cordoned, [], [], "g", suffix="7").node.spec.unschedulable
    config = TaintConfig(scale_from_unschedulable=True)
    assert not build_template_from_node(cordoned, [], [], "g", suffix="7", taints=config).node.spec.unschedulable


def test_mirror_and_daemonset_pods_stay_others_go() -> None:
    pods = [
        pod("web", "ReplicaSet", "r"),
        pod("mirror", annotations={"kubernetes.io/config.mirror": ""}),
        pod("ds", "DaemonSet", "x"),
        pod("ds-dying", "DaemonSet", "y", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("annotated", annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}),
    ]
    template = build_template_from_node(node(), pods, [], "g", suffix="7")
    assert [each.name for each in template.pods] == ["mirror-7", "ds-7", "annotated-7"]
    assert {each.spec.node_name for each in template.pods} == {"template-node-for-g-7"}
    assert not {each.metadata.uid for each in template.pods} & {each.metadata.uid for each in pods}


def test_missing_daemonset_pods_are_added_if_critical_or_forced() -> None:
    sets = [
        daemonset("there"),
        daemonset("plain"),
        daemonset("critical", priorityClassName="system-node-critical"),
        daemonset("never", priorityClassName="system-node-critical", preemptionPolicy="Never"),
    ]
    pods = [pod("there-1", "DaemonSet", "uid-there")]
    created = build_template_from_node(node(), pods, sets, "g", suffix="7")
    assert [each.name for each in created.pods] == ["there-1-7", "critical-pod-7"]
    forced = build_template_from_node(node(), pods, sets, "g", suffix="7", force_daemonsets=True)
    assert [each.name for each in forced.pods] == ["there-1-7", "plain-pod-7", "critical-pod-7", "never-pod-7"]


def test_a_dying_daemonset_pod_does_not_count_as_running() -> None:
    dying = pod("x", "DaemonSet", "uid-x", deletionTimestamp="2026-01-01T00:00:00Z")
    created = build_template_from_node(node(), [dying], [daemonset("x")], "g", suffix="7", force_daemonsets=True)
    assert [each.name for each in created.pods] == ["x-pod-7"]


def affinity(*values: str) -> dict[str, Any]:
    expression = {"key": "disk", "operator": "In", "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@pytest.mark.parametrize(
    ("spec", "taints", "runs"),
    [
        ({}, [], True),
        ({"nodeName": "n1"}, [], True),
        ({"nodeName": "n2"}, [], False),
        ({"nodeSelector": {"disk": "ssd"}}, [], True),
        ({"nodeSelector": {"disk": "hdd"}}, [], False),
        ({"affinity": affinity("ssd")}, [], True),
        ({"affinity": affinity("hdd")}, [], False),
        ({}, ["dedicated"], False),
        ({"tolerations": [{"operator": "Exists"}]}, ["dedicated"], True),
        ({}, ["node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"], True),
        ({}, ["node.kubernetes.io/network-unavailable"], False),
        ({"hostNetwork": True}, ["node.kubernetes.io/network-unavailable"], True),
    ],
)
def test_where_a_daemonset_should_run(spec: dict[str, Any], taints: list[str], runs: bool) -> None:
    assert should_run(daemonset("x", **spec), node(*taints, labels={"disk": "ssd"})) is runs


def test_a_daemonset_pod_belongs_to_its_set() -> None:
    created = build_daemon_set_pod(daemonset("x"), "n9", "7")
    assert (created.key, created.spec.node_name, created.metadata.labels) == ("d/x-pod-7", "n9", {"app": "x"})
    assert created.metadata.owner_references[0].kind == "DaemonSet"
    assert created.metadata.owner_references[0].controller


def test_the_groups_own_template_forces_daemonsets_and_copies_labels() -> None:
    labels = {"node.kubernetes.io/instance-type": "m5", "topology.kubernetes.io/zone": "z"}
    created = build_template_from_group(NodeTemplate(node=node(labels=labels)), [daemonset("x")], "g", suffix="7")
    result = created.node.metadata.labels or {}
    assert result["beta.kubernetes.io/instance-type"] == "m5"
    assert result["failure-domain.beta.kubernetes.io/zone"] == "z"
    assert "failure-domain.beta.kubernetes.io/region" not in result
    assert [each.name for each in created.pods] == ["x-pod-7"]


def test_a_fresh_copy_keeps_the_taints() -> None:
    template = NodeTemplate(node=node("ToBeDeletedByClusterAutoscaler"), pods=[pod("a")])
    copy = copy_template(template, "e-0")
    assert copy.node.name == "n1-e-0"
    assert (copy.node.metadata.labels or {})["kubernetes.io/hostname"] == "n1-e-0"
    assert len(copy.node.spec.taints) == 1
    assert [(each.name, each.spec.node_name) for each in copy.pods] == [("a-e-0", "n1-e-0")]
    assert template.node.name == "n1"


# -- upstream's table of pods on templates -----------------------------------------------------------------------------

_MIRROR = {"kubernetes.io/config.mirror": ""}
_GOING = "2026-01-01T00:00:00Z"
_SETS = {
    "ds1": {},
    "ds2": {},
    "ds3": {"nodeSelector": {"key": "value"}},
    "ds4": {"priorityClassName": "system-node-critical"},
}
_PLAIN = [pod("p1"), pod("p2", "ReplicaSet", "r")]
_MIRRORS = [
    pod("p3", annotations=_MIRROR),
    pod("p4", annotations=_MIRROR, deletionTimestamp=_GOING),
]
_DAEMONS = [
    pod("ds1-run", "DaemonSet", "uid-ds1"),
    pod("ds2-run", "DaemonSet", "uid-ds2", deletionTimestamp=_GOING),
]


@pytest.mark.parametrize(
    ("pods", "forced", "sets", "remaining"),
    [
        ([], False, False, []),
        ([], True, False, []),
        (_PLAIN, False, False, []),
        (_MIRRORS, False, False, ["p3"]),
        (_DAEMONS, False, False, ["ds1"]),
        (_DAEMONS, False, True, ["ds1", "ds4"]),
        (_DAEMONS, True, False, ["ds1"]),
        (_DAEMONS, True, True, ["ds1", "ds2", "ds4"]),
        ([*_PLAIN, *_MIRRORS, *_DAEMONS], False, True, ["p3", "ds1", "ds4"]),
        ([*_PLAIN, *_MIRRORS, *_DAEMONS], True, True, ["p3", "ds1", "ds2", "ds4"]),
    ],
)
def test_upstreams_table_of_pods(pods: list[Pod], forced: bool, sets: bool, remaining: list[str]) -> None:
    result = [daemonset(name, **spec) for name, spec in _SETS.items()] if sets else []
    created = build_template_from_node(node(), pods, result, "g", suffix="7", force_daemonsets=forced)
    assert [each.name.split("-")[0] for each in created.pods] == remaining


@pytest.mark.parametrize(
    ("pods", "remaining"),
    [([], ["ds1", "ds2", "ds4"]), ([*_PLAIN, *_MIRRORS, *_DAEMONS], ["p3", "ds1", "ds2", "ds4"])],
)
def test_templates_of_a_group_get_every_daemonset(pods: list[Pod], remaining: list[str]) -> None:
    sets = [daemonset(name, **spec) for name, spec in _SETS.items()]
    created = build_template_from_group(NodeTemplate(node=node(), pods=pods), sets, "g", suffix="7")
    assert [each.name.split("-")[0] for each in created.pods] == remaining


@pytest.mark.parametrize(("cpu", "selector", "count"), [("100m", {}, 1), ("100m", {"a": "b"}, 0), ("4", {}, 1)])
def test_a_daemonset_runs_whether_it_fits_or_not(cpu: str, selector: dict[str, str], count: int) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    result = daemonset("ds", containers=containers, nodeSelector=selector)
    small = from_dict({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}, Node)
    created = build_template_from_node(small, [], [result], "g", suffix="7", force_daemonsets=True)
    assert len(created.pods) == count


def test_upstreams_row_of_taints() -> None:
    ours = "cluster-autoscaler.kubernetes.io"
    config = TaintConfig(startup_taints=frozenset({"ignore-me"}), status_taints=frozenset({"status-me"}))
    taints = [
        f"ignore-taint.{ours}/another",
        f"startup-taint.{ours}/some",
        "test-taint",
        "ToBeDeletedByClusterAutoscaler",
        "ignore-me",
        "status-me",
        "node.kubernetes.io/memory-pressure",
        f"ignore-taint.{ours}/to-be-ignored",
    ]
    created = build_template_from_node(node(*taints), [], [], "g", suffix="7", taints=config)
    assert [taint.key for taint in created.node.spec.taints] == ["test-taint"]
