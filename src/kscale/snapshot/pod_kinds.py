"""Kinds of pods: pods of one class that also agree in everything else that scale-down reads of a pod.

That is the annotations of :data:`READ_ANNOTATIONS`, volumes on the node's disk, phase, restart policy, priority, when
the pod was told to stop and how long it may take, and the exact amounts behind rounded requests. Only the name, the
UID and the time of creation may differ. Kinds are numbered when a list is read, or when first asked for.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.owners import CONFIG_MIRROR_ANNOTATION, DAEMONSET_POD_ANNOTATION
from kscale.objects.requests import CPU, occupancy
from kscale.snapshot.interner import Interner
from kscale.snapshot.pod_table import PodTable

__all__ = ["READ_ANNOTATIONS", "kind_of_pod", "kinds_of_rows", "numbered"]

READ_ANNOTATIONS: Final = (
    CONFIG_MIRROR_ANNOTATION,
    DAEMONSET_POD_ANNOTATION,
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
)


def kind_of_pod(pod: Pod, class_of: int, interner: Interner) -> int:
    """The number of a pod's kind; ``class_of``: its class."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations = metadata.annotations
    local = None
    if spec.volumes:
        local = tuple(
            (volume.name, None if volume.host_path is not None else (volume.empty_dir or {}).get("medium"))
            for volume in spec.volumes
            if volume.host_path is not None or volume.empty_dir is not None
        )
    return interner.kind(
        (
            class_of,
            tuple(map(annotations.get, READ_ANNOTATIONS)) if annotations else None,
            local,
            status.phase,
            spec.restart_policy,
            spec.priority,
            metadata.deletion_timestamp,
            None if metadata.deletion_timestamp is None else spec.termination_grace_period_seconds,
            _fractions(pod),
        )
    )


def _fractions(pod: Pod) -> tuple[tuple[str, str], ...] | None:
    """What the pod takes, where that is finer than the amounts of its class; None = it is not."""
    spec, status = pod.spec, pod.status
    fine = any(_is_fine(container.resources.requests) for container in spec.containers)
    if not fine and spec.init_containers:
        fine = any(_is_fine(container.resources.requests) for container in spec.init_containers)
    fine = fine or _is_fine(spec.overhead) or (spec.resources is not None and _is_fine(spec.resources.requests))
    if not fine and (status.container_statuses or status.init_container_statuses):
        for item in (*status.container_statuses, *status.init_container_statuses):
            fine = fine or _is_fine(item.allocated_resources)
            fine = fine or (item.resources is not None and _is_fine(item.resources.requests))
    fine = fine or _is_fine(status.allocated_resources)
    fine = fine or (status.resources is not None and _is_fine(status.resources.requests))
    return tuple((name, str(amount)) for name, amount in sorted(occupancy(pod).items())) if fine else None


def _is_fine(amounts: ResourceList | None) -> bool:
    """Whether some amount is no whole number of milli-cores, bytes, ..."""
    if not amounts:
        return False
    return any(not amount.is_whole(-3 if name == CPU else 0) for name, amount in amounts.items())


def kinds_of_rows(table: PodTable, rows: NDArray[np.int64], interner: Interner) -> NDArray[np.int32]:
    """Kinds of the pods of some rows: int32[n]. Those of structs are numbered now, once in the life of a row."""
    column = table.column("kind_of")
    unknown = rows[column[rows] == 0]
    if len(unknown):
        source = table.column("source")
        of_exemplar: dict[int, int] = {}
        numbers = []
        for row, at, class_of in zip(
            unknown.tolist(), source[unknown].tolist(), table.column("class_of")[unknown].tolist(), strict=True
        ):
            if at < -1:
                if at not in of_exemplar:
                    of_exemplar[at] = kind_of_pod(table.exemplars[-2 - at], class_of, interner)
                numbers.append(of_exemplar[at])
            else:
                numbers.append(kind_of_pod(table.record(row).pod, class_of, interner))
        # Rows are shared with tables that were frozen earlier: the same pods there, so the same answer.
        column[unknown] = numbers
    kinds: NDArray[np.int32] = column[rows]
    return kinds


def numbered(kinds: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(kind of each pod int32[n], first pod of each kind int64[kinds]): the kinds that occur, numbered from 0."""
    if not len(kinds):
        return kinds, np.zeros(0, dtype=np.int64)
    first = np.full(int(kinds.max()) + 1, -1, dtype=np.int64)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]
    used = np.flatnonzero(first >= 0)
    number = np.zeros(len(first), dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return number[kinds], first[used]
