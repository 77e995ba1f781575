"""Expansion options: equivalence groups of pods, which groups take which pods, and how many nodes each group needs.

Upstream: ``core/scaleup`` (``ComputeExpansionOption``), ``core/scaleup/equivalence``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.cluster_state import ClusterStateRegistry, is_safe_to_scale_up
from kscale.ca.errors import AutoscalerError
from kscale.ca.estimator.binpacking import EstimateCache, estimate_in_session
from kscale.ca.estimator.result import (
    KNOWN_THRESHOLDS,
    NO_NODES_ALLOWED,
    EstimateOptions,
    EstimateResult,
    GroupedPods,
    NodeGroupSize,
    group_pods,
)
from kscale.ca.expander.price import GroupPrices
from kscale.ca.expander.types import ExpanderFilter, ExpanderInput, Option, PodRun, PodRuns, Rng
from kscale.ca.loop_state import AsyncInitializer
from kscale.ca.metrics import build_duration_observation, build_observation
from kscale.ca.node_group_set import (
    Comparator,
    FilteredGroups,
    SimilarGroups,
    compute_similar_node_groups,
    filter_valid_scale_up_groups,
    is_zero_or_max_group,
)
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import Quota, QuotaTracker
from kscale.ca.scale_up_status import NoScaleUpInfo
from kscale.effects import Moment, Observation, Progress, StepsOf, Wait
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node
from kscale.objects.argument_types import unchecked
from kscale.objects.node_selectors import INSTANCE_TYPE
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.scheduling.coercion import PodsLike
from kscale.scheduling.equivalent_pods import MAX_SHAPES
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import Verdict
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "CachedRecords",
    "EstimatedPodRuns",
    "ExpansionFinder",
    "ExpansionOption",
    "GroupSchedulability",
    "PodGroup",
    "PodGroups",
    "ScaleUpContext",
    "find_compared_pods",
]


def find_compared_pods(grouped: GroupedPods, records: Sequence[PodRecord]) -> frozenset[str]:
    """Return the keys of pods that upstream compared with another pod of the same controller and labels.

    A pod is compared with the first pod of each shape of its controller that has the same labels, at most ten shapes,
    until one shape matches. Upstream strips the specs of both in place: ``env`` and mounts of projected volumes.
    ``records`` are those of ``grouped``.
    """
    group_of = np.empty(len(records), dtype=np.int64)
    group_of[grouped.members] = np.repeat(np.arange(len(grouped.starts) - 1), np.diff(grouped.starts))
    recorded: dict[str, list[tuple[int, PodRecord]]] = {}
    compared: set[str] = set()
    for record, group in zip(records, group_of.tolist(), strict=True):
        if record.controller is None:
            continue
        shapes = recorded.setdefault(record.controller, [])
        labels = record.pod.metadata.labels
        for number, first in shapes:
            if first.pod.metadata.labels == labels:
                compared.update((record.key, first.key))
                if number == group:
                    break
        else:
            if len(shapes) < MAX_SHAPES:
                shapes.append((group, record))
    return frozenset(compared)


class PodGroup(msgspec.Struct, kw_only=True):
    """One equivalence group: its pods by key, the node groups that would take it, and why others would not."""

    pods: Sequence[str]
    schedulable: bool = False
    schedulable_groups: list[str] = []
    errors: dict[str, list[str]] = {}
    verdicts: dict[str, Verdict] = {}
    """Why a pod does not fit an empty new node, by node group. Groups that take the pods are not included."""


class GroupSchedulability:
    """Which equivalence groups of pods fit an empty new node of one node group, and why the others do not.

    ``fits``: bool[groups]. ``exemplar_of``: int32[groups], number of the pod that stands for each equivalence group.
    ``compute_verdicts`` returns the reasons by number of the exemplar; it is called at most once, when a reason is
    first requested.
    """

    __slots__ = ("_cached", "_compute_verdicts", "exemplar_of", "fits")

    def __init__(
        self,
        fits: NDArray[np.bool_],
        exemplar_of: NDArray[np.int32],
        compute_verdicts: Callable[[list[int]], dict[int, Verdict]],
    ) -> None:
        self.fits = fits
        self.exemplar_of = exemplar_of
        self._compute_verdicts = compute_verdicts
        self._cached: dict[int, Verdict] | None = None

    def _verdicts(self) -> dict[int, Verdict]:
        """Return why the exemplars that do not fit do not, by number of the exemplar. Computed on first use."""
        if self._cached is None:
            self._cached = self._compute_verdicts(np.unique(self.exemplar_of[~self.fits]).tolist())
        return self._cached

    def verdict(self, number: int) -> Verdict:
        """Return why equivalence group ``number`` does not fit."""
        return self._verdicts()[int(self.exemplar_of[number])]

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """Return the state for pickling, with computed verdicts instead of the function that computes them."""
        return None, {"fits": self.fits, "exemplar_of": self.exemplar_of, "_cached": self._verdicts()}


class _GroupVerdict:
    """Result of a node group for every equivalence group, and later rejections that replace it for some of them.

    ``takes``, ``rejected``: bool[groups]. ``why``: mask of the rejected equivalence groups (bool[groups]), by reason.
    """

    __slots__ = ("rejected", "schedulability", "takes", "why")

    def __init__(self, schedulability: GroupSchedulability) -> None:
        self.schedulability = schedulability
        self.takes = schedulability.fits
        self.rejected = ~schedulability.fits
        self.why: dict[str, NDArray[np.bool_]] = {}

    def reject(self, which: NDArray[np.bool_], reason: str) -> None:
        """Reject the equivalence groups in the mask ``which`` (bool[groups]) for a reason."""
        self.rejected = self.rejected | which
        self.why[reason] = self.why.get(reason, False) | which

    def reasons(self, number: int) -> list[str]:
        """Return why the node group rejects equivalence group ``number``; the latest reason counts."""
        for reason in reversed(self.why):
            if self.why[reason][number]:
                return [reason]
        return list(self.schedulability.verdict(number).why)


class PodGroups(Sequence[PodGroup]):
    """All equivalence groups of a scale-up, as a lazy sequence, with the results of the node groups for them.

    ``keys_of`` returns the keys of an equivalence group's pods. ``exemplar_of``: int32[groups], number of the pod that
    stands for each group; groups with the same exemplar have the same results. ``schedulable``: bool[groups], whether
    some node group takes the pods.
    """

    def __init__(self, exemplar_of: NDArray[np.int32], keys_of: Callable[[int], list[str]]) -> None:
        self.size = size = len(exemplar_of)
        self.exemplar_of = exemplar_of
        self.keys_of = keys_of
        self.schedulable = np.zeros(size, dtype=np.bool_)
        self._said: dict[str, _GroupVerdict] = {}

    @cached_property
    def distinct_exemplars(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the distinct exemplars, ascending, and each group's index among them: int64[groups]."""
        numbers, where = np.unique(self.exemplar_of, return_inverse=True)
        return numbers, where.reshape(-1)

    def copy_without_results(self) -> PodGroups:
        """Return a copy with the same equivalence groups, without the results of any node group."""
        return PodGroups(self.exemplar_of, self.keys_of)

    def judge(self, group: str, schedulability: GroupSchedulability) -> None:
        """Record which equivalence groups the node group ``group`` takes, replacing an earlier result."""
        self._said.pop(group, None)
        self._said[group] = _GroupVerdict(schedulability)
        self.schedulable |= schedulability.fits

    def rename(self, old: str, new: str) -> None:
        """Rename a node group from ``old`` to ``new``, as its name changed when it was created."""
        self._said = {new if name == old else name: verdicts for name, verdicts in self._said.items()}

    def erase(self, group: str) -> None:
        """Remove the result of a node group, if there is one."""
        self._said.pop(group, None)

    def give_up(self, reason: str) -> None:
        """Mark all pods as unschedulable. Node groups that would take a pod reject it for this reason."""
        for verdicts in self._said.values():
            verdicts.reject(self.schedulable & verdicts.takes, reason)
        self.schedulable = np.zeros(self.size, dtype=np.bool_)

    def fail(self, failed: Collection[str], reason: str) -> None:
        """Let the node groups ``failed`` reject all pods that they would take, for this reason.

        Pods that no other node group takes become unschedulable.
        """
        lost = np.zeros(self.size, dtype=np.bool_)
        left = np.zeros(self.size, dtype=np.bool_)
        for name, verdicts in self._said.items():
            if name in failed:
                verdicts.reject(verdicts.takes, reason)
                lost |= verdicts.takes
            else:
                left |= verdicts.takes
        self.schedulable = self.schedulable & (left | ~lost)

    # -- queries -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[PodGroup]:
        return map(self.__getitem__, range(self.size))

    def __getitem__(self, number: int) -> PodGroup:  # type: ignore[override]  # slices are not supported
        if not -self.size <= number < self.size:
            raise IndexError(number)
        number %= self.size
        verdicts = self._said
        return PodGroup(
            pods=self.keys_of(number),
            schedulable=bool(self.schedulable[number]),
            schedulable_groups=[name for name, item in verdicts.items() if item.takes[number]],
            errors=self.errors(number),
            verdicts={
                name: item.schedulability.verdict(number)
                for name, item in verdicts.items()
                if not item.schedulability.fits[number]
            },
        )

    def errors(self, number: int) -> dict[str, list[str]]:
        """Return why node groups reject equivalence group ``number``, by node group id."""
        return {name: item.reasons(number) for name, item in self._said.items() if item.rejected[number]}

    def remaining(self, skipped: dict[str, list[str]]) -> list[NoScaleUpInfo]:
        """Return a record for each unschedulable pod, with the reasons of the node groups that reject it.

        ``skipped``: reasons why node groups were not considered, by node group id.
        """
        infos = []
        for number in np.flatnonzero(~self.schedulable).tolist():
            errors = self.errors(number)
            infos += [
                NoScaleUpInfo(pod=pod, rejected_groups=errors, skipped_groups=skipped) for pod in self.keys_of(number)
            ]
        return infos

    def awaiting(self, best: str) -> list[str]:
        """Return the keys of the pods that fit some node group, but not the chosen node group ``best``.

        Empty if there is no result of ``best``.
        """
        verdicts = self._said.get(best)
        if verdicts is None:
            return []
        return [pod for i in np.flatnonzero(self.schedulable & verdicts.rejected).tolist() for pod in self.keys_of(i)]


