"""The binpacking estimator: first-fit decreasing onto copies of a template.

This module decides per group of equivalent pods; the packing itself is C++ (``engine/estimate.hpp``).

Upstream: ``estimator/binpacking_estimator.go``, ``decreasing_pod_orderer.go``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.ca.estimator.result import (
    EstimateOptions,
    EstimateResult,
    GroupedPods,
    coerce_estimate_options,
    compute_node_limit,
    group_pods,
)
from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import SelectorError, compile_selector
from kscale.scheduling.coercion import (
    MAX_COUNT,
    PodsLike,
    SnapshotLike,
    TemplateLike,
    inputs_of,
    position_of,
    record_of,
    short,
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
]


def order_groups_decreasing(
    requests: NDArray[np.float64], asks: NDArray[np.intp], template: NodeTemplate
) -> NDArray[np.int64]:
    """Return the positions of the groups by decreasing score: int64[groups]; groups with equal scores keep their order.

    ``requests``: float64[K, 2], K distinct pairs of (cpu, memory) that a pod requests; ``asks``: int[groups], each
    group's row in ``requests``. The score is upstream's: the part of the template's allocatable cpu that a pod of the
    group requests, plus that of memory. Upstream computes these requests with the pod's status, so a huge request wraps
    to a negative number.
    """
    allocatable = template.node.status.allocatable or {}
    amounts = allocatable.get(CPU, _ZERO).milli_value(), allocatable.get(MEMORY, _ZERO).value()
    score = np.zeros(len(requests))  # negative, so that the greatest is first
    for column, amount in enumerate(amounts):
        if amount > 0:
            score -= requests[:, column] / float(amount)
    if len(asks) < _MANY_GROUPS:
        return score[asks].argsort(kind="stable")
    _, rank = np.unique(score, return_inverse=True)
    return (rank.astype(np.uint16) if len(rank) <= 1 << 16 else rank)[asks].argsort(kind="stable")


_ZERO = Quantity("0")
_MANY_GROUPS = 1 << 12
"""From so many groups on they are sorted by the rank of their score: 16 bits use radix sort."""


def _divide_rounding_up(total: float, capacity: float) -> int:
    """Return the quotient rounded up. Without capacity: 0 if ``total`` is 0 or NaN, otherwise int64's maximum."""
    if capacity == 0:
        return 0 if total == 0 or math.isnan(total) else (1 << 63) - 1
    return math.ceil(total / capacity)


def _has_self_anti_affinity(pod: PodClass) -> bool:
    """Return whether the pod has a required anti-affinity term with the hostname key that matches the pod itself.

    Namespaces are ignored.
    """
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
    """Check that the class has no topology spread constraints, and no anti-affinity term with a key except hostname."""
    return pod.spread is None and all(term.topology_key == HOSTNAME for term in pod.anti_affinity)


def find_best_fast_path(groups: Sequence[tuple[PodClass | None, int]], template: NodeTemplate) -> int:
    """Return the position of the group that saves the most simulated placements, or -1 if no group is eligible.

    ``groups`` are (class of the first pod or None if empty, number of pods). Of groups that save equally many
    placements the last one is returned. Requests are compared with the template's *capacity*, not allocatable, in
    floating point, as upstream does.
    """
    capacity = template.node.status.capacity or {}
    best, max_saved = -1, 0
    for i, (pod, count) in enumerate(groups):
        if pod is None or count == 0:
            continue
        nodes = count if _has_self_anti_affinity(pod) else 0
        if pod.first_request is not None:
            for name, request in zip(("cpu", "memory"), pod.first_request, strict=True):
                available = capacity[name].approximate_float() if name in capacity else 0.0
                nodes = max(nodes, _divide_rounding_up(float(count) * request, available))
        saved = count - count // nodes if nodes > 0 else 0
        if saved >= max_saved and _is_fast_path_eligible(pod):
            best, max_saved = i, saved
    return best


_LONG_GROUP_SIZE = 200  # group size above which copying group by group is faster


