"""Kind ``scale-up``: leaves out what the cluster state says beyond healthy, backed off and upcoming."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

import golden_ca
from kscale import ca
from kscale.ca import quota
from kscale.ca.backoff import ScaleUpError
from kscale.ca.cluster_state import (
    ClusterState,
    ClusterUpdate,
    DecreaseTargetSize,
    backoff_status,
    is_group_healthy,
    is_safe_to_scale_up,
    register_failed_scale_up,
    register_scale_up,
    upcoming_nodes,
    update_nodes_steps,
)
from kscale.ca.errors import ErrorRecord
from kscale.ca.scale_up.status import ConsideredGroup, RemainingPod, not_triggered_parts
from kscale.objects.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.quota import CapacityQuota
from kscale.objects.times import to_datetime

_FLAGS = (
    "max_nodes_total",
    "max_nodes_per_scaleup",
    "balance_similar_node_groups",
    "parallel_scale_up",
    "async_node_groups",
    "fastpath_binpacking_enabled",
    "scaleup_simulation_for_skipped_node_groups_enabled",
    "ok_total_unready_count",
    "max_total_unready_percentage",
    "force_ds",
)


def unsupported(case: dict[str, Any]) -> str | None:
    op = case["input"]["op"]
    return f"operation {op}" if op in ("scale_up", "salvo") else None


def check(case: dict[str, Any]) -> None:
    given, want = case["input"], case["want"]
    if given["op"] == "status_events":
        assert _status_events(given["status"]) == want["events"]
        return
    provider = Provider(given)
    options = options_of(given)
    now = to_datetime(given["now"])
    nodes = golden_ca.of_type([golden_ca.read(item) for item in given.get("objects") or []], Node)
    state, events_before = history(given, provider, nodes, options, now)
    got: dict[str, Any] = {
        "events_before": events_before,
        "cluster_state_before": cluster_state(state, provider.groups, now, options),
    }
    templates = {g.id: g.template.node for g in provider.groups if g.template is not None}
    steps = ca.scale_up_to_min_size_steps(
        nodes,
        provider.groups,
        templates=templates,
        state=state,
        now=now,
        options=options,
        quotas=quotas_of(given),
        gpu_label=golden_ca.GPU_LABEL,
    )
    done = provider.run(steps)
    got |= status_of(done.status) | {
        "events": golden_ca.sorted_events(done.events + ca.status_events(done.status)),
        "increase_calls": provider.calls,
        "targets_after": {group.id: group.target_size for group in provider.groups},
        "cluster_state_after": cluster_state(done.state, provider.groups, now, options),
        "options": [],
    }
    expected = dict(want)
    expected.pop("expander_steps", None)
    for part in ("cluster_state_before", "cluster_state_after"):
        groups = {
            name: {key: values[key] for key in ("healthy", "backed_off", "safe")}
            for name, values in want[part]["groups"].items()
        }
        expected[part] = {"upcoming": want[part]["upcoming"], "groups": groups}
    assert got == expected


class Provider:
    """The injected cloud provider: answers actions as recorded and keeps target sizes."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.errors = {group["id"]: group["increase_error"] for group in given["groups"] if group.get("increase_error")}
        self.not_atomic = {group["id"] for group in given["groups"] if group.get("atomic_increase_not_implemented")}
        self.groups = ca.Groups([_group(group) for group in given["groups"]], given.get("node_group_errors"))
        self.calls: list[dict[str, Any]] = []

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        try:
            action = next(steps)
            while True:
                action = steps.send(self.answer(action))
        except StopIteration as stop:
            return stop.value

    def answer(self, action: ca.IncreaseSize | DecreaseTargetSize) -> ca.AutoscalerError | None:
        group = self.groups[action.group]
        if isinstance(action, DecreaseTargetSize):
            group.target_size += action.delta
            return None
        if action.atomic and action.group in self.not_atomic:
            return ca.AutoscalerError("", "Not implemented")
        self.calls.append({"group": action.group, "delta": action.delta, "atomic": action.atomic})
        error = self.errors.get(action.group)
        if error is None or error.get("target_raised"):
            group.target_size += action.delta
        return None if error is None else ca.AutoscalerError(error.get("type") or "", error["message"])


def _group(given: dict[str, Any]) -> ca.Group:
    names = [*(given.get("nodes") or []), *(given.get("unregistered_instances") or [])]
    own = given.get("options")
    return ca.Group(
        id=given["id"],
        min_size=given["min"],
        max_size=given["max"],
        target_size=given["target"],
        nodes=names,
        instances=names,
        template=golden_ca.template(given.get("template")),
        exists=given.get("exists", True),
        async_upcoming=given.get("async_upcoming", False),
        options=None if own is None else _group_options(own),
        options_error=given.get("options_error"),
    )


def _group_options(given: dict[str, Any]) -> ca.NodeGroupAutoscalingOptions:
    return ca.NodeGroupAutoscalingOptions(
        zero_or_max_node_scaling=given.get("zero_or_max_node_scaling", False),
        max_node_provision_time=timedelta(seconds=given.get("max_node_provision_time_s", 0)),
        max_node_startup_time=timedelta(seconds=given.get("max_node_startup_time_s", 0)),
    )


