"""What happens to the pods of a node that is drained: upstream's tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import N0, at, owner, pod
from kscale import ca
from kscale.ca.scale_down import drainability
from kscale.ca.scale_down.drainability import DrainContext, Rule, get_default_rules, get_drain_status, get_pods_to_move
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.unremovable_reasons import DrainStatus
from kscale.objects.api.apps import DaemonSet, Job, ReplicaSet, ReplicaSetSpec, StatefulSet
from kscale.objects.api.core import Pod, ReplicationController, ReplicationControllerSpec
from kscale.objects.api.meta import LabelSelector, ObjectMeta
from kscale.objects.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kscale.objects.api.volumes import Volume

_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_OPTIONS = ca.AutoscalingOptions()


def _meta(name: str, namespace: str = "default") -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace)


_LISTERS = ca.Listers([
    ReplicationController(metadata=_meta("rc"), spec=ReplicationControllerSpec(replicas=5)),
    ReplicaSet(metadata=_meta("rs"), spec=ReplicaSetSpec(replicas=5)),
    DaemonSet(metadata=_meta("ds")),
    Job(metadata=_meta("job")),
    StatefulSet(metadata=_meta("ss")),
])  # fmt: skip


def _pdb(name: str, namespace: str, allowed: int = 1, **labels: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=_meta(name, namespace),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def _owned(name: str = "p", kind: str = "ReplicaSet", by: str = "rs", api: str = "apps/v1", **more: Any) -> Pod:
    return pod(name, owner_references=owner(kind, by, api), **more)


def _rc(name: str = "p", **more: Any) -> Pod:
    return _owned(name, "ReplicationController", "rc", "v1", **more)


def _job(name: str = "p", **more: Any) -> Pod:
    return _owned(name, "Job", "job", "batch/v1", **more)


def _phase(phase: str, restart_policy: str, **more: Any) -> Pod:
    created = pod("p", spec={"restart_policy": restart_policy}, **more)
    created.status.phase = phase
    return created


def _volumes(*names: str, **source: Any) -> dict[str, Any]:
    return {"volumes": [Volume(name=name, **(source or {"empty_dir": {}})) for name in names]}


def _system(name: str = "p", created: str | None = None, **more: Any) -> Pod:
    return _owned(name, namespace="kube-system", creation_timestamp=created, **more)


_OLD, _YOUNG = at(minutes=-61), at(minutes=-59)


@pytest.mark.parametrize(
    ("pods", "moved", "daemonset", "on_completion", "blocking"),
    [
        ([pod("p")], "", "", "", "NotReplicated"),
        ([_owned()], "p", "", "", None),
        ([pod("p", namespace="kube-system", annotations={"kubernetes.io/config.mirror": "x"})], "", "", "", None),
        (
            [
                _owned("a"),
                pod("m", annotations={"kubernetes.io/config.mirror": "x"}),
                _owned("d", "DaemonSet", "ds"),
            ],
            "a",
            "d",
            "",
            None,
        ),
        ([_system()], "", "", "", "UnmovableKubeSystemPod"),
        ([_system(created=_YOUNG)], "", "", "", "UnmovableKubeSystemPod"),
        ([_system(created=_OLD)], "p", "", "", None),
        ([_system("old", _OLD), _system("young", _YOUNG)], "old", "", "", "UnmovableKubeSystemPod"),
        ([_owned(spec=_volumes("scratch"))], "", "", "", "LocalStorageRequested"),
        ([_owned(spec=_volumes("scratch", config_map={}))], "p", "", "", None),
        ([_owned(spec=_volumes("scratch", git_repo={"repository": "x"}))], "p", "", "", None),
        (
            [
                _owned("a"),
                _owned("b", deletion_timestamp=at(seconds=-90)),
                _owned("c", deletion_timestamp=at(seconds=30)),
            ],
            "a c",
            "",
            "",
            None,
        ),
        ([_owned("d", "DaemonSet", "ds")], "", "d", "", None),
        (
            [
                pod(
                    "d",
                    owner_references=owner("CustomDaemonSet", "ds", "crd/v1"),
                    annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
                )
            ],
            "",
            "d",
            "",
            None,
        ),
        ([_owned(deletion_timestamp=at(hours=-1))], "", "", "", None),
        ([_phase("Failed", "Never")], "p", "", "", None),
        ([_phase("Failed", "Always")], "p", "", "", None),
        ([_phase("Succeeded", "OnFailure")], "p", "", "", None),
        ([_phase("Succeeded", "Always")], "", "", "", "NotReplicated"),
        ([pod("p", annotations={_SAFE: "true"})], "p", "", "", None),
        ([pod("p", namespace="kube-system", annotations={_SAFE: "true"})], "p", "", "", None),
        ([pod("p", annotations={_SAFE: "true"}, spec=_volumes("scratch"))], "p", "", "", None),
        ([pod("p", annotations={_SAFE: "on-completion"})], "", "", "p", None),
        ([pod("p", annotations={_SAFE: "True"})], "", "", "", "NotReplicated"),
        ([_owned(annotations={_SAFE: "false"})], "", "", "", "NotSafeToEvictAnnotation"),
        ([_system(created=_OLD, annotations={_SAFE: "false"})], "p", "", "", None),
    ],
)
def test_pods_of_a_node(pods: list[Pod], moved: str, daemonset: str, on_completion: str, blocking: str | None) -> None:
    result = ca.check_drainability(pods, now=N0)
    assert " ".join(item.metadata.name for item in result.pods) == moved
    assert " ".join(item.metadata.name for item in result.daemon_set_pods) == daemonset
    assert " ".join(item.metadata.name for item in result.on_completion_pods) == on_completion
    assert (result.blocking.reason if result.blocking else None) == blocking
    assert (result.error is None) is (blocking is None)


@pytest.mark.parametrize(
    "item",
    [
        _rc(),
        _owned("p", "Job", "job", "batch/v1"),
        _owned("p", "StatefulSet", "ss"),
        _owned(),
        _rc(spec=_volumes("1", "2", "3"), annotations={_LOCAL: "1,2,3"}),
        _rc(spec={"termination_grace_period_seconds": 360}, deletion_timestamp=at(minutes=-3)),
    ],
)
def test_pods_with_controllers_move(item: Pod) -> None:
    assert ca.check_drainability([item], now=N0, listers=_LISTERS).pods == [item]


@pytest.mark.parametrize(
    "item",
    [
        _rc(spec={"termination_grace_period_seconds": 0}, deletion_timestamp=at(minutes=-1)),
        _owned(deletion_timestamp=at(hours=-1)),
    ],
    ids=["no-grace", "long-gone"],
)
def test_long_terminating_pods_are_ignored(item: Pod) -> None:
    result = ca.check_drainability([item], now=N0, listers=_LISTERS)
    assert (result.pods, result.blocking) == ([], None)


_BAR = {"k8s-app": "bar"}


@pytest.mark.parametrize(
    ("namespace", "budget", "blocking"),
    [
        ("default", PodDisruptionBudget(), None),
        ("kube-system", _pdb("x", "kube-system", 1, **_BAR), None),
        ("kube-system", _pdb("x", "kube-system", 1, **{"k8s-app": "foo"}), "UnmovableKubeSystemPod"),
        ("kube-system", _pdb("x", "default", 1, **_BAR), "UnmovableKubeSystemPod"),
        ("default", _pdb("x", "kube-system", 1, **_BAR), None),
    ],
)
def test_pods_of_replication_controllers_and_budgets(
    namespace: str, budget: PodDisruptionBudget, blocking: str | None
) -> None:
    """The controllers are there, as upstream's rows have them."""
    controllers = [ReplicationController(metadata=_meta("rc", name), spec=ReplicationControllerSpec(replicas=5))
                   for name in ("default", "kube-system")]  # fmt: skip
    item = _rc(namespace=namespace, labels=_BAR)
    result = ca.check_drainability([item], now=N0, listers=ca.Listers(controllers), pdbs=RemainingPdbTracker([budget]))
    assert (result.blocking.reason if result.blocking else None) == blocking
    assert result.pods == ([] if blocking else [item])


