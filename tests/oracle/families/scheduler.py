"""Filter and Score plug-ins of the default profile."""

from __future__ import annotations

from random import Random
from typing import Any

from oracle import drawing
from oracle.drawing import HOSTNAME, REQUIRED, ZONE, chance, some, sometimes
from oracle.drawing_devices import DEVICE_CLAIMS, devices
from oracle.drawing_volumes import storage
from oracle.edges import meet_edges
from oracle.families import Kind

__all__ = ["KINDS"]

Json = dict[str, Any]

_FEATURES = ("resources", "taints", "node-affinity", "ports", "affinity", "spread", "volumes", "disks", "dra")
_SCORED = ("resources", "taints", "node-affinity", "affinity", "spread", "images", "volumes")
_SERVICES = tuple(
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{i}", "namespace": namespace}, "spec": spec}
    for i, (namespace, spec) in enumerate(
        (
            ("default", {"selector": {"app": "a"}}),
            ("default", {"selector": {"rev": "1"}}),
            ("prod", {"selector": {"app": "b"}}),
            ("default", {}),
            ("default", {"selector": {}}),
        )
    )
)


def _features(random: Random, names: tuple[str, ...]) -> frozenset[str]:
    """Return mostly one or two features, at times all: small cases are many, and large ones reach every plug-in."""
    kind = random.random()
    chosen = set(names if kind < 0.05 else random.sample(names, random.choice((1, 1, 2, 2, 3))))
    if chance(random, 6):
        chosen.add("plain")
    if chance(random, 12) and "dra" not in chosen:
        chosen.add("huge")
    return frozenset(chosen)


def _objects(random: Random, features: frozenset[str], options: Json) -> list[Json]:
    names = [f"n{i}" for i in range(random.choice((1, 2, 2, 3, 3, 4)))]
    objects = [drawing.node(random, name, features) for name in names]
    objects += [drawing.placed_pod(random, f"p{i}", names, features) for i in range(random.randint(0, 5))]
    if features & {"affinity", "spread"}:
        objects += drawing.namespaces()
    if "volumes" in features:
        objects += storage(random, names)
    if "dra" in features:
        objects += devices(random, names)
        options["dra"] = True
    if "spread" in features and chance(random, 3):
        objects += random.sample(_SERVICES, random.randint(1, 2))
    return objects


_ADDED = tuple(
    {REQUIRED: {"nodeSelectorTerms": [term]}}
    for term in (
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1", "z2"]}]},
        {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]},
    )
)
_DEFAULTS = tuple(
    [{"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}]
    for key in (ZONE, HOSTNAME)
    for skew in (1, 2)
)


def _profile(random: Random, options: Json) -> None:
    """Set arguments of plug-ins, of which there are few combinations: each is a scheduler of its own."""
    kind = random.randrange(5)
    if kind == 0:
        options["added_affinity"] = random.choice(_ADDED)
    elif kind == 1:
        options["default_constraints"] = random.choice((*_DEFAULTS, []))
    elif kind == 2:
        options["ignored_resources"] = [drawing.EXTENDED]
    elif kind == 3:
        options["ignored_resource_groups"] = ["example.com"]
    else:
        options["disabled_filters"] = [
            random.choice(("NodeResourcesFit", "TaintToleration", "PodTopologySpread", "NodeName"))
        ]


def draw_fit(random: Random) -> Json:
    """Return an input of the kind ``fit``."""
    features = _features(random, _FEATURES)
    options: Json = {}
    sometimes(random, options, "cursor", lambda r: r.randint(0, 4), 4)
    objects = _objects(random, features, options)
    if chance(random, 10):
        _profile(random, options)
    pod = drawing.pod(random, "new", features, eager=True)
    if "dra" in features and not chance(random, 5):
        claims = some(random, drawing.pick((*DEVICE_CLAIMS, "absent")), 1, 2)
        pod["spec"]["resourceClaims"] = [
            {"name": f"g{i}", "resourceClaimName": name} for i, name in enumerate(dict.fromkeys(claims))
        ]
    sometimes(random, pod["spec"], "nodeName", drawing.pick(("n0", "n1", "absent")), 40)
    if "resources" in features and chance(random, 2):
        meet_edges(random, objects, pod)
    return {"objects": objects, "pod": pod, "options": options}


_STRATEGIES: tuple[Json, ...] = (
    {"fit_strategy": "MostAllocated", "fit_resources": {"cpu": 3, "memory": 1, "example.com/gpu": 5}},
    {
        "fit_resources": {"cpu": 1, "memory": 2, "ephemeral-storage": 3},
        "balanced_resources": ["cpu", "ephemeral-storage"],
    },
    {
        "fit_strategy": "RequestedToCapacityRatio",
        "fit_shape": [[0, 10], [40, 2], [90, 7]],
        "fit_resources": {"cpu": 2, "memory": 3, "ephemeral-storage": 1},
        "balanced_resources": ["cpu", "memory", "ephemeral-storage", "example.com/gpu"],
        "hard_pod_affinity_weight": 0,
        "volume_shape": [[5, 3], [60, 9]],
    },
    {"fit_strategy": "RequestedToCapacityRatio", "fit_shape": [[0, 0], [100, 10]], "hard_pod_affinity_weight": 100},
)


def draw_scores(random: Random) -> Json:
    """Return an input of the kind ``scores``."""
    features = _features(random, _SCORED) - {"huge"} | {"soft"}  # sums that wrap are an error in upstream
    options: Json = {}
    objects = _objects(random, features, options)
    if chance(random, 4):
        options["scores"] = random.choice(_STRATEGIES)
    pod = drawing.pod(random, "new", features, eager=True)
    if "resources" in features and chance(random, 3):
        meet_edges(random, objects, pod, shares=(40, 90, 5, 60))
    return {"objects": objects, "pod": pod, "options": options}


def _without_debug(answer: Json) -> Json:
    """Return an answer of the kind ``fit`` without debug information, which ends messages."""
    nodes = {name: _verdict_without_debug(verdict) for name, verdict in answer["nodes"].items()}
    return {**answer, "nodes": nodes, "any_node": _verdict_without_debug(answer["any_node"])}


def _verdict_without_debug(verdict: Json) -> Json:
    rest = {key: value for key, value in verdict.items() if key != "debug"}
    if "message" in rest:
        rest["message"] = rest["message"].split("; debugInfo=", maxsplit=1)[0]
    return rest


_FIXED = frozenset(
    {"pod", "options", "apiVersion", "kind", "metadata", "name", "namespace", "operator", "key", "containers"}
)

KINDS = (
    Kind("fit", "scheduler", draw_fit, weight=3, fixed=_FIXED, comparable=_without_debug),
    Kind("scores", "scheduler", draw_scores, weight=2, fixed=_FIXED),
)
