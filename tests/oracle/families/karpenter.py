"""Karpenter's provisioning scheduler: which pods go to which nodes and node claims.

Left out of the draws, since upstream's answer is left to chance or the shape is not modelled (``docs/karpenter.md``):

* Several topologies of one pod over one label other than the host name. Upstream chooses a domain for each of them, any
  of those with equally few pods, and refuses the node if two chosen domains differ.
* Affinity over zones of a pod that no selector ties to a zone: the first pod of a group goes to any one domain, or to
  one of any two.
* Limits of the number of nodes that new nodes reach: upstream's scheduler does not count the nodes of its own round.
* DaemonSets with several terms of node affinity: upstream drops a term that one type does not meet for all later types
  and NodePools, too, so that the answer depends on their order.
* Reserved capacity, volumes, devices, and pods that the provisioner ignores before it asks the scheduler.
"""

from __future__ import annotations

from random import Random
from typing import Any

from oracle.drawing import HOSTNAME, PREFERRED, REQUIRED, ZONE, chance, pick, some, sometimes
from oracle.families import Kind

__all__ = ["KINDS"]

Json = dict[str, Any]

_AWS = "karpenter.k8s.aws/instance-"
_ARCH, _TYPE, _CAPACITY = "kubernetes.io/arch", "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
_TEAM = "example.com/team"
_NAMES = ("m5.large", "m5.xlarge", "m5.2xlarge", "c6i.large", "c6i.2xlarge", "m7g.xlarge", "r5.large", "c7g.4xlarge")
_CORES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}
_PRICES = (0.1, 0.1, 0.2, 0.2, 0.3, 0.4)
_FEATURES = (
    "requirements",
    "selectors",
    "preferences",
    "taints",
    "limits",
    "minValues",
    "nodes",
    "daemons",
    "ports",
    "spread",
    "affinity",
    "anti-affinity",
    "many",
)
_CPU = ("100m", "250m", "500m", "1", "1", "1500m", "2", "3")
_MEMORY = ("64Mi", "512Mi", "1Gi", "1Gi", "2Gi", "4Gi", "6Gi")
_TAINTS = tuple(
    {"key": key, "value": value, "effect": effect}
    for key, value in (("dedicated", "a"), ("dedicated", "b"), ("gpu", ""))
    for effect in ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
)


def _instance_type(random: Random, name: str, *, spot: bool) -> Json:
    family, _, size = name.partition(".")
    cores = _CORES[size]
    memory = cores * {"c": 2, "m": 4, "r": 8}[family[0]]
    generation = family[1]
    capacity = {"cpu": str(cores), "memory": f"{memory}Gi", "pods": random.choice(("110", "110", "4", "8"))}
    allocatable = dict(capacity)
    if chance(random, 2):
        allocatable |= {"cpu": f"{cores * 1000 - 100}m", "memory": f"{memory * 1024 - 512}Mi"}
    labels = {"category": family[0], "family": family, "generation": generation, "size": size}
    labels |= {"cpu": str(cores), "memory": str(memory * 1024)}
    return {
        "name": name,
        "arch": "arm64" if "g" in family[1:] else "amd64",
        "labels": {f"{_AWS}{key}": value for key, value in labels.items()},
        "absent": [f"{_AWS}gpu-count", f"{_AWS}gpu-name"],
        "capacity": capacity,
        "allocatable": allocatable,
        "price": random.choice(_PRICES),
        "spot": random.choice(_PRICES) / 2 if spot or chance(random, 2) else None,
    }


# -- requirements ------------------------------------------------------------------------------------------------------


