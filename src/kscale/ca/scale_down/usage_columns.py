"""What the pods of every node request, summed up at once: the same numbers as :func:`~.utilization.usage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.ca.pods import is_long_terminating
from kscale.ca.scale_down.moving_pods import MovingPods
from kscale.ca.scale_down.utilization import Usage
from kscale.objects.core import Pod
from kscale.objects.owners import is_daemonset_pod, is_mirror_pod
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.requests import CPU, MEMORY, occupancy

__all__ = ["UsageColumns"]

# Sums of so many requests below so many thousandths stay within 64 bits.
_MOST_PODS: Final = 1 << 12
_MOST: Final = 1 << 50
_DAEMON, _MIRROR, _GONE = 1, 2, 4


class UsageColumns:
    """Sums of cpu and memory over the placed pods of a snapshot, by node.

    A node with a request that is finer than thousandths or enormous has none: it is to be summed up pod by pod.
    """

    def __init__(self, pods: MovingPods, nodes: int, now_ns: int) -> None:
        here = pods.node >= 0
        node, kind = (pods.node, pods.kind_of) if here.all() else (pods.node[here], pods.kind_of[here])
        requests = pods.memo.of(_Requests, lambda: _Requests(pods.exemplars))
        sort_of = np.array([_sort(pod, now_ns) for pod in pods.exemplars], dtype=np.int8)
        self._sorts: list[int] = sorted(set(sort_of.tolist()))
        odd = requests.odd
        sorts = sort_of[kind] if len(self._sorts) > 1 else None
        self._sums: dict[tuple[str, int], NDArray[np.int64]] = {}
        for name in (CPU, MEMORY):
            taken = requests.amounts[name][kind]
            for sort in self._sorts:
                mine = slice(None) if sorts is None else sorts == sort
                total = np.zeros(nodes, dtype=np.int64)
                np.add.at(total, node[mine], taken[mine])
                self._sums[name, sort] = total
        exact = np.bincount(node, minlength=nodes) < _MOST_PODS
        if odd.any():
            exact[node[odd[kind]]] = False
        self._exact: list[bool] = exact.tolist()
        self._of: dict[tuple[bool, bool], list[list[int]]] = {}

    def knows(self, node: int) -> bool:
        """Whether :meth:`usage` has an answer."""
        return self._exact[node]

    def usage(self, node: int, *, skip_daemon_set_pods: bool, skip_mirror_pods: bool) -> Usage | None:
        """What the pods of a node request; None: not known here."""
        if not self._exact[node]:
            return None
        asked = skip_daemon_set_pods, skip_mirror_pods
        columns = self._of.get(asked)
        if columns is None:
            columns = self._of[asked] = self._columns(*asked)
        cpu, memory, skipped_cpu, skipped_memory = columns
        return Usage(
            used={CPU: cpu[node], MEMORY: memory[node]},
            skipped={CPU: skipped_cpu[node], MEMORY: skipped_memory[node]},
        )

    def _columns(self, skip_daemon_set_pods: bool, skip_mirror_pods: bool) -> list[list[int]]:
        """Used cpu and memory, then those of pods that are left aside, by node."""
        nodes = len(self._exact)
        used = {name: np.zeros(nodes, dtype=np.int64) for name in (CPU, MEMORY)}
        skipped = {name: np.zeros(nodes, dtype=np.int64) for name in (CPU, MEMORY)}
        for sort in self._sorts:
            aside = (skip_daemon_set_pods and sort & _DAEMON) or (skip_mirror_pods and sort & _MIRROR)
            if not aside and sort & _GONE:
                continue
            for name, total in (skipped if aside else used).items():
                total += self._sums[name, sort]
        return [total.tolist() for total in (*used.values(), *skipped.values())]


class _Requests:
    """What each pod requests in thousandths, by resource: int64[pods]; ``odd``: bool[pods], requests that are finer or
    enormous, which stand as 0."""

    __slots__ = ("amounts", "odd")

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.odd = np.zeros(len(pods), dtype=np.bool_)
        self.amounts = {name: np.zeros(len(pods), dtype=np.int64) for name in (CPU, MEMORY)}
        for i, pod in enumerate(pods):
            request = occupancy(pod)
            for name, column in self.amounts.items():
                milli = _thousandths(request[name]) if name in request else 0
                self.odd[i] |= milli is None
                column[i] = milli or 0


def _sort(pod: Pod, now_ns: int) -> int:
    return _DAEMON * is_daemonset_pod(pod) + _MIRROR * is_mirror_pod(pod) + _GONE * is_long_terminating(pod, now_ns)


def _thousandths(amount: Quantity) -> int | None:
    """The exact amount in thousandths, if it is a whole number of them and not enormous."""
    try:
        milli = amount.as_fraction() * 1000
    except QuantityError:
        return None
    return int(milli) if milli.denominator == 1 and -_MOST < milli < _MOST else None
