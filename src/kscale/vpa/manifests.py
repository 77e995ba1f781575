"""Advice as objects for ``kubectl``: VPAs in mode Off, patches for workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kscale.vpa.report import ContainerAdvice
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["patch_of", "vpa_of"]


def _quantities(advice: ContainerAdvice) -> tuple[dict[str, str], dict[str, str]]:
    """(requests, limits) as texts."""
    requests, limits = {}, {}
    for name, one, unit in ((CPU, advice.cpu, "m"), (MEMORY, advice.memory, "")):
        if one.target is not None:
            requests[name] = f"{one.target}{unit}"
        if one.target_limit is not None:
            limits[name] = f"{one.target_limit}{unit}"
    return requests, limits


def vpa_of(advice: Sequence[ContainerAdvice]) -> dict[str, Any]:
    """A VerticalPodAutoscaler in mode Off with the recommendation in its status, for the containers of one workload."""
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    recommendations = []
    for one in advice:
        if one.cpu.target is None and one.memory.target is None:
            continue
        lists = {
            "target": "target",
            "lowerBound": "lower_bound",
            "upperBound": "upper_bound",
            "uncappedTarget": "target",
        }
        entry: dict[str, Any] = {"containerName": one.container}
        for field_name, attribute in lists.items():
            cpu, memory = getattr(one.cpu, attribute), getattr(one.memory, attribute)
            values = {CPU: f"{cpu}m" if cpu is not None else None, MEMORY: str(memory) if memory is not None else None}
            if any(values.values()):
                entry[field_name] = {key: value for key, value in values.items() if value}
        recommendations.append(entry)
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": first.vpa, "namespace": first.namespace},
        "spec": {
            "targetRef": {"apiVersion": first.api_version, "kind": kind, "name": name},
            "updatePolicy": {"updateMode": "Off"},
        },
        "status": {"recommendation": {"containerRecommendations": recommendations}},
    }


def patch_of(advice: Sequence[ContainerAdvice]) -> dict[str, Any]:
    """A strategic merge patch that gives one workload's containers their requests (and limits where advised)."""
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    containers = []
    for one in advice:
        requests, limits = _quantities(one)
        resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
        if resources:
            containers.append({"name": one.container, "resources": resources})
    template: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    return {
        "apiVersion": first.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": first.namespace},
        "spec": spec,
    }
