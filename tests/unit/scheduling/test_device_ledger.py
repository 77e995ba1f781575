"""Devices that pods compete for while they are placed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import kscale
from kscale.capacity import headroom
from kscale.errors import NativeError
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.devices import allocator
from kscale.scheduling.devices.ledger import DeviceLedger
from unit.scheduling.devices_cases import (
    GPU,
    Json,
    X,
    Y,
    allocated_status,
    claim,
    device_class,
    devices,
    exactly,
    fits,
    node,
    pod,
    snapshot,
)


def test_claims_compete_for_devices() -> None:
    world = snapshot(node("n"), device_class(), devices("n", {}, {}), *(claim(f"c{i}") for i in range(3)))
    result = kscale.place(world, [pod(f"p{i}", f"c{i}") for i in range(3)])
    assert result.placed == {"default/p0": "n", "default/p1": "n"}
    assert result.unmodelled == []
    after = result.snapshot_after
    status = after.informers.resource_claims["default", "c1"].status
    assert status.allocation is not None
    assert status.allocation.devices.results[0].device == "dev1"
    assert [consumer.name for consumer in status.reserved_for] == ["p1"]
    assert not kscale.fit(after, [pod("p2", "c2")]).verdict("default/p2", "n").ok


def test_views_count_devices() -> None:
    world = snapshot(node("n"), device_class(), devices("n", {}), claim("a"), claim("b"))
    view = kscale.fork(world, [pod("p0", "a"), pod("p1", "b")])
    assert view.schedule("default/p0", "n")
    assert not view.fits("default/p1", "n")
    view.unplace("default/p0", "n")
    assert view.fits("default/p1", "n")


MODEL = f"{GPU}/model"
ONLY_X = {"selectors": [{"cel": {"expression": "device.attributes[device.driver].model == 'x'"}}]}


def either(*counts: int) -> Json:
    return {
        "name": "r",
        "firstAvailable": [{"name": f"n{count}", "deviceClassName": GPU, "count": count} for count in counts],
    }


@pytest.mark.parametrize(
    ("offered", "requested", "placed"),
    [
        # All devices: only while nobody else has one.
        ([X, Y], [exactly(), exactly(allocationMode="All")], [True, False]),
        ([X, Y], [exactly(allocationMode="All"), exactly()], [True, False]),
        # Overlapping sets: the first takes the device of the second, which finds no other.
        ([X, Y], [exactly(), exactly(**ONLY_X)], [True, False]),
        ([X, Y], [exactly(**ONLY_X), exactly()], [True, True]),
        # The first alternative that still works.
        ([X, Y, X], [exactly(), either(3, 2), exactly()], [True, True, False]),
        ([X, Y, X], [exactly(), either(3, 1), exactly()], [True, True, True]),
        # Admin access: to the autoscaler the device is in use from then on.
        ([X], [exactly(adminAccess=True), exactly()], [True, False]),
        ([X], [exactly(), exactly(adminAccess=True)], [True, True]),
    ],
)
def test_uncountable_requests_are_allocated_exactly(
    offered: list[Json], requested: list[Json], placed: list[bool]
) -> None:
    claims = [claim(f"c{i}", request) for i, request in enumerate(requested)]
    world = snapshot(node("n"), device_class(), devices("n", *offered), *claims)
    result = kscale.place(world, [pod(f"p{i}", f"c{i}") for i in range(len(requested))])
    assert [f"default/p{i}" in result.placed for i in range(len(requested))] == placed
    assert result.unmodelled == []


def test_constraints_between_devices_of_several_pods() -> None:
    same = {"constraints": [{"matchAttribute": MODEL}]}
    pairs = [claim(name, exactly(count=2), **same) for name in "abc"]
    world = snapshot(node("n"), device_class(), devices("n", X, Y, X, Y), *pairs)
    result = kscale.place(world, [pod(f"p{name}", name) for name in "abc"])
    assert result.placed == {"default/pa": "n", "default/pb": "n"}
    claims = result.snapshot_after.informers.resource_claims
    given_to = [[each.device for each in claims["default", name].status.allocation.devices.results] for name in "ab"]
    assert given_to == [["dev0", "dev2"], ["dev1", "dev3"]]


def test_a_claim_that_several_pods_share() -> None:
    world = snapshot(node("n"), node("m"), device_class(), devices("n", {}), devices("m", {}), claim("a"))
    result = kscale.place(world, [pod(f"p{i}", "a") for i in range(3)])
    assert set(result.placed.values()) == {"m"}  # where the first one got it
    assert [c.name for c in result.snapshot_after.informers.resource_claims["default", "a"].status.reserved_for] == [
        "p0", "p1", "p2",
    ]  # fmt: skip
    assert result.unmodelled == []


@pytest.mark.parametrize("binds", [False, True])
def test_a_device_of_all_nodes_may_bind_its_claim_to_the_first_one(binds: bool) -> None:
    """Of the second pod there is room on the other node only."""
    fields: Json = {"bindsToNode": True} if binds else {}
    everywhere = devices("all", fields, allNodes=True)
    del everywhere["spec"]["nodeName"]
    world = snapshot(node("n1"), node("n2"), device_class(), everywhere, claim("a"))
    large = {"cpu": "6"}
    result = kscale.place(world, [pod("p0", "a", requests=large), pod("p1", "a", requests=large)])
    first = result.placed["default/p0"]
    other = {"n1": "n2", "n2": "n1"}[first]
    assert result.placed == ({"default/p0": first} if binds else {"default/p0": first, "default/p1": other})
    allocation = result.snapshot_after.informers.resource_claims["default", "a"].status.allocation
    assert allocation is not None
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector is not None else []
    assert [(each.key, each.values) for term in terms for each in term.match_fields] == (
        [("metadata.name", [first])] if binds else []
    )


def test_a_shared_claim_has_so_many_consumers() -> None:
    busy = {"allocation": {"devices": {}}, "reservedFor": [{"uid": f"u{i}"} for i in range(254)]}
    world = snapshot(node("n"), claim("a", status=busy))
    result = kscale.place(world, [pod(f"p{i}", "a") for i in range(4)])
    assert list(result.placed) == ["default/p0", "default/p1"]


def test_devices_of_several_nodes() -> None:
    anywhere = devices("fabric", {}, nodeName=None, allNodes=True)
    world = snapshot(node("n"), node("m"), device_class(), anywhere, claim("a"), claim("b"))
    result = kscale.place(world, [pod("p0", "a"), pod("p1", "b")])
    assert list(result.placed) == ["default/p0"]


def test_pods_share_counters() -> None:
    uses = {"consumesCounters": [{"counterSet": "board", "counters": {"slots": {"value": "1"}}}]}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    counters = devices("n", pool=pool, sharedCounters=[{"name": "board", "counters": {"slots": {"value": "2"}}}])
    counters["metadata"]["name"] = "counters"
    world = snapshot(
        node("n"), device_class(), devices("n", uses, uses, uses, pool=pool), counters, *(claim(x) for x in "abc")
    )
    result = kscale.place(world, [pod(f"p{x}", x) for x in "abc"])
    assert list(result.placed) == ["default/pa", "default/pb"]


POLICY = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "5Gi", "max": "30Gi"}}


@pytest.mark.parametrize(
    ("capacity", "amounts", "placed"),
    [
        ({"value": "40Gi"}, ["10Gi", "30Gi", "1Gi"], [True, True, False]),
        ({"value": "40Gi"}, [None, "1Gi"], [True, False]),  # without an amount: everything
        ({"value": "40Gi", "requestPolicy": POLICY}, [None, None, "16Gi", "1"], [True, True, True, False]),
        ({"value": "40Gi", "requestPolicy": POLICY}, ["31Gi"], [False]),  # above the range
        ({"value": "40Gi", "requestPolicy": {"default": "8Gi", "validValues": ["8Gi", "16Gi"]}}, ["9Gi", "17Gi"],
         [True, False]),
        ({"value": "1", "requestPolicy": {"default": "1", "validRange": {"min": "100m", "step": "50m", "max": "1"}}},
         ["620m", "400m", "350m"], [True, False, True]),
    ],
)  # fmt: skip
def test_consumable_capacity(capacity: Json, amounts: list[str | None], placed: list[bool]) -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": capacity}}
    requests = [exactly(**({} if a is None else {"capacity": {"requests": {"memory": a}}})) for a in amounts]
    claims = [claim(f"c{i}", request) for i, request in enumerate(requests)]
    world = snapshot(node("n"), device_class(), devices("n", shared), *claims)
    pods = [pod(f"p{i}", f"c{i}") for i in range(len(amounts))]
    result = kscale.place(world, pods)
    assert [f"default/p{i}" in result.placed for i in range(len(amounts))] == placed
    # What was consumed is in the status, so that what comes next knows: nobody fits any more who did not before.
    after = result.snapshot_after
    rest = [i for i, there in enumerate(placed) if not there]
    assert kscale.place(after, [pods[i] for i in rest]).placed == {}
    assert result.unmodelled == []


def test_a_capacity_that_the_device_does_not_have() -> None:
    request = exactly(capacity={"requests": {"bandwidth": "1"}})
    assert not fits(device_class(), devices("n", {"capacity": {"memory": {"value": "1"}}}), claim("want", request))
    named = exactly(capacity={"requests": {f"{GPU}/memory": "1"}})
    assert fits(device_class(), devices("n", {"capacity": {"memory": {"value": "1"}}}), claim("want", named))


@pytest.mark.parametrize(
    ("request_", "more", "text"),
    [
        (
            exactly(count=33),
            {},
            (
                "claim default/want, request r: adding 33 devices exceeds the claim limit of 32, "
                "with 0 already accounted for"
            ),
        ),
        (
            exactly(allocationMode="All"),
            {"constraints": [{"matchAttribute": MODEL}]},
            (
                f"claim default/want, request r: cannot add device {GPU}/n/dev1 because a claim constraint would "
                "not be satisfied"
            ),
        ),
    ],
)
def test_claims_that_cannot_be_right(request_: Json, more: Json, text: str) -> None:
    world = snapshot(node("n"), device_class(), devices("n", X, Y), claim("want", request_, **more))
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    assert verdict.reasons == (f'running "DynamicResources" filter plugin: {text}',)


def test_all_devices_with_a_contradiction_and_no_capacity_left_is_an_error() -> None:
    shared = {"capacity": {"memory": {"value": "5"}}, "allowMultipleAllocations": True}
    part = {"deviceClassName": GPU, "allocationMode": "All"}
    both = [{"name": name, "exactly": part} for name in ("a", "b")]
    constraints = [{"distinctAttribute": f"{GPU}/absent", "requests": ["b"]}]
    claim_ = claim("want", *both, constraints=constraints)
    world = snapshot(node("n"), device_class(), devices("n", shared), claim_)
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    text = f"cannot add device {GPU}/n/dev0 because a claim constraint would not be satisfied"
    assert verdict.reasons == (f'running "DynamicResources" filter plugin: claim default/want, request b: {text}',)


@pytest.mark.parametrize(
    ("mode", "names", "reason"),
    [
        # The first device leaves "all" one in use, which only rejects; the second contradicts the first one.
        ({}, ["a", "b"], "request b: cannot add device gpu.example.com/n/dev0"),
        ({"count": 2}, ["a", "b"], "request b: cannot add device gpu.example.com/n/dev0"),
        # No device is left to contradict.
        ({"count": 4}, ["a", "b"], ""),
        # The constraint is another request's.
        ({}, ["a"], ""),
    ],
)
def test_a_contradiction_of_all_devices_is_found_behind_equal_devices(
    mode: Json, names: list[str], reason: str
) -> None:
    requests = [exactly("a", **mode), exactly("b", allocationMode="All")]
    claim_ = claim("want", *requests, constraints=[{"distinctAttribute": MODEL, "requests": names}])
    if mode:
        claim_["spec"]["devices"]["constraints"] = [{"distinctAttribute": f"{GPU}/absent", "requests": ["b"]}]
    world = snapshot(node("n"), device_class(), devices("n", X, X, X, X), claim_)
    (verdict,) = kscale.fit(world, [pod("p", "want")]).verdicts("default/p", "n")
    assert reason in verdict.reasons[0]
    assert verdict.code == ("Error" if reason else "UnschedulableAndUnresolvable")


def test_an_alternative_beyond_the_limit_of_devices_does_not_become_a_contradiction() -> None:
    """Upstream goes on with the next alternative at once, and does not try other devices for the one before."""
    first = {
        "name": "a",
        "firstAvailable": [{"name": f"n{count}", "deviceClassName": GPU, "count": count} for count in (30, 1)],
    }
    last = {"cel": {"expression": f"'last' in device.attributes['{GPU}']"}}
    requests = [first, exactly("b", allocationMode="All", selectors=[last]), exactly("c", count=3)]
    claim_ = claim("want", *requests, constraints=[{"distinctAttribute": MODEL, "requests": ["a", "b"]}])
    result: list[Json] = [{"attributes": {"model": {"string": f"m{i}"}}} for i in range(30)]
    result += [Y, {"attributes": {"model": {"string": "y"}, "last": {"bool": True}}}]
    assert fits(device_class(), devices("n", *result), claim_)


def test_all_devices_of_a_pool_that_is_being_updated() -> None:
    partial = devices("n", {}, pool={"name": "n", "generation": 1, "resourceSliceCount": 2})
    world = snapshot(node("n"), device_class(), partial, claim("want", exactly(allocationMode="All")))
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    what = f"asks for all devices, but resource pool {GPU}/n is currently being updated"
    assert verdict.reasons == (f'running "DynamicResources" filter plugin: claim default/want, request r: {what}',)


def test_views_with_claims_that_are_held() -> None:
    running = pod("old", "shared", nodeName="n")
    status = allocated_status("dev0") | {"reservedFor": [{"resource": "pods", "name": "old", "uid": "uid-old"}]}
    world = snapshot(node("n"), device_class(), devices("n", {}), claim("shared", status=status), claim("new"), running)
    view = kscale.fork(world, [pod("p", "new")])
    before = view.checksum()
    view.fork()
    assert not view.fits("default/p", "n")
    view.unplace(view.session.number(world.placed_classes[0]), "n")
    assert view.schedule("default/p", "n")
    view.revert()
    assert view.checksum() == before
    assert not view.fits("default/p", "n")


def test_an_error_in_the_ledger_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    world = snapshot(node("n"), device_class(), devices("n", {}), claim("a"), claim("b"))

    def fails(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(allocator.Allocator, "allocate", fails)
    view = kscale.fork(world, [pod("p0", "a"), pod("p1", "b")])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            view.schedule_anywhere("default/p0")


@pytest.mark.parametrize("call", ["check", "place"])
def test_after_an_error_in_the_ledger_the_view_is_as_before_or_refuses(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = snapshot(node("n"), device_class(), devices("n", X, X), claim("a"), claim("b"))
    view = kscale.fork(world, [pod("p0", "a"), pod("p1", "b")])
    before, real, calls = view.engine.checksum(), getattr(DeviceLedger, call), 0

    def fails_once(self: DeviceLedger, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(DeviceLedger, call, fails_once)
    with pytest.raises(KeyboardInterrupt):
        view.schedule_anywhere("default/p0")
    if call == "check":  # nothing had changed yet
        assert view.engine.checksum() == before
        assert view.schedule_anywhere("default/p0") == 0
    else:  # done by half
        with pytest.raises(NativeError, match="cannot be used any more"):
            view.schedule_anywhere("default/p1")


def test_headroom_of_pods_with_claims() -> None:
    own = pod("p", resourceClaims=[{"name": "own", "resourceClaimTemplateName": "t"}])
    own["status"] = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p-own"}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    pairs = {"constraints": [{"matchAttribute": MODEL}]}
    created = claim("p-own", exactly(count=2), meta={"ownerReferences": [owner]}, **pairs)
    world = snapshot(node("n"), device_class(), devices("n", X, Y, X, Y, Y), created, own)
    assert headroom.count_more_pods(world, from_dict(own, Pod)) == 2


def test_templates_bring_devices() -> None:
    world = snapshot(node("old"), device_class(), *(claim(f"c{i}", exactly(count=2)) for i in range(3)))
    template = NodeTemplate(
        node=from_dict(node("tmpl"), kscale.objects.api.core.Node),
        resource_slices=[from_dict(devices("tmpl", {}, {}, {}), kscale.objects.api.resource.ResourceSlice)],
    )
    pods = [pod(f"p{i}", f"c{i}") for i in range(3)]
    result = kscale.estimate(world, pods, template=template)
    assert (result.node_count, len(result.placed_pods)) == (3, 3)
    assert result.unmodelled == []
    capped = kscale.estimate(
        world, pods, template=template, options=kscale.EstimateOptions(max_nodes=1, thresholds=("static",))
    )
    assert len(capped.placed_pods) == 1
    assert "no further node was permitted" in set(capped.reasons.values())
    bare = kscale.estimate(world, pods, template=NodeTemplate(node=template.node))
    assert set(bare.reasons.values()) == {"DynamicResources: cannot allocate all claims"}


# -- extended resources ------------------------------------------------------------------------------------------------


def test_extended_resources_of_a_class() -> None:
    world = snapshot(
        node("plugin", **{"gputest.io/dev": "1"}),
        node("slices"),
        node("neither"),
        device_class(extendedResourceName="gputest.io/dev"),
        devices("slices", {}, {}),
    )
    requests = {"gputest.io/dev": "2"}
    result = kscale.fit(world, [pod("p", requests=requests)])
    numbers = {
        name: (result.verdict("default/p", name).plugin, result.verdict("default/p", name).ok) for name in result.nodes
    }
    assert numbers == {
        "plugin": ("NodeResourcesFit", False),
        "slices": ("", True),
        "neither": ("DynamicResources", False),
    }
    placed = kscale.place(world, [pod(f"p{i}", requests={"gputest.io/dev": "1"}) for i in range(4)])
    # The autoscaler runs Reserve for pods that list claims only: the devices of "slices" are never used up.
    assert sorted(placed.placed.values()) == ["plugin", "slices", "slices", "slices"]


# -- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("others", "place"), [([], {"default/p": "m"}), (["uid-other"], {})])
def test_a_pod_that_moves_gives_its_devices_back(others: list[str], place: dict[str, str]) -> None:
    status = allocated_status("dev0") | {"reservedFor": [{"name": "x", "uid": uid} for uid in ("uid-p", *others)]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": True}
    running = pod("p", "mine", nodeName="n")
    running["metadata"]["ownerReferences"] = [owner]
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "default"}}
    world = snapshot(
        *(node(name) for name in "nkm"),
        device_class(),
        devices("n", {}),
        devices("m", {}),
        claim("mine", status=status),
        replicas | {"spec": {"replicas": 1}},
        running,
    )
    result = kscale.ca.simulate_removals(world, ["n"], now=datetime(2026, 1, 1, tzinfo=UTC))
    assert {pod: to for removal in result.removable for pod, to in removal.placement.items()} == place


def test_extended_resources_hold_no_device() -> None:
    """As in the autoscaler; beside a claim of the pod's they do, since Reserve runs then."""
    world = snapshot(
        node("n"), device_class(extendedResourceName="gputest.io/dev"), devices("n", {}, {}), claim("a"), claim("b")
    )
    asking = {"gputest.io/dev": "1"}
    after = kscale.place(world, [pod("p", requests=asking)]).snapshot_after
    assert after.informers is world.informers
    result = kscale.place(world, [pod("p0", "a", requests=asking), pod("p1", "b")])
    assert list(result.placed) == ["default/p0"]
    assert sorted(result.snapshot_after.informers.resource_claims) == [
        ("default", "<extended-resources> p0"), ("default", "a"), ("default", "b"),
    ]  # fmt: skip


