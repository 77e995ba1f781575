"""Reconcile many HPAs as one step machine: shared requests, decisions over columns, then the writes of each HPA.

The steps are:

1. Request the scales that are not known yet.
2. Request the metrics that HPAs need.
3. Read HPAs, watched scales and pods again, once the responses have arrived (upstream lists pods after each response).
4. Decide all HPAs (:mod:`~kscale.hpa.batch.decisions`).
5. Pass the decision to each HPA's step machine (:mod:`~kscale.hpa.controller.reconcile`), which derives conditions,
   events and the status. HPAs whose replicas change are decided again with the scale at that time.

Upstream reconciles one by one: ``pkg/controller/podautoscaler/horizontal.go``.

With equal HPAs, scales, pods and metric values a batch repeats its decisions, unless time makes a difference: the age
of pods, past recommendations and scale events, and the age of samples. Age of pods and the past are evaluated again
over columns. :func:`is_stable_batch` checks that the age of samples cannot matter any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _names
from kscale.effects import (
    ZERO_TIME,
    ApiError,
    Deferred,
    Emit,
    GetMetric,
    GetScale,
    List,
    Machine,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    Steps,
    WriteStatus,
    moment,
)
from kscale.effects.progress import SingleAction
from kscale.hpa.batch.columns import StateStore
from kscale.hpa.batch.decisions import Decisions, decide_columns, repeat_decisions
from kscale.hpa.batch.inputs import BatchColumns, BatchObjects, PreparedBatch, get_hpa_keys, prepare_batch
from kscale.hpa.batch.pods import PodsLike, concatenate_ranges, to_batch_pods
from kscale.hpa.batch.precomputed import (
    UNCHANGED_OBSERVATIONS,
    CachedDecision,
    FindOutcome,
    PrecomputedReconcile,
    ReconcileRun,
)
from kscale.hpa.batch.requests import is_late_response, request_metrics_steps, request_scales_steps
from kscale.hpa.controller.behavior import NormalizedReplicas, StateColumns
from kscale.hpa.controller.metric_proposals import build_metric_status
from kscale.hpa.controller.reconcile import (
    PrecomputedDecision,
    ReconcileMachine,
    ReconcileResult,
    build_reconcile_observations,
)
from kscale.hpa.controller.replica_calculator import CALCULATION_MODES, CalculatedReplicas, get_error_text
from kscale.hpa.controller.scale_target import SelectorStore, TargetScale
from kscale.hpa.controller.state import ControllerState, HPAState, WrittenVersion
from kscale.hpa.controller.status import ReconcileContext
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from kscale.objects.argument_types import typed
from kscale.objects.kinds import RESTMapper
from kscale.snapshot.caches import collector_paused

__all__ = ["BatchResult", "CurrentObjects", "RefreshObjects", "is_stable_batch", "reconcile_all", "repeat_batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentObjects:
    """The objects of a batch, read again.

    ``hpas``: in the order of the batch, None where one was deleted; ``scales``: of the targets that are watched, by
    the HPA's ``namespace/name``; ``pods``: a cluster, a snapshot or its index, or a list.
    """

    hpas: Sequence[HorizontalPodAutoscaler | None]
    scales: Mapping[str, Scale]
    pods: PodsLike


RefreshObjects = Callable[[Progress, Sequence[HorizontalPodAutoscaler]], Steps[CurrentObjects | None]]
"""Reads the objects of some HPAs again, or returns None if that is impossible now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """Result of a batch.

    - ``keys``: the reconciled HPAs, with ``histories`` and ``plain_states`` of their states, row by row.
    - ``unfinished``: keys of HPAs for which there was no time, or that changed so that other requests are needed;
      ``late``: those whose responses did not arrive in time; ``deleted``: those that were deleted meanwhile. The state
      of all of these is unchanged.
    - ``slow``: keys of HPAs whose requests or writes took at least ``slow_after``.
    - ``problems``: malformed parts of HPAs, over which upstream would crash, by key.
    - ``records``: results of HPAs that are not completely described by the columns.
    - ``prepared``, ``inputs``, ``decisions``: inputs and decisions of all HPAs at ``at``.
    - ``written``: the statuses written for HPAs that the columns describe, by key.
    - ``rows``: cached decisions of HPAs whose replicas stay.
    - ``ends``: when the HPAs that performed actions ended, by key.
    """

    keys: Sequence[str]
    histories: StateColumns
    plain_states: Sequence[HPAState]
    unfinished: Sequence[str]
    problems: Mapping[str, Exception]
    records: Mapping[str, ReconcileResult]
    prepared: PreparedBatch
    inputs: BatchColumns
    decisions: Decisions
    at: Moment
    written: Mapping[str, HorizontalPodAutoscalerStatus]
    rows: Sequence[CachedDecision | None] = ()
    ends: Mapping[str, Moment] = field(default_factory=dict)
    late: Sequence[str] = ()
    deleted: Sequence[str] = ()
    slow: Sequence[str] = ()


