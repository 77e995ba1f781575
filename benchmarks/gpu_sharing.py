"""Pods that share GPUs, placed one after the other by a score: the simulator of Weng et al. (USENIX ATC 2023), anew.

Filter, scores and the choice of a GPU are those of its plug-ins (hkust-adsl/kubernetes-scheduler-simulator at 8f3d6417,
``pkg/simulator/plugin``), and among equal scores the first node by name is taken, as its scheduler does
(mental2008/kubernetes v1.20.5-minor). A score is worked out anew when something was placed on its node. Amounts are
milli-units and MiB.

This is a loop of its own because which GPUs of a node have room is no amount of the node: a scorer of ``kscale.place``
cannot see it, nor say which of them a pod takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["POLICIES", "Nodes", "Shapes", "Typical", "allocated"]

POLICIES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")
RANDOM, DOT_PRODUCT, CLUSTERING, PACKING, BEST_FIT, FGD = range(len(POLICIES))

WHOLE_GPU = 1000
MOST_CPU, MOST_GPU = 128_000.0, 8_000.0  # of any node
NO_NODE = -1


class Nodes(NamedTuple):
    """``model``: number of the GPU model."""

    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    model: NDArray[np.int64]


class Shapes(NamedTuple):
    """What pods ask for. ``gpus``: how many; ``milli``: of each; ``models``: bits of those that will do, 0 = all."""

    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    milli: NDArray[np.int64]
    models: NDArray[np.int64]


class Typical(NamedTuple):
    """Shapes that fragments are measured by, without memory; ``share``: how frequent each is."""

    cpu: NDArray[np.int64]
    gpus: NDArray[np.int64]
    milli: NDArray[np.int64]
    models: NDArray[np.int64]
    share: NDArray[np.float64]


@njit(cache=True)
def fragments(cpu: Any, gpu_free: Any, model: Any, typical: Any) -> float:
    """How much of a node's idle GPUs a typical pod could not use.

    Added up a reason at a time and then over the reasons, as theirs (``pkg/utils/frag.go``): a score is cut off to a
    whole number, which the last bit of a sum decides now and then.
    """
    idle = 0
    for milli in gpu_free:
        idle += milli
    lacks_both, lacks_gpu, lacks_cpu, no_gpu, no_gpu_lacks_cpu, no_access = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for t in range(len(typical.share)):
        request, share = typical.milli[t], typical.share[t]
        runs = cpu >= typical.cpu[t]
        if request == 0:
            if runs:
                no_gpu += share * idle
            else:
                no_gpu_lacks_cpu += share * idle
            continue
        if typical.models[t] != 0 and not (typical.models[t] >> model) & 1:
            no_access += share * idle
            continue
        enough, rest = 0, 0
        for milli in gpu_free:
            if milli >= request:
                enough += 1
            else:
                rest += milli
        if enough < typical.gpus[t]:
            if runs:
                lacks_gpu += share * idle
            else:
                lacks_both += share * idle
        elif runs:
            lacks_gpu += share * rest
        else:
            lacks_cpu += share * idle
    return lacks_both + lacks_gpu + lacks_cpu + no_gpu + no_gpu_lacks_cpu + no_access


@njit(cache=True)
def tightest(gpu_free: Any, milli: Any) -> int:
    """The GPU with the least room that is enough; the first of equals."""
    best = -1
    for i in range(len(gpu_free)):
        if gpu_free[i] >= milli and (best < 0 or gpu_free[i] < gpu_free[best]):
            best = i
    return best


@njit(cache=True)
def take(gpu_free: Any, gpus: Any, milli: Any) -> None:
    """Whole GPUs, or a part of one, where it is tightest."""
    for _ in range(gpus):
        gpu_free[tightest(gpu_free, milli)] -= milli


@njit(cache=True)
def gain(before: float, after: float) -> int:
    return int(1.0 / (1.0 + np.exp(-(before - after) / 1000.0)) * 100.0)


@njit(cache=True)
def fgd_score(before: float, cpu: Any, gpu_free: Any, model: Any, pod: Any, shapes: Any, typical: Any) -> Any:
    """(score, the GPU to share): how much less would be fragmented."""
    after = gpu_free.copy()
    cpu -= shapes.cpu[pod]
    gpus, milli = shapes.gpus[pod], shapes.milli[pod]
    if gpus != 1 or milli == WHOLE_GPU:
        take(after, gpus, milli)
        return gain(before, fragments(cpu, after, model, typical)), -1
    best, device = 0, -1
    for i in range(len(gpu_free)):
        if gpu_free[i] >= milli:
            after[i] -= milli
            score = gain(before, fragments(cpu, after, model, typical))
            after[i] += milli
            if device < 0 or score > best:
                best, device = score, i
    return best, device


@njit(cache=True)
def packing_score(gpu_free: Any, gpus: Any, milli: Any) -> int:
    """GPUs that are shared already come first, then those of nodes in use."""
    if gpus == 0:
        return 0
    untouched = 0
    for each in gpu_free:
        untouched += each == WHOLE_GPU
    if untouched == len(gpu_free):
        return max(33 - untouched, untouched)
    after, fresh, room = gpu_free.copy(), 0, 0
    for _ in range(gpus):
        i = tightest(after, milli)
        fresh += after[i] == WHOLE_GPU
        room += after[i] * 100 // WHOLE_GPU
        after[i] = -1
    return max(50 - fresh, 33) if fresh else max(100 - room // 10, 50)


@njit(cache=True)
def clustering_score(gpu_free: Any, kinds: Any, kind: Any) -> int:
    """Nodes that run pods with as many GPUs come first, those that run no others before the rest."""
    if kind == 0:
        return 0
    full = int(25 * (int(MOST_GPU) - gpu_free.sum()) // int(MOST_GPU))
    if kinds & kind:
        return full + (75 if kinds == kind else 50)
    return full + (25 if kinds == 0 else 0)


@njit(cache=True)
def amounts_score(policy: Any, cpu: Any, gpu_free: Any, asked_cpu: Any, asked_gpu: Any) -> int:
    gpu = gpu_free.sum()
    if policy == BEST_FIT:
        return int((1.0 - (0.5 * (cpu - asked_cpu) / MOST_CPU + 0.5 * (gpu - asked_gpu) / MOST_GPU)) * 100.0)
    product = cpu / MOST_CPU * (asked_cpu / MOST_CPU) + gpu / MOST_GPU * (asked_gpu / MOST_GPU)
    return int(100.0 * (1.0 - product / 2))


@njit(cache=True)
def fits(cpu: Any, memory: Any, gpu_free: Any, model: Any, pod: Any, shapes: Any) -> bool:
    if cpu < shapes.cpu[pod] or memory < shapes.memory[pod]:
        return False
    if shapes.gpus[pod] == 0:
        return True
    if shapes.models[pod] != 0 and not (shapes.models[pod] >> model) & 1:
        return False
    enough = 0
    for milli in gpu_free:
        enough += milli >= shapes.milli[pod]
    return enough >= shapes.gpus[pod]


@njit(cache=True)
def allocated(policy: Any, seed: Any, order: Any, nodes: Any, shapes: Any, typical: Any) -> Any:
    """Thousandths of GPUs that are allocated after each pod, int64. ``order``: shapes of the pods as they come;
    ``nodes``: by name; ``seed``: of what the policy Random draws."""
    np.random.seed(seed)
    count = len(nodes.cpu)
    cpu, memory = nodes.cpu.copy(), nodes.memory.copy()
    begins = np.zeros(count + 1, np.int64)
    begins[1:] = np.cumsum(nodes.gpus)
    gpu_free = np.full(begins[count], WHOLE_GPU, np.int64)
    kinds = np.zeros(count, np.int64)
    fragmented = np.zeros(count)
    scores = np.full((len(shapes.cpu), count), -1, np.int64)
    devices = np.full((len(shapes.cpu), count), -1, np.int64)
    computed_at = np.full((len(shapes.cpu), count), -1, np.int64)
    changes = np.zeros(count, np.int64)
    if policy == FGD:
        for n in range(count):
            fragmented[n] = fragments(cpu[n], gpu_free[begins[n] : begins[n + 1]], nodes.model[n], typical)
    done, after = 0, np.zeros(len(order), np.int64)
    for at, pod in enumerate(order):
        gpus, milli = shapes.gpus[pod], shapes.milli[pod]
        shared = gpus == 1 and milli < WHOLE_GPU
        kind = 0 if gpus == 0 else 1 if shared else 1 << gpus
        best, chosen, equals = -1, NO_NODE, 0
        for n in range(count):
            if computed_at[pod, n] != changes[n]:
                computed_at[pod, n] = changes[n]
                mine = gpu_free[begins[n] : begins[n + 1]]
                scores[pod, n] = -1
                if fits(cpu[n], memory[n], mine, nodes.model[n], pod, shapes):
                    if policy == RANDOM:
                        scores[pod, n] = 0
                    elif policy == FGD:
                        scores[pod, n], devices[pod, n] = fgd_score(
                            fragmented[n], cpu[n], mine, nodes.model[n], pod, shapes, typical
                        )
                    elif policy == PACKING:
                        scores[pod, n] = packing_score(mine, gpus, milli)
                    elif policy == CLUSTERING:
                        scores[pod, n] = clustering_score(mine, kinds[n], kind)
                    else:
                        scores[pod, n] = amounts_score(policy, cpu[n], mine, shapes.cpu[pod], gpus * milli)
            score = scores[pod, n]
            if score > best:
                best, chosen, equals = score, n, 1
            elif policy == RANDOM and score == best and score >= 0:
                equals += 1
                if np.random.randint(0, equals) == 0:
                    chosen = n
        if chosen == NO_NODE:
            after[at] = done
            continue
        mine = gpu_free[begins[chosen] : begins[chosen + 1]]
        cpu[chosen] -= shapes.cpu[pod]
        memory[chosen] -= shapes.memory[pod]
        if shared and policy == FGD:
            mine[devices[pod, chosen]] -= milli
        elif shared and policy == RANDOM:
            device, equals = -1, 0
            for i in range(len(mine)):
                if mine[i] >= milli:
                    equals += 1
                    if np.random.randint(0, equals) == 0:
                        device = i
            mine[device] -= milli
        else:
            take(mine, gpus, milli)
        kinds[chosen] |= kind
        changes[chosen] += 1
        done += gpus * milli
        after[at] = done
        if policy == FGD:
            fragmented[chosen] = fragments(cpu[chosen], mine, nodes.model[chosen], typical)
    return after
