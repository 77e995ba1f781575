"""A batch of reconciles writes, says and remembers what each would alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kscale.effects import (
    DEADLINE_EXCEEDED,
    SECOND,
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    Observe,
    Outcome,
    PutScale,
    Together,
    WriteStatus,
    run_virtually,
    to_text,
)
from kscale.errors import InputError
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.batch.columns import StateStore
from kscale.hpa.batch.reconcile_all import BatchResult, reconcile_all
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.behavior import StateColumns
from kscale.hpa.controller.reconcile import reconcile
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState, HPAState, Recommendation, ScaleEvent, WrittenVersion
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.metrics import ExternalMetricValue, ExternalMetricValueList, PodMetrics, PodMetricsList
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import BUILT_IN_MAPPER, RESTMapper
from kscale.objects.pod_metrics import PodUsage
from kscale.snapshot.cluster import Cluster
from performing import performed
from unit.hpa.test_decisions import NOW, World, one_by_one, store_of, worlds

CONFLICT = ApiError("the object has been modified", code=409, reason="Conflict")


def answer(world: World, action: Action, refusals: dict[str, ApiError]) -> Any:
    """What the world says; a list as columns is one as objects, read."""
    if isinstance(action, GetScale):
        return world.scales[f"{action.namespace}/{action.name}"]
    if isinstance(action, GetMetric):
        result = world.metrics(msgspec.structs.replace(action, columns=False))
        return PodUsage.of(result.items) if action.columns and not isinstance(result, ApiError) else result
    if isinstance(action, PutScale):
        return refusals.get(f"{action.namespace}/{action.scale.name}")
    assert isinstance(action, WriteStatus)
    return None


def with_names(world: World) -> None:
    """As an API server has them: a scale has the name of its object."""
    for key, scale in world.scales.items():
        if isinstance(scale, Scale):
            scale.metadata.namespace, scale.metadata.name = key.split("/")


def pods_of(world: World) -> Any:
    if not world.indexed:
        return world.pods
    cluster = Cluster()
    for pod in world.pods:
        cluster.apply({"apiVersion": "v1", "kind": "Pod", **to_dict(pod)})
    return cluster


def by_hpa(run: DryRun[Any]) -> dict[str, tuple[list[Any], list[Any]]]:
    """(writes, events) by the HPA's name."""
    result: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for action in run.actions:
        if isinstance(action, PutScale):
            result[action.scale.name][0].append((action.scale, action.replicas))
        elif isinstance(action, WriteStatus):
            result[action.object.name][0].append(action.object)
    for event in run.events:
        result[event.regarding.name][1].append(event)
    return result


def a_queue_that_is_empty() -> World:
    """What has gone to zero leaves it for its minimum, though its metric wants nothing."""
    document = {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "minReplicas": 1,
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": {"metric": {"name": "lag"},
                                                          "target": {"type": "Value", "value": "1"}}}],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
        },
        "status": {"conditions": [{"type": "ScaledToZero", "status": "True"}]},
    }  # fmt: skip
    metrics = MetricLists()
    metrics.add_external("ns", [from_dict({"metricName": "lag", "value": "0"}, ExternalMetricValue)])
    scale = Scale(spec=ScaleSpec(replicas=0), status=ScaleStatus(replicas=0, selector="app=a"))
    return World(
        [apply_defaults(from_dict(document, HorizontalPodAutoscaler))],
        {"ns/a": scale},
        [],
        metrics,
        ControllerState(hpas={"ns/a": HPAState()}),
        HPAOptions(feature_gates={"HPAScaleToZero": True}),
    )


