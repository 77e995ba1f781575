"""Lists of placed, pending and excluded pods, and expendable pods.

Upstream: ``utils/kubernetes/listers.go``, ``core/utils/expendable.go``, ``utils/tpu``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.options import AutoscalingOptions
from kscale.objects.api.core import Container, Pod
from kscale.objects.conditions import find
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import PodRows
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "TPU_RESOURCE_PREFIX",
    "PendingPodList",
    "PodLists",
    "clear_tpu_requests",
    "drop_expendable_pods",
    "drop_uncounted_pods",
    "filter_out_expendable_pods",
    "find_excluded_placed_pods",
    "find_expendable_placed_pods",
    "is_expendable",
    "split_pods",
]


TPU_RESOURCE_PREFIX: Final = "cloud-tpus.google.com/"


def clear_tpu_requests(pods: Sequence[Pod]) -> list[Pod]:
    """Copy the pods that request TPUs without these requests. Limits and init containers stay unchanged."""
    return [_clear_pod(pod) if any(map(_requests_tpu, pod.spec.containers)) else pod for pod in pods]


def _requests_tpu(container: Container) -> bool:
    return any(name.startswith(TPU_RESOURCE_PREFIX) for name in container.resources.requests or {})


def _clear_pod(pod: Pod) -> Pod:
    containers = [
        _clear_container(container) if _requests_tpu(container) else container for container in pod.spec.containers
    ]
    return replace(pod, spec=replace(pod.spec, containers=containers))


def _clear_container(container: Container) -> Container:
    requests = container.resources.requests or {}
    retained = {name: amount for name, amount in requests.items() if not name.startswith(TPU_RESOURCE_PREFIX)}
    return replace(container, resources=replace(container.resources, requests=retained))


_PENDING_POD_KINDS_KEY: Final = "kinds of waiting pods"
_MAX_UNUSED_KINDS: Final = 256  # kinds without pods


class PendingPodList:
    """Pods in order, with one example per kind.

    ``kind``: int32[n], indices into ``examples``. Pods of one kind are equal in all that the pod list rules read,
    including requests and creation time. An example may be of an earlier loop.
    """

    __slots__ = ("examples", "kind", "records")

    def __init__(self, records: Sequence[PodRecord], kind: NDArray[np.int32], examples: Sequence[Pod]) -> None:
        self.records = records
        self.kind = kind
        self.examples = examples

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def of(cls, records: Sequence[PodRecord]) -> PendingPodList:
        """Build the list. Kinds of a snapshot's pending pods are cached; other pods are each of their own kind."""
        if not isinstance(records, PodRows) or not records.pending:
            return cls(records, np.arange(len(records), dtype=np.int32), [record.pod for record in records])
        memo = records.table.memo
        with memo.lock:
            stamps, numbers, known = (
                records.stamps,
                memo.get_numbers(_PENDING_POD_KINDS_KEY),
                memo.values(_PENDING_POD_KINDS_KEY),
            )
            missing = np.flatnonzero(numbers[stamps] == 0)
            if len(missing):
                numbers[stamps[missing]] = _number_kinds(records.take(missing), known)
            present, kind = _order_by_first_use(numbers[stamps])
            entries = list(known.items())
            used_kinds = [entries[number - 1] for number in present.tolist()]
            if len(missing) and len(known) > 2 * len(used_kinds) + _MAX_UNUSED_KINDS:
                known.clear()
                known.update((key, (number, pod)) for number, (key, (_, pod)) in enumerate(used_kinds, 1))
                numbers[:] = 0
                numbers[stamps] = kind + 1
        return cls(records, kind, [pod for _, (_, pod) in used_kinds])

    def take(self, positions: NDArray[np.int64]) -> PendingPodList:
        """Return the pods at some positions."""
        return PendingPodList(take_records(self.records, positions), self.kind[positions], self.examples)

    @property
    def in_play(self) -> list[Pod]:
        """Return one pod of each kind that occurs, in the order of the kinds' first appearance."""
        return [self.examples[number] for number in self._present.tolist()]

    @property
    def _present(self) -> NDArray[np.int64]:
        """Return the kinds that occur, ascending."""
        return np.flatnonzero(np.bincount(self.kind, minlength=len(self.examples)))

    def among(self, chosen: Iterable[Pod]) -> NDArray[np.bool_]:
        """Return which pods' examples are among these (by identity): bool[n]."""
        wanted = {id(pod) for pod in chosen}
        selected = np.zeros(len(self.examples), dtype=np.bool_)
        for number in self._present.tolist():
            selected[number] = id(self.examples[number]) in wanted
        return selected[self.kind]

    def followed_by(self, pods: Sequence[Pod]) -> PendingPodList:
        """Return the list with pods appended that are in no snapshot; the same list for no pods."""
        return PendingPodList.of([*self.records, *map(PodRecord, pods)]) if pods else self

    def filter_by(self, rule: Callable[[list[Pod]], Iterable[Pod]]) -> PendingPodList:
        """Filter the pods by a rule that only removes pods."""
        return self.take(np.flatnonzero(self.among(rule(self.in_play))))

    @property
    def keys(self) -> list[str]:
        """Return ``namespace/name`` of the pods, in order."""
        return get_record_keys(self.records)


