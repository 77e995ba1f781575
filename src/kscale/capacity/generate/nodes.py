"""Node pools and nodes of a generated cluster, and a random generator with the same results on every platform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "CREATED",
    "POOL_LABEL",
    "REGION",
    "ZONES",
    "InstanceType",
    "Node",
    "Pool",
    "SplitMix64",
    "child_uid",
    "make_nodes",
    "make_pools",
]


_MASK = (1 << 64) - 1
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # characters of Kubernetes' random name suffixes
_PAIRS = tuple(a + b for b in _SUFFIX for a in _SUFFIX)
_TRIPLES = tuple(pair + c for c in _SUFFIX for pair in _PAIRS)
_SUFFIXES = len(_TRIPLES) * len(_PAIRS)
T = TypeVar("T")


def child_uid(uid: str, number: int) -> str:
    """Return the owner's UID with its last twelve digits replaced by ``number`` in hexadecimal.

    UIDs that share most digits let large dumps compress well.
    """
    return f"{uid[:24]}{number:012x}"


class SplitMix64:
    """Random number generator SplitMix64 of Steele, Lea and Flood (OOPSLA 2014)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """Return the next 64 random bits as an integer."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, n: int) -> int:
        """Return a random integer in [0, n). No value is more probable than another by more than n / 2**64."""
        return (self.bits() * n) >> 64

    def between(self, least: int, most: int) -> int:
        """Return a random integer from ``least`` to ``most``, both included."""
        return least + self.below(most - least + 1)

    def percent(self, chance: int) -> bool:
        """Return True with a probability of ``chance`` percent."""
        return self.below(100) < chance

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options, each with equal probability."""
        return options[self.below(len(options))]

    def choose_weighted(self, options: Sequence[tuple[T, int]]) -> T:
        """Return one of the options with probability proportional to its weight.

        Raises ValueError if all weights are 0.
        """
        target = self.below(sum(weight for _, weight in options))
        for option, weight in options:
            if target < weight:
                return option
            target -= weight
        raise ValueError("weights must be positive")

    def suffix(self, length: int) -> str:
        """Return a random name suffix of ``length`` characters, from the characters that Kubernetes uses."""
        bits, out = self.bits(), []
        for _ in range(length):
            bits, index = divmod(bits, len(_SUFFIX))
            out.append(_SUFFIX[index])
        return "".join(out)

    def suffixes(self, n: int) -> Iterator[str]:
        """Yield ``n`` random suffixes of five characters, all different."""
        # An arithmetic progression with such a step visits all values modulo a power of 27 before it repeats.
        position, step = self.below(_SUFFIXES), 3 * self.below(_SUFFIXES // 3) + 1
        for _ in range(n):
            rest, low = divmod(position, len(_TRIPLES))
            yield _TRIPLES[low] + _PAIRS[rest]
            position = (position + step) % _SUFFIXES

    def uid(self) -> str:
        """Return a random version 4 UUID."""
        text = f"{self.bits():016x}{self.bits():016x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


POOL_LABEL = "eks.amazonaws.com/nodegroup"
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
CREATED = "2026-03-02T08:11:29Z"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine size: its capacity, and the part that EKS leaves allocatable for pods (Amazon Linux 2023)."""

    name: str
    vcpu: int
    memory_mib: int
    alloc_cpu: int  # milli-cores
    alloc_memory_mib: int
    price: float  # US dollars per hour, on demand
    gpu: int = 0


M5_XLARGE = InstanceType("m5.xlarge", 4, 16384, 3920, 14162, 0.192)
M5_2XLARGE = InstanceType("m5.2xlarge", 8, 32768, 7910, 29317, 0.384)
M5_4XLARGE = InstanceType("m5.4xlarge", 16, 65536, 15890, 57691, 0.768)
C5_4XLARGE = InstanceType("c5.4xlarge", 16, 32768, 15890, 27381, 0.68)
R5_4XLARGE = InstanceType("r5.4xlarge", 16, 131072, 15890, 118312, 1.008)
G4DN_4XLARGE = InstanceType("g4dn.4xlarge", 16, 65536, 15890, 59946, 1.204, gpu=1)


@dataclass(frozen=True, slots=True)
class Pool:
    """A node group with ``share`` percent of the nodes, in one zone or distributed over all zones."""

    name: str
    instance: InstanceType
    share: int
    zone: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taint: tuple[str, str, str] | None = None  # key, value, effect
    spot: bool = False

    def zones(self) -> tuple[str, ...]:
        """Return the zones over which the pool's nodes are distributed."""
        return (self.zone,) if self.zone else ZONES


_POOLS = (
    *(Pool(f"general-{zone[-1]}", M5_4XLARGE, 20, zone, {"workload-class": "general"}) for zone in ZONES),
    Pool("memory", R5_4XLARGE, 12, labels={"workload-class": "memory"}),
    Pool("spot", M5_2XLARGE, 12, labels={"workload-class": "spot"}, taint=("spot", "true", "NoSchedule"), spot=True),
    Pool("compute", C5_4XLARGE, 8, labels={"workload-class": "compute"}, taint=("dedicated", "compute", "NoSchedule")),
    Pool("system", M5_XLARGE, 5, labels={"workload-class": "system"}),
    Pool(
        "gpu",
        G4DN_4XLARGE,
        3,
        labels={"workload-class": "gpu", "nvidia.com/gpu.present": "true"},
        taint=("nvidia.com/gpu", "present", "NoSchedule"),
    ),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A generated node: its pool, and the values that differ from other nodes of the pool."""

    name: str
    pool: Pool
    zone: str
    address: str
    uid: str
    instance_id: str

    def manifest(self, max_pods: int, *, lean: bool) -> dict[str, Any]:
        """Build the node as the API server would return it; ``lean`` omits its list of images."""
        kind, taint = self.pool.instance, self.pool.taint
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/instance-type": kind.name,
            "beta.kubernetes.io/os": "linux",
            "eks.amazonaws.com/capacityType": "SPOT" if self.pool.spot else "ON_DEMAND",
            POOL_LABEL: self.pool.name,
            "failure-domain.beta.kubernetes.io/region": REGION,
            "failure-domain.beta.kubernetes.io/zone": self.zone,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": kind.name,
            "topology.ebs.csi.aws.com/zone": self.zone,
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": self.zone,
            **self.pool.labels,
        }
        spec: dict[str, Any] = {"providerID": f"aws:///{self.zone}/{self.instance_id}"}
        if taint:
            spec["taints"] = [{"key": taint[0], "value": taint[1], "effect": taint[2]}]
        gpu = {"nvidia.com/gpu": str(kind.gpu)} if kind.gpu else {}
        status: dict[str, Any] = {
            "capacity": {
                "cpu": str(kind.vcpu),
                "ephemeral-storage": "83873772Ki",
                "hugepages-1Gi": "0",
                "hugepages-2Mi": "0",
                "memory": f"{kind.memory_mib * 1024 - 524288}Ki",
                **gpu,
                "pods": str(max_pods),
            },
            "allocatable": {
                "cpu": f"{kind.alloc_cpu}m",
                "ephemeral-storage": "76224326324",
                "hugepages-1Gi": "0",
                "hugepages-2Mi": "0",
                "memory": f"{kind.alloc_memory_mib * 1024}Ki",
                **gpu,
                "pods": str(max_pods),
            },
            "conditions": [
                {
                    "type": name,
                    "status": "True" if name == "Ready" else "False",
                    "lastHeartbeatTime": "2026-03-09T11:58:04Z",
                    "lastTransitionTime": CREATED,
                    "reason": reason,
                    "message": f"kubelet {text}",
                }
                for name, reason, text in (
                    ("MemoryPressure", "KubeletHasSufficientMemory", "has sufficient memory available"),
                    ("DiskPressure", "KubeletHasNoDiskPressure", "has no disk pressure"),
                    ("PIDPressure", "KubeletHasSufficientPID", "has sufficient PID available"),
                    ("Ready", "KubeletReady", "is posting ready status"),
                )
            ],
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": self.uid,
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.37-61.105.amzn2023.x86_64",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.37.0-eks-2f0a8d1",
                "machineID": self.uid.replace("-", ""),
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023.8.20250707",
                "systemUUID": self.uid,
            },
        }
        if not lean:
            status["images"] = [
                {"names": [f"602401143452.dkr.ecr.{REGION}.amazonaws.com/eks/{image}"], "sizeBytes": size}
                for image, size in (("kube-proxy:v1.37.0-eksbuild.1", 31472133), ("pause:3.10", 318731))
            ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "uid": self.uid,
                "creationTimestamp": CREATED,
                "labels": labels,
                "annotations": {"node.alpha.kubernetes.io/ttl": "15"},
            },
            "spec": spec,
            "status": status,
        }


def make_pools(n_nodes: int) -> list[tuple[Pool, int]]:
    """Distribute ``n_nodes`` nodes over the pools by share; return (pool, number of nodes), without empty pools.

    Remaining nodes go to the largest remainders first; ties go to the first pool in the table.
    """
    exact = [pool.share * n_nodes for pool in _POOLS]
    sizes = [share // 100 for share in exact]
    by_remainder = sorted(range(len(_POOLS)), key=lambda i: (-(exact[i] % 100), i))
    for i in by_remainder[: n_nodes - sum(sizes)]:
        sizes[i] += 1
    return [(pool, size) for pool, size in zip(_POOLS, sizes, strict=True) if size]


def make_nodes(pools: list[tuple[Pool, int]], rng: SplitMix64) -> list[Node]:
    """Create the nodes of each (pool, number of nodes), with random UIDs and instance IDs."""
    nodes: list[Node] = []
    for pool, size in pools:
        zones = pool.zones()
        for i in range(size):
            number = len(nodes) + 256
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            name = f"ip-{address.replace('.', '-')}.ec2.internal"
            nodes.append(Node(name, pool, zones[i % len(zones)], address, rng.uid(), f"i-0{rng.bits():016x}"))
    return nodes
