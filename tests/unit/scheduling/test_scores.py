"""Score plug-ins: tables of upstream's tests, retyped, and what placing by scores promises."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import kscale
from kscale.errors import NativeError
from kscale.objects.selectors import Requirement
from kscale.scheduling.place import PlaceState

Json = dict[str, Any]
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", memory: str = "10000", *, labels: Json | None = None, **spec: Any) -> Json:
    metadata = {"name": name, "labels": {HOSTNAME: name} | (labels or {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(name: str = "p", *asked: Json, on: str = "", labels: Json | None = None, **spec: Any) -> Json:
    containers = [{"name": f"c{i}", "resources": {"requests": each}} for i, each in enumerate(asked or ({},))]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}}
    spec = {"containers": containers, **({"nodeName": on} if on else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def asks(cpu: int, memory: int) -> Json:
    return {"cpu": f"{cpu}m", "memory": str(memory)}


def scores(plugin: str, incoming: Json, objects: list[Json], **options: Any) -> list[int]:
    given = kscale.ScoreOptions(weights={plugin: 1}, **options)
    found = kscale.node_scores(kscale.Cluster(objects).snapshot(), incoming, scores=given)
    assert found.total == found.by_plugin[plugin]
    return found.total


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


def test_containers_that_do_not_say_what_they_ask_for_count_as_asking_for_the_usual() -> None:
    """100m and 200 MiB each; what the filter counts is nothing."""
    world = [node("n1", "1", str(1 << 30)), node("n2", "1", str(1 << 30)), pod("quiet", {}, {}, on="n2")]
    assert scores("NodeResourcesFit", pod("p", {}), world) == [85, 55]
    whole = pod("quiet", {}, {}, on="n2", resources={"requests": {"cpu": "500m"}})
    assert scores("NodeResourcesFit", pod("p", {}), [*world[:2], whole]) == [85, 40]


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
    found = scores("NodeResourcesFit", incoming, objects, **options)
    assert found == [straight(shape, 30, 45), straight(shape, 90, 70)]


def straight(shape: tuple[tuple[int, int], ...], cpu: int, memory: int) -> int:
    """The mean of what a shape gives two resources, in tenths; one with nothing does not count."""

    def at(x: int) -> int:
        for (x0, y0), (x1, y1) in pairwise(shape):
            if x <= x1:
                return 10 * y0 + int(10 * (y1 - y0) * (x - x0) / (x1 - x0))
        return 10 * shape[-1][1]

    found = [score for score in (at(cpu), at(memory)) if score > 0]
    return int(sum(found) / len(found) + 0.5) if found else 0


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
    found = node(name)
    found["status"]["images"] = images
    return found


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


# -- VolumeBinding (volume_binding_test, scorer_test) ------------------------------------------------------------------


def claim(name: str, size: str, of: str = "tells", **spec: Any) -> Json:
    spec = {"storageClassName": of, "accessModes": [], "resources": {"requests": {"storage": size}}, **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def room(on: str, size: str, of: str = "tells", **more: str) -> Json:
    """What a driver says that it has left on a node."""
    metadata = {"name": f"{of}-{on}", "namespace": "default"}
    where = {"matchLabels": {HOSTNAME: on}}
    found = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": metadata}
    return {**found, "storageClassName": of, "capacity": size, "nodeTopology": where, **more}


def local(on: str, size: str) -> Json:
    """A volume that is there already."""
    place = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}
    spec = {"storageClassName": "local", "capacity": {"storage": size}, "accessModes": []}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [place]}}
    found = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"local-{on}"}, "spec": spec}
    return {**found, "status": {"phase": "Available"}}


def mounts_claims(*names: str) -> Json:
    return pod("p", volumes=[{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names])


def stored(kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}


PROVISIONERS = {"tells": "csi", "too": "csi", "quiet": "other", "local": "kubernetes.io/no-provisioner"}
STORAGE = [
    stored("CSIDriver", "csi", spec={"storageCapacity": True}),
    *(
        stored("StorageClass", name, provisioner=by, volumeBindingMode="WaitForFirstConsumer")
        for name, by in PROVISIONERS.items()
    ),
]
ABC = [node("a"), node("b"), node("c")]
RISING = ((0, 0), (100, 10))
DIFFERENT = [room("a", "100Gi"), room("b", "20Gi"), room("c", "10Gi")]


@pytest.mark.parametrize(
    ("claims", "there", "options", "expected"),
    [
        ([claim("x", "10Gi")], [room("a", "100Gi"), room("b", "50Gi"), room("c", "10Gi")], {}, [90, 80, 0]),
        ([claim("x", "10Gi")], DIFFERENT, {"volume_shape": RISING}, [10, 50, 100]),
        ([claim("x", "10Gi")], DIFFERENT, {}, [90, 50, 0]),
        # With a volume that is there, what drivers say does not count.
        (
            [claim("x", "10Gi"), claim("y", "50Gi", "local")],
            [*DIFFERENT, local("a", "100Gi"), local("b", "50Gi"), local("c", "200Gi")],
            {},
            [50, 0, 75],
        ),
        # Two claims of a class are for one room, two classes have one each.
        ([claim("x", "50Gi"), claim("y", "50Gi")], [room("a", "100Gi"), room("b", "200Gi"), room("c", "75Gi")], {},
         [0, 50, 0]),
        ([claim("x", "30Gi"), claim("y", "61Gi", "too")],
         [room("a", "100Gi"), room("a", "100Gi", "too"), room("b", "60Gi"), room("b", "61Gi", "too"), room("c", "99Gi"),
          room("c", "100Gi", "too")], {}, [55, 25, 55]),
        # What nothing is known of is worth nothing.
        ([claim("x", "10Gi", "quiet")], DIFFERENT, {}, [0, 0, 0]),
        ([claim("x", "10Gi", "local")], [local(on, "10Gi") for on in "abc"], {}, [0, 0, 0]),
        # The largest volume is a matter of the filter.
        ([claim("x", "10Gi")], [room("a", "5Gi", maximumVolumeSize="10Gi"), room("b", "40Gi"), room("c", "10Gi")], {},
         [0, 75, 0]),
    ],
)  # fmt: skip
def test_storage(claims: list[Json], there: list[Json], options: Json, expected: list[int]) -> None:
    incoming = mounts_claims(*(each["metadata"]["name"] for each in claims))
    assert scores("VolumeBinding", incoming, [*ABC, *STORAGE, *claims, *there], **options) == expected


@pytest.mark.parametrize("of", ["tells", "local"])
def test_storage_of_other_nodes_is_not_asked(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the filter nor by the score: what a node reaches is found by its labels."""
    names = [f"n{i}" for i in range(20)]
    storage = [room(on, "100Gi") if of == "tells" else local(on, "100Gi") for on in names]
    pods = [mounts_claims(f"x{i}") for i in range(5)]
    for i, each in enumerate(pods):
        each["metadata"] |= {"name": f"p{i}", "uid": f"p{i}"}
    claims = [claim(f"x{i}", "10Gi", of) for i in range(5)]
    snapshot = kscale.Cluster([*map(node, names), *STORAGE, *claims, *storage]).snapshot()
    asked = 0
    matches = Requirement.matches

    def counted(self: Requirement, labels: Any) -> bool:
        nonlocal asked
        asked += 1
        return matches(self, labels)

    monkeypatch.setattr(Requirement, "matches", counted)
    found = kscale.place(snapshot, pods, scores=kscale.ScoreOptions(weights={"VolumeBinding": 1}))
    assert len(found.placement) == 5
    assert 0 < asked <= 2 * len(pods) * len(names)


