"""KEDA's ScaledObject, as far as something here reads it (``keda.sh``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kscale.objects.base import ApiStruct
from kscale.objects.meta import KubeObject

__all__ = [
    "PAUSED",
    "PAUSED_REPLICAS",
    "ScaledObject",
    "Trigger",
    "is_paused",
    "is_set",
    "replica_errors",
    "trigger_errors",
]

PAUSED: Final = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS: Final = "autoscaling.keda.sh/paused-replicas"
_UNCACHED: Final = frozenset({"cpu", "memory", "cron"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class Reference(ApiStruct):
    """What is scaled; a Deployment where no kind is given."""

    api_version: str | None = None
    kind: str | None = None
    name: str = ""
    env_source_container_name: str | None = None


class Trigger(ApiStruct):
    """What the target is scaled by; settings depend on the type."""

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
    """``spec``; KEDA generates an HPA of at most 100 replicas where no maximum is given."""

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
    """``status``."""

    external_metric_names: list[str] | None = None


class ScaledObject(KubeObject):
    """Scales a workload by an HPA that KEDA generates, and between 0 and 1 itself."""

    spec: ScaledObjectSpec | None = None
    status: ScaledObjectStatus | None = None


def is_paused(annotations: Mapping[str, Any] | None) -> bool:
    """Whether KEDA deletes the HPA of a ScaledObject with these annotations (``NeedToBePausedByAnnotation``)."""
    return PAUSED_REPLICAS in (annotations or {}) or is_set(annotations, PAUSED)


def is_set(annotations: Mapping[str, Any] | None, name: str) -> bool:
    """Whether an annotation is set: KEDA takes all that is not false for true (``getBoolAnnotation``)."""
    value = (annotations or {}).get(name)
    return value is not None and str(value) not in _FALSE


def replica_errors(scaled: ScaledObject) -> list[str]:
    """Return what KEDA's webhook refuses of the replicas of a ScaledObject (``CheckReplicaCountBoundsAreValid``)."""
    spec = scaled.spec or ScaledObjectSpec()
    minimum = 0 if spec.min_replica_count is None else max(spec.min_replica_count, 1)
    maximum = 100 if spec.max_replica_count is None else spec.max_replica_count
    if minimum > maximum:
        return [f"MinReplicaCount={minimum} must be less than MaxReplicaCount={maximum}"]
    if spec.idle_replica_count is not None and spec.idle_replica_count >= minimum:
        return [f"IdleReplicaCount={spec.idle_replica_count} must be less than MinReplicaCount={minimum}"]
    return []


def trigger_errors(scaled: ScaledObject) -> list[str]:
    """Return what KEDA's webhook refuses of the triggers of a ScaledObject (``ValidateTriggers``)."""
    triggers = (scaled.spec or ScaledObjectSpec()).triggers or []
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
    return []
