"""Pod shapes: pods of one class that also agree in every field that decisions read of a placed pod.

These fields are the annotations that decisions read (:mod:`kscale.objects.pod_owners`), volumes on the node's disk,
phase, restart policy, priority, termination grace period, the requests of each container, and the exact amounts
behind rounded requests. Only name, UID and times (creation, start, readiness, deletion) may differ. Shapes are
numbered from 1, when a list is read or on first use. An exemplar pod represents each shape.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.objects.api.core import Affinity, Pod
from kscale.objects.api.meta import OwnerReference, ResourceList
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_stored_json
from kscale.objects.pod_owners import READ_ANNOTATIONS
from kscale.objects.pod_resources import CPU, is_sidecar, occupancy, was_never_resized

__all__ = ["Shape", "renumber", "shape_key"]

_LABELS: Final = msgspec.json.Decoder(dict[str, str] | None)
_AFFINITY: Final = msgspec.json.Decoder(Affinity | None)
_VOLUMES: Final = msgspec.json.Decoder(list[Volume])
_OWNERS: Final = msgspec.json.Decoder(list[OwnerReference])


class Shape:
    """A shape of pods, as a pod or as JSON texts that are decoded on demand.

    The texts are those of the shape's first pod: the rest, then labels, affinity, volumes and owners (None if absent).
    ``settled``: the node affinity says where that pod is, not where pods of the shape may be placed. ``stops``: the pod
    is being deleted (known after decoding).
    """

    __slots__ = ("_pod", "_texts", "settled", "stops")

    def __init__(self, pod: Pod | None, texts: tuple[bytes | None, ...] = (), *, settled: bool = False) -> None:
        self._pod = pod
        self._texts = texts
        self.settled = settled
        self.stops = pod is not None and pod.metadata.deletion_timestamp is not None

    @property
    def exemplar(self) -> Pod:
        """Return a pod of this shape with the fields that decisions read."""
        if self._pod is None:
            self._pod = self._decode()
            self.stops = self._pod.metadata.deletion_timestamp is not None
        return self._pod

    @property
    def text(self) -> bytes | Pod:
        """Return the JSON text of the first pod, without labels, affinity, volumes and owners.

        Returns the pod instead if it is already decoded or was never a text.
        """
        if self._pod is not None:
            return self._pod
        rest = self._texts[0]
        assert rest is not None
        return rest

    def _decode(self) -> Pod:
        """Decode the shape's texts and return its exemplar pod."""
        rest, labels, affinity, volumes, owners = self._texts
        assert rest is not None
        pod = from_stored_json(rest, Pod)
        pod.kind, pod.api_version = "Pod", "v1"
        if labels is not None:
            pod.metadata.labels = _LABELS.decode(labels)
        if affinity is not None:
            pod.spec.affinity = _AFFINITY.decode(affinity)
            if self.settled and pod.spec.affinity is not None:
                pod.spec.affinity.node_affinity = None
        if volumes is not None:
            pod.spec.volumes = _VOLUMES.decode(volumes)
        if owners is not None:
            pod.metadata.owner_references = _OWNERS.decode(owners)
        return pod

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (None if self._texts else self._pod, self._texts, self.settled)


def _restored(pod: Pod | None, texts: tuple[bytes | None, ...], settled: bool) -> Shape:
    """Rebuild a shape when it is unpickled. The arguments are those of :class:`Shape`."""
    return Shape(pod, texts, settled=settled)


def shape_key(pod: Pod, class_of: int) -> tuple[Any, ...]:
    """Return a key that is equal for pods of one shape. ``class_of`` is the number of the pod's class."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations = metadata.annotations
    local = None
    if spec.volumes:
        local = tuple(
            (volume.name, None if volume.host_path is not None else (volume.empty_dir or {}).get("medium"))
            for volume in spec.volumes
            if volume.host_path is not None or volume.empty_dir is not None
        )
    return (
        class_of,
        tuple(map(annotations.get, READ_ANNOTATIONS)) if annotations else None,
        local,
        status.phase,
        spec.restart_policy,
        spec.priority,
        spec.termination_grace_period_seconds,
        _list_requests(pod),
        _fractions(pod),
    )


def _list_requests(pod: Pod) -> tuple[Any, ...]:
    """Return (container name, its requests as :func:`_list_texts`) for each regular container and sidecar.

    Pod-level requests follow as the last entry, if the pod has any.
    """
    spec = pod.spec
    containers = [*spec.containers, *(each for each in spec.init_containers if is_sidecar(each))]
    requests = [(each.name, _list_texts(each.resources.requests)) for each in containers]
    if spec.resources is not None and spec.resources.requests is not None:
        return (*requests, _list_texts(spec.resources.requests))
    return tuple(requests)


def _list_texts(amounts: ResourceList | None) -> tuple[tuple[str, str], ...]:
    """Return (resource, canonical text) of each amount."""
    return tuple([(name, str(amount)) for name, amount in (amounts or {}).items()])


def _fractions(pod: Pod) -> tuple[tuple[str, str], ...] | None:
    """Return (resource, exact amount) of what the pod occupies if amounts of its class are rounded.

    None if no amount is rounded, or if the containers' requests alone determine the exact amounts.
    """
    spec, status = pod.spec, pod.status
    if not spec.init_containers and not spec.overhead and was_never_resized(pod):
        return None
    fine = any(_is_fractional(container.resources.requests) for container in spec.containers)
    if not fine and spec.init_containers:
        fine = any(_is_fractional(container.resources.requests) for container in spec.init_containers)
    fine = (
        fine
        or _is_fractional(spec.overhead)
        or (spec.resources is not None and _is_fractional(spec.resources.requests))
    )
    if not fine and (status.container_statuses or status.init_container_statuses):
        for item in (*status.container_statuses, *status.init_container_statuses):
            fine = fine or _is_fractional(item.allocated_resources)
            fine = fine or (item.resources is not None and _is_fractional(item.resources.requests))
    fine = fine or _is_fractional(status.allocated_resources)
    fine = fine or (status.resources is not None and _is_fractional(status.resources.requests))
    return tuple((name, str(amount)) for name, amount in sorted(occupancy(pod).items())) if fine else None


def _is_fractional(amounts: ResourceList | None) -> bool:
    """Check whether some amount is not a whole number of milli-cores, bytes or other units."""
    if not amounts:
        return False
    return any(not amount.is_whole(-3 if name == CPU else 0) for name, amount in amounts.items())


_SPARSE: Final = 64
"""So many times as many numbers as entries are few of very many."""


def renumber(numbers: NDArray[np.int32] | NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Renumber the distinct values from 0, in ascending order.

    Returns
    -------
    inverse : int32[n]
        Number of each entry.
    first : int64[k]
        Index of the first entry with each value.
    """
    if not len(numbers):
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    limit = int(numbers.max()) + 1
    if limit > _SPARSE * len(numbers):  # few distinct values in a large range: sorting is cheaper than counting
        order = numbers.argsort(kind="stable")
        ordered, is_new = numbers[order], np.ones(len(numbers), dtype=np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
        inverse = np.empty(len(numbers), dtype=np.int32)
        inverse[order] = is_new.cumsum() - 1
        return inverse, order[is_new]
    first = np.full(limit, -1, dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    used = (first >= 0).nonzero()[0]
    number = np.zeros(len(first), dtype=np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    return number[numbers], first[used]
