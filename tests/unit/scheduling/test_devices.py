"""DynamicResources: claims, the allocator, and devices that pods compete for."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kscale
from kscale.capacity import headroom
from kscale.errors import MissingExtraError, NativeError
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity
from kscale.objects.resource import Device, DeviceAttribute, DeviceCapacity
from kscale.scheduling.devices import allocator, selectors
from kscale.scheduling.devices.ledger import DeviceLedger

Json = dict[str, Any]
API = "resource.k8s.io/v1"
GPU = "gpu.example.com"


def node(name: str, **allocatable: str) -> Json:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "20"} | {k.replace("__", "/"): v for k, v in allocatable.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def device_class(name: str = GPU, expression: str = "", **spec: Any) -> Json:
    if expression:
        spec["selectors"] = [{"cel": {"expression": expression}}]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def devices(where: str, *found: Json, **spec: Any) -> Json:
    spec = {
        "driver": GPU,
        "nodeName": where,
        "pool": {"name": where, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"dev{i}", **each} for i, each in enumerate(found)],
    } | spec
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"s-{where}"}, "spec": spec}


def exactly(name: str = "r", **exact: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": GPU, **exact}}


def claim(name: str, *requests: Json, meta: Json | None = None, status: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **(meta or {})},
        "spec": {"devices": {"requests": list(requests) or [exactly()], **spec}},
        "status": status or {},
    }


def pod(name: str = "p", *claims: str, requests: Json | None = None, **spec: Any) -> Json:
    spec["containers"] = [{"name": "c", "resources": {"requests": requests or {}}}]
    if claims:
        spec["resourceClaims"] = [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(claims)]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def snapshot(*objects: Json) -> Any:
    return kscale.Cluster(objects).snapshot(dra=True)


def fits(*objects: Json, **options: Any) -> bool:
    """Whether a pod with the claim `want` fits the node `n`."""
    return kscale.fit(snapshot(node("n"), *objects), [pod("p", "want")], **options).verdict("default/p", "n").ok


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
    made = pod("p", resourceClaims=[{"name": "own", "resourceClaimTemplateName": "t"}])
    return made | {"status": {"resourceClaimStatuses": status}}


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
        said = [{"type": name, "status": value} for name, value in conditions.items()]
        status["devices"] = [{**device, "conditions": said}]
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
        cluster.snapshot(now=datetime(2026, 11, 22))  # noqa: DTZ001  (a naive one is what is refused)


def test_devices_that_are_given_wait_for_their_conditions() -> None:
    offered = devices("n", {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]})
    world = snapshot(node("n"), device_class(), offered, claim("want"), pod("p", "want"))
    found = kscale.place(world).snapshot_after.informers.resource_claims["default", "want"]
    (result,) = found.status.allocation.devices.results
    assert (result.binding_conditions, result.binding_failure_conditions) == (["Attached"], ["Broken"])


def left_over(of: str, **more: Any) -> Json:
    meta = {
        "uid": "uid-left",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": of, "uid": f"uid-{of}", "controller": True}],
    }
    return claim(f"{of}-extended-resources-x", meta=meta, **more)


def test_a_claim_left_over_from_an_earlier_attempt_is_in_the_way_of_its_pod_alone() -> None:
    extended = device_class(extendedResourceName="example.com/gpu")
    pods = [pod(name, requests={"example.com/gpu": "1"}) for name in ("p", "q")]
    world = snapshot(node("n"), node("m"), extended, devices("n", {}, {}), left_over("p"), *pods)
    found = kscale.fit(world)
    for name in ("n", "m"):
        verdict = found.verdict("default/p", name)
        assert (verdict.plugin, verdict.reasons) == ("DynamicResources", ("cannot schedule extended resource claim",))
    assert found.verdict("default/q", "n").ok
    assert found.verdict("default/q", "m").reasons == ("cannot allocate all claims",)
    assert kscale.place(world).placement == {"default/q": "n"}
    without = kscale.Cluster([node("n"), extended, devices("n", {}, {}), left_over("p"), *pods]).snapshot()
    assert "DynamicResources" not in {v.plugin for v in kscale.fit(without).verdicts("default/p", "n")}


TAINTED = {"taints": [{"key": "broken", "effect": "NoExecute"}]}
TOLERANT = [{"key": "broken", "operator": "Exists"}]
X, Y = ({"attributes": {"model": {"string": model}}} for model in "xy")


@pytest.mark.parametrize(
    ("found", "request_", "more", "fit"),
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
        ([{}], {"name": "r", "firstAvailable": [{"name": "two", "deviceClassName": GPU, "count": 2}]}, {}, False),
        (
            [{}],
            {"name": "r", "firstAvailable": [{"name": str(n), "deviceClassName": GPU, "count": n} for n in (2, 1)]},
            {},
            True,
        ),
    ],
)
def test_allocation(found: list[Json], request_: Json, more: Json, *, fit: bool) -> None:
    assert fits(device_class(), devices("n", *found), claim("want", request_, **more)) is fit


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


def given(device: str, where: str = "n") -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [where]}
    results = [{"request": "r", "driver": GPU, "pool": where, "device": device}]
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}


def test_devices_in_use() -> None:
    objects = [device_class(), devices("n", {}), claim("held", status=given("dev0"))]
    assert not fits(*objects, claim("want"))
    assert fits(*objects, claim("want", exactly(adminAccess=True)))


def test_allocated_claims_go_where_their_devices_are() -> None:
    world = snapshot(node("n"), node("m"), claim("want", status=given("dev0")))
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


# -- CEL ---------------------------------------------------------------------------------------------------------------

DEVICE = Device(
    attributes={
        "model": DeviceAttribute(string="x"),
        "lanes": DeviceAttribute(int_=8),
        "ecc": DeviceAttribute(bool_=True),
        "driver": DeviceAttribute(version="1.10.0"),
        "other.example.com/rack": DeviceAttribute(string="r1"),
    },
    capacity={"memory": DeviceCapacity(value=Quantity("40Gi"))},
)


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.attributes['gpu.example.com'].model == 'x'", True),
        ("device.attributes['gpu.example.com'].lanes > 4 && device.attributes['gpu.example.com'].ecc", True),
        ("device.attributes['other.example.com'].rack == 'r1'", True),
        ("'nowhere.example.com' in device.attributes", False),
        ("has(device.attributes['nowhere.example.com'].rack)", False),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40960Mi')) == 0", True),
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('80Gi'))", False),
        ("device.capacity['gpu.example.com'].memory.isLessThan(quantity('80Gi'))", True),
        ("device.attributes['gpu.example.com'].driver.isGreaterThan(semver('1.9.3'))", True),
        ("device.attributes['gpu.example.com'].driver.compareTo(semver('1.10.0')) == 0", True),
        ("isQuantity('x1') || isSemver('1.2')", False),
        ("cel.bind(own, device.attributes['gpu.example.com'], own.model == 'x' && own.lanes == 8)", True),
        ("cel.bind(a, 'cel.bind(', cel.bind(b, a + ',', b == 'cel.bind(,'))", True),
        ("device.attributes['gpu.example.com'].?model.orValue('y') == 'x'", True),
        ("device.attributes['gpu.example.com'].?absent.orValue('.?y(') == '.?y('", True),
        ("device.attributes['nowhere.example.com'].?absent.hasValue()", False),
        ("device.capacity['gpu.example.com'].?memory.orValue(quantity('0')).isGreaterThan(quantity('1'))", True),
        ("quantity('1').add(quantity('500m')).sub(quantity('1')).compareTo(quantity('0.5')) == 0", True),
        ("quantity('2').asInteger() == 2 && quantity('-1').sign() == -1 && !quantity('1m').isInteger()", True),
        ("quantity('1500m').asApproximateFloat() == 1.5", True),
        ("semver('1.2.3').major() + semver('1.2.3').minor() + semver('1.2.3').patch() == 6", True),
        ("'A-b'.lowerAscii().split('-').join('+') == 'a+b' && 'ab'.upperAscii() == 'AB'", True),
        (
            "semver('v01.2', true) == semver('1.2.0') && isSemver('v1', true) && !isSemver('1.0.00')",
            True,
        ),
        ("device.attributes[?'gpu.example.com'].?model.hasValue()", True),
        ("device.attributes[?'gpu.example.com'].model.value() == 'x'", True),
        ("device.attributes['gpu.example.com'][?'absent'].or(optional.of('z')).value() == 'z'", True),
        ("device.attributes.?nowhere.?absent.optMap(v, v == 'x').orValue(false)", False),
        ("device.attributes[device.driver].?model.optMap(v, v + 'y').orValue('') == 'xy'", True),
        (
            "device.attributes[device.driver].?lanes.optFlatMap(v, optional.of(v)).hasValue()",
            True,
        ),
        ("device.attributes[device.driver].?model.orValue(device.attributes[device.driver].absent) == 'x'", True),
        (
            "optional.of(1) == optional.of(1) && optional.of(1) != optional.none() && [1, 2][?5] == optional.none()",
            True,
        ),
        ("optional.ofNonZeroValue('').hasValue() || optional.ofNonZeroValue(0).hasValue()", False),
        ("sets.contains([1, 2, 3], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects(['a'], ['b'])", True),
        ("[1, 2, 3].isSorted() && [3, 1].max() == 3 && [3, 1].min() == 1 && [1, 2].sum() == 3 && [].sum() == 0", True),
        (
            "['a', 'b', 'a'].indexOf('a') == 0 && ['a', 'b', 'a'].lastIndexOf('a') == 2 && ['a'].indexOf('c') == -1",
            True,
        ),
        (
            "'a1b2'.find('[0-9]') == '1' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'abc'.findAll('.', 2).size() == 2",
            True,
        ),
        ("'abca'.indexOf('a', 1) == 3 && 'abca'.lastIndexOf('a', 2) == 0 && 'abc'.charAt(3) == ''", True),
        (
            "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'ab'.split('') == ['a', 'b'] && 'a'.split(',', 0).size() == 0",
            True,
        ),
        ("strings.quote('a\\nb') == '\"a\\\\nb\"'", True),
        (
            "ip('::1').family() + ip('127.0.0.1').family() == 10 && ip('::1') == ip('0:0::1') && !isIP('fe80::1%eth0')",
            True,
        ),
        ("isIP('01.2.3.4') || isIP('::ffff:1.2.3.4') || ip.isCanonical('2001:DB8::1') || isIP(device.driver)", False),
        ("ip('127.0.0.1').isLoopback() && ip('::').isUnspecified() && ip('ff12::1').isLinkLocalMulticast()", True),
        ("ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()", True),
        ("ip('169.254.1.1').isLinkLocalUnicast() && ip('fec0::1').isGlobalUnicast()", True),
        ("ip('224.0.1.1').isLinkLocalMulticast() || ip('ff01::1').isLinkLocalMulticast()", False),
        ("cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::/0').prefixLength() == 0", True),
        ("cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && string(cidr('fd00::/8')) == 'fd00::/8'", True),
        ("isCIDR('10.0.0.0/08') || isCIDR('10.0.0.0/33') || isCIDR('1.2.3.4') || isCIDR('1.2.3.4/255.0.0.0')", False),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('::1'))", True),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            True,
        ),
        ("string(true) + string(1) + string(ip('1.2.3.4')) == 'true11.2.3.4'", True),
        ("' abc '.trim().substring(1).replace('c', 'd') == 'bd' && 'abca'.lastIndexOf('a') == 3", True),
    ],
)
def test_cel(expression: str, *, truth: bool) -> None:
    assert selectors.selects(expression, GPU, DEVICE) is truth


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver ==",
        "device.driver",
        "quantity('x1').compareTo(quantity('1')) == 0",
        "1 + 'a' == 2",
        "quantity('1m').asInteger() == 1",
        "'x'.sign() == 1",
        "'abc'.substring(7) == ''",
        "optional.none().value()",
        "'abc'.substring(2, 1) == ''",
        "[].max() == 1",
        "cel.bind(a, 1) == 1",
        "[?optional.of(1)].size() == 1",  # optional elements of literals are not known
        "device.driver == \x009\0",  # stands for a literal while the text is changed
    ],
)
def test_cel_errors(expression: str) -> None:
    with pytest.raises(selectors.SelectorError):
        selectors.selects(expression, GPU, DEVICE)


@pytest.mark.parametrize("expression", ["!" * 5000 + "true", "1" + " + 1" * 3000 + " == 3001"])
def test_a_selector_may_be_too_deep(expression: str) -> None:
    with pytest.raises(selectors.SelectorError, match="nested too deep"):
        selectors.selects(expression, GPU, DEVICE)


def undeclared(where: str, name: str, line: str, dots: int) -> str:
    text = f"compilation failed: ERROR: <input>:{where}: undeclared reference to '{name}' (in container '')"
    return f"{text}\n | {line}\n | {'.' * dots}^"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            "true ||\n  nosuch(device.driver)",
            undeclared("2:9", "nosuch", "  nosuch(device.driver)", 8),
        ),
        (
            "device.driver.nosuch() == 'nosuch()'",
            undeclared("1:21", "nosuch", "device.driver.nosuch() == 'nosuch()'", 20),
        ),
        ("nosuchvar", undeclared("1:1", "nosuchvar", "nosuchvar", 0)),
        ("isURL(device.driver)", "compilation failed: kscale does not have the function 'isURL'"),
        ("ip('::ffff:1.2.3.4').family() == 6", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("ip('fe80::1%a').family() == 6", 'IP address "fe80::1%a" with zone value is not allowed'),
        ("ip('x').family() == 6", 'IP Address "x" parse error during conversion from string'),
        ("cidr('10.0.0.0/8').containsIP('x')", "no such overload"),
        ("quantity('1m').asInteger() == 1", "cannot convert value to integer"),
        ("'abc'.substring(7) == ''", "index out of range: 7"),
    ],
)
def test_what_cel_does_not_know(expression: str, text: str) -> None:
    with pytest.raises(selectors.SelectorError) as raised:
        selectors.selects(expression, GPU, DEVICE)
    assert str(raised.value) == text


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "celpy", None)
    selectors._library.cache_clear()
    try:
        assert fits(device_class(), devices("n", {}), claim("want"))  # nothing to evaluate
        with pytest.raises(MissingExtraError, match=r"\[dra\]"):
            fits(device_class(expression="true"), devices("n", {}), claim("want"))
    finally:
        selectors._library.cache_clear()


# -- competition -------------------------------------------------------------------------------------------------------


def test_claims_compete_for_devices() -> None:
    world = snapshot(node("n"), device_class(), devices("n", {}, {}), *(claim(f"c{i}") for i in range(3)))
    result = kscale.place(world, [pod(f"p{i}", f"c{i}") for i in range(3)])
    assert result.placement == {"default/p0": "n", "default/p1": "n"}
    assert result.unmodelled == []
    after = result.snapshot_after
    held = after.informers.resource_claims["default", "c1"].status
    assert held.allocation is not None
    assert held.allocation.devices.results[0].device == "dev1"
    assert [consumer.name for consumer in held.reserved_for] == ["p1"]
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
    ("found", "asked", "placed"),
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
def test_what_cannot_be_counted_is_exact(found: list[Json], asked: list[Json], placed: list[bool]) -> None:
    claims = [claim(f"c{i}", request) for i, request in enumerate(asked)]
    world = snapshot(node("n"), device_class(), devices("n", *found), *claims)
    result = kscale.place(world, [pod(f"p{i}", f"c{i}") for i in range(len(asked))])
    assert [f"default/p{i}" in result.placement for i in range(len(asked))] == placed
    assert result.unmodelled == []


def test_constraints_between_devices_of_several_pods() -> None:
    same = {"constraints": [{"matchAttribute": MODEL}]}
    pairs = [claim(name, exactly(count=2), **same) for name in "abc"]
    world = snapshot(node("n"), device_class(), devices("n", X, Y, X, Y), *pairs)
    result = kscale.place(world, [pod(f"p{name}", name) for name in "abc"])
    assert result.placement == {"default/pa": "n", "default/pb": "n"}
    held = result.snapshot_after.informers.resource_claims
    given_to = [[each.device for each in held["default", name].status.allocation.devices.results] for name in "ab"]
    assert given_to == [["dev0", "dev2"], ["dev1", "dev3"]]


def test_a_claim_that_several_pods_share() -> None:
    world = snapshot(node("n"), node("m"), device_class(), devices("n", {}), devices("m", {}), claim("a"))
    result = kscale.place(world, [pod(f"p{i}", "a") for i in range(3)])
    assert set(result.placement.values()) == {"m"}  # where the first one got it
    assert [c.name for c in result.snapshot_after.informers.resource_claims["default", "a"].status.reserved_for] == [
        "p0", "p1", "p2",
    ]  # fmt: skip
    assert result.unmodelled == []


def test_a_shared_claim_has_so_many_consumers() -> None:
    busy = {"allocation": {"devices": {}}, "reservedFor": [{"uid": f"u{i}"} for i in range(254)]}
    world = snapshot(node("n"), claim("a", status=busy))
    result = kscale.place(world, [pod(f"p{i}", "a") for i in range(4)])
    assert list(result.placement) == ["default/p0", "default/p1"]


def test_devices_of_several_nodes() -> None:
    anywhere = devices("fabric", {}, nodeName=None, allNodes=True)
    world = snapshot(node("n"), node("m"), device_class(), anywhere, claim("a"), claim("b"))
    result = kscale.place(world, [pod("p0", "a"), pod("p1", "b")])
    assert list(result.placement) == ["default/p0"]


def test_pods_share_counters() -> None:
    uses = {"consumesCounters": [{"counterSet": "board", "counters": {"slots": {"value": "1"}}}]}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    counters = devices("n", pool=pool, sharedCounters=[{"name": "board", "counters": {"slots": {"value": "2"}}}])
    counters["metadata"]["name"] = "counters"
    world = snapshot(
        node("n"), device_class(), devices("n", uses, uses, uses, pool=pool), counters, *(claim(x) for x in "abc")
    )
    result = kscale.place(world, [pod(f"p{x}", x) for x in "abc"])
    assert list(result.placement) == ["default/pa", "default/pb"]


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
    assert [f"default/p{i}" in result.placement for i in range(len(amounts))] == placed
    # What was consumed is in the status, so that what comes next knows: nobody fits any more who did not before.
    after = result.snapshot_after
    rest = [i for i, there in enumerate(placed) if not there]
    assert kscale.place(after, [pods[i] for i in rest]).placement == {}
    assert result.unmodelled == []


def test_a_capacity_that_the_device_does_not_have() -> None:
    request = exactly(capacity={"requests": {"bandwidth": "1"}})
    assert not fits(device_class(), devices("n", {"capacity": {"memory": {"value": "1"}}}), claim("want", request))
    named = exactly(capacity={"requests": {f"{GPU}/memory": "1"}})
    assert fits(device_class(), devices("n", {"capacity": {"memory": {"value": "1"}}}), claim("want", named))


@pytest.mark.parametrize(
    ("request_", "more", "text"),
    [
        (exactly(count=33), {}, "claim default/want: number of requested devices 33 exceeds the claim limit of 32"),
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


def test_all_devices_of_a_pool_that_is_being_updated() -> None:
    partial = devices("n", {}, pool={"name": "n", "generation": 1, "resourceSliceCount": 2})
    world = snapshot(node("n"), device_class(), partial, claim("want", exactly(allocationMode="All")))
    verdict = kscale.fit(world, [pod("p", "want")]).verdict("default/p", "n")
    what = f"asks for all devices, but resource pool {GPU}/n is currently being updated"
    assert verdict.reasons == (f'running "DynamicResources" filter plugin: claim default/want, request r: {what}',)


def test_views_with_claims_that_are_held() -> None:
    running = pod("old", "shared", nodeName="n")
    status = given("dev0") | {"reservedFor": [{"resource": "pods", "name": "old", "uid": "uid-old"}]}
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
    made = claim("p-own", exactly(count=2), meta={"ownerReferences": [owner]}, **pairs)
    world = snapshot(node("n"), device_class(), devices("n", X, Y, X, Y, Y), made, own)
    assert headroom.more_of(world, from_dict(own, Pod)) == 2


def test_templates_bring_devices() -> None:
    world = snapshot(node("old"), device_class(), *(claim(f"c{i}", exactly(count=2)) for i in range(3)))
    template = NodeTemplate(
        node=from_dict(node("tmpl"), kscale.objects.core.Node),
        resource_slices=[from_dict(devices("tmpl", {}, {}, {}), kscale.objects.resource.ResourceSlice)],
    )
    pods = [pod(f"p{i}", f"c{i}") for i in range(3)]
    result = kscale.estimate(world, pods, template=template)
    assert (result.node_count, len(result.scheduled)) == (3, 3)
    assert result.unmodelled == []
    capped = kscale.estimate(
        world, pods, template=template, options=kscale.EstimateOptions(max_nodes=1, thresholds=("static",))
    )
    assert len(capped.scheduled) == 1
    assert "no further node was permitted" in set(capped.unscheduled.values())
    bare = kscale.estimate(world, pods, template=NodeTemplate(node=template.node))
    assert set(bare.unscheduled.values()) == {"DynamicResources: cannot allocate all claims"}


# -- extended resources ------------------------------------------------------------------------------------------------


def test_extended_resources_of_a_class() -> None:
    world = snapshot(
        node("plugin", **{"gputest.io/dev": "1"}),
        node("slices"),
        node("neither"),
        device_class(extendedResourceName="gputest.io/dev"),
        devices("slices", {}, {}),
    )
    wanted = {"gputest.io/dev": "2"}
    result = kscale.fit(world, [pod("p", requests=wanted)])
    found = {
        name: (result.verdict("default/p", name).plugin, result.verdict("default/p", name).ok) for name in result.nodes
    }
    assert found == {
        "plugin": ("NodeResourcesFit", False),
        "slices": ("", True),
        "neither": ("DynamicResources", False),
    }
    placed = kscale.place(world, [pod(f"p{i}", requests={"gputest.io/dev": "1"}) for i in range(4)])
    # The autoscaler runs Reserve for pods that list claims only: the devices of "slices" are never used up.
    assert sorted(placed.placement.values()) == ["plugin", "slices", "slices", "slices"]


# -- moving ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("others", "place"), [([], {"default/p": "m"}), (["uid-other"], {})])
def test_a_pod_that_moves_gives_its_devices_back(others: list[str], place: dict[str, str]) -> None:
    status = given("dev0") | {"reservedFor": [{"name": "x", "uid": uid} for uid in ("uid-p", *others)]}
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
    assert {pod: to for found in result.removable for pod, to in found.placement.items()} == place


def test_extended_resources_hold_no_device() -> None:
    """As in the autoscaler; beside a claim of the pod's they do, since Reserve runs then."""
    world = snapshot(
        node("n"), device_class(extendedResourceName="gputest.io/dev"), devices("n", {}, {}), claim("a"), claim("b")
    )
    asking = {"gputest.io/dev": "1"}
    after = kscale.place(world, [pod("p", requests=asking)]).snapshot_after
    assert after.informers is world.informers
    result = kscale.place(world, [pod("p0", "a", requests=asking), pod("p1", "b")])
    assert list(result.placement) == ["default/p0"]
    assert sorted(result.snapshot_after.informers.resource_claims) == [
        ("default", "<extended-resources> p0"), ("default", "a"), ("default", "b"),
    ]  # fmt: skip
