"""``kscale replay hpa``: answers, plots, and bad input by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    (tmp_path / "average.csv").write_text("time,value\n0,0.5\n30,0.5\n", encoding="utf-8")
    (tmp_path / "replicas.csv").write_text("time,value\n0,4\n", encoding="utf-8")
    (tmp_path / "events.csv").write_text("when,size\n31,2\n1,3\n2,4\n", encoding="utf-8")
    (tmp_path / "back.csv").write_text("time,value\n30,1\n0,1\n", encoding="utf-8")
    (tmp_path / "nan.csv").write_text("time,value\n0,NaN\n", encoding="utf-8")
    return tmp_path


def test_side_by_side(folder: Path) -> None:
    files = ("-f", folder / "fast.yaml", "-f", folder / "slow.yaml", "--request", "500m")
    out = kscale("replay", "hpa", folder / "load.csv", *files, "-o", "json", "--plot", folder / "plot.svg")
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


def test_recorded_replicas_and_events(folder: Path) -> None:
    hpa = ("-f", folder / "fast.yaml", "--request", "500m", "-o", "json")
    average = ("--series", "average", "--replicas", folder / "replicas.csv")
    report = json.loads(kscale("replay", "hpa", folder / "average.csv", *hpa, *average).stdout)
    assert report["summaries"][0]["agreement"] is not None
    for value in ("count", "size"):
        events = ("--bin", "15s", "--time", "when", "--value", value)
        assert json.loads(kscale("replay", "hpa", folder / "events.csv", *hpa, *events).stdout)["syncs"] == 3


@pytest.mark.parametrize(
    ("series", "arguments", "message"),
    [
        ("load.csv", (), "a utilization target needs the request of a pod"),
        ("load.csv", ("--request", "1", "--series", "average"), "needs the recorded replicas"),
        ("load.csv", ("--request", "1", "--series", "sum"), "is not one of total, per-pod, average"),
        ("load.csv", ("--request", "1O"), "quantities must match"),
        ("load.csv", ("--startup", "soon"), "invalid duration"),
        ("load.csv", ("--fail-on", "rain"), "is not underprovisioned>DURATION"),
        ("load.csv", ("--request", "1", "--plot", "plot.gif"), "a plot is written as .png or .svg"),
        ("back.csv", ("--request", "1"), "times must ascend"),
        ("nan.csv", ("--request", "1"), "nan is not a number"),
        ("none.csv", ("--request", "1"), "No such file"),
    ],
)
def test_bad_input_is_named(folder: Path, series: str, arguments: tuple[str, ...], message: str) -> None:
    out = kscale("replay", "hpa", folder / series, "-f", folder / "fast.yaml", *arguments)
    assert out.code == 2
    assert message in out.stderr


def test_a_manifest_without_hpa(folder: Path) -> None:
    (folder / "none.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: n}\n", encoding="utf-8"
    )
    out = kscale("replay", "hpa", folder / "load.csv", "-f", folder / "none.yaml")
    assert out.code == 2
    assert "no HorizontalPodAutoscaler" in out.stderr
