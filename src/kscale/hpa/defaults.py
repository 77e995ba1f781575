"""What the API server fills in (upstream: ``pkg/apis/autoscaling/v2/defaults.go``)."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kscale.objects.argument_types import typed
from kscale.objects.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)

__all__ = ["CPU_UTILIZATION", "apply_defaults", "cpu_metric"]

CPU_UTILIZATION: Final = 80


def cpu_metric(utilization: int = CPU_UTILIZATION) -> MetricSpec:
    """A Resource metric of cpu with a utilisation target."""
    target = MetricTarget(type="Utilization", average_utilization=utilization)
    return MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))


@typed
def apply_defaults(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """The object with a minimum of 1, cpu at 80 % if it names no metric, and a behavior filled in field by field."""
    spec = hpa.spec
    return replace(
        hpa,
        spec=replace(
            spec,
            min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
            metrics=spec.metrics or [cpu_metric()],
            behavior=None if spec.behavior is None else _behavior(spec.behavior),
        ),
    )


def _behavior(behavior: HorizontalPodAutoscalerBehavior) -> HorizontalPodAutoscalerBehavior:
    percent = HPAScalingPolicy(type="Percent", value=100, period_seconds=15)
    pods = HPAScalingPolicy(type="Pods", value=4, period_seconds=15)
    up = HPAScalingRules(stabilization_window_seconds=0, select_policy="Max", policies=[pods, percent])
    down = HPAScalingRules(select_policy="Max", policies=[percent])  # no window: that of the flag
    return HorizontalPodAutoscalerBehavior(
        scale_up=_rules(behavior.scale_up, up), scale_down=_rules(behavior.scale_down, down)
    )


def _rules(rules: HPAScalingRules | None, default: HPAScalingRules) -> HPAScalingRules:
    if rules is None:
        return default
    window, policy, policies = rules.stabilization_window_seconds, rules.select_policy, rules.policies
    return HPAScalingRules(
        stabilization_window_seconds=default.stabilization_window_seconds if window is None else window,
        select_policy=default.select_policy if policy is None else policy,
        policies=default.policies if policies is None else policies,
        tolerance=rules.tolerance,
    )
