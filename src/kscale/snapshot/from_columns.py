"""``kscale.from_columns``: build a snapshot from arrays.

Not in upstream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kscale.errors import InputError
from kscale.objects.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, ResourceRequirements, Taint
from kscale.objects.api.meta import KubeObject, ObjectMeta, OwnerReference
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.kinds import check_kind
from kscale.objects.pod_resources import CPU, PODS, is_scalar
from kscale.objects.quantity import Quantity
from kscale.snapshot.classes.interner import Interner
from kscale.snapshot.columns import FIXED_RESOURCES, PENDING, PLACED, NodeColumns
from kscale.snapshot.object_store import Informers
from kscale.snapshot.pods.record import read_moments, replica_controller
from kscale.snapshot.pods.rows import NumberedNames
from kscale.snapshot.pods.table import PodTable
from kscale.snapshot.snapshot import Snapshot

__all__ = ["from_columns"]

_MAX_INT64 = 2**63 - 1


@typed
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
    """Build a snapshot of N nodes and M pods of K classes from arrays. Pod objects are created on demand only.

    Parameters
    ----------
    resources : sequence of str
        R resource names, for the rows of ``allocatable`` and the columns of ``demand``. The resource
        ``pods`` is not allowed; it is given as ``slots``.
    node_names : sequence of str
        N names.
    allocatable : int64[R, N]
        Allocatable resources of the nodes: milli-units of CPU, units of other resources.
    slots : int64[N], optional
        Maximum number of pods per node. Default: 110.
    labels : mapping of str to sequence, optional
        Label key -> N values; None if the node lacks the label. A node has its name as ``kubernetes.io/hostname``
        unless ``labels`` has that key.
    taints : sequence, optional
        N lists of taints.
    unschedulable : bool[N], optional
    pods : sequence of Pod or dict, optional
        K example pods, one per class, without a node. Either ``pods`` or ``demand`` must be given.
    demand : int64[K, R], optional
        Requests of the classes. The pods of a class are replicas of one controller in namespace ``default``.
    pod_class : int[M]
        Class of each pod.
    pod_node : int[M]
        Index of the node that each pod runs on; -1 for a pending pod.
    pod_names : sequence of str, optional
        ``namespace/name`` of each pod. Default: ``<namespace>/<name of the example>-<number of the pod>``.

    Returns
    -------
    Snapshot

    Raises
    ------
    InputError
        With the argument's name and the index, for shapes or numbers that do not match, negative amounts, amounts or
        sums per node outside int64, invalid or repeated names, and examples with generic ephemeral volumes or resource
        claims (these depend on the pod's name).
    """
    resources, node_names = _strings(resources, "resources"), _strings(node_names, "node_names")
    columns = _nodes(resources, node_names, allocatable, slots, labels, taints, unschedulable)
    if (pods is None) == (demand is None):
        raise InputError("from_columns: give either pods or demand")
    examples = _examples(resources, demand) if pods is None else [_example(pod, i) for i, pod in enumerate(pods)]
    class_of, at = _integers(pod_class, "pod_class"), _integers(pod_node, "pod_node", -1)
    if class_of.shape != at.shape:
        raise InputError("from_columns: pod_class and pod_node differ in length")
    _refuse(class_of, class_of >= len(examples), "pod_class", 0, len(examples) - 1)
    _refuse(at, at >= len(columns), "pod_node", -1, len(columns) - 1)
    given_names = None if pod_names is None else _pod_names(pod_names, len(at))

    interner = Interner()
    table = PodTable(interner)
    classes = [interner.classify(pod, placed=True, moves=True) for pod in examples]
    table.exemplars = examples
    prefixes = [pod.key or f"default/class-{i}" for i, pod in enumerate(examples)]
    placed = at >= 0
    numbers = np.array([one.index for one in classes], dtype=np.int32)
    controllers = np.array([interner.controller(replica_controller(pod)) for pod in examples], dtype=np.int32)
    priorities = np.array([pod.spec.priority or 0 for pod in examples], dtype=np.int64)
    created = np.array([read_moments(pod)["created"] for pod in examples], dtype=np.int64)
    queueings = np.array([interner.queueings.get(pod) for pod in examples], dtype=np.int32)
    table.extend(
        NumberedNames(prefixes, class_of) if given_names is None else given_names,
        class_of=numbers[class_of],
        at=at,
        state=np.where(placed, PLACED, PENDING),
        priority=priorities[class_of],
        controller=controllers[class_of],
        source=-2 - class_of,
        created=created[class_of],
        queueing=queueings[class_of],
    )
    rows, nodes_of = np.flatnonzero(placed), at[placed].astype(np.int32)
    used: dict[str, NDArray[np.int64]] = {}
    for name in dict.fromkeys(name for one in classes for name in one.occupancy):
        amounts = np.array([one.occupancy.get(name, 0) for one in classes], dtype=np.int64)
        used[name] = np.zeros(len(columns), dtype=np.int64)
        occupied = amounts[class_of[placed]]
        _check_sums(name, nodes_of, occupied, columns.names)
        np.add.at(used[name], nodes_of, occupied)
    waiting = np.flatnonzero(~placed)
    counts = dict.fromkeys(("gated", "terminating", "finished", "on unknown nodes"), 0)
    return Snapshot(
        interner=interner,
        nodes=columns,
        informers=Informers({}),
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


def _check_integers(
    values: Any, name: str, shape: tuple[int, ...] | None, described: str, minimum: int
) -> NDArray[np.int64]:
    """Return the values as int64 integers of at least ``minimum``. ``shape`` None allows a column of any length.

    ``described``: the expected form in messages, such as ``column``. Raises InputError for other values or shapes.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        array = np.zeros((), dtype=object)
    fits = array.ndim == 1 if shape is None else array.shape == shape
    if not fits or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"from_columns: {name} is not a {described} of integers")
    _refuse(array, (array > _MAX_INT64) if array.dtype.kind == "u" else (array < minimum), name, minimum)
    return array.astype(np.int64)


