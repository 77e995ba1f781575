"""What writes must get right, against any API server: the fake one in virtual time, and the real one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Create,
    Delete,
    Evict,
    Get,
    GetScale,
    GetUnstructured,
    List,
    Outcome,
    Patch,
    PatchOperation,
    Preview,
    PutScale,
    Resize,
    WriteStatus,
    check_outcome,
)
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.core import ConfigMap, Node, Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.decode import from_dict
from kscale.world.kubernetes.performer import Performer
from unit.world.informer_cases import Api, pod

__all__ = ["CASES", "deployment"]


class Acting:
    """Carries actions out, and holds each answer against the table of legal ones."""

    def __init__(self, api: Api) -> None:
        self.performer = Performer(api.client, api.clock)

    async def outcome(self, action: Action) -> Outcome:
        return check_outcome(action, await self.performer(action))

    async def done(self, action: Action) -> Any:
        outcome = await self.outcome(action)
        assert outcome.error is None, outcome.error
        return outcome.value

    async def refused(self, action: Action, code: int, reason: str) -> ApiError:
        error = (await self.outcome(action)).error
        assert error is not None, "it was not refused"
        assert (error.code, error.reason) == (code, reason), error
        assert error.message
        return error


def deployment(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata, "spec": spec}


async def objects_are_created_once(api: Api) -> None:
    act = Acting(api)
    created = ConfigMap(metadata=ObjectMeta(name="status", namespace="default"), data={"a": "1"})
    version = await act.done(Create(created))
    result = await act.done(Get(kind="ConfigMap", name="status", namespace="default"))
    assert (result.data, result.metadata.resource_version, result.kind) == ({"a": "1"}, version, "ConfigMap")
    await act.refused(Create(created), 409, "AlreadyExists")
    await act.refused(Get(kind="ConfigMap", name="other", namespace="default"), 404, "NotFound")
    await act.done(Delete(kind="ConfigMap", name="status", namespace="default"))
    await act.refused(Delete(kind="ConfigMap", name="status", namespace="default"), 404, "NotFound")


async def complete_objects_are_read(api: Api) -> None:
    acting = Acting(api)
    await api.create("pods", pod("a"))
    result = await acting.done(GetUnstructured(kind="Pod", namespace="default", name="a"))
    assert result["metadata"]["name"] == "a"
    assert result["spec"]["containers"], "plain data"
    await acting.refused(GetUnstructured(kind="Pod", namespace="default", name="gone"), 404, "NotFound")


async def dry_run_create_creates_nothing(api: Api) -> None:
    acting = Acting(api)
    content = {"metadata": {"generateName": "fake-"}, "spec": pod("x")["spec"]}
    created = await acting.done(Preview(kind="Pod", namespace="default", content=content))
    assert created["metadata"]["name"].startswith("fake-")
    assert created["spec"]["containers"][0]["name"] == content["spec"]["containers"][0]["name"]
    await acting.refused(Get(kind="Pod", namespace="default", name=created["metadata"]["name"]), 404, "NotFound")


async def delete_checks_the_uid(api: Api) -> None:
    act = Acting(api)
    await api.create("pods", pod("a"))
    result = await act.done(Get(kind="Pod", name="a", namespace="default"))
    options: dict[str, Any] = {"kind": "Pod", "name": "a", "namespace": "default", "grace_period_seconds": 0}
    await act.refused(Delete(uid="another", **options), 409, "Conflict")
    await act.done(Delete(uid=result.metadata.uid, **options))


TAINT = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1700000000", "effect": "NoSchedule"}


async def nodes_are_marked(api: Api) -> None:
    """Only what is said changes: what kscale does not model stays."""
    act = Acting(api)
    created: dict[str, Any] = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": "fake:///n1"},
    }
    await api.create("nodes", created)
    node: Node = await act.done(Get(kind="Node", name="n1"))
    version = node.metadata.resource_version
    patch = {"spec": {"taints": [TAINT], "unschedulable": True}}
    newer = await act.done(Patch(kind="Node", name="n1", patch=patch, resource_version=version))
    assert newer != version
    await act.refused(
        Patch(kind="Node", name="n1", patch=patch | {"spec": {}}, resource_version=version), 409, "Conflict"
    )
    node = await act.done(Get(kind="Node", name="n1"))
    assert node.spec.unschedulable
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [tuple(TAINT.values())]
    assert node.spec.provider_id == "fake:///n1"
    operations = (
        PatchOperation("remove", "/spec/taints"),
        PatchOperation("remove", "/spec/unschedulable"),
        PatchOperation("add", "/metadata/labels/rack", "r1"),
    )
    await act.refused(
        Patch(kind="Node", name="n1", type="json", patch=operations, resource_version=version), 409, "Conflict"
    )
    await act.done(Patch(kind="Node", name="n1", type="json", patch=operations, resource_version=newer))
    node = await act.done(Get(kind="Node", name="n1"))
    assert (node.spec.taints or [], node.spec.unschedulable or False) == ([], False)
    assert node.metadata.labels == {"zone": "a", "rack": "r1"}
    await act.refused(
        Patch(kind="Node", name="n1", type="json", patch=(PatchOperation("remove", "/metadata/annotations/x"),)),
        422,
        "Invalid",
    )


async def conditions_are_merged(api: Api) -> None:
    act = Acting(api)
    await api.create("pods", pod("a"))

    def ready(type_: str, status: str) -> Patch:
        status_patch = {"status": {"conditions": [{"type": type_, "status": status}]}}
        return Patch(
            kind="Pod", name="a", namespace="default", type="strategic", subresource="status", patch=status_patch
        )

    await act.done(ready("Ready", "False"))
    await act.done(ready("Initialized", "True"))
    await act.done(ready("Ready", "True"))
    result: Pod = await act.done(Get(kind="Pod", name="a", namespace="default"))
    assert {each.type: each.status for each in result.status.conditions} == {"Ready": "True", "Initialized": "True"}


async def pods_are_evicted(api: Api) -> None:
    act = Acting(api)
    await api.create("pods", pod("a"))
    await act.done(Evict(namespace="default", name="a", grace_period_seconds=0))
    await act.refused(Evict(namespace="default", name="none"), 404, "NotFound")


async def workloads_are_scaled(api: Api) -> None:
    act = Acting(api)
    await api.create("deployments.apps", deployment("web", 1))
    scale_ref = {"namespace": "default", "resource": "deployments.apps"}
    scale = await act.done(GetScale(name="web", **scale_ref))
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=web")
    written = await act.done(PutScale(scale=scale, replicas=3, **scale_ref))
    assert written.spec.replicas == 3
    await act.refused(PutScale(scale=scale, replicas=4, **scale_ref), 409, "Conflict")
    again = await act.done(GetScale(name="web", fresh=True, **scale_ref))
    assert again.spec.replicas == 3
    await act.done(PutScale(scale=again, replicas=0, **scale_ref))
    assert (await act.done(GetScale(name="web", **scale_ref))).spec.replicas == 0
    await act.refused(GetScale(name="other", **scale_ref), 404, "NotFound")
    await act.refused(GetScale(namespace="default", resource="widgets.example.com", name="w"), 404, "NotFound")


async def status_write_changes_only_the_status(api: Api) -> None:
    act = Acting(api)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body: dict[str, Any] = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "h", "namespace": "default"},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5},
    }
    await api.create("horizontalpodautoscalers.autoscaling", body)
    hpa: HorizontalPodAutoscaler = await act.done(Get(kind="HorizontalPodAutoscaler", name="h", namespace="default"))
    condition = {
        "type": "AbleToScale",
        "status": "True",
        "reason": "r",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    def with_status(stored: HorizontalPodAutoscaler, status: dict[str, Any]) -> WriteStatus:
        new = from_dict({"status": status}, HorizontalPodAutoscaler).status
        other = msgspec.structs.replace(stored.spec, max_replicas=99)  # is not written
        return WriteStatus(msgspec.structs.replace(stored, status=new, spec=other))

    first = {"currentReplicas": 1, "desiredReplicas": 2, "observedGeneration": 1, "conditions": [condition]}
    version = await act.done(with_status(hpa, {**first, "lastScaleTime": "2026-01-01T00:00:00Z"}))
    await act.refused(with_status(hpa, first), 409, "Conflict")
    stored = await act.done(Get(kind="HorizontalPodAutoscaler", name="h", namespace="default"))
    assert stored.metadata.resource_version == version
    assert (stored.spec.max_replicas, stored.status.desired_replicas) == (5, 2)
    assert stored.status.last_scale_time is not None
    # What is absent becomes absent.
    await act.done(with_status(stored, {"currentReplicas": 2, "desiredReplicas": 0, "conditions": []}))
    stored = await act.done(Get(kind="HorizontalPodAutoscaler", name="h", namespace="default"))
    assert (stored.status.last_scale_time, stored.status.conditions or []) == (None, [])
    assert (stored.status.current_replicas or 0, stored.status.desired_replicas) == (2, 0)


async def leases_change_hands(api: Api) -> None:
    act = Acting(api)
    lease_ref: dict[str, Any] = {
        "kind": "Lease",
        "name": "lock",
        "namespace": "default",
        "api_version": "coordination.k8s.io/v1",
    }
    spec = LeaseSpec(holder_identity="a", lease_duration_seconds=15, renew_time="2026-11-22T14:00:00.123456Z")
    version = await act.done(Create(Lease(metadata=ObjectMeta(name="lock", namespace="default"), spec=spec)))
    newer = await act.done(Patch(patch={"spec": {"holderIdentity": "b"}}, resource_version=version, **lease_ref))
    await act.refused(
        Patch(patch={"spec": {"holderIdentity": "a"}}, resource_version=version, **lease_ref), 409, "Conflict"
    )
    result: Lease = await act.done(Get(**lease_ref))
    assert (result.spec.holder_identity, result.spec.renew_time) == ("b", "2026-11-22T14:00:00.123456Z")
    await act.done(Patch(patch={"spec": {"holderIdentity": ""}}, resource_version=newer, **lease_ref))
    assert not (await act.done(Get(**lease_ref))).spec.holder_identity


async def objects_are_listed(api: Api) -> None:
    act = Acting(api)
    for i in range(4):
        await api.create("pods", pod(f"p{i}", node=f"n{i % 2}", half=str(i % 2)))
    await api.patch("pods", "p2", {"status": {"phase": "Failed"}}, "status")

    async def names(**filters: Any) -> list[str]:
        result = await act.done(List(kind="Pod", namespace="default", watched=False, **filters))
        return [each.name for each in result]

    assert sorted(await names()) == ["p0", "p1", "p2", "p3"]
    assert sorted(await names(selector="half=1")) == ["p1", "p3"]
    assert await names(nodes=("n1", "n0")) == ["p1", "p3", "p0"]
    assert await names(nodes=()) == []


async def unserved_kinds_are_errors(api: Api) -> None:
    act = Acting(api)
    await act.refused(Get(kind="Widget", name="w", api_version="example.com/v1"), 404, "NotFound")


async def pods_are_resized(api: Api) -> None:
    act = Acting(api)
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    await api.create("nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "status": status})
    created = pod("a", node="n1")
    created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    await api.create("pods", created)
    change = (PatchOperation("replace", "/spec/containers/0/resources/requests/cpu", "200m"),)
    await act.done(Resize(namespace="default", name="a", patch=change))
    result: Pod = await act.done(Get(kind="Pod", name="a", namespace="default"))
    assert result.spec.containers[0].resources is not None
    assert str((result.spec.containers[0].resources.requests or {})["cpu"]) == "200m"
    await act.refused(Resize(namespace="default", name="none", patch=change), 404, "NotFound")


CASES: Sequence[Callable[[Api], Awaitable[None]]] = (
    objects_are_created_once, delete_checks_the_uid, nodes_are_marked, conditions_are_merged, pods_are_evicted,
    workloads_are_scaled, status_write_changes_only_the_status, leases_change_hands, objects_are_listed,
    unserved_kinds_are_errors, pods_are_resized, complete_objects_are_read, dry_run_create_creates_nothing,
)  # fmt: skip
