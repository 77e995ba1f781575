"""Advice as objects for ``kubectl``: VPAs, patches for workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kscale.objects.decode import to_dict
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa.advice.records import ContainerAdvice
from kscale.vpa.controllers import WELL_KNOWN
from kscale.vpa.resources import CPU, MEMORY, cpu_quantity, memory_quantity

__all__ = ["patch_of", "vpa_of"]


def _texts(millicores: int | None, size: int | None) -> dict[str, str]:
    found = {}
    if millicores is not None:
        found[CPU] = str(cpu_quantity(millicores))
    if size is not None:
        found[MEMORY] = str(memory_quantity(size))
    return found


def vpa_of(advice: Sequence[ContainerAdvice], own: VerticalPodAutoscaler | None = None) -> dict[str, Any] | None:
    """A VerticalPodAutoscaler with the advice for one workload's containers in its status; None without any advice.

    ``own``: the workload's VPA in the cluster, whose spec is kept: whoever applies the object must not switch it off.
    Without one the object is in mode Off.
    """
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    recommendations = []
    for one in advice:
        lists = {
            "target": _texts(one.cpu.target, one.memory.target),
            "lowerBound": _texts(one.cpu.lower_bound, one.memory.lower_bound),
            "upperBound": _texts(one.cpu.upper_bound, one.memory.upper_bound),
            "uncappedTarget": _texts(one.cpu.uncapped_target, one.memory.uncapped_target),
        }
        if lists["target"]:
            filled = {field: values for field, values in lists.items() if values}
            recommendations.append({"containerName": one.container, **filled})
    if not recommendations:
        return None
    spec: dict[str, Any] = {
        "targetRef": {"apiVersion": first.api_version, "kind": kind, "name": name},
        "updatePolicy": {"updateMode": "Off"},
    }
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": first.vpa, "namespace": first.namespace},
        "spec": spec if own is None else to_dict(own.spec),
        "status": {"recommendation": {"containerRecommendations": recommendations}},
    }


def patch_of(advice: Sequence[ContainerAdvice]) -> dict[str, Any] | None:
    """A strategic merge patch that gives one workload's containers their requests, and limits that go with them.

    None without any advice, and for a custom kind: its lists are replaced as a whole, not merged.
    """
    if advice[0].workload.partition("/")[0] not in WELL_KNOWN:
        return None
    first = advice[0]
    kind, _, name = first.workload.partition("/")
    containers = []
    for one in advice:
        requests = _texts(one.patch.cpu_request, one.patch.memory_request)
        limits = _texts(one.patch.cpu_limit, one.patch.memory_limit)
        resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
        if resources:
            containers.append({"name": one.container, "resources": resources})
    if not containers:
        return None
    template: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    return {
        "apiVersion": first.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": first.namespace},
        "spec": spec,
    }
