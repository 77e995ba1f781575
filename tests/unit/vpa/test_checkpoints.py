"""Writing checkpoints by workers with a deadline, and deleting orphans (spec 6, 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from kscale.effects import Action, ApiError, Create, Delete, Get, List, Moment, Outcome, Patch, Progress, Together
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.core import Namespace
from kscale.objects.api.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.selectors import parse_selector
from kscale.vpa import RecommenderOptions, RecommenderState, Usage
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, Vpa, add_usage
from kscale.vpa.recommender.checkpoints import CheckpointBatch, maintain_checkpoints_steps
from unit.vpa.builders import vpa
from unit.vpa.recorder import DAY, T0, Recorder, cluster
from unit.vpa.worlds import World, nothing
from unit.vpa.written import checkpoints

SECOND = 10**9
Refuse = Callable[[Action], ApiError | None]
TOO_LATE = "Failed to store all checkpoints within the configured `checkpoints-timeout`: context deadline exceeded"


def with_vpas(count: int, **options: Any) -> tuple[RecommenderState, list[Vpa]]:
    """VPAs with a pod each, of two containers."""
    state = RecommenderState(RecommenderOptions(**options))
    state.last_checkpoint_gc = T0
    vpas = []
    for i in range(count):
        one = state.add_pod("default", f"pod{i:02}", {"app": f"a{i}"}, "Running", T0)
        for name in ("c1", "c2"):
            state.add_container(one, name, T0)
        vpa_ = from_dict({"metadata": {"name": f"vpa{i:02}", "namespace": "default"}}, VerticalPodAutoscaler)
        vpas.append(state.add_vpa(vpa_, parse_selector(f"app=a{i}")))
    return state, vpas


def maintain(
    state: RecommenderState,
    world: World,
    vpas: list[VerticalPodAutoscaler] | None = None,
    now: int = T0,
) -> list[str]:
    messages: list[str] = []
    world.run(maintain_checkpoints_steps(state, vpas, Progress(now), messages), now)
    return messages


def refused(error: ApiError, *names: str) -> Refuse:
    return lambda action: error if isinstance(action, Patch) and action.name in names else None


# -- writing ---------------------------------------------------------------------------------------------------


def test_checkpoints_have_a_minute_unless_it_is_set() -> None:
    assert RecommenderOptions().checkpoints_timeout == timedelta(minutes=1)


def test_a_checkpoint_is_patched_whole() -> None:
    state, _ = with_vpas(1)
    events = [(("default", "pod00", "c1"), T0, 100, CPU_SAMPLE)]
    add_usage(state, Usage.from_events(events), T0)
    world = World()
    assert maintain(state, world) == []
    first = world.actions[0]
    assert (first.kind, first.api_version, first.subresource) == (
        "VerticalPodAutoscalerCheckpoint",
        "autoscaling.k8s.io/v1",
        "",
    )
    assert (first.namespace, first.name, first.type) == ("default", "vpa00-c1", "json")
    ((operation),) = first.patch
    assert (operation.op, operation.path) == ("replace", "/status")
    assert to_dict(operation.value) == {
        "lastUpdateTime": "2017-04-18T17:35:05Z",
        "version": "v3",
        "cpuHistogram": {
            "referenceTimestamp": "2017-04-19T00:00:00Z",
            "bucketWeights": {"8": 10000},
            "totalWeight": pytest.approx(0.1 * 2 ** (-23095 / 86400)),  # the reference is 6 h 24 min 55 s later
        },
        "memoryHistogram": {"referenceTimestamp": None},
        "firstSampleStart": "2017-04-18T17:35:05Z",
        "lastSampleStart": "2017-04-18T17:35:05Z",
        "totalSamplesCount": 1,
    }
    assert [action.name for action in world.actions] == ["vpa00-c1", "vpa00-c2"]


def test_workers_finish_a_vpa_before_they_look_at_the_time() -> None:
    state, vpas = with_vpas(5, update_worker_count=2, checkpoints_timeout=timedelta())
    world = World()
    assert maintain(state, world) == [TOO_LATE]
    assert sorted(action.name for action in world.actions) == ["vpa00-c1", "vpa00-c2", "vpa01-c1", "vpa01-c2"]
    assert [vpa.checkpoint_written == T0 for vpa in vpas] == [True, True, False, False, False]
    later = T0 + 60 * SECOND
    state.last_checkpoint_gc = later
    world = World()
    maintain(state, world, now=later)
    assert {action.name[:5] for action in world.actions} == {"vpa02", "vpa03"}


@pytest.mark.parametrize(
    ("workers", "seconds", "written"),
    [(1, 25, 2), (1, 45, 3), (3, 25, 5), (10, 15, 5)],
)
def test_checkpoints_are_written_until_the_time_is_over(workers: int, seconds: int, written: int) -> None:
    """Each of the ten takes ten seconds."""
    state, vpas = with_vpas(5, update_worker_count=workers, checkpoints_timeout=timedelta(seconds=seconds))
    world = World(took=10 * SECOND)
    messages = maintain(state, world)
    assert sum(vpa.checkpoint_written >= T0 for vpa in vpas) == written
    rounds = -(-written // workers)
    assert world.now == T0 + rounds * 20 * SECOND
    assert messages == ([TOO_LATE] if rounds * 20 >= seconds else [])


def test_checkpoints_that_could_not_be_written_stay_old() -> None:
    state, vpas = with_vpas(3)
    world = World(refused(ApiError("no"), "vpa00-c1", "vpa00-c2", "vpa01-c1"))
    assert sorted(maintain(state, world)) == [
        "Cannot save checkpoint for VPA default/vpa00 container c1: no",
        "Cannot save checkpoint for VPA default/vpa00 container c2: no",
        "Cannot save checkpoint for VPA default/vpa01 container c1: no",
    ]
    assert world.kinds() == {"Patch": 6}
    assert [vpa.checkpoint_written == T0 for vpa in vpas] == [False, True, True]


NONE = ApiError('verticalpodautoscalercheckpoints.autoscaling.k8s.io "vpa00-c1" not found', 404, NOT_FOUND)


def test_a_checkpoint_that_is_not_there_is_made() -> None:
    state, (only,) = with_vpas(1)
    world = World(refused(NONE, "vpa00-c1"))
    assert maintain(state, world) == []
    patch, create, _ = world.actions
    assert isinstance(create, Create)
    created = create.object
    assert isinstance(created, VerticalPodAutoscalerCheckpoint)
    assert (created.api_version, created.kind, created.namespace, created.name) == (
        "autoscaling.k8s.io/v1",
        "VerticalPodAutoscalerCheckpoint",
        "default",
        "vpa00-c1",
    )
    assert (created.spec.vpa_object_name, created.spec.container_name) == ("vpa00", "c1")
    (patched,) = checkpoints([patch])
    assert created.status == patched.status
    assert only.checkpoint_written == T0


@pytest.mark.parametrize(
    ("error", "kinds", "text"),
    [
        (NONE, {"Patch": 2, "Create": 1}, "namespace is going"),
        (ApiError("the server could not find the requested resource", 404, NOT_FOUND), {"Patch": 2}, "the server"),
    ],
)
def test_checkpoint_write_errors_are_reported(error: ApiError, kinds: dict[str, int], text: str) -> None:
    """Whether one is made goes by the text of the error, as upstream does."""
    state, (only,) = with_vpas(1)
    patches = refused(error, "vpa00-c1", "vpa00-c2")
    named = refused(error, "vpa00-c1")

    def refuse(action: Action) -> ApiError | None:
        if isinstance(action, Create):
            return ApiError("namespace is going")
        return (named if error is NONE else patches)(action)

    world = World(refuse)
    messages = maintain(state, world)
    assert messages[0].startswith(f"Cannot save checkpoint for VPA default/vpa00 container c1: {text}")
    assert world.kinds() == kinds
    assert (only.checkpoint_written == T0) == (error is NONE)  # the other container's


def test_the_open_window_stays_out_of_a_checkpoint() -> None:
    recorder = Recorder()
    recorder.state.add_vpa(vpa(), parse_selector("app=x"))
    recorder.add((T0, 2**30, MEMORY_SAMPLE))
    for now, closed in ((T0, False), (T0 + DAY, True)):
        recorder.state.last_checkpoint_gc = now
        world = World()
        maintain(recorder.state, world, now=now)
        (result,) = checkpoints(world.actions)
        assert bool(result.status.memory_histogram.bucket_weights) == closed
        assert result.status.version == "v3"


@pytest.mark.parametrize(("status", "written"), [(None, 1), ("False", 1), ("True", 0)])
def test_no_checkpoint_while_history_is_fetched(status: str | None, written: int) -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    state.last_checkpoint_gc = T0
    result = state.add_vpa(vpa(), parse_selector("app=x"))
    if status is not None:
        result.set_condition("FetchingHistory", status == "True", "", "", T0)
    world = World()
    maintain(state, world)
    assert len(world.actions) == written


def test_the_oldest_checkpoints_are_written_first() -> None:
    state = cluster(("default", "pod", {"app": "x"}))
    state.last_checkpoint_gc = T0
    for name, written in (("b", 20000), ("c", 10000), ("a", -(2**63))):
        vpa_ = from_dict({"metadata": {"name": name, "namespace": "default"}}, VerticalPodAutoscaler)
        state.add_vpa(vpa_, parse_selector("app=x")).checkpoint_written = written
    world = World()
    maintain(state, world)
    assert [action.name for action in world.actions] == ["a-app", "c-app", "b-app"]
    assert {one.checkpoint_written for one in state.vpas.values()} == {T0}


def test_many_vpas_are_merged_together_as_alone() -> None:
    def some() -> tuple[RecommenderState, list[Vpa]]:
        state, vpas = with_vpas(70, update_worker_count=3)
        events = [
            (("default", f"pod{i:02}", name), T0 + i * SECOND, 10 * i * (1 if kind == CPU_SAMPLE else 10**6), kind)
            for i in range(70)
            for name in ("c1", "c2")
            for kind in (CPU_SAMPLE, MEMORY_SAMPLE)
        ]
        add_usage(state, Usage.from_events(events), T0)
        return state, vpas

    world = World()
    state, _ = some()
    assert maintain(state, world) == []
    result = {(item.spec.vpa_object_name, item.spec.container_name): item.status for item in checkpoints(world.actions)}
    assert len(world.actions) == len(result) == 140
    other, vpas = some()
    for one in vpas:
        alone = CheckpointBatch(other)
        alone.prepare([one], T0)
        for container, status in alone.pop(one, T0):
            assert result[one.name, container] == status


def test_checkpoints_are_prepared_in_batches_by_the_round_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing takes long, so that it is no step of the brief machines that write; a batch follows another."""
    prepared: list[list[str]] = []
    prepare = CheckpointBatch.prepare

    def noted(self: CheckpointBatch, vpas: Sequence[Vpa], now: Moment) -> None:
        prepared.append([vpa.name for vpa in vpas])
        prepare(self, vpas, now)

    monkeypatch.setattr(CheckpointBatch, "prepare", noted)
    monkeypatch.setattr("kscale.vpa.recommender.checkpoints._VPAS_PER_BATCH", 2)
    state, vpas = with_vpas(5, update_worker_count=2)
    names = [vpa.name for vpa in vpas]
    writing = maintain_checkpoints_steps(state, None, Progress(T0), [])
    action = next(writing)
    for first in (0, 2, 4):
        assert isinstance(action, Together)
        assert action.brief
        assert action.at_most == 2
        assert prepared == [names[start : start + 2] for start in range(0, first + 1, 2)]
        for machine in action.machines:
            steps = machine(T0)
            assert isinstance(next(steps), Patch)
            steps.close()
        if first < 4:
            action = writing.send(Outcome(at=T0, value=[None] * len(action.machines)))
    with pytest.raises(StopIteration):
        writing.send(Outcome(at=T0, value=[None]))
    assert len(prepared) == 3


