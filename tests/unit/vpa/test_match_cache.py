"""VPAs of pods that were matched before: the same results as without the cache, after each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kscale.effects import ApiError, Progress
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.kinds import RESTMapper, ServedResource
from kscale.vpa import Controllers, ScaleCache, ScaleKey, VpaIndex
from kscale.vpa.admission import pod_handler
from kscale.vpa.controllers import run_without_requests
from kscale.vpa.target import find_topmost_owner_steps
from unit.vpa.builders import BOOST, container, controller, pod, recommendation, recommended, vpa
from unit.vpa.worlds import World

NOW = 1769299200 * 10**9
OFF = {"updateMode": "Off"}
THINGS = RESTMapper([ServedResource("argo", "v1", "Thing", "things")])
THING = ScaleKey("default", "things.argo", "t")
MISSING = ApiError("not found", 404, "NotFound")


def target(kind: str, name: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name}


def named(name: str, kind: str = "Deployment", of: str = "d", **more: Any) -> Any:
    created = vpa(recommended("c", ("1", None)), targetRef=target(kind, of), **more)
    created.metadata.name = name
    return created


def owned_pod(labels: dict[str, str] | None = None, owner: tuple[str, str] = ("ReplicaSet", "r")) -> Pod:
    return pod(container("c"), labels={"app": "x"} if labels is None else labels, owner=owner)


def selecting(kind: str, name: str, owner: tuple[str, str] | None = None, app: str = "x") -> Any:
    return controller(kind, name, owner, selector={"matchLabels": {"app": app}})


class Cluster:
    """VPAs, controllers and scales, whose changes are counted, and how often the owners of a pod were looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scales = ScaleCache()
        self.controllers = Controllers(mapper=THINGS, scales=self.scales)
        self.index = VpaIndex()
        self.count = 0
        monkeypatch.setattr(pod_handler, "find_topmost_owner_steps", self._find)

    def _find(self, *args: Any) -> Any:
        self.count += 1
        return find_topmost_owner_steps(*args)

    def match(self, pod_: Pod | None = None) -> str | None:
        """Return the name of the pod's VPA, which is that of an index without cached matches."""
        pod_ = pod_ or owned_pod()
        vpa = run_without_requests(self.index.match_steps(pod_, self.controllers, Progress(NOW)))[0]
        count = self.count
        fresh = VpaIndex(each for known in self.index._by_target.values() for each in known.values())
        assert vpa is run_without_requests(fresh.match_steps(pod_, self.controllers, Progress(NOW)))[0]
        self.count = count
        return None if vpa is None else vpa.name


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    created = Cluster(monkeypatch)
    created.controllers.apply(selecting("Deployment", "d"))
    created.controllers.apply(selecting("ReplicaSet", "r", ("Deployment", "d")))
    created.index.apply(named("a"))
    assert (created.match(), created.match(), created.count) == ("a", "a", 1)
    return created


CHANGES: list[tuple[str, Callable[[Cluster], Any], str | None]] = [
    ("a VPA goes", lambda c: c.index.remove("default", "a"), None),
    ("a VPA has another target", lambda c: c.index.apply(named("a", of="other")), None),
    ("a VPA is switched off", lambda c: c.index.apply(named("a", updatePolicy=OFF)), None),
    ("a stronger VPA comes", lambda c: c.index.apply(named("A")), "A"),
    ("a controller goes", lambda c: c.controllers.remove("ReplicaSet", "default", "r"), None),
    ("the target goes", lambda c: c.controllers.remove("Deployment", "default", "d"), None),
    ("a controller has no owner anymore", lambda c: c.controllers.apply(selecting("ReplicaSet", "r")), None),
    ("the target has another selector", lambda c: c.controllers.apply(selecting("Deployment", "d", app="y")), None),
    ("the owner has another owner", lambda c: c.controllers.apply(selecting("Deployment", "d", ("Job", "j"))), None),
]


