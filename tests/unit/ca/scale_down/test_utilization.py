"""How full a node is, and whether it is worth simulating: upstream's tables."""

from __future__ import annotations

import math
from typing import Any

import pytest

from builders import GPU, GPU_LABEL, N0, at, container, group_options, node, owner, pod
from kscale import ca
from kscale.ca.gpu import GpuConfig, get_gpu_config
from kscale.ca.scale_down.eligibility import check_eligibility
from kscale.ca.scale_down.utilization import (
    Utilization,
    calculate_highest_pool_utilization,
    calculate_pool_utilizations,
    calculate_utilization,
)
from kscale.effects import SECOND
from kscale.objects.api.core import Node, Pod, PodSpec, Taint
from kscale.objects.api.resource import ResourceClaim, ResourceSlice
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.quantity import Quantity

_NOW = N0
_MIRROR = {"kubernetes.io/config.mirror": "x"}
_DAEMON = {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}

_A = pod("a", 100, 200_000)
_B = pod("b")
_D3 = pod("d3", 100, 200_000, owner_references=owner("DaemonSet"))
_D4 = pod("d4", 100, 200_000, owner_references=owner("CustomDaemonSet", "ds", "crd/v1"), annotations=_DAEMON)
_M = pod("m", 100, 200_000, annotations=_MIRROR)
_T = pod("t", 100, 200_000, deletion_timestamp=at(minutes=-10))


def _with_init(*init: Any) -> Pod:
    created = pod("i", 100, 200_000)
    created.spec = PodSpec(containers=created.spec.containers, init_containers=list(init))
    return created


_I = _with_init(container(50, 100_000, restart_policy="Always"), container(5, 100))
_L = _with_init(container(50_000, 100_000_000))


def _node(**allocatable: str) -> Node:
    created = node("n", 2000, 2_000_000)
    assert created.status.allocatable is not None
    created.status.allocatable.update({name: Quantity(text) for name, text in allocatable.items()})
    return created


def _use(
    pods: list[Pod], node_: Node | None = None, *, ds: bool = False, mirror: bool = False, **more: Any
) -> Utilization:
    return calculate_utilization(
        node_ or _node(), pods, now_ns=_NOW, skip_daemon_set_pods=ds, skip_mirror_pods=mirror, **more
    )


@pytest.mark.parametrize(
    ("pods", "ds", "mirror", "expected", "cpu"),
    [
        ([_A, _A, _B], False, False, 0.2, 0.1),
        ([_A, _I, _L], False, False, 50.25, 25.125),
        ([_A, _A, _B, _D3, _D4], True, False, 0.25, 200 / 1800),
        ([_A, _B, _D3], False, False, 0.2, 0.1),
        ([_A, _A, _B, _T], False, False, 0.2, 0.1),
        ([_A, _A, _B, _M], False, True, 2 / 9, 200 / 1900),
        ([_A, _B, _M], False, False, 0.2, 0.1),
        ([_A, _M, _D3], True, True, 1 / 8, 100 / 1800),
    ],
)
def test_upstream_table(pods: list[Pod], ds: bool, mirror: bool, expected: float, cpu: float) -> None:
    result = _use(pods, ds=ds, mirror=mirror)
    assert (result.utilization, result.resource_name, result.cpu) == (expected, "memory", cpu)


def test_resources_that_are_not_there() -> None:
    without = _node()
    assert without.status.allocatable is not None
    del without.status.allocatable["memory"]
    with pytest.raises(ca.AutoscalerError, match="failed to get memory from n"):
        _use([_A], without)
    with pytest.raises(ca.AutoscalerError, match="cpu is 0 at n"):
        _use([_A], _node(cpu="0"))


def test_skipped_pods_may_take_all_of_the_node() -> None:
    daemon = pod("w", 2000, 2_000_000, owner_references=owner("DaemonSet"))
    result = _use([daemon], ds=True)
    assert math.isnan(result.utilization)
    assert _use([daemon, _A], ds=True).utilization == math.inf
    assert _use([daemon, daemon, _A], ds=True).utilization < 0


