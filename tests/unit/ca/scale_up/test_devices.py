"""Pods that claim devices, on nodes that do not exist yet: those of a salvo, and those that are coming."""

from __future__ import annotations

from typing import Any

import kscale
from builders import N0, run_steps, span, template
from kscale import ca
from kscale.ca.cluster_state import ClusterStateRegistry, update_nodes
from kscale.objects.api.core import PodResourceClaim
from kscale.objects.api.resource import ResourceSlice
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.snapshot.cluster import Cluster
from unit.ca.scale_up.test_loop import machine, waiting

_API = "resource.k8s.io/v1"
_CLASS = {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}


def _with_devices(name: str, count: int, cpu: int = 1000, **metadata: Any) -> NodeTemplate:
    spec = {
        "driver": "gpu",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"dev{i}"} for i in range(count)],
    }
    result = from_dict({"metadata": {"name": f"slice-{name}"}, "spec": spec}, ResourceSlice)
    created = template(machine(name, cpu, **metadata))
    created.resource_slices.append(result)
    return created


def _claim(name: str) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }


def _claiming(name: str, cpu: int, **spec: Any) -> Any:

    claims = [PodResourceClaim(name="c", resource_claim_name=f"claim-{name}")]
    return waiting(name, cpu, spec={"resource_claims": claims, **spec})


def _world() -> Cluster:
    pods = [_claiming("a", 500, node_selector={"pool": "small"}), _claiming("b", 3000)]
    return Cluster([_CLASS, *(_claim(f"claim-{name}") for name in "ab"), machine("n1", 100), *pods])


def _groups() -> list[NodeGroup]:
    return [
        NodeGroup(id="small", max_size=9, template=_with_devices("s", 1, labels={"pool": "small"})),
        NodeGroup(id="large", max_size=9, template=_with_devices("l", 1, 4000)),
        NodeGroup(id="bare", max_size=9, template=template(machine("bare", 4000, labels={"pool": "small"}))),
    ]


def test_a_salvo_sees_devices() -> None:
    plan = kscale.scale_up(_world(), _groups(), now=N0, options=ca.AutoscalingOptions(salvo_scale_up=True))
    assert sorted(str(info) for info in plan.scale_ups) == ["{large 0->1 (max: 9)}", "{small 0->1 (max: 9)}"]
    assert sorted(plan.triggered) == ["default/a", "default/b"]
    assert plan.warnings == []
    one = kscale.scale_up(_world(), _groups(), now=N0)
    assert len(one.scale_ups) == 1


def test_claims_of_a_salvo_hold_their_devices() -> None:
    groups = Groups([NodeGroup(id="small", max_size=9), NodeGroup(id="large", max_size=9)])
    templates = {item.id: item.template for item in _groups() if item.template is not None}
    snapshot = _world().snapshot(dra=True)
    ground = ca.ScaleUpContext(
        groups=groups,
        nodes=[],
        templates={group.id: templates[group.id] for group in groups},
        state=update_nodes(ClusterStateRegistry(), [], groups, now=N0).state,
    )
    steps = ca.scale_up_salvo_steps(snapshot, [record.pod for record in snapshot.pending_records], ground, now=N0)
    salvo = run_steps(steps).value
    assert [item.done.status.pods_triggered for item in salvo.rounds] == [["default/b"], ["default/a"]]
    after = salvo.snapshot_after
    allocation = after.informers.resource_claims["default", "claim-b"].status.allocation
    assert allocation is not None
    (node,) = [name for name in after.nodes if name.startswith("l-")]
    assert [each.pool for each in allocation.devices.results] == [node]
    assert snapshot.informers.resource_claims["default", "claim-b"].status.allocation is None


def test_nodes_that_are_coming_bring_devices() -> None:
    groups = [NodeGroup(id="large", max_size=9, template=_with_devices("l", 1, 4000))]
    cluster = Cluster([_CLASS, _claim("claim-b"), _claim("claim-c"), machine("n1", 100), _claiming("b", 500)])
    first = kscale.scale_up(cluster, groups, now=N0)
    assert first.triggered == ["default/b"]
    grown = [NodeGroup(id="large", max_size=9, target_size=1, template=_with_devices("l", 1, 4000))]
    cluster.apply(_claiming("c", 500))
    second = kscale.scale_up(cluster, grown, now=N0 + span(seconds=10), state=first.state)
    # The one device of the node that is coming is for the first pod.
    assert list(second.placed) == ["default/b"]
    assert second.triggered == ["default/c"]
