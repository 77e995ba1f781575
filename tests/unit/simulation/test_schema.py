"""The JSON Schema of a scenario file, beside what the reader takes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given, settings

from examples import examples
from json_schemas import validate
from kscale import InputError
from kscale.objects.decode import from_dict
from kscale.simulation import Scenario, build, simulate
from kscale.simulation.scenario import simulation_schema
from unit.simulation.test_simulation import scenario
from unit.simulation.test_skipping_property import scenarios

Json = dict[str, Any]
SCHEMA = simulation_schema()
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("simulate-*.yaml"))
SIGNAL = {"steps": [["0s", 1], ["1m", "500m"]], "repeat": "5m", "scale": 2}
QUEUE = {"arrivals": SIGNAL, "capacity": "1", "used": {"cpu": "500m"}, "patience": "5s"}
EXTERNAL = {"namespace": "shop", "name": "depth", "workload": "Deployment/shop/web", "tells": "waiting", "labels": {}}
COMPLETE_SCENARIO = scenario(
    name="all that there is",
    begin="2026-01-01T00:00:00Z",
    seed=3,
    sample="30s",
    machines=[
        {"group": "pool", "boot": {"p0": "1s", "p100": "1m"}, "apart": "1s", "ready": "1s", "deletion": "1s",
         "lifetime": "1h", "failures": 0.5, "stock": 3, "outOfStock": [{"begin": "1m", "end": "2m"}], "creation": "1m"}
    ],
    pods=[{"workload": "Deployment/shop/web", "pull": "1s", "start": "1s", "readiness": "1s", "termination": "1s"}],
    load=[{"workload": "Deployment/shop/web", "total": {"cpu": SIGNAL}, "perPod": {"memory": "1Gi"},
           "queue": {**QUEUE, "used": {"files": 1}}}],
    metrics={"scrape": "15s", "window": "15s", "lag": "15s", "external": [EXTERNAL]},
    controllers={
        "clusterAutoscaler": {"flags": {"max-nodes-total": 4, "scale-down-enabled": False, "scan-interval": "20s",
                                        "scale-down-utilization-threshold": 0.6, "expander": ["least-waste"]}},
        "horizontal": {"flags": {"concurrent-horizontal-pod-autoscaler-syncs": 3}},
        "vpaRecommender": {"flags": {"target-cpu-percentile": 0.5, "update-worker-count": 2}},
        "vpaUpdater": {"flags": {"min-replicas": 1, "eviction-rate-limit": 2}},
        "vpaAdmission": {},
    },
    world={"latency": "1ms", "watchLag": "1ms", "scheduler": "scores", "preemption": True},
)  # fmt: skip


def matches_schema(data: Json) -> bool:
    try:
        validate(data, SCHEMA)
    except jsonschema.ValidationError:
        return False
    return True


def is_read(data: Json) -> bool:
    try:
        build(from_dict(data, Scenario))
    except InputError:
        return False
    return True


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the structs of a scenario are."""
    free = {"objects", "flags", "total", "perPod", "used", "labels", "boot", "template"}
    if isinstance(value, dict):
        below = [each for key, item in value.items() if key not in free for each in places(item, (*path, key))]
        return [path, *below]
    items = enumerate(value) if isinstance(value, list) else ()
    return [each for i, item in items for each in places(item, (*path, i))]


def test_schema_is_current() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_complete_scenario_is_accepted_by_schema_and_reader() -> None:
    assert matches_schema(COMPLETE_SCENARIO)
    run = simulate(build(msgspec.convert(COMPLETE_SCENARIO, Scenario)))
    assert {each.name for each in run.report.controllers if each.rounds} >= {"cluster-autoscaler", "vpa-recommender"}


@pytest.mark.parametrize("path", places(COMPLETE_SCENARIO), ids=lambda path: ".".join(map(str, path)))
def test_unknown_field_is_refused_by_schema_and_reader(path: tuple[Any, ...]) -> None:
    data: Any = copy.deepcopy(COMPLETE_SCENARIO)
    at = data
    for each in path:
        at = at[each]
    at["unknown"] = "1s"
    assert (matches_schema(data), is_read(data)) == (False, False)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_match_the_schema(file: Path) -> None:
    data = yaml.safe_load(file.read_text())
    assert matches_schema(json.loads(json.dumps(data, default=str)))  # YAML has times, JSON texts


@settings(max_examples=examples(1 / 6))
@given(data=scenarios())
def test_scenarios_match_the_schema(data: Json) -> None:
    assert matches_schema(data)