def test_gpus() -> None:
    labelled = _node(**{GPU: "1"})
    labelled.metadata.labels = {GPU_LABEL: GPU}
    using = pod("g")
    using.spec.containers[0].resources.requests = {GPU: Quantity("1")}
    config = get_gpu_config(GPU_LABEL, labelled)
    assert config == GpuConfig(label=GPU_LABEL, type=GPU, resource_name=GPU)
    assert _use([_A, _A, using], labelled, gpu=config) == Utilization(utilization=1.0, resource_name=GPU)
    empty = _node()
    empty.metadata.labels = {GPU_LABEL: GPU}
    assert _use([_A, _A], empty, gpu=get_gpu_config(GPU_LABEL, empty)).utilization == 0.0
    assert get_gpu_config(GPU_LABEL, _node()) is None


# -- dynamic resource allocation -------------------------------------------------------------------------------


def _slice(
    driver: str, pool: str, devices: list[Any], *, count: int = 1, generation: int = 0, **spec: Any
) -> ResourceSlice:
    named = [item if isinstance(item, dict) else {"name": item} for item in devices]
    described = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return from_dict(
        {"metadata": {"name": "s"}, "spec": {"driver": driver, "pool": described, "devices": named, **spec}},
        ResourceSlice,
    )


def _claim(*devices: tuple[str, str, str], admin: bool = False) -> ResourceClaim:
    results = [{"driver": d, "pool": p, "device": name, "adminAccess": admin} for d, p, name in devices]
    return from_dict(
        {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": results}}}}, ResourceClaim
    )


_FOO, _BAR = ("driver.foo.com", "node-pool1"), ("driver.bar.com", "node-pool2")
_DEVICES = [f"dev{i}" for i in range(1, 6)]
_SLICES = [_slice(*_FOO, _DEVICES), _slice(*_BAR, _DEVICES)]
_C1 = _claim(*[(*_FOO, f"dev{i}") for i in (1, 2, 3)])
_C2 = _claim((*_BAR, "dev1"))
_C3 = _claim((*_FOO, "dev4"), (*_BAR, "dev2"), (*_BAR, "dev3"))


@pytest.mark.parametrize(
    ("slices", "claims", "gpu", "expected", "name"),
    [
        ([], [], None, 0.5, "cpu"),
        (_SLICES[:1], [], None, 0.0, "driver.foo.com/node-pool1"),
        (_SLICES, [_C3], None, 0.4, "driver.bar.com/node-pool2"),
        (_SLICES, [_C1, _C2, _C3], None, 0.8, "driver.foo.com/node-pool1"),
        (_SLICES, [_C1, _C2, _C3], GpuConfig(label="l", type="t", resource_name=GPU), 0.0, GPU),
        (
            _SLICES,
            [_C1, _C2, _C3],
            GpuConfig(label="l", type="t", resource_name="", dra_driver="driver.foo.com"),
            0.8,
            "driver.foo.com/node-pool1",
        ),
    ],
)
def test_devices(
    slices: list[ResourceSlice], claims: list[ResourceClaim], gpu: GpuConfig | None, expected: float, name: str
) -> None:
    half = node("n", 1000, 1000)
    result = _use([pod("1", 250), pod("2", 250)], half, dra_slices=slices, dra_claims=claims, gpu=gpu)
    assert (result.utilization, result.resource_name) == (expected, name)


def test_incomplete_pools() -> None:
    with pytest.raises(ca.AutoscalerError, match="found only 1 slices"):
        _use([], dra_slices=[_slice("d", "p", ["a"], count=999)])
    old = _slice("d", "p", ["a"], count=999)
    new = _slice("d", "p", ["a"], generation=1)
    assert calculate_highest_pool_utilization([old, new], []) == ("d/p", 0.0)


def _numbered(count: int) -> list[str]:
    return [f"d{i}" for i in range(count)]


def _claim_pool(pool: str, count: int, *, start: int = 0, admin: bool = False) -> ResourceClaim:
    return _claim(*[("d", pool, f"d{i}") for i in range(start, start + count)], admin=admin)


@pytest.mark.parametrize("claims", [[], [_C3], [_C1, _C2, _C3]], ids=len)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_unread_device_utilization_is_ignored(claims: list[ResourceClaim], count: int) -> None:
    half = node("n", 1000, 1000, ready=True)
    result = check_eligibility(
        half,
        [pod("1", 250), pod("2", 250)],
        groups=Groups([NodeGroup(id="g", nodes=["n"])]),
        options=ca.AutoscalingOptions(enable_dynamic_resource_allocation=False),
        now_ns=_NOW,
        dra_slices=_SLICES[:count],
        dra_claims=claims,
    ).utilization
    assert result is not None
    assert (result.utilization, result.resource_name) == (0.5, "cpu")


def test_one_incomplete_pool_among_others() -> None:
    with pytest.raises(ca.AutoscalerError, match="found only 1 slices"):
        _use([], dra_slices=[*_SLICES, _slice("d", "p", ["a"], count=999)], dra_claims=[_C1, _C2, _C3])
    old, new = _slice("d", "p", ["a"]), _slice("d", "p", ["a"], generation=1, count=2)
    with pytest.raises(ca.AutoscalerError, match="newest generation: 1, slice count: 2"):
        calculate_highest_pool_utilization([old, new], [])


def test_pools() -> None:
    slices = [_slice("d", name, _numbered(size)) for name, size in (("a", 10), ("b", 20), ("c", 8))]
    assert calculate_highest_pool_utilization(
        slices, [_claim_pool("a", 6), _claim_pool("b", 18), _claim_pool("c", 2)]
    ) == ("d/b", 0.9)
    generations = [_slice("d", "a", _numbered(10 * (i + 1)), generation=i) for i in range(3)]
    assert calculate_highest_pool_utilization(generations, [_claim_pool("a", 6)]) == ("d/a", 0.2)
    ten = [_slice("d", "a", _numbered(10))]
    assert calculate_highest_pool_utilization(ten, [_claim_pool("a", 6)]) == ("d/a", 0.6)
    assert calculate_highest_pool_utilization(ten, [_claim_pool("a", 6, admin=True)]) == ("d/a", 0.0)
    assert calculate_highest_pool_utilization(ten, [_claim_pool("a", 6, admin=True), _claim_pool("a", 4)]) == (
        "d/a",
        0.4,
    )
    normal = _claim_pool("a", 6, start=4)
    assert calculate_highest_pool_utilization(ten, [_claim_pool("a", 4, admin=True), normal]) == ("d/a", 0.6)
    assert calculate_highest_pool_utilization(ten, [_claim_pool("a", 6, admin=True), normal]) == ("d/a", 0.6)
    mixed = _claim_pool("a", 6)
    assert mixed.status.allocation is not None
    for result in mixed.status.allocation.devices.results[:2]:
        result.admin_access = True
    assert calculate_highest_pool_utilization(ten, [mixed]) == ("d/a", 0.4)
    assert calculate_highest_pool_utilization([], []) == ("", 0.0)
    with pytest.raises(ca.AutoscalerError, match="claim c not allocated"):
        calculate_pool_utilizations(ten, [from_dict({"metadata": {"name": "c"}}, ResourceClaim)])


def _part(name: str, counter_set: str, **counters: int) -> dict[str, Any]:
    amounts = {counter: {"value": str(amount)} for counter, amount in counters.items()}
    return {"name": name, "consumesCounters": [{"counterSet": counter_set, "counters": amounts}]}


def _sets(**sets: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "counters": {counter: {"value": str(amount)} for counter, amount in counters.items()}}
        for name, counters in sets.items()
    ]


