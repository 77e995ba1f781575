"""What the pods of every node request, summed up at once: the same numbers as :func:`~.utilization.usage`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.ca.gpu import GPU_VENDOR_RESOURCES
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
_DAEMON, _MIRROR, _GONE, _STOPS = 1, 2, 4, 8

_RESOURCES: Final = (CPU, MEMORY, *GPU_VENDOR_RESOURCES)


class UsageColumns:
    """Sums of what utilisation goes by (cpu, memory, devices of vendors) over the placed pods of a snapshot, by node.

    A node with a request that is finer than thousandths or enormous has none: it is to be summed up pod by pod.
    ``sums``: int64[nodes] by resource and sort of pods; ``exact``: bool[nodes], whether there are sums.
    """

    def __init__(self, pods: MovingPods, nodes: int, now_ns: int) -> None:
        here = pods.node >= 0
        node, kind = (pods.node, pods.kind_of) if here.all() else (pods.node[here], pods.kind_of[here])
        requests = pods.memo.of(_Requests, lambda: _Requests(pods))
        sort_of = requests.sorts.copy()
        for stopping in requests.stopping:
            sort_of[stopping] |= _GONE * is_long_terminating(pods.exemplars[stopping], now_ns)
        sorts, place = np.unique(sort_of, return_inverse=True)
        self._sorts: list[int] = sorts.tolist()
        odd = requests.odd
        at = place.take(kind) * nodes + node
        self.sums: dict[tuple[str, int], NDArray[np.int64]] = {}
        for name, amounts in requests.amounts.items():
            total = np.zeros(len(sorts) * nodes, dtype=np.int64)
            np.add.at(total, at, amounts.take(kind))
            self.sums.update({(name, sort): of for sort, of in zip(self._sorts, total.reshape(-1, nodes), strict=True)})
        exact = np.bincount(node, minlength=nodes) < _MOST_PODS
        if odd.any():
            exact[node[odd.take(kind)]] = False
        self.exact: NDArray[np.bool_] = exact
        self._of: dict[tuple[str, bool, bool], tuple[list[int], list[int]]] = {}

    @classmethod
    def of(cls, pods: MovingPods, nodes: int, now_ns: int) -> UsageColumns:
        """Those of pods, worked out once if none of them was told to stop."""
        if pods.memo.of(_Requests, lambda: _Requests(pods)).stopping:
            return cls(pods, nodes, now_ns)
        return pods.memo.of(cls, lambda: cls(pods, nodes, now_ns))

    def usage(
        self, node: int, resources: Iterable[str], *, skip_daemon_set_pods: bool, skip_mirror_pods: bool
    ) -> Usage | None:
        """What the pods of a node request; None: not known here."""
        if not self.exact[node]:
            return None
        used, skipped = {}, {}
        for name in resources:
            asked = name, skip_daemon_set_pods, skip_mirror_pods
            columns = self._of.get(asked)
            if columns is None:
                columns = self._of[asked] = self._columns(*asked)
            used[name], skipped[name] = columns[0][node], columns[1][node]
        return Usage(used=used, skipped=skipped)

    def _columns(self, name: str, skip_daemon_set_pods: bool, skip_mirror_pods: bool) -> tuple[list[int], list[int]]:
        """What is used, and what those pods take that are left aside, by node."""
        used, skipped = np.zeros((2, len(self.exact)), dtype=np.int64)
        for sort in self._sorts:
            aside = (skip_daemon_set_pods and sort & _DAEMON) or (skip_mirror_pods and sort & _MIRROR)
            if not aside and sort & _GONE:
                continue
            total = self.sums.get((name, sort))
            if total is not None:
                (skipped if aside else used)[:] += total
        return used.tolist(), skipped.tolist()


class _Requests:
    """Of each kind of pods: ``amounts`` in thousandths, int64[kinds] by resource; ``odd``: bool[kinds], requests that
    are finer or enormous, which stand as 0; ``sorts``: int8[kinds]; ``stopping``: kinds that were told to stop."""

    __slots__ = ("amounts", "odd", "sorts", "stopping")

    def __init__(self, pods: MovingPods) -> None:
        found = chain.from_iterable(pods.of_kinds(("requests",), _request))
        sorts, odd, *amounts = np.fromiter(found, np.int64).reshape(-1, 2 + len(_RESOURCES)).T
        self.odd = odd != 0
        self.sorts = (sorts & ~_STOPS).astype(np.int8)
        self.stopping: list[int] = np.flatnonzero(sorts & _STOPS).tolist()
        self.amounts = {
            name: np.ascontiguousarray(of) for name, of in zip(_RESOURCES, amounts, strict=True) if of.any()
        }


def _request(pod: Pod) -> tuple[int, ...]:
    """The sort of a pod, whether a request of it is finer than thousandths or enormous, and what it requests in
    thousandths, by resource."""
    sort = _DAEMON * is_daemonset_pod(pod) + _MIRROR * is_mirror_pod(pod)
    request = occupancy(pod)
    amounts = [_thousandths(request[name]) if name in request else 0 for name in _RESOURCES]
    stops = _STOPS * (pod.metadata.deletion_timestamp is not None)
    return sort + stops, None in amounts, *(amount or 0 for amount in amounts)


def _thousandths(amount: Quantity) -> int | None:
    """The exact amount in thousandths, if it is a whole number of them and not enormous."""
    try:
        milli, finer = divmod(amount.billionths(), 10**6)
    except QuantityError:
        return None
    return milli if not finer and -_MOST < milli < _MOST else None
