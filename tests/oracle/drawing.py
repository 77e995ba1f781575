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
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

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
            ("cores", ("4", "8")),
            ("disk", ("",)),
        )
    )
    operator = random.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
    result: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        result["values"] = some(random, pick(values), 1, 2)
    if chance(random, 5):
        bound = random.choice(("4", "08", "-1", "+6", "9223372036854775807", "0"))
        result = {"key": "cores", "operator": random.choice(("Gt", "Lt")), "values": [bound]}
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
    if chance(random, 2):
        result["rack"] = random.choice(("r1", "r2"))
    if chance(random, 3):
        result["cores"] = random.choice(("4", "8", "+6", "6.0", "-3", "007", "9223372036854775808"))
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
    sometimes(random, result, "value", pick(("a", "b", "5", "10", "-3", "05")), 2)
    return result


def toleration(random: Random) -> Json:
    """Return a toleration, of any operator."""
    result: Json = {}
    if not chance(random, 6):
        result["key"] = random.choice(("dedicated", "dedicated", "spot", "size", "node.kubernetes.io/unschedulable"))
    operator = random.choice(("Exists", "Equal", "Equal", None, "Gt", "Lt"))
    if operator is not None:
        result["operator"] = operator
    if operator != "Exists" and not chance(random, 6):
        result["value"] = random.choice(("a", "b", "5", "7", "-3", ""))
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
        sometimes(random, spec, "taints", lambda r: some(r, taint, 1, 2), 2)
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
    wanted: Json = {}
    sometimes(random, wanted, "cpu", pick(_CPU), 2)
    sometimes(random, wanted, "memory", pick(_MEMORY), 2)
    sometimes(random, wanted, "ephemeral-storage", pick(_MEMORY), 8)
    sometimes(random, wanted, EXTENDED, pick(_COUNT), 8)
    sometimes(random, wanted, "hugepages-2Mi", pick(("2Mi", "4Mi")), 20)
    if "dra" not in features:  # where upstream's DynamicResources repeats what NodeResourcesFit says, in other words
        sometimes(random, wanted, "example.com/unknown", pick(_COUNT), 30)
    if "huge" in features:
        sometimes(random, wanted, random.choice(("cpu", "memory", EXTENDED)), pick(_HUGE), 3)
    return wanted


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
        sometimes(random, spec, "tolerations", lambda r: some(r, toleration, 1, 3), 2)
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
        for _ in range(random.randint(1, 2)):
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


# -- volumes -----------------------------------------------------------------------------------------------------------

