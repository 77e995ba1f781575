"""Pods read from text, by kinds, and the same pods one by one as objects: scale-down decides the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale import ca
from kscale.ca.scale_down.utilization import calculate_utilization
from kscale.effects import moment
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.snapshot.cluster import Cluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PREFIX = "cluster-autoscaler.kubernetes.io/"
NODES = 4


@st.composite
def pods(draw: st.DrawFn, i: int) -> dict[str, Any]:
    some = draw
    annotations = {
        name: value
        for name, values in (
            (f"{PREFIX}safe-to-evict", ("true", "false", "on-completion")),
            (f"{PREFIX}safe-to-evict-local-volumes", ("v", "w,v")),
            (f"{PREFIX}daemonset-pod", ("true",)),
            ("kubernetes.io/config.mirror", ("x",)),
            ("other", ("1", "2")),
        )
        if (value := some(st.sampled_from((None, None, None, *values)))) is not None
    }
    metadata: dict[str, Any] = {
        "name": f"p{i}",
        "namespace": some(st.sampled_from(("a", "a", "kube-system"))),
        "uid": f"u{i}",
        "creationTimestamp": some(st.sampled_from(("2026-01-01T11:30:00Z", "2026-01-01T10:00:00Z"))),
        "annotations": annotations,
    }
    if kind := some(st.sampled_from(("ReplicaSet", "ReplicaSet", "DaemonSet", "Foo", None))):
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "web", "controller": True}
        ]
    if some(st.integers(0, 5)) == 0:
        metadata["deletionTimestamp"] = some(st.sampled_from(("2026-01-01T11:00:00Z", "2026-01-01T11:59:30Z")))
    spec: dict[str, Any] = {
        "nodeName": f"n{some(st.integers(0, NODES - 1))}",
        "containers": [
            {
                "name": "c",
                "resources": {
                    "requests": {
                        "cpu": some(st.sampled_from(("100m", "100.5m", "0.5", "1"))),
                        "memory": some(st.sampled_from(("1Mi", "1.5Gi", "100m", "0.1Ki"))),
                    }
                },
            }
        ],
    }
    source = some(st.sampled_from((None, None, {"hostPath": {"path": "/x"}}, {"emptyDir": {}},
                                   {"emptyDir": {"medium": "Memory"}}, {"secret": {"secretName": "s"}})))  # fmt: skip
    if source is not None:
        spec["volumes"] = [{"name": some(st.sampled_from(("v", "u"))), **source}]
    if (priority := some(st.sampled_from((None, 0, 5, -20)))) is not None:
        spec["priority"] = priority
    if (grace := some(st.sampled_from((None, 0, 7200)))) is not None:
        spec["terminationGracePeriodSeconds"] = grace
    spec["restartPolicy"] = some(st.sampled_from(("Always", "Never")))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def machine(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "30"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def plan_fields(plan: kscale.ScaleDownPlan) -> Any:
    return (
        {name: (str(each.utilization), each.reason) for name, each in plan.eligibility.items()},
        {name: (each.reason, each.blocking_pod) for name, each in plan.unremovable.items()},
        {name: each.error for name, each in plan.failures.items()},
        {
            name: (each.pods_to_reschedule, each.daemon_set_pods, each.on_completion_pods, each.placement, each.risky)
            for name, each in plan.removable.items()
        },
        plan.state.to_json(),
    )


@given(st.data(), st.integers(0, 12), st.sampled_from((-10, 1)), st.booleans())
def test_texts_and_objects(data: st.DataObject, count: int, cutoff: int, daemons: bool) -> None:
    nodes = [machine(f"n{i}") for i in range(NODES)]
    created = [data.draw(pods(i)) for i in range(count)]
    owners = [
        {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "a"}}
        for kind in ("ReplicaSet", "DaemonSet")
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": created}).encode()
    rest = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *owners]}).encode()
    read = kscale.load(rest, text)
    machines = [from_dict(item, Node) for item in nodes]
    there = [from_dict(item, Pod) for item in created]
    one_by_one = Cluster([*owners, *machines, *there])
    options = ca.AutoscalingOptions(expendable_pods_priority_cutoff=cutoff, ignore_daemonsets_utilization=daemons)
    groups = Groups([NodeGroup(id="g", max_size=9, target_size=NODES, nodes=[f"n{i}" for i in range(NODES)])])
    plans = [kscale.scale_down(each.snapshot(), groups, now=NOW, options=options) for each in (read, one_by_one)]
    assert plan_fields(plans[0]) == plan_fields(plans[1])
    for item in machines:  # the sums of all nodes against the pods of one
        here = [
            pod
            for pod in there
            if pod.spec.node_name == item.metadata.name and (pod.spec.priority is None or pod.spec.priority >= cutoff)
        ]
        want = calculate_utilization(item, here, now_ns=moment(NOW), skip_daemon_set_pods=daemons)
        assert plans[0].eligibility[item.metadata.name].utilization == want