@pytest.mark.parametrize(
    ("sets", "devices", "allocated", "expected"),
    [
        ({"g": {"m": 4}}, [_part(f"d{i}", "g", m=1) for i in range(4)], 2, 0.5),
        ({"g": {"m": 4}}, [_part("d0", "g", m=4), _part("d1", "g", m=2)], 1, 1.0),
        ({"g": {"m": 4}, "h": {"m": 4}}, [_part("d0", "g", m=2), _part("d1", "h", m=2)], 1, 0.25),
        ({"g": {"m": 10, "cores": 8}}, [_part("d0", "g", m=5, cores=6)], 1, 0.75),
        (
            {"g": {"m": 100, "cores": 32}, "h": {"m": 1}, "i": {"m": 1}, "j": {"m": 1}},
            [_part("d0", "g", m=75, cores=16), _part("d1", "h", m=1), _part("d2", "i", m=1), _part("d3", "j", m=1)],
            3,
            0.6875,
        ),
        ({"g": {"m": 4}}, [{"name": "d0"}], 1, 0.0),
        ({"g": {"m": 0}}, [_part("d0", "g", m=1)], 1, 0.0),
    ],
)
def test_partitionable_devices(
    sets: dict[str, dict[str, int]], devices: list[dict[str, Any]], allocated: int, expected: float
) -> None:
    pool = _slice("d", "p", devices, sharedCounters=_sets(**sets))
    assert calculate_highest_pool_utilization([pool], [_claim_pool("p", allocated)]) == ("d/p", expected)


