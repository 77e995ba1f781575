"""Workloads of a generated cluster, drawn from one random stream: their pods, placement on nodes, and usage.

The placement fills nodes; it does not imitate the scheduler's choice among them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from kscale.capacity.generate.nodes import ZONES, Node, Pool, SplitMix64
from kscale.errors import InputError
from kscale.files import replacing
from kscale.imports import library
from kscale.objects.api.core import Pod
from kscale.objects.argument_types import typed
from kscale.scheduling.status import fit_error

__all__ = [
    "PRIORITIES",
    "RESOURCES",
    "VOLUMES_PER_NODE",
    "Container",
    "Placement",
    "UsageOfContainer",
    "Workload",
    "draw_workload",
    "system_workloads",
    "usage_of",
    "write_usage",
]


RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu", "volumes")  # milli-cores, MiB, then counts
PRIORITIES = {
    "system-node-critical": 2000001000,
    "system-cluster-critical": 2000000000,
    "business-critical": 100000,
    "batch-low": -100,
}

_HOST_PORTS = 20000  # the first host port; each workload that uses one gets its own
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
    """A container and its requests."""

    name: str
    image: str
    cpu: int
    memory_mib: int


@dataclass(slots=True)
class Workload:
    """A controller and its pods: ``running`` holds the node index of each placed pod, ``pending`` counts the others."""

    kind: str  # Deployment, StatefulSet, Job or DaemonSet
    namespace: str
    name: str
    uid: str
    owner_uid: str  # UID of the pods' owner: a Deployment's ReplicaSet, else the workload
    template_hash: str
    containers: list[Container]
    gpu: int = 0
    storage_gib: int = 0  # one claim per pod of a StatefulSet
    classes: tuple[str, ...] = ()  # required values of the node label workload-class
    zones: tuple[str, ...] = ()  # required zones
    tolerates: tuple[str, ...] = ()  # taint keys; "*" tolerates every taint
    anti_affinity: str = ""  # required or preferred, by hostname
    spread: str = ""  # DoNotSchedule or ScheduleAnyway, by zone, max skew 1
    host_port: int = 0
    priority_class: str = ""
    disrupts: int = 0  # maxUnavailable of its budget; 0 = no budget
    running: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pending: int = 0
    message: str = ""  # scheduler message of its pending pods

    @property
    def replicas(self) -> int:
        """Return the number of all pods, running or pending."""
        return len(self.running) + self.pending

    @property
    def demand(self) -> NDArray[np.int64]:
        """Return what one pod requests: int64[RESOURCES], in the order and the units of :data:`RESOURCES`."""
        cpu = sum(container.cpu for container in self.containers)
        memory = sum(container.memory_mib for container in self.containers)
        return np.array([cpu, memory, 1, self.gpu, int(self.storage_gib > 0)], dtype=np.int64)

    @property
    def per_node(self) -> int:
        """Return the maximum number of the workload's pods on one node: 1, or 0 for no limit."""
        return int(self.anti_affinity == "required" or self.host_port > 0)

    def selects(self, pool: Pool) -> bool:
        """Check whether the pool has one of the workload's node classes, or the workload requires none.

        The zone is not checked.
        """
        return not self.classes or pool.labels.get("workload-class", "") in self.classes

    def tolerates_taint(self, pool: Pool) -> bool:
        """Check whether the workload tolerates the pool's taint, or the pool has none."""
        return pool.taint is None or "*" in self.tolerates or pool.taint[0] in self.tolerates


def _image(namespace: str, name: str, rng: SplitMix64) -> str:
    """Draw the reference of a container image, with a random version."""
    return f"registry.example.com/{namespace}/{name}:v{rng.between(1, 9)}.{rng.below(30)}.{rng.below(10)}"


