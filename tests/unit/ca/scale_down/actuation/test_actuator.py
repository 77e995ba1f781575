"""Upstream's table of whole deletions (``actuator_test.go``), row by row: what is deleted, evicted and marked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from builders import N0, node, owner, pod, span
from ca_world import World, never
from kscale import ca
from kscale.ca.loop_state import GroupChanges
from kscale.ca.scale_down.actuation.actuator import Actuator, record_deletion_start, record_deletions
from kscale.ca.scale_down.actuation.deletion_tracker import StartedDeletion
from kscale.effects import SECOND, Action, ApiError, Get, List, Moment, Outcome, Patch, VirtualTime, run_virtually
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from kscale.objects.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kscale.objects.api.resource import ResourceSlice, ResourceSliceSpec
from kscale.objects.nodegroup import Groups, NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.snapshot.cluster import Cluster

OK = "NodeDeleteOk"
INTERNAL = "NodeDeleteErrorInternal"
EVICTION = "NodeDeleteErrorFailedToEvictPods"
DELETE = "NodeDeleteErrorFailedToDelete"
GB = 10**9


def on(where: str, i: int, *, ds: bool = False) -> Pod:
    """A pod that may always go: a core and a gigabyte."""
    created = pod(
        f"{where}-pod-{i}",
        1000,
        GB,
        annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        owner_references=owner("DaemonSet", "ds", "apps/v1") if ds else owner("ReplicaSet", "rs", "apps/v1"),
    )
    created.spec.node_name = where
    return created


class Case:
    """``empty``, ``drain``: names; the letter is the group, capitals are atomic. ``pods``: node -> how many."""

    def __init__(
        self,
        empty: str = "",
        drain: str = "",
        pods: dict[str, int] | None = None,
        *,
        ds: bool = False,
        force: bool = False,
        **options: Any,
    ) -> None:
        self.empty, self.drain = empty.split(), drain.split()
        self.force = force
        names = sorted({*self.empty, *self.drain})
        defaults = {
            "max_scale_down_parallelism": 10,
            "max_drain_parallelism": 5,
            "max_pod_eviction_time": timedelta(),
            "daemonset_eviction_for_empty_nodes": True,
            "daemonset_eviction_for_occupied_nodes": False,
            "skip_nodes_with_custom_controller_pods": False,
        }
        self.options = ca.AutoscalingOptions(**{**defaults, **options})
        nodes = [node(name, 8000, 8 * GB, ready=True) for name in names]
        running = [on(name, i, ds=ds) for name, count in (pods or {}).items() for i in range(count)]
        self.world = World(nodes, running)
        self.snapshot = Cluster([*nodes, *running]).snapshot()
        self.groups = Groups(self._group(letter, names) for letter in dict.fromkeys(name[0] for name in names))
        self.actuator = Actuator(self.options)
        self.started: StartedDeletion | None = None

    def _group(self, letter: str, names: list[str]) -> NodeGroup:
        members = [name for name in names if name[0] == letter]
        own = None
        if letter.isupper():
            own = NodeGroupOptions(zero_or_max_node_scaling=True)
        size = len(members)
        return NodeGroup(id=letter, max_size=1000, target_size=size, nodes=members, instances=members, options=own)

    def run(self) -> StartedDeletion:
        machine = self.actuator.start_deletion(self.empty, self.drain, self.snapshot, self.groups, force=self.force)
        result: StartedDeletion = run_virtually(machine, self.world.perform, now=N0)
        return result

    def results(self) -> dict[str, str]:
        return {name: item.result for name, item in self.actuator.tracker.results(N0)[0].items()}

    def deleted(self) -> list[str]:
        return sorted(name for _, nodes in self.world.deleted for name in nodes)


def spread(names: str, count: int = 2) -> dict[str, int]:
    return dict.fromkeys(names.split(), count)


def broken(case: Case, *, taint: str = "", evict: str = "", cloud: str = "", listed: str = "") -> Case:
    case.world.no_taint.update(taint.split())
    case.world.no_eviction.update(dict.fromkeys(evict.split(), never))
    case.world.cloud_refuses.update(cloud.split())
    return case


FAILING = "a0-pod-0 a0-pod-1 a2-pod-1"
KEPT, FREED = ["+T"], ["+T", "-T"]
STARTED, NOTHING, ERROR = "ScaleDownNodeDeleteStarted", "ScaleDownNoNodeDeleted", "ScaleDownError"

BOTH = {"a0": KEPT, "a1": KEPT}

ROWS = [
    # name, how to make the case, result, reported nodes, deleted, evicted, marks, results
    ("nothing", lambda: Case(), NOTHING, "", "", 0, {}, {}),
    ("empty", lambda: Case("a0 a1"), STARTED, "a0 a1", "a0 a1", 0, BOTH, {"a0": OK, "a1": OK}),
    (
        "empty-atomic",
        lambda: Case("A0 A1"),
        STARTED, "A0 A1", "A0 A1", 0, {"A0": KEPT, "A1": KEPT}, {"A0": OK, "A1": OK},
    ),
    ("drain", lambda: Case("", "a0 a1", spread("a0 a1")), STARTED, "a0 a1", "a0 a1", 4, BOTH, {"a0": OK, "a1": OK}),
    (
        "both",
        lambda: Case("a0 a1", "b2 b3", spread("b2 b3")),
        STARTED, "a0 a1 b2 b3", "a0 a1 b2 b3", 4,
        dict.fromkeys(("a0", "a1", "b2", "b3"), KEPT), dict.fromkeys(("a0", "a1", "b2", "b3"), OK),
    ),
    (
        "atomic-mixed",
        lambda: Case("A0", "A1 B0 B1", {"A1": 1, "B0": 2, "B1": 2}),
        STARTED, "A0 A1 B0 B1", "A0 A1 B0 B1", 5,
        dict.fromkeys(("A0", "A1", "B0", "B1"), KEPT), dict.fromkeys(("A0", "A1", "B0", "B1"), OK),
    ),
    (
        "empty-not-tainted",
        lambda: broken(Case("a0 a1 a2 a3", "b4", spread("b4")), taint="a2"),
        ERROR, "", "", 0, dict.fromkeys(("a0", "a1", "a3"), FREED), {},
    ),
    (
        "drain-not-tainted",
        lambda: broken(Case("a0 a1", "b2 b3 b4 b5", spread("b2 b3 b4 b5")), taint="b2"),
        ERROR, "a0 a1", "a0 a1", 0,
        {**BOTH, **dict.fromkeys(("b3", "b4", "b5"), FREED)}, {"a0": OK, "a1": OK},
    ),
    (
        "not-evicted",
        lambda: broken(Case("", "a0 a1 a2 a3", spread("a0 a1 a2 a3", 3)), evict=FAILING),
        STARTED, "a0 a1 a2 a3", "a1 a3", 9,
        {"a0": FREED, "a1": KEPT, "a2": FREED, "a3": KEPT}, {"a0": EVICTION, "a1": OK, "a2": EVICTION, "a3": OK},
    ),
    (
        "not-evicted-forced",
        lambda: broken(Case("", "a0 a1 a2 a3", spread("a0 a1 a2 a3", 3), force=True), evict=FAILING),
        STARTED, "a0 a1 a2 a3", "a0 a1 a2 a3", 9,
        dict.fromkeys(("a0", "a1", "a2", "a3"), KEPT), dict.fromkeys(("a0", "a1", "a2", "a3"), OK),
    ),
    (
        "cloud-refuses",
        lambda: broken(Case("a0 b1", "c2 d3", spread("c2 d3")), cloud="b1 d3"),
        STARTED, "a0 b1 c2 d3", "a0 c2", 4,
        {"a0": KEPT, "b1": FREED, "c2": KEPT, "d3": FREED}, {"a0": OK, "b1": DELETE, "c2": OK, "d3": DELETE},
    ),
    (
        "daemon-sets-on-empty",
        lambda: broken(Case("a0 a1", "", spread("a0 a1"), ds=True), evict="a1-pod-0"),
        STARTED, "a0 a1", "a0 a1", 3, BOTH, {"a0": OK, "a1": OK},
    ),
    (
        "daemon-sets-only",
        lambda: Case("", "a0 a1", spread("a0 a1"), ds=True),
        STARTED, "a0 a1", "a0 a1", 0, BOTH, {"a0": OK, "a1": OK},
    ),
    (
        "not-empty",
        lambda: Case("a0 a1", "", spread("a0 a1")),
        STARTED, "a0 a1", "", 0, {"a0": FREED, "a1": FREED}, {"a0": INTERNAL, "a1": INTERNAL},
    ),
    (
        "not-empty-atomic",
        lambda: Case("a0 a1 B0 B1", "", {"a1": 1, "B1": 1}),
        STARTED, "B0 B1 a0 a1", "a0", 0,
        {"a0": KEPT, "a1": FREED, "B0": FREED, "B1": FREED}, {"a0": OK, "a1": INTERNAL, "B0": DELETE, "B1": INTERNAL},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "result", "reported", "deleted", "evicted", "marks", "results"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_upstreams_table(
    make: Callable[[], Case],
    result: str,
    reported: str,
    deleted: str,
    evicted: int,
    marks: dict[str, list[str]],
    results: dict[str, str],
) -> None:
    case = make()
    started = case.run()
    assert started.result == result
    assert [item.node for item in started.nodes] == reported.split()
    assert case.deleted() == deleted.split()
    assert len(case.world.evicted) == evicted
    assert case.world.marks == marks
    assert case.results() == results
    assert case.actuator.tracker.in_progress() == ca.DeletionsInProgress()
    assert (started.error is not None) is (result == ERROR)


@pytest.mark.parametrize(
    ("make", "utilization", "evicted"),
    [
        (lambda: Case("a0"), 0.0, []),
        (lambda: Case("", "a0", {"a0": 2}), 0.25, ["default/a0-pod-0", "default/a0-pod-1"]),
        (lambda: Case("a0", "", {"a0": 2}, ds=True), 0.25, []),
        (lambda: Case("a0", "", {"a0": 2}, ds=True, ignore_daemonsets_utilization=True), 0.0, []),
        (lambda: Case("", "a0", {"a0": 2}, ds=True), 0.25, []),
    ],
    ids=["empty", "drain", "daemon-sets", "daemon-sets-ignored", "drain-daemon-sets"],
)
def test_node_report_has_utilization_and_evicted_pods(
    make: Callable[[], Case], utilization: float, evicted: list[str]
) -> None:
    (result,) = make().run().nodes
    assert (result.node, result.group) == ("a0", "a")
    assert result.utilization.utilization == utilization
    assert result.evicted_pods == evicted


def test_failed_evictions_are_reported_per_pod() -> None:
    case = broken(Case("", "a0", {"a0": 3}), evict="a0-pod-0 a0-pod-1")
    case.run()
    result = case.actuator.tracker.results(N0)[0]["a0"]
    evictions = {name: (item.successful, item.timed_out, item.error) for name, item in result.evictions.items()}
    text = "failed to evict pod default/{} within allowed timeout (last error: no eviction)".format
    assert evictions == {
        "a0-pod-0": (False, True, text("a0-pod-0")),
        "a0-pod-1": (False, True, text("a0-pod-1")),
        "a0-pod-2": (True, False, None),
    }
    errors = f"{text('a0-pod-0')} {text('a0-pod-1')}"
    assert result.error is not None
    assert result.error.type == "apiCallError"
    assert result.error.message == f"Failed to drain node /a0, due to following errors: [{errors}]"
    assert case.actuator.tracker.take_registered() == []
    assert [labels for name, _, labels in case.world.metrics if name == "cluster_autoscaler_evicted_pods_total"] == [
        {"eviction_result": "failed"},
        {"eviction_result": "failed"},
        {"eviction_result": "succeeded"},
    ]


def test_events_are_emitted_in_order() -> None:
    case = Case("a0", "b1", {"b1": 2})
    case.run()
    events = [(event.about, event.reason, event.message) for event in case.world.events]
    status = "ConfigMap/kube-system/cluster-autoscaler-status"
    text = "marked the node as toBeDeleted/unschedulable"
    utilization = "{0.25 0.25 0 0 memory 0.25}"
    assert events[:4] == [
        ("Node/a0", "ScaleDown", text),
        (status, "ScaleDownEmpty", 'Scale-down: removing empty node "a0"'),
        ("Node/b1", "ScaleDown", text),
        (
            status,
            "ScaleDown",
            f"Scale-down: removing node b1, utilization: {utilization}, pods to reschedule: b1-pod-0,b1-pod-1",
        ),
    ]
    assert sorted(events[4:]) == sorted(
        [
            ("Node/a0", "ScaleDown", "nodes removed by cluster autoscaler"),
            (status, "ScaleDownEmpty", "Scale-down: empty node a0 removed"),
            ("Pod/default/b1-pod-0", "ScaleDown", "deleting pod for node scale down"),
            ("Pod/default/b1-pod-1", "ScaleDown", "deleting pod for node scale down"),
            ("Node/b1", "ScaleDown", "nodes removed by cluster autoscaler"),
            (status, "ScaleDown", "Scale-down: node b1 removed with drain"),
        ]
    )
    down = "cluster_autoscaler_scaled_down_nodes_total"
    reasons = [labels["reason"] for name, _, labels in case.world.metrics if name == down]
    assert reasons == ["empty", "underutilized"]


def test_devices_of_deleted_nodes_are_counted() -> None:
    case = Case("a0 b0")
    slices = [ResourceSlice(spec=ResourceSliceSpec(driver=driver)) for driver in ("gpu.nvidia.com", "mine")]
    like = NodeTemplate(node=node("like", 8000, 8 * GB), resource_slices=slices)
    case.groups = Groups([replace(case.groups["a"], template=like), case.groups["b"]])
    case.run()
    down = "cluster_autoscaler_scaled_down_nodes_total"
    drivers = [labels["dra_drivers"] for name, _, labels in case.world.metrics if name == down]
    assert sorted(drivers) == ["", "custom.driver,gpu.nvidia.com"]


def test_failed_taint_emits_two_events() -> None:
    case = broken(Case("a0 a1"), taint="a1")
    started = case.run()
    assert started.error is not None
    assert (started.error.type, started.error.message) == (
        "apiCallError",
        "couldn't taint 1 nodes with ToBeDeleted",
    )
    text = "failed to mark the node as toBeDeleted/unschedulable: no taint"
    assert [event.message for event in case.world.events if event.about == "Node/a1"] == [text, text]
    assert case.world.cordons == {"a0": False}


def keeping_taints(case: Case, names: str, *, read: bool = False) -> Case:
    """A world in which nodes do not lose their taints; ``read``: since they cannot even be read."""
    update, perform = case.world._update, case.world.perform

    def refuse(action: Patch, now: Moment) -> ApiError | str | None:
        assert isinstance(action.patch, dict)
        if action.name in names.split() and not action.patch["spec"]["taints"]:
            return ApiError("changed", reason="Conflict") if read else "away"
        return update(action, now)

    def unread(action: Action, now: Moment) -> Outcome:
        if read and isinstance(action, Get) and action.kind == "Node" and case.world.marks:
            return Outcome(at=now, error=ApiError("no answer"))
        return perform(action, now)

    case.world._update = refuse
    case.world.perform = unread
    return case


ROLLED_BACK = "Error while releasing ToBeDeletedByClusterAutoscaler taints on node a0: away"
UNREAD = "Error while removing ToBeDeletedByClusterAutoscaler taints from node a0: no answer"


@pytest.mark.parametrize(("read", "message"), [(False, ROLLED_BACK), (True, UNREAD)])
def test_a_node_that_keeps_its_taint_when_another_could_not_be_marked_is_logged(read: bool, message: str) -> None:
    case = keeping_taints(broken(Case("a0 a1"), taint="a1"), "a0", read=read)
    assert case.run().result == ERROR
    assert case.world.marks == {"a0": KEPT}
    assert case.actuator.tracker.take_warnings() == [message]
    assert case.actuator.tracker.take_warnings() == []


def test_a_node_that_keeps_its_taint_when_its_deletion_failed_is_logged() -> None:
    case = keeping_taints(broken(Case("a0 a1"), cloud="a0"), "a0")
    case.run()
    assert case.results()["a0"] == DELETE
    assert case.actuator.tracker.take_warnings() == [ROLLED_BACK]


@pytest.mark.parametrize("cordon", [False, True])
def test_nodes_are_cordoned_and_freed(cordon: bool) -> None:
    case = Case("a0", "", {"a0": 1}, cordon_node_before_terminating=cordon)
    case.run()
    assert case.world.marks == {"a0": FREED}
    assert case.world.cordons == {"a0": False if cordon else None}
    assert case.world.nodes["a0"].spec.taints == []
    text = 'failed to delete empty node: failed to delete empty node "a0", new pods scheduled'
    assert case.world.events[-1].message == text


@pytest.mark.parametrize(
    ("failure", "drain", "text"),
    [
        ("listing_fails", False, "createSnapshot returned error down"),
        ("listing_fails", True, "createSnapshot returned error down"),
        ("budgets_fail", True, "podDisruptionBudgetLister.List returned error down"),
        ("controllers_fail", True, "controllers cannot be listed: down"),
    ],
)
def test_nodes_stay_when_a_lookup_fails(failure: str, drain: bool, text: str) -> None:
    case = Case("", "a0 a1", spread("a0 a1")) if drain else Case("a0 a1")
    setattr(case.world, failure, "down")
    case.run()
    assert case.deleted() == []
    assert case.world.marks == dict.fromkeys(("a0", "a1"), FREED)
    result = case.actuator.tracker.results(N0)[0]
    assert [item.result for item in result.values()] == [INTERNAL, INTERNAL]
    assert {item.error.message for item in result.values() if item.error} == {text}


def test_budgets_do_not_matter_to_empty_nodes() -> None:
    case = Case("a0")
    case.world.budgets_fail = "down"
    case.run()
    assert case.deleted() == ["a0"]


def pdb(name: str, selector: LabelSelector, allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=selector),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


BROKEN = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near")])
WEB = LabelSelector(match_labels={"app": "web"})


@pytest.mark.parametrize(
    ("budgets", "goes"),
    [
        ([], True),
        ([pdb("one", WEB, 1)], True),
        ([pdb("none", WEB, 0)], False),
        ([pdb("broken", BROKEN, 0), pdb("none", WEB, 0)], True),
        ([pdb("none", WEB, 0), pdb("broken", BROKEN, 0)], False),
    ],
    ids=["none", "allows", "exhausted", "broken-first", "broken-last"],
)
def test_budgets_are_looked_at_once_more(budgets: list[PodDisruptionBudget], goes: bool) -> None:
    """Each node is judged by the budgets as they are: what others take does not count. Of broken ones none follow."""
    case = Case("", "a0 a1")
    for name in ("a0", "a1"):
        created = pod(f"{name}-web", 100, labels={"app": "web"}, owner_references=owner("ReplicaSet", "rs", "apps/v1"))
        created.spec.node_name = name
        case.world.pods[created.key] = created
    case.world.budgets = budgets
    case.run()
    assert case.deleted() == (["a0", "a1"] if goes else [])
    if not goes:
        error = case.actuator.tracker.results(N0)[0]["a0"].error
        assert error is not None
        text = "not enough pod disruption budget to move default/a0-web"
        assert error.message == f'GetPodsToMove for "a0" returned error: {text}'


def test_pods_that_are_to_finish_hold_an_empty_node() -> None:
    case = Case("a0")
    created = on("a0", 1)
    created.metadata.annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}
    case.world.pods[created.key] = created
    case.run()
    error = case.actuator.tracker.results(N0)[0]["a0"].error
    assert error is not None
    assert error.message == 'failed to delete empty node "a0", active on-completion pods present'


def test_expendable_pods_are_not_looked_at() -> None:
    case = Case("a0")
    created = on("a0", 1)
    created.spec.priority = -11
    case.world.pods[created.key] = created
    case.run()
    assert case.deleted() == ["a0"]


# -- time -----------------------------------------------------------------------------------------------------------


def test_the_loop_goes_on_when_all_nodes_are_tainted() -> None:
    """Five at a time; and what follows begins after a while."""
    names = " ".join(f"a{i}" for i in range(7))
    case = Case(names)
    case.world.takes = {Patch: SECOND}
    result: list[Any] = []
    simulation = VirtualTime(case.world.perform, now=N0)
    machine = case.actuator.start_deletion(case.empty, [], case.snapshot, case.groups)
    simulation.start(machine, lambda value, at: result.append((value.result, at)))
    simulation.run(N0 + span(seconds=6.9))
    assert result == [(STARTED, N0 + span(seconds=2))]
    assert case.deleted() == []
    status = case.actuator.tracker.status(simulation.now)
    assert [item.node for item in status.deleting] == names.split()
    assert status.deletions == {"a": 7}
    simulation.run(N0 + span(seconds=7))
    assert case.deleted() == names.split()
    assert simulation.idle


@pytest.mark.parametrize(
    ("lag", "delay"),
    [(0.1, 0.2), (0.12, 0.3), (1, 2), (None, 5)],
    ids=["100ms", "between-two-looks", "1s", "never"],
)
def test_the_delay_follows_the_latency_of_taints(lag: float | None, delay: float) -> None:
    """Twice the longest latency of the hour before; what never showed up leaves it as it is."""
    case = Case("a0 a1", dynamic_node_delete_delay_after_taint_enabled=True)
    case.world.lag = lambda name: None if lag is None else span(seconds=lag)
    sent_at: list[Any] = []
    perform = case.world.perform

    def spy(action: Action, now: Moment) -> Outcome:
        if isinstance(action, List):
            sent_at.append(now)
        return perform(action, now)

    started: list[Any] = []
    simulation = VirtualTime(spy, now=N0)
    machine = case.actuator.start_deletion(case.empty, [], case.snapshot, case.groups)
    simulation.start(machine, lambda value, at: started.append(at))
    simulation.run()
    assert sent_at == [started[0] + span(seconds=delay)]


def test_a_failed_taint_ends_the_measurement() -> None:
    case = broken(Case("a0 a1", dynamic_node_delete_delay_after_taint_enabled=True), taint="a1")
    assert case.run().result == ERROR
    assert case.world.marks == {"a0": FREED}


# -- from start to start ---------------------------------------------------------------------------------------------


def test_deletions_in_progress_count_towards_budgets() -> None:
    case = Case("a0 a1", "b2", {"b2": 1}, max_scale_down_parallelism=2, max_drain_parallelism=1)
    case.world.lingers = {"b2-pod-0": span(minutes=5)}
    simulation = VirtualTime(case.world.perform, now=N0)
    simulation.start(case.actuator.start_deletion([], ["b2"], case.snapshot, case.groups))
    simulation.run(N0 + span(seconds=10))
    assert case.actuator.tracker.in_progress() == ca.DeletionsInProgress(drained=1)
    result: list[StartedDeletion] = []
    machine = case.actuator.start_deletion(["a0", "a1"], [], case.snapshot, case.groups)
    simulation.start(machine, lambda value, _: result.append(value))
    simulation.run(N0 + span(seconds=20))
    assert [item.node for item in result[0].nodes] == ["a0"]
    assert case.deleted() == ["a0"]
    simulation.run()
    assert case.deleted() == ["a0", "b2"]


def test_a_group_may_try_again_in_the_next_start() -> None:
    case = Case("A0 A1", "", {"A1": 1})
    case.run()
    assert case.results() == {"A0": DELETE, "A1": INTERNAL}
    case.world.pods.clear()
    case.actuator.tracker.clear_results_not_newer_than(N0 + span(hours=1))
    case.run()
    assert case.results() == {"A0": OK, "A1": OK}
    assert case.world.deleted == [("A", ["A0", "A1"])]


@pytest.mark.parametrize("refused", [False, True])
def test_node_that_cannot_be_prepared_is_deleted_by_force(refused: bool) -> None:
    """A node that cannot be prepared is deleted by force, and then, as upstream has it, deleted like any other."""
    case = broken(Case("", "a0", {"a0": 1}, force=True), evict="a0-pod-0")
    case.world.no_delete = {"a0-pod-0"}
    case.world.force_refuses = {"a0"} if refused else set()
    case.run()
    assert case.world.force_deleted_nodes == ([] if refused else ["a0"])
    assert case.deleted() == ([] if refused else ["a0"])
    assert case.results() == {"a0": DELETE if refused else OK}


@pytest.mark.parametrize(
    ("case_of", "change"),
    [
        (lambda: Case("a0"), {"scale_down": {"a": N0 + span(seconds=5)}}),
        (lambda: broken(Case("a0"), cloud="a0"), {"scale_down_failure": {"a": N0 + span(seconds=5)}}),
        (lambda: Case("a0", "", {"a0": 1}), {}),
    ],
    ids=["deleted", "refused", "not-empty"],
)
def test_state_records_deletions_per_group_and_cluster(case_of: Callable[[], Case], change: dict[str, Any]) -> None:
    """Only the answer of the cloud moves the delays of a group; that a deletion began moves those of the cluster."""
    case = case_of()
    started = case.run()
    state = record_deletion_start(ca.LoopState(), started, N0)
    assert state.scale_down.last_scale_down == N0
    assert state.scale_down.last_failure is None
    state = record_deletions(state, case.actuator.tracker.take_registered())
    assert state.scale_down.changes == GroupChanges(**change)
    requests = state.cluster.scale_down_requests
    assert [(item.group, item.node) for item in requests] == ([("a", "a0")] if "scale_down" in change else [])
    assert ca.LoopState.from_json(state.to_json()) == state


def test_failure_before_the_deletion_is_recorded() -> None:
    started = broken(Case("a0"), taint="a0").run()
    state = record_deletion_start(ca.LoopState(), started, N0)
    assert (state.scale_down.last_scale_down, state.scale_down.last_failure) == (None, N0)


def test_unknown_node_is_an_input_error() -> None:
    case = Case("a0")
    with pytest.raises(InputError, match="there is no node a7"):
        case.actuator.start_deletion(["a0"], ["a7"], case.snapshot, case.groups)


def test_a_node_of_no_group_is_passed_over() -> None:
    case = Case("a0 a1")
    case.groups = Groups([NodeGroup(id="a", max_size=9, target_size=1, nodes=["a0"], instances=["a0"])])
    started = case.run()
    assert [item.node for item in started.nodes] == ["a0"]
    assert case.world.marks == {"a0": KEPT}
