"""Upstream's own tables on controllers, which VPA is in charge, and current resources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.effects import ApiError, GetScale, Progress
from kscale.objects.api.autoscaling import Scale, ScaleStatus
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta, OwnerReference
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.kinds import RESTMapper, ServedResource
from kscale.objects.quantity import Quantity
from kscale.vpa import (
    ControllerKey,
    Controllers,
    FixedScales,
    ScaleCache,
    ScaleKey,
    VpaIndex,
    admit_pod,
    admit_pod_steps,
)
from kscale.vpa.controllers import ScaleNeededError, TargetError, run_without_requests
from kscale.vpa.resources import get_current_resources, has_lower_resource
from kscale.vpa.target import (
    find_topmost_controller,
    find_topmost_controller_steps,
    find_topmost_owner,
    resolve_target_selector,
    resolve_target_selector_steps,
)
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
from unit.vpa.worlds import World

NOW = 1769299200 * 10**9  # 2026-01-25T00:00:00Z
ZERO = Quantity.zero()
MAX = 2**63 - 1


def key(kind: str, name: str, version: str = "apps/v1") -> ControllerKey:
    return ControllerKey("default", kind, name, version)


THINGS = RESTMapper([ServedResource("argo", "v1", "Thing", "things")])


def scale(name: str, selector: str = "app=x", owner: tuple[str, str] | None = None) -> Scale:
    owners = []
    if owner is not None:
        owners = [OwnerReference(api_version="argo/v1", kind=owner[0], name=owner[1], controller=True)]
    metadata = ObjectMeta(name=name, namespace="default", owner_references=owners)
    return Scale(metadata=metadata, status=ScaleStatus(selector=selector))


def things(*scales: Scale) -> FixedScales:
    return FixedScales({ScaleKey("default", "things.argo", each.name): each for each in scales})


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
    known = Controllers(objects, mapper=THINGS, scales=things(scale("scaled")))
    assert find_topmost_controller(start, known) == top
    assert find_topmost_controller(None, known) is None


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
        find_topmost_controller(key("Deployment", "d"), Controllers(objects))
    assert str(refused.value) == text


def thing(name: str, version: str = "argo/v1") -> VerticalPodAutoscaler:
    return vpa(targetRef={"apiVersion": version, "kind": "Thing", "name": name})


REPLICA_SET = controller("ReplicaSet", "rs", selector={"matchLabels": {"app": "x"}})
UNHANDLED = "unhandled targetRef argo/v1 / Thing / {}, last error {}"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (vpa(), "app=x"),
        (thing("a"), "app=y"),
        (thing("b"), UNHANDLED.format("b", "resource default/b has an empty selector for scale sub-resource")),
        (thing("c"), UNHANDLED.format("c", 'things.argo "c" not found')),
        (thing("d"), UNHANDLED.format("d", "unable to parse requirement: ")),
        (thing("e", "a/b/c"), "unexpected GroupVersion string: a/b/c"),
        (
            thing("f", "v1"),
            'unhandled targetRef v1 / Thing / f, last error no matches for kind "Thing" in group ""',
        ),
    ],
)
def test_selectors_of_targets(target: VerticalPodAutoscaler, expected: str) -> None:
    scales = things(scale("a", "app=y"), scale("b", ""), scale("d", "app in (x"))
    known = Controllers([REPLICA_SET], mapper=THINGS, scales=scales)
    try:
        assert str(resolve_target_selector(target, known)) == expected
    except TargetError as error:
        assert str(error).startswith(expected)  # noqa: PT017  # both ways lead to a text


# -- scales that are asked for ---------------------------------------------------------------------------------

SECOND = 10**9


class Argo(World):
    """An API server with things."""

    def __init__(self, *scales: Scale, error: ApiError | None = None, took: int = 0) -> None:
        by_name = {each.name: each for each in scales}
        missing = error or ApiError("not found", 404, "NotFound")
        super().__init__(
            refuse=lambda action: None if action.name in by_name else missing,
            answer=lambda action: by_name[action.name],
            took=took,
        )


def scale_requests(*names: str) -> list[GetScale]:
    return [GetScale(namespace="default", resource="things.argo", name=name) for name in names]


def test_scales_and_refusals_are_requested_once_and_cached() -> None:
    chain = (scale("low", owner=("Thing", "high")), scale("high"))
    start = key("Thing", "low", "argo/v1")
    known = Controllers(mapper=THINGS, scales=ScaleCache())
    with pytest.raises(ScaleNeededError, match=r"^the scale of things\.argo default/low is not known yet$"):
        find_topmost_controller(start, known)
    world = Argo(*chain)
    for _ in range(2):
        assert world.run(find_topmost_controller_steps(start, known, Progress(NOW)), NOW) == key(
            "Thing", "high", "argo/v1"
        )
    assert world.actions == scale_requests("low", "high")
    lost = key("Thing", "lost", "argo/v1")
    for _ in range(2):
        assert world.run(find_topmost_controller_steps(lost, known, Progress(NOW)), NOW) is None
    assert world.actions == scale_requests("low", "high", "lost")


def test_a_refusal_other_than_not_found_is_an_error() -> None:
    known = Controllers(mapper=THINGS, scales=ScaleCache())
    world = Argo(error=ApiError("things.argo is forbidden", 403, "Forbidden"))
    with pytest.raises(TargetError) as refused:
        world.run(find_topmost_controller_steps(key("Thing", "x", "argo/v1"), known, Progress(NOW)), NOW)
    assert str(refused.value) == UNHANDLED.format("x", "things.argo is forbidden")


def test_node_owners_are_never_requested() -> None:
    known = Controllers(mapper=RESTMapper([ServedResource("", "v1", "Node", "nodes")]), scales=ScaleCache())
    with pytest.raises(TargetError, match="node is not a valid owner"):
        find_topmost_controller(key("Node", "n", "v1"), known)
    assert find_topmost_owner(pod(owner=("Node", "n")), known) is None


def test_selectors_are_requested_each_time() -> None:
    known = Controllers(mapper=THINGS, scales=ScaleCache())
    world = Argo(scale("a", "app=y"))
    for _ in range(2):
        result = world.run(resolve_target_selector_steps(thing("a"), known, Progress(NOW)), NOW)
        assert str(result) == "app=y"
    assert world.actions == scale_requests("a", "a")
    assert len(known.scales) == 0


def test_every_version_of_a_kind_is_tried() -> None:
    mapper = RESTMapper([ServedResource("argo", "v1", "Thing", name) for name in ("olds", "things")])
    known = Controllers(
        mapper=mapper, scales=FixedScales({ScaleKey("default", "things.argo", "a"): scale("a", "app=y")})
    )
    assert str(resolve_target_selector(thing("a"), known)) == "app=y"


def test_fixed_scales_show_their_class_and_number() -> None:
    assert repr(things(scale("a"), scale("b"))) == "<FixedScales: 2>"


@pytest.mark.parametrize(("jitter", "refreshed"), [(0.0, 601), (1.0, 1201)])
def test_old_scales_are_refreshed_and_unread_ones_dropped(jitter: float, refreshed: int) -> None:
    cache = ScaleCache(jitter=lambda: jitter)
    world = Argo(scale("a"))
    known = Controllers(mapper=THINGS, scales=cache)

    def read(seconds: int) -> None:
        now = NOW + seconds * SECOND
        world.run(find_topmost_controller_steps(key("Thing", "a", "argo/v1"), known, Progress(now)), now)

    def refresh(seconds: int) -> int:
        before = len(world.actions)
        world.run(cache.refresh_steps(NOW + seconds * SECOND), NOW + seconds * SECOND)
        return len(world.actions) - before

    read(0)
    assert (refresh(refreshed - 1), refresh(refreshed), refresh(refreshed + 7)) == (0, 1, 0)
    read(3000)
    refresh(3000 + 3600)
    assert len(cache) == 1
    refresh(3000 + 3601)
    assert len(cache) == 0


def test_scale_cache_is_bounded() -> None:
    """Each of many runs has an owner of its own, which nobody asks about again; the one that is asked about stays."""
    cache = ScaleCache(most=80)
    known, world = Controllers(mapper=THINGS, scales=cache), Argo(scale("a"))
    for second in range(1000):
        now = NOW + second * SECOND
        for name in ("a", f"run-{second}"):
            world.run(find_topmost_controller_steps(key("Thing", name, "argo/v1"), known, Progress(now)), now)
        assert len(cache) <= 80
    assert world.actions == scale_requests("a", *(f"run-{second}" for second in range(1000)))
    with pytest.raises(ScaleNeededError):
        cache.get(ScaleKey("default", "things.argo", "run-900"))


def test_controllers_change_one_by_one() -> None:
    known = Controllers([REPLICA_SET])
    known.apply(controller("ReplicaSet", "rs", selector={"matchLabels": {"app": "new"}}))
    assert str(resolve_target_selector(vpa(), known)) == "app=new"
    known.remove("ReplicaSet", "default", "rs")
    known.remove("ReplicaSet", "default", "rs")
    known.apply(pod(container("c")))
    assert len(known) == 0
    with pytest.raises(TargetError, match="ReplicaSet default/rs does not exist"):
        resolve_target_selector(vpa(), known)


def named(name: str, created: str, **spec: Any) -> VerticalPodAutoscaler:
    named_vpa = vpa(**spec)
    metadata = msgspec.structs.replace(named_vpa.metadata, name=name, creation_timestamp=created)
    return msgspec.structs.replace(named_vpa, metadata=metadata)


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
    result = matched(index, pod(container("c")))
    assert (result.name if result is not None else None) == expected
    assert matched(index, pod(container("c"), labels={"app": "z"})) is None
    bare = pod(container("c"))
    bare.metadata.owner_references = [OwnerReference(kind="ReplicaSet", name="rs")]
    assert matched(index, bare) is None


def matched(index: VpaIndex, pod_: Pod) -> VerticalPodAutoscaler | None:
    return run_without_requests(index.match_steps(pod_, owned(), Progress(NOW)))[0]


def test_vpas_change_one_by_one() -> None:
    index = VpaIndex([named("a", "2026-01-05T00:00:00Z"), named("b", "2026-01-06T00:00:00Z")])
    pod_ = pod(container("c"))
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other"}
    index.apply(named("a", "2026-01-05T00:00:00Z", targetRef=other))
    result = matched(index, pod_)
    assert result is not None
    assert result.name == "b"
    index.apply(named("b", "2026-01-06T00:00:00Z", targetRef=None))
    assert (matched(index, pod_), len(index)) == (None, 1)
    index.apply(named("a", "2026-01-05T00:00:00Z", updatePolicy={"updateMode": "Initial"}))
    result = matched(index, pod_)
    assert result is not None
    assert result.spec.update_policy is not None
    for _ in range(2):
        index.remove("default", "a")
    assert (matched(index, pod_), len(index)) == (None, 0)


def test_a_pod_of_a_controller_that_is_not_watched_is_admitted_once_its_scale_is_known() -> None:
    known = Controllers(mapper=THINGS, scales=ScaleCache())
    pod_ = pod(container("c"), owner=("Thing", "a"))
    pod_.metadata.owner_references[0].api_version = "argo/v1"
    index = VpaIndex([thing("a")])
    with pytest.raises(ScaleNeededError):
        admit_pod(pod_, index, controllers=known)
    world = Argo(scale("a"))
    admitted = world.run(admit_pod_steps(pod_, index, now=NOW, controllers=known), NOW)
    assert admitted.vpa is not None
    assert world.actions == scale_requests("a", "a")  # who owns the pod; what the VPA selects


def test_current_resources() -> None:
    def with_status(status: Pair | None, spec: Pair | None = ("1", "10Mi")) -> Any:
        statuses = [{"name": "c", "resources": container("c", status)["resources"]}] if status is not None else []
        return pod(container("c", spec), status={"containerStatuses": statuses})

    assert get_current_resources(with_status(("3", "30Mi")), "c")[0] == quantities(("3", "30Mi"))
    assert get_current_resources(with_status(("0", None)), "c")[0] == quantities(("0", None))
    assert get_current_resources(with_status(None), "c")[0] == quantities(("1", "10Mi"))
    assert get_current_resources(with_status(None), "other") == (None, None)
    assert get_current_resources(with_status(None, None), "c") == (None, None)
    assert get_current_resources(with_status((None, None)), "c")[0] == {}


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
    pod_ = pod(container("other"))
    pod_.spec.init_containers = pod(container("c", ("1", "10Mi"))).spec.containers
    assert get_current_resources(pod_, "c") == (None, None)
