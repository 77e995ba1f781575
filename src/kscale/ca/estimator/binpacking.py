"""The binpacking estimator: first-fit decreasing onto copies of a template (upstream:
``estimator/binpacking_estimator.go``, ``decreasing_pod_orderer.go``).

Decisions per group of equivalent pods are made here; the packing itself is C++ (``engine/estimate.hpp``).

What is decided per group of like pods is decided here; the packing itself is the engine's (``engine/estimate.hpp``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale._native import _packing
from kscale.ca.estimator.limiter import EstimateOptions, coerce_estimate_options, compute_node_limit
from kscale.ca.estimator.result import EstimateResult, GroupedPods, group_pods
from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.scheduling.coercion import (
    MOST,
    PodsLike,
    SnapshotLike,
    TemplateLike,
    position_of,
    record_of,
    short,
    snapshot_of,
    template_of,
)
from kscale.scheduling.compile.templates import copy_number
from kscale.scheduling.profile import HOSTNAME, SchedulerProfile
from kscale.scheduling.session import Session
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "EstimateCache",
    "estimate",
    "estimate_in_session",
    "estimate_many",
    "find_best_fast_path",
    "order_groups_decreasing",
    "rank_requests",
]


def rank_requests(asked: NDArray[np.float64], template: NodeTemplate) -> NDArray[np.integer[Any]]:
    """int[K]: the place of each of ``asked`` (float64[K, 2]: cpu, memory) by falling score; equal ones share theirs.

    The score is upstream's: requests relative to allocatable; other resources do not count. Upstream takes the requests
    with the pod's status here, and as they read: a huge one wraps to a negative number.
    """
    allocatable = template.node.status.allocatable or {}
    zero = Quantity("0")
    amounts = allocatable.get(CPU, zero).milli_value(), allocatable.get(MEMORY, zero).value()
    score = np.zeros(len(asked))
    for column, amount in enumerate(amounts):
        if amount > 0:
            score += asked[:, column] / float(amount)
    _, place = np.unique(-score, return_inverse=True)
    return place.astype(np.uint16) if len(place) <= 1 << 16 else place  # few bits are sorted without comparing


def order_groups_decreasing(asks: NDArray[np.intp], places: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Groups by falling score: int64[groups]; equal ones keep their order. ``asks``: int[groups], which of ``places``
    is a group's."""
    return np.argsort(places[asks], kind="stable")


def _divide_rounding_up(total: float, capacity: float) -> int:
    if capacity == 0:
        return 0 if total == 0 or math.isnan(total) else (1 << 63) - 1
    return math.ceil(total / capacity)


def _has_self_anti_affinity(pod: PodClass) -> bool:
    """A required anti-affinity term with the hostname key that means the pod itself; namespaces are not looked at."""
    for term in pod.anti_affinity:
        if term.topology_key != HOSTNAME or term.label_selector is None:
            continue
        try:
            if compile_selector(term.label_selector).matches(pod.labels):
                return True
        except SelectorError:
            continue
    return False


def _is_fast_path_eligible(pod: PodClass) -> bool:
    return pod.spread is None and all(term.topology_key == HOSTNAME for term in pod.anti_affinity)


def find_best_fast_path(groups: Sequence[tuple[PodClass | None, int]], template: NodeTemplate) -> int:
    """Position of the group with the most simulated placements to save, or -1. ``groups``: (exemplar, number of pods);
    of equals the later. Amounts are doubles over the template's *capacity*, as upstream computes them."""
    capacity = template.node.status.capacity or {}
    best, most = -1, 0
    for i, (pod, count) in enumerate(groups):
        if pod is None or count == 0:
            continue
        nodes = count if _has_self_anti_affinity(pod) else 0
        if pod.first_request is not None:
            for name, request in zip(("cpu", "memory"), pod.first_request, strict=True):
                have = capacity[name].approximate_float() if name in capacity else 0.0
                nodes = max(nodes, _divide_rounding_up(float(count) * request, have))
        saved = count - count // nodes if nodes > 0 else 0
        if saved >= most and _is_fast_path_eligible(pod):
            best, most = i, saved
    return best


_LONG_GROUP_SIZE = 200  # pods of a group from which on copying group by group is faster