@pytest.mark.parametrize(
    ("item", "budget", "blocking"),
    [
        (_owned(labels={"a": "b"}), _pdb("x", "default", 0, a="b"), "NotEnoughPdb"),
        (_owned(labels={"a": "b"}), _pdb("x", "default", 1, a="b"), None),
        (_owned(labels={"a": "b"}), _pdb("x", "other", 0, a="b"), None),
        (_owned(labels={"a": "c"}), _pdb("x", "default", 0, a="b"), None),
        (_system(labels={"k8s-app": "bar"}), _pdb("x", "kube-system", 1, **{"k8s-app": "bar"}), None),
        (
            _system(labels={"k8s-app": "bar"}),
            _pdb("x", "kube-system", 1, **{"k8s-app": "foo"}),
            "UnmovableKubeSystemPod",
        ),
        (_system(labels={"k8s-app": "bar"}), _pdb("x", "default", 1, **{"k8s-app": "bar"}), "UnmovableKubeSystemPod"),
        (_rc(), PodDisruptionBudget(), None),
        (_rc(labels={"k8s-app": "bar"}), _pdb("x", "kube-system", 0, **{"k8s-app": "bar"}), None),
        (_owned("p", "DaemonSet", "ds", labels={"a": "b"}), _pdb("x", "default", 0, a="b"), None),
        (pod("p", labels={"a": "b"}, annotations={_SAFE: "true"}), _pdb("x", "default", 0, a="b"), None),
    ],
)
def test_disruption_budgets(item: Pod, budget: PodDisruptionBudget, blocking: str | None) -> None:
    result = ca.check_drainability([item], now=N0, pdbs=RemainingPdbTracker([budget]))
    assert (result.blocking.reason if result.blocking else None) == blocking