def options_of(given: dict[str, Any]) -> ca.AutoscalingOptions:
    flags = given.get("options") or {}
    return ca.AutoscalingOptions(
        **{name: flags[name] for name in _FLAGS if name in flags},
        max_node_provision_time=timedelta(seconds=flags.get("max_node_provision_time_s", 900)),
        max_node_startup_time=timedelta(seconds=flags.get("max_node_startup_time_s", 900)),
        initial_node_group_backoff_duration=timedelta(seconds=300),
        max_node_group_backoff_duration=timedelta(seconds=1800),
        node_group_backoff_reset_timeout=timedelta(seconds=10800),
    )


def quotas_of(given: dict[str, Any]) -> list[quota.Quota]:
    objects = [from_dict(item, CapacityQuota) for item in given.get("capacity_quotas") or []]
    limiter = ca.ResourceLimiter(min=given.get("min_limits") or {}, max=given.get("limits") or {})
    return [quota.cluster_maximum(limiter), *quota.capacity_quota_limits(objects)[0]]


def history(
    given: dict[str, Any], provider: Provider, nodes: list[Node], options: ca.AutoscalingOptions, now: datetime
) -> tuple[ClusterState, list[dict[str, str]]]:
    """The cluster state after the recorded history and an update at ``now``, and the events of the way there."""
    state = ClusterState()
    machines = {node.metadata.name: True for node in nodes}
    events: list[ca.Event] = []
    for item in [*(given.get("history") or []), {"op": "update_nodes", "at": given["now"]}]:
        time = to_datetime(item["at"])
        if item["op"] == "register_scale_up":
            state = register_scale_up(state, provider.groups[item["group"]], item["delta"], time, options)
        elif item["op"] == "register_failed_scale_up":
            error = ScaleUpError(class_="Other", code="cloudProviderError", message="failed")
            state = register_failed_scale_up(state, item["group"], error, item["delta"], time, options)
        else:
            update: ClusterUpdate = provider.run(
                update_nodes_steps(state, nodes, provider.groups, now=time, options=options, has_instance=machines)
            )
            state = update.state
            events += update.events
    return state, golden_ca.sorted_events(events)


def cluster_state(
    state: ClusterState, groups: ca.Groups, now: datetime, options: ca.AutoscalingOptions
) -> dict[str, Any]:
    return {
        "upcoming": {name: item.count for name, item in upcoming_nodes(state, groups, now).items()},
        "groups": {
            group.id: {
                "healthy": is_group_healthy(state, group.id, options),
                "backed_off": backoff_status(state, group.id, now) is not None,
                "safe": is_safe_to_scale_up(state, group.id, now, options),
            }
            for group in groups
        },
    }


def status_of(status: ca.ScaleUpStatus) -> dict[str, Any]:
    return {
        "result": status.result,
        "error": _error(status.error),
        "scale_ups": [{"group": i.group, "current": i.current, "new": i.new, "max": i.max} for i in status.scale_ups],
        "created_groups": [{"main": made.main, "extra": made.extra} for made in status.created_groups],
        "pods_triggered": sorted(status.pods_triggered),
        "pods_await_evaluation": sorted(status.pods_await_evaluation),
        "pods_remain_unschedulable": [
            {"pod": p.pod, "rejected_groups": p.rejected_groups, "skipped_groups": p.skipped_groups}
            for p in sorted(status.pods_remain_unschedulable, key=lambda p: p.pod)
        ],
        "considered_groups": [group.id for group in status.considered_groups],
        "failed_resize_groups": status.failed_resize_groups,
        "failed_creation_groups": status.failed_creation_groups,
    }


def _error(error: ErrorRecord | None) -> dict[str, str] | None:
    return None if error is None else {"type": error.type, "message": error.message}


def _status_events(given: dict[str, Any]) -> list[dict[str, Any]]:
    status = ca.ScaleUpStatus(
        result=given["result"],
        scale_ups=[ca.ScaleUpInfo(**info) for info in given.get("scale_ups") or []],
        pods_triggered=given.get("pods_triggered") or [],
        pods_remain_unschedulable=[
            RemainingPod(
                pod=item["pod"],
                rejected_groups=item.get("rejected_groups") or {},
                skipped_groups=item.get("skipped_groups") or {},
            )
            for item in given.get("pods_remain_unschedulable") or []
        ],
        considered_groups=[ConsideredGroup(**group) for group in given.get("considered_groups") or []],
    )
    return [with_parts(event, status) for event in golden_ca.sorted_events(ca.status_events(status))]


def with_parts(event: dict[str, str], status: ca.ScaleUpStatus) -> dict[str, Any]:
    """An event as recorded: what did not trigger a scale-up is also given in parts."""
    if event["reason"] != "NotTriggerScaleUp":
        return event
    existing = {group.id for group in status.considered_groups if group.exists}
    pod = next(p for p in status.pods_remain_unschedulable if f"Pod/{p.pod}" == event["object"])
    parts = not_triggered_parts(pod, existing)
    message = event["message"].removeprefix("pod didn't trigger scale-up: ")
    return {**event, "message_parts": parts if message == ", ".join(parts) else [message]}
