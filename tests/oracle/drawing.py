"""Parts of clusters, drawn from a seeded generator. The alphabets are small on purpose: things should collide.

Hypothesis is not used for drawing: its bookkeeping takes thirty times as long as asking both sides. Each function
depends on nothing but the numbers that it takes from ``random``; what differs is made small by structure
(:mod:`oracle.shrinking`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

Json = dict[str, Any]
T = TypeVar("T")

NAMESPACES: Final = ("default", "default", "default", "prod", "lone")  # no Namespace object is named "lone"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
EXTENDED: Final = "example.com/gpu"
CLAIMS: Final = ("c0", "c1", "c2", "c3")
CSI_DRIVER: Final = "csi.example.com"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

NUMBERS: Final = ("4", "4", "6", "08", "+6", "-3", "0", "9223372036854775807")
"""Label values, bounds and values of taints that are compared as numbers: one alphabet, so that many are equal."""

_CPU = ("100m", "250m", "500m", "1", "100.5m", "0", "1n", "1500m", "2")
_MEMORY = ("64Mi", "100M", "0.1Gi", "512Mi", "1Gi", "0", "1500M", "1e9", "200M")
_COUNT = ("0", "1", "2", "3")
_HUGE = ("1Ei", "9223372036854775807", "16Ei", "10E", "9223372036854775", "5E")
_BAD_VALUES = ("not valid!", "-a", "a" * 64, "ä")


def chance(random: Random, one_in: int) -> bool:
    """True about once in ``one_in``."""
    return random.random() * one_in < 1


def sometimes(random: Random, target: Json, key: str, value: Callable[[Random], Any], one_in: int = 3) -> None:
    """Set a key now and then; otherwise it stays absent."""
    if random.random() * one_in < 1:
        target[key] = value(random)


def some(random: Random, value: Callable[[Random], T], low: int, high: int) -> list[T]:
    """Return a list of ``low`` to ``high`` drawn values."""
    return [value(random) for _ in range(random.randint(low, high))]


def pick(values: Sequence[T]) -> Callable[[Random], T]:
    """Return a function that draws one of some values."""
    return lambda random: random.choice(values)


# -- labels and selectors ----------------------------------------------------------------------------------------------

_LABELS = {"app": ("a", "b", "c"), "rev": ("1", "2"), "tier": ("", "web"), "example.com/x": ("y",)}


def labels(random: Random) -> Json:
    """Return labels of a pod."""
    return {key: random.choice(values) for key, values in _LABELS.items() if chance(random, 2)}


def requirement(random: Random) -> Json:
    """Return a requirement on labels; one in fifty is malformed."""
    key = random.choice(tuple(_LABELS))
    operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    result: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        result["values"] = some(random, pick(_LABELS[key]), 1, 2)
    if chance(random, 50):
        kind = random.random()
        if kind < 0.4:
            result["values"] = some(random, pick(("a", *_BAD_VALUES)), 0, 2)
        elif kind < 0.7:
            result["key"] = random.choice(("", "a/b/c", "UPPER.example.com/x", "-x", "ä"))
        else:
            result["operator"] = random.choice(("in", "Near", "", "Gt"))
    return result


def label_selector(random: Random) -> Json | None:
    """Return a LabelSelector, or None for an absent one."""
    kind = random.random()
    if kind < 0.06:
        return None
    if kind < 0.12:
        return {}
    selector: Json = {}
    if kind < 0.7:
        keys = random.sample(tuple(_LABELS), random.choice((1, 1, 1, 2)))
        selector["matchLabels"] = {key: random.choice(_LABELS[key]) for key in keys}
        if chance(random, 100):
            selector["matchLabels"]["app"] = random.choice(_BAD_VALUES)
    if kind > 0.55:
        selector["matchExpressions"] = some(random, requirement, 1, 2)
    return selector


def _namespace_selector(random: Random) -> Json:
    return random.choice(
        (
            {},
            {"matchLabels": {"team": "core"}},
            {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["core"]}]},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            {"matchLabels": {"kubernetes.io/metadata.name": "prod"}},
        )
    )


def topology_key(random: Random) -> str:
    """Return a key of node labels."""
    return random.choice((ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack"))


def affinity_term(random: Random) -> Json:
    """Return a PodAffinityTerm."""
    term: Json = {"topologyKey": topology_key(random)}
    selector = label_selector(random)
    if selector is not None:
        term["labelSelector"] = selector
    sometimes(random, term, "namespaces", lambda r: r.sample(("default", "prod", "lone"), r.randint(0, 2)), 5)
    sometimes(random, term, "namespaceSelector", _namespace_selector, 5)
    if selector and chance(random, 8):
        term[random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
    return term


def spread_constraint(random: Random, *, soft: bool = False) -> Json:
    """Return a TopologySpreadConstraint; with ``soft`` mostly one for scores."""
    hard = chance(random, 8) if soft else not chance(random, 5)
    constraint: Json = {
        "topologyKey": topology_key(random),
        "maxSkew": random.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    selector = label_selector(random)
    if selector is not None:
        constraint["labelSelector"] = selector
    if hard:
        sometimes(random, constraint, "minDomains", lambda r: r.randint(1, 4), 4)
    sometimes(random, constraint, "nodeAffinityPolicy", pick(("Honor", "Ignore")), 4)
    sometimes(random, constraint, "nodeTaintsPolicy", pick(("Honor", "Ignore")), 4)
    sometimes(random, constraint, "matchLabelKeys", pick((["rev"], ["app", "rev"], ["none"])), 5)
    return constraint


# -- nodes -------------------------------------------------------------------------------------------------------------


def node_requirement(random: Random) -> Json:
    """Return a requirement on nodes; some compare numbers, some are malformed."""
    key, values = random.choice(
        (
            (ZONE, ("z1", "z2", "z3")),
            ("rack", ("r1", "r2")),
            (HOSTNAME, ("n0", "n1")),
            ("cores", ("4", "6", "-3")),
            ("disk", ("",)),
        )
    )
    operator = random.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
    result: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        result["values"] = some(random, pick(values), 1, 2)
    if chance(random, 5):
        result = {"key": "cores", "operator": random.choice(("Gt", "Lt")), "values": [random.choice(NUMBERS)]}
        if chance(random, 10):
            result["values"] = random.choice((["many"], [], ["1", "2"], ["9223372036854775808"], ["1.5"]))
    elif chance(random, 40):
        result["values"] = some(random, pick(("a", *_BAD_VALUES)), 0, 2)
    elif chance(random, 60):
        result["operator"] = random.choice(("Near", "", "gt"))
    return result


def _field_requirement(random: Random) -> Json:
    key = "metadata.name" if random.random() < 0.97 else random.choice(("metadata.uid", "spec.unschedulable"))
    operator = random.choice(("In", "In", "NotIn")) if random.random() < 0.97 else "Exists"
    names = some(random, pick(("n0", "n1", "n2", "absent")), 1, 1 if random.random() < 0.9 else 2)
    return {"key": key, "operator": operator, "values": names}


def node_term(random: Random) -> Json:
    """Return a NodeSelectorTerm, at times empty."""
    term: Json = {}
    if not chance(random, 4):
        term["matchExpressions"] = some(random, node_requirement, 0 if chance(random, 10) else 1, 2)
    if chance(random, 4):
        term["matchFields"] = some(random, _field_requirement, 1, 1 if random.random() < 0.9 else 2)
    return term


def node_labels(random: Random, name: str) -> Json:
    """Return labels of a node."""
    result: Json = {HOSTNAME: name}
    if not chance(random, 8):
        result |= {ZONE: random.choice(("z1", "z2", "z2", "z3")), REGION: random.choice(("r", "r", "s"))}
    if chance(random, 4):  # what drivers of migrated volumes call a zone
        result |= {f"topology.{driver}/zone": random.choice(("z1", "z2")) for driver in ("ebs.csi.aws.com", "gke.io")}
    if chance(random, 2):
        result["rack"] = random.choice(("r1", "r2"))
    if chance(random, 2):
        result["cores"] = random.choice((*NUMBERS, "6.0", "9223372036854775808"))
    if chance(random, 20):
        result.pop(HOSTNAME)
    if chance(random, 6):
        result["disk"] = ""
    return result


def taint(random: Random) -> Json:
    """Return a taint."""
    result: Json = {
        "key": random.choice(("dedicated", "dedicated", "spot", "size")),
        "effect": random.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")),
    }
    sometimes(random, result, "value", pick(("a", "b", *NUMBERS)), 2)
    return result


def _long(random: Random, short: int) -> tuple[int, int]:
    """Return the lowest and highest length of a list: ``short``, at times more than any shortcut for few takes."""
    return (9, 12) if chance(random, 20) else (1, short)


def taints(random: Random) -> list[Json]:
    """Return taints of a node, at times many."""
    return some(random, taint, *_long(random, 2))


def tolerations(random: Random) -> list[Json]:
    """Return tolerations of a pod, at times many."""
    return some(random, toleration, *_long(random, 3))


def toleration(random: Random) -> Json:
    """Return a toleration, of any operator."""
    result: Json = {}
    if not chance(random, 6):
        result["key"] = random.choice(("dedicated", "dedicated", "spot", "size", "node.kubernetes.io/unschedulable"))
    operator = random.choice(("Exists", "Equal", "Equal", None, "Gt", "Lt"))
    if operator is not None:
        result["operator"] = operator
    if operator != "Exists" and not chance(random, 6):
        result["value"] = random.choice(("a", "b", "", *NUMBERS))
    if chance(random, 2):
        result["effect"] = random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    return result


def node(random: Random, name: str, features: frozenset[str]) -> Json:
    """Return a Node."""
    capacity: Json = {
        "cpu": random.choice(("1", "2", "4", "350m", "3900m")),
        "memory": random.choice(("1Gi", "2Gi", "4Gi", "3500M")),
        "pods": random.choice(("110", "110", "110", "4", "2")),
    }
    if chance(random, 2):
        capacity["ephemeral-storage"] = random.choice(("1Gi", "10G"))
    if chance(random, 3):
        capacity[EXTENDED] = random.choice(_COUNT)
    if chance(random, 6):
        capacity["hugepages-2Mi"] = "4Mi"
    if "huge" in features and chance(random, 2):
        capacity[random.choice(("cpu", "memory", EXTENDED))] = random.choice(_HUGE)
    status: Json = {"allocatable": capacity}
    spec: Json = {}
    if "taints" in features:
        sometimes(random, spec, "taints", taints, 2)
        sometimes(random, spec, "unschedulable", lambda _: True, 6)
    if "plain" in features:
        declared = (
            "RestartAllContainersOnContainerExits",
            "UserNamespacesHostNetworkSupport",
            "InPlacePodLevelResourcesVerticalScaling",
        )
        sometimes(random, status, "declaredFeatures", lambda r: sorted(r.sample(declared, r.randint(1, 2))), 6)
    if "images" in features and chance(random, 2):
        status["images"] = some(random, _image_on_node, 1, 3)
    metadata = {"name": name, "labels": node_labels(random, name)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


_IMAGES = ("web", "web:v1", "registry:5000/team/big", "big:v2", "big@sha256:" + "0" * 64)
_MIB = 1 << 20


def _image_on_node(random: Random) -> Json:
    names = random.sample((*_IMAGES, "web:latest", "registry:5000/team/big:latest"), random.randint(1, 2))
    return {
        "names": names,
        "sizeBytes": random.choice((_MIB, 23 * _MIB, 30 * _MIB, 700 * _MIB, 1000 * _MIB, 5000 * _MIB + 1)),
    }


# -- pods --------------------------------------------------------------------------------------------------------------


def requests(random: Random, features: frozenset[str]) -> Json:
    """Return requests of a container."""
    resources: Json = {}
    sometimes(random, resources, "cpu", pick(_CPU), 2)
    sometimes(random, resources, "memory", pick(_MEMORY), 2)
    sometimes(random, resources, "ephemeral-storage", pick(_MEMORY), 8)
    sometimes(random, resources, EXTENDED, pick(_COUNT), 8)
    sometimes(random, resources, "hugepages-2Mi", pick(("2Mi", "4Mi")), 20)
    if "dra" not in features:  # where upstream's DynamicResources repeats what NodeResourcesFit says, in other words
        sometimes(random, resources, "example.com/unknown", pick(_COUNT), 30)
    if "huge" in features:
        sometimes(random, resources, random.choice(("cpu", "memory", EXTENDED)), pick(_HUGE), 3)
    return resources


def _resources(random: Random, features: frozenset[str]) -> Json:
    result: Json = {"requests": requests(random, features)}
    if chance(random, 5):
        result["limits"] = requests(random, features)
    return result


def _port(random: Random) -> Json:
    port: Json = {"containerPort": 80, "hostPort": random.choice((8080, 8080, 8081, 0))}
    sometimes(random, port, "protocol", pick(("TCP", "UDP", "SCTP")), 2)
    sometimes(random, port, "hostIP", pick(("0.0.0.0", "127.0.0.1", "::", "10.0.0.1", "")), 2)
    return port


def container(random: Random, name: str, features: frozenset[str]) -> Json:
    """Return a container."""
    result: Json = {"name": name, "image": random.choice(_IMAGES) if "images" in features else "app:1"}
    if "resources" in features or chance(random, 3):
        result["resources"] = _resources(random, features)
    if "ports" in features:
        sometimes(random, result, "ports", lambda r: some(r, _port, 1, 2), 2)
    if "plain" in features and chance(random, 30):
        result["restartPolicyRules"] = [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
        ]
    return result


def _disk(random: Random) -> Json:
    read_only = chance(random, 2)
    return random.choice(
        (
            {"gcePersistentDisk": {"pdName": random.choice(("d1", "d2")), "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}},
            {"iscsi": {"targetPortal": "p", "iqn": "iqn-1", "lun": 0, "readOnly": read_only}},
            {"rbd": {"monitors": ["m1", "m2"], "pool": "pool", "image": "i", "readOnly": read_only}},
            {"rbd": {"monitors": ["m2"], "pool": "pool", "image": "i", "readOnly": read_only}},
            {"emptyDir": {}},
            {"csi": {"driver": CSI_DRIVER}},
        )
    )


def _pod_level(random: Random, features: frozenset[str]) -> Json:
    return {"requests": {key: value for key, value in requests(random, features).items() if key in ("cpu", "memory")}}


def _affinity(random: Random, spec: Json, *, eager: bool, soft: bool) -> None:
    for kind, one_in in (("podAffinity", 3 if eager else 6), ("podAntiAffinity", 2 if eager else 4)):
        if chance(random, one_in):
            spec.setdefault("affinity", {})[kind] = {REQUIRED: some(random, affinity_term, 1, 2)}
        if soft and chance(random, 3):
            terms = [{"weight": random.randint(1, 100), "podAffinityTerm": affinity_term(random)}]
            spec.setdefault("affinity", {}).setdefault(kind, {})[PREFERRED] = terms


def pod(random: Random, name: str, features: frozenset[str], *, eager: bool = False) -> Json:
    """Return a Pod. An eager one uses each feature about every second time."""
    soft = "soft" in features
    spec: Json = {"containers": [container(random, f"c{i}", features) for i in range(random.choice((1, 1, 2)))]}
    if chance(random, 6):
        inits = [container(random, f"i{i}", features) for i in range(random.randint(1, 2))]
        for init in inits:
            sometimes(random, init, "restartPolicy", pick(("Always",)), 2)
        spec["initContainers"] = inits
    sometimes(random, spec, "overhead", lambda r: {"cpu": r.choice(_CPU)}, 20)
    if "resources" in features:
        sometimes(random, spec, "resources", lambda r: _pod_level(r, features), 10)
    if "taints" in features:
        sometimes(random, spec, "tolerations", tolerations, 2)
    if "node-affinity" in features:
        selectors: tuple[Json, ...] = (
            {},
            {ZONE: "z1"},
            {"rack": "r1"},
            {"disk": ""},
            {"rack": "not valid!"},
            {HOSTNAME: "n0"},
        )
        sometimes(random, spec, "nodeSelector", pick(selectors), 4)
        if chance(random, 2 if eager else 5):
            terms = some(random, node_term, 0 if chance(random, 20) else 1, 2)
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        if soft and chance(random, 2):
            wishes = [{"weight": random.randint(0 if chance(random, 20) else 1, 100), "preference": node_term(random)}
                      for _ in range(random.randint(1, 2))]  # fmt: skip
            spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[PREFERRED] = wishes
    if "plain" in features and chance(random, 30):
        spec |= {"hostNetwork": True, "hostUsers": False}
    if "affinity" in features:
        _affinity(random, spec, eager=eager, soft=soft)
    if "spread" in features and chance(random, 1 if eager else 4):
        keys: dict[tuple[str, str], Json] = {}
        for _ in range(random.randint(1, 2)):
            constraint = spread_constraint(random, soft=soft)
            keys[constraint["topologyKey"], constraint["whenUnsatisfiable"]] = constraint
        spec["topologySpreadConstraints"] = list(keys.values())
    volumes: list[Json] = []
    if "volumes" in features and chance(random, 1 if eager else 3):
        for _ in range(random.choice((1, 2, 2, 3))):
            claimed = {"persistentVolumeClaim": {"claimName": random.choice(CLAIMS)}}
            volumes.append(claimed if random.random() < 0.8 else {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
    if "disks" in features and chance(random, 1 if eager else 2):
        volumes += some(random, _disk, 1, 2)
    if volumes:
        spec["volumes"] = [{"name": f"v{i}", **volume} for i, volume in enumerate(volumes)]
    namespace = random.choice(NAMESPACES) if features & {"affinity", "spread"} else "default"
    metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    if features & {"affinity", "spread"} or chance(random, 3):
        metadata["labels"] = labels(random)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def placed_pod(random: Random, name: str, node_names: Sequence[str], features: frozenset[str]) -> Json:
    """Return a Pod on one of the nodes."""
    result = pod(random, name, features)
    if chance(random, 15):
        result["status"]["nominatedNodeName"] = random.choice((*node_names, "absent"))
    else:
        result["spec"]["nodeName"] = random.choice(node_names)
    sometimes(random, result["metadata"], "deletionTimestamp", lambda _: "2026-01-01T00:00:00Z", 10)
    if "resources" in features and chance(random, 6):
        _resize(random, result, features)
    return result


def _resize(random: Random, placed: Json, features: frozenset[str]) -> None:
    """Add resources of a status, and perhaps a resize that cannot happen."""
    status = placed["status"]
    entries = []
    for spec in placed["spec"]["containers"]:
        entry: Json = {"name": spec["name"], "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        sometimes(random, entry, "allocatedResources", lambda r: requests(r, features), 2)
        sometimes(random, entry, "resources", lambda r: _resources(r, features), 2)
        entries.append(entry)
    status["containerStatuses"] = entries
    sometimes(random, status, "allocatedResources", lambda r: requests(r, features), 3)
    sometimes(random, status, "resources", lambda r: _pod_level(r, features), 3)
    if chance(random, 3):
        reason = random.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]


def namespaces() -> list[Json]:
    """Return the Namespace objects; ``lone`` has none."""
    named = {"default": {"team": "core"}, "prod": {"team": "lab", "kubernetes.io/metadata.name": "prod"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": tags}}
        for name, tags in named.items()
    ]
