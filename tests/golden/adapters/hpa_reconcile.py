"""``hpa-reconcile``: several reconciles of one HPA with its history kept. Compares selectors in calls by value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from kscale.drivers import HorizontalController
from kscale.effects import (
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    Moment,
    PutScale,
    WriteStatus,
    from_text,
    to_text,
)
from kscale.hpa.api.v1_conversion import from_v1
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.controller.monitor import DESIRED_REPLICAS, METRIC_COMPUTATIONS
from kscale.hpa.controller.reconcile import ReconcileResult, reconcile
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState, Recommendation, ScaleEvent
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    HorizontalPodAutoscalerV1,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMapper, ServedResource
from kscale.objects.selectors import parse_selector
from performing import performed

SERVED = (
    ServedResource("", "v1", "Pod", "pods"),
    ServedResource("", "v1", "ReplicationController", "replicationcontrollers"),
    ServedResource("apps", "v1", "Deployment", "deployments"),
    ServedResource("apps", "v1", "ReplicaSet", "replicasets"),
    ServedResource("apps", "v1", "StatefulSet", "statefulsets"),
    ServedResource("example.io", "v1", "Widget", "widgets"),
)


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
            return self._failure("scale_reget" if action.fresh else "scale_get") or self._scale()
        if isinstance(action, PutScale):
            self.attempts += 1
            errors = self.errors.get("scale_update") or []
            error = errors[self.attempts - 1] if self.attempts <= len(errors) else None
            return _refusal(error)
        if isinstance(action, List):
            if "pods" in self.errors:
                return ApiError(self.errors["pods"])
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
                assert isinstance(action.object, HorizontalPodAutoscaler)
                # A server reads what it is sent, and prints quantities in its own way.
                self.status = from_dict(to_dict(action.object.status), HorizontalPodAutoscalerStatus)
            return failed or str(self.version)
        assert isinstance(action, GetMetric)
        return self._metric(action)

    def _failure(self, what: str) -> ApiError | None:
        return _refusal(self.errors.get(what))

    def _scale(self) -> Scale:
        scale = self.step["scale"]
        return Scale(
            spec=ScaleSpec(replicas=scale["spec_replicas"]),
            status=ScaleStatus(replicas=scale["status_replicas"], selector=scale["selector"]),
        )

    def _metric(self, query: GetMetric) -> Any:
        errors = self.metrics.get("errors") or {}
        if query.api == "resource":
            self.calls.append(f"resource {query.namespace} pods selector={parse_selector(query.selector)}")
            return self._list(errors.get("resource"), self.metrics.get("resource"), PodMetricsList)
        if query.api == "external":
            self.calls.append(
                f"external {query.namespace} metric={query.metric} metricSelector={query.metric_selector}"
            )
            result = (self.metrics.get("external") or {}).get(query.metric)
            return self._list(errors.get(f"external/{query.metric}"), result, ExternalMetricValueList)
        where = query.namespace or "root"
        if not query.name:
            self.calls.append(
                f"custom {where} objects {query.kind} selector={parse_selector(query.selector)} "
                f"metric={query.metric} metricSelector={query.metric_selector}"
            )
            result = (self.metrics.get("pods") or {}).get(query.metric)
            return self._list(errors.get(f"pods/{query.metric}"), result, MetricValueList)
        self.calls.append(
            f"custom {where} object {query.kind} {query.name} "
            f"metric={query.metric} metricSelector={query.metric_selector}"
        )
        error = errors.get(f"object/{query.metric}")
        result = (self.metrics.get("object") or {}).get(query.metric)
        if error is None and result is None:
            error = f"the server could not find the metric {query.metric} for {query.kind} {query.name}"
        return ApiError(error) if error is not None else from_dict(result, MetricValue)

    @staticmethod
    def _list(error: str | None, listed: Any, type_: Any) -> Any:
        return ApiError(error) if error is not None else from_dict(listed or {"items": []}, type_)


def _refusal(error: dict[str, Any] | None) -> ApiError | None:
    return None if error is None else ApiError(error["message"], reason=error["reason"])


def _stored(data: dict[str, Any]) -> HorizontalPodAutoscaler:
    """What the API server stores and serves."""
    if data["apiVersion"] == "autoscaling/v1":
        return apply_defaults(from_v1(from_dict(data, HorizontalPodAutoscalerV1)))
    return apply_defaults(from_dict(data, HorizontalPodAutoscaler))


def _state(fields: dict[str, Any] | None) -> HPAState:
    if fields is None:
        return HPAState()
    return HPAState(
        recommendations=tuple(
            Recommendation(each["replicas"], from_text(each["time"])) for each in fields.get("recommendations") or ()
        ),
        scale_up_events=_events(fields.get("scale_up_events")),
        scale_down_events=_events(fields.get("scale_down_events")),
    )


def _events(events: list[dict[str, Any]] | None) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(each["change"], from_text(each["time"]), each["outdated"]) for each in events or ())


def _events_out(events: tuple[ScaleEvent, ...]) -> list[dict[str, Any]]:
    return [{"change": each.change, "time": to_text(each.time), "outdated": each.outdated} for each in events]


def check(case: dict[str, Any]) -> None:
    inputs = case["input"]
    limits = inputs["options"]
    options = HPAOptions(
        horizontal_pod_autoscaler_tolerance=limits["tolerance"],
        horizontal_pod_autoscaler_downscale_stabilization=timedelta(seconds=limits["downscale_stabilization_s"]),
        horizontal_pod_autoscaler_cpu_initialization_period=timedelta(seconds=limits["cpu_initialization_period_s"]),
        horizontal_pod_autoscaler_initial_readiness_delay=timedelta(seconds=limits["initial_readiness_delay_s"]),
        feature_gates=inputs.get("gates") or {},
        kubernetes_version=inputs.get("kubernetes_version", ""),
    )
    hpa, state, others = _stored(inputs["hpa"]), _state(inputs.get("state")), inputs.get("other_hpas") or []
    version = 10
    for number, (step, want) in enumerate(zip(inputs["steps"], case["want"]["steps"], strict=True)):
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
            state = _deleted(hpa, state, options, from_text(step["now"]))
            hpa = msgspec.structs.replace(_stored(inputs["hpa"]), status=HorizontalPodAutoscalerStatus())
            _compare(number, _nothing_done(state, hpa.status), want)
            continue
        store = SelectorStore()
        store.put_if_absent(hpa.metadata.namespace, hpa.metadata.name, state.selector)
        for other in others:
            store.put_if_absent(other["namespace"], other["name"], other["selector"])
        world = World(step, version)
        now = from_text(step["now"])
        run = performed(
            reconcile(
                hpa,
                state,
                now=now,
                options=options,
                selectors=store,
                mapper=RESTMapper(SERVED),
                seen_version=step.get("informer_resource_version"),
            ),
            world,
            now=now,
        )
        state, version = run.value.state, world.version
        if world.status is not None:
            metadata = msgspec.structs.replace(hpa.metadata, resource_version=str(version))
            hpa = msgspec.structs.replace(hpa, status=world.status, metadata=metadata)
        result = _step_result(run, hpa.status, world)
        _compare(number, result, want)


def _compare(number: int, result: dict[str, Any], want: dict[str, Any]) -> None:
    assert result.keys() == want.keys(), f"step {number}"
    different = {key: (result[key], value) for key, value in want.items() if result[key] != value}
    assert not different, f"step {number}: {different}"


def _deleted(hpa: HorizontalPodAutoscaler, state: HPAState, options: HPAOptions, now: Moment) -> HPAState:
    """What is left of the state after the delete event, and after the key of an object that is gone came up."""
    key = f"{hpa.metadata.namespace}/{hpa.metadata.name}"
    controller = HorizontalController(options, ControllerState(hpas={key: state}))
    controller.added(hpa, now=now)
    controller.deleted(hpa)
    assert controller.take(now) == key
    controller.done(key, None, now=now)
    assert controller.states() == ControllerState()
    return msgspec.structs.replace(controller.state(key), registered=True)  # it will be made again


def _step_result(run: DryRun[ReconcileResult], status: HorizontalPodAutoscalerStatus, world: World) -> dict[str, Any]:
    out = run.value
    gauges = [each.value for each in run.observations if each.name == DESIRED_REPLICAS]
    return {
        **_status(status),
        "status_written": out.status_written,
        "rescaled": out.scale_written is not None,
        "scale_update": out.scale_written,
        "scale_update_attempts": world.attempts,
        "scale_resource": world.resource,
        "events": [{"type": each.type, "reason": each.reason, "message": each.message} for each in run.events],
        "error": out.error,
        "action": out.action,
        "error_class": out.error_class,
        "metric_results": [
            {"type": each.labels["metric_type"], "action": each.labels["action"], "error": each.labels["error"]}
            for each in run.observations
            if each.name == METRIC_COMPUTATIONS
        ],
        "gauge_desired_replicas": gauges[-1] if gauges else None,
        "metric_calls": world.calls,
        "state": _histories(out.state),
    }


def _nothing_done(state: HPAState, status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
    """The same where nothing was there to reconcile."""
    return {
        **_status(status),
        "status_written": False,
        "rescaled": False,
        "scale_update": None,
        "scale_update_attempts": 0,
        "scale_resource": "",
        "events": [],
        "error": None,
        "action": "none",
        "error_class": "none",
        "metric_results": [],
        "gauge_desired_replicas": None,
        "metric_calls": [],
        "state": _histories(state),
    }


def _status(status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
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
    }


def _histories(state: HPAState) -> dict[str, Any]:
    return {
        "recommendations": [
            {"replicas": each.replicas, "time": to_text(each.time)} for each in state.recommendations or ()
        ],
        "scale_up_events": _events_out(state.scale_up_events),
        "scale_down_events": _events_out(state.scale_down_events),
    }