@typed
def reconcile_all(
    hpas: Sequence[HorizontalPodAutoscaler],
    states: StateStore,
    pods: PodsLike,
    *,
    scales: Mapping[str, Scale],
    now: datetime | Moment,
    options: HPAOptions,
    selectors: SelectorStore,
    mapper: RESTMapper,
    within: int | None = None,
    slow_after: int | None = None,
    before: BatchResult | None = None,
    refresh: RefreshObjects | None = None,
) -> Steps[BatchResult]:
    """Reconcile HPAs together, with the same results as one by one.

    All selectors are known before the first HPA is checked. An error of one HPA does not raise.

    Parameters
    ----------
    hpas : sequence of HorizontalPodAutoscaler
        Defaulted v2 structs, none of them older than what was written of it. All are registered in ``selectors``.
    states : StateStore
        State from earlier reconciles.
    pods : cluster, snapshot, index or list
        The pods.
    scales : mapping of str to Scale
        Scales of watched targets by the HPA's ``namespace/name``. Others are requested, and a scale that is to be
        written is always requested. A watched scale may be behind: a write then meets a conflict, as upstream's does.
    now : datetime or Moment
        Time of the batch.
    options : HPAOptions
        Options of the controller.
    selectors : SelectorStore
        Selectors of all HPAs.
    mapper : RESTMapper
        Mapper of kinds to resources.
    within : int, optional
        Limit in nanoseconds. An HPA is left for another batch if it has not begun to write within this time after the
        first HPA did, or if its scale or metrics do not arrive within this time.
    slow_after : int, optional
        Without ``within``: nanoseconds from which an HPA's requests or writes are reported as slow.
    before : BatchResult, optional
        Result of the last batch with the same options and mapper. Whatever still holds is reused.
    refresh : RefreshObjects, optional
        Reads ``hpas``, ``scales`` and ``pods`` again after metrics or scales were requested. Default: they stay as
        passed.

    Returns
    -------
    Steps of BatchResult
        The step machine.
    """
    return _BatchReconcile(
        hpas, states, pods, scales, moment(now), options, selectors, mapper, within, slow_after, before, refresh
    ).run()


