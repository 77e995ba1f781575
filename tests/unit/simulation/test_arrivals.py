"""Pods of the openb trace in a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale import InputError
from kscale.simulation import Scenario, Simulation, build, simulate
from unit.simulation.test_simulation import scenario

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
late,1000,1024,0,0,,LS,Running,120,,120
a,3000,1024,0,0,,LS,Running,0,90,30
b,3000,1024,0,0,,LS,Running,10,400,20
never,3000,1024,0,0,,LS,Running,1000000,1000001,1000000
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,4000,8192,0,\n"


def run(tmp_path: Path, **more: Any) -> Simulation:
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "nodes.csv").write_text(NODES)
    entry = {"pods": "pods.csv", "nodes": "nodes.csv"}
    scenario_fields = {
        "objects": [],
        "groups": [],
        "controllers": {},
        "pods": [{"start": "5s"}],
        "openb": entry,
        **more,
    }
    return simulate(build(msgspec.convert(scenario(**scenario_fields), Scenario), folder=tmp_path))


def test_pods_come_when_they_came_and_work_as_long_as_they_did(tmp_path: Path) -> None:
    result = run(tmp_path, sample="10s", horizon="300s")
    columns = result.timeline.columns()
    rows = list(zip(columns["pods"].tolist(), columns["pending"].tolist(), strict=True))
    # a: from 0 s, 5 s to start and 60 s of work; b waits from 10 s for its place; late: from 120 s, for ever.
    assert rows == [(0, 1), *[(1, 1)] * 6, *[(1, 0)] * 5, (1, 1), *[(2, 0)] * (len(rows) - 13)]
    assert result.report.pending_pods.pods == 3
    assert result.report.pending_pods.max == 55  # from 10 s to 65 s


def test_invalid_traces_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        run(tmp_path, openb={"pods": "missing.csv"})
    (tmp_path / "untimed.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n")
    with pytest.raises(InputError, match="pod a has no creation_time"):
        run(tmp_path, openb={"pods": "untimed.csv"})


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [("Pod", "b", "pods.csv: row 4: name"), ("Node", "n0", "nodes.csv: row 2: sn")],
)
def test_names_that_the_scenario_has_too(tmp_path: Path, kind: str, name: str, place: str) -> None:
    spec = {"spec": {"containers": [{"name": "c", "image": "x"}]}} if kind == "Pod" else {}
    namespace = {"namespace": "openb"} if kind == "Pod" else {}
    other = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **namespace}, **spec}
    with pytest.raises(InputError, match=f"{place}: the scenario has a {kind} (openb/)?{name} of its own"):
        run(tmp_path, objects=[other])


@pytest.mark.parametrize(
    ("kind", "name", "existing_name"),
    [("StatefulSet", "web", "web-0"), ("ReplicaSet", "web", "web-b2c4d"), ("Deployment", "web", "web-5f6-b2c4d")],
)
def test_workload_that_may_collide_with_trace_pods_is_refused(
    tmp_path: Path, kind: str, name: str, existing_name: str
) -> None:
    (tmp_path / "taken.csv").write_text(PODS.replace("late,", f"{existing_name},"))
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    created = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "openb"}, "spec": spec}
    with pytest.raises(InputError, match=f"taken.csv: row 2: name: {kind} openb/{name} may have a pod of this name"):
        run(tmp_path, openb={"pods": "taken.csv"}, objects=[created])
    elsewhere = {**created, "metadata": {"name": name, "namespace": "shop"}}
    assert run(tmp_path, openb={"pods": "taken.csv"}, objects=[elsewhere], horizon="60s").report.pending_pods.pods == 2


def test_a_pod_does_not_come_before_the_trace(tmp_path: Path) -> None:
    (tmp_path / "early.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\na,1,1,0,0,-5\n")
    with pytest.raises(InputError, match=r"early\.csv: row 2: creation_time: Expected `int` >= 0"):
        run(tmp_path, openb={"pods": "early.csv"})