def test_no_batch_is_prepared_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscale.vpa.recommender.checkpoints._VPAS_PER_BATCH", 2)
    state, _ = with_vpas(7, update_worker_count=3, checkpoints_timeout=timedelta(seconds=1))
    problems: list[str] = []
    writing = maintain_checkpoints_steps(state, None, Progress(T0), problems)
    action = next(writing)
    batches = 0
    with suppress(StopIteration):
        while True:
            batches += 1
            assert isinstance(action, Together)
            action = writing.send(Outcome(at=T0 + SECOND, value=[None] * len(action.machines)))
    assert batches == 2  # with the first three VPAs, as many as there are workers
    assert problems == [
        "Failed to store all checkpoints within the configured `checkpoints-timeout`: context deadline exceeded"
    ]


@pytest.mark.parametrize("sampled_at", [T0 + 60 * SECOND, T0 + DAY - SECOND, T0 + DAY, T0 + 2 * DAY])
def test_a_window_that_closes_while_a_checkpoint_waits_is_in_it(sampled_at: Moment) -> None:
    def some() -> tuple[RecommenderState, list[Vpa]]:
        state, vpas = with_vpas(2)
        name = ("default", "pod00", "c1")
        add_usage(state, Usage.from_events([(name, T0, 10**9, MEMORY_SAMPLE)]), T0)
        return state, vpas

    state, vpas = some()
    early = CheckpointBatch(state)
    early.prepare(vpas, T0)
    other, same = some()
    late = CheckpointBatch(other)
    late.prepare(same, sampled_at)
    result = [early.pop(one, sampled_at) for one in vpas]
    assert result == [late.pop(one, sampled_at) for one in same]
    assert any(status.memory_histogram.bucket_weights for each in result for _, status in each) == (
        sampled_at >= T0 + DAY
    )


