"""What a run says of jobs, of machines that are lost, and of cores over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kscale.cli.commands.simulate import simulation_view
from kscale.cli.output import Cell
from kscale.simulation import Simulation
from kscale.simulation.records import JobUse
from unit.simulation.test_simulation import ran


def job(name: str = "j", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"j": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "b"},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 3, "template": template, **spec},
    }


def spot(*objects: dict[str, Any], work: str = "15m", lifetime: str = "10m", **more: Any) -> Simulation:
    machines = {"group": "pool", "boot": "60s", "lifetime": lifetime}
    controllers = {"clusterAutoscaler": {"flags": {"scale-down-enabled": False}}}
    settings = {"horizon": "2h", "sample": "5s", "machines": [machines], "pods": [{"work": work}]}
    return ran(**{"objects": list(objects), "controllers": controllers, **settings, **more})


def test_a_job_on_machines_that_live_too_short_fails() -> None:
    run = spot(job())
    (use,) = run.report.jobs
    assert (use.job, use.outcome, use.completed, use.failed, use.restarts) == ("b/j", "failed", 0, 4, 3)
    assert use.work == 0
    assert 3 * 400 < use.lost_work < 4 * 600, "four pods ran until their machine was lost"
    assert use.makespan is not None
    assert 1800 < use.makespan < 3600
    (group,) = run.report.groups
    assert (group.added, group.removed, group.lost) == (21, 0, 20)
    assert (run.report.interruptions, run.report.interrupted_pods) == (20, 4)
    machines = run.timeline.columns()["machines"]
    assert int(machines[-1]) == 1 + group.added - group.removed - group.lost


def test_a_job_that_has_time_completes() -> None:
    run = spot(job(completions=3), work="5m", lifetime="1h")
    (use,) = run.report.jobs
    assert (use.outcome, use.completed, use.failed, use.restarts, use.lost_work) == ("complete", 3, 0, 0, 0)
    assert use.work == 3 * 300
    assert use.makespan == pytest.approx(3 * 300, abs=30)


def test_a_job_that_goes_on_has_no_makespan() -> None:
    (use,) = spot(job(backoffLimit=100), horizon="25m").report.jobs
    assert (use.outcome, use.makespan, use.failed, use.restarts) == ("running", None, 3, 3)
    (waits,) = spot(job(suspend=True), horizon="5m").report.jobs
    assert waits == JobUse(
        job="b/j", outcome="suspended", completed=0, failed=0, restarts=0, makespan=None, work=0, lost_work=0
    )


def test_a_job_that_has_ended_before_is_not_reported() -> None:
    done = {**job("old"), "status": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}}
    run = spot(done, job("new"), work="1m", horizon="10m")
    assert [(use.job, use.outcome) for use in run.report.jobs] == [("b/new", "complete")]


def test_machines_that_autoscalers_delete_are_not_lost() -> None:
    run = ran(
        objects=[job(parallelism=6, completions=6)],
        pods=[{"work": "2m"}],
        horizon="40m",
        controllers={"clusterAutoscaler": {"flags": {"scale-down-unneeded-time": "5m"}}},
    )
    (group,) = run.report.groups
    assert (group.added, group.lost, run.report.interruptions, run.report.interrupted_pods) == (1, 0, 0, 0)
    assert group.removed == 2 == run.report.most_nodes
    assert int(run.timeline.columns()["machines"][-1]) == 1 + group.added - group.removed


def test_machines_that_could_not_be_had_were_not_added() -> None:
    run = ran(objects=[job(parallelism=9, completions=9)], pods=[{"work": "1h"}], machines=[{"stock": 2}], horizon="8m")
    (group,) = run.report.groups
    assert group.added == 1
    assert run.report.most_nodes == 2


def test_rows_of_jobs_and_cores(tmp_path: Path) -> None:
    run = spot(job())
    workloads = run.workloads.columns()
    assert set(workloads["workload"]) == {"Job/b/j"}
    assert workloads["active"].tolist() == workloads["replicas"].tolist()
    assert int(workloads["failed"][-1]) == 4
    assert max(workloads["ready"].tolist()) == 1
    cores = run.timeline.columns()
    assert set(cores["allocatable_cores"].tolist()) == {0.0, 4.0, 8.0}
    assert set(cores["requested_cores"].tolist()) == {0.0, 1.0}
    assert sum(cores["requested_cores"]) * 5 / 3600 == pytest.approx(run.report.cores.requested, rel=0.02)
    parquet = pytest.importorskip("pyarrow.parquet")
    run.write(tmp_path)
    table = parquet.read_table(tmp_path / "timeline.parquet")
    assert table["allocatable_cores"].to_pylist() == cores["allocatable_cores"].tolist()
    assert "Job/b/j" in parquet.read_table(tmp_path / "workloads.parquet")["workload"].to_pylist()


def test_the_table_says_so() -> None:
    view = simulation_view(spot(job()).report)
    assert view.headline.endswith("; 0 of 1 job completed.")
    groups, _, jobs, _ = view.tables
    assert [column.title for column in groups.columns][-3:] == ["ADDED", "REMOVED", "LOST"]
    assert list(groups.rows[0])[-3:] == [21, 0, 20]
    assert list(jobs.rows[0])[:3] == ["b/j", Cell("failed", "bad"), 0]
    assert "Interruptions: 20 machines lost, 4 pods with them." in view.footer
