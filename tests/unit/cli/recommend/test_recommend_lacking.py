"""``kscale recommend``: histories of CPU only, or of memory only: upstream's minimum is no advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.cli.recommend.support import MIB, START, answer, dump, recommend, rows
from unit.cli.support import Run, kscale

FIELDS = ("target", "targetLimit", "lowerBound", "upperBound", "uncappedTarget")


def cpu_only(cluster: Path, *more: object) -> Run:
    return recommend(cluster, rows(200, memory=""), *more)


def memory_only(cluster: Path, *more: object) -> Run:
    history = cluster.parent / "memory.csv"
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{300 * MIB}\n" for i in range(200)]
    history.write_text("time,namespace,pod,container,memory_bytes\n" + "".join(lines))
    return kscale("recommend", "-f", cluster, "--history", history, *more)


def advice(run: Run) -> dict[str, Any]:
    (one,) = answer(run)["containers"]
    result: dict[str, Any] = one
    return result


def test_without_memory_there_is_advice_for_cpu_only(cluster: Path) -> None:
    one = advice(cpu_only(cluster, "-o", "json"))
    assert (one["info"], one["cpu"]["target"]) == (["no memory data"], 126)
    assert [one["memory"][field] for field in FIELDS] == [None] * 5
    assert (one["memory"]["request"], one["memory"]["severity"], one["severity"]) == (2**30, "unknown", "warning")


def test_without_cpu_there_is_advice_for_memory_only(cluster: Path) -> None:
    one = advice(memory_only(cluster, "-o", "json"))
    assert (one["info"], one["memory"]["target"]) == (["no CPU data"], 380258472)
    assert [one["cpu"][field] for field in FIELDS] == [None] * 5
    assert one["severity"] == one["memory"]["severity"] == "critical"


@pytest.mark.parametrize(
    ("history", "change", "requests"),
    [(cpu_only, (-374, 0), {"cpu": "126m"}), (memory_only, (0, 380258472 - 2**30), {"memory": "380258472"})],
)
def test_missing_resources_are_in_no_total_and_no_object(
    cluster: Path, history: Any, change: tuple[int, int], requests: dict[str, str]
) -> None:
    record = answer(history(cluster, "-o", "json"))
    assert (record["changeMillicores"], record["changeBytes"]) == change
    (patch,) = yaml.safe_load_all(history(cluster, "-o", "patch").stdout)
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == requests
    (vpa,) = yaml.safe_load_all(history(cluster, "-o", "vpa").stdout)
    (item,) = vpa["status"]["recommendation"]["containerRecommendations"]
    assert all(list(amounts) == list(requests) for name, amounts in item.items() if name != "containerName")


@pytest.mark.parametrize("quality", ["guaranteed", "burstable"])
def test_a_quality_of_service_adds_nothing(cluster: Path, quality: str) -> None:
    one = advice(cpu_only(cluster, "--qos", quality, "-o", "json"))
    assert (one["memory"]["target"], one["memory"]["targetLimit"]) == (None, None)


def test_percentile_strategy_handles_missing_resources_the_same(cluster: Path) -> None:
    one = advice(memory_only(cluster, "--strategy", "percentile", "-o", "json"))
    assert (one["info"], one["cpu"]["target"], one["memory"]["target"]) == (["no CPU data"], None, 345 * MIB)
    one = advice(cpu_only(cluster, "--strategy", "percentile", "-o", "json"))
    assert (one["info"], one["cpu"]["target"], one["memory"]["target"]) == (["no memory data"], 100, None)


def test_a_kill_for_memory_is_data(cluster: Path) -> None:
    document = dump()
    killed = {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-05T01:00:00Z"}}
    status = {"name": "app", "state": {"running": {}}, "lastState": killed, "restartCount": 1}
    document["items"][2]["status"]["containerStatuses"] = [status]
    cluster.write_text(json.dumps(document))
    one = advice(cpu_only(cluster, "-o", "json"))
    assert one["info"] == ["OOM"]
    assert one["memory"]["target"] > 2**30


def test_the_table_says_it(cluster: Path) -> None:
    output = cpu_only(cluster).stdout
    assert "no memory data" in output
    assert output.startswith("Requests would fall by 0.374 cpu")
    assert "250Mi" not in output


def test_neither_is_no_data(cluster: Path) -> None:
    one = advice(recommend(cluster, rows(150, cpu="", memory=""), "-o", "json"))
    assert one["info"] == ["no data"]
    assert (one["cpu"]["target"], one["memory"]["target"]) == (None, None)