# -- rules -----------------------------------------------------------------------------------------------------


def _context(**options: Any) -> DrainContext:
    return DrainContext(N0, ca.AutoscalingOptions(**options), _LISTERS)


def _rule(outcome: str, *overrides: str) -> Rule:
    status = DrainStatus(outcome=outcome, blocking_reason="UnexpectedError", error="e", overrides=overrides)
    return Rule(f"{outcome}{overrides}", lambda pod, context: status)


_U, _OK, _BLOCK, _SKIP = "UndefinedOutcome", "DrainOk", "BlockDrain", "SkipDrain"


@pytest.mark.parametrize(
    ("rules", "decides"),
    [
        ([], None),
        ([_rule(_U), _rule(_OK), _rule(_SKIP)], 1),
        ([_rule(_OK, _BLOCK), _rule(_BLOCK)], 0),
        ([_rule(_OK, _SKIP), _rule(_BLOCK)], 1),
        ([_rule(_SKIP), _rule(_OK, _BLOCK), _rule(_BLOCK)], 0),
        ([_rule(_OK, _SKIP), _rule(_SKIP, _BLOCK), _rule(_BLOCK)], 1),
        ([_rule(_SKIP, _BLOCK), _rule(_OK, _BLOCK), _rule(_BLOCK)], 0),
    ],
)
def test_engine(rules: list[Rule], decides: int | None) -> None:
    status = get_drain_status(pod("p"), _context(), rules)
    assert status.rule == ("" if decides is None else rules[decides].name)


def test_rules_of_the_user_go_first() -> None:
    naked, owned = pod("p"), _owned()
    for before in ([], [_rule(_U)]):
        rules = [*before, _rule(_OK), *get_default_rules(_OPTIONS)]
        assert get_pods_to_move([naked], _context(), rules).pods == [naked]
        rules = [*before, *get_default_rules(_OPTIONS)]
        assert get_pods_to_move([owned], _context(), rules).pods == [owned]
        blocked = get_pods_to_move([naked], _context(), rules).blocking
        assert blocked is not None
        assert blocked.reason == "NotReplicated"
        rules = [*before, _rule(_BLOCK), *get_default_rules(_OPTIONS)]
        result = get_pods_to_move([owned], _context(), rules)
        assert result.blocking is not None
        assert result.blocking.reason == "UnexpectedError"


@pytest.mark.parametrize(
    ("grace", "deleted", "outcome"),
    [
        (None, None, _U),
        (0, at(seconds=15), _U),
        (0, at(seconds=-60), _SKIP),
        (360, at(seconds=180), _U),
        (360, at(seconds=-720), _SKIP),
    ],
)
def test_long_terminating(grace: int | None, deleted: str | None, outcome: str) -> None:
    item = pod("p", spec={"termination_grace_period_seconds": grace}, deletion_timestamp=deleted)
    assert drainability.check_long_terminating(item, _context()).outcome == outcome


