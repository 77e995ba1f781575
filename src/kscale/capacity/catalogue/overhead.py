"""What a managed Kubernetes keeps of a machine for itself: its documented formulas, where a catalogue names no
allocatable amounts.

* ``eks``: the hypervisor takes 7.5 % of the memory (Karpenter's ``VM_MEMORY_OVERHEAD_PERCENT``) and 64 MiB on arm64;
  the kubelet reserves 255 MiB and 11 MiB for each pod of a node, and cpu by steps (bootstrap.sh of the EKS AMI).
* ``gke``: memory and cpu by steps (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes).
* ``aks``: 20 MB for each pod and 50 MB, at most a quarter of the memory; cpu by a table
  (https://learn.microsoft.com/azure/aks/node-resource-reservations).

All three evict pods when less than 100 MiB of memory are left.
"""

from __future__ import annotations

import math
from enum import StrEnum

__all__ = ["Overhead", "allocatable"]

_MIB = 2**20
_EVICTION = 100 * _MIB


class Overhead(StrEnum):
    """Whose formula."""

    EKS = "eks"
    GKE = "gke"
    AKS = "aks"
    NONE = "none"


def allocatable(of: Overhead, cpu: int, memory: int, pods: int, arch: str) -> tuple[int, int]:
    """(milli-cores, bytes: whole MiB) that are left of so many for ``pods`` pods; never negative."""
    match of:
        case Overhead.NONE:
            return cpu, memory
        case Overhead.EKS:
            usable = memory - (64 * _MIB if arch == "arm64" else 0)
            usable -= math.ceil(usable * 75 / 1000 / _MIB) * _MIB
            cpu_kept, kept = _steps_of_cpu(cpu), (255 + 11 * pods) * _MIB
        case Overhead.GKE:
            usable, cpu_kept, kept = memory, _steps_of_cpu(cpu), _steps_of_memory(memory)
        case Overhead.AKS:
            usable, cpu_kept = memory, _table_of_cpu(cpu)
            kept = min((20 * pods + 50) * 1_000_000, memory // 4)
    return max(0, cpu - cpu_kept), max(0, usable - kept - _EVICTION) // _MIB * _MIB


def _steps_of_cpu(cpu: int) -> int:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the others."""
    left, kept = cpu, 0
    for width, share in ((1_000, 600), (1_000, 100), (2_000, 50)):
        part = min(left, width)
        kept += part * share
        left -= part
    return -(-(kept + left * 25) // 10_000)


def _steps_of_memory(memory: int) -> int:
    """255 MiB below one GiB; else 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112,
    2 % of the rest."""
    gib = 1024 * _MIB
    if memory < gib:
        return 255 * _MIB
    left, kept = memory, 0
    for width, share in ((4 * gib, 25), (4 * gib, 20), (8 * gib, 10), (112 * gib, 6)):
        part = min(left, width)
        kept += part * share
        left -= part
    return -(-(kept + left * 2) // 100)


def _table_of_cpu(cpu: int) -> int:
    """60, 100, 120 milli-cores of the first three cores; 100 and 10 for each core from four on."""
    cores = -(-cpu // 1_000)
    return (60, 100, 120)[cores - 1] if 0 < cores < 4 else 100 + 10 * cores