def test_claims_that_are_bound_or_of_which_the_filter_is_not_asked() -> None:
    bound = claim("x", "10Gi", "local", volumeName="local-a")
    bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    assert scores("VolumeBinding", mounts_claims("x"), [*ABC, *STORAGE, bound, local("a", "100Gi")]) == [0]
    world = kscale.Cluster([*ABC, *STORAGE, claim("x", "10Gi"), *DIFFERENT]).snapshot()
    given = kscale.ScoreOptions(weights={"VolumeBinding": 1})
    for disabled, expected in ((set(), [90, 50, 0]), ({"VolumeBinding"}, [0, 0, 0])):
        profile = kscale.SchedulerProfile(disabled_filters=frozenset(disabled))
        found = kscale.node_scores(world, mounts_claims("x"), scores=given, profile=profile)
        assert found.total == expected


def test_replicas_of_a_controller_may_run_different_images() -> None:
    """As while a StatefulSet is updated."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    pods = [runs(900), runs(600)]
    for i, each in enumerate(pods):
        each["metadata"] |= {"name": f"s-{i}", "uid": f"s-{i}", "ownerReferences": [owner]}
    snapshot = kscale.Cluster([image_node("a", 600), image_node("b", 900), *pods]).snapshot()
    found = kscale.place(snapshot, scores=kscale.ScoreOptions(weights={"ImageLocality": 1}))
    assert found.placement == {"default/s-0": "b", "default/s-1": "a"}


# -- TaintToleration (taint_toleration_test) ---------------------------------------------------------------------------


def soft(key: str, value: str = "") -> Json:
    return {"key": key, "value": value, "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        ([{**soft("foo", "bar"), "operator": "Equal"}], [[soft("foo", "bar")], [soft("foo", "blah")]], [100, 0]),
        (
            [{"key": "cpu-type", "value": "arm64", "operator": "Equal", "effect": "NoSchedule"}],
            [[], [{"key": "cpu-type", "value": "arm64", "effect": "NoSchedule"}]],
            [100, 100],
        ),
        ([{**soft("foo", "bar")}], [[], [soft("cpu", "x")], [soft("cpu", "x"), soft("disk", "ssd")]], [100, 50, 0]),
        ([], [[], [soft("cpu", "x")]], [100, 0]),
    ],
)
def test_taints(tolerations: list[Json], taints: list[list[Json]], expected: list[int]) -> None:
    objects = [node(f"n{i}", taints=each) for i, each in enumerate(taints)]
    assert scores("TaintToleration", pod("p", tolerations=tolerations), objects) == expected


# -- NodeAffinity (node_affinity_test) ---------------------------------------------------------------------------------


def wish(weight: int, **labels: str) -> Json:
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"weight": weight, "preference": {"matchExpressions": terms}}


def wishing(*wishes: Json) -> Json:
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(wishes)}}}


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([], [0, 0, 0]),
        ([wish(4, foo="nowhere")], [0, 0, 0]),
        ([wish(4, foo="bar")], [100, 0, 100]),
        ([wish(2, foo="bar"), wish(4, key="value"), wish(5, foo="bar", key="value")], [18, 36, 100]),
        ([{"weight": 10, "preference": {}}], [0, 0, 0]),
    ],
)
def test_node_affinity(wishes: list[Json], expected: list[int]) -> None:
    labels = [{"foo": "bar"}, {"key": "value"}, {"foo": "bar", "key": "value"}]
    objects = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    assert scores("NodeAffinity", pod("p", **wishing(*wishes)), objects) == expected


def test_preferences_of_the_profile() -> None:
    objects = [node("n0", labels={"foo": "bar"}), node("n1")]
    added = kscale.Cluster([pod("x", **wishing(wish(3, foo="bar")))]).snapshot().pod("default/x").spec.affinity
    assert added is not None
    assert added.node_affinity is not None
    options = {"added_preferences": tuple(added.node_affinity.preferred)}
    assert scores("NodeAffinity", pod("p"), objects, **options) == [100, 0]


# -- PodTopologySpread (scoring_test) ----------------------------------------------------------------------------------


def spreads(key: str, max_skew: int = 1) -> Json:
    selector = {"matchLabels": {"app": "a"}}
    found = {"maxSkew": max_skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    return {"topologySpreadConstraints": [found]}


def web(counts: dict[str, int]) -> list[Json]:
    return [pod(f"{n}-{i}", on=n, labels={"app": "a"}) for n, count in counts.items() for i in range(count)]


@pytest.mark.parametrize(
    ("key", "max_skew", "counts", "expected"),
    [
        (HOSTNAME, 1, {}, [100, 100, 100, 100]),
        (HOSTNAME, 1, {"a": 2, "b": 1, "c": 0, "d": 3}, [20, 60, 100, 0]),
        (HOSTNAME, 2, {"a": 2, "b": 1, "c": 0, "d": 3}, [33, 66, 100, 16]),
        (ZONE, 1, {"a": 2, "b": 1, "c": 0, "d": 3}, [100, 100, 100, 100]),
        (ZONE, 1, {"a": 2, "b": 1, "c": 0, "d": 0}, [0, 0, 100, 100]),
    ],
)
def test_spread(key: str, max_skew: int, counts: dict[str, int], expected: list[int]) -> None:
    objects = [node(name, labels={ZONE: zone}) for name, zone in zip("abcd", ("z1", "z1", "z2", "z2"), strict=True)]
    incoming = pod("p", labels={"app": "a"}, **spreads(key, max_skew))
    found = scores("PodTopologySpread", incoming, [*objects, *web(counts)])
    assert found == expected


def test_nodes_without_the_key_get_nothing() -> None:
    objects = [node("a", labels={ZONE: "z1"}), node("b"), node("c", labels={ZONE: "z2"})]
    incoming = pod("p", labels={"app": "a"}, **spreads(ZONE))
    assert scores("PodTopologySpread", incoming, [*objects, *web({"a": 1, "b": 4})]) == [0, 0, 100]


def test_the_system_spreads_pods_of_services() -> None:
    """Over hosts and zones, and nodes without a zone are compared all the same."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default"}}
    service["spec"] = {"selector": {"app": "a"}}  # type: ignore[assignment]  # a dict of API data
    objects = [node("a", labels={ZONE: "z1"}), node("b"), node("c", labels={ZONE: "z2"}), *web({"a": 2})]
    incoming = pod("p", labels={"app": "a"})
    assert scores("PodTopologySpread", incoming, objects) == [0, 0, 0]
    first, *rest = scores("PodTopologySpread", incoming, [*objects, service])
    assert first < min(rest)
    none = kscale.SchedulerProfile(default_constraints=())
    snapshot = kscale.Cluster([*objects, service]).snapshot()
    found = kscale.node_scores(snapshot, incoming, profile=none)
    assert found.by_plugin["PodTopologySpread"] == [0, 0, 0]