class EstimateCache:
    """What estimates of one session share, with nothing placed in between: node groups whose nodes no pod in play can
    tell apart are estimated once, and the same pods in the same order are laid out once."""

    def __init__(self) -> None:
        self.answers: dict[tuple[object, ...], tuple[_PackingResult, int]] = {}
        self._orders: dict[tuple[int, bytes], tuple[GroupedPods, NDArray[np.int64]]] = {}
        self._layouts: dict[tuple[int, int], _PodLayout] = {}

    def order(self, pods: GroupedPods, template: NodeTemplate) -> NDArray[np.int64]:
        """The groups by falling score on a template: int64[groups]. Templates of like proportions have the same."""
        places = rank_requests(pods.asked, template)
        key = id(pods), places.tobytes()
        found = self._orders.get(key)
        if found is None:  # kept with the pods: their identity is part of what it is known by
            found = self._orders[key] = pods, order_groups_decreasing(pods.asks, places)
        return found[1]

    def layout(self, pods: GroupedPods, order: NDArray[np.int64], last: int) -> _PodLayout:
        """The pods, group after group in an order of :meth:`order`; ``last``: the place in it of the group that comes
        after all others, or -1."""
        key = id(order), last
        found = self._layouts.get(key)
        if found is None:
            packed = order if last < 0 else np.append(np.delete(order, last), order[last])
            found = self._layouts[key] = _PodLayout(pods, packed)
        return found


class _PodLayout:
    """Pods group after group: ``pod_of`` and ``class_of``: int32[n], ``starts``: int32[groups + 1]."""

    def __init__(self, pods: GroupedPods, packed: NDArray[np.int64]) -> None:
        if _LONG_GROUP_SIZE * len(packed) < len(pods.members):
            spans = [slice(*pods.starts[group : group + 2].tolist()) for group in packed.tolist()]
            self.starts = np.append(0, np.cumsum(np.diff(pods.starts)[packed])).astype(np.int32)
            self.pod_of = np.concatenate([pods.members[span] for span in spans])
            self.class_of = np.concatenate([pods.class_of[span] for span in spans])
        else:
            positions, self.starts = pods.spread(packed)
            self.pod_of, self.class_of = pods.members[positions], pods.class_of[positions]


_PackingResult = tuple[NDArray[np.int32], NDArray[np.int32], int, int, int, int]


class _FirstCopyNumbers(dict[str, int]):
    """Template name -> the least number of a node that is named as a copy of it; kept with a snapshot."""

    @classmethod
    def of(cls, names: Sequence[str]) -> _FirstCopyNumbers:
        found = cls()
        for name in names:
            copy = copy_number(name)
            if copy is not None:
                template, number = copy
                found[template] = min(number, found.get(template, number))
        return found


def _find_name_clash(snapshot: Snapshot, template: NodeTemplate) -> int:
    """The first copy whose name some node has already, or -1."""
    firsts = snapshot.memo.of(_FirstCopyNumbers, lambda: _FirstCopyNumbers.of(snapshot.nodes))
    return firsts.get(template.node.metadata.name, -1)


@typed
def estimate(
    snapshot: SnapshotLike,
    pods: PodsLike = None,
    *,
    template: TemplateLike,
    options: EstimateOptions | None = None,
    cursor: int = 0,
    profile: SchedulerProfile | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
) -> EstimateResult:
    """How many copies of ``template`` make the pods fit, and where each would go.

    ``snapshot``: or a cluster, as it is now. ``template``: a node, a node template, a node group (its template, or a
    copy of the node that it names), any of them as a dict, or a client library's node. ``pods``: None = the
    pending pods of the snapshot; names; or objects. ``groups``: lists of pods taken as the equivalence groups as they
    are, instead of ``pods``. ``cursor``: where the scan over nodes stands; upstream never resets it. Nodes that exist
    are only used by the retry for hostname spread constraints, as upstream does: place the pods that fit them first
    (:func:`kscale.place`). Raises InputError.
    """
    return estimate_many(
        snapshot, pods, templates=[template], options=[options], cursor=cursor, profile=profile, groups=groups
    )[0]


