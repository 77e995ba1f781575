"""Kind ``scale-up``: leaves out what the cluster state says beyond healthy, backed off and upcoming."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import golden_ca
from builders import group_options
from golden_support import adapter
from kscale import ca
from kscale.ca import quota
from kscale.ca.cluster_state import (
    ClusterStateRegistry,
    get_backoff_status,
    get_upcoming_nodes,
    is_group_healthy,
    is_safe_to_scale_up,
    register_failed_scale_up,
    register_scale_up,
    update_nodes_steps,
)
from kscale.ca.cluster_state.state import ScaleUpError
from kscale.ca.errors import ErrorRecord
from kscale.ca.expander.types import FilterResult
from kscale.ca.node_infos import build_node_templates
from kscale.ca.scale_up_status import ConsideredGroup, NoScaleUpInfo, format_not_triggered_reasons
from kscale.ca.static_autoscaler.scale_up_loop import SalvoResult, SalvoRound, scale_up_salvo_steps
from kscale.effects import (
    Action,
    ApiError,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    DryRun,
    Event,
    IncreaseSize,
    Moment,
    Steps,
    moment,
)
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.cluster_autoscaler import CapacityQuota
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.times import to_datetime
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot
from performing import performed

_SUFFIX = "7777777"
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


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    if inputs["op"] == "status_events":
        assert _status_events(inputs["status"]) == want["events"]
        return
    provider = Provider(inputs)
    options = options_of(inputs)
    now = moment(to_datetime(inputs["now"]))
    objects = [golden_ca.read(item) for item in inputs.get("objects") or []]
    nodes = golden_ca.of_type(objects, Node)
    state, events_before = history(inputs, provider, nodes, options, now)
    got: dict[str, Any] = {
        "events_before": events_before,
        "cluster_state_before": cluster_state(state, provider.groups, now, options),
    }
    templates = templates_of(inputs, provider.groups, objects, options, now)
    if inputs.get("templates") == "computed":
        got["templates"] = {name: _template(template) for name, template in templates.items()}
    for name in inputs.get("drop_templates") or []:
        templates.pop(name, None)
    provider.fail_sizes()
    candidates = provider.candidates()
    if not isinstance(candidates, ca.AutoscalerError):
        templates |= {group.id: group.template for group in candidates if group.template is not None}
    run = _min_size if inputs["op"] == "scale_up_to_min_size" else _scale_up
    got |= run(inputs, want, provider, nodes, templates, state, options, now)
    got |= {
        "increase_calls": sorted(provider.calls, key=lambda call: call["group"])
        if options.parallel_scale_up
        else provider.calls,
        "targets_after": {group.id: group.size for group in provider.groups},
    }
    if options.parallel_scale_up:
        got["failed_resize_groups"] = sorted(got["failed_resize_groups"])
    assert got == _expected(want)


def _scale_up(
    inputs: dict[str, Any],
    want: dict[str, Any],
    provider: Provider,
    nodes: list[Node],
    templates: dict[str, NodeTemplate],
    state: ClusterStateRegistry,
    options: ca.AutoscalingOptions,
    now: Moment,
) -> dict[str, Any]:
    config = inputs.get("priority_config_map")
    salvo = inputs["op"] == "salvo"
    ground = ca.ScaleUpContext(
        groups=provider.groups,
        nodes=nodes,
        templates=templates,
        state=state,
        options=options,
        expanders=inputs.get("expanders") or [],
        filters={"none": lambda options, inputs: FilterResult(survivors=[])},
        expander_input=ca.ExpanderInput(
            priorities=None if config is None else config.get("data") or {},
            prices=adapter("expander").Prices(inputs.get("prices") or {}),
            cluster_node_count=inputs.get("cluster_node_count", len(nodes)),
            gpu_label=golden_ca.GPU_LABEL,
        ),
        quotas=quotas_of(inputs),
        comparator=adapter("balance").comparator_of(inputs.get("options") or {}),
        all_or_nothing=bool(inputs.get("all_or_nothing")),
        candidates=provider.candidates(),
        daemonsets=[from_dict(item, DaemonSet) for item in inputs.get("daemonsets") or []],
        stop_after_options=(inputs.get("options") or {}).get("binpacking_stop_after_options", 0),
    )
    pending = [from_dict(item, Pod) if salvo else item for item in inputs.get("pending") or []]
    start = scale_up_salvo_steps if salvo else ca.orchestrate_steps
    snapshot = Cluster(inputs.get("objects") or [], finished=True).snapshot()
    steps = start(snapshot, pending, ground, now=now)
    rounds: list[SalvoRound] = []
    ran = provider.run(steps, now)
    done, events = ran.value, list(ran.events)
    if isinstance(done, SalvoResult):
        rounds = done.rounds
        after = done.snapshot_after
        done = rounds[-1].done
    else:
        events += ca.build_scale_up_events(done.status)
    expansion = done.expansion
    provider.groups = Groups([*provider.groups, *provider.created], provider.groups.node_errors)
    got = status_of(done.status) | {
        "options": _options_of(done),
        "events": sorted((with_parts(golden_ca.event_of(e), done.status) for e in events), key=_event_order),
        "cluster_state_after": cluster_state(done.state, provider.groups, now, options),
    }
    if "expander_steps" in want:
        chosen = [item.done.expansion for item in rounds] if rounds else [expansion]
        got["expander_steps"] = [
            {"expander": step.expander, "survivors": [o.group for o in step.filtered.survivors]}
            for result in chosen
            for step in (result.steps if result is not None else [])
        ]
    if rounds:
        got["options"] = next((result for item in reversed(rounds) if (result := _options_of(item.done))), [])
        got["rounds"] = [_round(item) for item in rounds]
        got["snapshot_after"] = _nodes_of(after)
    return got


def _options_of(done: ca.OrchestratorResult) -> list[dict[str, Any]]:
    return [{"group": o.group, "node_count": o.node_count, "pods": o.pods, "similar": o.similar} for o in done.options]


def _round(item: SalvoRound) -> dict[str, Any]:
    names = ("result", "scale_ups", "pods_triggered", "pods_await_evaluation", "pods_remain_unschedulable")
    described = status_of(item.done.status)
    described["pods_remain_unschedulable"] = [pod["pod"] for pod in described["pods_remain_unschedulable"]]
    return {name: described[name] for name in names} | {"node_count": item.node_count}


def _nodes_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    pods: dict[int, list[str]] = {}
    for key, number in zip(snapshot.pods, snapshot.placed_node.tolist(), strict=True):
        pods.setdefault(number, []).append(key)
    return [{"node": name, "pods": sorted(pods.get(i, []))} for i, name in enumerate(snapshot.nodes)]


def _min_size(
    inputs: dict[str, Any],
    want: dict[str, Any],
    provider: Provider,
    nodes: list[Node],
    templates: dict[str, NodeTemplate],
    state: ClusterStateRegistry,
    options: ca.AutoscalingOptions,
    now: Moment,
) -> dict[str, Any]:
    steps = ca.scale_up_to_min_size_steps(
        nodes,
        provider.groups,
        templates={name: template.node for name, template in templates.items()},
        state=state,
        now=now,
        options=options,
        quotas=quotas_of(inputs),
        gpu_label=golden_ca.GPU_LABEL,
    )
    ran = provider.run(steps, now)
    done = ran.value
    return status_of(done.status) | {
        "events": golden_ca.sorted_events([*ran.events, *ca.build_scale_up_events(done.status)]),
        "cluster_state_after": cluster_state(done.state, provider.groups, now, options),
        "options": [],
    }


def _event_order(event: dict[str, Any]) -> tuple[str, ...]:
    return event["object"], event["reason"], event["type"], event["message"]


def _expected(want: dict[str, Any]) -> dict[str, Any]:
    expected = dict(want)
    expected["events"] = sorted(want["events"], key=_event_order)
    for part in ("cluster_state_before", "cluster_state_after"):
        groups = {
            name: {key: values[key] for key in ("healthy", "backed_off", "safe")}
            for name, values in want[part]["groups"].items()
        }
        expected[part] = {"upcoming": want[part]["upcoming"], "groups": groups}
    return expected


def templates_of(
    inputs: dict[str, Any],
    groups: Groups,
    objects: list[KubeObject],
    options: ca.AutoscalingOptions,
    now: Moment,
) -> dict[str, NodeTemplate]:
    if inputs.get("templates") != "computed":
        return {group.id: group.template for group in groups if group.template is not None}
    pods: dict[str, list[Pod]] = {}
    for pod in golden_ca.of_type(objects, Pod):
        pods.setdefault(pod.spec.node_name, []).append(pod)
    return build_node_templates(
        golden_ca.of_type(objects, Node),
        lambda nodes: [NodeTemplate(node=node, pods=pods.get(node.metadata.name, [])) for node in nodes],
        [from_dict(item, DaemonSet) for item in inputs.get("daemonsets") or []],
        groups,
        now=now,
        options=options,
        suffix=_SUFFIX,
    ).templates


def _template(template: NodeTemplate) -> dict[str, Any]:
    """As recorded: without the suffix that upstream draws."""
    labels = template.node.metadata.labels or {}
    return {
        "node_name": template.node.metadata.name.removesuffix(f"-{_SUFFIX}"),
        "labels": {name: value.removesuffix(f"-{_SUFFIX}") for name, value in labels.items()},
        "taints": [to_dict(taint) for taint in template.node.spec.taints],
        "unschedulable": template.node.spec.unschedulable,
        "pods": [pod.key.removesuffix(f"-{_SUFFIX}") for pod in template.pods],
    }


class Provider:
    """The injected cloud provider: answers actions as recorded and keeps target sizes."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        self.errors = {
            group["id"]: group["increase_error"] for group in inputs["groups"] if group.get("increase_error")
        }
        self.not_atomic = {group["id"] for group in inputs["groups"] if group.get("atomic_increase_not_implemented")}
        self.groups = Groups([_group(group) for group in inputs["groups"]], inputs.get("node_group_errors"))
        self.calls: list[dict[str, Any]] = []
        self.provisioning = inputs.get("autoprovisioning") or {}
        self.asynchronous = bool((inputs.get("options") or {}).get("async_node_groups"))
        self.created: list[NodeGroup] = []
        self._size_errors = {g["id"]: g["target_size_error"] for g in inputs["groups"] if g.get("target_size_error")}

    def candidates(self) -> list[NodeGroup] | ca.AutoscalerError:
        """What the injected group-list processor appends."""
        if "list_processor_error" in self.provisioning:
            return ca.AutoscalerError("", self.provisioning["list_processor_error"])
        return [
            NodeGroup(
                id=item["id"],
                min_size=item["min"],
                max_size=item["max"],
                template=golden_ca.template(item.get("template")),
                exists=False,
                autoprovisioned=True,
            )
            for item in self.provisioning.get("candidates") or []
        ]

    def create(self, action: CreateGroup) -> CreatedGroups | ApiError:
        """What the injected group manager does."""
        item = next(item for item in self.provisioning["candidates"] if item["id"] == action.group)
        error = item.get("create_error")
        if error:
            return ApiError(error["message"], reason=error.get("type") or "")
        template = golden_ca.template(item.get("created_template") or item.get("template"))
        self.created = [
            NodeGroup(
                id=name,
                min_size=item["min"],
                max_size=item["max"],
                target_size=0,
                template=None if item.get("created_without_template") else template,
                exists=not self.asynchronous,
                upcoming=self.asynchronous,
                autoprovisioned=True,
            )
            for name in item["created_ids"]
        ]
        self.errors |= item.get("created_increase_errors") or {}
        return CreatedGroups(main=self.created[0], extra=tuple(self.created[1:]))

    def fail_sizes(self) -> None:
        """From the call on, some target sizes cannot be read."""
        for name, error in self._size_errors.items():
            self.groups[name].target_size_error = error

    def run(self, steps: Steps[Any], now: Moment) -> DryRun[Any]:
        return performed(steps, self.answer, now=now)

    def answer(self, action: Action) -> ApiError | CreatedGroups | None:
        if isinstance(action, CreateGroup):
            return self.create(action)
        group = (
            next((created for created in self.created if created.id == action.group), None) or self.groups[action.group]
        )
        if isinstance(action, DecreaseTargetSize):
            group.target_size = group.size + action.delta
            return None
        assert isinstance(action, IncreaseSize)
        if action.atomic and action.group in self.not_atomic:
            return ApiError("Not implemented", reason="")
        self.calls.append({"group": action.group, "delta": action.delta, "atomic": action.atomic})
        error = self.errors.get(action.group)
        if error is None or error.get("target_raised"):
            group.target_size = group.size + action.delta
        return None if error is None else ApiError(error["message"], reason=error.get("type") or "")