# -- InterPodAffinity (scoring_test) -----------------------------------------------------------------------------------


def towards(kind: str, weight: int, app: str = "a", key: str = ZONE) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def needing(app: str, key: str = ZONE) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


ZONES = [node(name, labels={ZONE: zone}) for name, zone in zip("abc", ("z1", "z2", "z2"), strict=True)]


@pytest.mark.parametrize(
    ("incoming", "placed", "options", "expected"),
    [
        (pod("p"), [pod("x", on="a", labels={"app": "a"})], {}, [0, 0, 0]),
        (pod("p", **towards("podAffinity", 5)), [pod("x", on="a", labels={"app": "a"})], {}, [100, 0, 0]),
        (pod("p", **towards("podAntiAffinity", 5)), [pod("x", on="a", labels={"app": "a"})], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **towards("podAffinity", 8))], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **towards("podAntiAffinity", 8))], {}, [100, 0, 0]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **needing("a"))], {}, [0, 100, 100]),
        (pod("p", labels={"app": "a"}), [pod("x", on="b", **needing("a"))], {"hard_pod_affinity_weight": 0}, [0, 0, 0]),
        (
            pod("p", labels={"app": "a"}),
            [pod("x", on="b", **towards("podAffinity", 8))],
            {"ignore_preferred_terms_of_existing_pods": True},
            [0, 0, 0],
        ),
        (
            pod("p", **towards("podAffinity", 2)),
            [*web({"a": 1}), pod("b1", on="b", labels={"app": "a"}), pod("b2", on="c", labels={"app": "a"})],
            {},
            [0, 100, 100],
        ),
    ],
)
def test_affinity_between_pods(incoming: Json, placed: list[Json], options: Json, expected: list[int]) -> None:
    assert scores("InterPodAffinity", incoming, [*ZONES, *placed], **options) == expected