def _values(random: Random, zones: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return a label and some of its values, of which one may be unknown."""
    choices: tuple[tuple[str, tuple[str, ...]], ...] = (
        (ZONE, (*zones, "zone-x")),
        (_ARCH, ("amd64", "arm64")),
        (_CAPACITY, ("spot", "on-demand")),
        (_TYPE, (*_NAMES, "x1.large")),
        (f"{_AWS}category", ("c", "m", "r")),
        (f"{_AWS}family", ("m5", "c6i", "m7g", "r5", "c7g")),
        (f"{_AWS}size", tuple(_CORES)),
        (_TEAM, ("red", "blue", "green")),
    )
    return random.choice(choices)


def _requirement(random: Random, zones: list[str], *, of_pool: bool) -> Json:
    if chance(random, 4):
        operators = ("Gt", "Lt", "Gte", "Lte") if of_pool else ("Gt", "Lt")
        key, bounds = random.choice(
            (
                (f"{_AWS}cpu", ("2", "4", "8", "3")),
                (f"{_AWS}generation", ("5", "6", "7")),
                (f"{_AWS}memory", ("8192", "16384")),
            )
        )
        return {"key": key, "operator": random.choice(operators), "values": [random.choice(bounds)]}
    key, values = _values(random, zones)
    operator = random.choice(("In", "In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist"))
    if operator == "DoesNotExist" and of_pool and chance(random, 2):
        key = random.choice((_TEAM, f"{_AWS}gpu-count"))
    result: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        several = max(1, len(values) - 1) if operator == "In" else 2
        result["values"] = random.sample(values, random.randint(1, min(several, len(values))))
    return result


def _term(random: Random, zones: list[str]) -> Json:
    return {"matchExpressions": [_requirement(random, zones, of_pool=False) for _ in range(random.choice((1, 1, 2)))]}


def _minimum(random: Random) -> Json:
    key = random.choice((_TYPE, f"{_AWS}family", f"{_AWS}category", f"{_AWS}size", _CAPACITY))
    return {"key": key, "operator": "Exists", "minValues": random.choice((1, 2, 2, 3))}


def _pool(random: Random, name: str, zones: list[str], features: frozenset[str]) -> Json:
    requirements: list[Json] = []
    if "requirements" in features:
        requirements = some(random, lambda r: _requirement(r, zones, of_pool=True), 0, 3)
    if "minValues" in features and chance(random, 2):
        requirements.append(_minimum(random))
    if chance(random, 4):
        requirements.append({"key": _TEAM, "operator": "In", "values": random.choice((["red"], ["red", "blue"]))})
    spec: Json = {
        "requirements": requirements,
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    if "taints" in features:
        sometimes(random, spec, "taints", lambda r: some(r, pick(_TAINTS), 1, 2), 2)
        sometimes(random, spec, "startupTaints", lambda r: some(r, pick(_TAINTS), 1, 1), 3)
    template: Json = {"spec": spec}
    if chance(random, 4):
        template["metadata"] = {"labels": {_TEAM: random.choice(("red", "blue"))}}
    result: Json = {"template": template}
    sometimes(random, result, "weight", pick((1, 10, 10, 50)), 2)
    if "limits" in features and chance(random, 2):
        limits = {"cpu": ("0", "4", "8", "10", "16"), "memory": ("8Gi", "16Gi", "40Gi"), "nodes": ("0", "1000")}
        keys = random.choice((["cpu"], ["cpu"], ["memory"], ["cpu", "memory"], ["nodes"], ["example.com/gpu"]))
        result["limits"] = {key: random.choice(limits.get(key, ("0", "1"))) for key in keys}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": result}


# -- pods --------------------------------------------------------------------------------------------------------------


def _selector(random: Random) -> Json:
    if chance(random, 8):
        return {"matchExpressions": [{"key": "app", "operator": random.choice(("Exists", "In")), "values": ["a", "b"]}]}
    return {"matchLabels": {"app": random.choice(("a", "a", "b"))}}


def _fixed(selector: Json) -> Json:
    for each in selector.get("matchExpressions", ()):
        if each["operator"] == "Exists":
            each.pop("values", None)
    return selector


def _spread(random: Random, keys: tuple[str, ...]) -> list[Json]:
    result = []
    for key in random.sample(keys, random.choice((1, 1, min(2, len(keys))))):
        constraint: Json = {
            "topologyKey": key,
            "maxSkew": random.choice((1, 1, 2)),
            "whenUnsatisfiable": random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": _fixed(_selector(random)),
        }
        if constraint["whenUnsatisfiable"] == "DoNotSchedule":
            sometimes(random, constraint, "minDomains", lambda r: r.randint(1, 4), 5)
        sometimes(random, constraint, "nodeAffinityPolicy", pick(("Honor", "Ignore")), 5)
        sometimes(random, constraint, "nodeTaintsPolicy", pick(("Honor", "Ignore")), 5)
        sometimes(random, constraint, "matchLabelKeys", pick((["rev"], ["none"])), 8)
        result.append(constraint)
    if chance(random, 3):  # several over host names never depend on each other
        result += [{**_spread(random, (HOSTNAME,))[0]}]
    random.shuffle(result)
    return result


def _pod_term(random: Random, key: str) -> Json:
    term: Json = {"topologyKey": key, "labelSelector": _fixed(_selector(random))}
    sometimes(random, term, "namespaces", pick((["default"], ["prod"], ["default", "prod"])), 6)
    sometimes(random, term, "namespaceSelector", pick(({}, {"matchLabels": {"team": "core"}})), 8)
    return term


def _terms(random: Random, keys: tuple[str, ...], *, preferred: bool) -> Json:
    result: Json = {}
    if not preferred or chance(random, 2):
        result[REQUIRED] = [_pod_term(random, random.choice(keys))]
    if preferred:
        result[PREFERRED] = [
            {"weight": random.choice((1, 5, 5, 100)), "podAffinityTerm": _pod_term(random, HOSTNAME)}
            for _ in range(random.choice((1, 1, 2)))
        ]
    return result


def _toleration(random: Random) -> Json:
    taint = random.choice(_TAINTS)
    result: Json = {"key": taint["key"], "operator": random.choice(("Exists", "Equal"))}
    if result["operator"] == "Equal":
        result["value"] = taint["value"]
    sometimes(random, result, "effect", pick((taint["effect"],)), 2)
    return random.choice((result, result, result, {"operator": "Exists", "effect": "PreferNoSchedule"}))


def _workload(random: Random, zones: list[str], features: frozenset[str], topology: dict[str, str]) -> Json:
    """Return labels and spec of equal pods. ``topology``: by label, the only kind of topology over it."""
    requests = {"cpu": random.choice(_CPU), "memory": random.choice(_MEMORY)}
    for name in random.sample(("cpu", "memory"), random.choice((0, 0, 0, 1))):
        del requests[name]
    container: Json = {"name": "c", "resources": {"requests": requests}}
    if "ports" in features and chance(random, 2):
        port: Json = {"containerPort": 80, "hostPort": random.choice((80, 80, 81)), "protocol": "TCP"}
        sometimes(random, port, "hostIP", pick(("10.0.0.1", "0.0.0.0", "10.0.0.2")), 3)
        container["ports"] = [port]
    spec: Json = {"containers": [container]}
    labels = {"app": random.choice(("a", "a", "b", "c"))}
    sometimes(random, labels, "rev", pick(("1", "2")), 3)
    affinity: Json = {}
    if "selectors" in features:
        if chance(random, 3):
            key, values = _values(random, zones)
            spec["nodeSelector"] = {key: random.choice(values)}
        if chance(random, 3):
            terms = some(random, lambda r: _term(r, zones), 1, 3)
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    if "preferences" in features and chance(random, 2):
        weighted = [
            {"weight": random.choice((1, 5, 5, 100)), "preference": _term(random, zones)}
            for _ in range(random.choice((1, 2, 3)))
        ]
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = weighted
    if "taints" in features and chance(random, 2):
        spec["tolerations"] = some(random, _toleration, 1, 2)
    for kind, field in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
        keys = tuple(key for key, of in topology.items() if of == kind)
        if kind in features and chance(random, 2):
            affinity[field] = _terms(random, (*keys, HOSTNAME), preferred="preferences" in features)
    if "spread" in features and chance(random, 2):
        keys = tuple(key for key, of in topology.items() if of == "spread")
        spec["topologySpreadConstraints"] = _spread(random, (*keys, HOSTNAME))
    if any(term["topologyKey"] == ZONE for term in affinity.get("podAffinity", {}).get(REQUIRED, ())):
        spec.setdefault("nodeSelector", {})[ZONE] = random.choice(zones)
    if affinity:
        spec["affinity"] = affinity
    return {"labels": labels, "spec": spec, "namespace": random.choice(("default", "default", "prod"))}


def _pod(name: str, workload: Json) -> Json:
    metadata: Json = {"name": name, "namespace": workload["namespace"], "uid": name, "labels": workload["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": workload["spec"]}


def _node(random: Random, name: str, zones: list[str], pools: list[str], features: frozenset[str]) -> Json:
    cores = random.choice((2, 4, 8))
    amounts = {"cpu": str(cores), "memory": f"{cores * 2}Gi", "pods": random.choice(("110", "3", "5"))}
    labels = {_ARCH: random.choice(("amd64", "amd64", "arm64")), "kubernetes.io/os": "linux", _TYPE: "m5.large"}
    labels |= {HOSTNAME: name, ZONE: random.choice(zones), _CAPACITY: random.choice(("spot", "on-demand"))}
    sometimes(random, labels, _TEAM, pick(("red", "blue")), 3)
    sometimes(random, labels, "karpenter.sh/nodepool", pick(pools), 2)
    if chance(random, 10):
        del labels[random.choice((ZONE, HOSTNAME, _CAPACITY))]
    spec: Json = {}
    if "taints" in features:
        sometimes(random, spec, "taints", lambda r: some(r, pick(_TAINTS), 1, 1), 3)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _daemon_set(random: Random, name: str, zones: list[str], features: frozenset[str]) -> Json:
    workload = _workload(random, zones, features - {"spread", "affinity", "anti-affinity", "preferences"}, {})
    affinity = workload["spec"].get("affinity", {}).get("nodeAffinity", {})
    if REQUIRED in affinity:
        del affinity[REQUIRED]["nodeSelectorTerms"][1:]
    container = workload["spec"]["containers"][0]
    container["resources"]["requests"] = {"cpu": random.choice(("100m", "500m", "1")), "memory": "256Mi"}
    template = {"metadata": {"labels": {"daemon": name}}, "spec": workload["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "uid": name},
        "spec": {"selector": {"matchLabels": {"daemon": name}}, "template": template},
    }


def _placed(random: Random, zones: list[str], features: frozenset[str], topology: dict[str, str], nodes: list[str],
            daemons: list[Json]) -> list[Json]:  # fmt: skip
    result = []
    for i in range(random.randint(0, 4)):
        pod = _pod(f"r{i}", _workload(random, zones, features, topology))
        pod["spec"] = {**pod["spec"], "nodeName": random.choice(nodes)}
        pod["status"] = {"phase": random.choice(("Running", "Running", "Running", "Succeeded"))}
        if chance(random, 8):
            pod["metadata"] |= {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["example.com/x"]}
        result.append(pod)
    for daemon in daemons:
        for node in nodes:
            if chance(random, 2):
                template, name = daemon["spec"]["template"], daemon["metadata"]["name"]
                owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": name, "controller": True}
                metadata = {"name": f"{name}-{node}", "namespace": "kube-system", "uid": f"{name}-{node}"}
                metadata |= {"labels": {"daemon": name}, "ownerReferences": [owner]}
                result.append(
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": metadata,
                        "spec": {**template["spec"], "nodeName": node},
                        "status": {"phase": "Running"},
                    }
                )
    return result


def draw_karpenter(random: Random) -> Json:
    """Return an input of the kind ``karpenter``."""
    chosen = set(_FEATURES) if chance(random, 20) else set(random.sample(_FEATURES, random.choice((1, 2, 3, 4))))
    features = frozenset(chosen)
    zones = [f"zone-{letter}" for letter in "abc"[: random.choice((1, 2, 3, 3))]]
    topology = {key: random.choice(("spread", "affinity", "anti-affinity")) for key in (ZONE, _TEAM)}
    if topology[_TEAM] == "affinity":
        topology[_TEAM] = "spread"
    if chance(random, 2):
        topology[_CAPACITY] = random.choice(("spread", "anti-affinity"))
    spot = _CAPACITY in topology
    names = random.sample(_NAMES, random.randint(2, len(_NAMES)))
    pool_names = ["a", "b", "c"][: random.choice((1, 1, 2, 2, 3))]
    pools = [_pool(random, name, zones, features) for name in pool_names]
    workloads = [_workload(random, zones, features, topology) for _ in range(random.choice((1, 2, 2, 3)))]
    count = random.randint(12, 40) if "many" in features else random.randint(1, 8)
    if "many" in features and chance(random, 6):  # enough nodes for each way of sorting them
        names, count = ["m5.large"], random.randint(60, 150)
    pods = [_pod(f"p{i:02}", random.choice(workloads)) for i in range(count)]
    if "many" in features:
        for pod in pods[:: random.choice((1, 2, 5))]:
            container = {"name": "c", "resources": {"requests": {"cpu": random.choice(("500m", "1", "1500m"))}}}
            pod["spec"] = {**pod["spec"], "containers": [container]}
    for pod in pods:
        sometimes(
            random, pod["metadata"], "creationTimestamp", pick(("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")), 4
        )
    random.shuffle(pods)
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (("default", {"team": "core"}), ("prod", {}), ("kube-system", {}))
    ]
    daemons = []
    if "daemons" in features:
        daemons = [_daemon_set(random, f"d{i}", zones, features) for i in range(random.randint(1, 2))]
    if "nodes" in features:
        nodes = [f"n{i}" for i in range(random.randint(1, 3))]
        objects += [_node(random, name, zones, pool_names, features) for name in nodes]
        objects += _placed(random, zones, features, topology, nodes, daemons)
    return {
        "zones": zones,
        "types": [_instance_type(random, name, spot=spot) for name in names],
        "pools": pools,
        "objects": [*objects, *daemons, *pods],
    }


_KEYS = (ZONE, "failure-domain.beta.kubernetes.io/zone", _ARCH, "beta.kubernetes.io/arch", _TEAM, "cores")
_BOUNDS = ("0", "1", "2", "3", "9", "9223372036854775807", "9223372036854775806")
_LABEL_VALUES = ("A", "B", "1", "2", "3", "9", "10", "0", "-1", "+2", "08", "1.5", "", "9223372036854775808")


def _any_requirement(random: Random) -> Json:
    operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"))
    result: Json = {"key": random.choice(_KEYS), "operator": operator}
    if operator in ("In", "NotIn"):
        result["values"] = random.sample(_LABEL_VALUES, random.randint(0 if operator == "NotIn" else 1, 4))
    elif operator not in ("Exists", "DoesNotExist"):
        result["values"] = [random.choice(_BOUNDS)]
    sometimes(random, result, "minValues", lambda r: r.randint(1, 3), 3)
    return result


def draw_requirements(random: Random) -> Json:
    """Return an input of the kind ``karpenter-requirements``."""
    return {
        "first": some(random, _any_requirement, 0, 4),
        "second": some(random, _any_requirement, 0, 4),
        "values": list(_LABEL_VALUES),
    }


KINDS = (
    Kind(
        "karpenter",
        "karpenter",
        draw_karpenter,
        program="karpenter",
        fixed=frozenset(
            {"zones", "apiVersion", "kind", "metadata", "name", "namespace", "uid", "operator", "key", "nodeClassRef",
             "capacity", "allocatable", "labels", "absent", "template", "containers", "price", "spot", "arch"}
        ),
    ),
    Kind(
        "karpenter-requirements",
        "karpenter",
        draw_requirements,
        program="karpenter",
        weight=3,
        fixed=frozenset({"key", "operator", "values"}),
    ),
)  # fmt: skip
