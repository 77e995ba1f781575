"""Odd values for the arguments of public functions: every error names an argument and is an error of kscale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kscale
from kscale import ca, effects, hpa, series, simulation
from kscale.capacity.cost import cost
from kscale.capacity.cost_allocation import allocate_cost
from kscale.capacity.generate import generate
from kscale.capacity.groups import groups_from
from kscale.capacity.headroom import headroom
from kscale.capacity.losses import losses
from kscale.capacity.sweep import sweep
from kscale.capacity.whatif import Base, scenarios_from, whatif
from kscale.errors import KscaleError
from kscale.scheduling import preemption
from kscale.scheduling.bounds import best_bound
from unit.test_results import NOW, cluster, groups, node, pod

Json = dict[str, Any]


class Alien:
    """Of a type that no function takes."""


@cache
def nested(depth: int = 50_000) -> list[Any]:
    """Return a list nested too deep for recursion. Built once: building it costs more than most calls."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def generator() -> Iterator[Any]:
    yield "shop/fits"
    yield 3


ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "-1": lambda: -1,
    "huge": lambda: 10**30,
    "nan": lambda: float("nan"),
    "text": lambda: "text",
    "null character": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"\xff\xfe",
    "list of None": lambda: [None],
    "list of lists": lambda: [[]],
    "twice the same": lambda: ["shop/fits", "shop/fits"],
    "dict": lambda: {"a": None},
    "dict of numbers": lambda: {1: 2},
    "set": lambda: {1},
    "range": lambda: range(3),
    "missing file": lambda: Path("/nonexistent/x.json"),
    "alien": Alien,
    "function": lambda: lambda: 3,
    "generator": generator,
    "iterator": lambda: iter([1]),
    "array": lambda: np.array([1, 2]),
    "matrix": lambda: np.zeros((2, 2)),
    "not a time": lambda: np.datetime64("NaT", "s"),
    "table": lambda: pd.DataFrame({"a": [1]}),
    "naive": lambda: datetime(2026, 1, 1),  # noqa: DTZ001  # a time without a zone is refused
    "last year": lambda: datetime(9999, 12, 31, tzinfo=UTC),
    "duration": lambda: timedelta(1),
    "true": lambda: True,
    "nested": nested,
    "other cluster": lambda: kscale.load([node("x1"), pod("alien", "1", on="x1")]),
    "empty snapshot": lambda: kscale.Cluster().snapshot(),
    "result": lambda: kscale.place(cluster()),
    "client row": lambda: cluster().snapshot().pending_records,
}


def twice(base: int, part: list[int]) -> list[int]:
    del base
    return [2 * each for each in part]