class ScaleUpContext(msgspec.Struct, kw_only=True, frozen=True):
    """Inputs of an orchestrator besides the snapshot and the pods.

    - ``nodes``: all nodes that count for limits, including upcoming ones; ``templates``: the template of each group's
      new nodes; ``cursor``: where the search for a node continues.
    - ``expanders`` default to those of the options, ``filters`` are further ones by name; ``expander_input`` needs no
      nodes. ``rng`` breaks ties, else the first option wins.
    - ``quotas`` default to the cluster-wide maxima of the options (an error: they could not be read), ``comparator`` to
      upstream's default.
    - ``candidates``: groups that could be created (``exists`` False), whose templates are included. An error: they
      could not be listed. ``daemonsets`` run on templates of created groups. ``initializers``: by group, those
      of groups that are still being created.
    - ``known_templates`` as in :func:`kscale.ca.node_group_set.filter_valid_scale_up_groups`; ``stop_after_options``:
      number of options after which no more groups are estimated (0 = no limit); ``all_or_nothing``: all pods at once or
      none.
    - ``fake_pods`` are not reported.
    """

    groups: Groups
    nodes: Sequence[Node]
    templates: Mapping[str, NodeTemplate]
    state: ClusterStateRegistry
    options: AutoscalingOptions = msgspec.field(default_factory=AutoscalingOptions)
    cursor: int = 0
    expanders: Sequence[str] | None = None
    filters: Mapping[str, ExpanderFilter] | None = None
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    profile: SchedulerProfile | None = None
    candidates: Sequence[NodeGroup] | AutoscalerError = ()
    daemonsets: Sequence[DaemonSet] = ()
    initializers: Mapping[str, AsyncInitializer] = {}
    known_templates: Container[str] | None = None
    all_or_nothing: bool = False
    fake_pods: InjectedFakePods = InjectedFakePods()
    stop_after_options: int = 0
    rng: Rng | None = None


