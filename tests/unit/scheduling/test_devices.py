"""DynamicResources: claims and the allocator."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kscale
from kscale.errors import MissingExtraError
from kscale.scheduling.devices import allocator
from kscale.scheduling.devices import cel as selectors
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

# -- PreFilter ---------------------------------------------------------------------------------------------------------

BUSY = {"allocation": {"devices": {}}, "reservedFor": [{"uid": f"u{i}"} for i in range(256)]}


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ([], "claim default/want not found"),
        ([claim("want", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], 'resourceclaim "want" is being deleted'),
        ([claim("want", status=BUSY)], "resourceclaim in use"),
    ],
)
def test_prefilter_texts(claims: list[Json], text: str) -> None:
    verdict = kscale.fit(snapshot(node("n"), *claims), [pod("p", "want")]).verdict("default/p", "n")
    assert (verdict.plugin, verdict.reasons, verdict.unexpected) == ("DynamicResources", (text,), "PreFilter failed")


def from_template(status: list[Json]) -> Json:
    created = pod("p", resourceClaims=[{"name": "own", "resourceClaimTemplateName": "t"}])
    return created | {"status": {"resourceClaimStatuses": status}}


def test_claims_from_templates() -> None:
    world = snapshot(node("n"), device_class(), devices("n", {}), claim("other"))
    for status, text in (
        ([], 'pod "default/p": ResourceClaim not created yet'),
        (
            [{"name": "own", "resourceClaimName": "other"}],
            "ResourceClaim default/other was not created for Pod default/p (Pod is not owner)",
        ),
    ):
        verdict = kscale.fit(world, [from_template(status)]).verdict("default/p", "n")
        assert verdict.reasons == (text,)
    nothing_needed = kscale.fit(world, [from_template([{"name": "own"}])])
    assert nothing_needed.verdict("default/p", "n").ok
    assert "DynamicResources" in nothing_needed.prefilter("default/p").skipped


def test_switched_off() -> None:
    off = kscale.Cluster([node("n"), claim("want")]).snapshot()
    verdict = kscale.fit(off, [pod("p", "want")]).verdict("default/p", "n")
    assert verdict.reasons == ("object not found: dra manager is disabled",)


# -- the allocator -----------------------------------------------------------------------------------------------------


def test_missing_class_is_an_error_of_each_node() -> None:
    verdict = kscale.fit(snapshot(node("n"), claim("want")), [pod("p", "want")]).verdict("default/p", "n")
    what = f'could not retrieve device class {GPU}: DeviceClass "{GPU}" not found'
    assert verdict.reasons == (f'running "DynamicResources" filter plugin: claim default/want, request r: {what}',)
    assert verdict.unexpected == 'unexpected filter status "Error"'


def test_selector_that_fails_is_an_error() -> None:
    wrong = device_class(expression=f"device.attributes['{GPU}'].absent == 1")
    verdict = kscale.fit(snapshot(node("n"), wrong, devices("n", {}), claim("want")), [pod("p", "want")]).verdict(
        "default/p", "n"
    )
    (reason,) = verdict.reasons
    assert reason == (
        f'running "DynamicResources" filter plugin: class {GPU}: selector #0 on device {GPU}/n/dev0: CEL runtime '
        "error: no such key: absent. consider using CEL optional chaining (.? followed by orValue()) or guarding "
        "the check with has() for optional fields"
    )


def test_operations_that_a_device_skips_need_a_node_that_can_do_without() -> None:
    result = {"request": "r", "driver": GPU, "pool": "n", "device": "dev0"}
    results = [result | {"skipNodeOperations": ["NodePrepareResources"]}]
    skipping = claim("want", status={"allocation": {"devices": {"results": results}}})
    plain = claim("want", status={"allocation": {"devices": {"results": [result]}}})
    able = node("n")
    able["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    assert fits(node("n"), plain)
    assert fits(able, skipping)
    verdict = kscale.fit(snapshot(node("n"), skipping), [pod("p", "want")]).verdict("default/p", "n")
    assert verdict.reasons == ("resourceclaim not available on the node",)


ALLOCATED = "2026-11-22T12:00:00Z"
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def waiting(conditions: Json | None, **more: Any) -> Json:
    """An allocated claim whose device waits for `Attached` and fails by `Broken`; None: nobody said anything yet."""
    device = {"driver": GPU, "pool": "n", "device": "dev0"}
    result = {"request": "r", **device, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    status: Json = {"allocation": {"devices": {"results": [result | more]}, "allocationTimestamp": ALLOCATED}}
    if conditions is not None:
        device_conditions = [{"type": name, "status": value} for name, value in conditions.items()]
        status["devices"] = [{**device, "conditions": device_conditions}]
    return claim("want", status=status)


@pytest.mark.parametrize(
    ("conditions", "after", "fit"),
    [
        ({"Attached": "True"}, 601, True),
        ({"Attached": "True", "Broken": "True"}, 0, False),
        ({"Attached": "False", "Broken": "True"}, 0, False),
        ({"Attached": "False", "Broken": "Unknown"}, 600, True),
        ({"Attached": "False"}, 601, False),
        (None, 600, True),
        (None, 601, False),
        (None, None, True),
    ],
)
def test_binding_conditions(conditions: Json | None, after: int | None, *, fit: bool) -> None:
    cluster = kscale.Cluster([node("n"), device_class(), devices("n", {}), waiting(conditions)])
    now = None if after is None else NOON + timedelta(seconds=after)
    world = cluster.snapshot(dra=True, now=now)
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    assert verdict.reasons == (() if fit else ("resourceclaim not available on the node",))
    if after is not None:
        patient = kscale.SchedulerProfile(device_binding_timeout=timedelta(hours=1))
        again = kscale.fit(world, [pod("p", "want")], profile=patient).verdict("default/p", "n")
        assert again.ok is (fit or (conditions or {}).get("Broken") != "True")


def test_an_unreadable_time_of_an_allocation_is_named() -> None:
    damaged = waiting(None)
    damaged["status"]["allocation"]["allocationTimestamp"] = "at noon"
    world = kscale.Cluster([node("n"), device_class(), devices("n", {}), damaged]).snapshot(dra=True, now=NOON)
    with pytest.raises(kscale.InputError, match=r"status\.allocation\.allocationTimestamp") as refused:
        kscale.fit(world, [pod("p", "want")])
    assert "ResourceClaim default/want" in str(refused.value)


def test_devices_without_binding_conditions_do_not_fail() -> None:
    careless = waiting({"Broken": "True"}, bindingConditions=[])
    assert fits(device_class(), devices("n", {}), careless)


def test_a_snapshot_stays_while_nothing_depends_on_the_time() -> None:
    cluster = kscale.Cluster([node("n"), claim("want")])
    assert cluster.snapshot(dra=True, now=NOON) is cluster.snapshot(dra=True, now=NOON + timedelta(hours=1))
    cluster.apply(waiting(None))
    early, late = (cluster.snapshot(dra=True, now=NOON + timedelta(minutes=after)) for after in (1, 11))
    assert early is not late
    assert kscale.fit(early, [pod("p", "want")]).verdict("default/p", "n").ok
    assert not kscale.fit(late, [pod("p", "want")]).verdict("default/p", "n").ok
    with pytest.raises(kscale.InputError, match="no time zone"):
        cluster.snapshot(now=datetime(2026, 11, 22))  # noqa: DTZ001  # a time without a zone is refused


def test_devices_that_are_given_wait_for_their_conditions() -> None:
    offered = devices("n", {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]})
    world = snapshot(node("n"), device_class(), offered, claim("want"), pod("p", "want"))
    stored = kscale.place(world).snapshot_after.informers.resource_claims["default", "want"]
    (result,) = stored.status.allocation.devices.results
    assert (result.binding_conditions, result.binding_failure_conditions) == (["Attached"], ["Broken"])


def leftover_claim(of: str, **more: Any) -> Json:
    meta = {
        "uid": "uid-left",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": of, "uid": f"uid-{of}", "controller": True}],
    }
    return claim(f"{of}-extended-resources-x", meta=meta, **more)


def test_a_claim_left_over_from_an_earlier_attempt_is_in_the_way_of_its_pod_alone() -> None:
    extended = device_class(extendedResourceName="example.com/gpu")
    pods = [pod(name, requests={"example.com/gpu": "1"}) for name in ("p", "q")]
    world = snapshot(node("n"), node("m"), extended, devices("n", {}, {}), leftover_claim("p"), *pods)
    result = kscale.fit(world)
    for name in ("n", "m"):
        verdict = result.verdict("default/p", name)
        assert (verdict.plugin, verdict.reasons) == ("DynamicResources", ("cannot schedule extended resource claim",))
    assert result.verdict("default/q", "n").ok
    assert result.verdict("default/q", "m").reasons == ("cannot allocate all claims",)
    assert kscale.place(world).placed == {"default/q": "n"}
    without = kscale.Cluster([node("n"), extended, devices("n", {}, {}), leftover_claim("p"), *pods]).snapshot()
    assert "DynamicResources" not in {v.plugin for v in kscale.fit(without).verdicts("default/p", "n")}


SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "7", "requestPolicy": {"default": "2", "validValues": ["1", "2", "4"]}}},
}
"""A device that three requests can share."""


def container(amount: str, *, sidecar: bool = False, resource: str = "example.com/gpu") -> Json:
    requests = {"cpu": "1m", resource: amount}
    return {"name": "c", "resources": {"requests": requests}, **({"restartPolicy": "Always"} if sidecar else {})}


def check_extended(
    containers: list[Json], init: list[Json], *offered: Json, resource: str = "example.com/gpu", **spec: Any
) -> tuple[str, ...]:
    """Return why a pod with these containers does not fit a node with these devices."""
    of_class = device_class(extendedResourceName=resource)
    wants = pod("p")
    wants["spec"] |= {"containers": containers, "initContainers": init, **spec}
    verdict = kscale.fit(snapshot(node("n"), of_class, devices("n", *offered)), [wants]).verdict("default/p", "n")
    return verdict.reasons


NO_DEVICES = ("cannot allocate all claims",)


@pytest.mark.parametrize(
    ("containers", "init", "reasons"),
    [
        ([container("3")], [], NO_DEVICES),
        ([container("1"), container("2")], [], ()),
        ([container("2"), container("2")], [], ()),
        ([container("1")], [container("2", sidecar=True)], ()),
        ([container("1")], [container("3")], ()),
        ([container("1")], [container("4")], NO_DEVICES),
        ([container("1")], [container("2"), container("3")], ()),
        ([container("1")], [container("5"), container("2", sidecar=True)], ()),
        ([container("1")], [container("2", sidecar=True), container("4")], NO_DEVICES),
        ([container("2")] * 4, [], NO_DEVICES),
    ],
)
def test_each_container_requests_devices_of_its_own(
    containers: list[Json], init: list[Json], reasons: tuple[str, ...]
) -> None:
    """A request takes distinct devices, but requests of one claim may share them."""
    assert check_extended(containers, init, SHARED, SHARED) == reasons


@pytest.mark.parametrize(("number", "reasons"), [(3, ()), (2, NO_DEVICES)])
def test_init_containers_use_the_devices_of_later_containers(number: int, reasons: tuple[str, ...]) -> None:
    init = [container("3"), container("1", sidecar=True), container("2")]
    assert check_extended([container("1")], init, *[{}] * number) == reasons


@pytest.mark.parametrize(
    ("containers", "init", "request_", "count", "before"),
    [
        ([container("33")], [], "container-0-request-1", 33, 0),
        ([container("20"), container("20")], [], "container-1-request-1", 20, 20),
        ([container("20")], [container("33")], "container-1-request-1", 20, 13),
        ([container("1")], [container("40"), container("41")], "container-1-request-1", 40, 0),
        ([container("1")], [container("40"), container("40")], "container-0-request-1", 39, 0),
        ([container("3")] * 12, [], "container-8-request-1", 3, 30),  # 10 and 11 come before 2
    ],
)
def test_errors_name_the_claim_and_the_containers_request(
    containers: list[Json], init: list[Json], request_: str, count: int, before: int
) -> None:
    (reason,) = check_extended(containers, init)
    assert reason == (
        f'running "DynamicResources" filter plugin: claim default/<extended-resources>, request {request_}: '
        f"adding {count} devices exceeds the claim limit of 32, with {before} already accounted for"
    )


@pytest.mark.parametrize(
    ("amount", "reasons"),
    [("1", NO_DEVICES), ("1e0", NO_DEVICES), ("500m", ()), ("1000m", ()), ("10E", ())],
)
def test_amounts_that_are_no_plain_integers_request_no_device(amount: str, reasons: tuple[str, ...]) -> None:
    assert check_extended([container(amount)], []) == reasons


def test_negative_amounts_request_no_device() -> None:
    assert check_extended([container("-1"), container("2")], [], {}, {}) == ()
    assert check_extended([container("3"), container("-1")], [], {}, {}) == NO_DEVICES  # though the pod's total is 2


def test_overhead_requests_no_device() -> None:
    assert check_extended([container("1")], [], {}, overhead={"example.com/gpu": "2"}) == ()
    assert check_extended([container("0")], [], overhead={"example.com/gpu": "2"}) == ()


@pytest.mark.parametrize(
    ("resource", "reasons"),
    [
        (f"deviceclass.resource.kubernetes.io/{GPU}", NO_DEVICES),
        ("kubernetes.io/gpu", ()),
        ("hugepages-2Mi", ()),
        ("attachable-volumes-x", ()),
    ],
)
def test_resources_of_kubernetes_itself_are_no_devices(resource: str, reasons: tuple[str, ...]) -> None:
    """NodeResourcesFit leaves them to the class of their name, but DynamicResources does not look at them."""
    assert check_extended([container("1", resource=resource)], [], resource=resource) == reasons


@pytest.mark.parametrize(
    ("capacity", "request_", "device"),
    [
        ({"value": "-4"}, exactly(), f"{GPU}/n/dev0"),
        ({"value": "-4"}, exactly(allocationMode="All"), "dev0"),  # upstream names only the device here
        ({"value": "4"}, exactly(capacity={"requests": {"memory": "-1"}}), f"{GPU}/n/dev0"),
        ({"value": "4", "requestPolicy": {"default": "-1"}}, exactly(), f"{GPU}/n/dev0"),
    ],
)
def test_a_negative_capacity_is_an_error(capacity: Json, request_: Json, device: str) -> None:
    full = {"value": "1", "requestPolicy": {"default": "2"}}  # another capacity that is too small is no error
    offered = devices("n", {"capacity": {"cores": full, "memory": capacity}})
    world = snapshot(node("n"), device_class(), offered, claim("want", request_))
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    assert verdict.reasons == (
        (
            'running "DynamicResources" filter plugin: claim default/want, request r: checking capacity for device '
            f'{device}: capacity "memory": capacity value is negative'
        ),
    )


_TENTHS = {"min": "100m", "step": "100m"}


@pytest.mark.parametrize(
    ("span", "requested", "message"),
    [
        ({"min": "0.5n", "step": "2"}, "10E", "request 10E exceeds MaxInt64"),  # 1n is no milli-value
        ({"min": "1", "step": "2"}, "10E", "request 10E is not a representable milli value"),
        ({"min": "1", "step": "2"}, "1u", ""),  # below the minimum
        (_TENTHS, "100001u", "request 100001u is not a representable milli value"),
        (_TENTHS, "9223372036854775801m",
         "rounding request 9223372036854775801m up to the next step passes the milli-value range"),
        ({"min": "0", "step": "5E", "max": "9E"}, "6E", "rounding request 6E up to the next step passes MaxInt64"),
    ],
)  # fmt: skip
def test_a_request_that_a_range_cannot_represent_is_an_error(span: Json, requested: str, message: str) -> None:
    capacity = {"value": "9E", "requestPolicy": {"default": "1", "validRange": span}}
    request_ = exactly(capacity={"requests": {"memory": requested}})
    offered = devices("n", {"allowMultipleAllocations": True, "capacity": {"memory": capacity}})
    world = snapshot(node("n"), device_class(), offered, claim("want", request_))
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    error = (
        'running "DynamicResources" filter plugin: claim default/want, request r: checking capacity for device '
        f'{GPU}/n/dev0: capacity "memory": capacity request cannot be represented in the device\'s range arithmetic: '
    )
    assert verdict.reasons == ((error + message,) if message else ())


@pytest.mark.parametrize(("amount", "fit"), [("1", True), ("2", False), ("5", False)])
def test_all_devices_include_a_shared_device_without_room(amount: str, fit: bool) -> None:
    """A device that is too small for the request is left out; one whose capacity others use is not."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    small = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "0"}}}
    used = allocated_status("dev0")
    used["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "3"}}
    request_ = exactly(allocationMode="All", capacity={"requests": {"memory": amount}})
    objects = device_class(), devices("n", shared, shared, small), claim("other", status=used), claim("want", request_)
    assert fits(*objects) is fit


TAINTED = {"taints": [{"key": "broken", "effect": "NoExecute"}]}
TOLERANT = [{"key": "broken", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("offered", "request_", "more", "fit"),
    [
        ([{}], exactly(), {}, True),
        ([{}], exactly(count=2), {}, False),
        ([{}, {}], exactly(count=2), {}, True),
        ([], exactly(allocationMode="All"), {}, False),
        ([{}, {}, {}], exactly(allocationMode="All"), {}, True),
        ([TAINTED], exactly(), {}, False),
        ([TAINTED], exactly(tolerations=TOLERANT), {}, True),
        ([TAINTED, {}], exactly(allocationMode="All"), {}, False),
        ([X, Y], exactly(count=2), {"constraints": [{"matchAttribute": f"{GPU}/model"}]}, False),
        ([X, Y, X], exactly(count=2), {"constraints": [{"matchAttribute": f"{GPU}/model"}]}, True),
        ([X, X], exactly(count=2), {"constraints": [{"distinctAttribute": f"{GPU}/model"}]}, False),
        ([X, Y], exactly(count=2), {"constraints": [{"distinctAttribute": f"{GPU}/model"}]}, True),
        ([{}], exactly(adminAccess=True, count=2), {}, False),
        ([{}], exactly(count=-1), {}, True),  # upstream panics
        ([{}], {"name": "r", "firstAvailable": [{"name": "two", "deviceClassName": GPU, "count": 2}]}, {}, False),
        (
            [{}],
            {"name": "r", "firstAvailable": [{"name": str(n), "deviceClassName": GPU, "count": n} for n in (2, 1)]},
            {},
            True,
        ),
    ],
)
def test_allocation(offered: list[Json], request_: Json, more: Json, *, fit: bool) -> None:
    assert fits(device_class(), devices("n", *offered), claim("want", request_, **more)) is fit


@pytest.mark.parametrize(("capacity", "fit"), [("4", True), ("3", False)])
def test_shared_counters(capacity: str, *, fit: bool) -> None:
    uses = {"consumesCounters": [{"counterSet": "board", "counters": {"slots": {"value": "2"}}}]}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    counters = {"sharedCounters": [{"name": "board", "counters": {"slots": {"value": capacity}}}]}
    parts = [devices("n", uses, uses, pool=pool), devices("n", pool=pool, **counters)]
    parts[1]["metadata"]["name"] = "counters"
    assert fits(device_class(), *parts, claim("want", exactly(count=2))) is fit


def test_incomplete_and_old_pools_offer_nothing() -> None:
    incomplete = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    assert not fits(device_class(), devices("n", {}, pool=incomplete), claim("want"))
    newer = devices("n", pool={"name": "n", "generation": 2, "resourceSliceCount": 1})
    newer["metadata"]["name"] = "newer"
    assert not fits(device_class(), devices("n", {}), newer, claim("want"))


def test_devices_in_use() -> None:
    objects = [device_class(), devices("n", {}), claim("held", status=allocated_status("dev0"))]
    assert not fits(*objects, claim("want"))
    assert fits(*objects, claim("want", exactly(adminAccess=True)))


def test_allocated_claims_go_where_their_devices_are() -> None:
    world = snapshot(node("n"), node("m"), claim("want", status=allocated_status("dev0")))
    result = kscale.fit(world, [pod("p", "want")])
    assert result.verdict("default/p", "n").ok
    assert result.verdict("default/p", "m").reasons == ("resourceclaim not available on the node",)


def test_equal_nodes_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{i}" for i in range(20)]
    world = snapshot(*map(node, names), device_class(), *(devices(name, {}, {}) for name in names[:15]), claim("want"))
    calls = []
    original = allocator.Allocator.allocate
    monkeypatch.setattr(allocator.Allocator, "allocate", lambda *a: calls.append(1) or original(*a))
    result = kscale.fit(world, [pod("p", "want")])
    assert result.ok.sum() == 15
    assert len(calls) == 2
    assert result.unmodelled == []


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "celpy", None)
    selectors._library.cache_clear()
    try:
        assert fits(device_class(), devices("n", {}), claim("want"))  # nothing to evaluate
        with pytest.raises(MissingExtraError, match=r"\[dra\]"):
            fits(device_class(expression="true"), devices("n", {}), claim("want"))
    finally:
        selectors._library.cache_clear()
