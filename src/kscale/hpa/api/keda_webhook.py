"""Check ScaledObjects against the other objects of a cluster, as KEDA's webhook does.

Upstream: ``apis/keda/v1alpha1/scaledobject_webhook.go``. Rules that concern one ScaledObject alone are in
:mod:`kscale.objects.api.custom_workloads`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Container, LimitRange
from kscale.objects.api.custom_workloads import (
    ScaledObject,
    Trigger,
    fallback_errors,
    hpa_name,
    name_errors,
    replica_errors,
    trigger_errors,
)
from kscale.objects.api.meta import KubeObject, ResourceList

__all__ = ["KEDARefusal", "KEDAWebhook", "check_scaled_object_alone"]

_TRANSFER: Final = "scaledobject.keda.sh/transfer-hpa-ownership"
_OWNERSHIP: Final = "validations.keda.sh/hpa-ownership"
_RESOURCES: Final = frozenset({"cpu", "memory"})


class KEDARefusal(NamedTuple):
    """What KEDA's webhook refuses, in its words, and the field of the ScaledObject that it is about."""

    field: str
    message: str


class _Target(NamedTuple):
    """A scale target. KEDA compares targets by version, too."""

    namespace: str
    type: str
    name: str


def check_scaled_object_alone(scaled: ScaledObject) -> list[KEDARefusal]:
    """Return what the webhook refuses of a ScaledObject whatever else is in the cluster."""
    rules = (
        ("metadata.name", name_errors),
        ("spec", replica_errors),
        ("spec.fallback", fallback_errors),
        ("spec.triggers", trigger_errors),
    )
    return [KEDARefusal(field, text) for field, rule in rules for text in rule(scaled)]


