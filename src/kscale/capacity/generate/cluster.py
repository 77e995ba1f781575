"""Generates a realistic cluster from a seed. Workloads are drawn first, objects are built when they are read.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

from kscale.capacity.generate.nodes import (
    CREATED,
    POOL_LABEL,
    Node,
    Pool,
    SplitMix64,
    child_uid,
    make_nodes,
    make_pools,
)
from kscale.capacity.generate.pods import pod_labels, pod_manifest, pod_template, template_of
from kscale.capacity.generate.workloads import (
    PRIORITIES,
    VOLUMES_PER_NODE,
    Placement,
    Workload,
    draw_workload,
    system_workloads,
)
from kscale.errors import InputError
from kscale.objects.argument_types import typed

__all__ = ["GeneratedCluster", "claims_of", "controllers_of", "generate", "preamble"]


_DRIVER = "ebs.csi.aws.com"
_CLAIMS = 1 << 40  # first child number of claims; those of pods start at 0


def _meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    """Build ``metadata`` with the creation time of all generated objects, and the fields in ``more``.

    An empty namespace is left out.
    """
    meta: dict[str, Any] = {"name": name, "creationTimestamp": CREATED}
    if namespace:
        meta["namespace"] = namespace
    return meta | more


def preamble(namespaces: list[str], nodes: list[Node], volumes_per_node: int) -> Iterator[dict[str, Any]]:
    """Yield the cluster-wide objects except nodes and volumes, as dicts.

    These are namespaces, priority classes, the storage class, its CSI driver and the CSINodes.
    """
    for namespace in namespaces:
        labels = {"kubernetes.io/metadata.name": namespace}
        yield {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": _meta(namespace, labels=labels),
            "status": {"phase": "Active"},
        }
    for name, value in PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": _meta(name),
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": _meta("gp3", annotations={"storageclass.kubernetes.io/is-default-class": "true"}),
        "provisioner": _DRIVER,
        "parameters": {"type": "gp3"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": _meta(_DRIVER),
        "spec": {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": False},
    }
    for node in nodes:
        driver = {
            "name": _DRIVER,
            "nodeID": node.instance_id,
            "topologyKeys": ["kubernetes.io/os", "topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"],
            "allocatable": {"count": volumes_per_node},
        }
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": _meta(node.name),
            "spec": {"drivers": [driver]},
        }


def controllers_of(workload: Workload) -> Iterator[dict[str, Any]]:
    """Yield, as dicts, the workload's controller, a Deployment's ReplicaSet, and the PodDisruptionBudget if any."""
    selector = {"matchLabels": pod_labels(workload)}
    template = pod_template(workload)
    ready = len(workload.running)
    meta = _meta(workload.name, workload.namespace, uid=workload.uid, generation=1, labels=pod_labels(workload))
    counts = {"replicas": workload.replicas, "readyReplicas": ready, "availableReplicas": ready}
    if workload.kind == "DaemonSet":
        status = {"desiredNumberScheduled": ready, "currentNumberScheduled": ready, "numberReady": ready}
        status["numberMisscheduled"] = 0  # the API server requires this field
        spec: dict[str, Any] = {"selector": selector, "template": template}
        yield {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec, "status": status}
    elif workload.kind == "Job":
        spec = {"parallelism": workload.replicas, "completions": workload.replicas, "template": template}
        status = {"active": workload.replicas, "ready": ready}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}
    elif workload.kind == "StatefulSet":
        claim = {"metadata": {"name": "data"}, "spec": _claim_spec(workload)}
        spec = {
            "replicas": workload.replicas,
            "serviceName": workload.name,
            "selector": selector,
            "template": template,
            "volumeClaimTemplates": [claim],
        }
        yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec, "status": counts}
    else:
        spec = {"replicas": workload.replicas, "selector": selector, "template": template}
        yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec, "status": counts}
        yield _build_replica_set(workload, template, counts)
    if workload.disrupts:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _meta(workload.name, workload.namespace),
            "spec": {"maxUnavailable": workload.disrupts, "selector": selector},
            "status": {
                "currentHealthy": ready,
                "desiredHealthy": max(0, workload.replicas - workload.disrupts),
                "disruptionsAllowed": max(0, ready - max(0, workload.replicas - workload.disrupts)),
                "expectedPods": workload.replicas,
            },
        }


def _build_replica_set(workload: Workload, template: dict[str, Any], status: dict[str, int]) -> dict[str, Any]:
    """Build the ReplicaSet of a Deployment, with the pod template's spec and the status."""
    labels = {**pod_labels(workload), "pod-template-hash": workload.template_hash}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": workload.name,
        "uid": workload.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name = f"{workload.name}-{workload.template_hash}"
    spec = {
        "replicas": workload.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    meta = _meta(name, workload.namespace, uid=workload.owner_uid, labels=labels, ownerReferences=[owner])
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec, "status": status}