class CachedRecords(Sequence[PodRecord]):
    """Pod records by position. Each record is built on first access, so it is decoded once for all readers."""

    def __init__(self, records: Sequence[PodRecord]) -> None:
        self._records = records
        self._cache: dict[int, PodRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, i: int) -> PodRecord:  # type: ignore[override]  # slices are not supported
        record = self._cache.get(i)
        if record is None:
            record = self._cache[i] = self._records[i]
        return record


_sum_by_class: Final = unchecked(EstimateResult.sum_by_class)


class EstimatedPodRuns(PodRuns):
    """The pods that an estimate placed, in the order of placement.

    ``records``: those of the estimate, shared by the options of a scale-up. ``one_by_one``: no runs of like pods.
    """

    def __init__(self, estimate: EstimateResult, records: CachedRecords, *, one_by_one: bool) -> None:
        self._estimate = estimate
        self._records = records
        self._one_by_one = one_by_one

    @cached_property
    def _runs(self) -> list[PodRun]:
        """Return the runs of equal pods; with ``one_by_one`` each pod is a run."""
        estimate, records = self._estimate, self._records
        if self._one_by_one:
            numbers = estimate.pod_of[estimate.order_numbers].tolist()
            return [PodRun(records[i].pod, record=records[i]) for i in numbers]
        return [PodRun(records[first].pod, count, records[first]) for first, count in estimate.runs]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[PodRun]:
        return iter(self._runs)

    def __getitem__(self, i: int) -> PodRun:  # type: ignore[override]  # slices are not supported
        return self._runs[i]

    @property
    def pod_count(self) -> int:
        """Return the number of all pods."""
        return len(self._estimate.order_numbers)

    @property
    def requested(self) -> tuple[int, int]:
        """Return the sum of the requests: (cpu, memory) in billionths of a core and of a byte."""
        return self._estimate.requested

    def sum_by_class(self, value_of: Callable[[Mapping[str, int]], float]) -> float:
        """Return the sum of a value of all pods, added one by one in their order.

        ``value_of`` computes the value from what a pod occupies, by resource: cpu in milli-units, otherwise bytes or
        counts.
        """
        return _sum_by_class(self._estimate, value_of)


