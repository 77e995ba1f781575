"""Custom resources with a scale, read as plain data: their definitions, well-known workload kinds, KEDA's ScaledObject.

OpenKruise's StatefulSet is left out: objects are stored by kind, and StatefulSet is Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kscale.objects.api.meta import ApiStruct, CustomWorkload, KubeObject
from kscale.objects.kinds import AUTOSCALING_V1, ServedResource, group_of, is_custom_group
from kscale.objects.scale import CustomResourceDefinition, ScalePaths, definition_of, definition_parts

__all__ = [
    "PAUSED",
    "PAUSED_REPLICAS",
    "CloneSet",
    "CustomObject",
    "CustomResource",
    "DeploymentConfig",
    "LeaderWorkerSet",
    "Rollout",
    "ScaledObject",
    "Trigger",
    "UnitedDeployment",
    "custom_resources",
    "fallback_errors",
    "hpa_name",
    "irrelevant_settings",
    "is_paused",
    "is_set",
    "name_errors",
    "replica_errors",
    "scaled_custom_kinds",
    "trigger_errors",
]


class CustomObject(KubeObject):
    """An object of a custom kind: plain data below ``spec`` and ``status``, where the paths of a scale lie."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class CustomResource(msgspec.Struct, frozen=True):
    """One version of a custom kind that has a scale. ``paths`` are the JSON paths of its scale."""

    resource: ServedResource
    paths: ScalePaths

    @property
    def kind(self) -> str:
        """Return the kind of the objects."""
        return self.resource.kind

    @property
    def group(self) -> str:
        """Return the API group."""
        return self.resource.group


def custom_resources(definition: Mapping[str, Any]) -> list[CustomResource]:
    """Return the versions of a CustomResourceDefinition (plain data) that have a scale, in the definition's order.

    Raises InputError if the definition has another structure.
    """
    group, kind, plural, paths = definition_of(definition)
    return [
        CustomResource(ServedResource(group, version, kind, plural, True, AUTOSCALING_V1), each)
        for version, each in paths.items()
    ]


_SCALED_BY: Final = ("HorizontalPodAutoscaler", "VerticalPodAutoscaler", "ScaledObject")


def scaled_custom_kinds(item: KubeObject) -> list[tuple[str, str]]:
    """Return the custom kinds, as (group, kind), that have a scale according to an object.

    A CustomResourceDefinition defines the scale. An autoscaler implies the scale of its target: only kinds with a scale
    can be targets. A VPA that reports its target as not supported implies nothing.
    """
    if isinstance(item, CustomResourceDefinition):
        group, kind, _, paths = definition_parts(item)
        return [(group, kind)] if paths else []
    if item.kind not in _SCALED_BY:
        return []
    spec, status = getattr(item, "spec", None), getattr(item, "status", None)
    target = getattr(spec, "target_ref", None) or getattr(spec, "scale_target_ref", None)
    if target is None or any(
        each.type == "ConfigUnsupported" and each.status == "True" for each in getattr(status, "conditions", None) or ()
    ):
        return []
    group = group_of(target.api_version or "")
    return [(group, target.kind)] if target.kind and is_custom_group(group) else []


class Rollout(CustomWorkload):
    """A Rollout of Argo Rollouts (``argoproj.io``)."""


class CloneSet(CustomWorkload):
    """A CloneSet of OpenKruise (``apps.kruise.io``)."""


class UnitedDeployment(CustomWorkload):
    """A UnitedDeployment of OpenKruise (``apps.kruise.io``)."""


class DeploymentConfig(CustomWorkload):
    """A DeploymentConfig of OpenShift (``apps.openshift.io``)."""


class LeaderWorkerSet(CustomWorkload):
    """A LeaderWorkerSet (``leaderworkerset.x-k8s.io``)."""


PAUSED: Final = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS: Final = "autoscaling.keda.sh/paused-replicas"
_UNCACHED: Final = frozenset({"cpu", "memory", "cron"})
_RESOURCES: Final = frozenset({"cpu", "memory"})
_MAX_LABEL: Final = 63
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class Reference(ApiStruct):
    """The scale target. The default kind is Deployment."""

    api_version: str | None = None
    kind: str | None = None
    name: str = ""
    env_source_container_name: str | None = None


