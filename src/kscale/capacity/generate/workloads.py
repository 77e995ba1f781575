"""What runs in a generated cluster: the traits of each workload, drawn from one random stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kscale.capacity.generate.fleet import ZONES, Pool
from kscale.capacity.generate.rng import SplitMix64

__all__ = ["PRIORITIES", "RESOURCES", "Container", "Workload", "draw_workload", "system_workloads"]

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "volumes")  # milli-cores, MiB, and numbers
PRIORITIES = {
    "system-node-critical": 2000001000,
    "system-cluster-critical": 2000000000,
    "business-critical": 100000,
    "batch-low": -100,
}

_HOST_PORTS = 20000  # each workload that wants one has its own, from here
_TEAMS = (
    "checkout",
    "search",
    "payments",
    "catalog",
    "identity",
    "ml-serving",
    "data-platform",
    "web",
    "logistics",
    "ads",
)
_WHAT = (
    "api",
    "worker",
    "gateway",
    "cache",
    "indexer",
    "sync",
    "frontend",
    "scorer",
    "router",
    "consumer",
    "mailer",
    "etl",
)
_FLAVOUR = (
    "orders",
    "users",
    "stock",
    "events",
    "prices",
    "sessions",
    "media",
    "audit",
    "geo",
    "ledger",
    "feeds",
    "alerts",
)
_CPU = (10, 25, 50, 100, 150, 200, 250, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000)
_MEMORY_PER_CORE = (1024, 2048, 3584, 4096, 8192)  # MiB


@dataclass(slots=True)
class Container:
    """A container and what it asks for."""

    name: str
    image: str
    cpu: int
    memory_mib: int


@dataclass(slots=True)
class Workload:
    """One controller and its pods: ``running`` holds the node index of each placed pod, ``pending`` counts the rest."""

    kind: str  # Deployment, StatefulSet, Job or DaemonSet
    namespace: str
    name: str
    uid: str
    owner_uid: str  # of what owns the pods: the ReplicaSet of a Deployment, else the workload
    template_hash: str
    containers: list[Container]
    gpu: int = 0
    storage_gib: int = 0  # one claim per pod of a StatefulSet
    classes: tuple[str, ...] = ()  # required values of the node label workload-class
    zones: tuple[str, ...] = ()  # required zones
    tolerates: tuple[str, ...] = ()  # taint keys; "*" is every taint
    anti_affinity: str = ""  # required or preferred, by host name
    spread: str = ""  # DoNotSchedule or ScheduleAnyway, by zone, max skew 1
    host_port: int = 0
    priority_class: str = ""
    disrupts: int = 0  # maxUnavailable of its budget; 0 = no budget
    running: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pending: int = 0
    message: str = ""  # why its pending pods are

    @property
    def replicas(self) -> int:
        """All pods, running or pending."""
        return len(self.running) + self.pending

    @property
    def demand(self) -> NDArray[np.int64]:
        """What one pod takes of :data:`RESOURCES`."""
        cpu = sum(container.cpu for container in self.containers)
        memory = sum(container.memory_mib for container in self.containers)
        return np.array([cpu, memory, 1, self.gpu, int(self.storage_gib > 0)], dtype=np.int64)

    @property
    def per_node(self) -> int:
        """The most pods on one node (0 = no limit)."""
        return int(self.anti_affinity == "required" or self.host_port > 0)

    def selects(self, pool: Pool) -> bool:
        """Do the pool's labels match, its zone aside?"""
        return not self.classes or pool.labels.get("workload-class", "") in self.classes

    def tolerates_taint(self, pool: Pool) -> bool:
        """Is the pool's taint tolerated?"""
        return pool.taint is None or "*" in self.tolerates or pool.taint[0] in self.tolerates


def _image(namespace: str, name: str, rng: SplitMix64) -> str:
    return f"registry.example.com/{namespace}/{name}:v{rng.between(1, 9)}.{rng.below(30)}.{rng.below(10)}"


def _new(kind: str, namespace: str, name: str, containers: list[Container], rng: SplitMix64) -> Workload:
    uid = rng.uid()
    return Workload(
        kind,
        namespace,
        name,
        uid,
        rng.uid() if kind == "Deployment" else uid,
        rng.suffix(10),
        containers,
    )


