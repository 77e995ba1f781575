"""SimKube's traces: what is read of them, and what happens in a scenario that names one."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale import InputError
from kscale.simulation import Scenario, Simulation, build, simulate
from kscale.simulation.traces import read_simkube
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
BUDGET = {
    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
    "spec": {"maxUnavailable": "some", "selector": {"matchLabels": {"app": "web"}}},
}  # fmt: skip
POD_SPEC = {"containers": [{"name": "c", "image": "x"}]}
CRON_JOB = {
    "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "shop"},
    "spec": {
        "schedule": "* * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}},
    },
}  # fmt: skip
TRACE = {"version": 3, "config": {"trackedObjects": {}}, "events": EVENTS, "index": {}}


def run(tmp_path: Path, trace: Any = TRACE, **more: Any) -> Simulation:
    (tmp_path / "trace").write_bytes(msgspec.msgpack.encode(trace))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    room = {"cpu": "16", "memory": "16Gi", "pods": "110"}
    objects = [{**node, "status": {"allocatable": room, "capacity": room}}]
    scenario_fields = {
        "groups": [],
        "load": [],
        "controllers": {},
        "pods": [],
        "objects": objects,
        "simkube": "trace",
        **more,
    }
    return simulate(build(msgspec.convert(scenario(**scenario_fields), Scenario), folder=tmp_path))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "write", [msgspec.msgpack.encode, msgspec.json.encode, lambda trace: gzip.compress(msgspec.msgpack.encode(trace))]
)
def test_trace_is_read_from_any_encoding(tmp_path: Path, version: int, write: Any) -> None:
    trace: dict[str, Any] = {"version": version, "config": {}, "events": [EVENTS[1], EVENTS[0]], "index": {}}
    if write is not msgspec.json.encode:
        trace["pod_lifecycles"] = LIFECYCLES
    (tmp_path / "trace").write_bytes(write(trace))
    result = read_simkube(tmp_path / "trace")
    assert [each.ts for each in result] == [BEGIN, BEGIN + 60]
    assert result[0].applied_objs == EVENTS[0]["applied_objs"]


def test_objects_come_change_and_go_when_they_did(tmp_path: Path) -> None:
    result = run(tmp_path, sample="30s", horizon="180s")
    columns = result.timeline.columns()
    assert columns["pods"].tolist() == [0, 3, 3, 5, 5, 5, 5]  # rows are taken before what follows on the trace
    assert result.report.pending_pods.pods == 6
    history = result.workloads.columns()
    rows = list(zip(history["workload"], history["replicas"].tolist(), strict=True))
    assert [n for name, n in rows if name == "Deployment/shop/web"] == [2, 2, 4, 4, 4, 4, 4]
    assert [n for name, n in rows if name == "Deployment/shop/old"] == [1, 1, 1, 1]
    assert [n for name, n in rows if name == "Deployment/shop/batch"] == [1, 1, 1]


def test_entries_may_reference_later_objects(tmp_path: Path) -> None:
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
        ({**TRACE, "events": [event(0, {"apiVersion": "v1", "kind": "List", "items": [deployment("w", 1)] * 2})]},
         r"applied_objs\[0\]: objects of v1 List cannot be simulated"),
        ({**TRACE, "events": [event(0, CRON_JOB)]},
         r"applied_objs\[0\]: objects of batch/v1 CronJob cannot be simulated"),
        ({**TRACE, "events": [event(0), event(9, BUDGET)]},
         r"PodDisruptionBudget shop/b: spec\.maxUnavailable: 'some' is no number and no percentage"),
        ({**TRACE, "events": [event(0, {**deployment("w", 1), "spec": 3})]}, r"events\[0\]\.applied_objs\[0\]: .*spec"),
    ],
)  # fmt: skip
def test_invalid_traces_are_input_errors(tmp_path: Path, trace: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        run(tmp_path, trace)


def test_missing_and_truncated_traces_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing: not readable"):
        run(tmp_path, simkube="missing")
    (tmp_path / "cut").write_bytes(msgspec.msgpack.encode(TRACE)[:-5])
    with pytest.raises(InputError, match="cut: no trace of SimKube"):
        run(tmp_path, simkube="cut")


@pytest.mark.parametrize(
    "deep",
    [b'{"version":3,"events":[{"ts":1,"applied_objs":[{"a":' + b"[" * 100_000,
     b"\x82\xa7version\x03\xa6events\x91\x82\xa2ts\x01\xacapplied_objs\x91\x81\xa1a" + b"\x91" * 100_000],
)  # fmt: skip
def test_nested_too_deeply(tmp_path: Path, deep: bytes) -> None:
    (tmp_path / "deep").write_bytes(deep)
    with pytest.raises(InputError, match="deep: nested too deeply to be read"):
        read_simkube(tmp_path / "deep")


def test_volumes_of_later_stateful_sets_are_created(tmp_path: Path) -> None:
    later = deployment("db", 2)
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    spec = {**later["spec"], "serviceName": "db", "volumeClaimTemplates": [{"metadata": {"name": "d"}, **claim}]}
    trace = {**TRACE, "events": [event(0), event(60, {**later, "kind": "StatefulSet", "spec": spec})]}
    result = run(tmp_path, trace, sample="30s", horizon="180s")
    assert result.workloads.columns()["ready"].tolist()[-1] == 2


def test_a_pod_looks_for_a_node_of_its_own(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {**POD_SPEC, "nodeName": "gone"}}
    result = run(tmp_path, {**TRACE, "events": [event(0, pod), event(60, {**pod, "metadata": {"name": "q"}})]})
    assert result.report.pending_pods.pods == 2


def test_reapplied_object_is_replaced(tmp_path: Path) -> None:
    again = deployment("web", 0)
    del again["spec"]["replicas"]
    trace = {**TRACE, "events": [event(0, deployment("web", 3)), event(60, again)]}
    assert run(tmp_path, trace, sample="30s", horizon="120s").timeline.columns()["pods"].tolist()[-1] == 1


@pytest.mark.parametrize("after", [0, 60])
@pytest.mark.parametrize(("kind", "key"), [("Pod", "openb/p"), ("Node", "m")])
def test_object_of_two_traces_is_refused(tmp_path: Path, after: int, kind: str, key: str) -> None:
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\np,1,1,0,0,50\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nm,4000,8192,0,\n")
    namespace, _, name = key.rpartition("/")
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    if kind == "Pod":
        item |= {"metadata": {"name": name, "namespace": namespace}, "spec": POD_SPEC}
    trace = {**TRACE, "events": [event(0), event(after, item)]}
    with pytest.raises(InputError, match=f"csv: row 2: .*: the scenario has a {kind} {key} of its own"):
        run(tmp_path, trace, openb={"pods": "pods.csv", "nodes": "nodes.csv"})


@pytest.mark.parametrize(("kind", "key"), [("Pod", "openb/p"), ("Node", "m")])
def test_an_object_of_another_trace_is_not_deleted(tmp_path: Path, kind: str, key: str) -> None:
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\np,1,1,0,0,50\n")
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nm,4000,8192,0,\n")
    namespace, _, name = key.rpartition("/")
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    if kind == "Pod":
        item |= {"metadata": {"name": name, "namespace": namespace}, "spec": POD_SPEC}
    trace = {**TRACE, "events": [event(0), event(60, deleted=(item,))]}
    with pytest.raises(InputError, match=f"csv: row 2: .*: the trace of SimKube deletes a {kind} {key}"):
        run(tmp_path, trace, openb={"pods": "pods.csv", "nodes": "nodes.csv"})


def test_possible_collision_with_another_trace_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\nw-0,1,1,0,0,50\n")
    created = {**deployment("w", 1), "kind": "StatefulSet", "metadata": {"name": "w", "namespace": "openb"}}
    trace = {**TRACE, "events": [event(0, created), event(60, created), event(90, created)]}
    with pytest.raises(InputError, match="StatefulSet openb/w may have a pod of this name") as result:
        run(tmp_path, trace, openb={"pods": "pods.csv"})
    assert len(result.value.problems) == 1


def test_an_object_that_the_scenario_has_too(tmp_path: Path) -> None:
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}, "data": {"a": "b"}}
    with pytest.raises(InputError, match="ConfigMap shop/c: is there twice"):
        run(tmp_path, {**TRACE, "events": [event(0, own)]}, objects=[own])


def test_pods_of_a_resumed_job_are_no_restarts(tmp_path: Path) -> None:
    def job(*, suspend: bool) -> dict[str, Any]:
        template = {"metadata": {"labels": {"j": "j"}}, "spec": {**POD_SPEC, "restartPolicy": "Never"}}
        spec = {"parallelism": 2, "completions": 2, "suspend": suspend, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "shop"}, "spec": spec}

    states = [(0, False), (300, True), (480, False)]
    trace = {**TRACE, "events": [event(after, job(suspend=suspend)) for after, suspend in states]}
    (use,) = run(tmp_path, trace, horizon="30m", pods=[{"work": "10m"}]).report.jobs
    assert (use.outcome, use.completed, use.failed, use.restarts) == ("complete", 2, 0, 0)
    assert use.lost_work == pytest.approx(2 * 300, abs=30)