class Immediately(Executor):
    """Runs calls at once, in this thread."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def list_sweep(function: Any = twice, **arguments: Any) -> list[Any]:
    """Run a sweep to its end: a generator raises its errors only then."""
    if arguments.get("executor") is True:
        arguments["executor"] = Immediately()  # one process would cost a second
    return list(sweep(function, **arguments))


SNAPSHOT = cluster().snapshot()
SCENARIO = simulation.Scenario(
    api_version="kscale.dev/v1alpha1", kind="Simulation", horizon="1m", sample="1m", begin="2026-01-01T00:00:00Z"
)
EFFORT = kscale.MixOptions(plan_effort=1, bound_effort=1)
SCALE_CALL: Json = {"cluster": cluster(), "groups": groups(), "now": NOW, "options": None, "state": None}
CALLS: dict[str, tuple[Callable[..., Any], Json]] = {
    "fit": (kscale.fit, {"snapshot": cluster(), "pods": None, "nodes": ["n1"], "profile": None}),
    "place": (
        kscale.place,
        {"snapshot": cluster(), "pods": None, "state": None, "unacceptable_nodes": [], "max_looks": None},
    ),
    "estimate": (
        kscale.estimate,
        {"snapshot": cluster(), "pods": None, "template": groups()[0], "cursor": 0, "groups": None},
    ),
    "sweep": (
        list_sweep,
        {"function": twice, "scenarios": [1, 2], "base": 3, "executor": None, "workers": 1, "chunk": 1, "share": None},
    ),
    "sweep with an executor": (list_sweep, {"scenarios": [1, 2], "executor": Immediately(), "workers": 1, "chunk": 1}),
    "whatif": (
        whatif,
        {
            "base": Base(cluster(), groups(), NOW),
            "scenarios": scenarios_from([{"name": "a", "edits": []}]),
            "conditions": (),
            "on_row": None,
        },
    ),
    "generate": (generate, {"nodes": 3, "pods": 10, "seed": 0, "pending": 1, "lean": True}),
    "simulation.build": (
        simulation.build,
        {"scenario": SCENARIO, "source": "", "folder": ".", "cluster": (), "groups": (), "options": None},
    ),
    "Snapshot.with_nodes": (SNAPSHOT.with_nodes, {"fresh": (), "without": (), "replaced": ()}),
    "Snapshot.with_placed": (SNAPSHOT.with_placed, {"pods": SNAPSHOT.pending_records[:1], "nodes": [0]}),
    "Snapshot.without_placed": (SNAPSHOT.without_placed, {"removed": np.array([0])}),
    "Snapshot.nodes_of_class": (SNAPSHOT.nodes_of_class, {"which": 0}),
    "fork": (kscale.fork, {"snapshot": cluster(), "pods": None, "templates": [groups()[0]], "cursor": 0}),
    "node_scores": (kscale.node_scores, {"snapshot": cluster(), "pod": "shop/fits", "scores": None}),
    "scale_up": (kscale.scale_up, SCALE_CALL),
    "scale_down": (kscale.scale_down, SCALE_CALL),
    "ca.run_once": (ca.run_once, SCALE_CALL),
    "mix": (
        kscale.mix,
        {"cluster": cluster(), "offers": groups(), "pods": None, "options": EFFORT, "stop": (None, None)},
    ),
    "consolidate": (kscale.consolidate, {"cluster": cluster(), "groups": groups(), "now": NOW}),
    "drain": (kscale.drain, {"snapshot": cluster(), "nodes": ["n1"], "now": NOW}),
    "preempt": (kscale.preempt, {"snapshot": cluster(), "pod": "shop/new", "least_percentage": 10}),
    "diff": (kscale.diff, {"before": cluster(), "after": cluster(), "groups": groups()}),
    "node_usage": (kscale.node_usage, {"cluster": cluster(), "groups": groups(), "now": NOW, "threads": None}),
    "ca.filter_registered_nodes": (ca.filter_registered_nodes, {"nodes": [], "instances": ["a"]}),
    "ca.build_expander_chain": (ca.build_expander_chain, {"names": ["random"]}),
    "ca.crop_nodes": (ca.crop_nodes, {"empty": [], "drain": [], "groups": [], "max_drain_parallelism": 1}),
    "hpa.decide": (
        hpa.decide,
        {"hpas": [], "scales": {}, "pods": [], "metrics": hpa.MetricLists(), "now": NOW, "threads": 1},
    ),
    "cost": (cost, {"cluster": cluster(), "groups": groups()}),
    "allocate_cost": (allocate_cost, {"cluster": cluster(), "groups": groups(), "by": "namespace", "hours": 1.0}),
    "headroom": (headroom, {"snapshot": cluster().snapshot(), "pod": None}),
    "losses": (losses, {"snapshot": cluster().snapshot(), "parts": []}),
    "preemption.examine": (
        preemption.examine,
        {"snapshot": cluster(), "pod": "shop/new", "budgets": None, "least_candidates": 100},
    ),
    "best_bound": (best_bound, {"demand": [[1]], "count": [2], "capacity": [3], "methods": ("volume",), "upper": None}),
    "effects.timedelta_of": (effects.timedelta_of, {"nanoseconds": 3}),
    "effects.to_text": (effects.to_text, {"time": 10**18}),
    "effects.duration": (effects.duration, {"value": timedelta(1)}),
    "series.read": (series.read, {"path": "/nonexistent/x.csv"}),
    "simulation.read_scenario": (simulation.read_scenario, {"path": "/nonexistent/x.yaml"}),
    "read_groups": (kscale.read_groups, {"path": "/nonexistent/x.yaml"}),
    "groups_from": (
        groups_from,
        {
            "data": [{"id": "a", "max": 1, "fromNode": "n1"}],
            "source": "",
            "folder": ".",
            "node_names": ["n1"],
            "catalogue": None,
        },
    ),
    "Quantity.from_int": (kscale.Quantity.from_int, {"value": 1, "scale": 0}),
    "Quantity.from_json": (kscale.Quantity.from_json, {"raw": '"1"'}),
    "Quantity.sum": (kscale.Quantity.sum, {"items": []}),
    "PlaceResult.to_json": (kscale.place(cluster()).to_json, {"indent": 0}),
    "PlaceResult.__arrow_c_stream__": (kscale.place(cluster()).__arrow_c_stream__, {"requested_schema": None}),
}


@pytest.mark.parametrize(("name", "parameter"), [(name, each) for name, (_, valid) in CALLS.items() for each in valid])
def test_an_odd_argument_is_taken_or_refused_by_name(name: str, parameter: str) -> None:
    function, valid = CALLS[name]
    raw = []
    for label, value in ODD.items():
        try:
            function(**{**valid, parameter: value()})
        except KscaleError as error:
            assert str(error)  # noqa: PT017  # every odd value is tried
        except Exception as error:  # noqa: BLE001  # the assertion lists them all
            raw.append(f"{label}: {type(error).__name__}: {error}")
    assert raw == []


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("executor", {"executor": 0}),
        ("executor", {"executor": -1}),
        ("executor", {"executor": 10**30}),
        ("workers", {"executor": Immediately(), "workers": 0}),
        ("workers", {"executor": Immediately(), "workers": -1}),
        ("workers", {"executor": Immediately(), "workers": 10**30}),
        ("chunk", {"chunk": 0}),
        ("chunk", {"chunk": -1}),
    ],
)
def test_a_sweep_refuses_a_number_before_it_starts_anything(field: str, arguments: Json) -> None:
    with pytest.raises(kscale.InputError) as refused:
        sweep(twice, [1, 2], **arguments)
    assert refused.value.problems[0].field == field


def test_a_sweep_may_have_one_call_of_any_size() -> None:
    assert [each.value for each in list_sweep(scenarios=[1, 2, 3], chunk=10**30)] == [2, 4, 6]


def test_a_function_that_makes_no_executor_is_named() -> None:
    with pytest.raises(TypeError, match=r"executor\(\) is 3, not an Executor"):
        list_sweep(scenarios=[1], executor=lambda: 3)


def test_a_callback_with_other_parameters_is_refused_before_any_work() -> None:
    with pytest.raises(TypeError, match=r"on_row is .*, not a function of 1 argument"):
        whatif(Base(cluster(), groups(), NOW), [], on_row=lambda: None)


def test_a_text_is_no_collection_of_node_names() -> None:
    for names in ("n10", b"n1"):
        with pytest.raises(TypeError, match="node_names is"):
            groups_from([{"id": "a", "max": 1, "fromNode": "n1"}], node_names=names)


def test_snapshots_name_what_does_not_exist() -> None:
    with pytest.raises(kscale.InputError, match="no node 'n9'"):
        SNAPSHOT.with_nodes(without=["n9"])
    for index in (-1, 99, 10**30):
        with pytest.raises(kscale.InputError, match="not the index of one of"):
            SNAPSHOT.with_placed(SNAPSHOT.pending_records[:1], [index])
        with pytest.raises(kscale.InputError, match="not one of the"):
            SNAPSHOT.nodes_of_class(index)
    with pytest.raises(kscale.InputError, match="placed pods"):
        SNAPSHOT.without_placed(np.array([-1]))
    with pytest.raises(kscale.InputError, match="2 nodes for 1 pods"):
        SNAPSHOT.with_placed(SNAPSHOT.pending_records[:1], [0, 0])