def _number_kinds(unknown: PodRows, known: dict[Hashable, tuple[int, Pod]]) -> NDArray[np.int64]:
    """Return the kind numbers of the pods: int64[n].

    ``known`` maps what the pods of a kind have in common to its number and an example, in the order of numbers from 1
    on. Missing kinds are added.
    """
    firsts, which = unknown.kinds
    numbers = []
    for at, key in zip(firsts.tolist(), unknown.kind_keys(firsts), strict=True):
        if key not in known:
            known[key] = len(known) + 1, unknown[at].pod
        numbers.append(known[key][0])
    return np.array(numbers, dtype=np.int64)[which]


def _order_by_first_use(numbers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the numbers that occur, in the order of their first use, and the index of each entry there (int32[n])."""
    first = np.full(int(numbers.max(initial=0)) + 1, len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # reversed, so that the first occurrence is stored last
    present = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(numbers))]
    rank = np.empty(len(first), dtype=np.int32)
    rank[present] = np.arange(len(present))
    return present, rank[numbers]


def take_records(records: Sequence[PodRecord], positions: NDArray[np.int64]) -> Sequence[PodRecord]:
    """Return the pods at some positions."""
    if isinstance(records, PodRows):
        return records.take(positions)
    return [records[i] for i in positions.tolist()]


def get_record_keys(records: Sequence[PodRecord]) -> list[str]:
    """Return ``namespace/name`` of pods, in order."""
    if isinstance(records, PodRows):
        return records.keys_at(np.arange(len(records)))
    return [record.key for record in records]


DEFAULT_SCHEDULER_NAME = "default-scheduler"


class PodLists(msgspec.Struct, kw_only=True):
    """Pods by state, each list in input order. Finished pods are in no list.

    - ``scheduled``: bound to a node; ``nominated``: about to be bound, after a preemption.
    - ``unschedulable``: reported as such by the scheduler; ``unprocessed``: of a bypassed scheduler that has not
      processed them yet.
    - ``ignored``: being deleted, gated, or not yet processed by the scheduler; ``excluded``: of a scheduler that is not
      allowed.
    """

    scheduled: list[Pod] = []
    nominated: list[Pod] = []
    unschedulable: list[Pod] = []
    unprocessed: list[Pod] = []
    ignored: list[Pod] = []
    excluded: list[Pod] = []


def split_pods(pods: Iterable[Pod], *, bypassed: Collection[str] = (), allowed: Collection[str] = ()) -> PodLists:
    """Sort pods into lists; the first rule that matches decides.

    ``bypassed``: schedulers that are not waited for. ``allowed``: if not empty, pods of all other schedulers are
    excluded. Naming the default scheduler covers pods that name none.
    """
    bypassed, allowed = _include_empty_name(bypassed), _include_empty_name(allowed)
    lists = PodLists()
    for pod in pods:
        if pod.status.phase not in ("Succeeded", "Failed"):
            _choose_list(lists, pod, bypassed, allowed).append(pod)
    return lists


def find_excluded_placed_pods(snapshot: Snapshot, allowed: Collection[str]) -> NDArray[np.int64]:
    """Return the positions of the placed pods whose scheduler is not allowed: int64[n], into ``snapshot.pods``.

    ``allowed`` as in :func:`split_pods`; empty = every scheduler is allowed.
    """
    names = _include_empty_name(allowed)
    if not names:
        return np.empty(0, dtype=np.int64)
    return snapshot.placed.where(
        f"pods of other schedulers than {sorted(names)}",
        lambda pod: (pod.spec.scheduler_name or "") not in names,
        np.arange(len(snapshot.placed_node), dtype=np.int64),
    )


def _include_empty_name(names: Collection[str]) -> frozenset[str]:
    return frozenset((*names, "") if DEFAULT_SCHEDULER_NAME in names else names)


def _choose_list(lists: PodLists, pod: Pod, bypassed: frozenset[str], allowed: frozenset[str]) -> list[Pod]:
    scheduler = pod.spec.scheduler_name or ""
    if allowed and scheduler not in allowed:
        return lists.excluded
    if pod.spec.node_name:
        return lists.scheduled
    if pod.metadata.deletion_timestamp is not None:
        return lists.ignored
    if pod.status.nominated_node_name:
        return lists.nominated
    condition = find(pod.status.conditions, "PodScheduled")
    if condition is not None and condition.status == "False" and condition.reason == "Unschedulable":
        return lists.unschedulable
    unspoken = condition is None or (condition.status == "False" and not condition.reason)
    return lists.unprocessed if scheduler in bypassed and unspoken else lists.ignored


_HAS_PRIORITY_KEY = "pods that name a priority"


def is_expendable(pod: Pod, cutoff: int) -> bool:
    """Return whether the pod's priority is below the cutoff; False for a pod without priority."""
    return pod.spec.priority is not None and pod.spec.priority < cutoff


def filter_out_expendable_pods(pods: Iterable[Pod], cutoff: int) -> list[Pod]:
    """Return the pods that are not expendable (priority below ``cutoff``), in order."""
    return [pod for pod in pods if not is_expendable(pod, cutoff)]


def find_expendable_placed_pods(snapshot: Snapshot, cutoff: int) -> NDArray[np.int64]:
    """Return the positions of expendable placed pods in ``snapshot.pods``, int64[n]."""
    low = np.flatnonzero(snapshot.placed.priorities < cutoff)
    if cutoff <= 0 or not len(low):
        return low
    # A pod without priority has 0 in the column.
    return snapshot.placed.where(_HAS_PRIORITY_KEY, lambda pod: pod.spec.priority is not None, low)


def drop_expendable_pods(snapshot: Snapshot, cutoff: int) -> Snapshot:
    """Return the snapshot without its expendable placed pods, as upstream's snapshot."""
    return snapshot.without_placed(find_expendable_placed_pods(snapshot, cutoff))


def drop_uncounted_pods(snapshot: Snapshot, options: AutoscalingOptions) -> Snapshot:
    """Return the snapshot without the placed pods that take no room in upstream's simulation.

    These are expendable pods (a priority below ``expendable_pods_priority_cutoff``) and, if schedulers are allowed by
    name, pods of all other schedulers. Upstream leaves them out of its snapshot before it makes node templates
    (``core/static_autoscaler.go``: RunOnce), so a template from a node has none of them either.
    """
    uncounted = find_expendable_placed_pods(snapshot, options.expendable_pods_priority_cutoff)
    if options.allowed_scheduler_names:
        uncounted = np.union1d(uncounted, find_excluded_placed_pods(snapshot, options.allowed_scheduler_names))
    return snapshot.without_placed(uncounted)
