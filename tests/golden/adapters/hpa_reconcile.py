"""``hpa-reconcile``: several reconciles of one HPA with its history kept. Leaves out nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from kscale.hpa.actions import Action, Failure, GetMetric, GetScale, ListPods, PutScale, WriteStatus
from kscale.hpa.conversion import from_v1
from kscale.hpa.defaults import apply_defaults
from kscale.hpa.moments import from_text, to_text
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile import reconcile, run
from kscale.hpa.records import Reconciliation
from kscale.hpa.selector_store import SelectorStore
from kscale.hpa.state import HPAState, Recommendation, ScaleEvent
from kscale.objects.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerV1,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.rest_mapping import RESTMapper
from kscale.objects.selector_text import parse_selector

SERVED = {
    ("", "Pod"): "pods",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("example.io", "Widget"): "widgets",
}


class World:
    """One recorded step: answers the actions of a reconcile and notes what it asked."""

    def __init__(self, step: dict[str, Any], version: int) -> None:
        self.step, self.version = step, version
        self.errors = step.get("errors") or {}
        self.metrics = step.get("metrics") or {}
        self.calls: list[str] = []
        self.attempts = 0
        self.resource = ""
        self.status: HorizontalPodAutoscalerStatus | None = None

    def __call__(self, action: Action) -> Any:
        if isinstance(action, GetScale):
            self.resource = action.resource
            return self._failure("scale_reget" if action.retry else "scale_get") or self._scale()
        if isinstance(action, PutScale):
            self.attempts += 1
            errors = self.errors.get("scale_update") or []
            error = errors[self.attempts - 1] if self.attempts <= len(errors) else None
            return None if error is None else Failure(error["message"], error["reason"])
        if isinstance(action, ListPods):
            if "pods" in self.errors:
                return Failure(self.errors["pods"])
            selector = parse_selector(action.selector)
            pods = [from_dict(pod, Pod) for pod in self.step.get("pods") or []]
            return [
                pod
                for pod in pods
                if pod.metadata.namespace == action.namespace and selector.matches(pod.metadata.labels)
            ]
        if isinstance(action, WriteStatus):
            failed = self._failure("status_update")
            if failed is None:
                self.version += 1
                self.status = action.hpa.status
            return failed or str(self.version)
        return self._metric(action)

    def _failure(self, what: str) -> Failure | None:
        error = self.errors.get(what)
        return None if error is None else Failure(error["message"], error["reason"])

    def _scale(self) -> Scale:
        scale = self.step["scale"]
        return Scale(
            spec=ScaleSpec(replicas=scale["spec_replicas"]),
            status=ScaleStatus(replicas=scale["status_replicas"], selector=scale["selector"]),
        )

    def _metric(self, query: GetMetric) -> Any:
        errors = self.metrics.get("errors") or {}
        if query.api == "resource":
            self.calls.append(f"resource {query.namespace} pods selector={query.selector}")
            return self._list(errors.get("resource"), self.metrics.get("resource"), PodMetricsList)
        if query.api == "external":
            self.calls.append(
                f"external {query.namespace} metric={query.metric} metricSelector={query.metric_selector}"
            )
            found = (self.metrics.get("external") or {}).get(query.metric)
            return self._list(errors.get(f"external/{query.metric}"), found, ExternalMetricValueList)
        where = query.namespace or "root"
        if not query.name:
            self.calls.append(
                f"custom {where} objects {query.kind} selector={query.selector} "
                f"metric={query.metric} metricSelector={query.metric_selector}"
            )
            found = (self.metrics.get("pods") or {}).get(query.metric)
            return self._list(errors.get(f"pods/{query.metric}"), found, MetricValueList)
        self.calls.append(
            f"custom {where} object {query.kind} {query.name} "
            f"metric={query.metric} metricSelector={query.metric_selector}"
        )
        error = errors.get(f"object/{query.metric}")
        found = (self.metrics.get("object") or {}).get(query.metric)
        if error is None and found is None:
            error = f"the server could not find the metric {query.metric} for {query.kind} {query.name}"
        return Failure(error) if error is not None else from_dict(found, MetricValue)

    @staticmethod
    def _list(error: str | None, found: Any, type_: Any) -> Any:
        return Failure(error) if error is not None else from_dict(found or {"items": []}, type_)


def _stored(data: dict[str, Any]) -> HorizontalPodAutoscaler:
    """What the API server stores and serves."""
    if data["apiVersion"] == "autoscaling/v1":
        return apply_defaults(from_v1(from_dict(data, HorizontalPodAutoscalerV1)))
    return apply_defaults(from_dict(data, HorizontalPodAutoscaler))


def _state(given: dict[str, Any] | None) -> HPAState:
    if given is None:
        return HPAState()
    return HPAState(
        recommendations=tuple(
            Recommendation(each["replicas"], from_text(each["time"])) for each in given.get("recommendations") or ()
        ),
        scale_up_events=_events(given.get("scale_up_events")),
        scale_down_events=_events(given.get("scale_down_events")),
    )


def _events(given: list[dict[str, Any]] | None) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(each["change"], from_text(each["time"]), each["outdated"]) for each in given or ())


def _events_out(events: tuple[ScaleEvent, ...]) -> list[dict[str, Any]]:
    return [{"change": each.change, "time": to_text(each.time), "outdated": each.outdated} for each in events]


def check(case: dict[str, Any]) -> None:
    given = case["input"]
    limits = given["options"]
    options = HPAOptions(
        horizontal_pod_autoscaler_tolerance=limits["tolerance"],
        horizontal_pod_autoscaler_downscale_stabilization=limits["downscale_stabilization_s"],
        horizontal_pod_autoscaler_cpu_initialization_period=limits["cpu_initialization_period_s"],
        horizontal_pod_autoscaler_initial_readiness_delay=limits["initial_readiness_delay_s"],
        feature_gates=given.get("gates") or {},
    )
    hpa, state, others = _stored(given["hpa"]), _state(given.get("state")), given.get("other_hpas") or []
    version = 10
    for number, (step, want) in enumerate(zip(given["steps"], case["want"]["steps"], strict=True)):
        if "hpa_spec" in step:
            version += 1
            metadata = msgspec.structs.replace(
                hpa.metadata, generation=(hpa.metadata.generation or 0) + 1, resource_version=str(version)
            )
            spec = from_dict(step["hpa_spec"], HorizontalPodAutoscalerSpec)
            hpa = apply_defaults(msgspec.structs.replace(hpa, spec=spec, metadata=metadata))
        if "other_hpas" in step:
            others = step["other_hpas"] or []
        if step.get("hpa_deleted"):
            state = HPAState()
            hpa = msgspec.structs.replace(_stored(given["hpa"]), status=HorizontalPodAutoscalerStatus())
            continue
        store = SelectorStore()
        store.put_if_absent(hpa.metadata.namespace, hpa.metadata.name, state.selector)
        for other in others:
            store.put_if_absent(other["namespace"], other["name"], other["selector"])
        world = World(step, version)
        out = run(
            reconcile(
                hpa,
                state,
                now=from_text(step["now"]),
                options=options,
                selectors=store,
                mapper=RESTMapper(SERVED),
                seen_version=step.get("informer_resource_version"),
            ),
            world,
        )
        state, version = out.state, world.version
        if world.status is not None:
            metadata = msgspec.structs.replace(hpa.metadata, resource_version=str(version))
            hpa = msgspec.structs.replace(hpa, status=world.status, metadata=metadata)
        found = _found(out, hpa.status, world)
        different = {key: (found[key], value) for key, value in want.items() if found[key] != value}
        assert not different, f"step {number}: {different}"


def _found(out: Reconciliation, status: HorizontalPodAutoscalerStatus, world: World) -> dict[str, Any]:
    return {
        "desired_replicas": status.desired_replicas,
        "current_replicas": status.current_replicas,
        "last_scale_time": status.last_scale_time,
        "observed_generation": status.observed_generation,
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "last_transition_time": each.last_transition_time,
            }
            for each in status.conditions or ()
        ],
        "current_metrics": None
        if not status.current_metrics
        else [{"type": "", **to_dict(each)} for each in status.current_metrics],
        "status_written": out.status_written,
        "rescaled": out.scale_written is not None,
        "scale_update": out.scale_written,
        "scale_update_attempts": world.attempts,
        "scale_resource": world.resource,
        "events": [{"type": each.type, "reason": each.reason, "message": each.message} for each in out.events],
        "error": out.error,
        "action": out.action,
        "error_class": out.error_class,
        "metric_results": [
            {"type": each.type, "action": each.action, "error": each.error} for each in out.observations
        ],
        "gauge_desired_replicas": out.desired_replicas_gauge,
        "metric_calls": world.calls,
        "state": {
            "recommendations": [
                {"replicas": each.replicas, "time": to_text(each.time)} for each in out.state.recommendations or ()
            ],
            "scale_up_events": _events_out(out.state.scale_up_events),
            "scale_down_events": _events_out(out.state.scale_down_events),
        },
    }