@given(worlds(), st.sets(st.sampled_from(["ns/a", "ns/b", "ns/c"])), st.sets(st.sampled_from(["ns/a", "ns/b", "ns/c"])))
@example(a_queue_that_is_empty(), set(), set())
def test_batch_equals_single_reconciles(world: World, watched: set[str], refused: set[str]) -> None:
    with_names(world)
    states = {key: msgspec.structs.replace(state, registered=True) for key, state in world.state.hpas.items()}
    world.state = ControllerState(hpas=states)
    refusals = dict.fromkeys(refused, CONFLICT)
    states_ = StateStore(states)
    steps = reconcile_all(
        world.hpas,
        states_,
        pods_of(world),
        scales={key: scale for key, scale in world.scales.items() if key in watched and isinstance(scale, Scale)},
        now=NOW,
        options=world.options,
        selectors=store_of(world),
        mapper=RESTMapper(),
    )
    run = performed(steps, lambda action: answer(world, action, refusals), now=NOW)
    result: BatchResult = run.value
    assert not result.unfinished
    states_.put(result.keys, result.histories, result.plain_states)
    written = by_hpa(run)
    counted = len(run.observations)
    for key, want in zip(states, one_by_one(world, store_of(world), refusals), strict=True):
        name = key.split("/")[1]
        if isinstance(want, InputError):
            assert str(result.problems[key]) == str(want)
            assert states_[key] == states[key]
            continue
        assert written[name] == by_hpa(want)[name]
        assert states_[key] == want.value.state
        counted -= len(want.observations)
    assert result.problems or counted == 0


@given(worlds(), st.lists(st.booleans(), min_size=3, max_size=3), st.sampled_from(["", "ns/a", "ns/b"]), st.booleans())
def test_following_batch_equals_a_fresh_batch(world: World, were_seen: list[bool], resized: str, lost: bool) -> None:
    """What was written of an HPA has been seen by then, or not. Later a scale is another, or usage of a pod is not
    told any more."""
    with_names(world)
    scales = world.scales
    states = {key: msgspec.structs.replace(state, registered=True) for key, state in world.state.hpas.items()}
    world.state = ControllerState(hpas=states)
    outcomes = []
    for follows in (False, True):
        states_, store, pods = StateStore(states), store_of(world), pods_of(world)
        hpas, before, now = list(world.hpas), None, world
        for period in range(5):
            if period == 3:
                now = replace(world, scales={**scales, **another_size(resized, scales.get(resized))})
            if period == 4 and lost:
                now = replace(now, metrics=without_the_last(world.metrics))
            run = batch(now, hpas, states_, store, pods, NOW + period * 15 * SECOND, before if follows else None)
            before = run.value
            states_.put(before.keys, before.histories, before.plain_states)
            for row, (hpa, is_seen) in enumerate(zip(hpas, were_seen, strict=False)):
                if is_seen and (status := before.written.get(hpa.key)) is not None:
                    hpas[row] = msgspec.structs.replace(hpa, status=status)
            problems = {key: str(problem) for key, problem in before.problems.items()}
            outcomes.append((by_hpa(run), run.observations, dict(states_), problems, before.written, before.keys))
    assert outcomes[:5] == outcomes[5:]


def another_size(key: str, scale: Scale | ApiError | None) -> dict[str, Scale]:
    if not isinstance(scale, Scale):
        return {}
    status = msgspec.structs.replace(scale.status, replicas=scale.status.replicas ^ 1)
    return {key: msgspec.structs.replace(scale, spec=ScaleSpec(replicas=scale.spec.replicas ^ 1), status=status)}


def without_the_last(metrics: Any) -> Any:
    def fewer(request: GetMetric) -> Any:
        result = metrics(request)
        return PodMetricsList(items=result.items[:-1]) if isinstance(result, PodMetricsList) else result

    return fewer


