"""What rounds, loops and requests add to upstream's metrics (spec 15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.selectors import EVERYTHING
from kscale.vpa import ClusterState, Round, UpdaterRound, UpdaterState, Usage, VpaIndex, review, run_once, run_updater
from kscale.vpa.metrics import METRICS, Observations, metric_key
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE
from kscale.vpa.target import Controllers
from unit.vpa.builders import container, controller, owned, pod, recommended, vpa

SECOND = 10**9
T0 = 1767571200 * SECOND
LATENCY = "vpa_recommender_recommendation_latency_seconds"
OBJECTS = "vpa_recommender_vpa_objects_count"


def owner() -> Any:
    return controller("ReplicaSet", "rs", replicas=2, selector={"matchLabels": {"app": "x"}})


def made(at: str | None, **spec: Any) -> Any:
    item = vpa(**spec)
    item.metadata.creation_timestamp = at
    return item


def objects(**labels: str) -> str:
    given = {
        "update_mode": "Recreate", "has_recommendation": "true", "api": "v1", "matches_pods": "true",
        "unsupported_config": "false", **labels,
    }  # fmt: skip
    return metric_key(OBJECTS, given)


def test_every_metric_is_named_once_and_its_bounds_ascend() -> None:
    assert len(METRICS) == 33
    for name, metric in METRICS.items():
        assert name == metric.name
        assert bool(metric.bounds) == (metric.kind == "histogram")
        assert list(metric.bounds) == sorted(set(metric.bounds))


def test_the_first_recommendation_is_timed_once() -> None:
    state = ClusterState()
    given = Round(vpas=[made("2026-01-05T00:00:00Z")], pods=[], controllers=owned())
    first = run_once(state, given, now=T0 + 3 * SECOND)
    assert LATENCY not in first.distributions
    assert first.observations[objects(has_recommendation="false", matches_pods="false")] == 1
    given.pods = [pod(container("c"))]
    second = run_once(state, given, now=T0 + 9 * SECOND)
    found = second.distributions[LATENCY]
    assert (sum(found.counts), found.total) == (1, 9.0)
    assert found.counts[list(found.bounds).index(10.0)] == 1
    assert second.observations[objects()] == 1
    known = made("2026-01-05T00:00:00Z")
    known.status = second.vpas[0].status
    given.vpas = [known]
    assert LATENCY not in run_once(state, given, now=T0 + 60 * SECOND).distributions


@pytest.mark.parametrize("at", [None, "0001-01-01T00:00:00Z", "some day"])
def test_a_vpa_without_a_time_is_not_timed(at: str | None) -> None:
    usage = Usage.from_events([(("default", "pod", "c"), T0, 100, CPU_SAMPLE)])
    given = Round(vpas=[made(at)], pods=[pod(container("c"))], controllers=owned(), usage=[usage])
    result = run_once(ClusterState(), given, now=T0 + SECOND)
    assert result.vpas[0].recommendation is not None
    assert LATENCY not in result.distributions


def test_objects_are_counted_by_what_they_are() -> None:
    old = made(None, updatePolicy={"updateMode": "Off"})
    old.metadata.name = "old"
    old.api_version = "autoscaling.k8s.io/v1beta2"
    lost = made(None, targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"})
    lost.metadata.name = "lost"
    result = run_once(ClusterState(), Round(vpas=[old, lost], pods=[], controllers=owned()), now=T0)
    none = {"has_recommendation": "false", "matches_pods": "false"}
    assert {key: n for key, n in result.observations.items() if key.startswith(OBJECTS)} == {
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
    result = run_once(ClusterState(), Round(vpas=[], pods=[from_dict(body, Pod)]), now=T0)
    spec = ("Pod.Spec.Containers", "Pod.Spec.InitContainers")
    sources = (*spec, "Pod.Status.ContainerStatuses", "Pod.Status.InitContainerStatuses")
    assert {key: n for key, n in result.observations.items() if "resources" in key} == {
        metric_key("vpa_resources_get_resources_count", {"source": source}): 1 for source in sources
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
)  # fmt: skip
def test_admitted_pods_are_counted(item: Any, version: str, status: str) -> None:
    index = VpaIndex([vpa(recommended("c", ("1", "1Gi")))])
    found = review(request("pods", item, version), index, controllers=owned())
    assert (found.resource, found.status) == ("Pod", status)
    assert found.observations == {metric_key(PODS, {"applied": status == "applied"}): 1}
    ((key, latency),) = found.latency(0.3).items()
    assert key == f"vpa_admission_controller_admission_latency_seconds{{status={status},resource=Pod}}"
    assert (latency.counts[list(latency.bounds).index(0.5)], sum(latency.counts), latency.total) == (1, 1, 0.3)


def test_other_requests_are_timed_only() -> None:
    for body, label in ((b"{", "error,resource=unknown"), (request("jobs", {}), "skipped,resource=unknown")):
        found = review(body, VpaIndex([]))
        assert found.observations == {}
        assert list(found.latency(1.0)) == [f"vpa_admission_controller_admission_latency_seconds{{status={label}}}"]
    written = review(request("verticalpodautoscalers", {}, group="autoscaling.k8s.io"), VpaIndex([]))
    assert (written.resource, written.observations) == ("VPA", {})


def test_all_that_decisions_count_is_upstreams() -> None:
    keys: list[str] = []
    usage = Usage.from_events(
        [(("default", "pod-0", "c"), T0 + i, 100, kind) for i in range(3) for kind in (CPU_SAMPLE, MEMORY_SAMPLE)]
    )
    pods = [pod(container("c", ("100m", "100Mi")), name=f"pod-{i}") for i in range(2)]
    known = Controllers([owner()])
    state = ClusterState()
    for _ in range(2):
        result = run_once(state, Round(vpas=[vpa()], pods=pods, controllers=known, usage=[usage]), now=T0)
        keys += [*result.observations, *result.distributions]
    for mode in ("Recreate", "InPlaceOrRecreate"):
        item = vpa(recommended("c", ("2", "2Gi"), ("1", "1Gi"), ("3", "3Gi")), updatePolicy={"updateMode": mode})
        loop = run_updater(UpdaterState(), UpdaterRound(vpas=[item], pods=pods, controllers=known), now=T0)
        keys += loop.observations
    assert len({key.partition("{")[0] for key in keys}) > 12
    for key in keys:
        name, _, rest = key.partition("{")
        assert METRICS[name].labels == tuple(pair.partition("=")[0] for pair in rest.rstrip("}").split(",") if pair)


def test_wrong_labels_are_a_mistake_of_the_caller() -> None:
    seen = Observations()
    with pytest.raises(ValueError, match="has the labels applied, not status"):
        seen.count(PODS, {"status": "x"})
    seen.observe(LATENCY, {}, [])
    assert seen.distributions == {}
    assert EVERYTHING.empty
