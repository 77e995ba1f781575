"""A round of the recommender as a machine: what it asks for, what it writes, how long its steps take, what may fail."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kscale.effects import Action, ApiError, GetMetric, GetScale, List, Patch, to_text
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import ExternalMetricValueList, PodMetrics
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerStatus
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMapper, ServedResource
from kscale.objects.pod_metrics import PodUsage
from kscale.vpa import (
    Controllers,
    PodChanges,
    RecommenderOptions,
    RecommenderResult,
    RecommenderRound,
    RecommenderState,
    ScaleCache,
    diff_pods,
    fork_state,
    recommender_steps,
    run_once,
    save_state,
)
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, Usage, UsageError, add_usage
from kscale.vpa.recommender.cluster_feeder import convert_pod_metrics
from unit.vpa.builders import changed_pods, container, controller, owned, pod, vpa
from unit.vpa.worlds import World, counted, refusing

SECOND = 10**9
T0 = 1767571200 * SECOND
STEPS = [
    "LoadVPAs",
    "LoadPods",
    "LoadMetrics",
    "DeleteRemovedPods",
    "UpdateVPAs",
    "MaintainCheckpoints",
    "GarbageCollect",
]
RESPONSES = "vpa_recommender_metric_server_responses{{is_error={},client_name=default-metrics-client}}"


def no_usage(action: Action) -> Any:
    """Nobody uses anything; there is nothing else."""
    if isinstance(action, GetMetric):
        return PodUsage.of([]) if action.api == "resource" else ExternalMetricValueList()
    return []


def play(
    state: RecommenderState, world: World | None = None, now: int = T0, **round_fields: Any
) -> tuple[RecommenderResult, World]:
    world = world or World(answer=no_usage)
    return world.run(recommender_steps(state, RecommenderRound(**round_fields), now=now), now), world


def named(name: str, app: str = "x", **more: Any) -> VerticalPodAutoscaler:
    item = vpa(targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app}, **more)
    item.metadata.name = name
    return item


def sets(*apps: str) -> Controllers:
    return Controllers(controller("ReplicaSet", app, selector={"matchLabels": {"app": app}}) for app in apps)


def usage(name: str, cpu: str, at: str = "2026-01-05T00:00:00Z") -> PodMetrics:
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "timestamp": at,
        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "1Gi"}}],
    }
    return from_dict(body, PodMetrics)


# -- steps and their times -------------------------------------------------------------------------------------


def test_steps_are_timed_as_upstreams() -> None:
    """Each action takes a second: the question for usage, the status, the checkpoint."""
    world = World(answer=no_usage, took=SECOND)
    result, _ = play(
        RecommenderState(), world, vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned()
    )
    assert list(result.steps) == [*STEPS, "total"]
    took = {name: time.total_seconds() for name, time in result.steps.items() if time}
    assert {name: took[name] for name in STEPS if name in took} == {
        "LoadMetrics": 1.0,
        "UpdateVPAs": 1.0,
        "MaintainCheckpoints": 1.0,
    }
    latencies = [one for one in world.observations if one.name == "vpa_recommender_execution_latency_seconds"]
    assert [one.labels["step"] for one in latencies] == [*STEPS, "total"]
    assert latencies[-1].value == 3.0
    assert sum(one.value for one in latencies[:-1]) == 3.0


@pytest.mark.parametrize(("workers", "seconds"), [(1, 12), (5, 3), (10, 2), (100, 1)])
def test_as_many_statuses_are_written_side_by_side_as_there_are_workers(workers: int, seconds: int) -> None:
    options = RecommenderOptions(update_worker_count=workers, storage="prometheus")
    vpas = [named(f"vpa{i:02}") for i in range(12)]
    world = World(took=SECOND)
    result, _ = play(RecommenderState(options), world, vpas=vpas, controllers=sets("x"), usage=[])
    assert result.steps["UpdateVPAs"].total_seconds() == seconds
    assert world.kinds() == {"Patch": 12}


def test_run_once_returns_the_actions() -> None:
    round_inputs = RecommenderRound(vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    result = run_once(RecommenderState(), round_inputs, now=T0)
    assert [type(action).__name__ for action in result.actions] == ["GetMetric", "Patch", "Patch"]
    assert counted(result.observations)[RESPONSES.format("false")] == 1
    other, world = play(RecommenderState(), vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    assert (other.actions, other.observations) == ([], [])
    assert world.actions == result.actions
    assert msgspec.structs.replace(result, actions=[], observations=[]) == other


def test_following_rounds_equal_a_fresh_round() -> None:
    """Usage stays, and changes; so do a policy, who is selected, and who is there. A copy has only the state."""
    state, apps = RecommenderState(), ("x", "y", "z")
    vpas = {app: named(f"vpa-{app}", app) for app in apps}
    pods = [pod(container("c"), name=app, labels={"app": app}) for app in apps]
    recommendations = []
    for number in range(9):
        at = T0 + number * 60 * SECOND
        if number == 3:
            policy = [{"containerName": "*", "controlledResources": ["memory"], "maxAllowed": {"memory": "400Mi"}}]
            vpas["y"] = named("vpa-y", "y", policies=policy)
        if number == 6:
            pods = [*pods, pod(container("c"), container("d"), name="more", labels={"app": "x"})]
        if number == 7:
            del vpas["z"]
        cpu = "2" if number > 4 else "100m"
        usages = [] if number == 2 else [convert_pod_metrics([usage(app, cpu, to_text(at) or "") for app in apps])]
        round_inputs = RecommenderRound(
            vpas=[*vpas.values()], pods=changed_pods(*pods), controllers=sets(*apps), usage=usages
        )
        anew = run_once(fork_state(state), round_inputs, now=at)
        result = run_once(state, round_inputs, now=at)
        assert result == anew
        recommendations.append({each.name: each.recommendation for each in result.vpas})
        for app, each in zip(vpas, result.vpas, strict=True):
            status = from_dict(to_dict(each.status), VerticalPodAutoscalerStatus)
            vpas[app] = msgspec.structs.replace(vpas[app], status=status)
    assert recommendations[2]["vpa-x"] is recommendations[1]["vpa-x"]  # nothing was used in between
    assert recommendations[1]["vpa-x"] != recommendations[5]["vpa-x"]


@pytest.mark.parametrize("late", [set(), {2}, {1, 2}])
def test_samples_that_take_turns_are_those_of_each_kind(late: set[int]) -> None:
    """What is refused comes back in the order of the list, and the rest is taken in."""
    options = RecommenderOptions()
    one, other = RecommenderState(options), RecommenderState(options)
    for state in (one, other):
        for name in "abc":
            created = state.add_pod("default", name, {"app": name}, "Running", T0)
            state.add_container(created, "c", T0)
    for minute in (1, 2):
        times = [T0 if minute == 2 and i in late else T0 + minute * 60 * SECOND for i in range(3)]
        items = [
            usage(name, f"{i + minute}", to_text(at) or "")
            for i, (name, at) in enumerate(zip("abc", times, strict=True))
        ]
        all_usage = convert_pod_metrics(items)
        errors = add_usage(one, all_usage, T0)
        columns = all_usage.container, all_usage.time, all_usage.value
        apart: list[UsageError] = []
        for kind in (CPU_SAMPLE, MEMORY_SAMPLE):
            apart += add_usage(other, Usage(all_usage.containers, *(each[kind::2] for each in columns), kind), T0)
        assert sorted(errors) == sorted(apart)
        assert [(error.pod, error.resource) for error in errors] == [
            ("abc"[i], resource) for i in sorted(late) if minute == 2 for resource in ("cpu", "memory")
        ]
    assert save_state(one) == save_state(other)


# -- VPAs ------------------------------------------------------------------------------------------------------


def test_a_list_that_failed_leaves_the_vpas_as_they_were() -> None:
    state = RecommenderState()
    app = [pod(container("c"))]
    first, _ = play(state, vpas=[vpa()], pods=changed_pods(*app), controllers=owned())
    assert [item.name for item in first.vpas] == ["name"]
    second, world = play(state, now=T0 + 60 * SECOND, vpas=None, controllers=owned())
    assert second.diagnostics == ["Cannot list VPAs"]
    assert [item.name for item in second.vpas] == ["name"]
    assert second.vpas[0].recommendation == first.vpas[0].recommendation
    assert counted(world.observations, "vpa_recommender_vpa_objects_count").popitem()[1] == 1
    without_vpas, _ = play(state, now=T0 + 120 * SECOND, vpas=[], controllers=owned())
    assert (without_vpas.vpas, state.vpas) == ([], {})


def test_a_target_that_has_become_another_is_looked_at_again() -> None:
    state, known = RecommenderState(), sets("x")
    round_fields = {"vpas": [vpa()], "pods": changed_pods(pod(container("c"))), "controllers": known}

    def selected(number: int, *conditions: str) -> str:
        result, _ = play(state, now=T0 + 60 * number * SECOND, **round_fields)
        assert [each.type for each in result.vpas[0].status.conditions if each.type.startswith("Config")] == [
            *conditions
        ]
        return result.vpas[0].selector

    def rs(owner: tuple[str, str] | None = None, app: str = "x") -> Any:
        return controller("ReplicaSet", "rs", owner, selector={"matchLabels": {"app": app}})

    known.apply(rs())
    assert (selected(0), selected(1)) == ("app=x", "app=x")
    known.apply(rs(app="y"))
    assert selected(2) == "app=y"
    known.apply(rs(("Deployment", "d")))
    known.apply(controller("Deployment", "d"))
    assert selected(3, "ConfigUnsupported") == selected(4, "ConfigUnsupported")
    known.apply(rs())
    assert selected(5) == "app=x"
    known.remove("ReplicaSet", "default", "rs")
    assert selected(6, "ConfigUnsupported") != "app=x"


THINGS = RESTMapper([ServedResource("argo", "v1", "Thing", "things")])


def test_unwatched_scales_are_requested() -> None:
    thing = vpa(targetRef={"apiVersion": "argo/v1", "kind": "Thing", "name": "w"})
    scale_ = from_dict({"metadata": {"name": "w", "namespace": "default"}, "status": {"selector": "app=x"}}, Scale)
    round_fields = {"vpas": [thing], "pods": changed_pods(pod(container("c")))}
    world = World(answer=lambda action: scale_ if isinstance(action, GetScale) else no_usage(action))
    result, _ = play(
        RecommenderState(), world, controllers=Controllers(mapper=THINGS, scales=ScaleCache()), **round_fields
    )
    scale_requests = [action for action in world.actions if isinstance(action, GetScale)]
    assert {(one.namespace, one.name) for one in scale_requests} == {("default", "w")}
    assert (result.vpas[0].selector, result.vpas[0].pod_count) == ("app=x", 1)

    world = World(refusing(GetScale, error=ApiError("no such thing", 404, NOT_FOUND)), no_usage)
    result, _ = play(
        RecommenderState(), world, controllers=Controllers(mapper=THINGS, scales=ScaleCache()), **round_fields
    )
    (unsupported,) = [c for c in result.vpas[0].status.conditions if c.type == "ConfigUnsupported"]
    assert unsupported.message == (
        "Cannot read targetRef. Reason: unhandled targetRef argo/v1 / Thing / w, last error no such thing"
    )


# -- statuses --------------------------------------------------------------------------------------------------


def test_only_a_status_that_changed_is_written() -> None:
    state = RecommenderState(RecommenderOptions(storage="prometheus"))
    item = vpa()
    _, world = play(state, vpas=[item], pods=changed_pods(pod(container("c"))), controllers=owned(), usage=[])
    (patch,) = world.actions
    assert (patch.kind, patch.api_version, patch.namespace, patch.name, patch.subresource, patch.type) == (
        "VerticalPodAutoscaler",
        "autoscaling.k8s.io/v1",
        "default",
        "name",
        "status",
        "json",
    )
    (operation,) = patch.patch
    assert (operation.op, operation.path) == ("add", "/status")
    item.status = from_dict(to_dict(operation.value), VerticalPodAutoscalerStatus)
    for now in (T0 + 60 * SECOND, T0 + 120 * SECOND):
        result, world = play(state, now=now, vpas=[item], controllers=owned(), usage=[])
        assert (world.actions, result.vpas[0].status_written) == ([], False)
    result, world = play(
        state, now=T0 + 180 * SECOND, vpas=[item], pods=PodChanges(deleted=[("default", "pod")]), usage=[]
    )
    assert len(world.actions) == 1
    assert result.vpas[0].status_written


def test_refused_status_write_is_reported_and_retried() -> None:
    state = RecommenderState(RecommenderOptions(storage="prometheus"))
    world = World(lambda a: ApiError("conflict", 409) if isinstance(a, Patch) and a.name == "a" else None)
    round_fields = {"vpas": [named("a"), named("b")], "controllers": sets("x"), "usage": []}
    result, _ = play(state, world, **round_fields)
    assert result.diagnostics == ["Cannot update VPA default/a: conflict"]
    assert [(item.name, item.refusal) for item in result.vpas] == [("a", ApiError("conflict", 409)), ("b", None)]
    assert "not written" in repr(result.vpas[0])
    again, world = play(state, now=T0 + 60 * SECOND, **round_fields)
    assert [action.name for action in world.actions] == ["a", "b"]  # both objects are as they were
    assert again.diagnostics == []


# -- usage -----------------------------------------------------------------------------------------------------


def test_usage_is_requested() -> None:
    state = RecommenderState(RecommenderOptions(vpa_object_namespace="default"))

    def answer(action: Action) -> Any:
        return PodUsage.of([usage("pod", "2")]) if isinstance(action, GetMetric) else []

    world = World(answer=answer)
    result, _ = play(state, world, vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    assert world.actions[0] == GetMetric(api="resource", namespace="default", columns=True)
    (aggregate,) = state.aggregates.values()
    assert int(state.store.samples[aggregate.row]) == 1
    assert result.errors == []
    assert counted(world.observations)[RESPONSES.format("false")] == 1


def test_usage_errors_are_reported() -> None:
    state = RecommenderState()
    world = World(refusing(GetMetric, error=ApiError("the server is currently unable to handle the request", 503)))
    result, _ = play(state, world, vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    assert result.diagnostics == [
        "Cannot get ContainerMetricsSnapshot from MetricsClient: the server is currently unable to handle the request"
    ]
    assert counted(world.observations)[RESPONSES.format("true")] == 1
    assert result.vpas[0].status_written  # the round goes on


def test_external_metrics_replace_the_usage_request() -> None:
    options = RecommenderOptions(use_external_metrics=True, external_metrics_cpu_metric="cpu", container_name_label="c")

    def answer(action: Action) -> Any:
        if not isinstance(action, GetMetric):
            return []
        item = {"metricLabels": {"c": "c"}, "timestamp": "2026-01-05T00:00:00Z", "value": "1"}
        return from_dict({"items": [item]}, ExternalMetricValueList)

    state, world = RecommenderState(options), World(answer=answer)
    play(state, world, vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    assert world.actions[0] == GetMetric(
        api="external", namespace="default", metric="cpu", metric_selector="app=x,pod=pod"
    )
    (aggregate,) = state.aggregates.values()
    assert int(state.store.samples[aggregate.row]) == 1


# -- pods ------------------------------------------------------------------------------------------------------


def test_usage_of_a_just_deleted_pod_counts() -> None:
    state = RecommenderState()
    answer = World(answer=lambda a: PodUsage.of([usage("pod", "2")]) if isinstance(a, GetMetric) else [])
    play(state, vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    result, _ = play(state, answer, T0 + SECOND, vpas=[vpa()], pods=PodChanges(deleted=[("default", "pod")]))
    assert (result.errors, state.pods) == ([], {})
    (aggregate,) = state.aggregates.values()
    assert int(state.store.samples[aggregate.row]) == 1


def test_recreated_pod_is_not_deleted() -> None:
    state = RecommenderState()
    play(state, pods=changed_pods(pod(container("c"))))
    play(state, pods=PodChanges(changed=[pod(container("c"))], deleted=[("default", "pod"), ("default", "never")]))
    assert list(state.pods) == [("default", "pod")]


def test_unused_labels_are_released() -> None:
    """Labels that come and go (a job's, say) leave nothing behind once their aggregates are collected."""
    state = RecommenderState()
    for i in range(50):
        labels = {"app": "x", "job": str(i)}
        now = T0 + i * 3600 * SECOND
        deleted = [("default", f"p{i - 1}")] if i else []
        play(
            state,
            now=now,
            vpas=[vpa()],
            pods=PodChanges(changed=[pod(container("c"), name=f"p{i}", labels=labels)], deleted=deleted),
            controllers=owned(),
            usage=[],
        )
        assert len(state.aggregates) <= 2
        assert len(state.vpas["default", "name"].label_sets) <= 2
    assert len(state.store.first) <= 16


# -- memory saver ----------------------------------------------------------------------------------------------


def apps(*names: str) -> list[Pod]:
    return [pod(container("c"), name=name, labels={"app": name[0]}) for name in names]


def saver() -> RecommenderState:
    return RecommenderState(RecommenderOptions(memory_saver=True, storage="prometheus"))


def list_requests(world: World) -> list[tuple[str, str]]:
    return [(action.namespace, action.selector) for action in world.actions if isinstance(action, List)]


def test_pods_that_no_vpa_selects_are_passed_over() -> None:
    state, known = saver(), sets("x", "y")
    _, world = play(state, vpas=[named("x")], pods=changed_pods(*apps("x1", "y1")), controllers=known)
    assert (list(state.pods), list(state.unselected_pods)) == ([("default", "x1")], [("default", "y1")])
    assert list_requests(world) == []  # all pods are there in the first round
    sources = "vpa_resources_get_resources_count{source=Pod.Spec.Containers}"
    assert counted(world.observations)[sources] == 2  # upstream lists them all
    _, world = play(state, vpas=[named("x")], pods=PodChanges(deleted=[("default", "y1")]), controllers=known)
    assert counted(world.observations)[sources] == 1
    assert state.unselected_pods == {}


def test_pods_of_a_new_vpa_are_listed() -> None:
    state, known = saver(), sets("x", "y")
    play(state, vpas=[named("x")], pods=changed_pods(*apps("x1", "y1", "y2", "y3")), controllers=known)
    world = World(answer=lambda action: apps("y1", "y2", "y3") if isinstance(action, List) else no_usage(action))
    changed = PodChanges(changed=apps("y4"), deleted=[("default", "y3")])
    result, _ = play(state, world, vpas=[named("x"), named("y", "y")], pods=changed, controllers=known)
    assert list_requests(world) == [("default", "app=y")]
    assert sorted(name for _, name in state.pods) == ["x1", "y1", "y2", "y4"]
    assert [item.pod_count for item in result.vpas] == [1, 3]
    _, world = play(state, vpas=[named("x"), named("y", "y")], controllers=known)
    assert list_requests(world) == []


def test_a_vpa_that_selects_others_than_before_is_new() -> None:
    state, known = saver(), sets("x", "y")
    play(state, vpas=[named("v")], pods=changed_pods(*apps("x1", "y1")), controllers=known)
    world = World(answer=lambda action: apps("y1") if isinstance(action, List) else no_usage(action))
    play(state, world, vpas=[named("v", "y")], controllers=known)
    assert list_requests(world) == [("default", "app=y")]
    lost = {"targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "none"}}
    _, world = play(state, vpas=[vpa(**lost)], controllers=known)
    assert list_requests(world) == []  # it selects nothing


def test_failed_pod_list_is_reported() -> None:
    state, known = saver(), sets("x")
    play(state, vpas=[], pods=changed_pods(*apps("x1")), controllers=known)
    result, _ = play(state, World(refusing(List), no_usage), vpas=[named("v")], controllers=known)
    assert result.diagnostics == ["listing the pods of VPA default/v: no"]
    assert result.vpas[0].pod_count == 0


# -- what is handed around -------------------------------------------------------------------------------------


def test_results_are_values() -> None:
    round_inputs = RecommenderRound(vpas=[vpa()], pods=changed_pods(pod(container("c"))), controllers=owned())
    result = run_once(RecommenderState(), round_inputs, now=T0)
    assert pickle.loads(pickle.dumps(result)) == result
    data = msgspec.json.encode(result.vpas, enc_hook=str)
    assert b'"status_written":true' in data
    for value, text in (
        (result, "<RecommenderResult: 1 VPAs, 1 statuses written, 0 samples refused>"),
        (result.vpas[0], "<VpaResult default/name: 1 containers, written>"),
        (round_inputs, "<RecommenderRound: 1 VPAs, 1 pods changed, 0 deleted>"),
        (round_inputs.pods, "<PodChanges: 1 changed, 0 deleted>"),
    ):
        assert repr(value) == text


def test_a_whole_list_as_changes() -> None:
    state = saver()
    play(state, vpas=[named("x")], pods=changed_pods(*apps("x1", "x2", "y1", "y2")), controllers=sets("x"))
    listed: Sequence[Pod] = apps("x1", "y1", "x3")
    changes = diff_pods(state, listed)
    assert changes == PodChanges(changed=listed, deleted=[("default", "x2"), ("default", "y2")])
