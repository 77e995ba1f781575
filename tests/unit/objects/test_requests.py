"""Effective pod requests: upstream's table (spec 8.6, PR-1 to PR-23) and resource names (4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kscale import Quantity
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.pod_resources import demand, is_extended, is_scalar, occupancy, to_integers

INFEASIBLE = [{"type": "PodResizePending", "reason": "Infeasible", "status": "False"}]


def requests(cpu: Any = None, memory: Any = None) -> dict[str, Any]:
    return {name: str(value) for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}


def container(name: str, cpu: Any = None, memory: Any = None, **extra: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests(cpu, memory)}, **extra}


def sidecar(name: str, cpu: Any) -> dict[str, Any]:
    return container(name, cpu, restartPolicy="Always")


def status(name: str, cpu: Any = None, allocated: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = {"name": name}
    if cpu is not None:
        result["resources"] = {"requests": requests(cpu)}
    if allocated is not None:
        result["allocatedResources"] = requests(allocated)
    return result


def pod(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **parts: Any) -> Pod:
    state = parts.pop("status", {})
    return from_dict({"spec": {"containers": containers, "initContainers": init, **parts}, "status": state}, Pod)


def c(cpu: Any, memory: Any = None) -> dict[str, Any]:
    return container("c", cpu, memory)


def placed(cpu: Any, *statuses: dict[str, Any], infeasible: bool = False, **more: Any) -> Pod:
    state = {"containerStatuses": list(statuses), "conditions": INFEASIBLE if infeasible else [], **more}
    return pod(c(cpu), status=state)


GROWS = [status("a", "500m"), status("b", "100m")]
PLAIN = [
    ("PR-1", pod(c(1), init=[c(4)]), {"cpu": "4"}),
    ("PR-2", pod(c(2), c(3), init=[c(2)]), {"cpu": "5"}),
    ("PR-3", pod(c(2), c(3), init=[c(2)], overhead=requests(1, "1Gi")), {"cpu": "6", "memory": "1Gi"}),
    ("PR-7", pod(c(1), init=[sidecar("s", 1)]), {"cpu": "2"}),
    ("PR-8", pod(c(1), init=[c(5), sidecar("s", 1), sidecar("t", 2), sidecar("u", 3)]), {"cpu": "7"}),
    ("PR-9", pod(c(1), init=[c(5), sidecar("s", 1), sidecar("t", 2), c(5), sidecar("u", 3)]), {"cpu": "8"}),
    ("PR-10", pod(c(100), init=[sidecar("s", 10), c(200)]), {"cpu": "210"}),
    ("PR-11", pod({"name": "c", "resources": {"limits": {"cpu": "1"}}}), {}),
    ("PR-12", pod(c(None), overhead=requests(5, 5)), {"cpu": "5", "memory": "5"}),
    ("PR-13", pod(c(1, 10), overhead=requests(5, 5)), {"cpu": "6", "memory": "15"}),
    ("PR-14", pod(c(1, 10), init=[c(40, 120)]), {"cpu": "40", "memory": "120"}),
    ("PR-15", pod(c(5), resources={"requests": requests(3)}, overhead=requests(1)), {"cpu": "4"}),
    ("PR-16", pod(c(1), resources={"requests": requests(None, 10)}), {"cpu": "1", "memory": "10"}),
    ("PR-18", placed(1, status("c", 3, 2)), {"cpu": "1"}),
    ("unsupported", pod(c(1), resources={"requests": {"example.com/x": "1"}}), {"cpu": "1"}),
]
PLACED = [
    *((name, pod_, want) for name, pod_, want in PLAIN if name != "PR-18"),
    ("PR-4", placed(4, status("c", 2), infeasible=True), {"cpu": "2"}),
    ("PR-5", placed(4, status("c", 2)), {"cpu": "4"}),
    ("PR-6", placed(4, infeasible=True), {}),
    ("PR-17", placed(1, status("c", 3, 2)), {"cpu": "3"}),
    (
        "PR-19",
        pod(c(1), init=[container("i", 2)], status={"initContainerStatuses": [status("i", 4)]}),
        {"cpu": "4"},
    ),
    (
        "PR-20",
        pod(container("a", "100m"), container("b", "500m"), status={"containerStatuses": GROWS}),
        {"cpu": "600m"},
    ),
    (
        "PR-21",
        placed(
            "500m",
            status("c", "100m", "100m"),
            resources={"requests": requests("700m")},
            allocatedResources=requests("300m"),
        ),
        {"cpu": "700m"},
    ),
    (
        "PR-22",
        pod(c("500m"), resources={"requests": requests("400m")}, status={"allocatedResources": requests("750m")}),
        {"cpu": "400m"},
    ),
    (
        "PR-23",
        pod(
            c("100m"),
            resources={"requests": requests("800m")},
            status={
                "conditions": INFEASIBLE,
                "resources": {"requests": requests("300m")},
                "allocatedResources": requests("350m"),
            },
        ),
        {"cpu": "350m"},
    ),
]


def quantities(want: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in want.items()}


@pytest.mark.parametrize(("name", "pod_", "want"), PLAIN, ids=[row[0] for row in PLAIN])
def test_demand(name: str, pod_: Pod, want: dict[str, str]) -> None:
    assert demand(pod_) == quantities(want)


@pytest.mark.parametrize(("name", "pod_", "want"), PLACED, ids=[row[0] for row in PLACED])
def test_occupancy(name: str, pod_: Pod, want: dict[str, str]) -> None:
    assert occupancy(pod_) == quantities(want)


def test_sums_leave_the_pod_alone() -> None:
    summed = pod(c(1), c(2), init=[sidecar("s", 1)], overhead=requests(1))
    before = repr(summed)
    assert demand(summed) == occupancy(summed) == quantities({"cpu": "5"})
    assert repr(summed) == before


@pytest.mark.parametrize(
    ("regular", "init", "integer"),
    [
        ("1Ei", "10E", 10**19 - 2**64),  # compared with the big form, the greater is read as one: its low 64 bits
        ("10E", "1Ei", 0),  # the greater was there before: the small form reads 0 beyond 64 bits
        ("1E", "10E", 0),  # both are small
        ("1Ei", "16Ei", 2**63 - 1),
    ],
)
def test_the_greater_of_two_amounts_keeps_upstreams_form(regular: str, init: str, integer: int) -> None:
    initial = pod(c(None, regular), init=[c(None, init)])
    assert to_integers(demand(initial)) == {"memory": integer}
    resized = pod(
        c(None, regular), status={"containerStatuses": [{"name": "c", "allocatedResources": {"memory": init}}]}
    )
    assert to_integers(occupancy(resized)) == {"memory": integer}


@pytest.mark.parametrize(
    ("in_effect", "allocated", "integer"),
    [(".1Gi", "10E", 10**19 - 2**64), ("10E", ".1Gi", 0), ("1Gi", "10E", 0)],
)
def test_effective_requests_are_compared_before_allocated_ones(in_effect: str, allocated: str, integer: int) -> None:
    resources = {"requests": {"memory": in_effect}}
    amounts = {"resources": resources, "allocatedResources": {"memory": allocated}}
    for status in (amounts, {"containerStatuses": [{"name": "c", **amounts}]}):
        assert to_integers(occupancy(pod(c(None, "1"), status=status)))["memory"] == integer


def test_integers_round_the_sum_once() -> None:
    two = pod(c("100.5m"), c("100.5m"))
    assert to_integers(demand(two)) == {"cpu": 201}
    assert to_integers(demand(pod(c("100.5m")))) == {"cpu": 101}
    minus = {"cpu": Quantity("1Ei"), "memory": Quantity("-1"), "storage": Quantity("1"), "pods": Quantity("3")}
    assert to_integers(minus) == {"cpu": -(2**63), "memory": -1}
    assert to_integers(minus, floor=True) == {"cpu": 0, "memory": 0}


@pytest.mark.parametrize(
    ("name", "scalar", "extended"),
    [("example.com/gpu", True, True), ("hugepages-2Mi", True, False), ("kubernetes.io/x", True, False),
     ("sub.kubernetes.io/x", True, False), ("attachable-volumes-aws", True, False), ("storage", False, False),
     ("nvidia-gpu", False, False), ("requests.foo.com/x", False, False), ("Foo.com/x", False, False),
     ("foo.com/" + "x" * 64, False, False)],
)  # fmt: skip
def test_resource_names(name: str, scalar: bool, extended: bool) -> None:
    assert (is_scalar(name), is_extended(name)) == (scalar, extended)