CLAIMS: Final = ("c0", "c1", "c2", "c3")
CSI_DRIVER: Final = "csi.example.com"
_SIZES = ("1Gi", "5Gi", "1500M", "3Gi")
_STORAGE = "storage.k8s.io/v1"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def storage(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return classes, claims that are bound, waiting, immediate or missing, volumes, and what drivers tell of nodes."""
    objects: list[Json] = []
    for name, provisioner, mode in (
        ("wait", CSI_DRIVER, "WaitForFirstConsumer"),
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("now", CSI_DRIVER, "Immediate"),
    ):
        storage_class: Json = {"apiVersion": _STORAGE, "kind": "StorageClass", "metadata": {"name": name}}
        storage_class |= {"provisioner": provisioner, "volumeBindingMode": mode}
        if name == "wait" and chance(random, 3):
            zones = [
                {"matchLabelExpressions": [{"key": ZONE, "values": random.sample(("z1", "z2"), random.randint(1, 2))}]}
            ]
            storage_class["allowedTopologies"] = random.choice(([], zones, zones))
        if not chance(random, 15):
            objects.append(storage_class)
    for index, name in enumerate(CLAIMS):
        kind = random.choice(("bound", "bound", "bound", "wait", "wait", "local", "now", "missing", "lost volume"))
        if kind != "missing":
            objects += _claim(random, name, kind, f"pv-{index}", node_names)
    for index in range(random.randint(0, 2)):
        objects.append(_volume(random, f"free-{index}", random.choice(("local", "wait")), node_names))
    if chance(random, 2):
        objects += _drivers(random, node_names)
    if chance(random, 3):
        objects += _rooms(random)
    return objects


def _claim(random: Random, name: str, kind: str, volume: str, node_names: Sequence[str]) -> list[Json]:
    metadata: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    claim: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "accessModes": [random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))],
            "resources": {"requests": {"storage": random.choice(_SIZES)}},
            "storageClassName": kind if kind in ("wait", "local", "now") else "wait",
        },
        "status": {"phase": "Pending"},
    }
    if kind in ("wait", "local"):
        sometimes(random, claim["spec"], "selector", lambda _: {"matchLabels": {"kind": "fast"}}, 8)
        if chance(random, 8):
            metadata["annotations"] = {"volume.kubernetes.io/selected-node": random.choice((*node_names, "absent"))}
    if kind not in ("bound", "lost volume"):
        return [claim]
    claim["spec"]["volumeName"] = volume
    metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"} if not chance(random, 15) else {}
    claim["status"]["phase"] = "Bound" if not chance(random, 20) else "Lost"
    if kind == "lost volume":
        return [claim]
    bound = _volume(random, volume, "wait", node_names) | {"status": {"phase": "Bound"}}
    bound["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
    }
    return [claim, bound]


def _volume(random: Random, name: str, storage_class: str, node_names: Sequence[str]) -> Json:
    tags: Json = {}
    sometimes(random, tags, ZONE, pick(("z1", "z2", "z1__z2", "z1__", "")), 3)
    sometimes(random, tags, REGION, pick(("r", "s")), 6)
    sometimes(random, tags, "kind", pick(("fast",)), 4)
    spec: Json = {
        "accessModes": random.choice((["ReadWriteOnce", "ReadWriteOncePod"], ["ReadWriteOnce"], ["ReadWriteMany"])),
        "capacity": {"storage": random.choice(("1Gi", "10Gi", "3Gi"))},
        "storageClassName": storage_class,
        "csi": {"driver": CSI_DRIVER, "volumeHandle": f"handle-{random.choice((name, name, 'same'))}"},
    }
    if chance(random, 4):
        del spec["csi"]
        spec |= random.choice(
            (
                {"awsElasticBlockStore": {"volumeID": "aws://z1/vol-1"}},
                {"awsElasticBlockStore": {"volumeID": "vol-1"}},
                {"gcePersistentDisk": {"pdName": "disk"}},
                {"hostPath": {"path": "/x"}},
                {"local": {"path": "/x"}},
            )
        )
    if chance(random, 3):
        requirement: Json = {"key": HOSTNAME, "operator": "In", "values": [random.choice(node_names)]}
        if chance(random, 2):
            requirement = {"key": ZONE, "operator": "In", "values": [random.choice(("z1", "z2"))]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    metadata = {"name": name, "labels": tags, "uid": f"uid-{name}"}
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def _drivers(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return CSINode objects of most nodes, CSIDriver objects and attachments."""
    objects: list[Json] = []
    for name in node_names:
        if chance(random, 6):
            continue
        drivers: list[Json] = []
        for driver in (CSI_DRIVER, "ebs.csi.aws.com", "pd.csi.storage.gke.io"):
            if chance(random, 2):
                drivers.append({"name": driver, "nodeID": name})
                sometimes(random, drivers[-1], "allocatable", lambda r: {"count": r.randint(0, 2)}, 2)
        migrated = random.choice(("", "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"))
        metadata: Json = {"name": name, "annotations": {_MIGRATED: migrated}}
        objects.append({"apiVersion": _STORAGE, "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}})
    if chance(random, 3):
        spec = {"preventPodSchedulingIfMissing": chance(random, 2), "storageCapacity": chance(random, 2)}
        objects.append({"apiVersion": _STORAGE, "kind": "CSIDriver", "metadata": {"name": CSI_DRIVER}, "spec": spec})
    if chance(random, 4):
        attached: Json = {
            "attacher": CSI_DRIVER,
            "nodeName": random.choice(node_names),
            "source": {"persistentVolumeName": f"pv-{random.randint(0, 3)}"},
        }
        attachment = {"apiVersion": _STORAGE, "kind": "VolumeAttachment", "metadata": {"name": "va"}, "spec": attached}
        objects.append({**attachment, "status": {"attached": True}})
    return objects


def _rooms(random: Random) -> list[Json]:
    """Return a driver that tells of its capacity, and what it tells."""
    objects: list[Json] = [
        {
            "apiVersion": _STORAGE,
            "kind": "CSIDriver",
            "metadata": {"name": CSI_DRIVER},
            "spec": {"storageCapacity": True},
        }
    ]
    for index in range(random.randint(0, 3)):
        room: Json = {"storageClassName": "wait", "capacity": random.choice(("2Gi", "7Gi", "10Gi", "100G"))}
        sometimes(random, room, "maximumVolumeSize", pick(("2Gi", "7Gi")), 4)
        topologies: tuple[Json | None, ...] = ({}, {"matchLabels": {ZONE: "z1"}}, {"matchLabels": {ZONE: "z2"}}, None)
        topology = random.choice(topologies)
        if topology is not None:
            room["nodeTopology"] = topology
        metadata = {"name": f"room-{index}", "namespace": "default"}
        objects.append({"apiVersion": _STORAGE, "kind": "CSIStorageCapacity", "metadata": metadata, **room})
    return objects


# -- devices -----------------------------------------------------------------------------------------------------------

DEVICE_DRIVER: Final = "gpu.example.com"
DEVICE_CLAIMS: Final = ("d0", "d1")
_RESOURCE = "resource.k8s.io/v1"
_BROKEN = [{"key": "broken", "effect": "NoSchedule"}]


def devices(random: Random, node_names: Sequence[str]) -> list[Json]:
    """Return device classes, slices of most nodes, and claims that are open, allocated or missing."""
    everything = _device_class(DEVICE_DRIVER, f"device.driver == '{DEVICE_DRIVER}'")
    if chance(random, 3):
        everything["spec"]["extendedResourceName"] = EXTENDED
    objects = [everything, _device_class("small.example.com", f"device.attributes['{DEVICE_DRIVER}'].model == 'x'")]
    offering = []
    for name in node_names:
        offered = _slices(random, name)
        objects += offered
        offering += [name] if offered else []
    for name in DEVICE_CLAIMS:
        if chance(random, 6):
            continue
        claim: Json = {
            "apiVersion": _RESOURCE,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"devices": {"requests": [_device_request(random, f"r{i}") for i in range(random.randint(1, 2))]}},
            "status": {},
        }
        if chance(random, 4):
            kind = random.choice(("matchAttribute", "distinctAttribute"))
            constraint: Json = {kind: f"{DEVICE_DRIVER}/{random.choice(('model', 'numa', 'absent'))}"}
            sometimes(random, constraint, "requests", lambda _: ["r0"], 3)
            claim["spec"]["devices"]["constraints"] = [constraint]
        if offering and chance(random, 5):
            where = offering.pop(random.randrange(len(offering)))
            field = {"key": "metadata.name", "operator": "In", "values": [where]}
            result = {"request": "r0", "driver": DEVICE_DRIVER, "pool": where, "device": "dev0"}
            selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            claim["status"]["allocation"] = {"devices": {"results": [result]}, "nodeSelector": selector}
        objects.append(claim)
    return objects


def _device_class(name: str, expression: str) -> Json:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {"apiVersion": _RESOURCE, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def _device_request(random: Random, name: str) -> Json:
    def exact() -> Json:
        classes = (DEVICE_DRIVER, DEVICE_DRIVER, DEVICE_DRIVER, "small.example.com", "none")
        result: Json = {"deviceClassName": random.choice(classes)}
        if chance(random, 4):
            result["allocationMode"] = "All"
        else:
            result |= {"allocationMode": "ExactCount", "count": random.randint(1, 2)}
        if chance(random, 3):
            model = random.choice("xy")
            expression = f"device.attributes['{DEVICE_DRIVER}'].model == '{model}'"
            result["selectors"] = [{"cel": {"expression": expression}}]
        sometimes(random, result, "tolerations", lambda _: [{"key": "broken", "operator": "Exists"}], 3)
        sometimes(random, result, "capacity", lambda r: {"requests": {"memory": str(r.randint(1, 5))}}, 8)
        return result

    if chance(random, 4):
        return {"name": name, "firstAvailable": [{"name": f"or{i}", **exact()} for i in range(2)]}
    wanted = exact()
    sometimes(random, wanted, "adminAccess", lambda _: True, 10)
    return {"name": name, "exactly": wanted}


def _slices(random: Random, name: str) -> list[Json]:
    found = []
    counted, shared = chance(random, 5), chance(random, 5)
    for i in range(random.randint(0, 3)):
        device: Json = {"name": f"dev{i}", "attributes": {"model": {"string": random.choice("xy")}}}
        device["attributes"]["numa"] = {"int": random.randint(0, 1)}
        sometimes(random, device, "taints", lambda _: _BROKEN, 5)
        if shared:
            device["capacity"] = {"memory": {"value": str(random.randint(2, 8))}}
            sometimes(random, device, "allowMultipleAllocations", lambda _: True, 2)
        if counted:
            counters = {"slots": {"value": str(random.randint(1, 2))}}
            device["consumesCounters"] = [{"counterSet": "board", "counters": counters}]
        found.append(device)
    if not found:
        return []
    parts: list[Json] = [{"devices": found}]
    if counted:
        parts.append({"sharedCounters": [{"name": "board", "counters": {"slots": {"value": "2"}}}]})
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts) + chance(random, 10)}
    return [
        {
            "apiVersion": _RESOURCE,
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{i}-{name}"},
            "spec": {"driver": DEVICE_DRIVER, "nodeName": name, "pool": pool, **part},
        }
        for i, part in enumerate(parts)
    ]