def _claim_spec(workload: Workload) -> dict[str, Any]:
    """Build the spec of the claim of one of the workload's pods, without the name of its volume."""
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "gp3",
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": f"{workload.storage_gib}Gi"}},
    }


_BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
"""Annotations that the volume controller sets on a bound claim: without them the scheduler waits for the claim."""


def claims_of(workload: Workload, nodes: list[Node]) -> Iterator[dict[str, Any]]:
    """Yield two objects for each running pod of a StatefulSet: its PersistentVolumeClaim and the volume bound to it.

    The volume can only be used in the zone of the pod's node. ``workload`` must be a StatefulSet with storage.
    """
    for ordinal, node_index in enumerate(workload.running.tolist()):
        claim = f"data-{workload.name}-{ordinal}"
        uid = child_uid(workload.uid, _CLAIMS + ordinal)
        size, zone = f"{workload.storage_gib}Gi", nodes[node_index].zone
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _meta(
                claim, workload.namespace, uid=uid, labels=pod_labels(workload), annotations=dict(_BOUND)
            ),
            "spec": {**_claim_spec(workload), "volumeName": f"pvc-{uid}"},
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}},
        }
        term = {
            "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}],
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": _meta(f"pvc-{uid}", annotations={"pv.kubernetes.io/provisioned-by": _DRIVER}),
            "spec": {
                "capacity": {"storage": size},
                "csi": {"driver": _DRIVER, "volumeHandle": f"vol-0{uid.replace('-', '')[-16:]}", "fsType": "ext4"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": workload.namespace,
                    "name": claim,
                    "uid": uid,
                },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "gp3",
                "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Bound"},
        }


_MOST_PODS_PER_NODE = 250
_MOST_NODES = 1_000_000
_MOST_PODS = 100_000_000
_WHY_PENDING = ("room", "room", "taint", "room", "recent", "zone", "room", "size", "room", "room")


@typed
def generate(
    nodes: int, pods: int, *, seed: int = 0, pending: int | None = None, lean: bool = False
) -> GeneratedCluster:
    """Generate a cluster of ``nodes`` nodes and exactly ``pods`` pods.

    Parameters
    ----------
    nodes, pods : int
        Number of nodes and of pods, pending pods included.
    seed : int
        The same arguments give the same objects on every platform; another seed gives others.
    pending : int, optional
        Number of pods without a node. Default: a tenth of the pods.
    lean : bool
        Omit what no autoscaler reads (managedFields, probes, environment): 1.5 KB per pod instead of 6 KB.

    Returns
    -------
    GeneratedCluster
        The cluster; its objects are built when they are read.

    Raises
    ------
    InputError
        For invalid numbers, for more than 1,000,000 nodes or 100,000,000 pods, or if the nodes cannot hold the pods.

    Notes
    -----
    Running pods are placed legally: requests, taints, selectors, spread, anti-affinity and host ports hold. Pods are
    pending for several reasons: too large for any node, a taint, a zone without nodes, lack of room; some are only
    recent and would fit.
    """
    if nodes < 1 or pods < 0 or not 0 <= (pending or 0) <= pods:
        raise InputError("generate: needs nodes >= 1, pods >= 0 and 0 <= pending <= pods")
    if nodes > _MOST_NODES or pods > _MOST_PODS:
        raise InputError(f"generate: makes at most {_MOST_NODES:,} nodes and {_MOST_PODS:,} pods")
    n_pending = pods // 10 if pending is None else pending
    if pods - n_pending > (_MOST_PODS_PER_NODE - 20) * nodes:
        raise InputError(f"generate: {nodes} nodes hold at most {(_MOST_PODS_PER_NODE - 20) * nodes} running pods")
    return _Builder(nodes, pods, seed).build(n_pending, lean)