def test_unchanged_decisions_are_not_recomputed() -> None:
    """Of what stays as it was; what is decided of another scale or of another value is, though no size changes."""
    hpas = [a_steady_hpa(name) for name in ("a", "b")]
    states_, store = StateStore(), SelectorStore()
    for hpa in hpas:
        store.put_if_absent("ns", hpa.name)
    one, other = ({hpa.key: a_scale(hpa.name, size) for hpa in hpas} for size in (2, 3))
    scales = [one] * 3 + [one | {"ns/b": other["ns/b"]}] * 3
    result: list[BatchResult] = []
    for period, values in enumerate([("2", "2")] * 5 + [("2", "2050m")]):
        lists = MetricLists()
        for name, value in zip(("a", "b"), values, strict=True):
            lists.add_external("ns", [from_dict({"metricName": name, "value": value}, ExternalMetricValue)])
        world, now = World(hpas, {**scales[period]}, [], lists, ControllerState(), HPAOptions()), NOW + period * SECOND
        anew = batch(world, hpas, states_, store, [], now, None)
        run = batch(world, hpas, states_, store, [], now, result[-1] if result else None)
        assert (by_hpa(run), run.observations) == (by_hpa(anew), anew.observations)
        result.append(run.value)
        states_.put(result[-1].keys, result[-1].histories, result[-1].plain_states)
        hpas = [
            msgspec.structs.replace(hpa, status=status) if (status := result[-1].written.get(hpa.key)) else hpa
            for hpa in hpas
        ]
    assert all(all(each.rows) for each in result)
    assert [list(each.written) for each in result] == [["ns/a", "ns/b"], [], [], ["ns/b"], [], ["ns/b"]]
    assert [row is before for row, before in zip(result[2].rows, result[1].rows, strict=True)] == [True, True]
    assert [row is before for row, before in zip(result[5].rows, result[1].rows, strict=True)] == [True, False]


def test_changed_metrics_are_recomputed() -> None:
    """And who has fewer again, though the size stays, and the scale is the very same."""
    one, store, states_, before = a_steady_hpa("a"), SelectorStore(), StateStore(), None
    store.put_if_absent("ns", "a")
    twice = msgspec.structs.replace(one.spec, metrics=2 * (one.spec.metrics or []))
    lists, scales = MetricLists(), {"ns/a": a_scale("a", 2)}
    lists.add_external("ns", [from_dict({"metricName": "a", "value": "2"}, ExternalMetricValue)])
    status = one.status
    for period, spec in enumerate([one.spec, twice, twice, one.spec, one.spec]):
        hpas = [msgspec.structs.replace(one, spec=spec, status=status)]
        world, now = World(hpas, {**scales}, [], lists, ControllerState(), HPAOptions()), NOW + period * SECOND
        anew = batch(world, hpas, states_, store, [], now, None)
        run = batch(world, hpas, states_, store, [], now, before)
        assert (by_hpa(run), run.observations) == (by_hpa(anew), anew.observations)
        before = run.value
        states_.put(before.keys, before.histories, before.plain_states)
        status = before.written.get("ns/a", status)
        assert [len(each.written) for each in (before, anew.value)] == [period not in (2, 4)] * 2


@pytest.mark.parametrize("refused", [False, True])
def test_changed_usage_of_the_same_size_is_reported_as_if_recomputed(refused: bool) -> None:
    """Within the tolerance: the status has other metrics, and nothing else. A write that is refused is tried again."""
    hpas = [a_steady_hpa(name) for name in ("a", "b")]
    hpas = [msgspec.structs.replace(hpa, metadata=ObjectMeta(name=hpa.name, namespace="ns", uid="u")) for hpa in hpas]
    states_, store, result = StateStore(), SelectorStore(), list[BatchResult]()
    for hpa in hpas:
        store.put_if_absent("ns", hpa.name)
    scales = {hpa.key: a_scale(hpa.name, 2) for hpa in hpas}
    for period, value in enumerate(["2", "2010m", "2020m", "2030m"]):
        lists = MetricLists()
        for name in ("a", "b"):
            lists.add_external("ns", [from_dict({"metricName": name, "value": value}, ExternalMetricValue)])
        world, now = World(hpas, {**scales}, [], lists, ControllerState(), HPAOptions()), NOW + period * SECOND
        error = CONFLICT if refused and period == 2 else str(period)
        anew = batch(world, hpas, states_, store, [], now, None, error)
        run = batch(world, hpas, states_, store, [], now, result[-1] if result else None, error)
        assert (by_hpa(run), run.observations) == (by_hpa(anew), anew.observations)
        assert (run.value.records, run.value.plain_states) == (anew.value.records, anew.value.plain_states)
        assert bool(run.value.records) == (error is CONFLICT)
        result.append(run.value)
        states_.put(result[-1].keys, result[-1].histories, result[-1].plain_states)
        metadata = [msgspec.structs.replace(hpa.metadata, resource_version=str(period)) for hpa in hpas]
        hpas = [
            msgspec.structs.replace(hpa, status=result[-1].written.get(hpa.key, hpa.status), metadata=own)
            for hpa, own in zip(hpas, metadata, strict=True)
        ]
    reused = [[row and row.observations for row in each.rows] for each in result[1:]]
    assert [each is other for each, other in zip(reused[0], reused[1], strict=True)] == [not refused] * 2
    assert (reused[1] == [None, None]) == refused


