"""Divides the cost of a cluster among teams: nodes by requests or usage, idle capacity by a rule, volumes by price.

All amounts are integers (billionths of the currency), divided by largest remainders. Every division therefore adds up
to what was divided, and so do the rounded amounts of a report. Not in upstream.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from fractions import Fraction

import numpy as np

from kscale.capacity.catalogue import InstanceType
from kscale.capacity.cost import CORES_PER_GPU, GPUS, AllocatedCost, CostAllocation, name_workloads, prices_of
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.storage import PersistentVolume, PersistentVolumeClaim
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.pod_owners import controller_of
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.scheduling.volumes import class_name
from kscale.series.usage_reader import UsageBatch
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "IdleRule",
    "PodUsage",
    "allocate_cost",
    "apportion",
    "average_usage",
]

HOUR = 3600
HOURS_PER_MONTH = 730
"""Length of a month in prices of storage, as clouds count it."""
_MONEY = 10**9
_NONE, _IDLE, _UNBOUND = "(none)", "(idle)", "(unbound volumes)"
_STORAGE = "storage"
# A core is worth 7.5 GiB, and a GPU 30 cores: as integers per milli-core, byte and GPU.
_VALUE_PER_UNIT = {CPU: 15 * 2**30, MEMORY: 2_000, **dict.fromkeys(GPUS, CORES_PER_GPU * 1_000 * 15 * 2**30)}


class IdleRule(StrEnum):
    """Rule for the cost of capacity that nobody requested."""

    PROPORTIONAL = "proportional"
    """Everybody, in proportion to the cost of what they request (or use)."""
    SEPARATE = "separate"
    """Nobody: it is a line of its own."""
    NONE = "none"
    """It is left out, so that the lines add up to less than the cluster costs."""


@typed
def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole amount into whole parts in proportion to weights, by largest remainders.

    Parameters
    ----------
    total : int
        The amount, not negative.
    weights : sequence of int
        Not negative.

    Returns
    -------
    list of int
        One part for each weight; their sum is ``total``. Each differs from the exact part by less than 1.

    Raises
    ------
    ValueError
        If ``total`` is not 0 and the sum of the weights is.
    """
    sum_of_weights = sum(weights)
    if not sum_of_weights:
        if total:
            raise ValueError("an amount cannot be divided by no weight")
        return [0] * len(weights)
    parts = [total * weight // sum_of_weights for weight in weights]
    rest = total - sum(parts)
    if rest:
        by_remainder = sorted(
            range(len(weights)), key=lambda i: (-(total * weights[i] % sum_of_weights), i)
        )  # ties: the first
        for i in by_remainder[:rest]:
            parts[i] += 1
    return parts


@dataclass(frozen=True, slots=True)
class PodUsage:
    """Average usage of a pod: ``cpu`` in milli-cores and ``memory`` in bytes."""

    cpu: int
    memory: int


@dataclass(slots=True)
class _Sums:
    """Sum and number of the samples of one container, for cpu and memory."""

    cpu: float = 0.0
    cpu_samples: int = 0
    memory: float = 0.0
    memory_samples: int = 0


@typed
def average_usage(
    batches: Iterable[UsageBatch], *, start: int | None = None, end: int | None = None
) -> dict[str, PodUsage]:
    """Return the average usage of pods in a time range.

    Parameters
    ----------
    batches : iterable of UsageBatch
        Usage of containers.
    start, end : int, optional
        Samples after ``start`` and up to ``end`` count (nanoseconds since 1970).

    Returns
    -------
    dict of str to PodUsage
        By ``namespace/name``; the sum over the pod's containers of the average of each, rounded to whole units. Missing
        samples (NaN) do not count; a container without samples of cpu or of memory, or with a negative average, counts
        0. Pods without any sample are left out.
    """
    sums: defaultdict[tuple[str, str, str], _Sums] = defaultdict(_Sums)
    for batch in batches:
        in_range = np.ones(len(batch), dtype=bool)
        if start is not None:
            in_range &= batch.time > start
        if end is not None:
            in_range &= batch.time <= end
        for name, column in (("cpu", batch.cpu), ("memory", batch.memory)):
            if column is None:
                continue
            selected = in_range & ~np.isnan(column)
            series = batch.series[selected]
            counts = np.bincount(series, minlength=len(batch.keys))
            totals = np.bincount(series, weights=column[selected], minlength=len(batch.keys))
            for number in np.flatnonzero(counts).tolist():
                key = batch.keys[number]
                entry = sums[key.namespace, key.pod, key.container]
                setattr(entry, name, getattr(entry, name) + float(totals[number]))
                samples = f"{name}_samples"
                setattr(entry, samples, getattr(entry, samples) + int(counts[number]))
    result: dict[str, PodUsage] = {}
    for (namespace, pod, _), entry in sums.items():
        name = f"{namespace}/{pod}"
        before = result.get(name, PodUsage(0, 0))
        cpu = round(1_000 * entry.cpu / entry.cpu_samples) if entry.cpu_samples else 0
        memory = round(entry.memory / entry.memory_samples) if entry.memory_samples else 0
        result[name] = PodUsage(before.cpu + max(0, cpu), before.memory + max(0, memory))
    return result


@dataclass(slots=True)
class _Line:
    """Amounts of one team in billionths, by requests and by usage."""

    pods: int = 0
    requested: int = 0
    idle: int = 0
    storage: int = 0
    used: int = 0
    idle_by_usage: int = 0


_Lines = defaultdict[str, _Line]
"""The lines of an allocation by name, in the order of their first mention."""


@typed
def allocate_cost(
    cluster: Cluster,
    groups: Iterable[NodeGroup] = (),
    catalogue: Mapping[str, InstanceType] | None = None,
    *,
    by: str = "namespace",
    idle: IdleRule | str = IdleRule.PROPORTIONAL,
    hours: float = 1.0,
    storage_prices: Mapping[str, float] | None = None,
    usage: Mapping[str, PodUsage] | None = None,
) -> CostAllocation:
    """Divide the cost of a cluster among teams.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    groups, catalogue
        Prices of nodes, as for :func:`kscale.capacity.cost.cost`.
    by : str
        What names the team of a pod: ``namespace``, ``workload`` (the topmost controller), ``controller`` (the direct
        one), ``label:KEY`` or ``annotation:KEY``. A pod without the label or annotation has that of its namespace,
        else ``(none)``.
    idle : IdleRule or str
        Who pays for idle capacity, which nobody requested: ``proportional`` (all lines, in proportion to their cost),
        ``separate`` (a line of its own) or ``none`` (left out). If there are no requests at all, ``proportional`` is
        like ``separate``.
    hours : float
        Length of the window of time; nodes and volumes are taken to be the same all the time.
    storage_prices : mapping of str to float, optional
        Price of a GiB for a month of 730 hours, by storage class (names or patterns; the first match counts). None:
        volumes are left out.
    usage : mapping of str to PodUsage, optional
        Average usage by ``namespace/name``, see :func:`average_usage`. With it, the lines also have their cost
        ``by_usage``.

    Returns
    -------
    CostAllocation
        Its lines add up to the cost of the priced nodes and volumes, without idle capacity if ``idle`` is ``none``.

    Raises
    ------
    InputError
        For an unknown ``by`` or ``idle``, if ``hours`` is not a positive finite number, and if there are nodes and none
        has a known price.
    """
    if idle not in tuple(IdleRule):
        raise InputError(f'idle is "{idle}": one of {", ".join(IdleRule)}')
    if not (math.isfinite(hours) and hours > 0):
        raise InputError(f"{hours} is not a number of hours")
    rule = IdleRule(idle)
    snapshot = cluster.snapshot(dra=True)
    groups = list(groups)
    names = _names_of_pods(cluster, by)
    lines: _Lines = defaultdict(_Line)
    prices = [_to_billionths(price, hours) for price in prices_of(snapshot.columns.objects, groups, catalogue)]
    pods_on = _placed(snapshot)
    counted = [name for pods, price in zip(pods_on, prices, strict=True) if price is not None for name, _ in pods]
    for name in counted:
        lines[names[name]].pods += 1
    unmeasured = None
    _divide_nodes(snapshot, prices, pods_on, names, rule, lines)
    if usage is not None:
        unmeasured = sum(name not in usage for name in counted)
        _divide_nodes(snapshot, prices, pods_on, names, rule, lines, usage=usage)
    volumes, unpriced = _divide_volumes(cluster, names, by, hours, storage_prices, lines)
    return _build_report(lines, by, rule, hours, usage is not None, volumes, unpriced, unmeasured)


def _to_billionths(price: float | None, hours: float) -> int | None:
    """Return the cost of ``hours`` hours in billionths of the currency; None if the ``price`` per hour is unknown."""
    return None if price is None else round(Fraction(repr(float(price))) * Fraction(repr(float(hours))) * _MONEY)


def _placed(snapshot: Snapshot) -> list[list[tuple[str, int]]]:
    """Return, for each node, the (name, class number) of each pod on it."""
    result: list[list[tuple[str, int]]] = [[] for _ in snapshot.columns.objects]
    placed = zip(snapshot.pods, snapshot.placed_node.tolist(), snapshot.placed_class.tolist(), strict=True)
    for name, node, number in placed:
        result[node].append((name, number))
    return result


def _divide_nodes(
    snapshot: Snapshot,
    prices: Sequence[int | None],
    pods_on: Sequence[Sequence[tuple[str, int]]],
    names: Mapping[str, str],
    rule: IdleRule,
    lines: _Lines,
    *,
    usage: Mapping[str, PodUsage] | None = None,
) -> None:
    """Add the cost of the nodes to ``lines``: that of what pods request (with ``usage``: use), and of idle capacity.

    ``prices``: cost of each node in billionths (None: unknown). ``pods_on``: (name, class number) of the pods on each
    node. ``names``: the line of each pod. ``rule``: who pays for idle capacity, as ``idle`` of :func:`allocate_cost`.
    Nodes without a price are skipped. Pods that request more than a node offers share all of its cost.
    """
    allocatable = {
        name: column.tolist() for name, column in snapshot.columns.allocatable.items() if name in _VALUE_PER_UNIT
    }
    amount, idle_amount = ("requested", "idle") if usage is None else ("used", "idle_by_usage")

    def add(name: str, attribute: str, part: int) -> None:
        """Add ``part`` (billionths) to an attribute of a line."""
        line = lines[name]
        setattr(line, attribute, getattr(line, attribute) + part)

    idle = 0
    for node, price in enumerate(prices):
        if not price:
            continue
        offered = {name: column[node] for name, column in allocatable.items() if column[node] > 0}
        worth = [
            sum(_VALUE_PER_UNIT[name] * _amount(snapshot, pod, number, name, usage) for name in offered)
            for pod, number in pods_on[node]
        ]
        rest = max(0, sum(_VALUE_PER_UNIT[name] * room for name, room in offered.items()) - sum(worth))
        if not rest and not any(worth):
            rest = 1
        *parts, idle_part = apportion(price, [*worth, rest])
        idle += idle_part
        for (pod, _), part in zip(pods_on[node], parts, strict=True):
            add(names[pod], amount, part)
    if rule is IdleRule.NONE or not idle:
        return
    all_names = list(lines)
    weights = [getattr(lines[name], amount) for name in all_names]
    if rule is IdleRule.SEPARATE or not any(weights):
        add(_IDLE, idle_amount, idle)
        return
    for name, part in zip(all_names, apportion(idle, weights), strict=True):
        add(name, idle_amount, part)


def _amount(snapshot: Snapshot, pod: str, number: int, name: str, usage: Mapping[str, PodUsage] | None) -> int:
    """Return how much of resource ``name`` a pod requests or, with ``usage``, uses.

    The unit is milli-cores of cpu, bytes of memory, else units. A pod without usage uses 0. GPUs count as requested in
    any case. ``number``: class of the pod.
    """
    if usage is not None and name in (CPU, MEMORY):
        measured = usage.get(pod)
        return 0 if measured is None else measured.cpu if name == CPU else measured.memory
    return max(0, snapshot.interner.classes[number].occupancy.get(name, 0))


def _names_of_pods(cluster: Cluster, by: str) -> dict[str, str]:
    """Return the name of each pod's line in the allocation, by ``namespace/name`` of the pod.

    Raises InputError for an unknown ``by``.
    """
    name_of = _namer(cluster, by)
    return {f"{pod.namespace}/{pod.name}": name_of(pod) for pod in cluster.pods()}


def _namer(cluster: Cluster, by: str) -> Callable[[Pod | PersistentVolumeClaim], str]:
    """Return the function that names the allocation's line of a pod, or of a claim that no pod uses.

    ``by``: as for :func:`allocate_cost`. Raises InputError for an unknown ``by``. A pod whose label or annotation
    neither it nor its namespace has gets ``(none)``. By ``workload``, a claim is named by its direct controller.
    """
    kind, colon, key = by.partition(":")
    if kind in ("label", "annotation") and colon and key:
        attribute = f"{kind}s"
        of_namespace = {
            item.metadata.name: (getattr(item.metadata, attribute) or {}).get(key) for item in cluster.all("Namespace")
        }
        return lambda item: (
            (getattr(item.metadata, attribute) or {}).get(key) or of_namespace.get(item.metadata.namespace) or _NONE
        )
    match by:
        case "namespace":
            return lambda item: item.metadata.namespace
        case "controller":
            return _name_controller
        case "workload":
            pods = [f"{pod.namespace}/{pod.name}" for pod in cluster.pods()]
            workloads = dict(zip(pods, name_workloads(cluster, pods), strict=True))
            return lambda item: (
                workloads[f"{item.metadata.namespace}/{item.metadata.name}"]
                if isinstance(item, Pod)
                else _name_controller(item)
            )
    raise InputError(f'by is "{by}": namespace, workload, controller, label:KEY or annotation:KEY')


def _name_controller(item: Pod | PersistentVolumeClaim) -> str:
    """Return ``namespace/Kind/name`` of an object's direct controller, or of the object itself."""
    controller = controller_of(item.metadata)
    kind = "Pod" if isinstance(item, Pod) else "PersistentVolumeClaim"
    own = (kind, item.metadata.name) if controller is None else (controller.kind, controller.name)
    return "/".join((item.metadata.namespace, *own))


def _divide_volumes(
    cluster: Cluster,
    names: Mapping[str, str],
    by: str,
    hours: float,
    prices: Mapping[str, float] | None,
    lines: _Lines,
) -> tuple[int, int]:
    """Add the cost of volumes to the lines of the pods that use them; return numbers of (priced, unpriced) volumes.

    ``names``: the line of each pod. ``prices``: per GiB and month by storage class; None: (0, 0), nothing is added.
    Pods that share a volume pay equal parts. A claim that no pod uses has the line of its own namespace and labels;
    volumes without a claim, or whose claim is not in the input, have a common line.
    """
    if prices is None:
        return 0, 0
    users = _users_of_claims(cluster)
    name_claim = _namer(cluster, by)
    claims = {f"{claim.metadata.namespace}/{claim.metadata.name}": claim for claim in _claims(cluster)}
    count = unpriced = 0
    for key, class_, size in _volumes(cluster, claims):
        price = next((price for pattern, price in prices.items() if fnmatchcase(class_, pattern)), None)
        if price is None:
            unpriced += 1
            continue
        count += 1
        month = Fraction(repr(float(price))) * Fraction(size, 2**30)
        cost = round(month * Fraction(repr(float(hours))) / HOURS_PER_MONTH * _MONEY)
        if key in users:
            owners = [names[pod] for pod in users[key]]
        else:
            owners = [name_claim(claims[key]) if key in claims else _UNBOUND]
        for owner, part in zip(owners, apportion(cost, [1] * len(owners)), strict=True):
            lines[owner].storage += part
    return count, unpriced


def _users_of_claims(cluster: Cluster) -> dict[str, list[str]]:
    """Return the names of the pods that use each claim, by claim, both as ``namespace/name``.

    Pods that have ended use none.
    """
    users: dict[str, list[str]] = {}
    for pod in cluster.pods():
        if pod.is_finished:
            continue
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                name = volume.persistent_volume_claim.claim_name
            elif volume.ephemeral is not None:
                name = f"{pod.name}-{volume.name}"
            else:
                continue
            pods = users.setdefault(f"{pod.namespace}/{name}", [])
            if (key := f"{pod.namespace}/{pod.name}") not in pods:
                pods.append(key)
    return users


def _claims(cluster: Cluster) -> list[PersistentVolumeClaim]:
    """Return the PersistentVolumeClaims of the cluster."""
    return [item for item in cluster.all("PersistentVolumeClaim") if isinstance(item, PersistentVolumeClaim)]


def _volumes(cluster: Cluster, claims: Mapping[str, PersistentVolumeClaim]) -> list[tuple[str, str, int]]:
    """Return (claim, storage class, bytes) of each volume; the claim is empty if the volume is not bound.

    ``claims``: by ``namespace/name``. If the volume of a bound claim is not in the input, the claim's class and size
    are returned in its place. The size is 0 if no capacity is stated.
    """
    result: list[tuple[str, str, int]] = []
    seen: set[str] = set()
    for volume in cluster.all("PersistentVolume"):
        if not isinstance(volume, PersistentVolume):
            continue
        reference = volume.spec.claim_ref
        key = "" if reference is None else f"{reference.namespace}/{reference.name}"
        is_bound = volume.status.phase in ("", "Bound")
        seen.add(key)
        size = (volume.spec.capacity or {}).get(_STORAGE, Quantity("0")).value()
        result.append((key if is_bound else "", class_name(volume), size))
    for key, claim in claims.items():
        if claim.status.phase == "Bound" and key not in seen:
            size = (claim.status.capacity or {}).get(_STORAGE, Quantity("0")).value()
            result.append((key, class_name(claim), size))
    return result


def _build_report(
    lines: _Lines,
    by: str,
    rule: IdleRule,
    hours: float,
    with_usage: bool,
    volumes: int,
    unpriced: int,
    unmeasured: int | None,
) -> CostAllocation:
    """Build the report. Amounts are rounded so that lines add up to their column, and columns to the total.

    ``volumes``, ``unpriced``: numbers of volumes with and without a price. ``unmeasured``: number of pods without
    usage, None without a history. Amounts have two decimals from 24 hours on, otherwise four. Lines: the most expensive
    first, idle capacity last.
    """
    decimals = 2 if hours >= 24 else 4
    unit = 10 ** (9 - decimals)
    rows = list(lines.values())
    columns = [[getattr(line, name) for line in rows] for name in ("requested", "idle", "storage")]
    total_of_columns = [sum(column) for column in columns]
    total = (sum(total_of_columns) + unit // 2) // unit
    rounded_totals = apportion(total, total_of_columns) if total else [0, 0, 0]
    rounded = [
        apportion(amount, column) if amount else [0] * len(rows)
        for amount, column in zip(rounded_totals, columns, strict=True)
    ]
    used: list[int | None] = [None] * len(rows)
    if with_usage:
        by_usage = [line.used + line.idle_by_usage + line.storage for line in rows]
        amount = (sum(by_usage) + unit // 2) // unit
        used = list(apportion(amount, by_usage)) if amount else [0] * len(rows)

    def money(amount: int) -> float:
        """Convert an amount in units of the last decimal to the currency."""
        return amount / float(10**decimals)

    allocated = [
        AllocatedCost(
            name=name,
            pods=line.pods,
            requested=money(rounded[0][i]),
            idle=money(rounded[1][i]),
            storage=money(rounded[2][i]),
            cost=money(rounded[0][i] + rounded[1][i] + rounded[2][i]),
            share=round((rounded[0][i] + rounded[1][i] + rounded[2][i]) / total, 6) if total else 0.0,
            by_usage=None if (part := used[i]) is None else money(part),
        )
        for i, (name, line) in enumerate(lines.items())
    ]
    return CostAllocation(
        by=by,
        idle_rule=rule.value,
        hours=float(hours),
        decimals=decimals,
        cost=money(total),
        requested=money(rounded_totals[0]),
        idle=money(rounded_totals[1]),
        storage=money(rounded_totals[2]),
        lines=sorted(allocated, key=lambda line: (line.name == _IDLE, -line.cost, line.name)),
        volumes=volumes,
        unpriced_volumes=unpriced,
        unmeasured_pods=unmeasured,
    )