def _refuse(array: NDArray[Any], bad: NDArray[np.bool_], name: str, minimum: int, maximum: int = _MAX_INT64) -> None:
    """Raise InputError if a value of ``array`` is marked as ``bad``; the message names the first one and the limits."""
    if not bad.any():
        return
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    where = ", ".join(map(str, at))
    raise InputError(f"from_columns: {name}[{where}] is {array[at]}, not between {minimum} and {maximum}")


def _integers(values: ArrayLike, name: str, minimum: int = 0) -> NDArray[np.int64]:
    """Return a column of integers of at least ``minimum``: int64[n]. Raises InputError for other values."""
    return _check_integers(values, name, None, "column", minimum)


def _matrix(values: ArrayLike, name: str, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return a matrix of integers of at least 0: int64. Raises InputError for other values or another shape."""
    return _check_integers(values, name, shape, f"matrix, {shape[0]} x {shape[1]},", 0)


def _strings(values: Any, name: str) -> list[str]:
    """Return the values as a list of non-empty, distinct strings. Raises InputError for other values."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise InputError(f"from_columns: {name} is not a list of strings")
    texts = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if set(map(type, texts)) - {str, np.str_} or "" in texts:
        i, one = next((i, one) for i, one in enumerate(texts) if not isinstance(one, str) or not one)
        raise InputError(f"from_columns: {name}[{i}] is {one!r}, not a string that names something")
    if len(set(texts)) < len(texts):
        seen: set[str] = set()
        for i, one in enumerate(texts):
            if one in seen:
                raise InputError(f"from_columns: {name}[{i}] is {one!r} again")
            seen.add(one)
    return texts


def _pod_names(values: Any, count: int) -> list[str]:
    """Return ``count`` distinct names ``namespace/name``. Raises InputError for other values."""
    names = _strings(values, "pod_names")
    if len(names) != count:
        raise InputError("from_columns: pod_names and pod_node differ in length")
    for i, name in enumerate(names):
        namespace, _, rest = name.partition("/")
        if not namespace or not rest or "/" in rest:
            raise InputError(f"from_columns: pod_names[{i}] is {name!r}, not namespace/name")
    return names


def _check_sums(resource: str, nodes: NDArray[np.int32], amounts: NDArray[np.int64], names: Sequence[str]) -> None:
    """Raise InputError if the pods' total of a resource on a node exceeds int64.

    ``nodes`` and ``amounts`` have one entry per placed pod.
    """
    about = np.bincount(nodes, weights=amounts.astype(np.float64), minlength=1)
    for node in np.flatnonzero(about > _MAX_INT64 * 0.999).tolist():  # near enough to add up exactly
        total = sum(amounts[nodes == node].tolist())
        if total > _MAX_INT64:
            raise InputError(
                f"from_columns: pod_node: the pods on node {node} ({names[node]!r}) take {total} of {resource}, more "
                f"than {_MAX_INT64}"
            )


def _convert_flags(values: ArrayLike, name: str, count: int) -> NDArray[np.bool_]:
    """Convert a column of truth values (bool, or 0 and 1), one for each node, to bool[count].

    Raises InputError for other values or another length. ``name``: the argument's name for the message.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biu"):
        raise InputError(f"from_columns: {name} is not a column of truth values")
    if len(array) != count:
        raise InputError(f"from_columns: {name} does not have one entry per node")
    _refuse(array, (array != 0) & (array != 1), name, 0, 1)
    return array.astype(bool)


def _taint(taint: Any, name: str) -> Taint:
    """Convert a struct or dict to a taint. Raises InputError for anything else (``name``: name for the message)."""
    if isinstance(taint, Taint):
        return taint
    if not isinstance(taint, dict):
        raise InputError(f"from_columns: {name} is {taint!r}, not a taint")
    return from_dict(taint, Taint, object_path=name)


def _quantity(resource: str, amount: int) -> Quantity:
    """Convert an amount (milli-units of CPU, units of other resources) to a Quantity."""
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
    """Build the columns of the nodes from arguments of :func:`from_columns`. Raises InputError for invalid ones."""
    count = len(names)
    if PODS in resources:
        raise InputError(f"from_columns: resources[{list(resources).index(PODS)}] is {PODS!r}: use slots")
    amounts = _matrix(allocatable, "allocatable", (len(resources), count))
    room = np.full(count, 110, dtype=np.int64) if slots is None else _integers(slots, "slots")
    cordoned = (
        np.zeros(count, dtype=bool) if unschedulable is None else _convert_flags(unschedulable, "unschedulable", count)
    )
    lists: dict[str, Any] = {"slots": room, "unschedulable": cordoned, "taints": taints}
    lists |= {f"labels[{key!r}]": values for key, values in (labels or {}).items()}
    for argument, values in lists.items():
        if values is not None and len(values) != count:
            raise InputError(f"from_columns: {argument} does not have one entry per node")
    for key, values in (labels or {}).items():
        for i, value in enumerate(values):
            if not (value is None or isinstance(value, str)):
                raise InputError(f"from_columns: labels[{key!r}][{i}] is {value!r}, not a string")
    quantities: dict[tuple[str, int], Quantity] = {}
    own: list[dict[str, Quantity]] = [{} for _ in names]
    for resource, column in zip((*resources, PODS), (*amounts.tolist(), room.tolist()), strict=True):
        for of_node, amount in zip(own, column, strict=True):
            quantity = quantities.get((resource, amount))
            if quantity is None:
                quantity = quantities[resource, amount] = _quantity(resource, amount)
            of_node[resource] = quantity
    labelled: list[dict[str, str]] = [{"kubernetes.io/hostname": name} for name in names]
    for key, values in (labels or {}).items():
        for of_labels, value in zip(labelled, values, strict=True):
            of_labels.pop(key, None)
            if value is not None:
                of_labels[key] = value
    tainted = [
        [_taint(taint, f"taints[{i}][{j}]") for j, taint in enumerate(quantity)]
        for i, quantity in enumerate(taints or ())
    ]
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
    """Build a pod for each row of requests (milli-units of CPU, units of other resources).

    Raises InputError if ``demand`` is not a matrix with a column per resource, also for None.
    """
    try:
        count = len(demand)  # type: ignore[arg-type]  # raises TypeError without a length
    except TypeError:
        count = 0
    amounts = _matrix(demand, "demand", (count, len(resources)))  # type: ignore[arg-type]  # not None
    examples = []
    for i, row in enumerate(amounts.tolist()):
        requests = {name: _quantity(name, amount) for name, amount in zip(resources, row, strict=True) if amount}
        owner = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=f"class-{i}", uid=f"class-{i}", controller=True
        )
        examples.append(
            Pod(
                api_version="v1",
                kind="Pod",
                metadata=ObjectMeta(name=f"class-{i}", namespace="default", owner_references=[owner]),
                spec=PodSpec(containers=[Container(name="main", resources=ResourceRequirements(requests=requests))]),
            )
        )
    return examples


def _example(pod: Pod | dict[str, Any], i: int) -> Pod:
    """Convert a struct or dict to an example pod. ``i``: its index in ``pods``, for messages.

    Raises InputError if it is not a pod, has a node, or has generic ephemeral volumes or resource claims.
    """
    if isinstance(pod, (dict, KubeObject)):
        check_kind(pod, Pod, f"pods[{i}]")
    example = from_dict(pod, Pod, object_path=f"pods[{i}]") if isinstance(pod, dict) else pod
    if not isinstance(example, Pod):
        raise InputError(f"from_columns: pods[{i}] is {example!r}, not a pod")
    if example.spec.resource_claims or any(volume.ephemeral is not None for volume in example.spec.volumes):
        raise InputError(f"from_columns: pods[{i}] has generic ephemeral volumes or resource claims")
    if example.spec.node_name or example.status.nominated_node_name:
        raise InputError(f"from_columns: pods[{i}] has a node: use pod_node")
    return example