def test_specs_that_are_the_same_are_not_read_again() -> None:
    hpas = [an_hpa(name) for name in ("a", "b")]
    world = World(
        hpas, {hpa.key: a_scale(hpa.name, 1) for hpa in hpas}, [], MetricLists(), ControllerState(), HPAOptions()
    )
    states_, store = StateStore(), SelectorStore()
    for hpa in hpas:
        store.put_if_absent("ns", hpa.name)
    result: list[BatchResult] = []
    for period in range(4):
        run = batch(world, hpas, states_, store, [], NOW + period * 15 * SECOND, result[-1] if result else None)
        result.append(run.value)
        states_.put(result[-1].keys, result[-1].histories, result[-1].plain_states)
        if not period:  # what was written of them is seen
            hpas = [msgspec.structs.replace(hpa, status=result[0].records[hpa.key].status) for hpa in hpas]
    third, last = result[2:]
    assert last.prepared.hpas.specs is third.prepared.hpas.specs


def a_queue_that_keeps_its_size() -> World:
    """Two pods, and twice the work of one."""
    world = a_queue_that_is_empty()
    hpa = msgspec.structs.replace(world.hpas[0], metadata=ObjectMeta(name="a", namespace="ns", uid="u"))
    hpa = msgspec.structs.replace(hpa, status=HorizontalPodAutoscalerStatus())
    world.metrics = MetricLists()
    world.metrics.add_external("ns", [from_dict({"metricName": "lag", "value": "1"}, ExternalMetricValue)])
    scale = Scale(spec=ScaleSpec(replicas=2), status=ScaleStatus(replicas=2, selector="app=a"))
    states = {"ns/a": HPAState(registered=True)}
    return World([hpa], {"ns/a": scale}, [], world.metrics, ControllerState(hpas=states), HPAOptions())


def test_unchanged_size_in_a_batch_has_the_same_state_and_counters() -> None:
    """First it writes its status, and remembers at which version; then it has nothing to write."""
    world = a_queue_that_keeps_its_size()
    with_names(world)
    states_ = StateStore(world.state.hpas)

    def answered(action: Action) -> Any:
        if isinstance(action, List):
            return []
        return "7" if isinstance(action, WriteStatus) else answer(world, action, {})

    for writes in (True, False):
        (hpa,), state = world.hpas, states_["ns/a"]
        store, own = store_of(world), store_of(world)
        alone = performed(
            reconcile(hpa, state, now=NOW, options=world.options, selectors=own, mapper=BUILT_IN_MAPPER),
            answered,
            now=NOW,
        )
        steps = reconcile_all(
            [hpa],
            states_,
            [],
            scales={},
            now=NOW,
            options=world.options,
            selectors=store,
            mapper=BUILT_IN_MAPPER,
        )
        run = performed(steps, answered, now=NOW)
        states_.put(run.value.keys, run.value.histories, run.value.plain_states)
        assert [isinstance(each, WriteStatus) for each in run.actions].count(True) == writes
        assert run.value.decisions.decided_by_metrics().all()
        assert sorted(map(repr, run.observations)) == sorted(map(repr, alone.observations))
        assert states_["ns/a"] == alone.value.state
        assert states_["ns/a"].written == (WrittenVersion("u", "7") if writes else None)
        metadata = msgspec.structs.replace(hpa.metadata, resource_version="7")
        world.hpas[0] = msgspec.structs.replace(hpa, metadata=metadata, status=alone.value.status)