@pytest.mark.parametrize(
    ("volumes", "annotation", "blocks"),
    [
        (["scratch"], None, True),
        (["scratch"], "scratch", False),
        (["scratch"], "", True),
        (["scratch-1"], "scratch-2", True),
        (["1", "2", "3"], "1,2,3", False),
        (["1", "2", "3"], "1,2,5", True),
        (["1", "2", "3"], "1,2", True),
        (["1", "2", "3"], ",", True),
        (["1", "2"], "1, 2", True),
    ],
)
def test_local_storage(volumes: list[str], annotation: str | None, blocks: bool) -> None:
    annotations = None if annotation is None else {_LOCAL: annotation}
    item = _rc(spec=_volumes(*volumes), annotations=annotations)
    assert (ca.check_drainability([item], now=N0, listers=_LISTERS).blocking is not None) is blocks


@pytest.mark.parametrize(
    ("source", "blocks"),
    [({"host_path": {}}, True), ({"empty_dir": {"medium": "Memory"}}, False), ({"secret": {}}, False)],
)
def test_local_storage_blocks_eviction(source: dict[str, Any], blocks: bool) -> None:
    assert (ca.check_drainability([_owned(spec=_volumes("v", **source))], now=N0).blocking is not None) is blocks


@pytest.mark.parametrize(
    ("item", "exists"),
    [
        (_rc(), True),
        (_owned("p", "ReplicationController", "missing", "v1"), False),
        (_owned("p", "Job", "missing", "batch/v1"), False),
        (_owned("p", "StatefulSet", "missing"), False),
        (_owned("p", "ReplicaSet", "missing"), False),
        (_owned("p", "ReplicaSet", "missing", "anything/v1"), False),
        (_owned("p", "DaemonSet", "missing"), False),
        (_owned("p", "DaemonSet", "missing", "crd/v1"), True),
        (_owned("p", "CustomDaemonSet", "missing", "crd/v1"), True),
        (_owned("p", "StatefulSet", "missing", "kruise/v1"), True),
        (_owned("p", "ReplicaSet", "missing", "a/b/c"), True),
        (_owned(deletion_timestamp=at(minutes=5)), True),
        (pod("p"), True),
    ],
)
def test_controllers_must_exist(item: Pod, exists: bool) -> None:
    status = drainability.check_replica_count(item, _context())
    assert status.outcome == (_U if exists else _BLOCK)
    assert exists or status.blocking_reason == "ControllerNotFound"


@pytest.mark.parametrize(
    ("check", "item", "outcome"),
    [
        *((drainability.check_not_safe_to_evict, kind(annotations=annotations), outcome)
          for kind in (_rc, _job)
          for annotations, outcome in (({_SAFE: "true"}, _U), (None, _U), ({_SAFE: "false"}, _BLOCK))),
        (drainability.check_on_completion, pod("p", annotations={_SAFE: "on-completion"}), "WaitForCompletion"),
        *((drainability.check_on_completion, pod("p", annotations=annotations), _U)
          for annotations in ({_SAFE: "true"}, {_SAFE: "false"}, None)),
        (drainability.check_terminal, _phase("Succeeded", "OnFailure"), _OK),
        (drainability.check_terminal, _phase("Failed", "Never"), _OK),
        (drainability.check_terminal, pod("p"), _U),
        *((drainability.check_replica_count, item, _U)
          for item in (_job(), _owned("p", "StatefulSet", "ss"), _owned(), _owned("p", "DaemonSet", "ds", "crd/v1"),
                       _owned("p", "CustomDaemonSet", "ds", "crd/v1"), _owned("p", "StatefulSet", "ss", "kruise/v1"))),
    ],
)  # fmt: skip
def test_single_rules(check: Callable[[Pod, DrainContext], DrainStatus], item: Pod, outcome: str) -> None:
    assert check(item, _context()).outcome == outcome