def test_counters_may_be_fractions() -> None:
    counters = [{"name": "g", "counters": {"m": {"value": "400m"}}}]
    part = {"name": "d0", "consumesCounters": [{"counterSet": "g", "counters": {"m": {"value": "100m"}}}]}
    pool = _slice("d", "p", [part], sharedCounters=counters)
    assert calculate_highest_pool_utilization([pool], [_claim_pool("p", 1)]) == ("d/p", 0.25)


def test_a_counter_set_is_that_of_its_slice() -> None:
    slices = [
        _slice("d", "p", [_part("d0", "g", m=4)], count=2, sharedCounters=_sets(g={"m": 4})),
        _slice("d", "p", [], count=2, sharedCounters=_sets(g={"m": 4})),
    ]
    assert calculate_highest_pool_utilization(slices, [_claim_pool("p", 1)]) == ("d/p", 2.0)


def test_counter_sets_are_summed_in_the_order_of_the_slices() -> None:
    """Floating point is not associative, and a threshold may lie in between."""
    shares = {"b": 1, "c": 4, "a": 1}
    devices = [_part(f"d{i}", name, m=share) for i, (name, share) in enumerate(shares.items())]
    sets = {name: {"m": 10} for name in shares}
    pool = _slice("d", "p", devices, sharedCounters=_sets(**sets))
    assert calculate_highest_pool_utilization([pool], [_claim_pool("p", 3)]) == ("d/p", 0.19999999999999998), (
        "by name it is 0.2"
    )


def _cut(counter_set: str) -> list[dict[str, Any]]:
    """A device whole, in two halves, and a quarter of it."""
    return [_part(f"{counter_set}-{i}", counter_set, m=amount) for i, amount in enumerate((4, 2, 2, 1))]


@pytest.mark.parametrize(
    ("devices", "pieces"),
    [
        ([{"name": "g-0"}], 0),
        ([{"name": "g-0", "consumesCounters": []}], 0),
        (_cut("g"), 1),
        ([*_cut("g"), *_cut("h")], 2),
        ([*_cut("g"), *_cut("h"), *_cut("i")], 3),
    ],
    ids=["no-counters", "nothing-consumed", "one", "two", "three"],
)
def test_counter_sets_are_pieces_of_hardware(devices: list[dict[str, Any]], pieces: int) -> None:
    """Of so many pieces one is taken whole."""
    pool = _slice("d", "p", devices, sharedCounters=_sets(g={"m": 4}, h={"m": 4}, i={"m": 4}))
    result = calculate_highest_pool_utilization([pool], [_claim(("d", "p", "g-0"))])
    assert result == ("d/p", 1 / pieces if pieces else 0.0)


# -- eligibility -----------------------------------------------------------------------------------------------


def _judge(node_: Node | None, pods: list[Pod] | None = None, **more: Any) -> str | None:
    name = node_.metadata.name if node_ is not None else ""
    groups = more.pop("groups", Groups([NodeGroup(id="ng1", min_size=1, max_size=10, nodes=[name])]))
    options = ca.AutoscalingOptions(**more.pop("options", {}))
    return check_eligibility(node_, pods or [], groups=groups, options=options, now_ns=_NOW, **more).reason


def _regular(*, ready: bool = True, **metadata: Any) -> Node:
    return node("regular", 1000, 10, ready=ready, **metadata)