def test_history_in_prometheus_needs_no_checkpoints() -> None:
    state, _ = with_vpas(2, storage="prometheus", checkpoints_gc_interval=timedelta())
    world = World()
    assert maintain(state, world, [], T0 + DAY) == []
    assert world.actions == []


# -- deleting --------------------------------------------------------------------------------------------------

NAMES = ("balanced", "performance", "savings", "default")
KIND = "VerticalPodAutoscalerCheckpoint"


def checkpoint(name: str, namespace: str = "default") -> VerticalPodAutoscalerCheckpoint:
    body = {
        "metadata": {"namespace": namespace, "name": f"{name}-c"},
        "spec": {"vpaObjectName": name, "containerName": "c"},
    }
    return from_dict(body, VerticalPodAutoscalerCheckpoint)


EXISTING = [from_dict({"metadata": {"namespace": "default", "name": name}}, VerticalPodAutoscaler) for name in NAMES]
LISTED = [checkpoint(name) for name in (*NAMES, "nonExistentVPA")] + [checkpoint("default", "other")]
LATER = T0 + 601 * SECOND


def there(*namespaces: str) -> Callable[[Action], Any]:
    """What there is in namespaces."""

    def answer(action: Action) -> Any:
        assert isinstance(action, List)
        if action.kind == "Namespace":
            return [from_dict({"metadata": {"name": name}}, Namespace) for name in namespaces]
        return LISTED

    return answer