class ExpansionOption(msgspec.Struct, kw_only=True):
    """One way to scale up, as the expander saw it, with the estimate behind it. ``pods`` in placement order."""

    group: str
    node_count: int
    similar: list[str]
    estimate: EstimateResult
    limits: EstimateOptions
    """Limits of the estimate."""

    @property
    def pods(self) -> list[str]:
        """List the pods that the option's nodes take."""
        return self.estimate.placed_pods

    @property
    def pod_count(self) -> int:
        """Return the number of pods that the option's nodes take."""
        return len(self.estimate.order_numbers)


class ExpansionFinder:
    """Search for the options of one scale-up.

    Holds the pods in equivalence groups, the compiled templates, and the verdict of each node group on each pod group.
    ``session``: that of the context's templates which placed other pods on the nodes of ``snapshot``, if there is one.
    """

    def __init__(
        self, p: Progress, snapshot: Snapshot, pods: PodsLike, context: ScaleUpContext, session: Session | None = None
    ) -> None:
        groups, templates = context.groups, context.templates
        self.p = p
        self.context = context
        self.snapshot = snapshot
        self.groups = groups
        self.all_groups = groups
        """With those that could be created."""
        known = context.known_templates
        self.known_templates: Container[str] = {group.id for group in groups} if known is None else known
        """Groups that had a template when the cluster state was updated."""
        self.nodes = context.nodes
        self.templates = dict(templates)
        self.state = context.state
        self.options = context.options
        self.all_or_nothing = context.all_or_nothing
        grouped = group_pods(snapshot, pods)
        if session is None:
            self.session = Session(snapshot, grouped.unique, list(templates.values()), context.profile)
        else:
            self.session = session.with_pods_placed(snapshot)
            grouped = grouped.in_session(session)
        self.grouped = grouped
        self.pod_groups = PodGroups(self.grouped.class_of[self.grouped.starts[:-1]], self.grouped.keys_of_group)
        self.session.engine.cursor = context.cursor
        self.compiled = {name: (self.session, i) for i, name in enumerate(templates)}
        self.filtered = FilteredGroups()
        self.schedulable: dict[str, NDArray[np.bool_]] = {}
        """By node group, which equivalence groups it takes: bool[groups]."""
        self.estimate_cache = EstimateCache()
        self._selected_pods: dict[bytes, GroupedPods] = {}
        self._fits: dict[tuple[int, tuple[object, ...] | None], NDArray[np.bool_]] = {}
        self._namespace_counts: dict[bytes, int] = {}
        self.expansion_options: list[ExpansionOption] = []
        self._similar: SimilarGroups | None = None
        self.observations: list[Observation | Callable[[], Observation]] = []
        """In the order in which they are emitted; some are built when they are read."""
        self.sharing: list[str] = []

    # -- groups and options ------------------------------------------------------------------------------------

    def filter(self, tracker: QuotaTracker) -> None:
        """Set ``filtered``, the groups that can grow, and record which pod groups fit each of them.

        ``tracker`` has the quotas that are left; it is not changed.
        """
        self.filtered = filter_valid_scale_up_groups(
            self.all_groups,
            templates={name: item.node for name, item in self.templates.items()},
            tracker=tracker,
            state=self.state,
            node_count=len(self.nodes),
            now=self.p.now,
            options=self.options,
            known_templates=self.known_templates,
        )
        for group in self.filtered.valid:
            self.schedulable[group.id] = self.judge(group.id, self.pod_groups)

    def judge(self, group: str, pod_groups: PodGroups) -> NDArray[np.bool_]:
        """Return which pod groups' first pod fits an empty node of the group: bool[groups].

        Also records the result, and the reasons of the others, in ``pod_groups``.
        """
        exemplars = pod_groups.exemplar_of
        session, which = self.compiled[group]
        identity = session.template_identity(which)
        class_fits = self._fits.get((id(session), identity)) if identity else None
        if class_fits is None:
            numbers, where = pod_groups.distinct_exemplars
            class_fits = self._fits[id(session), identity] = _find_fitting_classes(session, which, numbers)[where]
        fits = class_fits
        ask = partial(session.verdicts_on_copy, which, 0)
        pod_groups.judge(group, GroupSchedulability(fits, exemplars, ask))
        return fits

    def list_similar_groups(self, group: NodeGroup) -> list[str]:
        """Return the ids of the groups that may share a scale-up of this group."""
        return compute_similar_node_groups(
            group, self.groups, self.schedulable, self._get_similar_groups, self.is_safe, self.options
        )

    def _get_similar_groups(self) -> SimilarGroups:
        """Return the similarities of all groups, computed on first use."""
        if self._similar is None:
            names = [item.id for item in self.groups]
            names += [item.id for item in self.all_groups if item.id not in self.groups]
            self._similar = SimilarGroups(names, self.templates, self.context.comparator)
        return self._similar

    def is_safe(self, group: NodeGroup) -> bool:
        """Check whether the group is healthy and not in back-off, or does not exist yet."""
        return not group.exists or is_safe_to_scale_up(self.state, group.id, self.p.now, self.options)

    def find_options(self, stop_after: int, until: Moment) -> StepsOf[Wait, None]:
        """Compute the expansion option of each valid group, and add those that exist to ``expansion_options``.

        Ends after ``stop_after`` options (0: no limit), or after the group during which ``until`` passed; the remaining
        groups are left out. Metrics of each estimate are added to ``observations``.
        """
        for group in self.filtered.valid:
            begun = self.p.now
            option = self.compute_option(group)
            if option is not None:
                self.expansion_options.append(option)
            estimated = self.schedulable[group.id]
            if estimated.any():
                node = self.templates[group.id].node
                build = partial(_build_heterogeneity_observation, self.grouped, self._namespace_counts, node, estimated)
                self.observations.append(build)  # without a reference to this object: it would be a cycle
            if stop_after and len(self.expansion_options) >= stop_after:
                break
            now = yield from self.p.clock()
            if estimated.any():
                self.observations.append(build_duration_observation("scaleUp:estimate", now - begun))
            if now > until:
                break

    def compute_option(self, group: NodeGroup) -> ExpansionOption | None:
        """Return the expansion option of a group; None if it takes no pod or needs no node.

        A group with zero-or-max scaling gets its maximum. With ``all_or_nothing`` also None if a pod of the scale-up
        does not fit, or if the maximum of a group with zero-or-max scaling is too small.
        """
        schedulable = self.schedulable[group.id]
        if not schedulable.any():
            return None
        similar = self.list_similar_groups(group)
        # A pure function has no time limit, but a negative duration allows no node at all.
        no_time = self.options.max_nodegroup_binpacking_duration < timedelta()
        limits = EstimateOptions(
            max_nodes=NO_NODES_ALLOWED if no_time else self.options.max_nodes_per_scaleup,
            thresholds=KNOWN_THRESHOLDS,
            node_group=_build_node_group_size(group),
            similar_node_groups=tuple(_build_node_group_size(self.groups[name]) for name in similar),
            cluster_max_nodes=self.options.max_nodes_total,
            current_node_count=len(self.nodes),
            fast_path=self.options.fastpath_binpacking_enabled,
        )
        result = estimate_in_session(
            self.snapshot,
            self._select_pods(schedulable),
            self.templates[group.id],
            self.compiled[group.id][1],
            limits,
            self.session,
            self.estimate_cache,
        )
        count = result.node_count
        if is_zero_or_max_group(group, self.options) and count > 0:
            if self.all_or_nothing and count > group.max_size:
                return None
            count = group.max_size
        fitting = len(result.order_numbers)
        if count == 0 or not fitting:
            return None
        if self.all_or_nothing and fitting < len(self.grouped.records):
            return None
        return ExpansionOption(group=group.id, node_count=count, similar=similar, estimate=result, limits=limits)

    def _select_pods(self, selected: NDArray[np.bool_]) -> GroupedPods:
        """Return the pods of the selected pod groups, cached by selection."""
        key = selected.tobytes()
        part = self._selected_pods.get(key)
        if part is None:
            part = self._selected_pods[key] = self.grouped.select_groups(np.flatnonzero(selected))
        return part

    @cached_property
    def records(self) -> CachedRecords:
        """Return the pods; each is decoded at most once."""
        return CachedRecords(self.grouped.records)

    def expander_options(self, names: Sequence[str]) -> list[Option]:
        """Return the options as the input of the expanders ``names``.

        Pods are listed one by one if ``names`` has ``grpc``, or ``price`` with prices that may depend on anything of a
        pod (all but :class:`GroupPrices`). Otherwise consecutive equal pods form a run.
        """
        expander_input = self.context.expander_input
        by_requests = expander_input is not None and isinstance(expander_input.prices, GroupPrices)
        one_by_one = "grpc" in names or ("price" in names and not by_requests)
        return [
            Option(
                group=item.group,
                node_count=item.node_count,
                pods=EstimatedPodRuns(item.estimate, self.records, one_by_one=one_by_one),
                similar=item.similar,
                exists=self.all_groups[item.group].exists,
            )
            for item in self.expansion_options
        ]