def _group(inputs: dict[str, Any]) -> NodeGroup:
    names = [*(inputs.get("nodes") or []), *(inputs.get("unregistered_instances") or [])]
    own = inputs.get("options")
    return NodeGroup(
        id=inputs["id"],
        min_size=inputs["min"],
        max_size=inputs["max"],
        target_size=inputs["target"],
        nodes=names,
        instances=names,
        template=golden_ca.template(inputs.get("template")),
        exists=inputs.get("exists", True),
        upcoming=inputs.get("async_upcoming", False),
        options=None if own is None else _group_options(own),
        options_error=inputs.get("options_error"),
    )


def _group_options(inputs: dict[str, Any]) -> NodeGroupOptions:
    """The provider answers everything: what is not recorded is a zero."""
    return group_options(
        zero_or_max_node_scaling=inputs.get("zero_or_max_node_scaling", False),
        max_node_provision_time=inputs.get("max_node_provision_time_s", 0.0),
        max_node_startup_time=inputs.get("max_node_startup_time_s", 0.0),
    )


def options_of(inputs: dict[str, Any]) -> ca.AutoscalingOptions:
    flags = inputs.get("options") or {}
    return ca.AutoscalingOptions(
        **{name: flags[name] for name in _FLAGS if name in flags},
        max_node_provision_time=timedelta(seconds=flags.get("max_node_provision_time_s", 900)),
        max_node_startup_time=timedelta(seconds=flags.get("max_node_startup_time_s", 900)),
        salvo_scale_up_budget=timedelta(seconds=flags.get("salvo_scale_up_budget_s", 60)),
        initial_node_group_backoff_duration=timedelta(seconds=300),
        max_node_group_backoff_duration=timedelta(seconds=1800),
        node_group_backoff_reset_timeout=timedelta(seconds=10800),
    )


