"""Until when a loop finds what the one before it found."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import kscale
from builders import node, owner, pod
from kscale.ca import AutoscalingOptions, LoopState
from kscale.ca.cluster_state import (
    ClusterAutoscalerStatus,
    ClusterStateRegistry,
    IncorrectSize,
    ScaleDownRequest,
    ScaleUpFailure,
    ScaleUpRequest,
    UnregisteredNode,
)
from kscale.ca.cluster_state.state import Backoff, ScaleUpError
from kscale.ca.loop_state import ScaleDownState
from kscale.ca.scale_down.eligibility import Eligibility
from kscale.ca.scale_down.utilization import Utilization
from kscale.ca.static_autoscaler import skip_unchanged
from kscale.ca.static_autoscaler.skip_unchanged import (
    COMPARED_CONSTANTS,
    PodChanges,
    collect_node_moments,
    find_next_difference,
    get_young_system_pod_times,
)
from kscale.ca.unremovable_reasons import NOT_UNDERUTILIZED
from kscale.effects import SECOND, to_text
from kscale.effects.moments import MOMENT_MARK
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Node, NodeSpec, Pod, PodStatus, Taint
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import DURATION_OPTIONS, Groups, NodeGroup, NodeGroupAutoscalingOptions, NodeGroupOptions

NOW = 1_790_000_000 * SECOND
SOON, PAST = NOW + 1234 * SECOND + 5, NOW - 10**8 * SECOND
_ERROR = ScaleUpError(class_="Other", code="x", message="y")


@pytest.mark.parametrize(
    "state",
    [
        LoopState(cluster=ClusterStateRegistry(scale_up_requests={
            "g": ScaleUpRequest(increase=1, time=PAST, expected_add_time=SOON)
        })),
        LoopState(cluster=ClusterStateRegistry(scale_down_requests=[
            ScaleDownRequest(group="g", node="n", time=PAST, expected_delete_time=SOON)
        ])),
        LoopState(cluster=ClusterStateRegistry(backoffs={
            "g": Backoff(duration=1, until=SOON, last_failed=PAST, error=_ERROR)
        })),
        LoopState(cluster=ClusterStateRegistry(failures={"g": [ScaleUpFailure(time=SOON, delta=1, error=_ERROR)]})),
        LoopState(cluster=ClusterStateRegistry(unregistered={"i": UnregisteredNode(group="g", since=SOON)})),
        LoopState(cluster=ClusterStateRegistry(incorrect_sizes={
            "g": IncorrectSize(current=1, expected=2, first_observed=SOON)
        })),
        LoopState(scale_down=ScaleDownState(unneeded_since={"n": SOON})),
        LoopState(scale_down=ScaleDownState(unremovable_until={"m": PAST, "n": SOON})),
        LoopState(scale_down=ScaleDownState(last_failure=SOON)),
    ],
)  # fmt: skip
def test_every_stored_time_can_change_the_next_loop(state: LoopState) -> None:
    result = find_next_difference(state, (), Groups(), AutoscalingOptions(), begun=PAST, now=NOW)
    assert result == SOON


def test_past_times_are_compared_with_durations() -> None:
    state = LoopState(scale_down=ScaleDownState(unneeded_since={"n": NOW - 590 * SECOND}))
    result = find_next_difference(state, (), Groups(), AutoscalingOptions(), begun=PAST, now=NOW)
    assert result == NOW + 10 * SECOND  # ten minutes unneeded


@pytest.mark.parametrize(
    "value", ["20261128120000", "9" * 60, "9" * 5000, "٣", "²", "1_0", "-1", "9223372036", "1790000300"]
)
def test_numbers_of_taints_need_not_be_seconds(value: str) -> None:
    tainted_node = tainted("a", value)
    moments = collect_node_moments([tainted_node])
    assert moments == ({int(value) * SECOND} if len(value) == 10 else set())
    result = find_next_difference(LoopState(), moments, Groups(), AutoscalingOptions(), begun=NOW, now=NOW)
    assert result == NOW + 2 * SECOND


def test_every_number_of_a_state_declares_whether_it_is_a_time() -> None:
    """A new field that is a bare ``int`` fails here: it is a Moment, a duration (Nanoseconds) or a Count."""
    undeclared = [path for path, extra in numbers_of(msgspec.inspect.type_info(LoopState)) if "time" not in extra]
    assert undeclared == []
    moments = [path for path, extra in numbers_of(msgspec.inspect.type_info(LoopState)) if extra == MOMENT_MARK]
    assert {"ScaleDownState.unneeded_since", "Backoff.until", "UnregisteredNode.since"} <= {*moments}


def numbers_of(
    type_: msgspec.inspect.Type, path: str = "", extra: dict[str, Any] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(field, what its annotation says besides) of every number in a value of this type, but for the status."""
    match type_:
        case msgspec.inspect.Metadata():
            yield from numbers_of(type_.type, path, type_.extra)
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            yield path, extra or {}
        case msgspec.inspect.StructType() if type_.cls is not ClusterAutoscalerStatus:
            for field in type_.fields:
                yield from numbers_of(field.type, f"{type_.cls.__name__}.{field.name}")
        case msgspec.inspect.UnionType():
            for each in type_.types:
                yield from numbers_of(each, path)
        case msgspec.inspect.DictType():
            yield from numbers_of(type_.value_type, path)
        case msgspec.inspect.CollectionType():
            yield from numbers_of(type_.item_type, path)