class GeneratedCluster:
    """The result of :func:`generate`. Iterate over its objects, or write them to a file as one ``List``."""

    def __init__(
        self,
        pools: list[tuple[Pool, int]],
        nodes: list[Node],
        workloads: list[Workload],
        max_pods: int,
        seed: int,
        lean: bool,
    ) -> None:
        self._pools = pools
        self._nodes = nodes
        self._workloads = workloads
        self._max_pods = max_pods
        self._seed = seed
        self._lean = lean

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of nodes, running pods, pending pods and workloads, by these names."""
        return {
            "nodes": len(self._nodes),
            "running": sum(len(w.running) for w in self._workloads),
            "pending": sum(w.pending for w in self._workloads),
            "workloads": len(self._workloads),
        }

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield every object as a new dict, in the order of :meth:`texts`."""
        for text in self.texts():
            yield msgspec.json.decode(text)

    def texts(self) -> Iterator[str]:
        """Yield every object as JSON text: cluster-wide objects, nodes, controllers and claims, then pods."""
        encode = msgspec.json.Encoder().encode
        namespaces = sorted({w.namespace for w in self._workloads} | {"default", "kube-system"})
        for manifest in preamble(namespaces, self._nodes, VOLUMES_PER_NODE):
            yield encode(manifest).decode()
        for node in self._nodes:
            yield encode(node.manifest(self._max_pods, lean=self._lean)).decode()
        for workload in self._workloads:
            for manifest in controllers_of(workload):
                yield encode(manifest).decode()
            if workload.storage_gib:
                for manifest in claims_of(workload, self._nodes):
                    yield encode(manifest).decode()
        # Pods use a separate random stream: their names do not depend on the other objects.
        rng = SplitMix64(self._seed ^ 0x706F6473)
        for workload in self._workloads:
            yield from self._pods(workload, rng)

    def _pods(self, workload: Workload, rng: SplitMix64) -> Iterator[str]:
        """Yield the pods of a workload as JSON texts, running ones first."""
        running = template_of(pod_manifest(workload, running=True, lean=self._lean))
        pending = template_of(pod_manifest(workload, running=False, lean=self._lean)) if workload.pending else running
        owner = f"{workload.name}-{workload.template_hash}" if workload.kind == "Deployment" else workload.name
        ordinals = workload.kind == "StatefulSet"
        values = dict.fromkeys(("node", "host_ip", "pod_ip"), "")
        suffixes = rng.suffixes(workload.replicas)
        for ordinal, node_index in enumerate([*workload.running.tolist(), *[-1] * workload.pending]):
            values["ordinal"] = str(ordinal)
            values["name"] = f"{owner}-{ordinal}" if ordinals else f"{owner}-{next(suffixes)}"
            values["uid"] = child_uid(workload.owner_uid, ordinal)
            if node_index < 0:
                yield pending(values)
                continue
            node, bits = self._nodes[node_index], rng.bits()
            values["node"], values["host_ip"] = node.name, node.address
            values["pod_ip"] = f"10.{128 + (bits & 127)}.{bits >> 8 & 255}.{bits >> 16 & 255}"
            yield running(values)

    def write(self, file: IO[bytes], *, progress: Callable[[int], None] | None = None) -> int:
        """Write all objects as one ``v1`` ``List``, one object per line; return the number of bytes.

        ``progress`` is called after every 512 objects with the number of objects written so far.
        """
        total = file.write(b'{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[\n')
        batch: list[str] = []
        first, written = True, 0
        for text in self.texts():
            batch.append(text)
            if len(batch) == 512:
                total += file.write((b"" if first else b",\n") + ",\n".join(batch).encode())
                written += len(batch)
                if progress is not None:
                    progress(written)
                batch, first = [], False
        if batch:
            total += file.write((b"" if first else b",\n") + ",\n".join(batch).encode())
        return total + file.write(b"\n]}\n")

    def groups(self) -> list[dict[str, Any]]:
        """Return the entries of a groups file for the cluster's pools; each is modelled on an existing node."""
        out: list[dict[str, Any]] = []
        start = 0
        for pool, size in self._pools:
            out.append(
                {
                    "id": pool.name,
                    "min": 0,
                    "max": max(10, 3 * size),
                    "target": size,
                    "fromNode": self._nodes[start].name,
                    "nodeSelector": {POOL_LABEL: pool.name},
                    "price": pool.instance.price if not pool.spot else round(pool.instance.price * 0.4, 4),
                }
            )
            start += size
        return out