def batch(
    world: World,
    hpas: list[HorizontalPodAutoscaler],
    states_: StateStore,
    store: SelectorStore,
    pods: Any,
    now: int,
    before: BatchResult | None,
    written: Any = None,
) -> DryRun[Any]:
    """A batch of HPAs whose scales are watched; ``written``: what writing a status is answered."""
    steps = reconcile_all(
        hpas,
        states_,
        pods,
        scales={key: scale for key, scale in world.scales.items() if isinstance(scale, Scale)},
        now=now,
        options=world.options,
        selectors=store,
        mapper=BUILT_IN_MAPPER,
        before=before,
    )
    return performed(
        steps, lambda action: written if isinstance(action, WriteStatus) else answer(world, action, {}), now=now
    )


def a_state(number: int) -> HPAState:
    return HPAState(
        recommendations=tuple(Recommendation(number + i, NOW - i * SECOND) for i in range(number % 4)),
        scale_up_events=tuple(ScaleEvent(i, NOW, outdated=i > 1) for i in range(number % 3)),
        selector=f"app={number}",
    )


KEYS = ["ns/a", "ns/b", "ns/c", "ns/d", "ns/e"]
changes = st.one_of(
    st.tuples(st.just("put"), st.lists(st.sampled_from(KEYS), unique=True), st.integers(0, 50)),
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 50)),
    st.tuples(st.just("drop"), st.sampled_from(KEYS), st.just(0)),
)


@given(st.lists(changes, max_size=6), st.permutations(KEYS), st.integers(0, 5))
def test_state_store_behaves_like_a_dict(steps: list[tuple[str, Any, int]], order: list[str], count: int) -> None:
    stored, plain = StateStore(), dict[str, HPAState]()
    last: Any = None
    for what, keys, number in steps:
        if what == "put":
            states = [a_state(number + i) for i in range(len(keys))]
            last = keys if last != keys else last  # a batch that repeats another has the very same list
            stored.put(last, StateColumns.from_states(states), [each.without_histories() for each in states])
            plain.update(zip(keys, states, strict=True))
        elif what == "set":
            stored[keys] = plain[keys] = a_state(number)
        elif keys in plain:
            del stored[keys], plain[keys]
    assert dict(stored) == plain
    assert len(stored) == len(plain)
    names = order[:count]
    histories, rest = stored.get_columns(names)
    result = [histories.state(row, each) for row, each in enumerate(rest)]
    assert result == [plain.get(key, HPAState()) for key in names]
    again = StateStore()
    again.put(names, histories, rest)  # and once more through columns
    assert [again[key] for key in names] == result


