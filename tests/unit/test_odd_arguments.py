"""Odd values for the arguments of public functions: every error names an argument and is an error of kscale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kscale
from kscale import ca, effects, hpa, series, simulation
from kscale.capacity.cost import cost
from kscale.capacity.cost_allocation import allocate_cost
from kscale.capacity.headroom import headroom
from kscale.capacity.losses import losses
from kscale.errors import KscaleError
from kscale.scheduling import preemption
from kscale.scheduling.bounds import best_bound
from unit.test_results import NOW, cluster, groups, node, pod

Json = dict[str, Any]


class Alien:
    """Of a type that no function takes."""


def nested(depth: int = 50_000) -> list[Any]:
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
    "not a time": lambda: np.datetime64("NaT"),
    "table": lambda: pd.DataFrame({"a": [1]}),
    "naive": lambda: datetime(2026, 1, 1),  # noqa: DTZ001  (the fault under test)
    "last year": lambda: datetime(9999, 12, 31, tzinfo=UTC),
    "duration": lambda: timedelta(1),
    "true": lambda: True,
    "nested": nested,
    "other cluster": lambda: kscale.load([node("x1"), pod("alien", "1", on="x1")]),
    "empty snapshot": lambda: kscale.Cluster().snapshot(),
    "result": lambda: kscale.place(cluster()),
    "client row": lambda: cluster().snapshot().pending_records,
}
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
            assert str(error)  # noqa: PT017  (every odd value is tried)
        except Exception as error:  # noqa: BLE001  (the assertion lists them all)
            raw.append(f"{label}: {type(error).__name__}: {error}")
    assert raw == []