@pytest.mark.parametrize("skip", [False, True])
def test_replicated_pods_are_recognized_by_their_owner(skip: bool) -> None:
    context = _context(skip_nodes_with_custom_controller_pods=skip)
    for item in (_rc(), _job(), _owned("p", "StatefulSet", "ss"), _owned(), _owned(deletion_timestamp=at(minutes=5))):
        assert drainability.check_replicated(item, context).outcome == _U
    assert drainability.check_replicated(pod("p"), context).blocking_reason == "NotReplicated"
    custom = drainability.check_replicated(_owned("p", "FooController", "x"), context)
    assert custom.outcome == (_BLOCK if skip else _U)
    assert not skip or custom.blocking_reason == "NotReplicated"


@pytest.mark.parametrize("budget", [PodDisruptionBudget(), _pdb("x", "kube-system", 0, a="b")])
def test_system_pods_are_those_of_one_namespace(budget: PodDisruptionBudget) -> None:
    context = DrainContext(N0, _OPTIONS, _LISTERS, RemainingPdbTracker([budget]))
    assert drainability.check_system(_rc(labels={"a": "b"}), context).outcome == _U
    assert get_pods_to_move([_rc(labels={"a": "b"})], context, get_default_rules(_OPTIONS)).blocking is None


def test_controllers_must_have_replicas_to_spare() -> None:
    status = drainability.check_replica_count(_owned(), _context(min_replica_count=6))
    assert status.blocking_reason == "MinReplicasReached"
    assert drainability.check_replica_count(_owned(), _context(min_replica_count=5)).outcome == _U


def test_custom_controllers() -> None:
    item = _owned("p", "FooController", "x")
    assert ca.check_drainability([item], now=N0).blocking is not None
    options = ca.AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)
    assert ca.check_drainability([item], now=N0, options=options).pods == [item]


@pytest.mark.parametrize(("created", "outcome"), [(None, _BLOCK), (at(seconds=-59), _BLOCK), (at(seconds=-61), _OK)])
def test_system_pods_that_block_for_a_while(created: str | None, outcome: str) -> None:
    context = _context(blocking_system_pod_distruption_timeout=timedelta(minutes=1))
    assert drainability.check_system(_system(created=created), context).outcome == outcome


# -- disruption budgets that are charged -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "allowed", "can_remove", "in_parallel"),
    [
        ((2, 1, 0), None, True, True),
        ((2, 1, 0), (1, 0), False, False),
        ((2, 1, 0), (1, 2), True, False),
        ((2, 3, 0), (2, 4), True, True),
        ((1, 1, 1), (1, 1), True, True),
        ((2, 2, 1), (2, 1), True, False),
    ],
)
def test_can_remove(
    counts: tuple[int, int, int], allowed: tuple[int, int] | None, can_remove: bool, in_parallel: bool
) -> None:
    one, two, both = counts
    labels = [{"label-1": "x"}] * (one - both) + [{"label-1": "x", "label-2": "x"}] * both
    labels += [{"label-2": "x"}] * (two - both)
    pods = [pod(str(i), namespace="ns", labels=item) for i, item in enumerate(labels)]
    budgets = []
    if allowed is not None:
        budgets = [
            _pdb("pdb1", "ns", allowed[0], **{"label-1": "x"}),
            _pdb("pdb2", "ns", allowed[1], **{"label-2": "x"}),
        ]
    tracker = RemainingPdbTracker(budgets)
    result = tracker.can_remove(pods)
    assert (result.can_remove, result.in_parallel) == (can_remove, in_parallel)
    assert (result.blocking is None) is (can_remove and in_parallel)
    fork = tracker.fork()
    fork.remove(pods)
    assert [pdb.disruptions_allowed for pdb in tracker.pdbs] == list(allowed or ())
    charged = [one, two][: len(tracker.pdbs)]
    assert [p.disruptions_allowed for p in fork.pdbs] == [a - c for a, c in zip(allowed or (), charged, strict=True)]


@given(st.booleans(), st.booleans(), st.booleans())
def test_rules_that_options_switch_off(custom: bool, of_system: bool, local: bool) -> None:
    options = ca.AutoscalingOptions(
        skip_nodes_with_custom_controller_pods=custom,
        skip_nodes_with_system_pods=of_system,
        skip_nodes_with_local_storage=local,
    )
    names = {rule.name for rule in get_default_rules(options)}
    assert ("ReplicaCount" in names, "System" in names, "LocalStorage" in names) == (custom, of_system, local)
    assert len(names) == 9 + custom + of_system + local