def vpa_not_found(action: Action) -> ApiError | None:
    """No VPA that is asked for is there."""
    return ApiError("no such VPA", code=404, reason=NOT_FOUND) if isinstance(action, Get) else None


def collecting(**options: Any) -> RecommenderState:
    state = RecommenderState(RecommenderOptions(**options))
    state.last_checkpoint_gc = T0
    return state


@pytest.mark.parametrize(
    ("namespaces", "options", "deleted"),
    [
        (["default"], {}, ["default/nonExistentVPA-c"]),
        ([], {}, []),
        (["default"], {"ignored_vpa_object_namespaces": ["default"]}, []),
        (["other", "default"], {}, ["other/default-c", "default/nonExistentVPA-c"]),
        (["other", "default"], {"vpa_object_namespace": "other"}, ["other/default-c"]),
    ],
)
def test_orphans_are_deleted(namespaces: list[str], options: dict[str, Any], deleted: list[str]) -> None:
    """VPAs of whatever recommender keep theirs; namespaces that are gone are left alone."""
    state = collecting(**options)
    world = World(vpa_not_found, there(*namespaces))
    assert maintain(state, world, EXISTING, LATER) == []
    assert world.actions[:2] == [
        List(kind="Namespace", api_version="v1", watched=False),
        List(
            kind=KIND,
            api_version="autoscaling.k8s.io/v1",
            namespace=options.get("vpa_object_namespace", ""),
            watched=False,
        ),
    ]
    deletions = [action for action in world.actions[2:] if isinstance(action, Delete)]
    assert [f"{action.namespace}/{action.name}" for action in deletions] == deleted
    assert world.kinds()["Delete"] == len(deleted)
    assert state.last_checkpoint_gc == LATER


