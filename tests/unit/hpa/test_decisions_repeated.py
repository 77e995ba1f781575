"""Decisions that reuse the last batch equal decisions from nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from kscale._native import _names
from kscale.effects import SECOND
from kscale.errors import NativeError
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.batch.columns import UnchangedRows
from kscale.hpa.batch.decisions import Decisions, decide
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import Pod
from kscale.objects.api.metrics import PodMetrics
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.quantity import Quantity
from kscale.snapshot.cluster import Cluster
from unit.hpa.test_decisions import NAMES, NOW, World, ago, worlds


class Rounds:
    """What a caller has and changes: a thing is replaced by that of the same name of another world."""

    def __init__(self, world: World, other: World) -> None:
        self.other, self.options = other, world.options
        self.hpas: list[Any] = list(world.hpas)
        self.scales: dict[str, Any] = dict(world.scales)
        self.metrics = world.metrics
        self.metrics.add_pod_metrics([])
        self.cluster = Cluster()
        for pod in world.pods:
            self._put(pod)

    def _put(self, pod: Pod) -> None:
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", **to_dict(pod)})

    def _at(self, which: int) -> int:
        return which % len(self.hpas)

    def hpa(self, which: int) -> None:
        name = _name(self.hpas[self._at(which)])
        self.hpas[self._at(which)] = next(each for each in self.other.hpas if each.metadata.name == name)

    def same_hpa(self, which: int) -> None:
        hpa = self.hpas[self._at(which)]
        self.hpas[self._at(which)] = dict(hpa) if isinstance(hpa, dict) else msgspec.structs.replace(hpa)

    def plain_hpa(self, which: int) -> None:
        hpa = self.hpas[self._at(which)]
        if not isinstance(hpa, dict):
            data = {**to_dict(hpa), "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
            self.hpas[self._at(which)] = data

    def no_hpa(self, which: int) -> None:
        if len(self.hpas) > 1:
            del self.hpas[self._at(which)]

    def new_hpa(self, which: int) -> None:
        names = set(map(_name, self.hpas))
        others = [each for each in self.other.hpas if each.metadata.name not in names]
        self.hpas[which % 2 : which % 2] = others[:1]

    def order(self, which: int) -> None:
        self.hpas = self.hpas[which % 3 :] + self.hpas[: which % 3]

    def scale(self, which: int) -> None:
        key = _key(which)
        self.scales[key] = self.other.scales[key]

    def same_scale(self, which: int) -> None:
        scale = self.scales.get(_key(which))
        if isinstance(scale, Scale):
            self.scales[_key(which)] = msgspec.structs.replace(scale)

    def no_scale(self, which: int) -> None:
        self.scales.pop(_key(which), None)

    def bad_scale(self, which: int) -> None:
        self.scales[_key(which)] = {"kind": "Scale", "apiVersion": "apps/v9"}

    def selector(self, which: int) -> None:
        scale = self.scales.get(_key(which))
        if isinstance(scale, Scale):
            status = msgspec.structs.replace(scale.status, selector=("app=a", "app in (b,c)", "app=a=b", "")[which % 4])
            self.scales[_key(which)] = msgspec.structs.replace(scale, status=status)

    def pod(self, which: int) -> None:
        if self.other.pods:
            self._put(self.other.pods[which % len(self.other.pods)])

    def no_pod(self, which: int) -> None:
        pods = list(self.cluster.pods())
        if pods:
            self.cluster.remove(pods[which % len(pods)])

    def usage(self, which: int) -> None:
        usage = self.metrics.usage()
        if len(usage):
            item = usage.item(which % len(usage))
            for each in item.containers or ():
                each.usage = dict.fromkeys(each.usage, Quantity(f"{which * 37}m"))
            self.metrics.replace_pod_metrics(usage.with_changes(PodUsage.of([item])))

    def new_usage(self, which: int) -> None:
        del which
        self.metrics.replace_pod_metrics(self.other.metrics.usage())

    def other_options(self, which: int) -> None:
        del which
        self.options = self.other.options

    def decide(self, step: int, *, state: ControllerState | None, previous: Decisions | None = None) -> Decisions:
        return decide(
            self.hpas,
            self.scales,
            self.cluster,
            self.metrics,
            options=self.options,
            state=state,
            now=NOW + step * 15 * SECOND,
            previous=previous,
        )


CHANGES = (
    Rounds.hpa, Rounds.same_hpa, Rounds.plain_hpa, Rounds.no_hpa, Rounds.new_hpa, Rounds.order, Rounds.scale,
    Rounds.same_scale, Rounds.no_scale, Rounds.bad_scale, Rounds.selector, Rounds.pod, Rounds.no_pod, Rounds.usage,
    Rounds.new_usage, Rounds.other_options,
)  # fmt: skip


def _name(hpa: Any) -> str:
    name = hpa["metadata"]["name"] if isinstance(hpa, dict) else hpa.metadata.name
    return str(name)


def _key(which: int) -> str:
    return f"ns/{'abc'[which % 3]}"


def _columns(decisions: Any) -> dict[str, Any]:
    return {each.name: getattr(decisions, each.name) for each in fields(decisions)}


def _same(repeated: Decisions, fresh: Decisions) -> None:
    names = _columns(repeated).keys() - {"origin", "memory", "metrics", "problems", "carried", "sizes"}
    for name in (*names, *repeated.sizes):
        one, other = getattr(repeated, name), getattr(fresh, name)
        assert np.array_equal(np.ma.filled(one, -1), np.ma.filled(other, -1)) if len(one) else not len(other), name
    for name, one in _columns(repeated.metrics).items():
        assert np.array_equal(one, getattr(fresh.metrics, name), equal_nan=one.dtype.kind == "f"), name
    for name, one in _columns(repeated.memory.conditions).items():
        assert np.array_equal(one, getattr(fresh.memory.conditions, name)), name
    assert {row: str(each) for row, each in repeated.problems.items()} == {
        row: str(each) for row, each in fresh.problems.items()
    }
    assert repeated.state == fresh.state
    for row in range(len(repeated)):
        if row not in repeated.problems:
            assert repr(repeated[row]) == repr(fresh[row])


@st.composite
def calm_worlds(draw: st.DrawFn) -> World:
    """HPAs that go by their metrics for the most part, of pods that all count."""
    hpas: list[Any] = []
    scales: dict[str, Any] = {}
    pods, metrics = [], MetricLists()
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": draw(st.sampled_from([40, 60]))}}
    for name in NAMES:
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": reference, "maxReplicas": 9, "metrics": [{"type": "Resource", "resource": resource}]}
        metadata = {"name": name, "namespace": "ns"}
        hpas.append(apply_defaults(from_dict({"metadata": metadata, "spec": spec}, HorizontalPodAutoscaler)))
        status = ScaleStatus(replicas=2, selector=f"app={name}")
        scales[f"ns/{name}"] = Scale(spec=ScaleSpec(replicas=draw(st.sampled_from([2, 2, 2, 0]))), status=status)
        for number in range(draw(st.integers(1, 3))):
            labels = {"app": draw(st.sampled_from([name] * 5 + ["a"]))}
            metadata = {"name": f"{name}-{number}", "namespace": "ns", "labels": labels}
            containers = [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": ago(4000)}
            life = {"phase": "Running", "startTime": ago(4000), "conditions": [ready]}
            pods.append(from_dict({"metadata": metadata, "spec": {"containers": containers}, "status": life}, Pod))
            used = [{"name": "main", "usage": {"cpu": f"{draw(st.integers(10, 99))}m"}}]
            item = {"metadata": metadata, "timestamp": ago(5), "window": "30s", "containers": used}
            metrics.add_pod_metrics([from_dict(item, PodMetrics)])
    return World(hpas, scales, pods, metrics, ControllerState(), HPAOptions())


several = st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 11)), max_size=3)


@settings(max_examples=examples(1 / 4), deadline=None)
@given(worlds(), worlds(), st.lists(several, min_size=1, max_size=4))
def test_repeated_decisions_equal_fresh_ones(world: World, other: World, steps: list[list[tuple[Any, int]]]) -> None:
    _run(world, other, steps)


@given(calm_worlds(), calm_worlds(), st.lists(several, min_size=1, max_size=4))
def test_repeated_decisions_equal_fresh_ones_if_most_are_unchanged(
    world: World, other: World, steps: list[list[tuple[Any, int]]]
) -> None:
    _run(world, other, steps)


def _run(world: World, other: World, steps: list[list[tuple[Any, int]]]) -> None:
    rounds = Rounds(world, other)
    last = rounds.decide(0, state=world.state)
    for step, several in enumerate(steps):
        for change, which in several:
            change(rounds, which)
        repeated = rounds.decide(step + 1, state=None, previous=last)
        _same(repeated, rounds.decide(step + 1, state=last.state))
        last = repeated


objects = [object() for _ in range(6)]
somes = st.lists(st.sampled_from(objects), max_size=8)


@given(somes, somes)
def test_unchanged_rows_are_matched(now: list[object], before: list[object]) -> None:
    unchanged = UnchangedRows.compare(now, before)
    rows = unchanged.source.tolist()
    assert [before[row] if row >= 0 else None for row in rows] == [
        each if row >= 0 else None for each, row in zip(now, rows, strict=True)
    ]
    assert unchanged.fresh.tolist() == [place for place, row in enumerate(rows) if row < 0]
    assert not unchanged.in_place or len(now) == len(before)
    old = np.arange(len(before))
    new = -1 - np.arange(len(unchanged.fresh))
    want = list(rows)
    for place, value in zip(unchanged.fresh.tolist(), new.tolist(), strict=True):
        want[place] = value
    assert unchanged.array(old, new).tolist() == want
    assert list(unchanged.list(old.tolist(), new.tolist())) == want
    if not unchanged.in_place:
        assert all((row < 0) == all(each is not one for one in before) for each, row in zip(now, rows, strict=True))


@given(somes, somes)
def test_other_objects(now: list[object], before: list[object]) -> None:
    if len(now) != len(before):
        with pytest.raises(NativeError):
            _names.other_objects(now, before)
        return
    want = [place for place, (one, other) in enumerate(zip(now, before, strict=True)) if one is not other]
    assert _names.other_objects(now, before).tolist() == want


def test_objects_of_the_round_before_are_not_read_again() -> None:
    """The documented promise of ``previous``: whoever changes an object in place is not heard."""
    hpa = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"maxReplicas": 5, "scaleTargetRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}}  # fmt: skip
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 9}, "status": {"replicas": 9}}

    def decided(previous: Decisions | None) -> int:
        result = decide([hpa], {"ns/a": scale}, Cluster(), lambda _: None, now=NOW, previous=previous)
        return int(result.desired[0])

    first = decide([hpa], {"ns/a": scale}, Cluster(), lambda _: None, now=NOW)
    hpa["spec"]["maxReplicas"] = 3
    assert (decided(first), decided(None)) == (5, 3)
    hpa = dict(hpa)
    assert decided(first) == 3


def _an_hpa(name: str) -> HorizontalPodAutoscaler:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": reference, "maxReplicas": 9}
    return apply_defaults(
        from_dict({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, HorizontalPodAutoscaler)
    )


def test_missing_data_errors_name_each_hpa() -> None:
    hpas = [_an_hpa("a"), _an_hpa("b")]
    first = decide(hpas, {}, Cluster(), MetricLists(), now=NOW)
    again = decide(hpas[::-1], {}, Cluster(), MetricLists(), now=NOW, previous=first)
    assert [each.value.error.partition(": ")[2] for each in (again[0], again[1])] == [
        'deployments.apps "b" not found',
        'deployments.apps "a" not found',
    ]


def test_an_hpa_that_is_switched_on_again_is_looked_at() -> None:
    def scale(replicas: int) -> dict[str, Scale]:
        return {"ns/a": Scale(spec=ScaleSpec(replicas=replicas), status=ScaleStatus(selector="app=a"))}

    metrics, cluster = MetricLists(resource=True), Cluster()
    hpa = [_an_hpa("a")]
    off = decide(hpa, scale(0), cluster, metrics, now=NOW)
    on = decide(hpa, scale(2), cluster, metrics, now=NOW, previous=off)
    _same(on, decide(hpa, scale(2), cluster, metrics, now=NOW, state=off.state))
    assert (off.desired.tolist(), on.events.tolist()) == ([0], [4 | 8])