class _Builder:
    """Draws the workloads of a generated cluster and places their pods."""

    def __init__(self, n_nodes: int, n_pods: int, seed: int) -> None:
        self._rng = SplitMix64(seed)
        self._n_pods = n_pods
        self.pools = make_pools(n_nodes)
        self.nodes = make_nodes(self.pools, self._rng)
        self._seed = seed
        # The usual limit of a large instance, or, with many pods, that of prefix delegation.
        self.max_pods = 110 if n_pods <= 80 * n_nodes else _MOST_PODS_PER_NODE
        self._placement = Placement(self.nodes, self.max_pods)
        self._workloads: list[Workload] = []
        self._n_waiting = 0
        self._typical = min(60, max(8, n_pods // 400))

    def build(self, pending: int, lean: bool) -> GeneratedCluster:
        """Build the cluster: draw the system's workloads, others until all pods but ``pending`` run, then pending ones.

        ``lean``: as for :func:`generate`. Raises InputError if the nodes cannot hold the pods.
        """
        left = self._n_pods - pending
        for workload, replicas in system_workloads(len(self.nodes), min(left, self._n_pods * 15 // 100), self._rng):
            if workload.kind == "DaemonSet":
                workload.running = self._placement.place_everywhere(workload)
            else:
                workload.running = self._placement.place(workload, min(replicas, left), self._rng)
            left -= len(workload.running)
            self._add_workload(workload)
        failures = 0
        while left:
            workload, replicas = self._draw(left)
            if failures:  # workloads that do not fit are drawn again, smaller and without rules
                workload.containers[0].cpu = max(1, workload.containers[0].cpu >> (2 * failures))
                workload.containers[0].memory_mib = max(4, workload.containers[0].memory_mib >> (2 * failures))
            if failures > 2:
                workload.zones, workload.classes, workload.spread, workload.gpu = (), (), "", 0
                workload.anti_affinity, workload.host_port = "", 0
                workload.tolerates = ("spot", "dedicated", "nvidia.com/gpu")
            workload.running = self._placement.place(workload, min(replicas, left), self._rng)
            left -= len(workload.running)
            failures = 0 if len(workload.running) else failures + 1
            if failures > 20:
                raise InputError(f"generate: {len(self.nodes)} nodes cannot hold {self._n_pods} pods")
            self._add_workload(workload)
        limit = max(1, pending // 12)  # limit per workload, so that all reasons occur
        while pending:
            pending -= self._add_pending_workload(min(pending, limit))
        return GeneratedCluster(self.pools, self.nodes, self._workloads, self.max_pods, self._seed, lean)

    def _add_workload(self, workload: Workload) -> None:
        """Add a workload to the cluster unless it has no pods."""
        if workload.replicas:
            self._workloads.append(workload)

    def _draw(self, left: int) -> tuple[Workload, int]:
        """Draw (workload, number of pods), sized so that ``left`` more pods fill about 92 % of the remaining room."""
        free = self._placement.ordinary_free
        cpu, memory = (int(free[r]) * 92 // 100 // max(left, 1) for r in (0, 1))
        cap = self._placement.largest
        return draw_workload(
            len(self._workloads), min(cpu, cap[0] // 4), min(memory, cap[1] // 4), self._typical, self._rng
        )

    def _add_pending_workload(self, max_pods: int) -> int:
        """Add a workload whose pods are all pending, at most ``max_pods`` of them; return how many it has."""
        reason = _WHY_PENDING[self._n_waiting % len(_WHY_PENDING)]
        self._n_waiting += 1
        workload, replicas = self._draw(max(max_pods, len(self.nodes)))
        while workload.kind != "Deployment" or workload.host_port:
            workload, replicas = self._draw(max(max_pods, len(self.nodes)))
        app = workload.containers[0]
        if reason == "taint":
            workload.classes, workload.tolerates, workload.zones, workload.gpu = ("compute",), (), (), 0
        elif reason == "zone":
            workload.classes, workload.tolerates, workload.zones, workload.gpu = (), (), ("us-east-1f",), 0
        elif reason == "size":
            app.cpu, app.memory_mib = self._rng.choice(((64000, 98304), (32000, 262144), (2000, 524288)))
            replicas = min(replicas, 2)
        elif reason == "recent":
            app.cpu, app.memory_mib = min(app.cpu, 50), min(app.memory_mib, 128)
            workload.classes, workload.zones, workload.gpu = (), (), 0
        elif reason == "room":
            free = self._placement.free[self._placement.eligible(workload)]
            if free.size:
                # Slightly more than any eligible node has free, in steps of half a core.
                app.cpu = max(app.cpu, (int(free[:, 0].max()) // 500 + 1) * 500)
                largest = self._placement.total[self._placement.eligible(workload)].max(axis=0)
                app.cpu = max(10, min(app.cpu, int(largest[0]) // 500 * 500 - 500))
                memory = app.cpu * self._rng.choice((1024, 2048, 3584)) // 1000
                app.memory_mib = max(app.memory_mib, min(memory, int(largest[1]) * 3 // 5) // 256 * 256)
        workload.pending = min(replicas, max_pods)
        workload.message = self._placement.explain_no_fit(workload) or "waiting for a scheduling attempt"
        self._add_workload(workload)
        return workload.pending