def _create_workload(kind: str, namespace: str, name: str, containers: list[Container], rng: SplitMix64) -> Workload:
    """Create a workload with random UIDs and a random template hash."""
    uid = rng.uid()
    return Workload(kind, namespace, name, uid, rng.uid() if kind == "Deployment" else uid, rng.suffix(10), containers)


def _draw_requests(budget_cpu: int, budget_memory: int, rng: SplitMix64) -> tuple[int, int]:
    """Draw a container's requests (milli-cores, MiB) near the budget: mostly below, sometimes far above."""
    base = sum(cpu <= budget_cpu for cpu in _CPU) - 1
    step = rng.choose_weighted(((-3, 10), (-2, 16), (-1, 22), (0, 22), (1, 16), (2, 8), (3, 4), (4, 2)))
    cpu = _CPU[min(max(base + step, 0), len(_CPU) - 1)]
    memory = cpu * rng.choice(_MEMORY_PER_CORE) // 1000
    cap = max(64, 3 * budget_memory if rng.percent(15) else budget_memory + budget_memory // 3)
    memory = min(max(memory, 32), cap)
    unit = 32 if memory < 512 else 256
    return cpu, max(unit, memory // unit * unit)


def draw_workload(
    index: int, budget_cpu: int, budget_memory: int, typical: int, rng: SplitMix64
) -> tuple[Workload, int]:
    """Draw an ordinary workload; return (workload without pods, number of pods that it wants).

    ``budget_*`` (milli-cores, MiB) are what an average pod may request for the cluster to fill up evenly. ``typical``
    is an ordinary number of replicas. ``index`` makes the name unique.
    """
    namespace = rng.choice(_TEAMS)
    name = f"{rng.choice(_FLAVOUR)}-{rng.choice(_WHAT)}-{index}"
    kind = rng.choose_weighted((("Deployment", 80), ("StatefulSet", 11), ("Job", 9)))
    cpu, memory = _draw_requests(budget_cpu, budget_memory, rng)
    containers = [Container("app", _image(namespace, name.rsplit("-", 1)[0], rng), cpu, memory)]
    if kind != "Job" and cpu >= 100 and rng.percent(30):
        containers.append(Container("istio-proxy", "registry.example.com/istio/proxyv2:1.29.1", 10, 40))
    workload = _create_workload(kind, namespace, name, containers, rng)
    replicas = rng.choose_weighted(((1, 7), (2, 13), (3, 20), (typical, 36), (2 * typical, 18), (4 * typical, 6)))
    if kind == "StatefulSet":
        replicas = min(replicas, rng.choice((1, 3, 3, 5)))
        workload.storage_gib = rng.choice((10, 20, 50, 100, 500))
    _constrain(workload, index, replicas, rng)
    return workload, replicas


def _constrain(workload: Workload, index: int, replicas: int, rng: SplitMix64) -> None:
    """Draw placement rules, priority and disruption budget, and set them on the workload.

    ``index``: number of the workload, which makes its host port unique.
    """
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
        workload.anti_affinity = rng.choose_weighted((("", 70), ("preferred", 18), ("required", 12)))
    if replicas > 2 and not workload.zones:
        workload.spread = rng.choose_weighted((("", 70), ("ScheduleAnyway", 18), ("DoNotSchedule", 12)))
    if replicas <= 3 and index < _HOST_PORTS and rng.percent(2):
        workload.host_port = _HOST_PORTS + index
    if rng.percent(8):
        workload.priority_class = "business-critical"
    if replicas > 1 and rng.percent(45):
        workload.disrupts = 1 if replicas < 10 else replicas // 5


def _build_critical_workload(kind: str, name: str, image: str, cpu: int, memory_mib: int, rng: SplitMix64) -> Workload:
    """Build a workload of kube-system with a critical priority. A DaemonSet tolerates all taints.

    ``cpu`` is in milli-cores.
    """
    image = f"602401143452.dkr.ecr.us-east-1.amazonaws.com/eks/{image}"
    workload = _create_workload(kind, "kube-system", name, [Container(name, image, cpu, memory_mib)], rng)
    workload.priority_class = "system-node-critical" if kind == "DaemonSet" else "system-cluster-critical"
    workload.tolerates = ("*",) if kind == "DaemonSet" else ()
    return workload


def system_workloads(n_nodes: int, n_pods: int, rng: SplitMix64) -> list[tuple[Workload, int]]:
    """Draw the system's DaemonSets and a few Deployments: (workload, number of pods), with at most ``n_pods`` pods.

    The number is 0 for DaemonSets, which have a pod on every node.
    """
    daemons = [
        _build_critical_workload("DaemonSet", "aws-node", "amazon-k8s-cni:v1.21.0", 50, 64, rng),
        _build_critical_workload("DaemonSet", "kube-proxy", "kube-proxy:v1.37.0", 100, 64, rng),
        _build_critical_workload("DaemonSet", "ebs-csi-node", "aws-ebs-csi-driver:v1.48.0", 30, 120, rng),
        _build_critical_workload("DaemonSet", "node-exporter", "node-exporter:v1.9.1", 25, 64, rng),
        _build_critical_workload("DaemonSet", "log-agent", "fluent-bit:4.0.3", 100, 128, rng),
    ]
    daemons[3].host_port = 9100
    daemons[3].namespace = daemons[4].namespace = "monitoring"
    system = [(daemon, 0) for daemon in daemons[: min(len(daemons), n_pods // n_nodes)]]
    remaining = min(n_pods - len(system) * n_nodes, 8 + n_nodes // 100)
    for name, image, cpu, memory, share in (
        ("coredns", "coredns:v1.12.2", 100, 70, 40),
        ("metrics-server", "metrics-server:v0.8.0", 100, 200, 20),
        ("ebs-csi-controller", "aws-ebs-csi-driver:v1.48.0", 60, 240, 20),
        ("cluster-autoscaler", "cluster-autoscaler:v1.37.0", 100, 600, 20),
    ):
        replicas = remaining * share // 100
        if replicas:
            workload = _build_critical_workload("Deployment", name, image, cpu, memory, rng)
            workload.disrupts = 1
            workload.anti_affinity = "preferred"
            system.append((workload, replicas))
    return system


VOLUMES_PER_NODE = 25
_Nodes = NDArray[np.int64]  # node indices
_NONE: _Nodes = np.zeros(0, dtype=np.int64)


class Placement:
    """The free resources of every node, int64[nodes, RESOURCES]."""

    def __init__(self, nodes: list[Node], max_pods: int) -> None:
        self.pools: list[Pool] = []
        pool_of, zone_of, free = [], [], []
        for node in nodes:
            if not self.pools or self.pools[-1] is not node.pool:
                self.pools.append(node.pool)
            kind = node.pool.instance
            pool_of.append(len(self.pools) - 1)
            zone_of.append(ZONES.index(node.zone))
            free.append((kind.alloc_cpu, kind.alloc_memory_mib, max_pods, kind.gpu, VOLUMES_PER_NODE))
        self._pool = np.array(pool_of, dtype=np.int64)
        self._zone = np.array(zone_of, dtype=np.int64)
        self.free = np.array(free, dtype=np.int64).reshape(-1, len(RESOURCES))
        self.total = self.free.copy()
        self._cache: dict[tuple[object, ...], _Nodes] = {}
        untainted = np.isin(self._pool, [i for i, pool in enumerate(self.pools) if pool.taint is None])
        self._ordinary = untainted if untainted.any() else ~untainted
        self.ordinary_free = self.free[self._ordinary].sum(axis=0)  # totals of the nodes that any pod may use
        self.largest: tuple[int, int] = (int(self.free[:, 0].max()), int(self.free[:, 1].max()))

    def eligible(self, workload: Workload, zone: str = "", *, taints: bool = True) -> _Nodes:
        """Return the indices of the nodes that the workload's selectors, zones and tolerations allow.

        ``zone``: only nodes in this zone, whatever the workload's zones. ``taints``: whether tolerations count.
        """
        zones = (zone,) if zone else workload.zones
        key = (workload.classes, zones, workload.tolerates if taints else None)
        nodes = self._cache.get(key)
        if nodes is None:
            pools = [
                i
                for i, pool in enumerate(self.pools)
                if workload.selects(pool) and (not taints or workload.tolerates_taint(pool))
            ]
            mask = np.isin(self._pool, pools)
            if zones:
                mask &= np.isin(self._zone, [ZONES.index(z) for z in zones if z in ZONES])
            nodes = self._cache[key] = np.flatnonzero(mask)
        return nodes

    def room(self, workload: Workload, nodes: _Nodes) -> _Nodes:
        """Return how many more pods of the workload each of the nodes can take, by free resources alone."""
        demand = workload.demand
        used = np.flatnonzero(demand)
        return np.asarray((self.free[np.ix_(nodes, used)] // demand[used]).min(axis=1))

    def place_everywhere(self, workload: Workload) -> _Nodes:
        """Place one pod on every eligible node with room, as a DaemonSet does; return the indices of those nodes.

        Subtracts the pods' requests from the free resources.
        """
        nodes = self.eligible(workload)
        nodes = nodes[self.room(workload, nodes) > 0]
        self._subtract(nodes, np.ones(len(nodes), dtype=np.int64), workload)
        return nodes

    def place(self, workload: Workload, replicas: int, rng: SplitMix64) -> _Nodes:
        """Place up to ``replicas`` pods by all rules of the workload; return the node index of each placed pod.

        The result is shorter if there is no more room. Subtracts the pods' requests from the free resources.
        """
        if workload.spread != "DoNotSchedule":
            return self._fill(workload, self.eligible(workload), replicas, rng)
        # All zones that the selectors allow count, even if tainted or full: their pod counts may differ by at most one.
        zones = [z for z in ZONES if self.eligible(workload, z, taints=False).size]
        start = rng.below(len(zones)) if zones else 0
        zones = zones[start:] + zones[:start]
        chosen = [
            self._fill(workload, self.eligible(workload, z), (replicas + len(zones) - 1 - i) // len(zones), rng)
            for i, z in enumerate(zones)
        ]
        limit = min((len(nodes) for nodes in chosen), default=0) + 1
        for nodes in chosen:
            extra_nodes, pods = np.unique(nodes[limit:], return_counts=True)
            self._subtract(extra_nodes, -pods, workload)
        remaining = [nodes[:limit] for nodes in chosen]
        return np.concatenate(remaining) if remaining else _NONE

    def _fill(self, workload: Workload, nodes: _Nodes, replicas: int, rng: SplitMix64) -> _Nodes:
        """Place up to ``replicas`` pods on ``nodes``, from a random one on; return the node index of each placed pod.

        Pods are distributed over many nodes, a few on each, within the limit per node. Subtracts the pods' requests
        from the free resources. The result is shorter if there is no more room.
        """
        if not nodes.size or not replicas:
            return _NONE
        start, window = rng.below(len(nodes)), 4 * replicas + 64
        while True:  # try a few nodes first, all nodes only if those have no room
            window = min(window, len(nodes))
            window_nodes = np.concatenate([nodes[start : start + window], nodes[: max(0, start + window - len(nodes))]])
            room = self.room(workload, window_nodes)
            if workload.per_node:
                room = np.minimum(room, workload.per_node)
            if window == len(nodes) or int(room.sum()) >= replicas:
                break
            window *= 8
        cap = 1  # spread a few pods per node instead of filling one node
        while cap < replicas and int(np.minimum(room, cap).sum()) < replicas:
            cap *= 2
        room = np.minimum(room, cap)
        before = np.cumsum(room) - room
        take = np.clip(replicas - before, 0, room)
        self._subtract(window_nodes, take, workload)
        return np.repeat(window_nodes, take)

    def _subtract(self, nodes: _Nodes, pods: _Nodes, workload: Workload) -> None:
        """Subtract the resources of ``pods`` pods per node from the free resources. The nodes must be distinct.

        Negative numbers of pods add resources.
        """
        self.free[nodes] -= pods[:, None] * workload.demand
        self.ordinary_free -= int(pods[self._ordinary[nodes]].sum()) * workload.demand

    def explain_no_fit(self, workload: Workload) -> str:
        """Return kube-scheduler's message about a pod that fits no node; empty if it fits.

        Only selectors, zones, taints and free resources are checked.
        """
        n = len(self.free)
        selected = self.eligible(workload, taints=False)
        untainted = np.isin(self._pool, [i for i, pool in enumerate(self.pools) if workload.tolerates_taint(pool)])
        tainted = int((~untainted).sum())
        nodes = selected[untainted[selected]]
        reasons = {
            "node(s) had untolerated taint(s)": tainted,
            "node(s) didn't match Pod's node affinity/selector": n - tainted - len(nodes),
        }
        lacking = self.free[nodes] < workload.demand
        if not lacking.any(axis=1).all():
            return ""
        for r, text in (
            (0, "Insufficient cpu"),
            (1, "Insufficient memory"),
            (2, "Too many pods"),
            (3, "Insufficient nvidia.com/gpu"),
        ):
            reasons[text] = int((lacking[:, r] & (workload.demand[r] > 0)).sum())
        return fit_error({text: count for text, count in reasons.items() if count}, n)


END: Final = 1767787200
"""2026-01-07T12:00:00Z: the last sample, in seconds; a generated cluster has no clock."""
_DAY: Final = 86400


class UsageOfContainer(NamedTuple):
    """Usage samples of one container: ``cpu`` in cores, ``memory`` in bytes, at the common times."""

    namespace: str
    pod: str
    container: str
    cpu: npt.NDArray[np.float64]
    memory: npt.NDArray[np.float64]


def usage_of(
    pods: Iterable[Pod], *, seed: int = 0, hours: float = 48.0, step: float = 300.0
) -> tuple[npt.NDArray[np.int64], Iterator[UsageOfContainer]]:
    """Generate usage: (times in epoch seconds, iterator over the usage of every container of the running pods).

    ``hours``: length of the history. ``step``: seconds between samples. Containers of one workload have a similar daily
    course, around 5 % to 95 % of their requests (without requests: of 0.1 cores and 128 MiB). The last sample is at
    :data:`END`.
    """
    count = max(int(hours * 3600 // step), 1)
    times = END - (np.arange(count, dtype=np.int64)[::-1] * step).astype(np.int64)

    def each() -> Iterator[UsageOfContainer]:
        """Yield the usage of each container of the running pods."""
        for pod in pods:
            if pod.status.phase != "Running":
                continue
            owner = next((o.name for o in pod.metadata.owner_references if o.controller), pod.name)
            for container in pod.spec.containers:
                requests = container.resources.requests or {}
                cores = requests["cpu"].approximate_float() if "cpu" in requests else 0.1
                size = requests["memory"].approximate_float() if "memory" in requests else 128.0 * 2**20
                common = np.random.default_rng([seed, *f"{pod.namespace}/{owner}/{container.name}".encode()])
                own_rng = np.random.default_rng([seed, *f"{pod.key}/{container.name}".encode()])
                level, swing, phase = (
                    common.uniform(0.05, 0.9),
                    common.uniform(0.0, 0.6),
                    common.uniform(0, 2 * np.pi),
                )
                daily = 1 + swing * np.sin(2 * np.pi * (times % _DAY) / _DAY + phase)
                cpu = cores * level * daily * own_rng.lognormal(0.0, 0.25, count)
                base = common.uniform(0.2, 0.95)
                drift = np.cumsum(own_rng.normal(0.0, 0.004, count))
                memory = size * base * (1 + 0.2 * np.tanh(drift)) * (1 + 0.05 * swing * daily)
                yield UsageOfContainer(pod.namespace, pod.name, container.name, np.round(cpu, 6), np.floor(memory))

    return times, each()


@typed
def write_usage(
    path: str | Path, pods: Iterable[Pod], *, seed: int = 0, hours: float = 48.0, step: float = 300.0
) -> int:
    """Write generated usage of pods to a file with the columns that ``kscale recommend`` reads.

    Parameters
    ----------
    path : str or Path
        A ``.csv`` or ``.parquet`` file.
    pods : iterable of Pod
        The pods; those of one owner have similar usage.
    seed : int
        Seed of the usage.
    hours : float
        Length of the history.
    step : float
        Seconds between two samples of a container.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        For another suffix of the file.
    MissingExtraError
        For a ``.parquet`` file without the extra ``[data]``.

    Notes
    -----
    Not in upstream.
    """
    path = Path(path)
    times, usages = usage_of(pods, seed=seed, hours=hours, step=step)
    if path.suffix == ".csv":
        return _write_csv(path, times, usages)
    if path.suffix == ".parquet":
        return _write_parquet(path, times, usages)
    raise InputError(f"{path}: usage is written as .csv or .parquet")


def _write_csv(path: Path, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> int:
    """Write usage as CSV; return the number of rows."""
    rows = 0
    with replacing(path) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as file:
        file.write("time,namespace,pod,container,cpu_cores,memory_bytes\n")
        for usage in each:
            middle = f",{usage.namespace},{usage.pod},{usage.container},"
            columns = zip(times.tolist(), usage.cpu.tolist(), usage.memory.astype(np.int64).tolist(), strict=True)
            file.writelines(f"{time}{middle}{cpu:.6g},{memory}\n" for time, cpu, memory in columns)
            rows += len(times)
    return rows


def _write_parquet(path: Path, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> int:
    """Write usage as Parquet; return the number of rows. Raises MissingExtraError without the extra ``[data]``."""
    pa, pq = library("pyarrow", "writing Parquet"), library("pyarrow.parquet", "writing Parquet")
    text = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([
        ("time", pa.timestamp("ms", "UTC")), ("namespace", text), ("pod", text), ("container", text),
        ("cpu_cores", pa.float64()), ("memory_bytes", pa.float64()),
    ])  # fmt: skip
    rows = 0
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(pa, schema, times, each):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _tables(pa: Any, schema: Any, times: npt.NDArray[np.int64], each: Iterable[UsageOfContainer]) -> Iterator[Any]:
    """Yield Arrow tables of about a million rows of usage, to be written as one row group each."""
    per_table = max(1, 1_000_000 // len(times))
    batch: list[UsageOfContainer] = []

    def table() -> Any:
        """Build a table of the usage in the current batch."""
        n = len(times)

        def named(texts: list[str]) -> Any:
            """Encode a text column as dictionary: each text is repeated for all times."""
            # Each text must occur once: with duplicates the writer falls back from dictionary encoding, and reading
            # becomes many times slower.
            numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
            codes = np.repeat(np.array([numbers[text] for text in texts], np.int32), n)
            return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(numbers)))

        return pa.table(
            [
                pa.array(np.tile(times * 1000, len(batch))).cast(pa.timestamp("ms", "UTC")),
                named([entry.namespace for entry in batch]),
                named([entry.pod for entry in batch]),
                named([entry.container for entry in batch]),
                pa.array(np.concatenate([entry.cpu for entry in batch])),
                pa.array(np.concatenate([entry.memory for entry in batch])),
            ],
            schema=schema,
        )

    for usage in each:
        batch.append(usage)
        if len(batch) == per_table:
            yield table()
            batch.clear()
    if batch:
        yield table()
