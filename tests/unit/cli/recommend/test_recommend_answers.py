"""``kscale recommend``: the answer in every format, and the options that choose it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import yaml

import kscale.vpa
from unit.cli.recommend.support import (
    answer,
    recommend,
    rows,
)
from unit.cli.support import kscale


def test_table(cluster: Path) -> None:
    run = recommend(cluster, rows(200))
    assert run.code == 0
    assert run.stdout.splitlines()[0].startswith("Requests would fall by 0.374 cpu and ")
    assert "500m -> 126m [" in run.stdout
    assert "Deployment/web" in run.stdout
    assert "400 samples" in run.stderr


def test_record_contains_the_decisions(cluster: Path) -> None:
    record = answer(recommend(cluster, rows(200), "-o", "json"))
    assert (record["kind"], record["strategy"], record["now"]) == (
        "RecommendationReport",
        "vpa",
        "2026-01-05T03:19:00Z",
    )
    (one,) = record["containers"]
    assert (one["vpa"], one["implied"], one["pods"], one["samples"]) == ("deployment-web", True, 1, 200)
    assert one["cpu"] == {
        "request": 500, "requests": [500], "requested": 500, "limit": None, "target": 126, "targetLimit": None,
        "lowerBound": 124, "upperBound": 1037, "uncappedTarget": 126, "minimum": 25, "compare": None,
        "severity": "warning",
    }  # fmt: skip
    assert one["memory"]["target"] == 380258472


def test_objects_for_kubectl(cluster: Path) -> None:
    (vpa,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "vpa").stdout)
    assert vpa["spec"]["updatePolicy"] == {"updateMode": "Off"}
    assert vpa["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    (item,) = vpa["status"]["recommendation"]["containerRecommendations"]
    assert item["target"] == {"cpu": "126m", "memory": "380258472"}
    target = cluster.parent / "patch.yaml"
    run = recommend(cluster, rows(200), "-o", "patch", "--qos", "guaranteed", "--output-file", target)
    assert (run.code, run.stdout) == (0, "")
    (patch,) = yaml.safe_load_all(target.read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["requests"] == {"cpu": "126m", "memory": "380258472"}


def test_choice_and_fail_on(cluster: Path) -> None:
    for option, value, message in (
        ("-r", "statefulset", "no workload of the kind StatefulSet"),
        ("-n", "other", "no workload in the namespace other"),
        ("-l", "app=db", "no workload with the pod labels app=db"),
    ):
        run = recommend(cluster, rows(200), option, value)
        assert run.stdout.startswith(f"No workload to recommend for: {message}.")
        assert message in run.stderr
        assert "samples" not in run.stderr  # none were asked for
    assert recommend(cluster, rows(200), "--fail-on", "severity>=warning").code == 1
    assert recommend(cluster, rows(200), "--fail-on", "severity>=critical", "--min-memory", "900").code == 0
    assert recommend(cluster, rows(200), "--fail-on", "badness>3").code == 2


def test_qualities_of_service(cluster: Path) -> None:
    plain = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    same = recommend(cluster, rows(200), "--qos", "guaranteed", "-o", "json")
    (one,) = answer(same)["containers"]
    assert one["cpu"]["target"] == one["cpu"]["targetLimit"] == plain["cpu"]["target"]
    between = recommend(cluster, rows(200), "--qos", "burstable", "-o", "json")
    (one,) = answer(between)["containers"]
    for resource in ("cpu", "memory"):
        bounds = plain[resource]["lowerBound"], plain[resource]["upperBound"]
        assert (one[resource]["target"], one[resource]["targetLimit"]) == bounds
    assert answer(between)["quality"] == "burstable"
    assert answer(between)["changeMillicores"] == plain["cpu"]["lowerBound"] - 500
    assert "limit 126m" in recommend(cluster, rows(200), "--qos", "guaranteed").stdout
    assert recommend(cluster, rows(200), "--qos", "guaranteed", "-o", "vpa").code == 2


def test_every_format(cluster: Path) -> None:
    assert recommend(cluster, rows(200), "-o", "name").stdout == "deployment/shop/web\n"
    assert "SAMPLES" in recommend(cluster, rows(200), "-o", "wide").stdout
    assert "| Deployment/web |" in recommend(cluster, rows(200), "-o", "markdown").stdout
    (row,) = csv.DictReader(recommend(cluster, rows(200), "-o", "csv").stdout.splitlines())
    assert (row["workload"], row["cpu_millicores_request"], row["cpu_millicores_target"]) == (
        "Deployment/web",
        "500",
        "126",
    )
    assert (row["memory_bytes_request"], row["memory_bytes_limit"]) == (str(2**30), "")
    assert all(re.fullmatch(r"[a-z_]+", name) for name in row)
    (result,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "yaml").stdout)
    assert result["kind"] == "RecommendationReport"
    run = recommend(cluster, rows(200), "--output-file", cluster.parent / "no" / "file")
    assert run.code == 2
    assert "No such file" in run.stderr


def test_generated_usage(tmp_path: Path) -> None:
    cluster, usage = tmp_path / "c.json", tmp_path / "usage.parquet"
    created = kscale("generate", "--nodes", 4, "--pods", 30, "--lean", "--to", cluster, "--usage", usage)
    assert created.code == 0, created.stderr
    record = answer(kscale("recommend", "-f", cluster, "--history", usage, "-o", "json"))
    assert any(one["cpu"]["target"] for one in record["containers"])
    for threads in (1, 3):
        same = kscale("recommend", "-f", cluster, "--history", usage, "-o", "json", "--threads", threads)
        assert answer(same) == record


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-l", "a in ("), "selector 'a in ('"),
        (("--min-cpu", "nan"), "--min-cpu: nan"),
        (("--min-memory", "inf"), "--min-memory: inf"),
        (("--margin", "-3"), "--margin: -3.0"),
        (("--strategy", "percentile", "--min-cpu", "50"), "--min-cpu: the strategy percentile does not use it"),
        (("--strategy", "percentile", "--cpu-percentile", "200"), "cpu_percentile"),
        (("--strategy", "percentile", "--cpu-percentile", "nan"), "cpu_percentile"),
        (("--strategy", "percentile", "--memory-buffer-percentage", "inf"), "memory_buffer_percentage"),
        (("--strategy", "percentile", "--memory-min-mib", "-1"), "memory_min_mib"),
        (("--strategy", ":X"), "no strategy ':X'"),
    ],
)
def test_options_that_make_no_sense(cluster: Path, options: tuple[str, ...], message: str) -> None:
    run = recommend(cluster, rows(150), *options)
    assert run.code == 2
    assert message in run.stderr
    assert "internal error" not in run.stderr