def _sizes(budget_cpu: int, budget_memory: int, rng: SplitMix64) -> tuple[int, int]:
    """Milli-cores and MiB near the budget: mostly below, now and then far above."""
    near = sum(cpu <= budget_cpu for cpu in _CPU) - 1
    step = rng.weighted(((-3, 10), (-2, 16), (-1, 22), (0, 22), (1, 16), (2, 8), (3, 4), (4, 2)))
    cpu = _CPU[min(max(near + step, 0), len(_CPU) - 1)]
    memory = cpu * rng.choice(_MEMORY_PER_CORE) // 1000
    cap = max(64, 3 * budget_memory if rng.percent(15) else budget_memory + budget_memory // 3)
    memory = min(max(memory, 32), cap)
    unit = 32 if memory < 512 else 256
    return cpu, max(unit, memory // unit * unit)


def draw_workload(
    index: int, budget_cpu: int, budget_memory: int, typical: int, rng: SplitMix64
) -> tuple[Workload, int]:
    """An ordinary workload and the number of pods it wants.

    ``budget_*``: what an average pod may take so that the cluster fills up evenly; ``typical``: an ordinary number of
    replicas. ``index`` makes the name unique.
    """
    namespace = rng.choice(_TEAMS)
    name = f"{rng.choice(_FLAVOUR)}-{rng.choice(_WHAT)}-{index}"
    kind = rng.weighted((("Deployment", 80), ("StatefulSet", 11), ("Job", 9)))
    cpu, memory = _sizes(budget_cpu, budget_memory, rng)
    containers = [Container("app", _image(namespace, name.rsplit("-", 1)[0], rng), cpu, memory)]
    if kind != "Job" and cpu >= 100 and rng.percent(30):
        containers.append(Container("istio-proxy", "registry.example.com/istio/proxyv2:1.29.1", 10, 40))
    workload = _new(kind, namespace, name, containers, rng)
    replicas = rng.weighted(((1, 7), (2, 13), (3, 20), (typical, 36), (2 * typical, 18), (4 * typical, 6)))
    if kind == "StatefulSet":
        replicas = min(replicas, rng.choice((1, 3, 3, 5)))
        workload.storage_gib = rng.choice((10, 20, 50, 100, 500))
    _constrain(workload, index, replicas, rng)
    return workload, replicas


def _constrain(workload: Workload, index: int, replicas: int, rng: SplitMix64) -> None:
    """Placement rules, priority and budget."""
    trait = rng.below(100)
    if trait < 9:
        workload.tolerates = ("spot",)
        if trait < 4:
            workload.classes = ("spot",)
    elif trait < 15:
        workload.tolerates, workload.classes = ("dedicated",), ("compute",)
    elif trait < 18 and workload.kind != "StatefulSet":
        workload.tolerates, workload.classes, workload.gpu = ("nvidia.com/gpu",), ("gpu",), 1
    elif trait < 25:
        workload.classes = ("memory",)
    elif trait < 31:
        workload.classes = ("general", "memory")
    elif trait < 34:
        workload.zones = (rng.choice(ZONES),)
    if workload.kind == "Job":
        workload.priority_class = "batch-low" if rng.percent(50) else ""
        return
    if 1 < replicas <= 5:
        workload.anti_affinity = rng.weighted((("", 70), ("preferred", 18), ("required", 12)))
    if replicas > 2 and not workload.zones:
        workload.spread = rng.weighted((("", 70), ("ScheduleAnyway", 18), ("DoNotSchedule", 12)))
    if replicas <= 3 and index < _HOST_PORTS and rng.percent(2):
        workload.host_port = _HOST_PORTS + index
    if rng.percent(8):
        workload.priority_class = "business-critical"
    if replicas > 1 and rng.percent(45):
        workload.disrupts = 1 if replicas < 10 else replicas // 5


def _critical(kind: str, name: str, image: str, cpu: int, memory_mib: int, rng: SplitMix64) -> Workload:
    image = f"602401143452.dkr.ecr.us-east-1.amazonaws.com/eks/{image}"
    workload = _new(kind, "kube-system", name, [Container(name, image, cpu, memory_mib)], rng)
    workload.priority_class = "system-node-critical" if kind == "DaemonSet" else "system-cluster-critical"
    workload.tolerates = ("*",) if kind == "DaemonSet" else ()
    return workload


def system_workloads(n_nodes: int, n_pods: int, rng: SplitMix64) -> list[tuple[Workload, int]]:
    """At most ``n_pods`` pods: DaemonSets (their number is given as 0: one on every node) and a few Deployments."""
    daemons = [
        _critical("DaemonSet", "aws-node", "amazon-k8s-cni:v1.21.0", 50, 64, rng),
        _critical("DaemonSet", "kube-proxy", "kube-proxy:v1.37.0", 100, 64, rng),
        _critical("DaemonSet", "ebs-csi-node", "aws-ebs-csi-driver:v1.48.0", 30, 120, rng),
        _critical("DaemonSet", "node-exporter", "node-exporter:v1.9.1", 25, 64, rng),
        _critical("DaemonSet", "log-agent", "fluent-bit:4.0.3", 100, 128, rng),
    ]
    daemons[3].host_port = 9100
    daemons[3].namespace = daemons[4].namespace = "monitoring"
    system = [(daemon, 0) for daemon in daemons[: min(len(daemons), n_pods // n_nodes)]]
    left = min(n_pods - len(system) * n_nodes, 8 + n_nodes // 100)
    for name, image, cpu, memory, share in (
        ("coredns", "coredns:v1.12.2", 100, 70, 40),
        ("metrics-server", "metrics-server:v0.8.0", 100, 200, 20),
        ("ebs-csi-controller", "aws-ebs-csi-driver:v1.48.0", 60, 240, 20),
        ("cluster-autoscaler", "cluster-autoscaler:v1.37.0", 100, 600, 20),
    ):
        replicas = left * share // 100
        if replicas:
            workload = _critical("Deployment", name, image, cpu, memory, rng)
            workload.disrupts = 1
            workload.anti_affinity = "preferred"
            system.append((workload, replicas))
    return system
