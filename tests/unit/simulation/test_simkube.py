"""SimKube's traces: what is read of them, and what happens in a scenario that names one."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale import InputError
from kscale.simulation import Scenario, Simulation, build, simulate
from kscale.simulation.simkube import read_simkube
from unit.simulation.test_simulation import scenario

BEGIN = 1_700_000_000


def deployment(name: str, replicas: int, cpu: str = "1") -> dict[str, Any]:
    """As the tracer writes it down, with what it had in its cluster."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name, "namespace": "shop", "uid": "of-another-cluster", "resourceVersion": "42", "generation": 7,
            "managedFields": [], "creationTimestamp": "2020-01-01T00:00:00Z",
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas},
    }  # fmt: skip


def event(after: int, *applied: Any, deleted: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {"ts": BEGIN + after, "applied_objs": list(applied), "deleted_objs": list(deleted)}


EVENTS = [
    event(0, deployment("web", 2), deployment("old", 1)),
    event(60, deployment("web", 4)),
    event(120, deployment("batch", 1), deleted=(deployment("old", 1),)),
    event(100_000, deployment("never", 1)),
]
LIFECYCLES = {("apps/v1.Deployment", "shop/web"): {17: [{"Finished": [BEGIN, BEGIN + 5]}]}}
TRACE = {"version": 3, "config": {"trackedObjects": {}}, "events": EVENTS, "index": {}}


def run(tmp_path: Path, trace: Any = TRACE, **more: Any) -> Simulation:
    (tmp_path / "trace").write_bytes(msgspec.msgpack.encode(trace))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    room = {"cpu": "16", "memory": "16Gi", "pods": "110"}
    objects = [{**node, "status": {"allocatable": room, "capacity": room}}]
    given = {"groups": [], "load": [], "controllers": {}, "pods": [], "objects": objects, "simkube": "trace", **more}
    return simulate(build(msgspec.convert(scenario(**given), Scenario), folder=tmp_path))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "write", [msgspec.msgpack.encode, msgspec.json.encode, lambda trace: gzip.compress(msgspec.msgpack.encode(trace))]
)
def test_what_is_read(tmp_path: Path, version: int, write: Any) -> None:
    trace: dict[str, Any] = {"version": version, "config": {}, "events": [EVENTS[1], EVENTS[0]], "index": {}}
    if write is not msgspec.json.encode:
        trace["pod_lifecycles"] = LIFECYCLES
    (tmp_path / "trace").write_bytes(write(trace))
    found = read_simkube(tmp_path / "trace")
    assert [each.ts for each in found] == [BEGIN, BEGIN + 60]
    assert found[0].applied_objs == EVENTS[0]["applied_objs"]


def test_objects_come_change_and_go_when_they_did(tmp_path: Path) -> None:
    found = run(tmp_path, sample="30s", horizon="180s")
    columns = found.timeline.columns()
    assert columns["pods"].tolist() == [0, 3, 3, 5, 5, 5, 5]  # rows are taken before what follows on the trace
    assert found.report.pending.pods == 6
    held = found.workloads.columns()
    rows = list(zip(held["workload"], held["replicas"].tolist(), strict=True))
    assert [n for name, n in rows if name == "Deployment/shop/web"] == [2, 2, 4, 4, 4, 4, 4]
    assert [n for name, n in rows if name == "Deployment/shop/old"] == [1, 1, 1, 1]


def test_entries_may_name_what_comes_later(tmp_path: Path) -> None:
    entry = {"workload": "Deployment/shop/batch", "start": "10s"}
    assert run(tmp_path, horizon="180s", pods=[entry]).report.pod_events
    with pytest.raises(InputError, match=r"pods\[0\]\.workload: there is no Deployment/shop/never"):
        run(tmp_path, horizon="180s", pods=[{**entry, "workload": "Deployment/shop/never"}])


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        ({**TRACE, "version": 1}, r"trace: version: 1 is none of \(2, 3\)"),
        ({"version": 3, "events": [{"ts": "now"}]}, r"trace: events\[0\]\.ts: Expected `int`, got `str`"),
        ([1], "trace: Expected `object`, got `array`"),
        ({**TRACE, "events": [event(0, {"apiVersion": "a/v1", "kind": "VolcanoJob", "metadata": {"name": "x"}})]},
         r"trace: events\[0\]\.applied_objs\[0\]: objects of a/v1 VolcanoJob cannot be simulated"),
        ({**TRACE, "events": [event(0, {**deployment("w", 1), "spec": 3})]}, r"events\[0\]\.applied_objs\[0\]: .*spec"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, trace: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        run(tmp_path, trace)


def test_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing: not readable"):
        run(tmp_path, simkube="missing")
    (tmp_path / "cut").write_bytes(msgspec.msgpack.encode(TRACE)[:-5])
    with pytest.raises(InputError, match="cut: no trace of SimKube"):
        run(tmp_path, simkube="cut")


def test_an_object_that_the_scenario_has_too(tmp_path: Path) -> None:
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {"a": "b"}}
    with pytest.raises(InputError, match="ConfigMap shop/c: is there twice"):
        run(tmp_path, {**TRACE, "events": [event(0, own)]}, objects=[own])