class EstimateCache(msgspec.Struct, eq=False):
    """Cache of the estimates of one session, with nothing placed in between.

    Node groups whose nodes no pending pod can distinguish are estimated once, and the same pods in the same order are
    laid out once.
    """

    answers: dict[tuple[object, ...], tuple[_PackingResult, int]] = {}
    _orders: dict[tuple[int, bytes], tuple[GroupedPods, NDArray[np.int64]]] = {}
    _layouts: dict[tuple[int, int], _PodLayout] = {}

    def order(self, pods: GroupedPods, template: NodeTemplate) -> NDArray[np.int64]:
        """Return the positions of the groups by decreasing score on a template: int64[groups].

        Equal orders of the same pods are one cached array.
        """
        order = order_groups_decreasing(pods.requests, pods.asks, template)
        key = id(pods), order.tobytes()
        cached = self._orders.get(key)
        if cached is None:  # cached with the pods, so that their id stays valid
            cached = self._orders[key] = pods, order
        return cached[1]

    def layout(self, pods: GroupedPods, order: NDArray[np.int64], last: int) -> _PodLayout:
        """Return the pods, group after group in ``order``, which is a result of :meth:`order`. The layout is cached.

        ``last`` is the position in ``order`` of the group that is moved to the end, or -1 if none is.
        """
        key = id(order), last
        layout = self._layouts.get(key)
        if layout is None:
            packed = order if last < 0 else np.append(np.delete(order, last), order[last])
            layout = self._layouts[key] = _PodLayout(pods, packed)
        return layout


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
    """Template name -> the smallest number of a node that is named as a copy of it; cached with the snapshot."""

    @classmethod
    def of(cls, names: Sequence[str]) -> _FirstCopyNumbers:
        """Return, by template name, the smallest number of a copy among the node names (``TEMPLATE-e-NUMBER``).

        Other names are ignored.
        """
        first_numbers = cls()
        for name in names:
            copy = copy_number(name) if "-e-" in name else None
            if copy is not None:
                template, number = copy
                first_numbers[template] = min(number, first_numbers.get(template, number))
        return first_numbers


def _find_name_clash(snapshot: Snapshot, template: NodeTemplate) -> int:
    """Return the smallest copy number of the template for which a node with the copy's name exists, or -1."""
    firsts = snapshot.memo.get(_FirstCopyNumbers, lambda: _FirstCopyNumbers.of(snapshot.nodes))
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
    """Estimate how many copies of ``template`` the pods need, and where each pod goes.

    Existing nodes are only used by the retry for hostname spread constraints, as in upstream; place the pods that fit
    them first (:func:`kscale.place`).

    Parameters
    ----------
    snapshot : Snapshot or Cluster
        Cluster state. A cluster is snapshotted first.
    pods : sequence of str or Pod; or manifests, optional
        Names or objects. Default: the pending pods of the snapshot. With a Cluster also Deployments and other
        workloads, as for :func:`kscale.fit`.
    template : NodeTemplate, NodeGroup, Node or dict
        The node to copy: a node, a node template, a node group (its template, or a copy of the node that it names),
        any of them as a dict, or a client library's node.
    options : EstimateOptions, optional
        Limits and fast path.
    cursor : int
        Position of the node at which the scan for a fitting node starts. Upstream never resets it between estimates.
    profile : SchedulerProfile, optional
        Scheduler profile.
    groups : sequence of sequences of pods, optional
        Equivalence groups to use as they are, instead of ``pods``.

    Returns
    -------
    EstimateResult
        Node count, placement and unschedulable pods.

    Raises
    ------
    InputError
        If an argument cannot be read.
    """
    return _estimate_many(snapshot, pods, [template], [options], cursor, profile, groups)[0]


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
    """Run :func:`estimate` for each template in turn on the same snapshot.

    The cursor goes from one template to the next, as in upstream, so a result may depend on the templates before it.
    Takes the arguments of :func:`estimate` and these:

    Parameters
    ----------
    templates : sequence
        The templates.
    options : sequence of EstimateOptions or None, optional
        One per template.
    fresh_cursor : bool
        Start every template from ``cursor``, so that each result is that of :func:`estimate`.
    threads : int
        Number of threads that share the templates; more than 1 requires ``fresh_cursor``. The results do not depend on
        it. With user predicates, or devices that are kept in a ledger, one thread does all the work.

    Returns
    -------
    list of EstimateResult
        One per template.

    Raises
    ------
    InputError
        If ``templates`` or an entry of ``groups`` is not a list, if ``threads`` is less than 1, if several threads
        share one cursor, and as :func:`estimate` does.
    """
    if isinstance(templates, dict) or not isinstance(templates, Sequence):
        raise InputError(f"templates is {short(templates)}, not a list")
    return _estimate_many(snapshot, pods, templates, options, cursor, profile, groups, fresh_cursor, threads)


