"""What live autoscalers must have written: held against the library's answers to the same input.

``sample`` names workloads by number; objects are plain data, as the API server gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from autoscaled_workloads import MEMORY, USED, Usage, autoscalers, objects, place

import kscale
from kscale.effects import Moment, to_text
from kscale.objects.decode import to_dict
from kscale.objects.quantity import Quantity
from kscale.objects.scale import scale_of_workload
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch

__all__ = ["check_recommendations", "check_statuses", "sample_of"]

_METRICS = "/namespaces/{}/pods"
_SAMPLE = 200


def sample_of(workloads: int) -> range:
    """Some of them, evenly."""
    return range(0, workloads, max(workloads // _SAMPLE, 1))


def check_statuses(
    statuses: Mapping[str, Any], usage: Usage, turns: Iterable[int], workloads: int, pods: int, now: Moment
) -> int:
    """The statuses of HPAs by ``namespace/name``: the sizes of all, and of a sample whatever :func:`kscale.hpa.decide`
    says of the same objects and of one of the ``turns`` of their usage, but for times. Gives the sample's size."""
    assert len(statuses) == workloads
    sizes = {(each["currentReplicas"], each["desiredReplicas"]) for each in statuses.values()}
    assert sizes == {(pods, pods)}, sizes
    chosen = {place(i) for i in sample_of(workloads)}
    hpas = [each for _, each in autoscalers("horizontal", workloads, pods) if _key(each) in chosen]
    there = kscale.Cluster([each for key, each in objects(workloads, pods) if _workload(key) in chosen])
    scales = {f"{each.namespace}/{each.name}": scale_of_workload(each) for each in there.all("Deployment")}
    expected: dict[str, list[Any]] = {}
    for turn in turns:
        metrics = kscale.hpa.MetricLists(resource=True)
        for namespace, name in (key.split("/") for key in sorted(chosen)):
            text = usage.listed(_METRICS.format(namespace), f"app={name}", to_text(now) or "", turn)
            assert not metrics.read_pod_metrics(text)
        result = kscale.hpa.decide(hpas, scales, there, metrics, now=now)
        for row, key in enumerate(result.keys):
            status = to_dict(result[row].value.status)
            expected.setdefault(key, []).append(_timeless(status))
    for key in chosen:
        assert _timeless(statuses[key]) in expected[key], (key, statuses[key], expected[key])
    return len(chosen)


def check_recommendations(
    statuses: Mapping[str, Any], checkpoints: Sequence[Mapping[str, Any]], workloads: int, pods: int, now: Moment
) -> int:
    """The statuses of VPAs by ``namespace/name``: all recommend, each has one checkpoint, and of a sample the targets
    are those that :func:`kscale.vpa.recommend` gives for the same pods and the same usage, and lie between the bounds
    (which depend on how often it was asked). Gives the sample's size."""
    assert len(statuses) == workloads
    assert all(each.get("recommendation", {}).get("containerRecommendations") for each in statuses.values())
    written = Counter(f"{each['metadata']['namespace']}/{each['spec']['vpaObjectName']}" for each in checkpoints)
    assert written == dict.fromkeys(statuses, 1), "each VPA has a checkpoint of its container"
    chosen = {place(i) for i in sample_of(workloads)}
    vpas = [each for _, each in autoscalers("vpa-recommender", workloads, pods) if _key(each) in chosen]
    there = [each for key, each in objects(workloads, pods) if _workload(key) in chosen]
    report = kscale.vpa.recommend([*there, *_replica_sets(there), *vpas], [_history(there, now)], now=now)
    advised = {f"{each.namespace}/{each.vpa}": each for each in report.containers}
    assert advised.keys() == chosen
    for key, advice in advised.items():
        (result,) = statuses[key]["recommendation"]["containerRecommendations"]
        for resource in ("cpu", "memory"):
            own = getattr(advice, resource)
            low, target, uncapped, high = (
                _amount(resource, result[name][resource])
                for name in ("lowerBound", "target", "uncappedTarget", "upperBound")
            )
            assert (target, uncapped) == (own.target, own.uncapped_target), (key, resource, result, own)
            assert low <= target <= high, (key, resource, result)
    return len(chosen)


def _replica_sets(there: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What owns the pods: a live recommender goes by selectors, and needs none."""
    created = []
    for each in there:
        if each["kind"] == "Deployment":
            of = each["metadata"]
            owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": of["name"], "uid": of["uid"]}
            owner["controller"] = True
            metadata = {"namespace": of["namespace"], "name": f"{of['name']}-x", "uid": "u", "ownerReferences": [owner]}
            created.append({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {}})
    return created


def _history(there: Sequence[Mapping[str, Any]], now: Moment) -> UsageBatch:
    """One sample of each container: what :data:`~autoscaled_workloads.USED` says."""
    pods = [each["metadata"] for each in there if each["kind"] == "Pod"]
    count = len(pods)
    (cpu,) = USED[False]
    return UsageBatch(
        keys=[SeriesKey(each["namespace"], each["name"], "c") for each in pods],
        workloads=[""] * count,
        series=np.arange(count, dtype=np.int32),
        time=np.full(count, now, np.int64),
        cpu=np.full(count, Quantity(cpu).approximate_float()),
        memory=np.full(count, Quantity(MEMORY).approximate_float()),
    )


def _amount(resource: str, text: str) -> int:
    """Millicores, bytes."""
    quantity = Quantity(text)
    return quantity.milli_value() if resource == "cpu" else quantity.value()


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _workload(key: str) -> str:
    """``ns1/w1`` of ``pods/ns1/w1-0`` and ``deployments/ns1/w1``."""
    return "/".join(key.split("/")[1:]).partition("-")[0]


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without absent fields, and its conditions without times."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
    ]
    rest = {name: value for name, value in status.items() if value is not None and name != "conditions"}
    return {**rest, "conditions": conditions}
