"""What a run says of jobs, of machines that are lost, and of cores over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kscale.cli.commands.simulate import simulation_view
from kscale.cli.output import Cell
from kscale.simulation import Simulation
from kscale.simulation.records import JobUse
from unit.simulation.test_simulation import problems, ran, scenario


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


@pytest.fixture(scope="module")
def short_lived() -> Simulation:
    """A job on machines that live too short for it."""
    return spot(job())


def test_a_job_on_machines_that_live_too_short_fails(short_lived: Simulation) -> None:
    run = short_lived
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


def test_unavailable_machines_are_not_counted_as_added() -> None:
    run = ran(objects=[job(parallelism=9, completions=9)], pods=[{"work": "1h"}], machines=[{"stock": 2}], horizon="8m")
    (group,) = run.report.groups
    assert group.added == 1
    assert run.report.most_nodes == 2


def test_totals_of_jobs() -> None:
    slow = job("slow", backoffLimit=0)
    run = spot(
        job("a"), job("b", completions=2), slow, job("later", suspend=True), work="5m", lifetime="1h", horizon="50m"
    )
    totals = run.report.job_totals
    assert totals is not None
    assert (totals.jobs, totals.complete, totals.suspended, totals.failed, totals.running) == (4, 3, 1, 0, 0)
    assert (totals.restarts, totals.lost_work, totals.work) == (0, 0, 4 * 300)
    makespan = totals.makespan
    assert makespan is not None
    ended = sorted(use.makespan for use in run.report.jobs if use.makespan is not None)
    assert [makespan.p50, makespan.p90, makespan.p99, makespan.max] == [ended[1], ended[2], ended[2], ended[2]]
    assert ended[2] == pytest.approx(600, abs=30)
    assert run.report.cost is not None
    assert totals.cost_per_completed_job == pytest.approx(run.report.cost / 3)
    (line,) = (line for line in simulation_view(run.report).footer if line.startswith("Jobs: "))
    assert line.startswith(
        "Jobs: 3 complete, 1 suspended; makespan p50 5 min, p90 10 min, p99 10 min, longest 10 min; "
    )
    assert line.endswith(f"; {run.report.cost / 3:,.2f} for machines per completed job.")


def test_lost_work_of_jobs_without_a_result(short_lived: Simulation) -> None:
    report = short_lived.report
    totals = report.job_totals
    assert totals is not None
    assert (totals.complete, totals.failed, totals.restarts, totals.makespan) == (0, 1, 3, None)
    assert (totals.lost_work, totals.cost_per_completed_job) == (report.jobs[0].lost_work, None)
    footer = "\n".join(simulation_view(report).footer)
    assert "Jobs: 1 failed; 3 restarts, " in footer
    assert "of work lost (100% of all work)." in footer
    assert ran(horizon="1m").report.job_totals is None


def zone(name: str) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/zone": name}
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    template = {"metadata": {"name": "m", "labels": labels}, "status": {"allocatable": amounts}}
    return {"id": name, "max": 5, "target": 1, "price": 0.2, "template": template}


def outage(*zones: str, **more: Any) -> Simulation:
    groups = [zone(name) for name in zones]
    controllers = {"clusterAutoscaler": {"flags": {"scale-down-enabled": False}}}
    settings = {"outages": [{"zone": "a", "begin": "10m", "end": "30m"}], "horizon": "1h", "controllers": controllers}
    return ran(**{"groups": groups, **settings, **more})


def test_an_outage_takes_all_nodes_of_a_zone() -> None:
    node = zone("a")["template"] | {"apiVersion": "v1", "kind": "Node"}
    jobs = [job("j", parallelism=6, completions=6, backoffLimit=9)]
    run = outage("a", "b", objects=[*jobs, node], machines=[{"boot": "60s"}], pods=[{"work": "20m"}])
    (use,) = run.report.outages
    assert (use.zone, use.at, use.seconds, use.machines) == ("a", "2026-01-01T00:10:00Z", 1200, 2)
    assert use.pods == run.report.interrupted_pods > 0
    group = {each.group: each for each in run.report.groups}
    assert (group["a"].lost, group["b"].lost, run.report.interruptions) == (1, 0, 1)
    (outcome,) = run.report.jobs
    assert (outcome.outcome, outcome.failed) == ("complete", use.pods)
    line = f"Outage of zone a at 2026-01-01T00:10:00Z, for 20 min: 2 machines and {use.pods} pods lost."
    assert line in simulation_view(run.report).footer


def test_a_zone_has_no_machines_during_its_outage() -> None:
    run = outage("a", objects=[job(backoffLimit=9)], machines=[{"boot": "60s"}], pods=[{"work": "15m"}], horizon="2h")
    nodes = run.timeline.columns()["nodes"].tolist()  # a row a minute
    assert nodes[9] == 1
    assert set(nodes[11:31]) == {0}
    assert nodes[-1] == 1
    (use,) = run.report.jobs
    assert (use.outcome, use.failed) == ("complete", 1)


def test_impossible_outages_are_refused(tmp_path: Path) -> None:
    data = scenario(outages=[{"zone": "z", "begin": "2m", "end": "1m"}])
    assert problems(data, tmp_path) == [
        ("outages[0].zone", "no node and no node group is in a zone 'z'"),
        ("outages[0].end", "1m is not after 2m"),
    ]


def test_rows_of_jobs_and_cores(short_lived: Simulation, tmp_path: Path) -> None:
    run = short_lived
    workloads = run.workloads.columns()
    assert set(workloads["workload"]) == {"Job/b/j"}
    assert workloads["active"].tolist() == workloads["replicas"].tolist()
    assert int(workloads["failed"][-1]) == 4
    assert max(workloads["ready"].tolist()) == 1
    cores = run.timeline.columns()
    assert set(cores["allocatable_cores"].tolist()) == {0.0, 4.0, 8.0}
    assert set(cores["requested_cores"].tolist()) == {0.0, 1.0}
    assert sum(cores["requested_cores"]) * 5 / 3600 == pytest.approx(run.report.cores.requested, rel=0.02)
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra [data] is not installed")
    run.write(tmp_path)
    table = parquet.read_table(tmp_path / "timeline.parquet")
    assert table["allocatable_cores"].to_pylist() == cores["allocatable_cores"].tolist()
    assert "Job/b/j" in parquet.read_table(tmp_path / "workloads.parquet")["workload"].to_pylist()


def test_table_shows_job_outcomes(short_lived: Simulation) -> None:
    view = simulation_view(short_lived.report)
    assert view.headline.endswith("; 0 of 1 job completed.")
    groups, _, jobs, _ = view.tables
    assert [column.title for column in groups.columns][-3:] == ["ADDED", "REMOVED", "LOST"]
    assert list(groups.rows[0])[-3:] == [21, 0, 20]
    assert list(jobs.rows[0])[:3] == ["b/j", Cell("failed", "bad"), 0]
    assert "Interruptions: 20 machines lost, 4 pods with them." in view.footer