def _estimate_many(
    snapshot: SnapshotLike,
    pods: PodsLike,
    templates: Sequence[TemplateLike],
    options: Sequence[EstimateOptions | None] | None,
    cursor: int,
    profile: SchedulerProfile | None,
    groups: Sequence[Sequence[Any]] | None,
    fresh_cursor: bool = False,
    threads: int = 1,
) -> list[EstimateResult]:
    """Run :func:`estimate_many`. The types of the arguments are already checked. Raises InputError as it does."""
    snapshot, pods = inputs_of(snapshot, pods)
    prepared = [template_of(template, snapshot.columns.objects) for template in templates]
    cursor = position_of(cursor, "cursor")
    if position_of(threads, "threads") < 1:
        raise InputError("threads is 0, less than one thread")
    if threads > 1 and not fresh_cursor:
        raise InputError("threads needs fresh_cursor: otherwise each template waits for the one before it")
    chosen = coerce_estimate_options(options, len(prepared))
    if groups is not None:
        members = []
        for group in groups:
            if not isinstance(group, Iterable):
                raise InputError(f"groups has {short(group)}, not a list of pods")
            members.append([record_of(pod) for pod in group])
        starts = np.cumsum([0, *map(len, members)]).tolist()
        grouped = GroupedPods(snapshot, [pod for group in members for pod in group], starts)
    else:
        grouped = group_pods(snapshot, pods)
    count = min(threads, len(prepared)) or 1
    shares = [
        _Share(snapshot, grouped, prepared[w::count], chosen[w::count], cursor, profile, fresh_cursor=fresh_cursor)
        for w in range(count)
    ]
    if count > 1:
        _find_name_clash(snapshot, prepared[0])  # fill its cache before threads start
    _run_shares(shares, together=count > 1 and not any(share.one_thread for share in shares))
    return [shares[i % count].results[i // count] for i in range(len(prepared))]


class _Share:
    """Templates that one thread estimates, on a session of their own.

    ``fresh_cursor``: each from the same cursor; otherwise each where the one before it ended.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pods: GroupedPods,
        templates: Sequence[NodeTemplate],
        options: Sequence[EstimateOptions],
        cursor: int,
        profile: SchedulerProfile | None,
        *,
        fresh_cursor: bool,
    ) -> None:
        self._snapshot, self._pods, self._cursor, self._fresh_cursor = snapshot, pods, cursor, fresh_cursor
        self._templates, self._options = templates, options
        self._session = Session(snapshot, pods.unique, templates, profile)
        self.one_thread = self._session.has_ledger or bool(self._session.profile.predicates)
        self.results: list[EstimateResult] = []

    def run(self, stopped: Event) -> None:
        """Estimate the templates one by one and append to ``results``.

        End early once ``stopped`` is set; set it on an error.
        """
        repeats = EstimateCache()
        try:
            for i, (template, options) in enumerate(zip(self._templates, self._options, strict=True)):
                if stopped.is_set():
                    return
                if self._fresh_cursor or not i:
                    self._session.engine.cursor = self._cursor
                result = estimate_in_session(self._snapshot, self._pods, template, i, options, self._session, repeats)
                self.results.append(result)
        except BaseException:
            stopped.set()  # the other threads end after their current template
            raise


def _run_shares(shares: Sequence[_Share], *, together: bool) -> None:
    """Run the shares one after the other, or (``together``) in one thread each. Raises the first error of a share."""
    stopped = Event()
    if not together:
        for share in shares:
            share.run(stopped)
        return
    from concurrent.futures import ThreadPoolExecutor  # imported here because few estimates use threads

    with ThreadPoolExecutor(max(len(shares) - 1, 1)) as pool:
        others = [pool.submit(share.run, stopped) for share in shares[1:]]
        shares[0].run(stopped)  # in this thread, so that Ctrl-C interrupts an estimate
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
    """Run one estimate on a session that holds the pods' classes.

    ``number`` is the template's number in the session; ``repeats`` caches results of earlier estimates in the session.
    The estimate's placements are reverted: of the session only the engine's cursor changes. Raises InputError if the
    options name an unknown threshold.
    """
    limit = max(min(compute_node_limit(options), MAX_COUNT), -1)
    repeats = repeats or EstimateCache()
    order = repeats.order(pods, template)
    fast = -1
    if options.fast_path:
        sizes = np.diff(pods.starts)
        fast = find_best_fast_path([(pods.exemplar(g), int(sizes[g])) for g in order.tolist()], template)
    layout = repeats.layout(pods, order, fast)
    clash = _find_name_clash(snapshot, template)
    engine = session.engine
    identity = session.template_identity(number) if clash < 0 else None
    # The result depends only on these: the engine is the same and is reverted after every estimate.
    key = identity and (identity, id(layout), limit, fast >= 0, engine.cursor)
    cached = repeats.answers.get(key) if key else None
    if cached is not None:
        packed, engine.cursor = cached
    else:
        packed = _engine.estimate(
            engine,
            layout.class_of,
            layout.starts,
            session.templates[number],
            max_nodes=limit,
            fast_last=fast >= 0,
            clash=clash,
        )
        if key:
            repeats.answers[key] = packed, engine.cursor
    placement, placed, added, with_pods, status, stopped = packed
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
