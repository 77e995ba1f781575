"""Which pods run, which wait, and which nobody looks at (``utils/kubernetes/listers.go``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.conditions import find
from kscale.objects.core import Pod
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PodLists", "excluded_placed", "split"]

DEFAULT_SCHEDULER = "default-scheduler"


class PodLists(msgspec.Struct, kw_only=True):
    """Pods by what they are, each list in input order.

    - ``scheduled``: bound to a node; ``nominated``: about to be, after a preemption.
    - ``unschedulable``: the scheduler said so; ``unprocessed``: of a bypassed scheduler that has not spoken.
    - ``ignored``: being deleted, gated, or not looked at by the scheduler yet; ``excluded``: of a scheduler that is not
      among the allowed ones. Pods that have ended are in no list.
    """

    scheduled: list[Pod] = []
    nominated: list[Pod] = []
    unschedulable: list[Pod] = []
    unprocessed: list[Pod] = []
    ignored: list[Pod] = []
    excluded: list[Pod] = []


def split(pods: Iterable[Pod], *, bypassed: Collection[str] = (), allowed: Collection[str] = ()) -> PodLists:
    """Sorts pods into lists; the first rule that matches decides.

    ``bypassed``: schedulers that are not waited for; ``allowed``: if not empty, pods of all others do not exist.
    Naming the default scheduler covers pods that name none.
    """
    bypassed, allowed = _with_empty(bypassed), _with_empty(allowed)
    found = PodLists()
    for pod in pods:
        if pod.status.phase not in ("Succeeded", "Failed"):
            _list_of(found, pod, bypassed, allowed).append(pod)
    return found


def excluded_placed(snapshot: Snapshot, allowed: Collection[str]) -> NDArray[np.int64]:
    """Return the positions of the placed pods whose scheduler is not allowed: int64[n], into ``snapshot.pods``.

    ``allowed`` as in :func:`split`; empty = every scheduler is allowed.
    """
    names = _with_empty(allowed)
    if not names:
        return np.empty(0, dtype=np.int64)
    return snapshot.placed.where(
        f"pods of other schedulers than {sorted(names)}",
        lambda pod: (pod.spec.scheduler_name or "") not in names,
        np.arange(len(snapshot.placed_node), dtype=np.int64),
    )


def _with_empty(names: Collection[str]) -> frozenset[str]:
    return frozenset((*names, "") if DEFAULT_SCHEDULER in names else names)


def _list_of(found: PodLists, pod: Pod, bypassed: frozenset[str], allowed: frozenset[str]) -> list[Pod]:
    scheduler = pod.spec.scheduler_name or ""
    if allowed and scheduler not in allowed:
        return found.excluded
    if pod.spec.node_name:
        return found.scheduled
    if pod.metadata.deletion_timestamp is not None:
        return found.ignored
    if pod.status.nominated_node_name:
        return found.nominated
    condition = find(pod.status.conditions, "PodScheduled")
    if condition is not None and condition.status == "False" and condition.reason == "Unschedulable":
        return found.unschedulable
    unspoken = condition is None or (condition.status == "False" and not condition.reason)
    return found.unprocessed if scheduler in bypassed and unspoken else found.ignored