# -- placing -----------------------------------------------------------------------------------------------------------


def many(count: int) -> list[Json]:
    return [node(f"n{i:03}", "4", str(8 << 30)) for i in range(count)]


def test_pods_go_where_there_is_most_room_and_are_counted_there() -> None:
    snapshot = kscale.Cluster([node("small", "2", str(4 << 30)), node("large", "8", str(16 << 30))]).snapshot()
    pods = [pod(f"p{i}", {"cpu": "1", "memory": "2Gi"}) for i in range(5)]
    found = kscale.place(snapshot, pods, scores=kscale.ScoreOptions())
    assert [found.placement[f"default/p{i}"] for i in range(5)] == ["large", "large", "large", "small", "large"]
    assert found.snapshot_after.pod_count.tolist() == [1, 4]


def test_the_search_goes_on_where_it_ended() -> None:
    """Of 200 nodes 100 are enough: half of 48 percent is less."""
    snapshot = kscale.Cluster(many(200)).snapshot()
    state = PlaceState()
    found = []
    for i in range(3):
        result = kscale.place(snapshot, [pod(f"p{i}", asks(100, 1))], state=state, scores=kscale.ScoreOptions())
        found += result.placement.values()
        state = result.state
        snapshot = result.snapshot_after
    assert found == ["n000", "n100", "n001"]
    assert state.cursor == 100
    every = kscale.ScoreOptions(percentage_of_nodes_to_score=100)
    assert kscale.place(snapshot, [pod("q", asks(100, 1))], scores=every).state.cursor == 0


