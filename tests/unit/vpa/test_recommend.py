"""``vpa.recommend``: requests for workloads, from objects and usage to a report."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kscale
from kscale import vpa
from kscale.errors import InputError
from kscale.objects.decode import from_dict
from kscale.objects.vpa import VerticalPodAutoscalerCheckpoint
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch
from kscale.vpa.strategies import find_strategy
from unit.cli.recommend.support import MIB, START, dump, rows

SECOND = 10**9


def items() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dump()["items"]
    return found


def batch(count: int = 200, cpu: float = 0.1, pod: str = "web-5d4f8-abcde") -> UsageBatch:
    return UsageBatch(
        [SeriesKey("shop", pod, "app")],
        [""],
        np.zeros(count, np.int32),
        (START + 60 * np.arange(count)) * SECOND,
        np.full(count, cpu),
        np.full(count, 300.0 * MIB),
    )


def test_objects_and_batches() -> None:
    report = vpa.recommend(items(), [batch()])
    (one,) = report.containers
    assert (one.workload, one.container, one.cpu.target, one.memory.target) == ("Deployment/web", "app", 126, 380258472)
    assert report.now == "2026-01-05T03:19:00Z"
    assert report.change_millicores == -374
    assert pickle.loads(pickle.dumps(report)) == report
    assert msgspec.json.decode(msgspec.json.encode(report))["containers"][0]["samples"] == 200


def test_a_cluster_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    path.write_text("time,namespace,pod,container,cpu_cores,memory_bytes\n" + "".join(rows(200)))
    cluster = kscale.load(items())
    assert vpa.recommend(cluster, path) == vpa.recommend(cluster, str(path)) == vpa.recommend(items(), [batch()])


def test_what_a_saved_answer_warns_of_is_told_once(tmp_path: Path) -> None:
    labels = {"namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app", "resource": "cpu"}
    result = [{"metric": labels, "values": [[START + 60 * i, "0.1"] for i in range(200)]}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}, "warnings": ["a store is away"]}
    path = tmp_path / "usage.json"
    path.write_bytes(msgspec.json.encode(answer))
    counts = vpa.recommend(items(), path).counts
    assert (counts["samples"], counts["warnings of the source: a store is away"]) == (200, 1)


@pytest.mark.parametrize("now", [datetime(2026, 1, 5, 4, tzinfo=UTC), (START + 4 * 3600) * SECOND])
def test_the_moment_asked_about(now: datetime | int) -> None:
    assert vpa.recommend(items(), [batch()], now=now).now == "2026-01-05T04:00:00Z"


@pytest.mark.parametrize("now", [datetime(2026, 1, 5, 4), 2**63, 1.5])  # noqa: DTZ001
def test_moments_that_are_none(now: Any) -> None:
    with pytest.raises(InputError, match="now: "):
        vpa.recommend(items(), [batch()], now=now)


@pytest.mark.parametrize(
    ("chosen", "count", "note"),
    [
        ({"namespaces": ["shop"], "kinds": ["deployment"], "selector": "app=web"}, 1, ""),
        ({"namespaces": ["shop", "bakery"]}, 1, "no workload in the namespace bakery"),
        ({"kinds": ["DaemonSet"]}, 0, "no workload of the kind DaemonSet"),
        ({"selector": "app!=web"}, 0, "no workload with the pod labels app!=web"),
    ],
)
def test_workloads_are_chosen(chosen: dict[str, Any], count: int, note: str) -> None:
    report = vpa.recommend(items(), [batch()], **chosen)
    assert len(report.containers) == count
    assert report.notes == ([note] if note else [])


def test_a_selector_that_is_none() -> None:
    with pytest.raises(InputError, match="selector 'app in': "):
        vpa.recommend(items(), [batch()], selector="app in")


def test_strategies_and_options() -> None:
    (one,) = vpa.recommend(items(), [batch()], strategy=find_strategy("percentile")).containers
    assert one.cpu.target == 100
    options = vpa.RecommenderOptions(recommendation_margin_fraction=1.0)
    (one,) = vpa.recommend(items(), [batch()], options=options).containers
    assert one.cpu.target == 220
    (one,) = vpa.recommend(items(), [batch(50)], points_required=51).containers
    assert (one.cpu.target, one.info) == (None, ["not enough data"])


def test_checkpoints_are_taken_in() -> None:
    body = {
        "metadata": {"name": "deployment-web-app", "namespace": "shop"},
        "spec": {"vpaObjectName": "deployment-web", "containerName": "app"},
        "status": {
            "version": "v3",
            "cpuHistogram": {
                "referenceTimestamp": "2026-01-05T00:00:00Z", "bucketWeights": {"60": 10000}, "totalWeight": 1000.0,
            },
            "firstSampleStart": "2026-01-01T00:00:00Z",
            "lastSampleStart": "2026-01-05T00:00:00Z",
            "totalSamplesCount": 5000,
        },
    }  # fmt: skip
    checkpoint = from_dict(body, VerticalPodAutoscalerCheckpoint)
    (one,) = vpa.recommend(items(), [batch()], checkpoints=[checkpoint]).containers
    assert one.samples == 5200
    assert one.cpu.target is not None
    assert one.cpu.target > 1000
    (alone,) = vpa.recommend(items(), [], checkpoints=[checkpoint], now=START * SECOND).containers
    assert (alone.memory.target, alone.info) == (None, ["no memory data"])


def test_threads_and_progress() -> None:
    told: list[int] = []
    report = vpa.recommend(items(), [batch(), batch(pod="web-5d4f8-other")], progress=told.append, threads=3)
    assert told == [200, 400]
    assert report == vpa.recommend(items(), [batch(), batch(pod="web-5d4f8-other")])
