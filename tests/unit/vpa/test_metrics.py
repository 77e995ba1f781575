"""What rounds, loops and requests add to upstream's metrics (spec 15)."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from kscale.effects import Metric, Observation
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.vpa import (
    RecommenderRound,
    RecommenderState,
    UpdaterRound,
    UpdaterState,
    Usage,
    VpaIndex,
    review,
    run_once,
    run_updater,
)
from kscale.vpa.controllers import Controllers
from kscale.vpa.metrics import METRICS, ObservationTally, build_observation, get_size_log2
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE
from unit.vpa.builders import changed_pods, container, controller, owned, pod, recommended, vpa
from unit.vpa.worlds import counted

SECOND = 10**9
T0 = 1767571200 * SECOND
LATENCY = "vpa_recommender_recommendation_latency_seconds"
OBJECTS = "vpa_recommender_vpa_objects_count"


def owner() -> Any:
    return controller("ReplicaSet", "rs", replicas=2, selector={"matchLabels": {"app": "x"}})


def vpa_created(at: str | None, **spec: Any) -> Any:
    item = vpa(**spec)
    item.metadata.creation_timestamp = at
    return item


def objects(**labels: str) -> str:
    labels_ = {
        "update_mode": "Recreate", "has_recommendation": "true", "api": "v1", "matches_pods": "true",
        "unsupported_config": "false", **labels,
    }  # fmt: skip
    return key(OBJECTS, labels_)


def key(name: str, labels: dict[str, Any]) -> str:
    (result,) = counted([build_observation(name, labels)])
    return result


def of(observations: list[Observation], name: str) -> list[Observation]:
    return [one for one in observations if one.name == name]


def test_every_metric_is_named_once_and_its_bounds_ascend() -> None:
    assert len(METRICS) == 33
    for name, metric in METRICS.items():
        assert name == metric.name
        assert bool(metric.bounds) == (metric.kind == "histogram")
        assert list(metric.bounds) == sorted(set(metric.bounds))


STEPS = (
    "0.01 0.02 0.05 0.1 0.2 0.5 1 2 5 10 20 30 40 50 60 70 80 90 100 120 150 240 300"
)  # fmt: skip
REQUESTS = "0.01 0.02 0.05 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 2 5 10 20 30 60 120 300"
FIRST = "1 2 5 7.5 10 20 30 40 50 60 90 120 150 180 240 300 600 900 1800"
CORES = " ".join(str(0.01 * 2**k) for k in range(17))
BYTES = " ".join(str(1e6 * 2**k) for k in range(17))
RELATIVE = (
    "-1 -0.75 -0.5 -0.25 -0.1 -0.05 -0.025 -0.01 -0.005 -0.0025 -0.001 0 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 "
    "0.5 0.75 1 2.5 5 10 25 50 100"
)


@pytest.mark.parametrize(
    ("pattern", "bounds", "count"),
    [
        (r"vpa_(recommender|updater|admission_controller)_execution_latency_seconds", STEPS, 3),
        (r"vpa_recommender_prometheus_client_api_requests_duration_seconds", REQUESTS, 1),
        (r"vpa_admission_controller_admission_latency_seconds", REQUESTS, 1),
        (r"vpa_recommender_recommendation_latency_seconds", FIRST, 1),
        (r"vpa_quality_cpu_.*_cores", CORES, 3),
        (r"vpa_quality_mem_.*_bytes", BYTES, 3),
        (r"vpa_quality_(usage_recommendation_relative_diffs|relative_recommendation_changes)", RELATIVE, 2),
    ],
)
def test_bounds_are_upstreams(pattern: str, bounds: str, count: int) -> None:
    result: list[Metric] = [metric for name, metric in METRICS.items() if re.fullmatch(pattern, name)]
    assert len(result) == count
    assert all(metric.bounds == tuple(map(float, bounds.split())) for metric in result)


@pytest.mark.parametrize(("pods", "label"), [(1, 0), (2, 1), (3, 1), (4, 2), (1 << 20, 20), (1 << 30, 20)])
def test_size(pods: int, label: int) -> None:
    assert get_size_log2(pods) == label


def test_the_first_recommendation_is_timed_once() -> None:
    state = RecommenderState()
    round_inputs = RecommenderRound(vpas=[vpa_created("2026-01-05T00:00:00Z")], controllers=owned())
    first = run_once(state, round_inputs, now=T0 + 3 * SECOND)
    assert not of(first.observations, LATENCY)
    assert counted(first.observations)[objects(has_recommendation="false", matches_pods="false")] == 1
    round_inputs.pods = changed_pods(pod(container("c")))
    second = run_once(state, round_inputs, now=T0 + 9 * SECOND)
    (result,) = of(second.observations, LATENCY)
    assert result.buckets is not None
    assert (sum(result.buckets), result.value) == (1, 9.0)
    assert result.buckets[METRICS[LATENCY].bounds.index(10.0)] == 1
    assert counted(second.observations)[objects()] == 1
    known = vpa_created("2026-01-05T00:00:00Z")
    known.status = second.vpas[0].status
    round_inputs.vpas = [known]
    assert not of(run_once(state, round_inputs, now=T0 + 60 * SECOND).observations, LATENCY)


@pytest.mark.parametrize("at", [None, "0001-01-01T00:00:00Z", "some day"])
def test_a_vpa_without_a_time_is_not_timed(at: str | None) -> None:
    usage = Usage.from_events([(("default", "pod", "c"), T0, 100, CPU_SAMPLE)])
    round_inputs = RecommenderRound(
        vpas=[vpa_created(at)], pods=changed_pods(pod(container("c"))), controllers=owned(), usage=[usage]
    )
    result = run_once(RecommenderState(), round_inputs, now=T0 + SECOND)
    assert result.vpas[0].recommendation is not None
    assert not of(result.observations, LATENCY)


def test_objects_are_counted_by_what_they_are() -> None:
    old = vpa_created(None, updatePolicy={"updateMode": "Off"})
    old.metadata.name = "old"
    old.api_version = "autoscaling.k8s.io/v1beta2"
    lost = vpa_created(None, targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"})
    lost.metadata.name = "lost"
    result = run_once(RecommenderState(), RecommenderRound(vpas=[old, lost], controllers=owned()), now=T0)
    none = {"has_recommendation": "false", "matches_pods": "false"}
    assert counted(result.observations, OBJECTS) == {
        objects(update_mode="Off", api="v1beta2", **none): 1,
        objects(unsupported_config="true", **none): 1,
    }


def test_where_requests_are_read_from_is_counted() -> None:
    body = {
        "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
        "status": {
            "containerStatuses": [{"name": "a", "resources": {}}, {"name": "b"}],
            "initContainerStatuses": [{"name": "j", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    result = run_once(RecommenderState(), RecommenderRound(vpas=[], pods=changed_pods(from_dict(body, Pod))), now=T0)
    spec = ("Pod.Spec.Containers", "Pod.Spec.InitContainers")
    sources = (*spec, "Pod.Status.ContainerStatuses", "Pod.Status.InitContainerStatuses")
    assert counted(result.observations, "vpa_resources") == {
        key("vpa_resources_get_resources_count", {"source": source}): 1 for source in sources
    }


def request(resource: str, item: Any, version: str = "v1", group: str = "") -> bytes:
    body = {"uid": "1", "resource": {"group": group, "version": version, "resource": resource}, "object": item}
    return json.dumps({"request": body}).encode()


METADATA = {"name": "p", "namespace": "default", "labels": {"app": "x"}}
REFERENCE = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True}
POD = {"metadata": METADATA, "spec": {"containers": [{"name": "c"}]}}
PODS = "vpa_admission_controller_admission_pods_total"


@pytest.mark.parametrize(
    ("item", "version", "status"),
    [
        ({**POD, "metadata": {**METADATA, "ownerReferences": [REFERENCE]}}, "v1", "applied"),
        (POD, "v1", "skipped"),
        ({"spec": 1}, "v1", "skipped"),
        (POD, "v2", "skipped"),
    ],
)
def test_admitted_pods_are_counted(item: Any, version: str, status: str) -> None:
    index = VpaIndex([vpa(recommended("c", ("1", "1Gi")))])
    result = review(request("pods", item, version), index, controllers=owned())
    assert (result.resource, result.status) == ("Pod", status)
    assert result.observations == [build_observation(PODS, {"applied": status == "applied"})]
    labels = {"status": status, "resource": "Pod"}
    name = "vpa_admission_controller_admission_latency_seconds"
    assert result.latency(0.3) == Observation(name=name, value=0.3, labels=labels)


def test_other_requests_are_timed_only() -> None:
    """What cannot be read, and what nobody handles, is an error to the metric, and allowed all the same."""
    for body in (b"{", request("jobs", {})):
        result = review(body, VpaIndex([]))
        assert result.observations == []
        assert result.latency(1.0).labels == {"status": "error", "resource": "unknown"}
    written = review(request("verticalpodautoscalers", {}, group="autoscaling.k8s.io"), VpaIndex([]))
    assert (written.resource, written.status, written.observations) == ("VPA", "applied", [])


def test_all_that_decisions_count_is_upstreams() -> None:
    result: list[Observation] = []
    usage = Usage.from_events(
        [(("default", "pod-0", "c"), T0 + i, 100, kind) for i in range(3) for kind in (CPU_SAMPLE, MEMORY_SAMPLE)]
    )
    pods = [pod(container("c", ("100m", "100Mi")), name=f"pod-{i}") for i in range(2)]
    known = Controllers([owner()])
    state = RecommenderState()
    for _ in range(2):
        round_inputs = RecommenderRound(vpas=[vpa()], pods=changed_pods(*pods), controllers=known, usage=[usage])
        result += run_once(state, round_inputs, now=T0).observations
    for mode in ("Recreate", "InPlaceOrRecreate"):
        item = vpa(recommended("c", ("2", "2Gi"), ("1", "1Gi"), ("3", "3Gi")), updatePolicy={"updateMode": mode})
        loop = run_updater(UpdaterState(), UpdaterRound(vpas=[item], pods=pods, controllers=known), now=T0)
        result += loop.observations
    assert len({one.name for one in result}) > 12
    for one in result:
        metric = METRICS[one.name]
        assert one.reset or tuple(one.labels) == metric.labels
        assert one.buckets is None or len(one.buckets) == len(metric.bounds) + 1


def test_wrong_labels_are_a_mistake_of_the_caller() -> None:
    tally = ObservationTally()
    with pytest.raises(ValueError, match="has the labels applied, not status"):
        tally.count(PODS, {"status": "x"})
    tally.observe(LATENCY, {}, [])
    assert tally.observations() == []


def test_a_tally_says_each_once() -> None:
    tally = ObservationTally()
    tally.count(PODS, {"applied": True}, 2)
    for values in ([1.0, 1800.5], np.array([0.5])):
        tally.observe(LATENCY, {}, values)
    tally.count(PODS, {"applied": True})
    buckets = (2, *[0] * 18, 1)
    assert tally.observations() == [
        Observation(name=PODS, value=3.0, labels={"applied": "true"}),
        Observation(name=LATENCY, value=1802.0, buckets=buckets),
    ]