def test_nodes_that_a_prefilter_names_and_nodes_that_are_refused() -> None:
    snapshot = kscale.Cluster(many(3)).snapshot()
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n001", "n002", "gone")]
    named = {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named}}
    options = kscale.ScoreOptions()
    found = kscale.place(snapshot, [pod("p", affinity=affinity)], scores=options)
    assert found.placement == {"default/p": "n001"}
    found = kscale.place(snapshot, [pod("p", affinity=affinity)], scores=options, unacceptable_nodes=["n001"])
    assert found.placement == {"default/p": "n002"}
    found = kscale.place(snapshot, [pod("p")], scores=options, unacceptable_nodes=["n000", "n001", "n002"])
    assert found.unschedulable == ["default/p"]


def test_a_cordoned_node_takes_what_tolerates_it() -> None:
    snapshot = kscale.Cluster([node("n", unschedulable=True)]).snapshot()
    tolerant = pod("t", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    found = kscale.place(snapshot, [pod("p"), tolerant], scores=kscale.ScoreOptions())
    assert (found.placement, found.unschedulable) == ({"default/t": "n"}, ["default/p"])


def test_without_plugins_the_first_node_is_the_one() -> None:
    snapshot = kscale.Cluster([node("a", "1"), node("b", "64")]).snapshot()
    found = kscale.place(snapshot, [pod("p", asks(100, 1))], scores=kscale.ScoreOptions(weights={}))
    assert found.placement == {"default/p": "a"}
    assert found.state.cursor == 1


def test_a_wish_that_cannot_be_read_is_an_error_where_nodes_are_compared() -> None:
    broken = pod("p", labels={"app": "a"}, **spreads(ZONE))
    broken["spec"]["topologySpreadConstraints"][0]["labelSelector"] = {
        "matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]
    }
    operator = {"key": "foo", "operator": "Near", "values": ["a"]}
    unreadable = pod("q", **wishing({"weight": 1, "preference": {"matchExpressions": [operator]}}))
    for one in (broken, unreadable):
        key = f"default/{one['metadata']['name']}"
        two = kscale.Cluster(many(2)).snapshot()
        assert kscale.place(two, [one], scores=kscale.ScoreOptions()).unschedulable == [key]
        assert kscale.node_scores(two, one).total == []
        alone = kscale.Cluster(many(1)).snapshot()
        assert kscale.place(alone, [one], scores=kscale.ScoreOptions()).placement == {key: "n000"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weights": {"NodeName": 1}}, "no Score plug-in 'NodeName'"),
        ({"weights": {"NodeAffinity": -1}}, "NodeAffinity is -1"),
        ({"fit_strategy": "Best"}, "fit_strategy is"),
        ({"fit_resources": {"cpu": 0}}, "fit_resources: cpu is 0"),
        ({"fit_resources": {}}, "scores no resources"),
        ({"balanced_resources": ()}, "scores no resources"),
        ({"fit_shape": ((0, 1),)}, "go with RequestedToCapacityRatio"),
        ({"fit_strategy": "RequestedToCapacityRatio"}, "at least one"),
        ({"fit_strategy": "RequestedToCapacityRatio", "fit_shape": ((5, 1), (5, 2))}, "do not rise"),
        ({"fit_strategy": "RequestedToCapacityRatio", "fit_shape": ((5, 11),)}, "score is 11"),
        ({"volume_shape": ()}, "volume_shape: at least one point"),
        ({"volume_shape": ((5, 1), (5, 2))}, "volume_shape: the points do not rise"),
        ({"percentage_of_nodes_to_score": 101}, "percentage_of_nodes_to_score is 101"),
        ({"hard_pod_affinity_weight": True}, "hard_pod_affinity_weight is"),
    ],
)
def test_options_that_are_refused(options: Json, text: str) -> None:
    with pytest.raises(kscale.InputError, match=text):
        kscale.ScoreOptions(**options)