@dataclass
class _BatchReconcile:
    """Step machine of :func:`reconcile_all`, with its arguments and its results so far."""

    hpas: Sequence[HorizontalPodAutoscaler]
    states: StateStore
    passed_pods: InitVar[PodsLike]
    passed_scales: InitVar[Mapping[str, Scale]]
    at: Moment
    options: HPAOptions
    selectors: SelectorStore
    mapper: RESTMapper
    within: int | None
    slow_after: int | None
    before: BatchResult | None
    refresh: RefreshObjects | None
    until: Moment | None = None
    slow: list[str] = field(default_factory=list)
    concluded: dict[int, CachedDecision] = field(default_factory=dict)
    changed_usage: set[int] = field(default_factory=set)
    ends: dict[str, Moment] = field(default_factory=dict)
    deleted: frozenset[int] = frozenset()
    unanswered: frozenset[int] = frozenset()
    updates: dict[int, _MetricsUpdate] = field(default_factory=dict)
    refused: list[ReconcileRun] = field(default_factory=list)

    def __post_init__(self, passed_pods: PodsLike, passed_scales: Mapping[str, Scale]) -> None:
        self.keys = get_hpa_keys(self.hpas, None if self.before is None else self.before.prepared.objects)
        self.pods = to_batch_pods(passed_pods)
        self.scales: dict[str, Any] = dict(passed_scales)
        self.watched = frozenset(passed_scales)
        self.progress = Progress(self.at)
        self.took: dict[Any, int] | None = None if self.slow_after is None else {}
        self.slow_after = self.slow_after if self.within is None else self.within

    def run(self) -> Steps[BatchResult]:
        """Run the batch from its requests to its result.

        Scales and metrics are requested, the objects refreshed, and all HPAs decided in columns. Then scales are
        written, and after them statuses, namespace by namespace. HPAs for which the time is over stay unfinished.
        """
        max_parallel = self.options.workers
        self.scales = yield from request_scales_steps(
            self.progress, self.hpas, self.keys, self.scales, self.mapper, max_parallel, self.within, self.took
        )
        before = self.before
        with collector_paused():
            last = None if before is None else before.prepared
            objects = BatchObjects.read(
                self.hpas,
                self.scales,
                self.pods,
                _reject_request,
                self.selectors,
                self.mapper,
                None if last is None else last.objects,
                self.keys,
            )
            self.prepared = prepare_batch(objects, ControllerState(hpas=self.states), self.options, last)
        metric_requests = self.prepared.list_requests()
        self.responses = yield from request_metrics_steps(
            self.progress, metric_requests, max_parallel, self.within, self.took
        )
        if self.refresh is not None and (metric_requests or not self.watched.issuperset(self.keys)):
            current = yield from self.refresh(self.progress, self.hpas)
            if current is not None:
                with collector_paused():
                    self._restart_with(current)
        self.at = self.progress.now
        self._record_slow_hpas()
        self.late = self._find_late_rows()
        with collector_paused():
            left_out = self.late | self.deleted | self.unanswered
            self.inputs = self.prepared.encode(self.responses, None if before is None else before.inputs, left_out)
            self.decisions = decide_columns(self.inputs, self.prepared.memory, now=self.at, options=self.options)
            self._register_selectors()
            self._read_columns()
            self.repeated_rows = self._find_repeated_rows()
            self.rows = list(self.repeated_rows)
            runs = []
            for row, cached in enumerate(self.repeated_rows):
                if cached is None and row not in left_out:
                    update = self._start_update(row)
                    if update is None:
                        runs.append(self._start_run(row))
                    else:
                        self.updates[row] = update
        yield from self._report_finished_runs([run for run in runs if run.action is None and run.begun])
        # Write scales first, as statuses can wait. Then write namespace by namespace, in the order of their first HPA:
        # the unfinished rest has its metrics requested again, and comes first the next time.
        namespaces = [hpa.metadata.namespace for hpa in self.hpas]
        namespace_order = {namespace: number for number, namespace in enumerate(dict.fromkeys(namespaces))}
        run_brief, run_long = self._run_steps, self._run_separately
        machines: dict[int, Machine] = {
            run.row: partial(run_long if run.in_full else run_brief, run)
            for run in runs
            if run.record is None and run.problem is None
        }
        machines.update(self.updates)
        order = sorted(machines, key=lambda row: (not self.rescales[row], namespace_order[namespaces[row]], row))
        yield from self.progress.together([machines[row] for row in order], at_most=max_parallel, brief=True)
        if self.updates:
            yield from self.progress.act(Observe(Deferred(partial(self._list_observations, self.updates))))
        result = self._build_batch_result([*runs, *self.refused])
        self.updates = {}  # each refers to this object: without a cycle, its columns are freed at once
        return result

    def _restart_with(self, current: CurrentObjects) -> None:
        """Prepare the batch again from the current objects.

        An HPA that no longer exists is dropped. An HPA is left for the next batch if another object of its name has
        replaced it, its scale is not known any more, or it needs a response that was not requested.
        """
        removed, postponed = set(), set()
        hpas = list(self.hpas)
        for row, (old, new) in enumerate(zip(self.hpas, current.hpas, strict=True)):
            if new is None:
                removed.add(row)
            elif new.metadata.uid != old.metadata.uid or (
                new.spec.scale_target_ref != old.spec.scale_target_ref and self.keys[row] not in current.scales
            ):
                postponed.add(row)
            else:
                hpas[row] = new
        scales = {**self.scales, **current.scales}
        lost = self.watched.difference(current.scales)
        if lost:
            postponed.update(row for row, key in enumerate(self.keys) if key in lost and row not in removed)
        self.hpas, self.scales, self.watched = hpas, scales, self.watched.union(current.scales)
        self.pods = to_batch_pods(current.pods)
        last, metric_requests = self.prepared, self.prepared.list_requests()
        objects = BatchObjects.read(hpas, scales, self.pods, _reject_request, self.selectors, self.mapper, last.objects)
        self.keys = objects.keys
        self.prepared = prepare_batch(objects, ControllerState(hpas=self.states), self.options, last)
        if self.prepared.list_requests() is not metric_requests:
            postponed.update(self.prepared.find_rows_without_response(self.responses.by_request))
        self.deleted, self.unanswered = frozenset(removed), frozenset(postponed - removed)

    def _find_late_rows(self) -> frozenset[int]:
        """Return the rows whose scale or metrics have not arrived in time."""
        if self.within is None:
            return frozenset()
        keys = () if self.watched.issuperset(self.keys) else enumerate(self.keys)  # others' scales may be watched, too
        scales = (row for row, key in keys if is_late_response(self.scales.get(key)))
        late_requests = [
            request for request, response in self.responses.by_request.items() if is_late_response(response)
        ]
        return frozenset([*scales, *(self.prepared.find_rows_of_requests(late_requests) if late_requests else ())])

    def _record_slow_hpas(self) -> None:
        """Record the HPAs whose requests took at least ``slow_after``."""
        if self.took is None or self.slow_after is None:
            return
        slow = {metrics for metrics, took in self.took.items() if took >= self.slow_after}
        metrics = [request for request in slow if isinstance(request, GetMetric)]
        keys = {self.keys[row] for row in self.prepared.find_rows_of_requests(metrics)} if metrics else set()
        self.slow += sorted(keys | slow.intersection(self.keys))

    def _register_selectors(self) -> None:
        """Register the selectors of all HPAs, before any machine checks whether other HPAs select the same pods.

        Selectors of the last batch are still registered if they are unchanged.
        """
        if self.before is not None and self.before.prepared.selectors is self.prepared.selectors:
            return
        for row in np.flatnonzero(self.prepared.group >= 0).tolist():
            metadata = self.hpas[row].metadata
            self.selectors.put_if_present(metadata.namespace, metadata.name, self.prepared.selector(row))

    # -- one by one --------------------------------------------------------------------------------------------------

    def _find_repeated_rows(self) -> list[CachedDecision | None]:
        """Return for each row the cached decision of the last batch if its result is the same now, else None.

        Cached decisions from which the new ones differ only in metric values and sizes of proposals are put into
        ``concluded``, and their rows into ``changed_usage`` if a usage changed.
        """
        before = self.before
        repeated: list[CachedDecision | None] = [None] * len(self.hpas)
        if before is None or not before.rows or self.keys != before.prepared.objects.keys:
            return repeated
        rows, changed_values, changed_usage = self._compare_decisions(before)
        proposals = self.decisions.sizes["proposal"].values[rows].tolist()
        for row, proposal, has_changed, has_other_usage in zip(
            rows.tolist(), proposals, changed_values.tolist(), changed_usage.tolist(), strict=True
        ):
            cached = before.rows[row]
            if cached is not None and cached.is_stated_by(self.hpas[row]):
                if not has_changed:
                    repeated[row] = cached.with_new_metrics(self.hpas[row])
                    continue
                if proposal != cached.proposal:
                    cached = msgspec.structs.replace(cached, proposal=proposal)
                self.concluded[row] = cached
                if has_other_usage:
                    self.changed_usage.add(row)
        return repeated

    def _compare_decisions(self, before: BatchResult) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Compare the decisions with those of the last batch (``before``), which is of the same HPAs.

        Two decisions from one scale are equal if they differ in metric values and sizes of proposals only: they keep
        the replicas, and have the same stabilization, limits and decisive metric, whose name conditions state. Each
        proposal is above, at or below the current replicas as before: observations and the reason follow from that.

        Returns
        -------
        rows : int64[k]
            HPAs whose decision is equal, ascending.
        changed_values : bool[k]
            Whether any value or size of a proposal has changed.
        changed_usage : bool[k]
            Whether the usage of a metric has changed.
        """
        targets, last = self.inputs.targets, before.inputs.targets
        equal = np.array(self.plain, np.bool_) & ~np.array(self.rescales, np.bool_)
        if self.inputs.scales is not before.inputs.scales:
            equal[_names.other_objects([*self.inputs.scales], [*before.inputs.scales])] = False
        resources, old_resources = (each.hpas.references.resources for each in (self.prepared, before.prepared))
        if resources is not old_resources:
            equal &= [mine == theirs for mine, theirs in zip(resources, old_resources, strict=True)]
        columns, old_columns = self.decisions.list_normalized_columns(), before.decisions.list_normalized_columns()
        for mine, theirs in zip(columns, old_columns, strict=True):
            equal &= mine == theirs
        equal &= self.decisions.best == before.decisions.best
        begin, end = targets.metrics_begin, targets.metrics_end
        equal &= (end > begin) & (end - begin == last.metrics_end - last.metrics_begin)
        rows = np.flatnonzero(equal)
        if not len(rows):
            return rows, equal[rows], equal[rows]
        at = concatenate_ranges(begin[rows], end[rows])
        old_at = concatenate_ranges(last.metrics_begin[rows], last.metrics_end[rows])
        now, then = self.decisions.metrics, before.decisions.metrics
        counts = end[rows] - begin[rows]
        begins, current = np.cumsum(counts) - counts, np.repeat(targets.current[rows], counts)
        sizes, old_sizes = now.replicas[at], then.replicas[old_at]
        changed_usage = now.usage[at] != then.usage[old_at]
        changed = (now.utilization[at] != then.utilization[old_at]) | (sizes != old_sizes) | changed_usage
        turned = np.sign(sizes - current) != np.sign(old_sizes - current)
        turned, changed, changed_usage = (
            np.logical_or.reduceat(each, begins) for each in (turned, changed, changed_usage)
        )
        return rows[~turned], changed[~turned], changed_usage[~turned]

    def _get_target(self, row: int, scale: Scale) -> TargetScale:
        """Return the scale of the HPA at ``row`` together with its resource."""
        return TargetScale(scale, self.prepared.hpas.references.resources[row][0])

    def _start_update(self, row: int) -> _MetricsUpdate | None:
        """Return the pending status write of an HPA of which only metric values changed since the last batch.

        None for an HPA outside ``changed_usage``, and without the gate StaleControllerConsistencyHPA.
        """
        if row not in self.changed_usage or not self.options.gates["StaleControllerConsistencyHPA"]:
            return None
        hpa, metrics = self.hpas[row], self.prepared.hpas.specs.metric_lists[self._metric_lists[row]]
        statuses = [
            build_metric_status(metric.source, *values)
            for metric, values in zip(metrics, self.get_replicas(row), strict=True)
        ]
        status = msgspec.structs.replace(hpa.status, current_metrics=statuses)
        return _MetricsUpdate(self, row, self.concluded[row], status)

    def _start_run(self, row: int) -> ReconcileRun:
        """Create the step machine of one HPA, and run it as far as no action is needed.

        - Replicas change: the machine does not run yet.
        - The columns have the decision, and replicas stay: the decision is cached in ``rows``. The machine does not run
          yet if the status must be written, and is done otherwise.
        - Otherwise: the machine runs until it needs an action.
        """
        known, hpa = self._get_precomputed_decision(row), self.hpas[row]
        rescales = self.rescales[row]
        if known is not None and not rescales:
            precomputed = self._build_precomputed(row, known)
            self.rows[row] = decision = precomputed.to_cached(self.get_replicas(row))
            out = ReconcileRun(row, precomputed.write(), self.at, [], precomputed.observations, by_columns=True)
            if not precomputed.writes:
                out.observations, out.record = list(decision.observations), precomputed.finish_without_writes()
                out.begun = True
        else:
            state = _mark_registered(self.states.get(self.keys[row]) or HPAState())
            context = ReconcileContext(hpa, state, hpa.status, self.at, self.options, Progress(self.at))
            errors = self._list_calculated_errors(row) if known is None else None
            # Otherwise the scale is read again, or its selector was not compared with those of other HPAs.
            alone = not rescales and bool(self.inputs.targets.metrics_begin[row] < self.inputs.targets.metrics_end[row])
            steps = ReconcileMachine(context, self.selectors, known, calculated=errors, alone=alone).run(
                self.mapper, None
            )
            out = ReconcileRun(row, steps, self.at, in_full=known is None and rescales)
            if not rescales:
                out.advance(None, self._find_known_outcome)
        return out

    def _build_precomputed(self, row: int, known: PrecomputedDecision) -> PrecomputedReconcile:
        """Build the reconcile of an HPA with a known decision, which does not change its replicas."""
        cached = self.concluded.get(row)
        return PrecomputedReconcile(
            self.hpas[row],
            _mark_registered(self.prepared.plain_states[row]),
            known,
            self._get_target(row, known.scale) if cached is None else cached.target,
            progress=Progress(self.at),
            options=self.options,
            cached=cached,
        )

    def _read_columns(self) -> None:
        """Convert the columns for :meth:`_get_precomputed_decision` to lists, whose rows are faster to read."""
        decisions, targets = self.decisions, self.inputs.targets
        plain = decisions.decided_by_metrics() & (targets.scale_error == 0) & (not self.options.legacy)
        self.plain, self.rescales = plain.tolist(), (decisions.rescaled != 0).tolist()

    @cached_property
    def _metric_lists(self) -> list[int]:
        """Return the number of each HPA's list of metrics in the columns of specs."""
        numbers: list[int] = self.prepared.hpas.specs.metrics.tolist()
        return numbers

    @cached_property
    def _calculated(self) -> tuple[list[int], list[int], list[tuple[int, int, int]]]:
        """Return where the metrics of each HPA begin and end, and the calculator's result for each metric."""
        columns, targets = self.decisions.metrics, self.inputs.targets
        of_metrics = zip(columns.replicas.tolist(), columns.utilization.tolist(), columns.usage.tolist(), strict=True)
        return targets.metrics_begin.tolist(), targets.metrics_end.tolist(), list(of_metrics)

    def get_replicas(self, row: int) -> list[tuple[int, int, int]]:
        """Return (replicas, utilization, usage) of each metric of the HPA at ``row``, as the calculator computed it."""
        begin, end, of_metrics = self._calculated
        return of_metrics[begin[row] : end[row]]

    @cached_property
    def _normalized(self) -> list[NormalizedReplicas]:
        """Return the normalized proposal of each HPA, without recommendations."""
        return self.decisions.get_normalized()

    def _get_precomputed_decision(self, row: int) -> PrecomputedDecision | None:
        """Return the decision in the columns, or None if the HPA must be reconciled in full.

        That is so if metrics did not decide, a metric failed, the scale is unknown, or the controller is a legacy one.
        Recommendations are filled in only if the replicas change; otherwise they stay in columns.
        """
        scale = self.inputs.scales[row]
        if not self.plain[row] or isinstance(scale, ApiError):
            return None
        replicas = self._get_calculated_replicas(row)
        normalized = self._normalized[row]
        if self.rescales[row]:
            past = self.decisions.memory.histories.past
            normalized = msgspec.structs.replace(normalized, recommendations=past.get_recommendations(row))
        return PrecomputedDecision(scale, replicas, normalized)

    def _get_calculated_replicas(self, row: int) -> list[CalculatedReplicas]:
        """Return the calculator's result for each metric of the HPA at ``row``."""
        return [
            CalculatedReplicas(replicas=size, utilization=percent, usage=usage)
            for size, percent, usage in self.get_replicas(row)
        ]

    def _list_calculated_errors(self, row: int) -> list[CalculatedReplicas] | None:
        """Return the calculator's error for each metric of an HPA, if all of them failed in the calculation.

        None if a metric did not fail there or has no utilization target, or if an error names a pod.
        """
        targets, rows, results = self.inputs.targets, self.inputs.rows, self.decisions.metrics
        errors: list[CalculatedReplicas] = []
        for at in range(targets.metrics_begin[row], targets.metrics_end[row]):
            text = get_error_text(int(results.error[at]), "", legacy=self.options.legacy)
            if not text or rows.failure[at] or rows.invalid[at] or CALCULATION_MODES[rows.mode[at]] != "utilization":
                return None
            errors.append(
                CalculatedReplicas(utilization=int(results.utilization[at]), usage=int(results.usage[at]), error=text)
            )
        return errors or None

    def _find_known_outcome(self, run: ReconcileRun, action: Any) -> Outcome | None:
        """Return the outcome that the batch knows already for an action of ``run``; None if it must be performed."""
        if type(action) in (Observe, Emit):
            return Outcome(at=run.at)
        value = self._find_known_value(run.row, action)
        if value is None:
            return None
        return Outcome(at=run.at, error=value) if isinstance(value, ApiError) else Outcome(at=run.at, value=value)

    def _find_known_value(self, row: int, action: Any) -> Any:
        """Return the value or error that the batch has for an action; None if there is none."""
        if type(action) is GetScale:
            return None if action.fresh else self.inputs.scales[row]
        if type(action) is List and self._has_selector(row, action.selector):
            return list(self.inputs.pods_of(row, self.pods))
        if type(action) is GetMetric:
            if action.api == "resource" and self._has_selector(row, action.selector):
                return self.inputs.answer(row, action, self.responses)
            return self.responses.by_request.get(action)
        return None

    def _has_selector(self, row: int, selector: str) -> bool:
        """Check whether a row has a selection with this selector."""
        return bool(self.prepared.group[row] >= 0) and self.prepared.selector(row) == selector

    # -- actions -----------------------------------------------------------------------------------------------------

    def _run_separately(self, run: ReconcileRun, now: Moment) -> Steps[None]:
        """Run one HPA's step machine as a task of its own: a decision over many pods takes a tenth of a second."""
        yield from Progress(now).together([partial(self._run_steps, run)])

    def may_begin(self, now: Moment) -> bool:
        """Check whether there is time to write another HPA at ``now``. The first call starts the time limit."""
        if self.within is None:
            return True
        if self.until is None:  # set at the first write, so that every batch writes some HPAs
            self.until = now + self.within
        return now <= self.until

    def _run_steps(self, run: ReconcileRun, now: Moment) -> Steps[None]:
        """Run one HPA's steps, if there is time."""
        if not self.may_begin(now):
            run.steps.close()
            return
        answer = self._find_known_outcome
        if not run.begun:
            answer = self._find_outcome_before_write
            run.advance(None, answer)
        yield from self._act_steps(run, answer, Progress(now), now)

    def _act_steps(self, run: ReconcileRun, answer: FindOutcome, progress: Progress, begun: Moment) -> Steps[None]:
        """Perform the remaining actions, events and observations of an HPA that began at ``begun``.

        ``answer`` returns outcomes that need no action. The HPA's clock excludes waits for other HPAs.
        """
        late = begun - self.at
        while run.action is not None:
            if run.events:
                yield from self._emit_events(progress, run)
            outcome = yield from progress.act(run.action)
            run.advance(_move_outcome(outcome, late), answer)
        if run.events:
            yield from self._emit_events(progress, run)
        yield from progress.observe(*run.observations)  # once, after the HPA's writes are done
        self.note_end(run.row, begun, progress.now)

    def note_end(self, row: int, begun: Moment, ended: Moment) -> None:
        """Record when the actions of an HPA ended, and whether they were slow."""
        self.ends[self.keys[row]] = ended
        if self.slow_after is not None and ended - begun >= self.slow_after:
            self.slow.append(self.keys[row])

    def report_refusal_steps(self, update: _MetricsUpdate, outcome: Outcome) -> Steps[None]:
        """Continue an HPA whose write of new metric values was refused, as :meth:`_run_steps` does."""
        known = self._get_precomputed_decision(update.row)
        assert known is not None  # its decision is that of the last batch
        precomputed = self._build_precomputed(update.row, known)
        run = ReconcileRun(update.row, precomputed.write(), self.at, [], precomputed.observations, by_columns=True)
        self.refused.append(run)
        answer = self._find_outcome_before_write
        run.advance(None, answer)  # to the write that was refused
        run.advance(_move_outcome(outcome, update.begun - self.at), answer)
        yield from self._act_steps(run, answer, Progress(outcome.at), update.begun)

    def _list_observations(self, updates: Mapping[int, _MetricsUpdate]) -> list[Observation]:
        """Return the observations of reconciles (``updates``, by row) whose new metric values were written."""
        result: list[Observation] = []
        for update in updates.values():
            if update.ended is not None:
                ended = update.ended - (update.begun - self.at)
                result += update.cached.observations[: -len(UNCHANGED_OBSERVATIONS)]
                result += build_reconcile_observations("none", "none", self.at, ended)
        return result

    def _find_outcome_before_write(self, run: ReconcileRun, action: Any) -> Outcome | None:
        """Return :meth:`_find_known_outcome`, but None for a watched scale, which a write requests again."""
        if type(action) is GetScale and self.keys[run.row] in self.watched:
            return None
        return self._find_known_outcome(run, action)

    def _emit_events(self, progress: Progress, run: ReconcileRun) -> Steps[None]:
        """Emit the collected events of an HPA, and clear them."""
        events, run.events = run.events, []
        yield from progress.emit(*events)

    def _report_finished_runs(self, runs: Sequence[ReconcileRun]) -> Steps[None]:
        """Emit the events and observations of all HPAs whose reconcile performed no action.

        ``runs``: those of them that ran; the others are ``repeated_rows``.
        """
        yield from self.progress.emit(*[event for run in runs for event in run.events])
        known = self.repeated_rows
        if len(known) > known.count(None) or any(run.observations for run in runs):
            yield from self.progress.act(Observe(Deferred(partial(_list_finished_observations, known, runs))))

    # -- state -------------------------------------------------------------------------------------------------------

    def _conclude_updates(self) -> tuple[dict[str, HorizontalPodAutoscalerStatus], dict[int, HPAState], set[int]]:
        """Cache the decisions of ``updates`` whose new metric values were written.

        Returns their statuses by key, their states by row if these changed, and the rows of updates without a write.
        """
        written, changed, unfinished = {}, {}, set()
        for row, update in self.updates.items():
            if update.ended is None:
                unfinished.add(row)
                continue
            written[self.keys[row]], self.rows[row] = update.status, update.to_cached()
            if (version := update.find_written_version()) is not None:
                changed[row] = msgspec.structs.replace(self.inputs.plain_states[row], written=version)
        return written, changed, unfinished

    def _build_batch_result(self, runs: Sequence[ReconcileRun]) -> BatchResult:
        """Build the result of the batch from the HPAs that ran; those without a run are unchanged, and count as done.

        ``rows`` of HPAs that are unfinished or failed become None.
        """
        histories, plain_states = self.decisions.memory.histories, self.inputs.plain_states
        others: dict[int, HPAState] = {}
        unfinished, late, removed = [], [], []
        problems: dict[str, Exception] = {}
        records = {}
        rows = self.rows
        written, changed, unfinished_updates = self._conclude_updates()
        run_of = {run.row: run for run in runs}
        left_out = self.deleted | self.unanswered | self.late
        for row in sorted(left_out.union(run_of, unfinished_updates)):  # others: unchanged, or only new metric values
            key = self.keys[row]
            if row in self.deleted:
                removed.append(key)
                continue
            if row in self.unanswered:
                unfinished.append(key)
                rows[row] = None
                continue
            if row in self.late:
                late.append(key)
                continue
            run = run_of.get(row)
            record = None if run is None else run.record
            if run is None or (record is None and run.problem is None):
                unfinished.append(key)
                rows[row] = None
                continue
            if record is None:
                assert run.problem is not None
                problems[key] = run.problem
                others[row] = self.states.get(key) or HPAState()
                rows[row] = None
            elif run.by_columns:
                if record.state.written is not None:
                    changed[row] = msgspec.structs.replace(plain_states[row], written=record.state.written)
                known = rows[row]
                if record.status_written:
                    written[key] = record.status
                    rows[row] = None if known is None else msgspec.structs.replace(known, written=record.status)
                elif record.error is not None:  # the write was refused
                    records[key] = record
                    rows[row] = None
            else:
                records[key] = record
                others[row] = record.state
        if others:
            other_rows = np.array(list(others), np.int64)
            histories = histories.with_rows(other_rows, StateColumns.from_states(list(others.values())))
            changed.update((row, state.without_histories()) for row, state in others.items())
        if changed:  # otherwise keep the same list, which the next batch recognizes
            plain_states = [changed.get(row, state) for row, state in enumerate(plain_states)]
        keys = self.keys
        if unfinished or late or removed:
            not_done = {*unfinished, *late, *removed}
            done = [row for row, key in enumerate(keys) if key not in not_done]
            histories, plain_states = histories.take(np.array(done, np.int64)), [plain_states[row] for row in done]
            keys = [keys[row] for row in done]
        return BatchResult(
            keys=keys,
            histories=histories,
            plain_states=plain_states,
            unfinished=unfinished,
            problems=problems,
            records=records,
            prepared=self.prepared,
            inputs=self.inputs,
            decisions=self.decisions,
            at=self.at,
            written=written,
            rows=rows,
            ends=self.ends,
            late=late,
            deleted=removed,
            slow=self.slow,
        )