def _build_heterogeneity_observation(
    grouped: GroupedPods, namespace_counts: dict[bytes, int], node: Node, estimated: NDArray[np.bool_]
) -> Observation:
    """Return an observation of how many pod groups an estimate covers; the number of namespaces is bucketed.

    ``namespace_counts``: cached numbers of namespaces by the bytes of ``estimated``.
    """
    selection = estimated.tobytes()
    namespaces = namespace_counts.get(selection)
    if namespaces is None:
        classes = {*grouped.class_of[grouped.starts[:-1][estimated]].tolist()}
        namespaces = namespace_counts[selection] = len({grouped.unique[which].namespace for which in classes})
    return build_observation(
        "binpacking_heterogeneity",
        int(estimated.sum()),
        instance_type=(node.metadata.labels or {}).get(INSTANCE_TYPE, ""),
        cpu_count=str((node.status.capacity or {}).get("cpu", "0")),
        namespace_count=str(namespaces) if namespaces <= 5 else "6-10" if namespaces <= 10 else "11+",
    )


def _find_fitting_classes(session: Session, template: int, classes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether a pod of each class (``classes``: numbers) fits alone on an empty node: bool[n].

    ``template``: number of the node's template in the session.
    """
    engine = session.engine
    engine.fork()
    try:
        fits = engine.fits(classes, engine.add(session.templates[template], 0))
        return fits.view(np.bool_)
    finally:
        engine.revert()


def _build_node_group_size(group: NodeGroup) -> NodeGroupSize:
    """Return the sizes of a group that the estimator's limits read."""
    return NodeGroupSize(
        id=group.id,
        max_size=group.max_size,
        target_size=group.size,
        target_size_error=group.target_size_error is not None,
    )
