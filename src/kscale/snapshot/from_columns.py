"""kscale.from_columns: a snapshot for callers that have arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError
from kscale.objects.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, ResourceRequirements, Taint
from kscale.objects.decode import from_dict
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.quantity import Quantity
from kscale.objects.requests import CPU, PODS, is_scalar
from kscale.snapshot.columns import FIXED_RESOURCES, NodeColumns
from kscale.snapshot.informers import Informers
from kscale.snapshot.interner import Interner
from kscale.snapshot.pod_table import PENDING, PLACED, PodTable
from kscale.snapshot.record import standing_controller
from kscale.snapshot.snapshot import Snapshot

__all__ = ["from_columns"]


def from_columns(
    *,
    resources: Sequence[str],
    node_names: Sequence[str],
    allocatable: ArrayLike,
    slots: ArrayLike | None = None,
    labels: Mapping[str, Sequence[str | None]] | None = None,
    taints: Sequence[Sequence[Taint | dict[str, Any]]] | None = None,
    unschedulable: ArrayLike | None = None,
    pods: Sequence[Pod | dict[str, Any]] | None = None,
    demand: ArrayLike | None = None,
    pod_class: ArrayLike,
    pod_node: ArrayLike,
    pod_names: Sequence[str] | None = None,
) -> Snapshot:
    """A snapshot of N nodes and M pods of K classes; no object is made for a pod until it is asked for.

    ``allocatable``: int64[R, N], one row a name in ``resources``, milli-units of cpu and units of the rest; ``slots``:
    int64[N], how many pods a node takes (default 110); ``labels``: key -> N values, None = the node lacks it;
    ``taints``: N lists; ``unschedulable``: bool[N]. A node is labelled with its name as ``kubernetes.io/hostname``
    unless ``labels`` has that key.

    The classes are ``pods`` (K examples: what a pod of the class looks like, its node left out) or ``demand``, int64[K,
    R]: pods with these requests, those of a class being replicas of one controller in namespace ``default``.
    ``pod_class``: int[M]; ``pod_node``: int[M], the number of the node it runs on, -1 = pending. ``pod_names``:
    ``namespace/name`` of each pod; by default ``<namespace>/<name of the example>-<number of the pod>``.

    Raises InputError for shapes and numbers that do not match, and for examples with generic ephemeral volumes or
    resource claims: what such a pod is depends on its name.
    """
    columns = _nodes(resources, node_names, allocatable, slots, labels, taints, unschedulable)
    if (pods is None) == (demand is None):
        raise InputError("from_columns: give either pods or demand")
    examples = _examples(resources, demand) if pods is None else [_example(pod, i) for i, pod in enumerate(pods)]
    class_of, at = _integers(pod_class, "pod_class"), _integers(pod_node, "pod_node")
    if class_of.shape != at.shape:
        raise InputError("from_columns: pod_class and pod_node differ in length")
    if len(at) and not (class_of.min() >= 0 and class_of.max() < len(examples)):
        raise InputError(f"from_columns: pod_class is not between 0 and {len(examples) - 1}")
    if len(at) and not (at.min() >= -1 and at.max() < len(columns)):
        raise InputError(f"from_columns: pod_node is not between -1 and {len(columns) - 1}")
    if pod_names is not None and len(pod_names) != len(at):
        raise InputError("from_columns: pod_names and pod_node differ in length")

    interner = Interner()
    table = PodTable(interner.classes)
    classes = [interner.classify(pod, placed=True, moves=True) for pod in examples]
    table.exemplars = examples
    prefixes = [pod.key or f"default/class-{i}" for i, pod in enumerate(examples)]
    placed = at >= 0
    numbers = np.array([one.index for one in classes], dtype=np.int32)
    controllers = np.array([table.controller_number(standing_controller(pod)) for pod in examples], dtype=np.int32)
    priorities = np.array([pod.spec.priority or 0 for pod in examples], dtype=np.int64)
    table.extend(
        _Names(prefixes, class_of) if pod_names is None else list(pod_names),
        class_of=numbers[class_of],
        at=at,
        state=np.where(placed, PLACED, PENDING),
        priority=priorities[class_of],
        controller=controllers[class_of],
        source=-2 - class_of,
    )
    rows, nodes_of = np.flatnonzero(placed), at[placed].astype(np.int32)
    used: dict[str, NDArray[np.int64]] = {}
    for name in dict.fromkeys(name for one in classes for name in one.occupancy):
        amounts = np.array([one.occupancy.get(name, 0) for one in classes], dtype=np.int64)
        used[name] = np.zeros(len(columns), dtype=np.int64)
        np.add.at(used[name], nodes_of, amounts[class_of[placed]])
    waiting = np.flatnonzero(~placed)
    counts = dict.fromkeys(("gated", "terminating", "finished", "on unknown nodes"), 0)
    return Snapshot(
        interner=interner,
        nodes=columns,
        informers=Informers.of({}),
        used=used,
        pod_count=np.bincount(nodes_of, minlength=len(columns)).astype(np.int64),
        table=table,
        placed_rows=rows,
        placed_node=nodes_of,
        pending_rows=waiting,
        counts={"placed": len(rows), "pending": len(waiting), **counts},
        csi=False,
        dra=False,
    )


class _Names(Sequence[str]):
    """Names made when asked for."""

    def __init__(self, prefixes: list[str], class_of: NDArray[np.int64]) -> None:
        self._prefixes = prefixes
        self._class_of = class_of

    def __len__(self) -> int:
        return len(self._class_of)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        return f"{self._prefixes[self._class_of[i]]}-{i}"

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


def _integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"from_columns: {name} is not a column of integers")
    return array.astype(np.int64)


def _matrix(values: ArrayLike, name: str, shape: tuple[int, int]) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.shape != shape or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"from_columns: {name} is not a matrix of integers, {shape[0]} x {shape[1]}")
    return array.astype(np.int64)


def _quantity(resource: str, amount: int) -> Quantity:
    return Quantity(f"{amount}m" if resource == CPU else str(amount))


def _nodes(
    resources: Sequence[str],
    names: Sequence[str],
    allocatable: ArrayLike,
    slots: ArrayLike | None,
    labels: Mapping[str, Sequence[str | None]] | None,
    taints: Sequence[Sequence[Taint | dict[str, Any]]] | None,
    unschedulable: ArrayLike | None,
) -> NodeColumns:
    count = len(names)
    if len(set(names)) < count or "" in names:
        raise InputError("from_columns: node names are empty or occur twice")
    if PODS in resources or len(set(resources)) < len(resources):
        raise InputError(f"from_columns: a resource occurs twice, or {PODS!r} is among them: say it with slots")
    amounts = _matrix(allocatable, "allocatable", (len(resources), count))
    room = np.full(count, 110, dtype=np.int64) if slots is None else _integers(slots, "slots")
    cordoned = np.zeros(count, dtype=bool) if unschedulable is None else np.asarray(unschedulable, dtype=bool)
    lists: dict[str, Any] = {"slots": room, "unschedulable": cordoned, "taints": taints}
    lists |= {f"labels[{key}]": values for key, values in (labels or {}).items()}
    for what, values in lists.items():
        if values is not None and len(values) != count:
            raise InputError(f"from_columns: {what} has not one entry a node")
    quantities: dict[tuple[str, int], Quantity] = {}
    own: list[dict[str, Quantity]] = [{} for _ in names]
    for resource, column in zip((*resources, PODS), (*amounts.tolist(), room.tolist()), strict=True):
        for of_node, amount in zip(own, column, strict=True):
            found = quantities.get((resource, amount))
            if found is None:
                found = quantities[resource, amount] = _quantity(resource, amount)
            of_node[resource] = found
    labelled: list[dict[str, str]] = [{"kubernetes.io/hostname": name} for name in names]
    for key, values in (labels or {}).items():
        for of_labels, value in zip(labelled, values, strict=True):
            of_labels.pop(key, None)
            if value is not None:
                of_labels[key] = value
    tainted = [[from_dict(t, Taint) if isinstance(t, dict) else t for t in found] for found in taints or ()]
    nodes = [
        Node(
            api_version="v1",
            kind="Node",
            metadata=ObjectMeta(name=name, labels=labelled[i]),
            spec=NodeSpec(unschedulable=bool(cordoned[i]), taints=tainted[i] if tainted else []),
            status=NodeStatus(capacity=own[i], allocatable=own[i]),
        )
        for i, name in enumerate(names)
    ]
    if tainted:
        return NodeColumns(nodes)
    seen = {name: amounts[i] for i, name in enumerate(resources) if name in FIXED_RESOURCES or is_scalar(name)}
    return NodeColumns.of(
        nodes,
        allocatable={**{name: np.zeros(count, dtype=np.int64) for name in FIXED_RESOURCES}, **seen},
        slots=room,
        taints=[()] if count else [],
        taint_ids=np.zeros(count, dtype=np.int32),
    )


def _examples(resources: Sequence[str], demand: ArrayLike | None) -> list[Pod]:
    amounts = _matrix(np.asarray(demand), "demand", (len(np.asarray(demand)), len(resources)))
    made = []
    for i, row in enumerate(amounts.tolist()):
        requests = {name: _quantity(name, amount) for name, amount in zip(resources, row, strict=True) if amount}
        owner = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=f"class-{i}", uid=f"class-{i}", controller=True
        )
        made.append(
            Pod(
                api_version="v1",
                kind="Pod",
                metadata=ObjectMeta(name=f"class-{i}", namespace="default", owner_references=[owner]),
                spec=PodSpec(containers=[Container(name="main", resources=ResourceRequirements(requests=requests))]),
            )
        )
    return made


def _example(pod: Pod | dict[str, Any], i: int) -> Pod:
    made = from_dict(pod, Pod, object_path=f"pods[{i}]") if isinstance(pod, dict) else pod
    if made.spec.resource_claims or any(volume.ephemeral is not None for volume in made.spec.volumes):
        raise InputError(f"from_columns: pods[{i}] has generic ephemeral volumes or resource claims")
    if made.spec.node_name or made.status.nominated_node_name:
        raise InputError(f"from_columns: pods[{i}] has a node: say it with pod_node")
    return made