@dataclass(slots=True, eq=False)
class _MetricsUpdate(SingleAction):
    """Writes an HPA's status with new metric values. The rest of it is the same as in the last batch (``cached``).

    ``begun``: when the write began; ``ended``: when the status was written, with resource ``version``.
    """

    batch: _BatchReconcile
    row: int
    cached: CachedDecision
    status: HorizontalPodAutoscalerStatus
    begun: Moment = ZERO_TIME
    ended: Moment | None = None
    version: str | None = None
    waits_to_end: ClassVar[bool] = True  # as machines of other HPAs, which end with observations

    def build(self, now: Moment) -> WriteStatus | None:
        """Return the action that writes the status, and record that it begins; None if there is no time for it."""
        if not self.batch.may_begin(now):
            return None
        self.begun = now
        return WriteStatus(msgspec.structs.replace(self.batch.hpas[self.row], status=self.status))

    def finish(self, outcome: Outcome) -> Steps[None] | None:
        """Record that the status was written, and return None.

        If the write failed, return the steps that finish the reconcile with the error.
        """
        if outcome.error is not None:
            return self.batch.report_refusal_steps(self, outcome)
        self.ended, self.version = outcome.at, outcome.value
        self.batch.note_end(self.row, self.begun, outcome.at)
        return None

    def to_cached(self) -> CachedDecision:
        """Return the decision to keep for the next batch, with the status that was written."""
        batch, cached = self.batch, self.cached
        return CachedDecision(
            hpa=batch.hpas[self.row],
            target=cached.target,
            replicas=batch.get_replicas(self.row),
            written=self.status,
            observations=cached.observations,
            proposal=cached.proposal,
            reason=cached.reason,
        )

    def find_written_version(self) -> WrittenVersion | None:
        """Return the version to store in the HPA's state: the one that the write returned.

        If it returned none: the stored version if that belongs to a deleted HPA of the same name, else None.
        """
        uid = self.batch.hpas[self.row].metadata.uid
        if self.version is not None:
            return WrittenVersion(uid, self.version)
        earlier = self.batch.prepared.plain_states[self.row].written
        return None if earlier is None or earlier.uid == uid else earlier