_DS = pod("ds", 500, 0, owner_references=owner("DaemonSet"))
_DOOMED = _regular()
_DOOMED.spec.taints = [Taint(key="ToBeDeletedByClusterAutoscaler", value=str(N0 // SECOND - 30))]
_LONG_DOOMED = _regular()
_LONG_DOOMED.spec.taints = [Taint(key="ToBeDeletedByClusterAutoscaler", value=str(N0 // SECOND - 300))]
_DISABLED = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
_HUGE_POOL = [_slice("d", "p", ["a"], count=999)]


@pytest.mark.parametrize(
    ("node_", "pods", "more", "reason"),
    [
        (_regular(), [], {}, None),
        (_DOOMED, [], {}, "CurrentlyBeingDeleted"),
        (_LONG_DOOMED, [], {}, None),
        (_regular(annotations=_DISABLED), [], {}, "ScaleDownDisabledAnnotation"),
        (_regular(), [pod("p", 600, 0)], {}, "NotUnderutilized"),
        (_regular(), [pod("p", 500, 0)], {}, None),
        (node("zero", 0, 0, ready=True), [pod("p", 100, 0)], {}, "UnexpectedError"),
        (_regular(ready=False), [], {}, None),
        (_regular(ready=False), [], {"options": {"scale_down_unready_enabled": False}}, "ScaleDownUnreadyDisabled"),
        (
            _regular(),
            [pod("p", 100, 0)],
            {"dra_slices": _HUGE_POOL, "options": {"enable_dynamic_resource_allocation": False}},
            None,
        ),
        (_regular(), [pod("p", 100, 0)], {"dra_slices": _HUGE_POOL}, "UnexpectedError"),
        (_regular(), [pod("p", 100, 0), _DS], {"options": {"ignore_daemonsets_utilization": True}}, None),
        (_regular(), [pod("p", 100, 0), _DS], {}, "NotUnderutilized"),
        (
            _regular(),
            [_DS],
            {"options": {"ignore_daemonsets_utilization": True, "scale_down_utilization_threshold": 0.0}},
            None,
        ),
        (None, [], {}, "UnexpectedError"),
        (_regular(), [], {"recently_unremovable": True}, "RecentlyUnremovable"),
        (_regular(), [], {"groups": Groups([NodeGroup(id="g")])}, "NotAutoscaled"),
        (_regular(), [], {"groups": Groups([], {"regular": "down"})}, "UnexpectedError"),
        (
            _regular(),
            [],
            {"groups": Groups([NodeGroup(id="g", nodes=["regular"], options_error="down")])},
            "UnexpectedError",
        ),
        (
            _regular(),
            [],
            {"groups": Groups([NodeGroup(id="g", nodes=["regular"], options_error="not implemented")])},
            None,
        ),
    ],
)
def test_eligibility(node_: Node | None, pods: list[Pod], more: dict[str, Any], reason: str | None) -> None:
    assert _judge(node_, pods, **more) == reason


@pytest.mark.parametrize(
    ("node_", "pods", "more", "reason"),
    [
        (_regular(), [], {}, None),
        (_DOOMED, [], {}, "CurrentlyBeingDeleted"),
        (_regular(annotations=_DISABLED), [], {}, "ScaleDownDisabledAnnotation"),
        (_regular(), [pod("p", 600, 0)], {}, "NotUnderutilized"),
        (_regular(), [pod("p", 100, 0)], {}, None),
        (node("zero", 0, 0, ready=True), [pod("p", 100, 0)], {}, "UnexpectedError"),
        (_regular(ready=False), [], {}, None),
        (_regular(ready=False), [], {"scale_down_unready_enabled": False}, "ScaleDownUnreadyDisabled"),
        (_regular(), [pod("p", 100, 0)], {"enable_dynamic_resource_allocation": False, "slices": _HUGE_POOL}, None),
        (_regular(), [pod("p", 100, 0)], {"slices": _HUGE_POOL}, "UnexpectedError"),
    ],
)
@pytest.mark.parametrize("ignore", [False, True])
def test_daemon_sets_only_matter_where_they_are(
    node_: Node, pods: list[Pod], more: dict[str, Any], reason: str | None, ignore: bool
) -> None:
    """Upstream's rows 1 to 10 say the same whether DaemonSet pods are ignored or not."""
    options = {"ignore_daemonsets_utilization": ignore, **more}
    slices = options.pop("slices", ())
    assert _judge(node_, pods, options=options, dra_slices=slices) == reason


def test_options_of_a_group_replace_all_defaults() -> None:
    own = group_options(ignore_daemon_sets_utilization=True)
    groups = Groups([NodeGroup(id="g", nodes=["regular"], options=own)])
    assert _judge(_regular(), [pod("p", 100, 0)], groups=groups) == "NotUnderutilized"
