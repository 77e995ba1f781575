"""Proactive scale-up: pods that controllers have not made yet."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from builders import N0, at, node, owner, pod
from kscale import ca
from kscale.ca.pod_lists import (
    build_missing_pods,
    enforce_injection_limit,
    get_desired_pod_count,
    is_scheduling_gated,
)
from kscale.objects.api.apps import Job, JobSpec, JobStatus, ReplicaSet, ReplicaSetSpec, StatefulSet, StatefulSetSpec
from kscale.objects.api.core import Pod, PodStatus
from kscale.objects.api.meta import Condition, ObjectMeta, OwnerReference
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster


def meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", uid=name)


def replica_set(name: str, replicas: int | None) -> ReplicaSet:
    return ReplicaSet(
        api_version="apps/v1", kind="ReplicaSet", metadata=meta(name), spec=ReplicaSetSpec(replicas=replicas)
    )


def job(parallelism: int | None, completions: int | None, succeeded: int = 0) -> Job:
    return Job(
        metadata=meta("job"),
        spec=JobSpec(parallelism=parallelism, completions=completions),
        status=JobStatus(succeeded=succeeded),
    )


@pytest.mark.parametrize(
    ("controller", "want"),
    [
        (replica_set("r", 7), 7),
        (replica_set("r", None), 1),
        (StatefulSet(metadata=meta("s"), spec=StatefulSetSpec(replicas=3)), None),
        (StatefulSet(metadata=meta("s"), spec=StatefulSetSpec(replicas=3, pod_management_policy="OrderedReady")), None),
        (StatefulSet(metadata=meta("s"), spec=StatefulSetSpec(replicas=3, pod_management_policy="Parallel")), 3),
        (job(None, None), 1),
        (job(5, None), 5),
        (job(5, None, succeeded=1), 0),
        (job(0, None), 0),
        (job(5, 10), 5),
        (job(5, 10, succeeded=7), 3),
        (job(5, 10, succeeded=12), 0),
        (job(None, 10, succeeded=7), 1),
    ],
)
def test_desired(controller: Any, want: int | None) -> None:
    assert get_desired_pod_count(controller) == want


def test_missing() -> None:
    of_a: Any = {"owner_references": owner("ReplicaSet", "a")}
    a = [
        pod("a-0", **of_a, spec={"node_name": "n"}, creation_timestamp=at(hours=-1)),
        pod("a-1", **of_a, creation_timestamp=at(minutes=-1), annotations={"x": "y"}),
        pod("a-2", **of_a, creation_timestamp=at(minutes=-9)),
    ]
    others = [pod("b-0", owner_references=owner("ReplicaSet", "b")), pod("naked")]
    result = build_missing_pods([replica_set("none", 4), replica_set("b", 1), replica_set("a", 5)], [*a, *others])
    assert [(each.name, each.metadata.uid) for each in result] == [("a-1-copy-1", "a-1"), ("a-1-copy-2", "a-2")]
    assert result[0].metadata.annotations == {"x": "y", "podtype": "fakepod"}
    assert a[1].metadata.annotations == {"x": "y"}
    (running,) = build_missing_pods([replica_set("a", 2)], a[:1])
    assert running.spec.node_name == ""


def test_gated() -> None:
    def conditioned(status: str, reason: str) -> Pod:
        result = pod("p")
        result.status = PodStatus(conditions=[Condition(type="PodScheduled", status=status, reason=reason)])
        return result

    assert is_scheduling_gated(conditioned("False", "SchedulingGated"))
    assert not is_scheduling_gated(conditioned("False", "Unschedulable"))
    assert not is_scheduling_gated(conditioned("True", "SchedulingGated"))
    assert not is_scheduling_gated(pod("p"))


def test_injection_limit_drops_the_first_injected_pods() -> None:
    pods = ["m0", "r0", "m1", "r1", "m2"]
    made_up = {"m0", "m1", "m2"}
    remaining = {
        limit: [pods[at] for at in enforce_injection_limit(pods, made_up, limit).tolist()] for limit in (5, 4, 2, 0)
    }
    assert remaining == {5: pods, 4: pods[1:], 2: ["r0", "r1"], 0: ["r0", "r1"]}


def waiting(name: str, of: str) -> Pod:
    result = pod(name, 1000, 1, owner_references=owner("ReplicaSet", of), creation_timestamp=at(minutes=-5))
    result.status = PodStatus(conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")])
    return result


GROUP = NodeGroup(id="g", max_size=9, nodes=["n"], template=NodeTemplate(node=node("t", 1000, 1 << 30, ready=True)))


def scale_up(**options: Any) -> Any:
    objects = [node("n", 1000, 1 << 30, ready=True), replica_set("a", 6), *(waiting(f"a-{i}", "a") for i in range(2))]
    settings = ca.AutoscalingOptions(enable_proactive_scaleup=True, **options)
    return kscale.scale_up(Cluster(objects), [GROUP], now=N0, options=settings)


@pytest.mark.parametrize("salvo", [False, True])
def test_nodes_for_pods_that_are_coming(salvo: bool) -> None:
    plan = scale_up(salvo_scale_up=salvo)
    assert [str(info) for info in plan.scale_ups] == ["{g 1->6 (max: 9)}"]
    assert plan.placed == {"default/a-0": "n"}
    assert plan.triggered == ["default/a-1"], "nobody has made the others"
    assert {event.regarding.name for event in plan.events if event.regarding.kind == "Pod"} == {"a-1"}


def test_no_more_than_the_limit_permits() -> None:
    assert [str(info) for info in scale_up(pod_injection_limit=3).scale_ups] == ["{g 1->4 (max: 9)}"]


def test_injected_pods_are_not_in_results() -> None:
    plan = scale_up(max_nodes_total=1)
    assert plan.result == "ScaleUpLimitedByMaxNodesTotal"
    assert [pods.pods for pods in plan.remain_unschedulable] == [["default/a-1"]]
    assert [event.regarding.name for event in plan.events if event.reason == "NotTriggerScaleUp"] == ["a-1"]


def test_controllers_without_uid_are_told_apart_by_kind_namespace_and_name() -> None:
    controllers: list[Any] = [replica_set("", 3), replica_set("", 2), replica_set("", 2), job(2, 2)]
    for controller, (namespace, name) in zip(
        controllers, [("x", "a"), ("x", "b"), ("y", "a"), ("x", "a")], strict=True
    ):
        controller.metadata = ObjectMeta(name=name, namespace=namespace)
    pods = []
    for kind, namespace, name in [("ReplicaSet", "x", "a"), ("ReplicaSet", "y", "a"), ("Job", "x", "a")]:
        reference = OwnerReference(kind=kind, name=name, controller=True)
        each = pod(f"{kind}-{name}", owner_references=[reference], creation_timestamp=at(minutes=-1))
        each.metadata.namespace = namespace
        pods.append(each)
    result = build_missing_pods(controllers, pods)
    assert [each.key for each in result] == [
        "x/ReplicaSet-a-copy-1",
        "x/ReplicaSet-a-copy-2",
        "y/ReplicaSet-a-copy-1",
        "x/Job-a-copy-1",
    ]
    assert len({each.metadata.uid for each in result}) == 4