@pytest.mark.parametrize(("change", "expected"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_a_change_is_seen_by_the_next_pod(
    cluster: Cluster, change: Callable[[Cluster], Any], expected: str | None
) -> None:
    change(cluster)
    assert cluster.match() == expected


def test_a_pod_without_a_vpa_gets_one_that_comes_or_is_switched_on(cluster: Cluster) -> None:
    cluster.index.remove("default", "a")
    assert (cluster.match(), cluster.match(), cluster.count) == (None, None, 2)
    cluster.index.apply(named("b", updatePolicy=OFF))
    assert cluster.match() is None
    cluster.index.apply(named("b", updatePolicy=OFF, startupBoost=BOOST))
    assert cluster.match() == "b"


def test_the_precedence_of_vpas_changes_with_their_creation(cluster: Cluster) -> None:
    later = named("b")
    later.metadata.creation_timestamp = "2026-01-06T00:00:00Z"
    cluster.index.apply(later)
    assert cluster.match() == "a"
    latest = named("a")
    latest.metadata.creation_timestamp = "2026-01-07T00:00:00Z"
    cluster.index.apply(latest)
    assert cluster.match() == "b"


def test_labels_and_owners_of_pods_are_compared(cluster: Cluster) -> None:
    assert cluster.match(owned_pod({"app": "y"})) is None
    assert cluster.match(owned_pod({"app": "x", "b": "c"})) == "a"
    assert cluster.match(owned_pod(owner=("Deployment", "d"))) == "a"
    elsewhere = owned_pod()
    elsewhere.metadata.namespace = "elsewhere"
    assert cluster.match(elsewhere) is None
    bare = owned_pod()
    bare.metadata.owner_references = []
    assert cluster.match(bare) is None


def test_a_scale_that_changes_is_seen(cluster: Cluster) -> None:
    """The topmost owner is the thing as long as it has a scale."""
    owner = OwnerReference(api_version="argo/v1", kind="Thing", name="t", controller=True)
    owned = selecting("Deployment", "d")
    owned.metadata.owner_references = [owner]
    cluster.controllers.apply(owned)
    cluster.scales.insert(THING, MISSING, NOW)
    assert (cluster.match(), cluster.match(), cluster.count) == ("a", "a", 2)
    later = NOW + 601 * 10**9
    world = World(answer=lambda _: Scale(metadata=ObjectMeta(name="t", namespace="default")))
    world.run(cluster.scales.refresh_steps(later), later)
    assert cluster.match() is None


def test_kinds_that_are_served_later_are_seen(cluster: Cluster) -> None:
    owner = OwnerReference(api_version="argo/v1", kind="Thing", name="t", controller=True)
    owned = selecting("Deployment", "d")
    owned.metadata.owner_references = [owner]
    cluster.controllers.mapper = RESTMapper(())
    cluster.controllers.apply(owned)
    cluster.scales.insert(THING, MISSING, NOW)
    assert cluster.match() is None  # nobody knows whether a thing is in charge
    cluster.controllers.mapper = THINGS
    assert cluster.match() == "a"


def test_a_new_recommendation_does_not_drop_matches_and_is_used(cluster: Cluster) -> None:
    changed = named("a")
    changed.status.recommendation = recommendation(recommended("c", ("2", None)))
    cluster.index.apply(changed)
    cluster.controllers.apply(selecting("ReplicaSet", "r", ("Deployment", "d")))
    result = run_without_requests(cluster.index.match_steps(owned_pod(), cluster.controllers, Progress(NOW)))[0]
    assert (result is changed, cluster.count) == (True, 1)


def test_failures_are_reported_for_each_pod(cluster: Cluster) -> None:
    cluster.controllers.remove("Deployment", "default", "d")
    for name in ("p", "q"):
        pod_, messages = owned_pod(), list[str]()
        pod_.metadata.name = name
        assert not run_without_requests(cluster.index.match_steps(pod_, cluster.controllers, Progress(NOW), messages))[
            0
        ]
        assert messages == [
            f"Failed to get parent controller for pod default/{name}: Deployment default/d does not exist"
        ]


def test_a_change_while_a_scale_is_requested_is_not_overwritten(cluster: Cluster) -> None:
    owner = OwnerReference(api_version="argo/v1", kind="Thing", name="t", controller=True)
    owned = selecting("Deployment", "d")
    owned.metadata.owner_references = [owner]
    cluster.controllers.apply(owned)
    cluster.index.apply(named("a", updatePolicy={"updateMode": "Initial"}))

    def answer(_: Any) -> Any:
        cluster.index.apply(named("a", updatePolicy=OFF))
        return Scale(metadata=ObjectMeta(name="t", namespace="default"))

    World(answer=answer).run(cluster.index.match_steps(owned_pod(), cluster.controllers, Progress(NOW)), NOW)
    assert cluster.index._matches == {}
    assert cluster.match() is None


def test_the_cache_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_handler, "_CACHED_MATCHES", 2)
    for number in range(5):
        cluster.match(owned_pod({"app": "x", "number": str(number)}))
    assert len(cluster.index._matches) == 2
