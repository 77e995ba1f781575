"""Upstream's own tables on controllers, which VPA is in charge, and current resources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.objects.meta import OwnerReference
from kscale.objects.quantity import Quantity
from kscale.objects.vpa import VerticalPodAutoscaler
from kscale.vpa import ControllerKey, Controllers, Scale, VpaIndex
from kscale.vpa.resources import current_resources, has_lower_resource
from kscale.vpa.target import TargetError
from unit.vpa.builders import (
    BOOST,
    Pair,
    container,
    controller,
    owned,
    pod,
    quantities,
    recommendation,
    recommended,
    vpa,
)

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


def key(kind: str, name: str, version: str = "apps/v1") -> ControllerKey:
    return ControllerKey("default", kind, name, version)


@pytest.mark.parametrize(
    ("objects", "start", "top"),
    [
        (
            [controller("Deployment", "d"), controller("ReplicaSet", "r", ("Deployment", "d"))],
            key("ReplicaSet", "r"),
            key("Deployment", "d"),
        ),
        (
            [controller("CronJob", "c"), controller("Job", "j", ("CronJob", "c"))],
            key("Job", "j", "batch/v1"),
            key("CronJob", "c", "batch/v1"),
        ),
        ([controller("StatefulSet", "s")], key("StatefulSet", "s"), key("StatefulSet", "s")),
        ([controller("DaemonSet", "s")], key("DaemonSet", "s"), key("DaemonSet", "s")),
        ([controller("CronJob", "s")], key("CronJob", "s", "batch/v1"), key("CronJob", "s", "batch/v1")),
        (
            [controller("ReplicationController", "s")],
            key("ReplicationController", "s", "v1"),
            key("ReplicationController", "s", "v1"),
        ),
        ([controller("Deployment", "d", ("Thing", "plain"))], key("Deployment", "d"), key("Deployment", "d")),
        (
            [controller("Deployment", "d", ("Thing", "scaled"))],
            key("Deployment", "d"),
            key("Thing", "scaled", "argo/v1"),
        ),
        ([], key("Thing", "plain", "argo/v1"), None),
    ],
)
def test_topmost(objects: list[Any], start: ControllerKey, top: ControllerKey | None) -> None:
    scales = [Scale(api_version="argo/v1", kind="Thing", namespace="default", name="scaled", selector="app=x")]
    assert Controllers(objects, scales).topmost(start) == top
    assert Controllers(objects).topmost(None) is None


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([], "Deployment default/d does not exist"),
        ([controller("Deployment", "d", ("Deployment", "d"))], "cycle detected in ownership chain"),
        (
            [controller("Deployment", "d", ("Node", "node"))],
            "unhandled targetRef v1 / Node / node, last error node is not a valid owner",
        ),
        (
            [controller("Deployment", "d", ("Thing", "x"))],
            'unhandled targetRef argo/v1 / Thing / x, last error no matches for kind "Thing" in group "argo"',
        ),
    ],
)
def test_topmost_that_cannot_be_found(objects: list[Any], text: str) -> None:
    with pytest.raises(TargetError) as refused:
        Controllers(objects).topmost(key("Deployment", "d"))
    assert str(refused.value) == text


def test_selectors_of_targets() -> None:
    labels = {"matchLabels": {"app": "x"}}
    known = Controllers(
        [controller("ReplicaSet", "rs", selector=labels)],
        [
            Scale(api_version="argo/v1", kind="Thing", namespace="default", name=n, selector=s)
            for n, s in (("a", "app=y"), ("b", ""))
        ],
    )
    assert str(known.selector(vpa())) == "app=x"
    for name, expected in (
        ("a", "app=y"),
        ("b", "resource default/b has an empty selector for scale sub-resource"),
        ("c", 'unhandled targetRef argo/v1 / Thing / c, last error things.argo "c" not found'),
    ):
        target = vpa(targetRef={"apiVersion": "argo/v1", "kind": "Thing", "name": name})
        try:
            assert str(known.selector(target)) == expected
        except TargetError as error:
            assert str(error) == expected  # noqa: PT017  (both ways lead to a text)


def named(name: str, created: str, **spec: Any) -> VerticalPodAutoscaler:
    made = vpa(**spec)
    metadata = msgspec.structs.replace(made.metadata, name=name, creation_timestamp=created)
    return msgspec.structs.replace(made, metadata=metadata)


OFF = {"updateMode": "Off"}


@pytest.mark.parametrize(
    ("vpas", "expected"),
    [
        ([named("late", "2026-01-10T00:00:00Z"), named("early", "2026-01-05T00:00:00Z")], "early"),
        ([named("b", "2026-01-05T00:00:00Z"), named("a", "2026-01-05T00:00:00Z")], "a"),
        ([named("a", "2026-01-05T00:00:00Z", targetRef=None)], None),
        (
            [
                named(
                    "a", "2026-01-05T00:00:00Z", targetRef={"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o"}
                )
            ],
            None,
        ),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF)], None),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF), named("b", "2026-01-06T00:00:00Z")], "b"),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy={"updateMode": "Initial"})], "a"),
        ([named("a", "2026-01-05T00:00:00Z", updatePolicy=OFF, startupBoost=BOOST)], "a"),
        (
            [
                named(
                    "a",
                    "2026-01-05T00:00:00Z",
                    updatePolicy=OFF,
                    policies=[{"containerName": "c", "startupBoost": BOOST}],
                )
            ],
            "a",
        ),
    ],
)
def test_which_vpa(vpas: list[VerticalPodAutoscaler], expected: str | None) -> None:
    index = VpaIndex(vpas)
    found = index.match(pod(container("c")), owned())
    assert (found.name if found is not None else None) == expected
    assert index.match(pod(container("c"), labels={"app": "z"}), owned()) is None
    bare = pod(container("c"))
    bare.metadata.owner_references = [OwnerReference(kind="ReplicaSet", name="rs")]
    assert index.match(bare, owned()) is None


def test_current_resources() -> None:
    def with_status(status: Pair | None, spec: Pair | None = ("1", "10Mi")) -> Any:
        statuses = [{"name": "c", "resources": container("c", status)["resources"]}] if status is not None else []
        return pod(container("c", spec), status={"containerStatuses": statuses})

    assert current_resources(with_status(("3", "30Mi")), "c")[0] == quantities(("3", "30Mi"))
    assert current_resources(with_status(("0", None)), "c")[0] == quantities(("0", None))
    assert current_resources(with_status(None), "c")[0] == quantities(("1", "10Mi"))
    assert current_resources(with_status(None), "other") == (None, None)
    assert current_resources(with_status(None, None), "c") == (None, None)
    assert current_resources(with_status((None, None)), "c")[0] == {}


@pytest.mark.parametrize(
    ("a", "b", "lower"),
    [
        ((None, None), (None, None), False),
        (("1", "1Gi"), ("1", "1Gi"), False),
        (("2", "1Gi"), ("1", "1Gi"), True),
        (("1", "2Gi"), ("1", "1Gi"), True),
        (("1", "1Gi"), ("2", "2Gi"), False),
        (("2", "1Gi"), ("1", None), True),
        (("1", None), ("1", "1Gi"), False),
    ],
)
def test_lower_resource(a: Pair, b: Pair, lower: bool) -> None:
    assert has_lower_resource(recommendation(recommended("c", a)), recommendation(recommended("c", b))) == lower
    assert not has_lower_resource(recommendation(recommended("c", a)), recommendation(recommended("d", b)))
    assert not has_lower_resource(None, recommendation(recommended("c", b)))


def test_init_containers_are_no_containers() -> None:
    given = pod(container("other"))
    given.spec.init_containers = pod(container("c", ("1", "10Mi"))).spec.containers
    assert current_resources(given, "c") == (None, None)