def test_orphans_are_looked_for_every_ten_minutes() -> None:
    state = collecting()
    world = World(vpa_not_found, there("default"))
    maintain(state, world, EXISTING, T0 + 600 * SECOND)
    assert world.actions == []
    maintain(state, world, EXISTING, LATER)
    assert world.kinds() == {"List": 2, "Get": 1, "Delete": 1}


@pytest.mark.parametrize(
    "error", [None, ApiError("spec: expected `object`", reason="InternalError"), ApiError("no", 403)]
)
def test_history_is_kept_until_its_vpa_is_not_found(error: ApiError | None) -> None:
    """It is not among those that the watch has brought, because it cannot be read, or is new."""
    all_of = there("default")

    def answer(action: Action) -> Any:
        return EXISTING[0] if isinstance(action, Get) else all_of(action)

    world = World(lambda action: error if isinstance(action, Get) else None, answer)
    assert maintain(collecting(), world, EXISTING, LATER) == []
    assert world.kinds() == {"List": 2, "Get": 1}


def test_vpa_of_many_containers_is_requested_once() -> None:
    all_of = there("default")

    def answer(action: Action) -> Any:
        return [checkpoint("gone")] * 3 if isinstance(action, List) and action.kind == KIND else all_of(action)

    world = World(vpa_not_found, answer)
    maintain(collecting(), world, EXISTING, LATER)
    assert world.kinds() == {"List": 2, "Get": 1, "Delete": 3}


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("Namespace", "Cannot list namespaces: no"),
        (KIND, "error cleaning checkpoints: no"),
        ("delete", "error cleaning checkpoints: failed to delete orphaned checkpoint default/nonExistentVPA-c: no"),
    ],
)
def test_failures_are_reported_and_retried_later(fails: str, message: str) -> None:
    state = collecting()

    def refuse(action: Action) -> ApiError | None:
        failed = isinstance(action, Delete) if fails == "delete" else isinstance(action, List) and action.kind == fails
        return ApiError("no") if failed else vpa_not_found(action)

    assert maintain(state, World(refuse, there("default")), EXISTING, LATER) == [message]
    assert state.last_checkpoint_gc == LATER


def test_without_a_list_of_vpas_nothing_is_deleted() -> None:
    state = collecting()
    world = World()
    assert maintain(state, world, None, LATER) == ["Cannot list VPAs"]
    assert world.actions == []


def test_deleting_uses_the_remaining_time() -> None:
    state, _ = with_vpas(1, checkpoints_timeout=timedelta(seconds=25))
    world = World(nothing, there("default"), took=10 * SECOND)
    assert maintain(state, world, EXISTING, LATER) == ["Cannot list namespaces: context deadline exceeded"]
    assert world.now == LATER + 25 * SECOND
