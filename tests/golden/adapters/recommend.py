"""Kind ``recommend``: everything in ``want`` is compared, quantities by value.

``observed_generation`` was read when all rounds of a case were over, so it is compared after the last one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from kscale.effects import Action, ApiError, Create, List, Moment, Outcome, Patch, VirtualTime, to_text
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.core import Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerStatus
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import find_kind
from kscale.objects.quantity import Quantity
from kscale.objects.times import nanoseconds
from kscale.vpa import (
    CPU_SAMPLE,
    MEMORY_SAMPLE,
    OOM,
    Controllers,
    RecommenderOptions,
    RecommenderResult,
    RecommenderRound,
    RecommenderState,
    Usage,
    diff_pods,
    init_from_checkpoints,
    recommender_steps,
)
from kscale.vpa.recommender.update_vpas import is_equal_status
from kscale.vpa.resources import cores_to_millicores

LISTS = ("target", "lowerBound", "upperBound", "uncappedTarget")
Event = tuple[tuple[str, str, str], int, int, int]


def options_of(inputs: dict[str, Any]) -> RecommenderOptions:
    fields = {
        name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
        for name, value in inputs.items()
        if name != "keep_event_order"
    }
    unknown = set(fields) - set(RecommenderOptions.__struct_fields__)
    assert not unknown, unknown
    return from_dict(fields, RecommenderOptions)


def controllers_of(objects: list[dict[str, Any]]) -> Controllers:
    kinds = [find_kind(item["apiVersion"], item["kind"]) for item in objects]
    return Controllers(from_dict(item, kind) for item, kind in zip(objects, kinds, strict=True) if kind is not None)


def values_of(sample: dict[str, Any]) -> list[tuple[int, int]]:
    values = []
    if sample.get("cpu_cores") is not None:
        values.append((cores_to_millicores(sample["cpu_cores"]), CPU_SAMPLE))
    if sample.get("memory_bytes") is not None:
        values.append((sample["memory_bytes"], MEMORY_SAMPLE))
    return values


def events_of(inputs: dict[str, Any]) -> list[Event]:
    events: list[Event] = []

    def name(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["namespace"], item["pod"], item["container"]

    for sample in inputs.get("samples") or ():
        events += [(name(sample), nanoseconds(sample["time"]), value, kind) for value, kind in values_of(sample)]
    for series in inputs.get("series") or ():
        start, step = nanoseconds(series["start"]), round(series["step_s"] * 1e9)
        cpu, memory = series.get("cpu_cores") or [], series.get("memory_bytes") or []
        for k in range(max(len(cpu), len(memory))):
            if k < len(cpu):
                events.append((name(series), start + k * step, cores_to_millicores(cpu[k]), CPU_SAMPLE))
            if k < len(memory):
                events.append((name(series), start + k * step, memory[k], MEMORY_SAMPLE))
    for oom in inputs.get("ooms") or ():
        events.append((name(oom), nanoseconds(oom["time"]), oom["memory_bytes"], OOM))
    return events


def by_value(recommendation: dict[str, Any] | None) -> Any:
    return [
        (item["containerName"], [{k: Quantity(v) for k, v in (item.get(n) or {}).items()} for n in LISTS])
        for item in (recommendation or {}).get("containerRecommendations") or ()
    ]


class World:
    """No checkpoint is there yet, so that each is made whole, and nothing else is either."""

    def __init__(self) -> None:
        self.statuses: dict[tuple[str, str], VerticalPodAutoscalerStatus] = {}
        """Those that were written in a round."""
        self.checkpoints: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """Of a VPA: those that were made in a round."""

    def __call__(self, action: Action, now: Moment) -> Outcome:
        match action:
            case Patch(kind="VerticalPodAutoscaler"):
                (operation,) = action.patch
                key = action.namespace, action.name
                self.statuses[key] = from_dict(to_dict(operation.value), VerticalPodAutoscalerStatus)
            case Patch():
                return Outcome(at=now, error=ApiError(f'"{action.name}" not found', 404, NOT_FOUND))
            case Create(object=VerticalPodAutoscalerCheckpoint() as made):
                data = {"container": made.spec.container_name, "status": to_dict(made.status)}
                self.checkpoints.setdefault((made.namespace, made.spec.vpa_object_name), []).append(data)
        return Outcome(at=now, value=[] if isinstance(action, List) else None)

    def run(self, state: RecommenderState, round_inputs: RecommenderRound, now: Moment) -> RecommenderResult:
        self.statuses, self.checkpoints = {}, {}
        time = VirtualTime(self, now=now)
        running = time.start(lambda _: recommender_steps(state, round_inputs, now=now))
        time.run()
        assert running.value is not None
        return running.value


def check_round(
    result: RecommenderResult, state: RecommenderState, world: World, want: dict[str, Any], is_last: bool
) -> None:
    assert [(v.namespace, v.name) for v in result.vpas] == [(v["namespace"], v["name"]) for v in want["vpas"]]
    for ours, theirs in zip(result.vpas, want["vpas"], strict=True):
        recommendation = to_dict(ours.recommendation) if ours.recommendation is not None else None
        assert by_value(recommendation) == by_value(theirs["recommendation"])
        assert (recommendation is None) == (theirs["recommendation"] is None)
        assert to_dict(ours.status.conditions) == theirs["conditions"]
        assert not is_last or ours.status.observed_generation == theirs["observed_generation"]
        assert (ours.pod_count, ours.selector) == (theirs["pod_count"], theirs["selector"])
        key = ours.namespace, ours.name
        assert ours.status_written == (key in world.statuses) == theirs["status_written"]
        assert not ours.status_written or is_equal_status(world.statuses[key], ours.status)
        assert world.checkpoints.get(key, []) == (theirs["checkpoints"] or [])
    errors = [
        {k: v for k, v in {**e._asdict(), "time": to_text(e.time)}.items() if v or k != "resource"}
        for e in result.errors
    ]
    assert errors == (want["errors"] or [])
    aggregates = [
        {
            "namespace": key.namespace,
            "container": key.container,
            "labels": key.labels,
            "total_samples_count": int(state.store.samples[aggregate.row]),
            "is_under_vpa": aggregate.is_under_vpa,
            "needs_recommendation": aggregate.needs_recommendation,
        }
        for key, aggregate in sorted(state.aggregates.items())
    ]
    expected = sorted(want["aggregates_after_gc"] or [], key=lambda a: (a["namespace"], a["container"], a["labels"]))
    assert aggregates == expected


def check(case: dict[str, Any]) -> None:
    inputs = case["input"]
    world, state = World(), RecommenderState(options_of(inputs.get("options") or {}))
    controllers = controllers_of(inputs.get("controllers") or [])
    rounds = inputs.get("rounds") or [inputs]
    wants = case["want"]["rounds"] if "rounds" in case["want"] else [case["want"]]
    vpas: list[VerticalPodAutoscaler] = []
    pods: list[Pod] = []
    statuses: dict[tuple[str, str], VerticalPodAutoscalerStatus] = {}
    for number, (this, want) in enumerate(zip(rounds, wants, strict=True)):
        if this.get("vpas") is not None:
            vpas = [from_dict(item, VerticalPodAutoscaler) for item in this["vpas"]]
        if this.get("pods") is not None:
            pods = [from_dict(item, Pod) for item in this["pods"]]
        for i, vpa in enumerate(vpas):
            old = statuses.get((vpa.namespace, vpa.name))
            if vpa.status == VerticalPodAutoscalerStatus() and old is not None:
                vpas[i] = msgspec.structs.replace(vpa, status=old)
        events = events_of(this)
        if not (inputs.get("options") or {}).get("keep_event_order"):
            events.sort(key=lambda event: event[1])
        now = nanoseconds(this["now"])
        if number == 0 and inputs.get("checkpoints"):
            saved = [from_dict(item, VerticalPodAutoscalerCheckpoint) for item in inputs["checkpoints"]]
            init_from_checkpoints(state, vpas, saved, controllers=controllers, now=now)
        usage = [Usage.from_events(events)]
        this_round = RecommenderRound(vpas=vpas, pods=diff_pods(state, pods), controllers=controllers, usage=usage)
        result = world.run(state, this_round, now)
        check_round(result, state, world, want, number == len(rounds) - 1)
        statuses.update(world.statuses)
        vpas = [msgspec.structs.replace(v, status=world.statuses.get((v.namespace, v.name), v.status)) for v in vpas]