def test_containers_reserve_devices_under_their_own_requests() -> None:
    asking = {"gputest.io/dev": "1"}
    several = pod("p", "a", requests=asking)
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1m", "gputest.io/dev": "2"}}}
    several["spec"]["initContainers"] = [sidecar]
    few, enough = (
        snapshot(node("n"), device_class(extendedResourceName="gputest.io/dev"), devices("n", *offered), claim("a"))
        for offered in ([{}] * 3, [{}] * 4)
    )
    assert not kscale.place(few, [several]).placed
    claims = kscale.place(enough, [several]).snapshot_after.informers.resource_claims
    special = claims["default", "<extended-resources> p"]
    assert special.key == "default/<extended-resources>"
    assert [(result.request, result.device) for result in special.status.allocation.devices.results] == [
        ("container-0-request-1", "dev1"), ("container-0-request-1", "dev2"), ("container-1-request-0", "dev3"),
    ]  # fmt: skip


def pod_with_claim(name: str, *requests: Json) -> tuple[Json, Json]:
    """A pod and the claim that was created for it."""
    own = pod(name, resourceClaims=[{"name": "own", "resourceClaimTemplateName": "t"}])
    own["status"] = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": f"{name}-own"}]}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    return own, claim(f"{name}-own", *requests, meta={"ownerReferences": [owner]})


@pytest.mark.parametrize(
    ("capacity", "placed"),
    [({"value": "2"}, 2), ({"value": "2", "requestPolicy": {"default": "3"}}, 1), ({"value": "-1"}, 1)],
)
def test_devices_whose_capacity_a_request_exceeds_are_not_counted(capacity: Json, placed: int) -> None:
    offered = devices("n", {}, {"capacity": {"memory": capacity}})
    pods, claims = zip(*(pod_with_claim(name) for name in "ab"), strict=True)
    result = kscale.place(snapshot(node("n"), device_class(), offered, *claims), pods)
    assert len(result.placed) == placed


def test_a_negative_count_frees_no_device() -> None:
    counts = {"a": -1, "b": 2, "c": 1}
    pods, claims = zip(*(pod_with_claim(name, exactly(count=n)) for name, n in counts.items()), strict=True)
    result = kscale.place(snapshot(node("n"), device_class(), devices("n", {}, {}), *claims), pods)
    assert result.placed == {"default/a": "n", "default/b": "n"}