class Trigger(ApiStruct):
    """A trigger of scaling. Settings depend on its type."""

    type: str = ""
    name: str | None = None
    metric_type: str | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    use_cached_metrics: bool | None = None
    authentication_ref: dict[str, Any] | None = None


class HPAConfig(ApiStruct):
    """Settings of the HPA that KEDA generates."""

    name: str | None = None
    behavior: dict[str, Any] | None = None


class Advanced(ApiStruct):
    """``spec.advanced``."""

    horizontal_pod_autoscaler_config: HPAConfig | None = None
    restore_to_original_replica_count: bool | None = None
    scaling_modifiers: dict[str, Any] | None = None


class ScaledObjectSpec(ApiStruct):
    """Spec of a ScaledObject. Without a maximum, KEDA generates an HPA of at most 100 replicas."""

    scale_target_ref: Reference | None = None
    min_replica_count: int | None = None
    max_replica_count: int | None = None
    idle_replica_count: int | None = None
    polling_interval: int | None = None
    initial_cooldown_period: int | None = None
    cooldown_period: int | None = None
    fallback: dict[str, Any] | None = None
    triggers: list[Trigger] | None = None
    advanced: Advanced | None = None


class ScaledObjectStatus(ApiStruct):
    """Status of a ScaledObject."""

    external_metric_names: list[str] | None = None


class ScaledObject(KubeObject):
    """A KEDA object that scales a workload, by a generated HPA, and between 0 and 1 replicas itself."""

    spec: ScaledObjectSpec | None = None
    status: ScaledObjectStatus | None = None


def is_paused(annotations: Mapping[str, Any] | None) -> bool:
    """Return whether KEDA pauses a ScaledObject with these annotations, for which it deletes the HPA.

    The annotation ``paused-replicas`` pauses with any value, ``paused`` with any value except a text for false
    (upstream: ``NeedToBePausedByAnnotation``).
    """
    return PAUSED_REPLICAS in (annotations or {}) or is_set(annotations, PAUSED)


def is_set(annotations: Mapping[str, Any] | None, name: str) -> bool:
    """Return whether an annotation is present with any value except a text for false (``getBoolAnnotation``)."""
    value = (annotations or {}).get(name)
    return value is not None and str(value) not in _FALSE


def replica_errors(scaled: ScaledObject) -> list[str]:
    """Return a list with KEDA's first error about the replica counts of a ScaledObject; empty if they are valid.

    Upstream: ``CheckReplicaCountBoundsAreValid``, in the words of the webhook.
    """
    spec = scaled.spec or ScaledObjectSpec()
    minimum = 0 if spec.min_replica_count is None else max(spec.min_replica_count, 1)
    maximum = 100 if spec.max_replica_count is None else spec.max_replica_count
    if minimum > maximum:
        return [f"MinReplicaCount={minimum} must be less than MaxReplicaCount={maximum}"]
    if spec.idle_replica_count is not None and spec.idle_replica_count >= minimum:
        return [f"IdleReplicaCount={spec.idle_replica_count} must be less than MinReplicaCount={minimum}"]
    return []


def hpa_name(name: str, configured: str | None) -> str:
    """Return the name of the HPA that KEDA generates for a ScaledObject: the configured one, if there is one."""
    return configured or f"keda-hpa-{name}"


def name_errors(scaled: ScaledObject) -> list[str]:
    """Return a list with KEDA's first error about the names of a ScaledObject and of its HPA (``verifyName``).

    The list is empty if the names are valid.
    """
    advanced = (scaled.spec or ScaledObjectSpec()).advanced
    config = advanced.horizontal_pod_autoscaler_config if advanced is not None else None
    name = scaled.name
    hpa = hpa_name(name, config.name if config is not None else None)
    limit = f"must be no more than {_MAX_LABEL} characters"
    if len(name) > _MAX_LABEL:
        reason = f'{limit} because it is used as the "scaledobject.keda.sh/name" label value'
        return [f'scaledobject name "{name}" is {len(name)} characters long; {reason}']
    if len(hpa) > _MAX_LABEL:
        return [f'HPA name "{hpa}" derived from scaledobject is {len(hpa)} characters long; {limit}']
    return []


