"""From what a provider says of a machine to an instance type: allocatable amounts where it names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kscale.capacity.catalogue.overhead import Overhead, allocatable
from kscale.capacity.catalogue.types import DEFAULT_PODS, InstanceType
from kscale.objects.quantity import Quantity

__all__ = ["Kept", "Machine", "gpu_resource"]


@dataclass(frozen=True, slots=True)
class Kept:
    """``overhead``: whose formula says what is kept of a machine (None = that of the provider whose format it is);
    ``max_pods``: of a node (None = what the provider says)."""

    overhead: Overhead | None = None
    max_pods: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a provider's dump says of a machine. ``pods``: the most on a node (None = the kubelet's 110)."""

    name: str
    arch: str
    cores: int
    memory_mib: int
    gpus: int = 0
    gpu_name: str = ""
    pods: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    spot_prices: Mapping[str, float] = field(default_factory=dict)

    def instance_type(self, kept: Kept, overhead: Overhead) -> InstanceType:
        """The machine with what a kubelet offers of it; ``overhead``: the provider's own."""
        pods = kept.max_pods if kept.max_pods is not None else DEFAULT_PODS if self.pods is None else self.pods
        capacity = {
            "cpu": Quantity(str(self.cores)),
            "memory": Quantity(f"{self.memory_mib}Mi"),
            "pods": Quantity(str(pods)),
        }
        if self.gpus:
            capacity[gpu_resource(self.gpu_name)] = Quantity(str(self.gpus))
        of = overhead if kept.overhead is None else kept.overhead
        cpu, memory = allocatable(of, self.cores * 1000, self.memory_mib * 2**20, pods, self.arch)
        usable = {"cpu": Quantity(f"{cpu}m"), "memory": Quantity(f"{memory // 2**20}Mi")}
        return InstanceType(
            self.name,
            self.arch,
            capacity,
            capacity | usable if of is not Overhead.NONE else capacity,
            dict(self.prices),
            dict(self.spot_prices),
            self.gpu_name,
        )


def gpu_resource(gpu_name: str) -> str:
    """The resource that the device plug-in of the GPU's maker offers."""
    return "amd.com/gpu" if gpu_name.lower().startswith(("radeon", "amd")) else "nvidia.com/gpu"
