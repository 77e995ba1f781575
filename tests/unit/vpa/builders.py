"""Small objects for the tables."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.quantity import Quantity
from kscale.vpa import Controllers, PodChanges
from kscale.vpa.capping import LimitRanges

Pair = tuple[str | None, str | None]
"""(cpu, memory) as texts."""

REQUESTS_ONLY = [{"containerName": "c", "controlledValues": "RequestsOnly"}]
BOOST = {"cpu": {"type": "Factor", "factor": 2}}


def resources(pair: Pair | None) -> dict[str, str] | None:
    if pair is None:
        return None
    return {name: text for name, text in zip(("cpu", "memory"), pair, strict=True) if text is not None}


def quantities(pair: Pair | None) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in (resources(pair) or {}).items()}


def container(name: str, requests: Pair | None = None, limits: Pair | None = None) -> dict[str, Any]:
    lists = {"requests": resources(requests), "limits": resources(limits)}
    return {"name": name, "resources": {key: value for key, value in lists.items() if value is not None}}


def pod(
    *containers: dict[str, Any],
    name: str = "pod",
    owner: tuple[str, str] = ("ReplicaSet", "rs"),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
) -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": owner[0], "name": owner[1], "controller": True}
    metadata = {
        "name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": [reference],
        "annotations": annotations, "labels": labels or {"app": "x"},
    }  # fmt: skip
    body = {"metadata": metadata, "spec": {"containers": list(containers)}, "status": status or {"phase": "Running"}}
    return from_dict(body, Pod)


def changed_pods(*pods: Pod) -> PodChanges:
    """Pods that are new, or have changed."""
    return PodChanges(changed=pods)


def recommended(name: str, target: Pair | None, lower: Pair | None = None, upper: Pair | None = None) -> dict[str, Any]:
    lists = {"target": resources(target), "lowerBound": resources(lower), "upperBound": resources(upper)}
    return {"containerName": name, **{key: value for key, value in lists.items() if value is not None}}


def recommendation(*items: dict[str, Any]) -> RecommendedPodResources:
    return from_dict({"containerRecommendations": list(items)}, RecommendedPodResources)


def vpa(*items: dict[str, Any], policies: list[dict[str, Any]] | None = None, **spec: Any) -> VerticalPodAutoscaler:
    body: dict[str, Any] = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "name", "namespace": "default"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs"}, **spec},
        "status": {"recommendation": {"containerRecommendations": list(items)}} if items else {},
    }
    if policies is not None:
        body["spec"]["resourcePolicy"] = {"containerPolicies": policies}
    return from_dict(body, VerticalPodAutoscaler)


def limit_ranges(type_: str, name: str = "lr", **limits: Pair) -> LimitRanges:
    item = {"type": type_, **{key: resources(pair) for key, pair in limits.items()}}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"limits": [item]}}
    return LimitRanges([from_dict(body, LimitRange)])


def controller(kind: str, name: str, owner: tuple[str, str] | None = None, **spec: Any) -> Any:
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    owners = []
    if owner is not None:
        owners = [{"apiVersion": "argo/v1", "kind": owner[0], "name": owner[1], "controller": True}]
        if owner[0] in ("Deployment", "ReplicaSet"):
            owners[0]["apiVersion"] = "apps/v1"
        if owner[0] in ("CronJob", "Node"):
            owners[0]["apiVersion"] = "batch/v1" if owner[0] == "CronJob" else "v1"
    body = {
        "apiVersion": version,
        "kind": kind,
        "spec": spec,
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
    }
    type_ = find_kind(version, kind)
    assert type_ is not None
    return from_dict(body, type_)


def owned() -> Controllers:
    return Controllers([controller("ReplicaSet", "rs", selector={"matchLabels": {"app": "x"}})])