def fallback_errors(scaled: ScaledObject) -> list[str]:
    """Return a list with KEDA's error about the fallback of a ScaledObject; empty if valid (``CheckFallbackValid``).

    Which metric types a fallback may have depends on KEDA's version, so they are not checked. Every version refuses a
    fallback if all triggers are of types cpu and memory, unless scaling modifiers are set.
    """
    spec = scaled.spec or ScaledObjectSpec()
    if spec.fallback is None:
        return []
    threshold, replicas = (spec.fallback.get(name) or 0 for name in ("failureThreshold", "replicas"))
    if any(isinstance(value, int) and value < 0 for value in (threshold, replicas)):
        return [f"FailureThreshold={threshold} & Replicas={replicas} must both be greater than or equal to 0"]
    modifiers = spec.advanced.scaling_modifiers if spec.advanced is not None else None
    if any((modifiers or {}).values()):
        return []
    if spec.triggers and _has_only_resource_triggers(spec):
        return ["at least one trigger (that is not cpu or memory) is required for the fallback to be enabled"]
    return []


def irrelevant_settings(scaled: ScaledObject) -> list[str]:
    """Return the warnings of KEDA's webhook about settings that change nothing (``verifyScaledObjects``).

    Empty if there are no such settings.
    """
    spec = scaled.spec or ScaledObjectSpec()
    if (spec.min_replica_count or 0) <= 0 or spec.idle_replica_count is not None:
        return []
    warnings = []
    if spec.polling_interval is not None and not any(each.use_cached_metrics for each in spec.triggers or ()):
        where = "minReplicaCount = 0, idleReplicaCount is set, or useCachedMetrics is enabled"
        warnings.append(
            f"PollingInterval is configured but is not relevant. PollingInterval is only relevant when {where}"
        )
    if spec.cooldown_period is not None:
        where = "minReplicaCount = 0 or idleReplicaCount is set"
        warnings.append(
            f"CooldownPeriod is configured but is not relevant. CooldownPeriod is only relevant when {where}"
        )
    return warnings


def _has_only_resource_triggers(spec: ScaledObjectSpec) -> bool:
    """Return whether all triggers are of types cpu and memory; True without triggers."""
    return all(trigger.type in _RESOURCES for trigger in spec.triggers or ())


def _is_stuck_at_zero(spec: ScaledObjectSpec) -> bool:
    """Return whether the minimum is zero, but only cpu and memory triggers could start the first pod.

    Upstream: ``verifyCPUMemoryScalers``, which checks Deployments and StatefulSets only.
    """
    target = spec.scale_target_ref or Reference()
    kind = (target.api_version or "apps/v1", target.kind or "Deployment")
    is_checked = kind in (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"))
    return is_checked and not spec.min_replica_count and _has_only_resource_triggers(spec)


def trigger_errors(scaled: ScaledObject) -> list[str]:
    """Return a list with KEDA's first error about the triggers of a ScaledObject; empty if they are valid.

    Upstream: ``ValidateTriggers`` and ``verifyCPUMemoryScalers``, in the words of the webhook.
    """
    spec = scaled.spec or ScaledObjectSpec()
    triggers = spec.triggers or []
    if not triggers:
        return ["no triggers defined in the ScaledObject/ScaledJob"]
    names: set[str] = set()
    for trigger in triggers:
        if trigger.use_cached_metrics and trigger.type in _UNCACHED:
            return [f'property "useCachedMetrics" is not supported for "{trigger.type}" scaler']
        if trigger.name and trigger.name in names:
            where = "defined multiple times in the ScaledObject/ScaledJob"
            return [f'triggerName "{trigger.name}" is {where}, but it must be unique']
        names.add(trigger.name or "")
    if _is_stuck_at_zero(spec):
        return [
            "scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)"
        ]
    return []
