"""Score plug-ins that look at resources and images: tables of upstream's tests, retyped."""

from __future__ import annotations

from itertools import pairwise

import pytest

import kscale
from unit.scheduling.score_cases import Json, asks, node, pod, scores

# -- NodeResourcesFit (least_allocated_test, most_allocated_test, requested_to_capacity_ratio_test) --------------------

BUSY = [
    pod("cpu1", asks(1000, 0), asks(2000, 0), on="n1"),
    pod("cpu2", asks(1000, 0), asks(2000, 0), on="n2"),
    pod("both1", asks(1000, 2000), asks(2000, 3000), on="n2"),
]


@pytest.mark.parametrize(
    ("strategy", "incoming", "nodes", "placed", "expected"),
    [
        ("LeastAllocated", pod("p", asks(0, 0)), [("4", "10000"), ("4", "10000")], [], [100, 100]),
        (
            "LeastAllocated",
            pod("p", asks(1000, 2000), asks(2000, 3000)),
            [("4", "10000"), ("6", "10000")],
            [],
            [37, 50],
        ),
        ("LeastAllocated", pod("p", asks(0, 0)), [("10", "20000"), ("10", "20000")], BUSY, [85, 57]),
        (
            "LeastAllocated",
            pod("p", asks(1000, 2000), asks(2000, 3000)),
            [("10", "20000"), ("10", "20000")],
            BUSY,
            [57, 30],
        ),
        ("MostAllocated", pod("p", asks(0, 0)), [("4", "10000"), ("4", "10000")], [], [0, 0]),
        ("MostAllocated", pod("p", asks(1000, 2000), asks(2000, 3000)), [("4", "10000"), ("6", "10000")], [], [62, 50]),
        ("MostAllocated", pod("p", asks(0, 0)), [("10", "20000"), ("10", "20000")], BUSY, [15, 42]),
        (
            "MostAllocated",
            pod("p", asks(1000, 2000), asks(2000, 3000)),
            [("10", "20000"), ("10", "20000")],
            BUSY,
            [42, 70],
        ),
    ],
)
def test_resources(
    strategy: str, incoming: Json, nodes: list[tuple[str, str]], placed: list[Json], expected: list[int]
) -> None:
    objects = [node(f"n{i + 1}", *amounts) for i, amounts in enumerate(nodes)]
    assert scores("NodeResourcesFit", incoming, [*objects, *placed], fit_strategy=strategy) == expected


def test_containers_without_requests_score_with_default_requests() -> None:
    """100m and 200 MiB each; what the filter counts is nothing."""
    world = [node("n1", "1", str(1 << 30)), node("n2", "1", str(1 << 30)), pod("quiet", {}, {}, on="n2")]
    assert scores("NodeResourcesFit", pod("p", {}), world) == [85, 55]
    pod_level = pod("quiet", {}, {}, on="n2", resources={"requests": {"cpu": "500m"}})
    assert scores("NodeResourcesFit", pod("p", {}), [*world[:2], pod_level]) == [85, 40]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (((0, 10), (100, 0)), [43, 28]),
        (((0, 0), (100, 10)), [57, 72]),
        (((0, 10), (40, 2), (90, 7)), [37, 52]),
    ],
)
def test_shapes(shape: tuple[tuple[int, int], ...], expected: list[int]) -> None:
    objects = [node("n1", "10", "20000"), node("n2", "10", "20000"), *BUSY]
    incoming = pod("p", asks(1000, 2000), asks(2000, 7000))
    del objects[2]
    options = {"fit_strategy": "RequestedToCapacityRatio", "fit_shape": shape}
    result = scores("NodeResourcesFit", incoming, objects, **options)
    assert result == [straight(shape, 30, 45), straight(shape, 90, 70)]


def straight(shape: tuple[tuple[int, int], ...], cpu: int, memory: int) -> int:
    """The mean of what a shape gives two resources, in tenths; one with nothing does not count."""

    def at(x: int) -> int:
        for (x0, y0), (x1, y1) in pairwise(shape):
            if x <= x1:
                return 10 * y0 + int(10 * (y1 - y0) * (x - x0) / (x1 - x0))
        return 10 * shape[-1][1]

    result = [score for score in (at(cpu), at(memory)) if score > 0]
    return int(sum(result) / len(result) + 0.5) if result else 0