def test_every_time_constant_declares_whether_ages_are_compared_with_it() -> None:
    """A duration in the code of a decision is a constant that is annotated as a ComparedDuration, which is in
    ``COMPARED_CONSTANTS``, or as an OtherDuration. Loops of release 1.3 are never repeated."""
    folder = Path(kscale.ca.__file__).parent
    compared, undeclared = {}, []
    for file in sorted(folder.rglob("*.py")):
        module = ".".join(("kscale", "ca", *file.relative_to(folder).with_suffix("").parts))
        if "legacy" in module or module in ("kscale.ca.options", skip_unchanged.__name__):
            continue
        declared: set[ast.AST] = set()
        for each in ast.walk(tree := ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(each, ast.AnnAssign) and each.value is not None:
                kind = ast.unparse(each.annotation)
                if "ComparedDuration" in kind:
                    name = ast.unparse(each.target)
                    compared[module, name] = getattr(import_module(module), name)
                if "Duration" in kind:
                    declared.update(ast.walk(each.value))
        undeclared += [
            f"{module}:{each.lineno}: {ast.unparse(each)}"
            for each in ast.walk(tree)
            if isinstance(each, ast.expr) and is_time(each) and each not in declared
        ]
    assert undeclared == []
    assert compared
    assert sorted(compared.values()) == sorted(COMPARED_CONSTANTS), f"annotated as compared: {compared}"


def is_time(node: ast.expr) -> bool:
    """Whether it is a fixed time: a multiple or a part of SECOND, or a timedelta of numbers other than zero."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Div):
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        return names == {"SECOND"} and not isinstance(node.right, ast.Call)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "timedelta":
        values = [*node.args, *(each.value for each in node.keywords)]
        return bool(values) and all(isinstance(each, ast.Constant) for each in values)
    return False


def test_every_duration_of_the_options_counts() -> None:
    """Whatever its name: a new option that is a time is a timedelta, and one of a group is in seconds."""
    named = re.compile(r"_(time|timeout|delay|ttl|interval|duration|budget|timebox|sec|seconds)(_|$)")
    known = {"max_graceful_termination_sec"}  # how long pods of a node being drained may take
    options = AutoscalingOptions()
    times = {name for name in options.__struct_fields__ if named.search(name)} - known
    assert {name for name in times if not isinstance(getattr(options, name), timedelta | bool)} == set()
    of_groups = NodeGroupAutoscalingOptions()
    durations = {name for name in of_groups.__struct_fields__ if isinstance(getattr(of_groups, name), timedelta)}
    assert durations == DURATION_OPTIONS


@pytest.mark.parametrize("option", sorted(DURATION_OPTIONS))
def test_the_durations_of_a_group_count(option: str) -> None:
    groups = Groups([NodeGroup(id="g", options=NodeGroupOptions(**{option: 1234.5}))])
    state = LoopState(scale_down=ScaleDownState(unneeded_since={"n": NOW - 1234 * SECOND}))
    result = find_next_difference(state, (), groups, AutoscalingOptions(), begun=PAST, now=NOW)
    assert result == NOW + SECOND // 2


def test_a_young_pod_of_the_system_lets_its_node_go_when_it_is_old() -> None:
    created = NOW - 3000 * SECOND
    cluster = kscale.Cluster([node("n", 1000, 1000), *(placed(name, created) for name in ("young", "daemon"))])
    system = get_young_system_pod_times(cluster.snapshot())
    assert system.tolist() == [created]
    result = find_next_difference(
        LoopState(), (), Groups(), AutoscalingOptions(), begun=PAST, now=NOW, system_pods=system
    )
    assert result == created + 3600 * SECOND + 1
    assert (
        get_young_system_pod_times(
            kscale.Cluster([node("n", 1000, 1000), placed("web", created, "shop")]).snapshot()
        ).size
        == 0
    )


def placed(name: str, created_at: int, namespace: str = "kube-system") -> Pod:
    owners = owner("DaemonSet" if name == "daemon" else "ReplicaSet")
    return pod(
        name, 10, 10, spec={"node_name": "n"}, namespace=namespace, creation_timestamp=to_text(created_at),
        owner_references=owners,
    )  # fmt: skip


def tainted(name: str, value: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(taints=[Taint("upgraded", value, "NoSchedule")]))


class PlacedPods:
    """A loop that found the nodes ``full`` and ``half`` utilized, and what changes afterwards."""

    def __init__(self, options: AutoscalingOptions | None = None, **verdicts: Eligibility) -> None:
        self.changes = PodChanges(options or AutoscalingOptions())
        self.changes.begin()
        nodes = kscale.Cluster([node("full", 1000, 1000), node("half", 1000, 1000)]).snapshot().columns
        used = {"full": 0.9, "half": 0.55}
        judged = {
            name: Eligibility(
                reason=NOT_UNDERUTILIZED,
                utilization=Utilization(utilization=share, resource_name="cpu", cpu=share),
                threshold=0.5,
            )
            for name, share in used.items()
        }
        plan: Any = SimpleNamespace(eligibility={**judged, **verdicts})
        self.inputs = plan, nodes, Groups([NodeGroup(id="g")])

    def note(self, old: Pod | ReplicaSet | None, new: Pod | ReplicaSet | None) -> bool:
        item = new or old
        assert item is not None
        return self.changes.note([(item.key, old, new)])

    @property
    def matter(self) -> bool:
        return self.changes.can_matter(*self.inputs)


def web(at: str = "full", cpu: int = 100, phase: str = "Running", **of: Any) -> Pod:
    item = pod("web", cpu, 10, spec={"node_name": at}, namespace="shop", owner_references=owner("ReplicaSet"), **of)
    return replace(item, status=replace(item.status, phase=phase))


def test_a_loop_reads_no_readiness() -> None:
    placed_pods, waiting = PlacedPods(full=Eligibility()), web(phase="Pending")  # a node that may be removed
    conditions = [Condition(type="Ready", status="True")]
    running = replace(waiting, status=replace(waiting.status, phase="Running", start_time=to_text(NOW)))
    ready = replace(running, status=replace(running.status, conditions=conditions))
    ready = replace(ready, metadata=replace(ready.metadata, resource_version="7"))
    assert placed_pods.note(waiting, running)
    assert placed_pods.note(running, ready)
    replicas = ReplicaSet(metadata=ObjectMeta(name="web", namespace="shop"))
    status = replace(replicas.status, ready_replicas=3)
    assert placed_pods.note(replicas, replace(replicas, status=status))
    assert not placed_pods.matter


def test_pods_come_and_go_on_utilized_nodes() -> None:
    placed_pods = PlacedPods()
    assert placed_pods.note(None, web(at=""))
    assert placed_pods.matter  # the pod is pending
    assert placed_pods.note(web(at=""), web())
    assert placed_pods.note(web("full", 300), None)
    assert not placed_pods.matter
    stopping = web("full", 99, deletion_timestamp=to_text(NOW))
    assert placed_pods.note(web("full", 99), stopping)
    assert not placed_pods.matter
    assert placed_pods.note(stopping, None)  # it was subtracted when it began to stop
    assert not placed_pods.matter
    assert placed_pods.note(web("full", 102), None)
    assert placed_pods.matter  # 0.9 + 0.1 - 0.3 - 0.099 - 0.102 is below 0.5
    placed_pods.changes.clear()
    assert not placed_pods.matter
    assert not placed_pods.note(web("half", 1), None)  # the loop is running
    placed_pods.changes.begin()
    assert placed_pods.note(web("half", 50), None)
    assert placed_pods.matter


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (web(), web(phase="Succeeded")),
        (web(phase="Failed"), None),
        (web(), web(cpu=200)),
        (replace(web(at=""), status=PodStatus(nominated_node_name="half")), web()),
        (None, web(annotations={"kubernetes.io/config.mirror": "x"})),
        (None, pod("agent", 10, 10, spec={"node_name": "full"}, owner_references=owner("DaemonSet"))),
        (None, pod("dns", 10, 10, spec={"node_name": "full"}, namespace="kube-system")),
        (None, pod("low", 10, 10, spec={"node_name": "full", "priority": -11}, namespace="shop")),
        (web(annotations={"kubernetes.io/config.mirror": "x"}), web()),
        (None, ReplicaSet()),
    ],
)
def test_a_loop_reads_other_changes(old: Pod | None, new: Pod | None) -> None:
    assert not PlacedPods().note(old, new)


@pytest.mark.parametrize(
    "option",
    ["capacity_buffer_pod_injection_enabled", "enable_proactive_scaleup", "enable_provisioning_requests",
     "ignore_mirror_pods_utilization"],
)  # fmt: skip
def test_a_loop_with_other_sources_of_pods_reads_all_that_come(option: str) -> None:
    assert not PlacedPods(AutoscalingOptions(**{option: True})).note(None, web())


def test_a_loop_with_a_removable_node_reads_all_that_come() -> None:
    placed_pods = PlacedPods(full=Eligibility())
    assert placed_pods.note(None, web())
    assert placed_pods.matter