@typed
def estimate_many(
    snapshot: SnapshotLike,
    pods: PodsLike = None,
    *,
    templates: Sequence[TemplateLike],
    options: Sequence[EstimateOptions | None] | None = None,
    cursor: int = 0,
    profile: SchedulerProfile | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
    fresh_cursor: bool = False,
    threads: int = 1,
) -> list[EstimateResult]:
    """:func:`estimate` for one template after the other, on the same snapshot.

    The cursor goes from one to the next, as upstream's does, so an answer may depend on the templates before it.
    ``fresh_cursor``: every template starts from ``cursor``, and each answer is that of :func:`estimate`. ``threads``
    share the templates then; they change the time only, and predicates of the user's and devices kept in a ledger are
    asked by one. Raises InputError for ``templates`` that are no list, for several threads on one cursor, and as
    :func:`estimate` does.
    """
    if isinstance(templates, dict) or not isinstance(templates, Sequence):
        raise InputError(f"templates is {short(templates)}, not a list")
    snapshot = snapshot_of(snapshot)
    prepared = [template_of(template, snapshot.columns.objects) for template in templates]
    cursor = position_of(cursor, "cursor")
    if position_of(threads, "threads") < 1:
        raise InputError("threads is 0, less than one thread")
    if threads > 1 and not fresh_cursor:
        raise InputError("threads: only with fresh_cursor, where no template waits for the one before it")
    chosen = coerce_estimate_options(options, len(prepared))
    if groups is not None:
        members = [[record_of(pod) for pod in group] for group in groups]
        starts = np.cumsum([0, *map(len, members)]).tolist()
        grouped = GroupedPods(snapshot, [pod for group in members for pod in group], starts)
    else:
        grouped = group_pods(snapshot, pods)
    if threads == 1 or not prepared:
        session = Session(snapshot, grouped.unique, prepared, profile)
        session.engine.cursor = cursor
        repeats = EstimateCache()
        results = []
        for i, template in enumerate(prepared):
            if fresh_cursor:
                session.engine.cursor = cursor
            results.append(estimate_in_session(snapshot, grouped, template, i, chosen[i], session, repeats))
        return results
    shares = [
        _ThreadShare(snapshot, grouped, prepared[w::threads], chosen[w::threads], cursor, profile)
        for w in range(min(threads, len(prepared)))
    ]
    _run_shares(shares, together=not any(share.one_thread for share in shares))
    return [shares[i % threads].results[i // threads] for i in range(len(prepared))]


class _ThreadShare:
    """Templates that one thread estimates, each from the same cursor, on a session of their own."""

    def __init__(
        self,
        snapshot: Snapshot,
        pods: GroupedPods,
        templates: Sequence[NodeTemplate],
        options: Sequence[EstimateOptions],
        cursor: int,
        profile: SchedulerProfile | None,
    ) -> None:
        self._snapshot, self._pods, self._cursor = snapshot, pods, cursor
        self._templates, self._options = templates, options
        self._session = Session(snapshot, pods.unique, templates, profile)
        self.one_thread = self._session.has_ledger or bool(self._session.profile.predicates)
        self.results: list[EstimateResult] = []
        _find_name_clash(snapshot, templates[0])  # what it keeps with the snapshot is made before there are threads

    def run(self, stopped: Event) -> None:
        repeats = EstimateCache()
        try:
            for i, (template, options) in enumerate(zip(self._templates, self._options, strict=True)):
                if stopped.is_set():
                    return
                self._session.engine.cursor = self._cursor
                result = estimate_in_session(self._snapshot, self._pods, template, i, options, self._session, repeats)
                self.results.append(result)
        except BaseException:
            stopped.set()  # the other threads end after the template they are at
            raise


def _run_shares(shares: Sequence[_ThreadShare], *, together: bool) -> None:
    stopped = Event()
    if not together:
        for share in shares:
            share.run(stopped)
        return
    with ThreadPoolExecutor(max(len(shares) - 1, 1)) as pool:
        others = [pool.submit(share.run, stopped) for share in shares[1:]]
        shares[0].run(stopped)  # in this thread, so that Ctrl-C is seen inside an estimate
    for other in others:
        other.result()


def estimate_in_session(
    snapshot: Snapshot,
    pods: GroupedPods,
    template: NodeTemplate,
    number: int,
    options: EstimateOptions,
    session: Session,
    repeats: EstimateCache | None = None,
) -> EstimateResult:
    """One estimate on a session that holds the pods' classes; ``number``: the template's there."""
    limit = max(min(compute_node_limit(options), MOST), -1)
    repeats = repeats or EstimateCache()
    order = repeats.order(pods, template)
    fast = -1
    if options.fast_path:
        sizes = np.diff(pods.starts)
        fast = find_best_fast_path([(pods.exemplar(g), int(sizes[g])) for g in order.tolist()], template)
    layout = repeats.layout(pods, order, fast)
    clash = _find_name_clash(snapshot, template)
    engine = session.engine
    alike = session.template_identity(number) if clash < 0 else None
    # The answer follows from these: the engine is the same, and goes back to what it was after every estimate.
    key = alike and (alike, id(layout), limit, fast >= 0, engine.cursor)
    known = repeats.answers.get(key) if key else None
    if known is not None:
        answer, engine.cursor = known
    else:
        answer = _packing.estimate(
            engine,
            layout.class_of,
            layout.starts,
            session.templates[number],
            max_nodes=limit,
            fast_last=fast >= 0,
            clash=clash,
        )
        if key:
            repeats.answers[key] = answer, engine.cursor
    placement, placed, added, with_pods, status, stopped = answer
    return EstimateResult(
        snapshot=snapshot,
        session=session,
        template=template,
        number=number,
        options=options,
        pods=pods,
        pod_of=layout.pod_of,
        class_of=layout.class_of,
        placement=placement,
        order=placed,
        group_order=order,
        node_count=with_pods,
        nodes_added=added,
        cursor=engine.cursor,
        failed=status == 1,
        stopped=stopped >= 0,
    )