def _move_outcome(outcome: Outcome, late: int) -> Outcome:
    """Return a copy of the outcome whose time is ``late`` nanoseconds earlier."""
    return msgspec.structs.replace(outcome, at=outcome.at - late) if late else outcome


def _list_finished_observations(
    repeated_rows: Sequence[CachedDecision | None], runs: Sequence[ReconcileRun]
) -> list[Observation]:
    """Return the observations of all HPAs whose reconcile performed no action, in the order of their rows.

    ``repeated_rows``: cached decisions of the HPAs whose result is that of the last batch. ``runs``: finished runs of
    other rows.
    """
    of_run = {run.row: run.observations for run in runs}
    each = (of_run.get(row, ()) if known is None else known.observations for row, known in enumerate(repeated_rows))
    return [observation for observations in each for observation in observations]


def _mark_registered(state: HPAState) -> HPAState:
    """Return the state with ``registered`` true."""
    return state if state.registered else msgspec.structs.replace(state, registered=True)


def _reject_request(query: GetMetric) -> ApiError:
    """Raise AssertionError: all metrics were requested before."""
    raise AssertionError(f"requested already: {query}")


def is_stable_batch(result: BatchResult) -> bool:
    """Check whether the age of samples cannot change the decisions of a batch any more.

    True if all HPAs were decided over columns, no replicas changed, and all samples (if any) were taken at least a
    window after the last pod transition: later samples then count in the same way (``groupPods``). False if there are
    samples but no pods.
    """
    if result.records or result.problems or result.unfinished or result.late or result.decisions.rescaled.any():
        return False
    samples, pods = result.inputs.samples, result.inputs.pods
    taken = samples.time if samples.present.all() else samples.time[samples.present != 0]
    if not len(taken) or not len(pods):
        return not len(taken)
    return int(taken.min()) >= int(pods.transition.max()) + int(samples.window.max())  # the sum may exceed int64


def repeat_batch(last: BatchResult, now: Moment, options: HPAOptions) -> BatchResult | None:
    """Return the result of a batch at ``now`` with the inputs of the last one, or None if its decisions would differ.

    Pods, scales and metric values are those of the last batch.
    """
    decisions = repeat_decisions(last.decisions, last.inputs, since=last.at, now=now, options=options)
    if decisions is None:
        return None
    return replace(last, histories=decisions.memory.histories, decisions=decisions, at=now, written={}, ends={})