def quotas_of(inputs: dict[str, Any]) -> list[quota.Quota] | ca.AutoscalerError:
    if inputs.get("quota_provider_error"):
        return ca.AutoscalerError("", inputs["quota_provider_error"])
    objects = [from_dict(item, CapacityQuota) for item in inputs.get("capacity_quotas") or []]
    limiter = ca.ResourceLimiter(min=inputs.get("min_limits") or {}, max=inputs.get("limits") or {})
    return [quota.build_cluster_maximum_quota(limiter), *quota.read_capacity_quotas(objects)[0]]


def history(
    inputs: dict[str, Any], provider: Provider, nodes: list[Node], options: ca.AutoscalingOptions, now: Moment
) -> tuple[ClusterStateRegistry, list[dict[str, str]]]:
    """The cluster state after the recorded history and an update at ``now``, and the events of the way there."""
    state = ClusterStateRegistry()
    machines = {node.metadata.name: True for node in nodes}
    events: list[Event] = []
    for item in [*(inputs.get("history") or []), {"op": "update_nodes", "at": inputs["now"]}]:
        time = moment(to_datetime(item["at"]))
        if item["op"] == "register_scale_up":
            state = register_scale_up(state, provider.groups[item["group"]], item["delta"], time, options)
        elif item["op"] == "register_failed_scale_up":
            error = ScaleUpError(class_="Other", code="cloudProviderError", message="failed")
            state = register_failed_scale_up(state, item["group"], error, item["delta"], time, options)
        else:
            steps = update_nodes_steps(state, nodes, provider.groups, now=time, options=options, has_instance=machines)
            ran = provider.run(steps, time)
            state = ran.value.state
            events += ran.events
    return state, golden_ca.sorted_events(events)