def test_what_only_the_autoscalers_simulator_has() -> None:
    snapshot = kscale.Cluster(many(1)).snapshot()
    for given in ({"state": PlaceState(hints={"u": "n000"})}, {"break_on_failure": True}, {"max_looks": 1}):
        with pytest.raises(kscale.InputError, match="kube-scheduler has no hints"):
            kscale.place(snapshot, [pod("p")], scores=kscale.ScoreOptions(), **given)


def test_scorers_of_the_users() -> None:
    pytest.importorskip("numba")

    @kscale.plugin.scorer(name="likes-little-room", resources=("example.com/gpu",))
    def likes_little_room(request: Any, free: Any) -> float:
        return 100.0 if free[0] - request[0] < 2000 else free[3] * 1.0

    @kscale.plugin.scorer(name="too-much")
    def too_much(request: Any, free: Any) -> float:
        return 100.5

    small, large = node("small", "2"), node("large", "8")
    large["status"]["allocatable"]["example.com/gpu"] = "7"
    snapshot = kscale.Cluster([large, small]).snapshot()
    options = kscale.ScoreOptions(weights={}, scorers=((likes_little_room, 3),))
    found = kscale.node_scores(snapshot, pod("p", asks(500, 1)), scores=options)
    assert (found.by_plugin, found.total) == ({"likes-little-room": [7, 100]}, [21, 300])
    pods = [pod(f"p{i}", asks(500, 1)) for i in range(5)]
    placed = kscale.place(snapshot, pods, scores=options)
    assert list(placed.placement.values()) == ["small"] * 4 + ["large"]
    for scoring in (kscale.node_scores, lambda *given, scores: kscale.place(given[0], [given[1]], scores=scores)):
        with pytest.raises(NativeError, match="'too-much' failed, or gave no score from 0 to 100"):
            scoring(snapshot, pod("p"), scores=kscale.ScoreOptions(scorers=((too_much, 1),)))
