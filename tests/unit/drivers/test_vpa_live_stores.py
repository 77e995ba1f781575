"""Decisions of the Vertical Pod Autoscaler from what watches have brought are those from the objects themselves.

Its watches are typed: the store keeps whole objects. Each part of an object by which the updater decides has a case
here in which it makes a difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from kscale import vpa
from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.drivers.vpa_watches import controller_watches, limit_range_watch, vpa_watch
from kscale.effects import from_text
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict, to_dict
from kscale.vpa.capping import LimitRanges
from kscale.vpa.options import RecommenderOptions, UpdaterOptions
from kscale.world.kubernetes.stores import ObjectSink
from kscale.world.protocols import Watch
from unit.snapshot.test_pod_fields import PODS

NOW = from_text("2026-11-28T13:00:00Z")
OLD, YOUNG = "2026-11-27T00:00:00Z", "2026-11-28T12:59:00Z"
LABELS = {"app": "web"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": True}
Document = dict[str, Any]
Scene = tuple[Document, ...]


def pod(name: str, **parts: Any) -> Document:
    requests = {"cpu": "1", "memory": "1Gi"}
    metadata = {"name": name, "namespace": "s", "uid": name, "labels": LABELS, "ownerReferences": [OWNER]}
    spec = {"nodeName": "n", "containers": [{"name": "app", "resources": {"requests": requests}}]}
    status = {"phase": "Running", "startTime": OLD, "qosClass": "Burstable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **parts.get("metadata", {})},
        "spec": {**spec, **parts.get("spec", {})},
        "status": {**status, **parts.get("status", {})},
    }


def autoscaler(mode: str = "Recreate", low: str = "2", **spec: Any) -> Document:
    """A VPA that recommends two cores, and at least ``low``."""
    bounds = {"lowerBound": {"cpu": low}, "target": {"cpu": "2"}, "upperBound": {"cpu": "3"}}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "s"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
            "updatePolicy": {"updateMode": mode},
            **spec,
        },
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "app", **bounds}]}},
    }


def replica_set(replicas: int = 2, labels: dict[str, str] = LABELS) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "s", "uid": "r", "labels": LABELS},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}},
    }


def limit_range(maximum: str) -> Document:
    limits = [{"type": "Container", "max": {"cpu": maximum}}]
    metadata = {"name": "l", "namespace": "s"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def scene(*extra: Document, vpa: Document | None = None, owner: Document | None = None, **parts: Any) -> Scene:
    """Two pods that should be replaced; ``parts`` differ in both."""
    return (vpa or autoscaler(), owner or replica_set(), *extra, pod("web-0", **parts), pod("web-1", **parts))


def plain(documents: Scene) -> list[KubeObject]:
    return [decoded(each) for each in documents]


def decoded(document: Document) -> KubeObject:
    types = {"Pod": Pod, "VerticalPodAutoscaler": VerticalPodAutoscaler, "LimitRange": LimitRange}
    return from_dict(deepcopy(document), types.get(document["kind"], ReplicaSet))


def stored(documents: Scene, *, events: bool) -> list[KubeObject]:
    """The objects as the stores of a live program hold them."""
    items: list[KubeObject] = []
    for each in documents:
        watch = WATCHES[each["kind"]]
        sink = ObjectSink(watch, lambda change: None)
        page = {"kind": f"{each['kind']}List", "apiVersion": watch.api_version, "metadata": {"resourceVersion": "1"}}
        sink.begin()
        sink.read_page(json.dumps({**page, "items": [] if events else [each]}).encode())
        sink.settle()
        if events:
            sink.read_events(json.dumps({"type": "ADDED", "object": each}).encode() + b"\n")
        items += sink.objects.values()
    return items


def updated(objects: list[KubeObject], run: Callable[..., Any] = vpa.run_updater) -> object:
    """What one loop of the updater does."""
    controllers, ranges = vpa.Controllers(), LimitRanges()
    for each in objects:
        if isinstance(each, LimitRange):
            ranges.apply(each)
        elif isinstance(each, ReplicaSet):
            controllers.apply(each)
    inputs = vpa.UpdaterRound(
        vpas=[each for each in objects if isinstance(each, VerticalPodAutoscaler)],
        pods=[each for each in objects if isinstance(each, Pod)],
        controllers=controllers,
        limit_ranges=ranges,
    )
    result = run(vpa.UpdaterState(), inputs, now=NOW, options=UpdaterOptions(use_admission_controller_status=False))
    return [repr(each) for each in result.actions if type(each).__name__ in ("Evict", "Patch", "Emit")]


KILLED = {"terminated": {"reason": "OOMKilled", "finishedAt": YOUNG, "startedAt": "2026-11-28T12:58:00Z"}}
AT_MOST_ONE = {"containerName": "app", "maxAllowed": {"cpu": "1"}}
LIMITED = {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}
CASES: dict[str, tuple[Scene, Scene]] = {
    "owner of a pod": (scene(), scene(metadata={"ownerReferences": []})),
    "phase": (scene(), scene(status={"phase": "Pending"})),
    "deletion": (scene(), scene(metadata={"deletionTimestamp": YOUNG})),
    "observed containers": (scene(), scene(metadata={"annotations": {"vpaObservedContainers": "other"}})),
    "requests": (
        scene(),
        scene(spec={"containers": [{"name": "app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}),
    ),
    "name of a container": (
        scene(),
        scene(spec={"containers": [{"name": "other", "resources": {"requests": {"cpu": "1"}}}]}),
    ),
    "start": (
        scene(vpa=autoscaler(low="1")),
        scene(vpa=autoscaler(low="1"), status={"startTime": YOUNG}),
    ),
    "last state of a container": (
        scene(vpa=autoscaler(low="1"), status={"startTime": YOUNG}),
        scene(
            vpa=autoscaler(low="1"),
            status={"startTime": YOUNG, "containerStatuses": [{"name": "app", "lastState": KILLED}]},
        ),
    ),
    "mode of a VPA": (scene(), scene(vpa=autoscaler("Off"))),
    "minimum of replicas of a VPA": (
        scene(),
        scene(vpa=autoscaler(updatePolicy={"updateMode": "Recreate", "minReplicas": 3})),
    ),
    "policy of a VPA": (
        scene(),
        scene(
            vpa=autoscaler(resourcePolicy={"containerPolicies": [{"containerName": "app", "maxAllowed": {"cpu": "1"}}]})
        ),
    ),
    "eviction requirements of a VPA": (
        scene(),
        scene(
            vpa=autoscaler(
                updatePolicy={
                    "updateMode": "Recreate",
                    "evictionRequirements": [{"resources": ["cpu"], "changeRequirement": "TargetLowerThanRequests"}],
                }
            )
        ),
    ),
    "target of a VPA": (
        scene(),
        scene(vpa=autoscaler(targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other"})),
    ),
    "recommendation": (scene(), scene(vpa={**autoscaler(), "status": {}})),
    "replicas of an owner": (scene(), scene(owner=replica_set(9))),
    "selector of an owner": (scene(), scene(owner=replica_set(labels={"app": "x"}))),
    "limit range": (scene(spec=LIMITED), scene(limit_range("1"), spec=LIMITED)),
}
"""Two scenes that differ in one thing that decides."""
WATCHES: dict[str, Watch] = {
    each.kind: each
    for each in (
        vpa_watch(),
        limit_range_watch(),
        *controller_watches(),
        *VpaUpdater(UpdaterOptions()).watches,
    )
}


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize("case", CASES)
def test_stored_objects_keep_every_decisive_field(case: str, events: bool) -> None:
    one, other = CASES[case]
    assert updated(plain(one)) != updated(plain(other)), f"{case} makes no difference here"
    for each in (one, other):
        assert updated(stored(each, events=events)) == updated(plain(each))
        assert updated(stored(each, events=events), vpa.run_legacy_updater) == updated(
            plain(each), vpa.run_legacy_updater
        )


def test_the_watches_of_the_vpa_keep_whole_objects() -> None:
    """A watch that is not typed would keep what the snapshot of a Cluster Autoscaler keeps."""
    watches = [*VpaUpdater(UpdaterOptions()).watches, *VpaRecommender(RecommenderOptions()).watches]
    assert {each.kind for each in watches} >= {"Pod", "VerticalPodAutoscaler", "LimitRange", "ReplicaSet", "Event"}
    assert [each.kind for each in watches if not each.typed] == []


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize("number", range(len(PODS)))
def test_a_pod_is_stored_with_everything_that_it_says(number: int, events: bool) -> None:
    """For the recommender, too: it reads requests, kills and labels of pods."""
    (stored_pod,) = stored((PODS[number],), events=events)
    assert to_dict(stored_pod) == to_dict(from_dict(PODS[number], Pod))