def cluster_state(
    state: ClusterStateRegistry, groups: Groups, now: Moment, options: ca.AutoscalingOptions
) -> dict[str, Any]:
    return {
        "upcoming": {name: item.count for name, item in get_upcoming_nodes(state, groups, now).items()},
        "groups": {
            group.id: {
                "healthy": is_group_healthy(state, group.id, options),
                "backed_off": get_backoff_status(state, group.id, now) is not None,
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
        "created_groups": [{"main": created.main, "extra": created.extra} for created in status.created_groups],
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


def _status_events(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    status = ca.ScaleUpStatus(
        result=inputs["result"],
        scale_ups=[ca.ScaleUpInfo(**info) for info in inputs.get("scale_ups") or []],
        pods_triggered=inputs.get("pods_triggered") or [],
        pods_remain_unschedulable=[
            NoScaleUpInfo(
                pod=item["pod"],
                rejected_groups=item.get("rejected_groups") or {},
                skipped_groups=item.get("skipped_groups") or {},
            )
            for item in inputs.get("pods_remain_unschedulable") or []
        ],
        considered_groups=[ConsideredGroup(**group) for group in inputs.get("considered_groups") or []],
    )
    return [with_parts(event, status) for event in golden_ca.sorted_events(ca.build_scale_up_events(status))]


def with_parts(event: dict[str, str], status: ca.ScaleUpStatus) -> dict[str, Any]:
    """An event as recorded: what did not trigger a scale-up is also given in parts."""
    if event["reason"] != "NotTriggerScaleUp":
        return event
    existing = {group.id for group in status.considered_groups if group.exists}
    pod = next(p for p in status.pods_remain_unschedulable if f"Pod/{p.pod}" == event["object"])
    parts = format_not_triggered_reasons(pod, existing)
    message = event["message"].removeprefix("pod didn't trigger scale-up: ")
    return {**event, "message_parts": parts if message == ", ".join(parts) else [message]}
