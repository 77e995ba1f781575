"""Estimates, explanations and fits as a program gets them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import kscale
from kscale.ca import AutoscalingOptions
from kscale.capacity.estimate import BOUND_EFFORT, estimate_groups, find_pod
from kscale.capacity.explain import explain, nearest
from kscale.capacity.fit import fit_workloads
from kscale.capacity.group_templates import with_templates
from kscale.capacity.records import NodeVerdict, PluginVerdict, Shortage
from kscale.capacity.scale_down import report_scale_down
from kscale.errors import InputError
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.status import fit_error


def node(name: str, cpu: str = "4", *, ready: bool = True, taint: str = "", **labels: str) -> Node:
    return from_dict(
        {
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        },
        Node,
    )


def pod(name: str, cpu: str = "1", owner: str = "", **spec: Any) -> Pod:
    owners = [{"kind": owner, "name": "o", "uid": "o", "controller": True}] if owner else []
    return from_dict(
        {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": owners},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        },
        Pod,
    )


def daemonset(name: str, cpu: str = "1") -> DaemonSet:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}
    metadata = {"name": name, "namespace": "d", "uid": name}
    return from_dict({"kind": "DaemonSet", "metadata": metadata, "spec": {"template": template}}, DaemonSet)


def group(identity: str, cpu: str = "4", **more: Any) -> NodeGroup:
    return NodeGroup(id=identity, template=NodeTemplate(node=node(identity, cpu)), **more)


def templates(cluster: kscale.Cluster, *groups: NodeGroup) -> list[NodeGroup]:
    return with_templates(cluster, cluster.snapshot(), groups)


def test_pending_equals_the_three_parts() -> None:
    cluster = kscale.load(node("n", "2"), pod("a"), pod("b"), pod("c"), pod("huge", "99"))
    report = estimate_groups(cluster.snapshot(), templates(cluster, group("g")))
    assert (report.pending_count, report.on_existing, report.need_new, report.unschedulable_count) == (4, 2, 1, 1)
    assert report.unschedulable == ["d/huge"]
    (line,) = report.groups
    assert (line.nodes, line.bound, line.pods, line.limited_by) == (1, 1, 1, "cpu")
    assert line.utilization["cpu"] == 0.25
    assert line.rejections[0].reasons == ["Insufficient cpu"]
    assert line.rejections[0].example == "d/huge"


def test_the_highest_priority_gets_the_room_that_exists() -> None:
    cluster = kscale.load(node("n", "1"), pod("low"), pod("high", priority=5))
    report = estimate_groups(cluster.snapshot(), [], placements=True)
    assert report.placed == {"d/high": "n"}
    assert report.unschedulable == ["d/low"]
    with pytest.raises(InputError, match="no pod 'd/none' in the snapshot"):
        estimate_groups(cluster.snapshot(), [], pods=["d/none"])


def test_pods_of_daemonsets_get_no_new_nodes() -> None:
    cluster = kscale.load(node("n", "1"), pod("agent", "2", owner="DaemonSet"))
    report = estimate_groups(cluster.snapshot(), templates(cluster, group("g")))
    assert (report.groups[0].nodes, report.unschedulable, report.daemon_set) == (0, [], 1)


def test_expendable_pods_that_run_take_no_room() -> None:
    running = pod("low", "3", priority=-100, nodeName="n")
    cluster = kscale.load(node("n"), running, pod("wants", "3"))
    assert estimate_groups(cluster.snapshot(), [], placements=True).placed == {"d/wants": "n"}
    retained = estimate_groups(cluster.snapshot(), [], expendable_cutoff=-100)
    assert (retained.on_existing, retained.unschedulable_count) == (0, 1)


def test_templates_of_nodes_have_no_expendable_pods() -> None:
    agent = pod("agent", "2", owner="DaemonSet", nodeName="n", priority=-20)
    cluster = kscale.Cluster([node("n", pool="a"), pod("r", "2", nodeName="n"), agent, pod("p", "3")])
    of_node = templates(cluster, NodeGroup(id="g", from_node="n"))
    report = estimate_groups(cluster.snapshot(), of_node)
    assert [(line.nodes, line.pods) for line in report.groups] == [(1, 1)]
    assert [answer.fits for answer in explain(cluster.snapshot(), "d/p", of_node).groups] == [True]


def test_an_explanation_counts_the_room_of_expendable_pods_as_an_estimate_does() -> None:
    nodes = [node("n1"), node("n2")]
    running = [pod("cheap", "3", nodeName="n1", priority=-11), pod("web", "3", nodeName="n2", priority=-10)]
    snapshot = kscale.Cluster([*nodes, *running, pod("p", "2"), pod("low", "2", priority=-11)]).snapshot()
    report = estimate_groups(snapshot, [], placements=True)
    assert (report.placed, report.expendable_running, report.expendable_cutoff) == ({"d/p": "n1"}, 1, -10)
    answer = explain(snapshot, "d/p", [group("g")])
    assert (answer.fits, answer.fits_on, answer.fits_after_eviction, answer.groups) == (True, [], ["n1"], [])
    assert answer.event == "0/2 nodes are available: 2 Insufficient cpu."
    assert [verdict.node for verdict in answer.verdicts] == ["n1", "n2"]
    low = explain(snapshot, "d/low")
    assert (low.expendable, low.fits, low.fits_after_eviction) == (True, False, [])
    every = explain(snapshot, "d/p", [group("g")], expendable_cutoff=-100)
    assert (every.fits, every.fits_after_eviction) == (False, [])
    assert [each.fits for each in every.groups] == [True]


def test_pending_pods_that_are_expendable_take_no_room_from_others() -> None:
    first, second = pod("low", "3", priority=-11), pod("p", "3", priority=-20)
    answer = explain(kscale.Cluster([node("n"), first, second]).snapshot(), "d/p")
    assert (answer.fits_on, answer.taken_by, answer.expendable) == (["n"], [], True)


def test_a_nominated_pod_waits_for_its_node() -> None:
    waiting = pod("p", "8")
    waiting.status.nominated_node_name = "n"
    answer = explain(kscale.Cluster([node("n"), waiting]).snapshot(), "d/p")
    assert (answer.node, answer.nominated, answer.fits) == ("n", "n", True)


DRIVER = "ebs.csi.aws.com"


def with_volumes(*names: str, on: str = "", count: int = 2, must: bool = False, csi_nodes: str = "n") -> list[Any]:
    """A pod with as many volumes, and the objects about storage."""
    created: list[Any] = [
        {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": must}}
    ]
    for name in csi_nodes.split():
        limits = {"name": DRIVER, "nodeID": name, "allocatable": {"count": count}}
        created.append({"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [limits]}})
    for name in names:
        csi = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        created.append({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": csi})
        claim = {"volumeName": name}
        metadata = {"name": name, "namespace": "d", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        created.append(
            {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim, "status": {"phase": "Bound"}}
        )
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return [*created, pod(f"with-{names[0]}", "1", volumes=volumes, **({"nodeName": on} if on else {}))]


def of_volumes(*objects: Any) -> tuple[kscale.Cluster, list[NodeGroup]]:
    cluster = kscale.load(*objects)
    return cluster, templates(cluster, NodeGroup(id="g", nodes=["n"]))


OFF = "on new nodes (enable-csi-node-aware-scheduling is off)"


def test_attach_limits_of_new_nodes_are_applied_or_reported_as_unmodelled() -> None:
    objects = [*with_volumes("a", "b", on="n"), *with_volumes("c"), *with_volumes("e", "f")]
    cluster, groups = of_volumes(node("n", pool="x"), *objects)
    report = estimate_groups(cluster.snapshot(), groups)
    assert ([line.nodes for line in report.groups], report.unmodelled) == ([1], [f"attach limit of {DRIVER} {OFF}"])
    aware = estimate_groups(cluster.snapshot(csi=True), groups)
    assert ([line.nodes for line in aware.groups], aware.unmodelled) == ([2], [])
    bare = [NodeGroup(id="bare", template=NodeTemplate(node=node("bare")))]
    text = f"attach limit of {DRIVER} on new nodes whose template has no CSINode"
    assert estimate_groups(cluster.snapshot(csi=True), bare).unmodelled == [text]
    assert estimate_groups(cluster.snapshot(csi=True), bare, pods=[]).unmodelled == []


def test_volume_of_a_deleted_node_is_named() -> None:
    objects = with_volumes("a")
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gone-7"]}]}
    objects[2]["spec"] = {"local": {"path": "/d"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    cluster, groups = of_volumes(node("n", **{"kubernetes.io/hostname": "n"}), *objects)
    answer = explain(cluster.snapshot(), "d/with-a", groups)
    text = "claim d/a is bound to volume a, usable only on nodes with kubernetes.io/hostname in [gone-7]"
    assert answer.verdicts[0].first.detail == f"{text}; the cluster has no such node"
    assert answer.groups[0].detail == f"{text}; the cluster has no such node"
    cluster.apply(node("gone-7", "1m", **{"kubernetes.io/hostname": "gone-7"}))
    details = {each.node: each.first.detail for each in explain(cluster.snapshot(), "d/with-a").verdicts}
    assert details["n"] == text


def test_a_drained_node_counts_as_an_empty_domain() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "t"}},
    }
    hosts = [node(name, **{"kubernetes.io/hostname": name}) for name in ("n0", "n1", "n2")]
    pods = []
    for number in range(3):
        created = pod(
            f"t-{number}", "100m", owner="ReplicaSet", nodeName=f"n{number}", topologySpreadConstraints=[constraint]
        )
        created.metadata.labels = {"app": "t"}
        pods.append(created)
    options = AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)
    groups = [NodeGroup(id="g", nodes=["n0", "n1", "n2"])]
    now = datetime(2026, 5, 2, tzinfo=UTC)
    report, _ = report_scale_down(kscale.Cluster([*hosts, *pods]).snapshot(), groups, now=now, options=options)
    assert report.nodes[0].why == (
        "d/t-0 fits on no other node that stays: 2 node(s) didn't match pod topology spread constraints; "
        "n0 counts as an empty domain of kubernetes.io/hostname while it is drained"
    )
    wide = pod("wide", "1", owner="ReplicaSet", nodeName="n0")
    full = [pod(f"full-{name}", "3500m", owner="ReplicaSet", nodeName=name) for name in ("n1", "n2")]
    report, _ = report_scale_down(kscale.Cluster([*hosts, wide, *full]).snapshot(), groups, now=now, options=options)
    assert report.nodes[0].why == "d/wide fits on no other node that stays: 2 Insufficient cpu"


def test_useless_new_node_is_not_reported_as_fitting() -> None:
    cluster, groups = of_volumes(node("n", pool="x"), *with_volumes("a", "b", "c"))
    answer = explain(cluster.snapshot(), "d/with-a", groups)
    (group,) = answer.groups
    assert (group.fits, group.csi_aware, group.takes) == (True, False, False)
    assert (group.plugin, group.reasons) == ("NodeVolumeLimits", ["node(s) exceed max volume count"])
    (aware,) = explain(cluster.snapshot(csi=True), "d/with-a", groups).groups
    assert (aware.fits, aware.csi_aware, aware.reasons) == (False, None, group.reasons)


def test_required_driver_on_new_nodes_is_known_from_their_csi_node() -> None:
    cluster, groups = of_volumes(node("n", "1", pool="x"), pod("r", "1", nodeName="n"), *with_volumes("a", must=True))
    report = estimate_groups(cluster.snapshot(), groups)
    assert report.unmodelled[1:] == [f"whether {DRIVER} is installed {OFF}; it counts as missing"]
    (group,) = explain(cluster.snapshot(), "d/with-a", groups).groups
    assert (group.fits, group.csi_aware) == (False, True)
    assert group.reasons == [f"{DRIVER} CSI driver is not installed on the node"]


def test_requests_for_cloud_tpus_are_cleared() -> None:
    tpu = pod("tpu", "3")
    tpu.spec.containers[0].resources.requests["cloud-tpus.google.com/v3"] = kscale.Quantity("8")
    cluster = kscale.load(node("n", "1"), tpu, pod("plain", "3"))
    report = estimate_groups(cluster.snapshot(), templates(cluster, group("g")), placements=True)
    assert (report.need_new, report.unschedulable_count) == (2, 0)
    assert set(report.groups[0].placed or ()) == {"d/plain", "d/tpu"}


def test_non_pending_pods_are_counted_and_named() -> None:
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = [
        pod("gated", schedulingGates=[{"name": "g"}]),
        pod("lost", nodeName="elsewhere"),
        pod("leaving"),
        pod("over"),
    ]
    pods[2].metadata.deletion_timestamp = deleting["deletionTimestamp"]
    pods[3].status.phase = "Failed"
    snapshot = kscale.load(node("n"), *pods).snapshot()
    report = estimate_groups(snapshot, [])
    assert (report.pending_count, report.gated, report.terminating, report.on_unknown_nodes) == (0, 1, 1, 1)
    for name, where in (
        ("gated", "waits for its scheduling gates"),
        ("leaving", "is being deleted"),
        ("lost", "runs on a node that is not in the input"),
        ("over", "has finished"),
    ):
        with pytest.raises(kscale.InputError, match=where):
            find_pod(snapshot, f"d/{name}")


def test_daemonset_pods_take_room_on_new_nodes() -> None:
    cluster = kscale.load(node("n", "0"), daemonset("agent"), *(pod(f"p{n}") for n in range(6)))
    report = estimate_groups(cluster.snapshot(), templates(cluster, group("g")))
    assert (report.groups[0].nodes, report.groups[0].bound) == (2, 2)
    assert report.groups[0].utilization["cpu"] == 1.0


def test_every_group_is_judged_by_its_own_template() -> None:
    cluster = kscale.load(pod("a", "3"), pod("b", "3"), pod("c", "20"))
    report = estimate_groups(cluster.snapshot(), templates(cluster, group("small"), group("big", "32")))
    assert [(line.nodes, line.bound, line.pods) for line in report.groups] == [(2, 2, 2), (1, 1, 3)]
    assert [line.rejections for line in report.groups][1] == []


def test_templates_come_from_the_group_a_node_or_its_members() -> None:
    cluster = kscale.load(node("bad", "1", ready=False, pool="x"), node("good", "2", pool="x"), node("n", "8"))
    created = templates(
        cluster,
        group("own"),
        NodeGroup(id="from", from_node="n", target_size=0),
        NodeGroup(id="named", nodes=["bad", "good"]),
        NodeGroup(id="selected", node_selector={"pool": "x"}),
    )
    result = [each.template.node for each in created if each.template is not None]
    assert [str((each.status.allocatable or {})["cpu"]) for each in result] == ["4", "8", "2", "2"]
    assert [each.target_size for each in created] == [0, 0, 2, 2]
    assert not {each.name for each in result} & {"bad", "good", "n"}


def test_group_fields_override_the_node() -> None:
    cluster = kscale.load(node("n", taint="old", a="1", b="1"))
    (created,) = templates(
        cluster,
        NodeGroup(
            id="g",
            from_node="n",
            labels={"b": "2"},
            taints=node("t", taint="new").spec.taints,
            capacity={"cpu": kscale.Quantity("16")},
        ),
    )
    assert created.template is not None
    labels = created.template.node.metadata.labels or {}
    assert (labels["a"], labels["b"]) == ("1", "2")
    assert [taint.key for taint in created.template.node.spec.taints] == ["old", "new"]
    assert str((created.template.node.status.allocatable or {})["cpu"]) == "16"


def test_all_groups_without_a_template_are_named() -> None:
    cluster = kscale.load(node("n"))
    with pytest.raises(kscale.InputError) as caught:
        templates(cluster, NodeGroup(id="a", from_node="x"), NodeGroup(id="b"), group("c"))
    assert [str(problem) for problem in caught.value.problems] == [
        'node group a: fromNode: there is no node "x"',
        "node group b: no template, and no node of the group to model one on",
    ]


def test_explanation_holds_the_arithmetic() -> None:
    cluster = kscale.load(node("n1", "1"), node("n2", "2", taint="db"), pod("p", "4"))
    report = explain(cluster.snapshot(), "d/p", templates(cluster, group("g", "2"), group("h", "4")))
    assert report.event == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    first, second = report.verdicts
    assert first.first.shortages == [Shortage(resource="cpu", asked="4", free="1", short="3")]
    assert (second.first.plugin, [no.plugin for no in second.also]) == ("TaintToleration", ["NodeResourcesFit"])
    assert report.nearest is not None
    assert report.nearest.node == "n1"
    assert [(answer.group, answer.fits) for answer in report.groups] == [("g", False), ("h", True)]


def test_a_prefilter_that_fails_speaks_for_all_nodes() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}
    cluster = kscale.load(node("n"), pod("p", volumes=[volume]))
    report = explain(cluster.snapshot(), "d/p")
    assert report.event == '0/1 nodes are available: persistentvolumeclaim "gone" not found.'
    assert (report.verdicts, report.fits) == ([], False)


def test_a_node_set_is_worded_as_by_kube_scheduler() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}
    terms = [{"matchFields": [field]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    cluster = kscale.load(node("n"), pod("p", affinity=affinity))
    report = explain(cluster.snapshot(), "d/p")
    assert report.event == "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."


def test_explanation_names_pods_that_take_the_capacity() -> None:
    cluster = kscale.load(node("n", "4"), pod("first", "3", priority=10), pod("later", "3"), pod("small", "1"))
    report = explain(cluster.snapshot(), "d/later")
    assert (report.fits, report.fits_on, report.taken_by) == (True, ["n"], ["d/first", "d/small"])
    assert explain(cluster.snapshot(), "d/first").taken_by == []


def test_a_fit_error_sorts_entries_as_texts() -> None:
    assert fit_error({"b": 12, "a": 10}, 12) == "0/12 nodes are available: 10 a, 12 b."
    assert fit_error({"x": 10, "y": 2}, 12) == "0/12 nodes are available: 10 x, 2 y."
    assert fit_error({}, 3, "pod has unbound immediate PersistentVolumeClaims") == (
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    )
    assert fit_error({}, 0) == "no nodes available to schedule pods"


def test_nearest_prefers_fewer_obstacles_then_the_smaller_shortage() -> None:
    def no(plugin: str, *short: str) -> PluginVerdict:
        shortages = [Shortage(resource="cpu", asked="4", free="0", short=amount) for amount in short]
        return PluginVerdict(plugin=plugin, reasons=["r"], shortages=shortages)

    verdicts = [
        NodeVerdict(node="taint", first=no("TaintToleration")),
        NodeVerdict(node="far", first=no("NodeResourcesFit", "3")),
        NodeVerdict(node="near", first=no("NodeResourcesFit", "1500m")),
    ]
    result = nearest(verdicts)
    assert result is not None
    assert result.node == "near"
    assert nearest([]) is None


def test_workloads_take_room_from_each_other() -> None:
    cluster = kscale.load(node("n1", "2"), node("n2", "2"))
    report = fit_workloads(cluster.snapshot(), [daemonset("agent"), pod("a", "1"), pod("b", "2")], placements=True)
    agent, first, second = report.workloads
    assert (agent.replicas, agent.fit, agent.placement) == (2, 2, {"n1": 1, "n2": 1})
    assert first.fit == 1
    assert (second.fit, second.rejections[0].reasons) == (0, ["Insufficient cpu"])
    assert second.event == "0/2 nodes are available: 2 Insufficient cpu."
    assert (report.replicas, report.fit) == (4, 3)


def test_a_stronger_bound_on_request() -> None:
    # Three of these are too much for a node, of which sums alone know nothing.
    cluster = kscale.load(*(pod(f"{size}-{i}", size) for size in ("1500m", "1400m") for i in range(6)))
    groups = templates(cluster, group("g", "4100m"))
    (fast,) = estimate_groups(cluster.snapshot(), groups).groups
    (strong,) = estimate_groups(cluster.snapshot(), groups, bound_effort=BOUND_EFFORT).groups
    assert (fast.nodes, fast.bound, fast.bound_method) == (6, 5, "volume")
    assert (strong.nodes, strong.bound, strong.bound_method) == (6, 6, "column_generation")
