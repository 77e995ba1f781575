"""``kscale replay hpa``: answers, plots, and bad input by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_prometheus import FakePrometheus
from kscale.hpa.replay import ReplayReport
from unit.cli.support import kscale

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 20
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    slow = (
        HPA.replace("NAME", "slow")
        + "  behavior: {scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 120}]}}\n"
    )
    (tmp_path / "fast.yaml").write_text(HPA.replace("NAME", "fast"), encoding="utf-8")
    (tmp_path / "slow.yaml").write_text(slow, encoding="utf-8")
    rows = [f"{i * 30},{1 if i < 40 else 6}" for i in range(100)]
    (tmp_path / "load.csv").write_text("time,value\n" + "\n".join(rows), encoding="utf-8")
    jobs = "- {type: External, external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: 30}}}\n"
    both = HPA.replace("NAME", "both").replace("metrics: [", "metrics:\n  - ").replace("}]\n", "}\n  " + jobs)
    (tmp_path / "both.yaml").write_text(both, encoding="utf-8")
    matrix = [{"metric": {}, "values": [[i * 60, "10" if i < 30 else "250"] for i in range(50)]}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": matrix}}
    (tmp_path / "jobs.json").write_text(json.dumps(answer), encoding="utf-8")
    rows = [f"{i * 30},{pod},0.2" for i in range(100) for pod in "abc"]
    (tmp_path / "pods.csv").write_text("time,pod,value\n" + "\n".join(rows), encoding="utf-8")
    (tmp_path / "empty.csv").write_text("time,value\n", encoding="utf-8")
    (tmp_path / "half.csv").write_text("time,value\n0,1.5\n", encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(HPA.replace("NAME", "bad").replace("20", "-1"), encoding="utf-8")
    (tmp_path / "average.csv").write_text("time,value\n0,0.5\n30,0.5\n", encoding="utf-8")
    (tmp_path / "replicas.csv").write_text("time,value\n0,4\n", encoding="utf-8")
    (tmp_path / "events.csv").write_text("when,size\n31,2\n1,3\n2,4\n", encoding="utf-8")
    (tmp_path / "back.csv").write_text("time,value\n30,1\n0,1\n", encoding="utf-8")
    (tmp_path / "nan.csv").write_text("time,value\n0,NaN\n", encoding="utf-8")
    return tmp_path


def test_side_by_side(folder: Path) -> None:
    files = ("-f", folder / "fast.yaml", "-f", folder / "slow.yaml", "--request", "500m")
    out = kscale("replay", "hpa", folder / "load.csv", *files, "-o", "json", "--plot", folder / "plot.svg")
    assert kscale("replay", "hpa", folder / "load.csv", *files, "--plot", folder / "plot.png").code == 0
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert out.code == 0
    report = json.loads(out.stdout)
    assert report["kind"] == ReplayReport.KIND
    fast, slow = report["summaries"]
    assert fast["underProvisionedSeconds"] < slow["underProvisionedSeconds"]
    assert len(report["replicas"]["shop/fast"]) == report["syncs"] == 199
    assert (folder / "plot.svg").read_text(encoding="utf-8").startswith("<?xml")
    table = kscale("replay", "hpa", folder / "load.csv", *files)
    assert table.stdout.startswith("shop/fast: ")
    assert "Plant: usage = load / ready pods, startup 30 s" in table.stdout
    assert kscale("replay", "hpa", folder / "load.csv", *files, "--fail-on", "underprovisioned>60s").code == 1


def test_two_versions_of_one_hpa(folder: Path) -> None:
    for name in ("fast", "slow"):
        text = (folder / f"{name}.yaml").read_text(encoding="utf-8").replace(f"name: {name}", "name: web")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    files = ("-f", folder / "fast.yaml", "-f", folder / "slow.yaml")
    report = report_of(folder / "load.csv", *files, "--request", "500m")
    assert [each["name"] for each in report["summaries"]] == ["shop/web", "shop/web (2)"]
    assert report["replicas"]["shop/web"] != report["replicas"]["shop/web (2)"]
    twice = (folder / "fast.yaml").read_text(encoding="utf-8")
    (folder / "twice.yaml").write_text(f"{twice}---{twice}", encoding="utf-8")
    out = kscale("replay", "hpa", folder / "load.csv", "-f", folder / "twice.yaml", "--request", "500m")
    assert "HorizontalPodAutoscaler shop/web comes twice; the last one counts" in out.stderr


def report_of(*arguments: object) -> Any:
    out = kscale("replay", "hpa", *arguments, "-o", "json")
    assert out.code == 0, out.stderr
    return json.loads(out.stdout)


def test_recorded_replicas(folder: Path) -> None:
    hpa, recorded = ("-f", folder / "fast.yaml", "--request", "500m"), ("--replicas", folder / "replicas.csv")
    for kind in ("total", "average"):
        report = report_of(folder / "average.csv", *hpa, *recorded, "--series", kind)
        assert report["summaries"][0]["agreement"] is not None
    report = report_of(folder / "pods.csv", *hpa, *recorded, "--series", "per-pod")
    assert report["replicas"]["shop/fast"][-1] == 4  # 0.2 of 0.5 each: 0.8 in all, and 4 pods at 50 %
    assert report["summaries"][0]["agreement"] == 1.0
    assert report_of(folder / "pods.csv", *hpa)["summaries"][0]["agreement"] is None


@pytest.mark.parametrize(("value", "seconds"), [((), 15), (("--value", "count"), 15), (("--value", "size"), 30)])
def test_lists_of_events(folder: Path, value: tuple[str, ...], seconds: float) -> None:
    """Two pods take 0.1 a second: two events, none and one in 15 s, or 7, 0 and 2 of size."""
    events = ("--bin", "15s", "--time", "when", *value)
    report = report_of(
        folder / "events.csv", "-f", folder / "fast.yaml", "--request", "100m", "--startup", "60s", *events
    )
    assert report["syncs"] == 3
    assert report["summaries"][0]["underProvisionedSeconds"] == seconds


def test_several_series(folder: Path) -> None:
    hpa = ("-f", folder / "both.yaml", "--request", "cpu=500m")
    load, jobs = f"cpu={folder / 'load.csv'}", f"jobs={folder / 'jobs.json'}"
    report = report_of(load, jobs, *hpa)
    assert set(report["summaries"][0]["decidedBy"]) == {"cpu", "jobs"}
    assert report["unmodelled"] == []
    assert report["plant"]["requests"] == {"cpu": "500m"}
    alone = report_of(folder / "load.csv", *hpa)
    assert alone["unmodelled"] == ["shop/both: jobs (External) has no series and was left out"]
    assert max(alone["replicas"]["shop/both"]) == 20
    recorded = ("--replicas", folder / "replicas.csv", "--series", "per-pod", "--series", "jobs=total")
    mixed = report_of(f"cpu={folder / 'pods.csv'}", jobs, *hpa, *recorded)
    assert mixed["replicas"]["shop/both"][-1] == 9  # 250 jobs at 30 a pod
    wide = kscale("replay", "hpa", load, jobs, *hpa, "-o", "wide", "--plot", folder / "plot.svg")
    assert "SYNCS DECIDED BY" in wide.stdout


@pytest.mark.parametrize(
    ("series", "arguments", "message"),
    [
        ("load.csv", (), "a utilization target needs the request of a pod"),
        ("load.csv", ("--request", "1", "--series", "average"), "needs the recorded replicas"),
        ("load.csv", ("--request", "1", "--series", "sum"), "is not one of total, per-pod, average"),
        ("load.csv", ("--request", "1O"), "quantities must match"),
        ("load.csv", ("--startup", "soon"), "invalid duration"),
        ("load.csv", ("--fail-on", "rain"), "is not underprovisioned=DURATION"),
        ("load.csv", ("--request", "1", "--plot", "plot.gif"), "a plot is written as .png or .svg"),
        ("back.csv", ("--request", "1"), "times must ascend"),
        ("nan.csv", ("--request", "1"), "nan is not a number"),
        ("none.csv", ("--request", "1"), "No such file"),
        ("empty.csv", ("--request", "1"), "empty.csv: the series is empty"),
        ("empty.csv", ("--request", "1", "--bin", "30s"), "empty.csv: no events"),
        ("load.csv", ("--request", "0"), "a request must be greater than zero"),
        ("load.csv", ("--request", "memory=1Gi"), "a utilization target needs the request of a pod (cpu)"),
        ("load.csv", ("--request", "1", "--period", "0s"), "the sync period must be greater than zero"),
        ("load.csv", ("--request", "1", "--replicas", "half.csv"), "recorded replicas must be whole numbers of pods"),
        ("load.csv", ("--request", "1", "--replicas", "empty.csv"), "the recorded replicas are empty"),
        ("load.csv", ("--request", "1", "lag=load.csv"), "no HPA reads the series of 'lag' (metrics: cpu)"),
        ("load.csv", ("--request", "1", "load.csv"), "the first metric has two series"),
        ("load.csv", ("-f", "bad.yaml"), "spec.maxReplicas: Invalid value: -1"),
    ],
)
def test_bad_input_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, series: str, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    out = kscale("replay", "hpa", series, "-f", "fast.yaml", *arguments)
    assert out.code == 2
    assert message in out.stderr


def test_a_manifest_without_hpa(folder: Path) -> None:
    (folder / "none.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\n", encoding="utf-8"
    )
    out = kscale("replay", "hpa", folder / "load.csv", "-f", folder / "none.yaml")
    assert out.code == 2
    assert "no HorizontalPodAutoscaler" in out.stderr


def test_a_kind_of_no_series_is_refused(folder: Path) -> None:
    out = kscale(
        "replay", "hpa", folder / "load.csv", "-f", folder / "fast.yaml", "--request", "1", "--series", "cpx=total"
    )
    assert out.code == 2
    assert "cpx has no series" in out.stderr


def test_times_and_bins_out_of_range_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("time,value\n1e30,1\n", encoding="utf-8")
    options = ("-f", folder / "fast.yaml", "--request", "500m")
    out = kscale("replay", "hpa", tmp_path / "far.csv", *options)
    assert out.code == 2
    assert "nanoseconds since 1970 must fit 64 bits" in out.stderr
    out = kscale("replay", "hpa", folder / "load.csv", *options, "--bin", "1ns")
    assert out.code == 2
    assert "bins must be wider" in out.stderr


CPU = 'sum(rate(container_cpu_usage_seconds_total{pod=~"web-.*"}[1m]))'
END = 1_767_657_600  # 2026-01-06
UNTIL = ("--until", "2026-01-06T00:00:00Z", "--history-length", "50m", "--history-resolution", "30s")


def cores(time: float) -> float:
    return 1.0 if time < END - 1800 else 6.0


def test_a_load_from_prometheus_is_that_from_a_file(folder: Path) -> None:
    rows = [f"{time},{cores(time)}" for time in range(END - 3000, END + 1, 30)]
    (folder / "cpu.csv").write_text("time,value\n" + "\n".join(rows), encoding="utf-8")
    rest = ("-f", folder / "both.yaml", "--request", "cpu=500m", "-o", "json")
    jobs = "max(queue_length == 7)"
    fake = FakePrometheus({}, most=40, loads={CPU: cores, jobs: lambda time: 90.0})
    (folder / "jobs.csv").write_text("\n".join(["time,value", *(f"{row.split(',')[0]},90" for row in rows)]))
    files = (f"cpu={folder / 'cpu.csv'}", f"jobs={folder / 'jobs.csv'}")
    written = kscale("replay", "hpa", *files, *rest)
    header = ("--prometheus-header", "X-Scope-OrgID: team")
    with fake.served() as url:
        got = kscale("replay", "hpa", f"cpu={CPU}", f"jobs={jobs}", "--prometheus-url", url, *UNTIL, *header, *rest)
    assert (got.code, written.code) == (0, 0), got.stderr + written.stderr
    assert json.loads(got.stdout) == json.loads(written.stdout)
    assert json.loads(got.stdout)["summaries"][0]["rescales"] > 0
    assert {each["query"] for each in fake.requests} == {CPU, jobs}
    assert {each["X-Scope-OrgID"] for each in fake.headers} == {"team"}
    assert got.stderr.count("of 127.0.0.1:") == 1


def test_the_budget_is_that_of_all_queries_together(folder: Path) -> None:
    jobs = "max(queue_length)"
    rest = ("-f", folder / "both.yaml", "--request", "cpu=500m", *UNTIL)
    with FakePrometheus({}, loads={CPU: cores, jobs: lambda time: 90.0}).served() as url:
        budget = ("--prometheus-url", url, "--prometheus-budget", "4k")
        one = kscale("replay", "hpa", f"cpu={CPU}", *budget, *rest)
        both = kscale("replay", "hpa", f"cpu={CPU}", f"jobs={jobs}", *budget, *rest)
    assert "more than the" not in one.stderr
    assert (both.code, "has answered more than the 4,000 bytes allowed" in both.stderr) == (2, True), both.stderr


def test_prometheus_warnings_are_reported_once(folder: Path) -> None:
    rest = ("-f", folder / "fast.yaml", "--request", "500m", *UNTIL)
    with FakePrometheus({}, loads={CPU: cores}, warnings=["partial response"]).served() as url:
        limits = ("--prometheus-url", url, "--history-length", "5d")
        got = kscale("replay", "hpa", CPU, *rest, *limits)
    assert (got.code, got.stderr.count("partial response")) == (0, 1), got.stderr


def test_password_in_a_non_http_address_is_not_shown(folder: Path) -> None:
    url = "ftp://admin:s3cret@prom.shop:9090"
    got = kscale("replay", "hpa", CPU, "-f", folder / "fast.yaml", "--request", "500m", "--prometheus-url", url)
    assert (got.code, "s3cret" in got.stdout + got.stderr) == (2, False), got.stderr


def test_a_query_without_a_metric_drives_the_first(folder: Path) -> None:
    rest = ("-f", folder / "fast.yaml", "--request", "500m", "-o", "json")
    with FakePrometheus({}, loads={CPU: cores}).served() as url:
        got = kscale("replay", "hpa", CPU, "--prometheus-url", url, *UNTIL, *rest)
    assert got.code == 0, got.stderr
    assert json.loads(got.stdout)["summaries"][0]["rescales"] > 0
    with FakePrometheus({}).served() as url:
        nothing = kscale("replay", "hpa", "up", "--prometheus-url", url, *UNTIL, *rest)
    assert (nothing.code, "up" in nothing.stderr, "the series is empty" in nothing.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--until", "2026-01-06T00:00:00Z"), "--until: has no effect without --prometheus-url"),
        (("--history-length", "1h"), "--history-length: needs --prometheus-url"),
        (("--prometheus-url", "http://x", "--bin", "15s"), "--bin: has no effect with --prometheus-url"),
        (("--prometheus-url", "http://x", "--value", "cpu"), "--value: has no effect with --prometheus-url"),
        (("--prometheus-url", "http://x", "--unit", "ms"), "--unit: has no effect with --prometheus-url"),
    ],
)
def test_options_that_only_one_source_reads(folder: Path, more: tuple[str, ...], message: str) -> None:
    got = kscale("replay", "hpa", "load.csv", "-f", folder / "fast.yaml", *more)
    assert (got.code, message in got.stderr) == (2, True), got.stderr


def test_warnings_of_prometheus_responses_in_files_are_reported(folder: Path) -> None:
    for name in ("jobs", "replicas"):
        matrix = [{"metric": {}, "values": [[i * 60, "10" if i < 30 else "250"] for i in range(50)]}]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": matrix}, "warnings": [f"no {name}"]}
        (folder / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
    files = ("-f", folder / "fast.yaml", "--request", "500m", "--replicas", folder / "replicas.json")
    got = kscale("replay", "hpa", folder / "jobs.json", *files)
    assert got.code == 0, got.stderr
    for name in ("jobs", "replicas"):
        assert f"warning: {folder / name}.json: no {name}" in got.stderr