@pytest.mark.parametrize("asking", [0, 1])
def test_unfinished_hpas_are_left_for_the_next_batch(asking: int) -> None:
    """Sizes go before statuses; what was not begun in time is as if it had not been looked at. How long was asked
    before costs nobody his turn."""
    names = ["a", "b", "c"]
    hpas = [an_hpa(name) for name in names]
    scales = {f"ns/{name}": a_scale(name, 0 if name == "c" else 2) for name in names}
    store, states_ = SelectorStore(), StateStore()
    for name in names:
        store.put_if_absent("ns", name)
    steps = reconcile_all(
        hpas,
        states_,
        [],
        scales={} if asking else scales,
        now=NOW,
        options=HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=1),
        selectors=store,
        mapper=RESTMapper(),
        within=2 * SECOND,
    )
    log: list[str] = []

    def perform(action: Action, at: int) -> Outcome:
        if isinstance(action, GetScale):
            return Outcome(at=at + asking * SECOND, value=scales[f"ns/{action.name}"])
        if isinstance(action, PutScale | WriteStatus):
            of = action.scale if isinstance(action, PutScale) else action.object
            log.append(f"{type(action).__name__} {of.name}")
            return Outcome(at=at + SECOND)
        return Outcome(at=at)

    result = run_virtually(lambda _: steps, perform, now=NOW)
    # a and b are above their maximum of 1; c is paused, and has but a status to write.
    assert log == ["PutScale a", "WriteStatus a", "PutScale b", "WriteStatus b"]
    assert (result.keys, result.unfinished) == (["ns/a", "ns/b"], ["ns/c"])
    assert result.records["ns/a"].scale_written == 1