# -- NodeResourcesBalancedAllocation (balanced_allocation_test of 1.37: how much better it gets) -----------------------


@pytest.mark.parametrize(
    ("incoming", "nodes", "placed", "expected"),
    [
        (pod("p", asks(0, 0)), [("4", "10000"), ("4", "10000")], [], [0, 0]),
        (pod("p", asks(1000, 2000), asks(2000, 3000)), [("4", "10000"), ("6", "10000")], [], [68, 75]),
        (pod("p", asks(1000, 2000), asks(2000, 3000)), [("10", "20000"), ("10", "50000")], BUSY, [73, 70]),
    ],
)
def test_balance(incoming: Json, nodes: list[tuple[str, str]], placed: list[Json], expected: list[int]) -> None:
    objects = [node(f"n{i + 1}", *amounts) for i, amounts in enumerate(nodes)]
    assert scores("NodeResourcesBalancedAllocation", incoming, [*objects, *placed]) == expected


# -- ImageLocality (image_locality_test) -------------------------------------------------------------------------------

MIB = 1 << 20


def image_node(name: str, *mebibytes: int) -> Json:
    """A node with images of so many MiB, which are named after it."""
    images = [
        {"names": [f"registry.example.com/{n}:latest", f"registry.example.com/{n}:v1"], "sizeBytes": n * MIB}
        for n in mebibytes
    ]
    result = node(name)
    result["status"]["images"] = images
    return result


def runs(*images: int, first: tuple[int, ...] = (), mounts: tuple[int, ...] = ()) -> Json:
    containers = [{"name": f"c{n}", "image": f"registry.example.com/{n}"} for n in images]
    before = [{"name": f"i{n}", "image": f"registry.example.com/{n}"} for n in first]
    volumes = [{"name": f"v{n}", "image": {"reference": f"registry.example.com/{n}"}} for n in mounts]
    return pod("p", containers=containers, initContainers=before, volumes=volumes)


@pytest.mark.parametrize(
    ("incoming", "nodes", "expected"),
    [
        (runs(40, 250), [(40, 300, 2000), (250, 10)], [0, 5]),
        (runs(40, 300), [(40, 300, 2000), (250, 10)], [7, 0]),
        (runs(10, 4000), [(4000, 30), (250, 10)], [100, 0]),
        (runs(10, 4000), [(4000, 30), (250, 10), ()], [66, 0, 0]),
        (runs(300, 600, 900), [(600, 40, 900), (300, 600, 900), ()], [32, 36, 0]),
        (runs(30, 40), [(20, 30, 40), (4000, 30)], [1, 0]),
        (runs(30, mounts=(300,)), [(300, 600, 900), (4000, 30)], [6, 0]),
        (runs(30, 300), [(300, 600, 900), (4000, 30)], [6, 0]),
        (runs(30, first=(300,)), [(40, 300, 2000), (20, 30, 40)], [6, 0]),
    ],
)
def test_images(incoming: Json, nodes: list[tuple[int, ...]], expected: list[int]) -> None:
    assert scores("ImageLocality", incoming, [image_node(f"n{i}", *each) for i, each in enumerate(nodes)]) == expected


def test_names_of_images() -> None:
    """The tag that is left out is ``latest``; the port of a registry is none. Other names are other images."""
    has = node("has")
    names = ["registry:5000/big:latest", "docker.io/library/big:latest"]
    has["status"]["images"] = [{"names": names, "sizeBytes": 5000 * MIB}]

    def score(image: str) -> int:
        return scores("ImageLocality", pod("p", containers=[{"name": "c", "image": image}]), [has])[0]

    assert [score(each) for each in ("registry:5000/big", "registry:5000/big:latest")] == [100, 100]
    assert [score(each) for each in ("registry:5000/big:v1", "big", "")] == [0, 0, 0]


def test_replicas_of_a_controller_may_run_different_images() -> None:
    """As while a StatefulSet is updated."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    pods = [runs(900), runs(600)]
    for i, each in enumerate(pods):
        each["metadata"] |= {"name": f"s-{i}", "uid": f"s-{i}", "ownerReferences": [owner]}
    snapshot = kscale.Cluster([image_node("a", 600), image_node("b", 900), *pods]).snapshot()
    result = kscale.place(snapshot, scores=kscale.ScoreOptions(weights={"ImageLocality": 1}))
    assert result.placed == {"default/s-0": "b", "default/s-1": "a"}
