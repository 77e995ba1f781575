"""Decide many HPAs at once over columns, one row per HPA, explained on request by the HPA's step machine.

Decisions are codes. Texts and objects of one HPA are created on request, by running its step machine. A report of many
HPAs takes them from the columns (:class:`ReconcileSummaries`) where metrics of pods decided. Upstream decides one by
one: ``pkg/controller/podautoscaler/horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kscale._native import _hpa
from kscale.effects import (
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    Moment,
    PutScale,
    moment,
    run_dry,
)
from kscale.errors import InputError
from kscale.hpa.batch.columns import (
    CONDITION_REASONS,
    CONDITION_TYPES,
    CalculatorResults,
    KernelState,
    LazyStates,
    calculate_rows,
)
from kscale.hpa.batch.hpas import ScaleSource, SpecMetric
from kscale.hpa.batch.inputs import BatchColumns, BatchObjects, PreparedBatch, prepare_batch
from kscale.hpa.batch.pods import PodsLike, to_batch_pods
from kscale.hpa.controller.behavior import NormalizedReplicas
from kscale.hpa.controller.decision import EventText, ReconcileSummary, build_decision, explain_decision
from kscale.hpa.controller.metric_proposals import get_metric_name
from kscale.hpa.controller.reconcile import (
    RESCALE_EVENT,
    ReconcileResult,
    ReconcileSteps,
    explain_change,
    format_rescale,
    reconcile,
)
from kscale.hpa.controller.replica_calculator import (
    CALCULATION_MODES,
    CALCULATION_PATHS,
    POD_GROUPS,
    CalculatedReplicas,
    group_pods,
)
from kscale.hpa.controller.scale_target import SelectorStore
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.controller.status import CONDITION_MESSAGES, put_condition
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscalerCondition
from kscale.objects.argument_types import typed, typed_methods
from kscale.objects.kinds import BUILT_IN_MAPPER, RESTMapper
from kscale.records import Result, Rows
from kscale.snapshot.caches import collector_paused

__all__ = [
    "DECISION_BRANCHES",
    "RESCALE_REASONS",
    "DecisionInputs",
    "Decisions",
    "ReconcileSummaries",
    "decide",
    "decide_columns",
    "repeat_decisions",
]


DECISION_BRANCHES: Final = ("no_scale", "disabled", "above_max", "below_min", "metrics", "failed")
RESCALE_REASONS: Final = ("none", "above_max", "below_min", "metric_above", "all_below")

_NO_SCALE_BRANCH, _METRICS_BRANCH, _FAILED_BRANCH = 0, 4, 5
FAILED_RESCALE_EVENT: Final = 32
_STATUS_ABSENT, _STATUS_TRUE = 0, 1
_SCALING_LIMITED_COLUMN: Final = CONDITION_TYPES.index("ScalingLimited")
_FIRST_LIMIT_REASON: Final = CONDITION_REASONS.index("DesiredWithinRange")

_KERNEL_RESULT_FIELDS: Final = (
    "branch", "desired", "proposal", "stabilized", "best", "invalid", "first_invalid", "rescaled", "reason", "events",
    "error", "stabilized_by",
)  # fmt: skip
"""Result columns of the kernel, in its order."""

MaskedInt32 = np.ma.MaskedArray[Any, np.dtype[np.int32]]
"""int32, masked (with -1 as data) where there is no value."""


class Sizes(NamedTuple):
    """Numbers of replicas by row: ``values`` int32[n], and ``missing`` bool[n] where there is none."""

    values: NDArray[np.int32]
    missing: NDArray[np.bool_]

    def mask(self) -> MaskedInt32:
        """Return the values as a masked array. Building it takes longer than computing the values."""
        values = np.where(self.missing, np.int32(-1), self.values)
        out: MaskedInt32 = np.ma.MaskedArray(values, self.missing, fill_value=-1)
        return out


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """Inputs of decisions, for explanations and for the next batch."""

    prepared: PreparedBatch
    inputs: BatchColumns
    state: ControllerState
    now: Moment
    threads: int

    @property
    def objects(self) -> BatchObjects:
        """Return the HPAs, scales, pods and metrics."""
        return self.prepared.objects

    @property
    def options(self) -> HPAOptions:
        """Return the options with which the HPAs were decided."""
        return self.prepared.options


@dataclass(frozen=True, slots=True, repr=False, eq=False)
@typed_methods()
class Decisions(Result):
    """Decisions with one row per HPA, in input order. ``keys``: ``namespace/name``.

    - ``branch`` uint8 (:data:`DECISION_BRANCHES`);
    - ``sizes``: replicas by name. The properties ``current``, ``desired``, ``proposal`` and ``stabilized`` are masked
      arrays of them;
    - ``best``, ``first_invalid`` int32: rows among the HPA's metrics or -1; ``invalid``: the number that failed;
    - ``rescaled`` uint8: the scale is written; ``reason`` uint8 (:data:`RESCALE_REASONS`);
    - ``events`` uint8: bits 1 FailedGetScale, 2 selector, 4 metric failed, 8 FailedComputeMetricsReplicas,
      16 SuccessfulRescale, 32 FailedRescale; ``error`` uint8: 0 none, 1 internal, 2 spec;
    - ``stabilized_by`` uint8: what changed ``proposal`` to ``stabilized``, an index into
      ``status.STABILIZED_CONDITIONS``;
    - ``metrics``: the calculator's result for every metric; ``problems``: what was malformed in an HPA, by its row;
    - ``memory``: histories and conditions after these decisions, as columns;
    - ``refusals``: by key, the error of a scale write that failed for good (:meth:`with_refused_scales`), or empty;
    - ``origin``: inputs of the decisions. None if they were made from columns alone, or were unpickled;
    - ``carried``: the :attr:`state` of decisions that were made from objects and then unpickled; else None.

    Pass ``state`` to the next call. ``decisions[i]`` explains one HPA in full. Pickling drops ``origin``, which
    explanations need.
    """

    keys: Sequence[str]
    branch: NDArray[np.uint8]
    sizes: Mapping[str, Sizes]
    best: NDArray[np.int32]
    invalid: NDArray[np.int32]
    first_invalid: NDArray[np.int32]
    rescaled: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    events: NDArray[np.uint8]
    error: NDArray[np.uint8]
    stabilized_by: NDArray[np.uint8]
    metrics: CalculatorResults
    memory: KernelState
    problems: Mapping[int, Exception] = field(default_factory=dict)
    refusals: Mapping[str, ApiError] = field(default_factory=dict)
    origin: DecisionInputs | None = None
    carried: ControllerState | None = None

    def is_result_of(self, columns: tuple[NDArray[Any], ...]) -> bool:
        """Check whether the kernel's arrays ``columns``, in its order, equal those of these decisions.

        Replicas are compared only in rows that have them, all other columns bitwise.
        """
        results = dict(zip(_KERNEL_RESULT_FIELDS, columns, strict=True))
        for name, theirs in results.items():
            sizes = self.sizes.get(name)
            if sizes is None:
                is_equal = _is_bitwise_equal(getattr(self, name), theirs)
            else:  # where there is none follows from the rest
                is_equal = not np.any((sizes.values != theirs) & ~sizes.missing)
            if not is_equal:
                return False
        return True

    @property
    def current(self) -> MaskedInt32:
        """Return the replicas of the targets' scales, masked where a scale could not be read."""
        return self.sizes["current"].mask()

    @property
    def desired(self) -> MaskedInt32:
        """Return the decided replicas, masked if nothing could be decided or the write was refused."""
        return self.sizes["desired"].mask()

    @property
    def proposal(self) -> MaskedInt32:
        """Return the largest proposals of the metrics, masked where metrics did not decide."""
        return self.sizes["proposal"].mask()

    @property
    def stabilized(self) -> MaskedInt32:
        """Return the proposals after stabilization, masked where metrics did not decide."""
        return self.sizes["stabilized"].mask()

    def __len__(self) -> int:
        return len(self.branch)

    def __repr__(self) -> str:
        up = int(((self.rescaled != 0) & (self.desired > self.current).filled(False)).sum())
        texts = [f"{up:,} up", f"{int(self.rescaled.sum()) - up:,} down"]
        if failed := int(np.ma.getmaskarray(self.desired).sum()):
            texts.append(f"{failed:,} undecided")
        return f"<Decisions of {len(self):,} HPAs: {', '.join(texts)}>"

    def table_rows(self) -> Rows:
        """Return one row per HPA: its name, sizes (None: undecided), what decided, and the reason of the rescale."""
        rows = zip(
            self.keys or [str(row) for row in range(len(self))],
            self.current.tolist(),
            self.desired.tolist(),
            (DECISION_BRANCHES[value] for value in self.branch.tolist()),
            (RESCALE_REASONS[value] for value in self.reason.tolist()),
            strict=True,
        )
        return Rows({"hpa": str, "current": int, "desired": int, "decidedBy": str, "reason": str}, list(rows))

    def explain(self, hpa: str) -> str:
        """Return the replicas that an HPA wants and why, in one line.

        ``hpa``: ``namespace/name``. Decisions made from columns alone, or unpickled, have no texts on metrics. Raises
        InputError if the HPA is not part of these decisions.
        """
        if hpa not in self.keys:
            raise InputError(f"no HPA {hpa!r} in these decisions")
        row = self.keys.index(hpa)
        if row in self.problems:
            return f"not decided: {self.problems[row]}"
        if self.origin is None:
            _, current, desired, branch, reason = self.table_rows().rows[row]
            if desired is None:
                return f"stays at {'?' if current is None else current}, not decided: {branch}"
            size = f"{current} -> {desired}" if self.rescaled[row] else f"stays at {current}"
            return f"{size}: decided by {branch}, reason {reason}"
        decision = build_decision(
            self.origin.objects.hpas[row],
            ReconcileSummary.of_run(self[row]),
            int(self.best[row]),
            scale=self.origin.inputs.scales[row],
            options=self.origin.options,
        )
        return explain_decision(decision)

    def __reduce__(self) -> tuple[object, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        state = self.state if self.origin is not None else self.carried
        return _unpickle, ({**values, "origin": None, "carried": state, "problems": dict(self.problems)},)

    @property
    def state(self) -> ControllerState:
        """Return the state of every HPA after the decisions, and of the previous state's HPAs outside the batch.

        Raises TypeError for decisions that were made from columns alone.
        """
        if self.origin is None:
            if self.carried is None:
                raise TypeError("decisions made from columns alone have no states: pass their memory on")
            return self.carried
        before, histories, plain_states = self.origin.state.hpas, self.memory.histories, self.origin.inputs.plain_states
        if isinstance(before, LazyStates) and before.keys_in_order is self.keys:
            return ControllerState(hpas=LazyStates(self.keys, histories, plain_states, before.others, before.rows))
        rows = {key: row for row, key in enumerate(self.keys)}
        others = {key: before[key] for key in before if key not in rows}
        return ControllerState(hpas=LazyStates(self.keys, histories, plain_states, others, rows))

    def machine(self, row: int) -> ReconcileSteps:
        """Build the step machine that reconciles one HPA, for a driver whose writes may not succeed as assumed.

        Raises TypeError if the decisions were made from columns alone or unpickled.
        """
        origin, row = self._require_inputs(), range(len(self))[row]
        return reconcile(
            origin.objects.hpas[row],
            origin.state.get(self.keys[row]),
            now=origin.now,
            options=origin.options,
            selectors=origin.inputs.store(),
            mapper=origin.objects.mapper,
        )

    def __getitem__(self, row: int) -> DryRun[ReconcileResult]:
        """Return the full result of one HPA with its texts, for decisions made from objects.

        Raises the error in :attr:`problems` if the HPA has one.
        """
        origin, row = self._require_inputs(), range(len(self))[row]
        if row in self.problems:
            raise self.problems[row]
        refusal = self.refusals.get(self.keys[row])
        return run_dry(
            self.machine(row),
            now=origin.now,
            respond=lambda action: _respond(action, row, origin),
            refuse=lambda action: refusal if isinstance(action, PutScale) else None,
        )

    def summarize(self, rows: Sequence[int]) -> list[ReconcileSummary]:
        """Return the summary of the reconcile of each HPA in ``rows``.

        A summary is built from the columns if they contain all of it, else from ``self[row]``. Raises the row's error
        in :attr:`problems`, if it has one, and TypeError if the decisions were made from columns alone or unpickled.
        """
        summaries = ReconcileSummaries(self, self._require_inputs())
        return [summaries.get(row) or ReconcileSummary.of_run(self[row]) for row in rows]

    def decided_by_metrics(self) -> NDArray[np.bool_]:
        """Return a mask of the HPAs that were decided by metrics and whose normalized proposals are in the columns.

        HPAs with a failed metric are excluded, even if other metrics decided. So are HPAs that leave zero replicas:
        their columns hold the final replicas, not the normalized proposal.
        """
        mask: NDArray[np.bool_] = (self.branch == _METRICS_BRANCH) & (self.invalid == 0)
        mask &= self.sizes["current"].values != 0
        return mask

    def get_normalized(self) -> list[NormalizedReplicas]:
        """Return the normalized proposal of each HPA, without recommendations.

        Proposals mean something only for rows of :meth:`decided_by_metrics` whose scale is not refused.
        """
        rows = zip(*(column.tolist() for column in self.list_normalized_columns()), strict=True)
        return [
            NormalizedReplicas(stabilized, desired, stabilized_by, limit, limited, ())
            for stabilized, desired, stabilized_by, limit, limited in rows
        ]

    def list_normalized_columns(self) -> tuple[NDArray[Any], ...]:
        """Return the columns of :meth:`get_normalized`: the fields of a normalized proposal, in their order."""
        conditions = self.memory.conditions
        return (
            self.sizes["stabilized"].values,
            self.sizes["desired"].values,
            self.stabilized_by,
            conditions.reason[:, _SCALING_LIMITED_COLUMN] - _FIRST_LIMIT_REASON,
            conditions.status[:, _SCALING_LIMITED_COLUMN] == _STATUS_TRUE,
        )

    def with_refused_scales(self, errors: Mapping[str, ApiError]) -> Decisions:
        """Decide again with scale writes that failed for good (``errors``, by the HPA's ``namespace/name``).

        No event is stored for a failed write; the conditions report it. Errors of HPAs that write nothing have no
        effect. Raises TypeError if the decisions were made from columns alone or unpickled.
        """
        origin = self._require_inputs()
        all_errors = {**self.refusals, **errors}
        flags = np.fromiter((key in all_errors for key in self.keys), np.uint8, len(self.keys))
        columns = replace(origin.inputs, targets=replace(origin.inputs.targets, refused=flags))
        decisions = _decide_columns(columns, origin.prepared.memory, origin.now, origin.options, origin.threads)
        return replace(decisions, keys=self.keys, refusals=all_errors, origin=origin)

    def _require_inputs(self) -> DecisionInputs:
        """Return the inputs of the decisions. Raises TypeError if they were made from columns alone or unpickled."""
        if self.origin is None:
            raise TypeError("only decisions made from objects, in this process, have texts")
        return self.origin


class ReconcileSummaries:
    """Summaries of reconciles, row by row, from columns converted to lists once (reading single rows is slow)."""

    def __init__(self, decisions: Decisions, origin: DecisionInputs) -> None:
        self._origin, self._inputs, results = origin, origin.inputs, decisions.metrics
        self._keys, self._specs = origin.objects.pods.keys, origin.prepared.hpas.specs
        self._metric_list, self._group = self._specs.metrics.tolist(), self._inputs.group.tolist()
        self._begin = self._inputs.targets.metrics_begin.tolist()
        self._ends = [] if self._inputs.selected is None else self._inputs.selected.ends.tolist()
        self._calculated = list(
            zip(
                results.replicas.tolist(),
                results.utilization.tolist(),
                results.usage.tolist(),
                results.path.tolist(),
                results.ratios.tolist(),
                np.logical_not(results.groups[:, 1:].any(axis=1)).tolist(),
                strict=True,
            )
        )
        in_columns = decisions.decided_by_metrics() & (decisions.events & FAILED_RESCALE_EVENT == 0)
        in_columns[list(decisions.problems)] = False
        conditions = decisions.memory.conditions
        self._decided = list(
            zip(
                in_columns.tolist(),
                decisions.sizes["current"].values.tolist(),
                decisions.sizes["proposal"].values.tolist(),
                decisions.best.tolist(),
                (decisions.rescaled != 0).tolist(),
                decisions.get_normalized(),
                map(tuple, conditions.status.tolist()),
                map(tuple, conditions.reason.tolist()),
                strict=True,
            )
        )
        self._changes: dict[tuple[object, ...], list[tuple[str, int, str, str]]] = {}

    def get(self, row: int) -> ReconcileSummary | None:
        """Return the summary of an HPA; None if the columns lack a part of it.

        They have all of it if metrics decided and none failed (:meth:`Decisions.decided_by_metrics`), all metrics were
        read from lists of pod usage, and no write of the scale was refused.
        """
        in_columns, current, proposal, best, rescales, normalized, statuses, reasons = self._decided[row]
        metrics = self._specs.metric_lists[self._metric_list[row]]
        group = self._group[row]
        if not in_columns or self._inputs.selected is None or group < 0 or not all(map(self._is_joined, metrics)):
            return None
        name, desired = get_metric_name(metrics[best].source), normalized.desired
        why, names, begin = explain_change(current, proposal, name), self._list_pod_names(row), self._begin[row]
        changes = self._get_condition_changes(statuses, reasons, name, desired, rescales)
        return ReconcileSummary(
            current_replicas=current,
            desired_replicas=desired,
            rescales=rescales,
            reason=why,
            proposal=proposal,
            normalized=normalized,
            metrics=[self._build_result(begin + i, metric, names) for i, metric in enumerate(metrics)],
            conditions=self._build_conditions(row, changes),
            events=[EventText("Normal", RESCALE_EVENT, format_rescale(desired, why))] if rescales else (),
        )

    def _is_joined(self, metric: SpecMetric) -> bool:
        """Check whether a metric was read from a list of the usage of all pods, not by a request per HPA."""
        key = metric.usage_key
        return key is not None and (key[:1] if key[0] == "resource" else key) in self._inputs.joined

    def _get_condition_changes(
        self, statuses: tuple[int, ...], reasons: tuple[int, ...], metric: str, desired: int, rescales: bool
    ) -> list[tuple[str, int, str, str]]:
        """Return (type, status code, reason, message) of the conditions that a decision by metrics sets or removes.

        ``statuses``, ``reasons``: codes of all types after the decision; ``metric``: name of the decisive metric;
        ``rescales``: the decision changes the replicas to ``desired``. The list is cached, so do not change it.
        """
        key = statuses, reasons, metric, rescales and desired
        changes = self._changes.get(key)
        if changes is None:
            changes = self._changes[key] = []
            for type_, status, code in zip(CONDITION_TYPES, statuses, reasons, strict=True):
                if type_ == "ScaledToZero" and (self._origin.options.legacy or not rescales):
                    continue  # this condition is unchanged
                reason = CONDITION_REASONS[code]
                message = CONDITION_MESSAGES.get(reason, "").format(desired=desired, metric=metric)
                changes.append((type_, status, reason, message))
        return changes

    def _build_conditions(
        self, row: int, changes: Sequence[tuple[str, int, str, str]]
    ) -> list[HorizontalPodAutoscalerCondition]:
        """Return the conditions of an HPA's status after the ``changes`` of :meth:`_get_condition_changes`."""
        conditions = list(self._origin.objects.hpas[row].status.conditions or ())
        for type_, status, reason, message in changes:
            if status == _STATUS_ABSENT:
                conditions = [each for each in conditions if each.type != type_]
            else:
                put_condition(conditions, type_, status == _STATUS_TRUE, reason, message, self._origin.now)
        return conditions

    def _list_pod_names(self, row: int) -> list[str]:
        """Return the names (without namespace) of the pods that an HPA selects."""
        assert self._inputs.selected is not None
        group, keys = self._group[row], self._keys
        rows = self._inputs.selected.rows[self._ends[group] : self._ends[group + 1]]
        begin = len(self._origin.objects.hpas[row].metadata.namespace) + 1  # of a name in its key
        return [keys[at][begin:] for at in rows.tolist()]

    def _build_result(self, at: int, metric: SpecMetric, names: Sequence[str]) -> CalculatedReplicas:
        """Build the calculator's result in metric row ``at``. ``metric``: its spec; ``names``: of the selected pods."""
        replicas, utilization, usage, path, (ratio, second_ratio), all_ready = self._calculated[at]
        return CalculatedReplicas(
            replicas=replicas,
            utilization=utilization if CALCULATION_MODES[metric.mode] == "utilization" else None,
            usage=usage,
            path=_decode_path(path),
            ratio=ratio,
            second_ratio=second_ratio,
            groups=_NO_PODS | {POD_GROUPS[0]: names} if all_ready else self._group_pods(at, metric, names),
        )

    def _group_pods(self, at: int, metric: SpecMetric, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the names of the selected pods (``names``) by :data:`POD_GROUPS` for metric row ``at``."""
        rows, options = self._inputs.rows, self._origin.options
        pods_at, samples_at = int(rows.pods_begin[at]), int(rows.samples[at])
        pods = self._inputs.pods.part(slice(pods_at, pods_at + len(names)))
        samples = self._inputs.samples.part(slice(samples_at, samples_at + len(names)))
        codes = group_pods(pods, samples, metric.resource, options=options, now=self._origin.now)
        return {
            name: [names[i] for i in np.flatnonzero(codes == code).tolist()] for code, name in enumerate(POD_GROUPS)
        }


_NO_PODS: Final[dict[str, Sequence[str]]] = dict.fromkeys(POD_GROUPS, ())


@cache
def _decode_path(bits: int) -> tuple[str, ...]:
    """Return the names of the calculator's branches whose bits are set."""
    return tuple([name for bit, name in CALCULATION_PATHS if bits & bit])


@typed
def decide_columns(
    inputs: BatchColumns,
    memory: KernelState,
    *,
    now: datetime | Moment,
    options: HPAOptions | None = None,
    threads: int = 1,
) -> Decisions:
    """Decide HPAs from columns. The inputs are not changed.

    Parameters
    ----------
    inputs : BatchColumns
        Columns of the inputs.
    memory : KernelState
        State of earlier batches.
    now : datetime or Moment
        Time of the decisions.
    options : HPAOptions, optional
        Options of the controller.
    threads : int
        Number of threads, without effect on the result.

    Returns
    -------
    Decisions
        One row per HPA.
    """
    return _decide_columns(inputs, memory, moment(now), options or DEFAULT_OPTIONS, threads)


def _decide_columns(
    inputs: BatchColumns, memory: KernelState, now: Moment, options: HPAOptions, threads: int
) -> Decisions:
    """Run both kernels over the columns. See :func:`decide_columns`."""
    results = calculate_rows(
        inputs.rows,
        inputs.pods,
        inputs.samples,
        inputs.requests,
        inputs.values,
        options=options,
        now=now,
        threads=threads,
    )
    return _build_decisions(*_run_decision_kernel(inputs, results, memory, now, options, threads))


def _build_decisions(
    columns: tuple[NDArray[Any], ...], inputs: BatchColumns, metrics: CalculatorResults, memory: KernelState
) -> Decisions:
    """Build decisions from the kernel's result.

    ``columns``: the kernel's arrays in its order, with one entry per HPA. ``inputs``: columns of the inputs.
    ``memory``: histories of all HPAs.
    """
    results: dict[str, Any] = dict(zip(_KERNEL_RESULT_FIELDS, columns, strict=True))
    branch = results["branch"]
    unknown = branch == _NO_SCALE_BRANCH
    undecided = unknown | (branch == _FAILED_BRANCH) | (results["events"] & FAILED_RESCALE_EVENT != 0)
    unread = unknown.copy()
    for row in inputs.problems:
        unread[row] = isinstance(inputs.scales[row], ApiError)
    not_by_metrics = branch != _METRICS_BRANCH
    sizes = {
        "current": Sizes(inputs.targets.current, unread),
        "desired": Sizes(results.pop("desired"), undecided),
        "proposal": Sizes(results.pop("proposal"), not_by_metrics),
        "stabilized": Sizes(results.pop("stabilized"), not_by_metrics),
    }
    return Decisions(keys=(), **results, sizes=sizes, metrics=metrics, memory=memory, problems=inputs.problems)


def repeat_decisions(
    last: Decisions, inputs: BatchColumns, *, since: Moment, now: Moment, options: HPAOptions
) -> Decisions | None:
    """Try to repeat the ``last`` decisions, made at ``since``, at ``now``: only the time differs.

    Returns the ``last`` decisions with the state after ``now`` if all decisions and reasons are unchanged. Returns None
    if one of them differs; the caller then decides in full.
    """
    results = last.metrics
    start, initialization = inputs.pods.start, options.cpu_initialization_ns
    some = len(start) > 0 and int(start.max()) + initialization > since  # else time changes no result of the calculator
    initialized = start + initialization if some else start
    if options.legacy or (some and bool(((initialized > since) & (initialized <= now)).any())):
        rows = inputs.rows, inputs.pods, inputs.samples, inputs.requests, inputs.values
        results = calculate_rows(*rows, options=options, now=now)
        if not all(
            _is_bitwise_equal(getattr(last.metrics, field.name), getattr(results, field.name))
            for field in fields(results)
        ):
            return None
    columns, _, _, memory = _run_decision_kernel(inputs, results, last.memory, now, options, 1)
    before, after = last.memory.conditions, memory.conditions
    same = (
        _is_bitwise_equal(before.status, after.status)
        and _is_bitwise_equal(before.reason, after.reason)
        and last.is_result_of(columns)
    )
    return replace(last, memory=memory) if same else None


def _is_bitwise_equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Check whether two arrays have the same bytes, so that 0.0 differs from -0.0 and NaN equals NaN."""
    return one.tobytes() == other.tobytes()


def _run_decision_kernel(
    inputs: BatchColumns,
    results: CalculatorResults,
    memory: KernelState,
    now: Moment,
    options: HPAOptions,
    threads: int,
) -> tuple[tuple[NDArray[Any], ...], BatchColumns, CalculatorResults, KernelState]:
    """Run the decision kernel and return the arguments of :func:`_build_decisions`.

    ``memory`` is not changed. HPAs with problems stay undecided, and keep their conditions.
    """
    error = (results.error != 0).astype(np.uint8)
    np.copyto(error, 2, where=inputs.rows.invalid != 0)
    before, histories, conditions = memory.histories, memory.histories.with_room(), memory.conditions.copy()
    columns: tuple[NDArray[Any], ...] = _hpa.decide(
        replace(inputs.targets, fresh=before.fresh),
        results.replicas,
        error,
        inputs.up,
        inputs.down,
        histories.past,
        histories.added,
        histories.removed,
        conditions.status,
        conditions.reason,
        conditions.time,
        now,
        options.downscale_stabilization_ns,
        options.gates["HPAScaleToZero"],
        options.legacy,
        threads,
    )
    fresh = before.fresh * (columns[0] == 0).astype(np.uint8)
    if inputs.problems:  # these HPAs stay undecided and unchanged
        rows = np.array(sorted(inputs.problems))
        columns[0][rows], columns[9][rows] = DECISION_BRANCHES.index("failed"), 0
        old = memory.conditions
        conditions.status[rows], conditions.reason[rows] = old.status[rows], old.reason[rows]
        conditions.time[rows] = old.time[rows]
    return columns, inputs, results, KernelState(replace(histories, fresh=fresh), conditions)


def _unpickle(values: dict[str, Any]) -> Decisions:
    """Build decisions from the values of their fields."""
    return Decisions(**values)


def _respond(action: Action, row: int, origin: DecisionInputs) -> Any:
    """Return the scale, pods or metrics that an action requests, from the inputs of ``row``; None for other actions."""
    objects, columns = origin.objects, origin.inputs
    if isinstance(action, GetScale):
        return columns.scales[row]
    if isinstance(action, List):
        return columns.pods_of(row, objects.pods)
    if isinstance(action, GetMetric):
        return columns.answer(row, action, objects.metrics)
    return None


@collector_paused()
@typed
def decide(
    hpas: Sequence[Any],
    scales: ScaleSource,
    pods: PodsLike,
    metrics: Callable[[GetMetric], Any],
    *,
    selectors: SelectorStore | None = None,
    options: HPAOptions | None = None,
    state: ControllerState | None = None,
    now: datetime | Moment,
    mapper: RESTMapper | None = None,
    threads: int = 1,
    previous: Decisions | None = None,
) -> Decisions:
    """Reconcile HPAs once, assuming that every write succeeds.

    Objects may be structs, plain data or those of a Kubernetes client library. Use
    :meth:`Decisions.with_refused_scales` for writes that failed.

    Parameters
    ----------
    hpas : sequence
        HPAs. v2 structs are expected with defaults. Anything else is converted and defaulted (v1 too), not validated.
    scales : mapping or callable
        Scale of each HPA's target by the HPA's ``namespace/name``, or a function that answers
        :class:`~kscale.effects.GetScale`. An :class:`~kscale.effects.ApiError` says why there is none. A missing scale
        is not found.
    pods : Cluster, Snapshot, PodIndex or list
        The pods.
    metrics : callable
        Answers queries: :class:`~kscale.hpa.MetricLists` (many at once), or any function of a
        :class:`~kscale.effects.GetMetric`.
    selectors : SelectorStore, optional
        Selectors of HPAs outside the batch. All selectors are known before the first HPA is checked.
    options : HPAOptions, optional
        Options of the controller.
    state : ControllerState, optional
        State of earlier decisions (``decisions.state``). Default: that of ``previous``, or no state.
    now : datetime or int
        An aware datetime, or nanoseconds since 1970.
    mapper : RESTMapper, optional
        Kinds of targets. Default: the kinds that Kubernetes has itself.
    threads : int
        Number of threads.
    previous : Decisions, optional
        Last decisions, to save work. An object that is identical to last time's (HPA, scale, pod of a cluster, list of
        metrics) is not read again, so do not change objects that were passed. The result is the same.

    Returns
    -------
    Decisions
        One row per HPA.

    Raises
    ------
    InputError
        If an HPA or pod cannot be read, or an HPA appears twice. Malformed metrics or scales of one HPA are an error of
        its own row.
    """
    options, time = options or DEFAULT_OPTIONS, moment(now)
    mapper = BUILT_IN_MAPPER if mapper is None else mapper
    state = (previous.state if previous is not None else ControllerState()) if state is None else state
    last = None if previous is None else previous.origin
    if last is not None and (last.options != options or last.objects.mapper is not mapper):
        last = None
    before, prepared_before = (None, None) if last is None else (last.inputs, last.prepared)
    objects = BatchObjects.read(
        hpas, scales, to_batch_pods(pods), metrics, selectors, mapper, None if last is None else last.objects
    )
    prepared = prepare_batch(objects, state, options, prepared_before)
    columns = prepared.encode(metrics, before)
    out = _decide_columns(columns, prepared.memory, time, options, threads)
    return replace(out, keys=objects.keys, origin=DecisionInputs(prepared, columns, state, time, threads))