def a_backlog(name: str, metric: str) -> HorizontalPodAutoscaler:
    """An HPA that goes by a metric from outside."""
    external = {"metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "1"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "maxReplicas": 9, "metrics": [{"type": "External", "external": external}]}
    result = from_dict({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, HorizontalPodAutoscaler)
    return apply_defaults(result)


@pytest.mark.parametrize("slow", ["metric", "scale"])
def test_slow_request_delays_only_its_own_hpas(slow: str) -> None:
    """Also among many, of which all together take longer: each has its time. Whoever is held up is as if it had not
    been looked at, and the others are decided as without it."""
    names, late = [f"h{i}" for i in range(8)], ("h1", "h5")
    scales = {name: a_scale(name, 1) for name in names}
    for name, scale in scales.items():
        scale.status.selector = f"app={name}"
    begun: list[str] = []

    def perform(action: Action, at: int) -> Outcome:
        if isinstance(action, GetMetric):
            begun.append(action.metric)
            took = 60 if action.metric == "slow" else 1
            value = from_dict({"metricName": action.metric, "value": "3"}, ExternalMetricValue)
            return Outcome(at=at + took * SECOND, value=ExternalMetricValueList(items=[value]))
        if isinstance(action, GetScale):
            took = 60 if slow == "scale" and action.name in late else 1
            return Outcome(at=at + took * SECOND, value=scales[action.name])
        return Outcome(at=at)

    def batch(*some: str) -> tuple[BatchResult, dict[str, HPAState]]:
        store, states_ = SelectorStore(), StateStore()
        for name in some:
            store.put_if_absent("ns", name)
        steps = reconcile_all(
            [a_backlog(name, "slow" if slow == "metric" and name in late else name) for name in some],
            states_,
            [],
            scales={f"ns/{name}": scales[name] for name in some if slow == "metric"},
            now=NOW,
            options=HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=2),
            selectors=store,
            mapper=RESTMapper(),
            within=4 * SECOND,
        )
        result: BatchResult = run_virtually(lambda _: steps, perform, now=NOW)
        states_.put(result.keys, result.histories, result.plain_states)
        return result, dict(states_)

    result, states_ = batch(*names)
    rest, alone = batch(*(name for name in names if name not in late))
    assert (result.late, result.unfinished) == (["ns/h1", "ns/h5"], [])
    assert states_.keys() == alone.keys()
    assert [each.scale_written for each in result.records.values()] == [3] * 6
    for key, record in rest.records.items():
        assert result.records[key].proposal == record.proposal
        assert [each.replicas for each in states_[key].recommendations or ()] == [1, 3]
    assert result.at - NOW < 30 * SECOND
    assert Counter(begun)["slow"] == (1 if slow == "metric" else 0)


def test_a_scale_that_takes_too_long_is_late_whoever_else_is_watched() -> None:
    """Scales may be known of HPAs that are not in the batch."""
    store = SelectorStore()
    store.put_if_absent("ns", "a")

    def perform(action: Action, at: int) -> Outcome:
        assert isinstance(action, GetScale)
        return Outcome(at=at + 60 * SECOND, value=a_scale("a", 1))

    steps = reconcile_all(
        [a_backlog("a", "m")],
        StateStore(),
        [],
        scales={"ns/b": a_scale("b", 1)},
        now=NOW,
        options=HPAOptions(),
        selectors=store,
        mapper=RESTMapper(),
        within=4 * SECOND,
    )
    result: BatchResult = run_virtually(lambda _: steps, perform, now=NOW)
    assert (result.late, result.keys, result.records) == (["ns/a"], [], {})


def test_always_late_hpas_stop_being_requested() -> None:
    """Of a source of metrics with a shorter time of its own."""
    names, store, request_counts = ("a", "b"), SelectorStore(), Counter[str]()
    for name in names:
        store.put_if_absent("ns", name)

    def perform(action: Action, at: int) -> Outcome:
        if not isinstance(action, GetMetric):
            return Outcome(at=at, value=a_scale("b", 1) if isinstance(action, GetScale) else None)
        request_counts[action.metric] += 1
        assert request_counts[action.metric] < 5
        if action.metric == "a":
            return Outcome(at=at + SECOND, error=DEADLINE_EXCEEDED)
        value = from_dict({"metricName": action.metric, "value": "3"}, ExternalMetricValue)
        return Outcome(at=at + SECOND, value=ExternalMetricValueList(items=[value]))

    steps = reconcile_all(
        [a_backlog(name, name) for name in names],
        StateStore(),
        [],
        scales={f"ns/{name}": a_scale(name, 1) for name in names},
        now=NOW,
        options=HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=1),
        selectors=store,
        mapper=RESTMapper(),
        within=4 * SECOND,
    )

    result: BatchResult = run_virtually(lambda _: steps, perform, now=NOW)
    assert (result.late, [*result.records]) == (["ns/a"], ["ns/b"])


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_late_hpas_are_limited_to_few_namespaces(order: str) -> None:
    """What is decided anew has the metrics of its namespace asked for again. Who is given first comes first, whatever
    the name: what was too late is given first the next time."""
    hpas = [an_hpa(f"h{i}") for i in range(6)]
    store = SelectorStore()
    for i, hpa in enumerate(hpas):
        hpa.metadata.namespace = order[i % 2]
        store.put_if_absent(hpa.metadata.namespace, hpa.metadata.name)
    steps = reconcile_all(
        hpas,
        StateStore(),
        [],
        scales={hpa.key: a_scale(hpa.name, 0) for hpa in hpas},
        now=NOW,
        options=HPAOptions(concurrent_horizontal_pod_autoscaler_syncs=1),
        selectors=store,
        mapper=RESTMapper(),
        within=2 * SECOND,
    )

    def perform(action: Action, at: int) -> Outcome:
        return Outcome(at=at + SECOND * isinstance(action, WriteStatus))

    result = run_virtually(lambda _: steps, perform, now=NOW)
    first, second = order
    assert result.keys == [f"{first}/h{i}" for i in (0, 2, 4)]
    assert result.unfinished == [f"{second}/h{i}" for i in (1, 3, 5)]


