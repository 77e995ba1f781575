"""Random clusters and the problems posed to them.

`features` switches parts on: `plain` (resources, taints, node selection, declared features, in-place resize), `ports`,
`affinity`, `spread`, `volumes`, `dra`. Not among FEATURES are `hostile` (requests so large that they wrap) and
`profile` (plug-in arguments, disabled Filters, Services for default spread constraints).

A problem has the shape of a recorded input of the kinds `fit`, `estimate` and `filter-schedulable`, so whatever runs
those runs these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from strategies import devices, pieces
from strategies.pieces import HOSTNAME, NAMESPACES, NODE_NAMES, REGION, ZONE, ZONES, chance, set_sometimes

Json = dict[str, Any]

Features = tuple[str, ...]
FEATURES: Features = ("plain", "ports", "affinity", "spread", "volumes", "dra")
CLAIMS = ("c0", "c1", "c2", "c3")
CSI_DRIVER = "csi.example.com"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

RESOURCES = st.fixed_dictionaries({"requests": pieces.requests()})
HOSTILE = st.fixed_dictionaries({"requests": pieces.requests(hostile=True)})
OVERHEAD = st.fixed_dictionaries({"cpu": pieces.CPU})
PORTS = st.lists(pieces.host_ports(), max_size=2)
TOLERATIONS = st.lists(pieces.tolerations(), max_size=2)
TAINTS = st.lists(pieces.taints(), max_size=2)
NODE_TERMS = st.lists(pieces.node_terms(), max_size=2)
AFFINITY_TERMS = st.lists(pieces.affinity_terms(), min_size=1, max_size=2)
CONSTRAINTS = st.lists(pieces.spread_constraints(), min_size=1, max_size=2)
CLAIM = st.sampled_from(CLAIMS).map(lambda name: {"persistentVolumeClaim": {"claimName": name}})
POD_VOLUMES = st.lists(st.one_of(CLAIM, CLAIM, pieces.inline_disks()), min_size=1, max_size=2)


@cache
@st.composite
def containers(draw: st.DrawFn, features: Features, name: str) -> Json:
    container: Json = {"name": name, "image": "registry.example.com/app:1"}
    if "plain" in features:
        set_sometimes(draw, container, "resources", HOSTILE if "hostile" in features else RESOURCES, 1)
        if draw(chance(25)):
            container["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    if "ports" in features:
        set_sometimes(draw, container, "ports", PORTS, 3)
    return container


@cache
@st.composite
def pod_specs(draw: st.DrawFn, features: Features, eager: bool) -> Json:
    """An eager pod uses each feature about every second time."""

    spec: Json = {"containers": [draw(containers(features, f"c{i}")) for i in range(draw(st.integers(1, 2)))]}
    if draw(chance(5)):
        inits = []
        for index in range(draw(st.integers(1, 2))):
            init = draw(containers(features, f"i{index}"))
            set_sometimes(draw, init, "restartPolicy", st.just("Always"), 2)
            inits.append(init)
        spec["initContainers"] = inits
    if "plain" in features:
        set_sometimes(draw, spec, "overhead", OVERHEAD, 8)
        set_sometimes(draw, spec, "resources", RESOURCES, 10)
        set_sometimes(draw, spec, "tolerations", TOLERATIONS, 4)
        set_sometimes(draw, spec, "nodeSelector", st.sampled_from([{}, {ZONE: "z1"}, {"rack": "r1"}]), 6)
        if draw(chance(5)):
            terms = draw(NODE_TERMS)
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        if draw(chance(30)):
            spec |= {"hostNetwork": True, "hostUsers": False}
    if "affinity" in features:
        for kind, one_in in (("podAffinity", 3 if eager else 6), ("podAntiAffinity", 2 if eager else 4)):
            if draw(chance(one_in)):
                terms = draw(AFFINITY_TERMS)
                spec.setdefault("affinity", {})[kind] = {REQUIRED: terms}
    if "spread" in features:
        set_sometimes(draw, spec, "topologySpreadConstraints", CONSTRAINTS, 2 if eager else 4)
    if "volumes" in features and draw(chance(2 if eager else 3)):
        volumes = draw(POD_VOLUMES)
        spec["volumes"] = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    if "dra" in features and draw(chance(2 if eager else 4)):
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": draw(st.sampled_from(devices.CLAIMS))}]
    return spec


@cache
@st.composite
def pods(draw: st.DrawFn, name: str, features: Features, *, eager: bool = False) -> Json:
    namespace = (
        draw(st.sampled_from(["default", "default", *NAMESPACES]))
        if "affinity" in features or "spread" in features
        else "default"
    )
    metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    set_sometimes(draw, metadata, "labels", pieces.labels(), 1)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": draw(pod_specs(features, eager)),
        "status": {},
    }


@st.composite
def placed_pods(draw: st.DrawFn, name: str, nodes: list[str], features: Features) -> Json:
    pod = draw(pods(name, features))
    if draw(chance(12)):
        pod["status"]["nominatedNodeName"] = draw(st.sampled_from([*nodes, "gone"]))
    else:
        pod["spec"]["nodeName"] = draw(st.sampled_from(nodes))
    set_sometimes(draw, pod["metadata"], "deletionTimestamp", st.just("2026-01-01T00:00:00Z"), 8)
    if "plain" in features and draw(chance(6)):
        draw_resize(draw, pod)
    return pod


def draw_resize(draw: st.DrawFn, pod: Json) -> None:
    """Status resources of containers and of the pod, and perhaps a resize that cannot happen."""
    status = pod["status"]
    entries = []
    for container in pod["spec"]["containers"]:
        entry: Json = {"name": container["name"], "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        set_sometimes(draw, entry, "allocatedResources", pieces.requests(), 2)
        set_sometimes(draw, entry, "resources", RESOURCES, 2)
        entries.append(entry)
    status["containerStatuses"] = entries
    set_sometimes(draw, status, "allocatedResources", pieces.requests(), 3)
    set_sometimes(draw, status, "resources", RESOURCES, 3)
    if draw(chance(3)):
        reason = draw(st.sampled_from(["Infeasible", "Deferred"]))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]


@cache
@st.composite
def nodes(draw: st.DrawFn, name: str, features: Features) -> Json:
    labels: Json = {HOSTNAME: name}
    if draw(st.integers(0, 7)):
        labels |= {ZONE: draw(st.sampled_from(ZONES)), REGION: "r"}
        set_sometimes(draw, labels, "topology.ebs.csi.aws.com/zone", st.just(labels[ZONE]), 2)
    set_sometimes(draw, labels, "rack", st.sampled_from(["r1", "r2"]), 3)
    set_sometimes(draw, labels, "cores", st.sampled_from(["4", "8", "+6", "6.0"]), 3)
    capacity: Json = {
        "cpu": draw(st.sampled_from(["1", "2", "4", "350m"])),
        "memory": draw(st.sampled_from(["1Gi", "2Gi", "4Gi"])),
        "pods": draw(st.sampled_from(["110", "4", "2"])),
        "ephemeral-storage": "1Gi",
    }
    set_sometimes(draw, capacity, pieces.EXTENDED, pieces.COUNT, 3)
    set_sometimes(draw, capacity, "hugepages-2Mi", st.just("4Mi"), 5)
    spec: Json = {}
    status: Json = {
        "capacity": dict(capacity),
        "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    if "plain" in features:
        set_sometimes(draw, spec, "taints", TAINTS, 4)
        set_sometimes(draw, spec, "unschedulable", st.booleans(), 8)
        features_declared = [["RestartAllContainersOnContainerExits"], ["UserNamespacesHostNetworkSupport"]]
        set_sometimes(draw, status, "declaredFeatures", st.sampled_from(features_declared), 4)
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def namespace_objects() -> list[Json]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in (("default", {"team": "core"}), ("prod", {"team": "lab"}))
    ]


@st.composite
def volume_objects(draw: st.DrawFn, node_names: list[str]) -> list[Json]:
    """Classes, and in the default namespace claims that are bound, waiting, immediate, or missing."""
    objects: list[Json] = []
    topologies = [None, [], [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]]
    for name, provisioner, mode in (
        ("wait", CSI_DRIVER, "WaitForFirstConsumer"),
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("now", CSI_DRIVER, "Immediate"),
    ):
        storage_class: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        storage_class |= {"provisioner": provisioner, "volumeBindingMode": mode}
        allowed = draw(st.sampled_from(topologies))
        if allowed is not None and name == "wait":
            storage_class["allowedTopologies"] = allowed
        objects.append(storage_class)
    for index, name in enumerate(CLAIMS):
        kind = draw(st.sampled_from([*["bound"] * 5, "wait", "wait", "local", "now", "missing", "lost volume"]))
        if kind == "missing":
            continue
        claim: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "accessModes": [draw(st.sampled_from(["ReadWriteOnce", "ReadWriteOncePod"]))],
                "resources": {"requests": {"storage": draw(st.sampled_from(["1Gi", "5Gi"]))}},
                "storageClassName": kind if kind in ("wait", "local", "now") else "wait",
            },
            "status": {"phase": "Pending"},
        }
        objects.append(claim)
        if kind in ("bound", "lost volume"):
            claim["spec"]["volumeName"] = f"pv-{index}"
            claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            claim["status"]["phase"] = "Bound"
        if kind == "bound":
            holder = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": f"uid-{name}"}
            objects.append(draw(volumes(f"pv-{index}", "wait", node_names)) | {"status": {"phase": "Bound"}})
            objects[-1]["spec"]["claimRef"] = holder
    free = range(draw(st.integers(0, 2)))
    objects += [draw(volumes(f"free-{index}", "local", node_names)) for index in free]
    if draw(st.booleans()):
        for name in node_names:
            drivers = [{"name": CSI_DRIVER, "nodeID": name, "allocatable": {"count": draw(st.integers(1, 2))}}]
            if draw(chance(2)):
                drivers.append(
                    {"name": "ebs.csi.aws.com", "nodeID": name, "allocatable": {"count": draw(st.integers(0, 1))}}
                )
            objects.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": name, "annotations": {MIGRATED: draw(st.sampled_from(MIGRATIONS))}},
                    "spec": {"drivers": drivers if draw(st.integers(0, 3)) else []},
                }
            )
        if draw(chance(3)):
            driver: Json = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": CSI_DRIVER}}
            objects.append(driver | {"spec": {"preventPodSchedulingIfMissing": draw(st.booleans())}})
    return objects


MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
MIGRATIONS = ("", "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs")
IN_TREE_SOURCES: tuple[Json, ...] = (
    {"awsElasticBlockStore": {"volumeID": "aws://z1/vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"gcePersistentDisk": {"pdName": "disk"}},
)


@st.composite
def volumes(draw: st.DrawFn, name: str, storage_class: str, node_names: list[str]) -> Json:
    labels: Json = {}
    set_sometimes(draw, labels, ZONE, st.sampled_from(["z1", "z2", "z1__z2", ""]), 1)
    spec: Json = {
        "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        "capacity": {"storage": draw(st.sampled_from(["1Gi", "10Gi"]))},
        "storageClassName": storage_class,
        "csi": {"driver": CSI_DRIVER, "volumeHandle": f"handle-{name}"},
    }
    if draw(chance(3)):
        del spec["csi"]
        spec |= draw(st.sampled_from(IN_TREE_SOURCES))
    if draw(chance(3)):
        requirement = {"key": HOSTNAME, "operator": "In", "values": [draw(st.sampled_from(node_names))]}
        if draw(st.booleans()):
            requirement = {"key": ZONE, "operator": "In", "values": [draw(st.sampled_from(["z1", "z2"]))]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    metadata = {"name": name, "labels": labels}
    status = {"phase": "Available"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


SERVICES = [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{index}", "namespace": namespace}, "spec": spec}
    for index, (namespace, spec) in enumerate(
        [
            ("default", {"selector": {"app": "a"}}),
            ("default", {"selector": {"rev": "1"}}),
            ("prod", {"selector": {"app": "b"}}),
            ("default", {}),
            ("default", {"selector": {}}),
        ]
    )
]


@cache
@st.composite
def profiles(draw: st.DrawFn) -> Json:
    """Options of the scheduler profile."""
    options: Json = {}
    added = {REQUIRED: {"nodeSelectorTerms": draw(NODE_TERMS)}}
    set_sometimes(draw, options, "added_affinity", st.just(added), 5)
    defaults = [
        {"topologyKey": key, "maxSkew": draw(st.integers(1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
        for key in draw(st.lists(st.sampled_from([ZONE, HOSTNAME, "rack"]), unique=True, max_size=2))
    ]
    set_sometimes(draw, options, "default_constraints", st.just(defaults), 1)
    set_sometimes(draw, options, "ignored_resources", st.just([pieces.EXTENDED]), 4)
    set_sometimes(draw, options, "ignored_resource_groups", st.just(["example.com"]), 6)
    plugins = ["NodeResourcesFit", "TaintToleration", "PodTopologySpread", "NodeName"]
    set_sometimes(draw, options, "disabled_filters", st.lists(st.sampled_from(plugins), max_size=2, unique=True), 5)
    return options


@cache
@st.composite
def clusters(draw: st.DrawFn, features: Features = FEATURES, *, max_nodes: int = 4, max_pods: int = 6) -> Json:
    """`objects` and `options`: nodes, placed pods, and what the informers hold."""
    names = list(NODE_NAMES[: draw(st.integers(1, max_nodes))])
    objects = [draw(nodes(name, features)) for name in names]
    objects += [draw(placed_pods(f"p{i}", names, features)) for i in range(draw(st.integers(0, max_pods)))]
    options: Json = {}
    set_sometimes(draw, options, "cursor", st.integers(0, max_nodes), 2)
    if "profile" in features:
        options |= draw(profiles())
        objects += draw(st.lists(st.sampled_from(SERVICES), max_size=2, unique_by=str))
    if "affinity" in features:
        objects += namespace_objects()
    if "volumes" in features:
        objects += draw(volume_objects(names))
    if "dra" in features:
        objects += draw(devices.device_objects(names, extended="plain" in features))
        options["dra"] = True
    return {"objects": objects, "options": options}


@cache
@st.composite
def fit_problems(draw: st.DrawFn, features: Features = FEATURES, *, max_nodes: int = 4) -> Json:
    """One pending pod against a cluster (recorded kind `fit`)."""
    problem = draw(clusters(features, max_nodes=max_nodes))
    problem["pod"] = draw(pods("new", features, eager=True))
    if "plain" in features:
        set_sometimes(draw, problem["pod"]["spec"], "nodeName", st.sampled_from([*NODE_NAMES[:2], "gone"]), 15)
    return problem


def controlled(pod: Json, controller: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": controller, "uid": f"uid-{controller}"}
    pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return pod


@cache
@st.composite
def pending_pods(draw: st.DrawFn, features: Features, *, max_shapes: int, max_copies: int) -> list[Json]:
    """A few shapes, several copies each; most belong to a controller, and two shapes may share one."""
    elements = []
    for index in range(draw(st.integers(1, max_shapes))):
        pod = draw(pods(f"w{index}", features))
        if draw(st.integers(0, 4)):
            controlled(pod, f"rs{draw(st.integers(0, 1))}")
        elements.append({"count": draw(st.integers(1, max_copies)), "pod": pod})
    return elements


NODE_GROUP = st.fixed_dictionaries(
    {"id": st.just("ng"), "max_size": st.integers(0, 6), "target_size": st.integers(0, 4)}
)


@cache
@st.composite
def estimate_options(draw: st.DrawFn) -> Json:
    options: Json = {}
    thresholds = st.lists(st.sampled_from(["static", "sng", "cluster"]), unique=True)
    set_sometimes(draw, options, "thresholds", thresholds, 2)
    set_sometimes(draw, options, "max_nodes", st.integers(-1, 4), 2)
    options["node_group"] = draw(NODE_GROUP)
    set_sometimes(draw, options, "similar_node_groups", st.lists(NODE_GROUP, max_size=2), 3)
    set_sometimes(draw, options, "cluster_max_nodes", st.integers(-1, 8), 2)
    set_sometimes(draw, options, "current_node_count", st.integers(0, 6), 2)
    set_sometimes(draw, options, "fast_path", st.just(True), 2)
    return options


@cache
@st.composite
def estimate_problems(draw: st.DrawFn, features: Features = FEATURES, *, max_copies: int = 8) -> Json:
    """One or two estimates on one snapshot (recorded kind `estimate`)."""
    problem = draw(clusters(features, max_nodes=3, max_pods=3))
    estimates = []
    for index in range(draw(st.integers(1, 2))):
        template: Json = {"node": draw(nodes("tmpl", features))}
        if draw(chance(3)):
            daemon = draw(pods("ds", tuple(feature for feature in features if feature != "dra")))
            daemon["spec"]["nodeName"] = "tmpl"
            template["pods"] = [daemon]
        if "dra" in features:
            template["resource_slices"] = draw(devices.slices("tmpl"))
        pending = draw(pending_pods(features, max_shapes=3, max_copies=max_copies))
        for element in pending:
            element["pod"]["metadata"]["name"] += f"-{index}"
        estimates.append({"template": template, "pods": pending, "options": draw(estimate_options())})
    problem["estimates"] = estimates
    return problem


@cache
@st.composite
def filter_problems(draw: st.DrawFn, features: Features = FEATURES, *, max_copies: int = 4) -> Json:
    """One to three rounds of filter-out-schedulable (recorded kind `filter-schedulable`)."""
    world = draw(clusters(features, max_nodes=4, max_pods=4))
    rounds: list[Json] = []
    for index in range(draw(st.integers(1, 3))):
        elements = draw(pending_pods(features, max_shapes=3, max_copies=max_copies))
        pending = []
        for element in elements:
            set_sometimes(draw, element["pod"]["spec"], "priority", st.sampled_from([0, 10, -5]), 2)
            for copy_index in range(element["count"]):
                metadata = element["pod"]["metadata"]
                name = f"{metadata['name']}-{copy_index}"
                metadata = {**metadata, "name": name, "uid": f"uid-{metadata['namespace']}-{name}"}
                pending.append({**element["pod"], "metadata": metadata})
        one: Json = {"pods": draw(st.permutations(pending))}
        if index == 0:
            one["objects"] = world["objects"]
        set_sometimes(draw, one, "unacceptable_nodes", st.lists(st.sampled_from(NODE_NAMES[:4]), max_size=1), 4)
        set_sometimes(draw, one, "max_looks", st.integers(0, 12), 4)
        rounds.append(one)
    return {"options": world["options"], "rounds": rounds}