class KEDAWebhook:
    """What the webhook compares a ScaledObject with.

    Objects of other kinds than ScaledObjects, HPAs, Deployments, StatefulSets and LimitRanges are ignored.
    """

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        self._scaled: dict[_Target, dict[str, None]] = {}
        self._hpa_owners: dict[tuple[str, str], dict[str, None]] = {}
        self._hpas: dict[_Target, dict[str, KubeObject]] = {}
        self._containers: dict[_Target, list[Container]] = {}
        self._defaults: dict[str, set[str]] = {}
        for item in objects:
            self.add(item)

    def add(self, item: KubeObject) -> None:
        """Add an object of the cluster."""
        match item:
            case ScaledObject():
                self._scaled.setdefault(_target_of(item), {})[item.name] = None
                self._hpa_owners.setdefault((item.namespace, _hpa_of(item)), {})[item.name] = None
            case HorizontalPodAutoscaler() | HorizontalPodAutoscalerV1():
                reference = item.spec.scale_target_ref
                target = _target(item.namespace, reference.api_version, reference.kind, reference.name)
                self._hpas.setdefault(target, {})[item.name] = item
            case Deployment() | StatefulSet():
                target = _target(item.namespace, item.api_version, type(item).__name__, item.name)
                self._containers[target] = item.spec.template.spec.containers
            case LimitRange():
                self._defaults.setdefault(item.namespace, set())
                for limit in item.spec.limits:
                    if limit.type == "Container":
                        names = {name for name in _RESOURCES if _is_set(name, limit.default_request, limit.default)}
                        self._defaults[item.namespace].update(names)

    def check(self, scaled: ScaledObject) -> list[KEDARefusal]:
        """Return what the webhook refuses of a ScaledObject beside the other objects, one for each rule."""
        return [
            *(KEDARefusal("spec.scaleTargetRef", text) for text in self._check_scaled_objects(scaled)),
            *(KEDARefusal("spec.scaleTargetRef", text) for text in self._check_hpas(scaled)),
            *(KEDARefusal("spec.triggers", text) for text in self._check_requests(scaled)),
        ]

    def is_target_missing(self, scaled: ScaledObject) -> bool:
        """Return whether the requests of the target's containers count, but the target is not known."""
        target = _target_of(scaled)
        return (
            target.type in ("apps/v1.Deployment", "apps/v1.StatefulSet")
            and target not in self._containers
            and any(trigger.type in _RESOURCES for trigger in _triggers_of(scaled))
        )

    def _check_scaled_objects(self, scaled: ScaledObject) -> list[str]:
        """Check that no other ScaledObject has the target or the HPA (``verifyScaledObjects``)."""
        target, hpa = _target_of(scaled), _hpa_of(scaled)
        for other in self._scaled.get(target, ()):
            if other != scaled.name:
                what = f"the workload '{target.name}' of type '{target.type}'"
                return [f"{what} is already managed by the ScaledObject '{other}'"]
        for other in self._hpa_owners.get((scaled.namespace, hpa), ()):
            if other != scaled.name:
                return [f"the HPA '{hpa}' is already managed by the ScaledObject '{other}'"]
        return []

    def _check_hpas(self, scaled: ScaledObject) -> list[str]:
        """Check that no HPA of somebody else scales the target (``verifyHpas``)."""
        target = _target_of(scaled)
        for name, hpa in self._hpas.get(target, {}).items():
            if (hpa.metadata.annotations or {}).get(_OWNERSHIP) == "false":
                continue
            if any(each.kind == "ScaledObject" and each.name == scaled.name for each in hpa.metadata.owner_references):
                continue
            what = f"workload '{target.name}' of type '{target.type}'"
            if (scaled.metadata.annotations or {}).get(_TRANSFER) != "true":
                return [f"the {what} is already managed by the hpa '{name}'"]
            if _configured_hpa(scaled) != name:
                rule = "must be specified by name in advanced settings to enable ownership transfer"
                return [f"the existing hpa '{name}' for {what} {rule}"]
        return []

    def _check_requests(self, scaled: ScaledObject) -> list[str]:
        """Check that containers have a request or a limit of what is scaled by (``verifyCPUMemoryScalers``)."""
        containers = self._containers.get(_target_of(scaled), ())
        for trigger in _triggers_of(scaled):
            resource = trigger.type
            if resource not in _RESOURCES or resource in self._defaults.get(scaled.namespace, ()):
                continue
            only = (trigger.metadata or {}).get("containerName") or ""
            for container in containers:
                amounts = container.resources
                if only in ("", container.name) and not _is_set(resource, amounts.requests, amounts.limits):
                    where = f"the container {container.name} doesn't have the {resource} request defined"
                    unknown = "" if scaled.namespace in self._defaults else " (no LimitRange in the input gives it one)"
                    return [f"the scaledobject has a {resource} trigger but {where}{unknown}"]
        return []


def _is_set(resource: str, requests: ResourceList | None, limits: ResourceList | None) -> bool:
    amounts = [(requests or {}).get(resource), (limits or {}).get(resource)]
    return any(amount is not None and amount.sign > 0 for amount in amounts)


def _triggers_of(scaled: ScaledObject) -> list[Trigger]:
    return [] if scaled.spec is None else scaled.spec.triggers or []


def _target(namespace: str, api_version: str | None, kind: str | None, name: str) -> _Target:
    """Return a target as ``ParseGVKR`` reads it: an absent version is ``apps/v1``, an absent kind a Deployment."""
    return _Target(namespace, f"{api_version or 'apps/v1'}.{kind or 'Deployment'}", name)


def _target_of(scaled: ScaledObject) -> _Target:
    reference = None if scaled.spec is None else scaled.spec.scale_target_ref
    if reference is None:
        return _target(scaled.namespace, None, None, "")
    return _target(scaled.namespace, reference.api_version, reference.kind, reference.name)


def _configured_hpa(scaled: ScaledObject) -> str | None:
    advanced = None if scaled.spec is None else scaled.spec.advanced
    config = None if advanced is None else advanced.horizontal_pod_autoscaler_config
    return None if config is None else config.name


def _hpa_of(scaled: ScaledObject) -> str:
    return hpa_name(scaled.name, _configured_hpa(scaled))