@pytest.mark.parametrize("since", [1, 3])
def test_resize_uses_the_current_scale(since: int) -> None:
    """The watch says 1; when the size is to be written the API server says ``since``."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "maxReplicas": 9,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    hpa = apply_defaults(
        from_dict({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}, HorizontalPodAutoscaler)
    )
    at_start, there = a_scale("a", 1), a_scale("a", since)
    at_start.status.selector = there.status.selector = "app=a"
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    pod = {
        "metadata": {"name": "a-1", "namespace": "ns", "labels": {"app": "a"}},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": [ready]},
    }
    usage = {
        "metadata": {"name": "a-1", "namespace": "ns", "labels": {"app": "a"}},
        "timestamp": to_text(NOW),
        "window": "15s",
        "containers": [{"name": "main", "usage": {"cpu": "900m"}}],
    }
    store = SelectorStore()
    store.put_if_absent("ns", "a")
    steps = reconcile_all(
        [hpa],
        StateStore(),
        [from_dict(pod, Pod)],
        scales={"ns/a": at_start},
        now=NOW,
        options=HPAOptions(),
        selectors=store,
        mapper=RESTMapper(),
    )
    sizes: list[int] = []
    durations: list[float] = []
    reports = 0

    def perform(action: Action, at: int) -> Outcome:
        nonlocal reports
        if isinstance(action, GetMetric):
            return Outcome(at=at, value=PodUsage.of([from_dict(usage, PodMetrics)]))
        if isinstance(action, GetScale):
            return Outcome(at=at + SECOND, value=there)  # which takes its time
        if isinstance(action, PutScale):
            sizes.append(action.replicas)
        if isinstance(action, Observe):
            reports += 1
            durations.extend(each.value for each in action.observations if each.name.endswith("_seconds"))
        return Outcome(at=at)

    result = run_virtually(lambda _: steps, perform, now=NOW)
    record = result.records["ns/a"]
    # 180 % of the target: 2 instead of 1; of 3 it would be fewer, which a controller that has just begun puts off.
    assert (record.current_replicas, record.proposal, record.desired_replicas) == (since, 2, max(since, 2))
    assert sizes == ([2] if since == 1 else [])
    assert durations == [0.0, 1.0]
    assert reports == 1, "all that is counted of one is told at once"


def test_size_computation_is_a_separate_step() -> None:
    """That takes long where pods are many: it is no brief step."""
    hpa = an_hpa("a")
    store = SelectorStore()
    store.put_if_absent("ns", "a")
    steps = reconcile_all(
        [hpa],
        StateStore(),
        [],
        scales={"ns/a": a_scale("a", 3)},  # more than the most, which the legacy profile's columns do not decide
        now=NOW,
        options=HPAOptions(profile="legacy"),
        selectors=store,
        mapper=RESTMapper(),
    )
    action = next(steps)
    while not isinstance(action, Together):
        action = steps.send(Outcome(at=NOW))
    assert action.brief
    (machine,) = action.machines
    inner = next(machine(NOW))
    assert isinstance(inner, Together)
    assert not inner.brief
    steps.close()


def an_hpa(name: str) -> HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    document = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"scaleTargetRef": target, "maxReplicas": 1}}
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


def a_steady_hpa(name: str) -> HorizontalPodAutoscaler:
    """Whose metric, of its own name, shall be 2."""
    metric = {"metric": {"name": name}, "target": {"type": "Value", "value": "2"}}
    document = to_dict(an_hpa(name))
    document["spec"] |= {"maxReplicas": 5, "metrics": [{"type": "External", "external": metric}]}
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))


def a_scale(name: str, size: int) -> Scale:
    metadata = ObjectMeta(name=name, namespace="ns")
    return Scale(metadata=metadata, spec=ScaleSpec(replicas=size), status=ScaleStatus(selector=f"app={name}"))


def test_states_of_batches_of_other_hpas_take_no_more_room() -> None:
    """Batches of overlapping HPAs: entries of states that were replaced are dropped."""
    past = (Recommendation(3, NOW),)
    stored = StateStore({f"shop/{name}": HPAState(recommendations=past) for name in "abc"})
    for number in range(24):
        keys = ["shop/a", "shop/b"] if number % 2 else ["shop/b", "shop/c"]
        histories, plain_states = stored.get_columns(keys)
        stored.put(keys, histories.with_room(), plain_states)
    histories, _ = stored.get_columns(["shop/a", "shop/b", "shop/c"])
    assert len(histories.past.values) <= 100
    assert [histories.past.get_recommendations(row) for row in range(3)] == [past] * 3
