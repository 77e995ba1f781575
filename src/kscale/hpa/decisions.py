"""What a batch of reconciles decided: one row an HPA.

Decisions are codes; texts and objects of one HPA are made when asked for, by running its step machine. Upstream, one by
one: ``pkg/controller/podautoscaler/horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _reconcile
from kscale.effects import (
    Action,
    ApiError,
    DryRun,
    GetMetric,
    GetScale,
    List,
    Moment,
    PutScale,
    as_if_done,
    done_at_once,
    moment,
)
from kscale.hpa.behavior import NormalizedColumns
from kscale.hpa.calculated import CalculatedRows
from kscale.hpa.columns import CalculatorColumns, calculate
from kscale.hpa.decided import Decided
from kscale.hpa.encode import Chosen, Encoded, Observed
from kscale.hpa.memory import CONDITION_REASONS, CONDITION_TYPES, Histories, Memory, StatesOf
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile import Reconciling, reconcile
from kscale.hpa.records import Known, Reconciliation
from kscale.hpa.scale_target import TargetScale
from kscale.hpa.state import ControllerState
from kscale.objects.argument_types import typed

__all__ = ["BRANCHES", "REASONS", "Decisions", "Origin", "decide_columns", "decided_again"]

BRANCHES: Final = ("no_scale", "disabled", "above_max", "below_min", "metrics", "failed")
REASONS: Final = ("none", "above_max", "below_min", "metric_above", "all_below")

_NO_SCALE, _METRICS, _FAILED = 0, 4, 5
FAILED_RESCALE: Final = 32
_TRUE: Final = 1
_LIMITED: Final = CONDITION_TYPES.index("ScalingLimited")
_FIRST_LIMIT: Final = CONDITION_REASONS.index("DesiredWithinRange")

_TOLD: Final = (
    "branch", "desired", "proposal", "stabilized", "best", "invalid", "first_invalid", "rescaled", "reason", "events",
    "error", "held",
)  # fmt: skip
"""What the kernel says, in its order."""

Masked = np.ma.MaskedArray[Any, np.dtype[np.int32]]
"""int32, masked (and -1 beneath) where there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What was decided from: for explaining, and for the next round."""

    chosen: Chosen
    given: Encoded
    state: ControllerState
    now: Moment
    threads: int

    @property
    def observed(self) -> Observed:
        """HPAs, scales, pods, metrics."""
        return self.chosen.observed

    @property
    def options(self) -> HPAOptions:
        """Flags and gates."""
        return self.chosen.options


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Decisions:
    """One row an HPA, in the order given; ``keys``: ``namespace/name``.

    - ``branch`` uint8 (:data:`BRANCHES`);
    - ``current``, ``desired``, ``proposal``, ``stabilized``: masked int32. No ``current``: the scale could not be
      read; no ``desired``: the size stays, nothing could be decided or the write was refused; ``proposal`` (of the
      metrics) and ``stabilized`` only where metrics decided;
    - ``best``, ``first_invalid`` int32: rows among the HPA's metrics or -1; ``invalid`` the number that failed;
    - ``rescaled`` uint8: the scale is written; ``reason`` uint8 (:data:`REASONS`);
    - ``events`` uint8: bits 1 FailedGetScale, 2 selector, 4 metric failed, 8 FailedComputeMetricsReplicas,
      16 SuccessfulRescale, 32 FailedRescale; ``error`` uint8: 0 none, 1 internal, 2 spec;
    - ``held`` uint8: who made ``stabilized`` of ``proposal`` (index into ``conditions.STABILIZED``);
    - ``metrics``: what the calculator said of every metric; ``problems``: what of an HPA was malformed, by its row;
    - ``memory``: histories and conditions after these decisions, as columns;
    - ``refusals``: by key, why writing the scale failed for good, as :meth:`refused` was told; else empty;
    - ``origin``: what was decided from; None: from columns alone, or these were unpickled;
    - ``carried``: the :attr:`state` of decisions that were made from objects and then unpickled; else None.

    ``state`` is what to pass next time. ``decisions[i]`` tells everything of one HPA. Pickles without what it was
    decided from, which explaining needs.
    """

    keys: Sequence[str]
    branch: NDArray[np.uint8]
    current: Masked
    desired: Masked
    proposal: Masked
    stabilized: Masked
    best: NDArray[np.int32]
    invalid: NDArray[np.int32]
    first_invalid: NDArray[np.int32]
    rescaled: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    events: NDArray[np.uint8]
    error: NDArray[np.uint8]
    held: NDArray[np.uint8]
    metrics: CalculatorColumns
    memory: Memory
    problems: Mapping[int, Exception] = field(default_factory=dict)
    refusals: Mapping[str, ApiError] = field(default_factory=dict)
    origin: Origin | None = None
    carried: ControllerState | None = None

    @classmethod
    def of(
        cls, columns: tuple[NDArray[Any], ...], given: Encoded, metrics: CalculatorColumns, memory: Memory
    ) -> Decisions:
        """Of what the kernel says: ``columns`` in its order, an entry an HPA; ``memory``: the histories of them all."""
        branch, desired, proposal, stabilized = columns[:4]
        best, invalid, first_invalid, rescaled, reason, events, error, held = columns[4:]
        unknown = branch == _NO_SCALE
        undecided = unknown | (branch == _FAILED)
        by_metrics = branch == _METRICS
        unread = unknown.copy()
        for row in given.problems:
            unread[row] = isinstance(given.scales[row], ApiError)
        return cls(
            keys=(),
            branch=branch,
            current=_masked(given.targets.current, unread),
            desired=_masked(desired, undecided | (events & FAILED_RESCALE != 0)),
            proposal=_masked(proposal, ~by_metrics),
            stabilized=_masked(stabilized, ~by_metrics),
            best=best,
            invalid=invalid,
            first_invalid=first_invalid,
            rescaled=rescaled,
            reason=reason,
            events=events,
            error=error,
            held=held,
            metrics=metrics,
            memory=memory,
            problems=given.problems,
        )

    def came_of(self, columns: tuple[NDArray[Any], ...]) -> bool:
        """Whether these are what :meth:`of` makes of what the kernel says, of HPAs as they were."""
        told = dict(zip(_TOLD, columns, strict=True))
        for name in _TOLD:
            mine, theirs = getattr(self, name), told[name]
            if isinstance(mine, np.ma.MaskedArray):  # beneath what is masked is nothing: that follows from the rest
                mine, theirs = mine.data, np.where(np.ma.getmaskarray(mine), mine.data, theirs)
            if not _is_same(mine, theirs):
                return False
        return True

    def __len__(self) -> int:
        return len(self.branch)

    def __repr__(self) -> str:
        up = int(((self.rescaled != 0) & (self.desired > self.current).filled(False)).sum())
        texts = [f"{up:,} up", f"{int(self.rescaled.sum()) - up:,} down"]
        if failed := int(np.ma.getmaskarray(self.desired).sum()):
            texts.append(f"{failed:,} undecided")
        return f"<Decisions of {len(self):,} HPAs: {', '.join(texts)}>"

    def _repr_html_(self) -> str:
        """For a notebook: what is not decided is an empty cell."""
        from kscale.html import notebook

        sizes = ([("" if each is None else each) for each in size.tolist()] for size in (self.current, self.desired))
        rows = zip(
            self.keys or [str(row) for row in range(len(self))],
            *sizes,
            (BRANCHES[each] for each in self.branch.tolist()),
            (REASONS[each] for each in self.reason.tolist()),
            strict=True,
        )
        return notebook.listing(repr(self), ("HPA", "current", "desired", "decided by", "reason"), list(rows))

    def __reduce__(self) -> tuple[object, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        state = self.state if self.origin is not None else self.carried
        return _unpickled, ({**values, "origin": None, "carried": state, "problems": dict(self.problems)},)

    @property
    def state(self) -> ControllerState:
        """What is remembered of every HPA afterwards, and of those of the state before that are not in the batch."""
        if self.origin is None:
            if self.carried is None:
                raise TypeError("decisions made from columns alone have no states: pass their memory on")
            return self.carried
        before, histories, rest = self.origin.state.hpas, self.memory.histories, self.origin.given.rest
        if isinstance(before, StatesOf) and before.keys_in_order is self.keys:
            return ControllerState(hpas=StatesOf(self.keys, histories, rest, before.others, before.rows))
        rows = {key: row for row, key in enumerate(self.keys)}
        others = {key: before[key] for key in before if key not in rows}
        return ControllerState(hpas=StatesOf(self.keys, histories, rest, others, rows))

    def machine(self, row: int) -> Reconciling:
        """The step machine of one HPA: for a driver to perform, where writing goes another way than it should."""
        origin, row = self._known(), range(len(self))[row]
        return reconcile(
            origin.observed.hpas[row],
            origin.state.get(self.keys[row]),
            now=origin.now,
            options=origin.options,
            selectors=origin.given.store(),
            mapper=origin.observed.mapper,
        )

    def __getitem__(self, row: int) -> DryRun[Reconciliation]:
        """Everything about one HPA, texts included; only for decisions made from objects.

        Raises what :attr:`problems` holds of it.
        """
        origin, row = self._known(), range(len(self))[row]
        if row in self.problems:
            raise self.problems[row]
        refusal = self.refusals.get(self.keys[row])
        return as_if_done(
            self.machine(row),
            now=origin.now,
            respond=lambda action: _answer(action, row, origin),
            refuse=lambda action: refusal if isinstance(action, PutScale) else None,
        )

    def told(self, rows: Sequence[int]) -> list[DryRun[Reconciliation]]:
        """As ``decisions[row]`` of each, for less: what was decided over columns is not worked out again. What
        was asked and counted for those decisions is not in them. Raises what :attr:`problems` holds of one."""
        origin = self._known()
        given, references = origin.given, origin.chosen.references
        replicas = CalculatedRows(origin.chosen, given, self.metrics, origin.now)
        whole = self.by_metrics() & (self.events & FAILED_RESCALE == 0)
        whole[list(self.problems)] = False
        normalized, past = self.normalized().rows(), self.memory.histories.past
        out = []
        for row in rows:
            scale, found = given.scales[row], replicas.of(row) if whole[row] else None
            if found is None or isinstance(scale, ApiError):
                out.append(self[row])
                continue
            decided = Decided(
                origin.observed.hpas[row],
                origin.state.get(self.keys[row]),
                Known(scale, found, msgspec.structs.replace(normalized[row], recommendations=past.recommended(row))),
                TargetScale(scale, references.resources[row][0]),
                now=origin.now,
                options=origin.options,
            )
            out.append(done_at_once(decided.rest(), now=origin.now))
        return out

    def by_metrics(self) -> NDArray[np.bool_]:
        """Where metrics decided, and the columns say what became of the proposals: of what leaves zero they hold the
        size that it gets, and no longer what it was normalized to."""
        found: NDArray[np.bool_] = (self.branch == _METRICS) & (self.invalid == 0) & (self.current.data != 0)
        return found

    def normalized(self) -> NormalizedColumns:
        """What became of the proposals. It means something :meth:`by_metrics`, where the scale can be written."""
        conditions = self.memory.conditions
        return NormalizedColumns(
            self.stabilized.data,
            self.desired.data,
            self.held,
            conditions.reason[:, _LIMITED] - _FIRST_LIMIT,
            (conditions.status[:, _LIMITED] == _TRUE).astype(np.uint8),
        )

    def refused(self, errors: Mapping[str, ApiError]) -> Decisions:
        """What is decided where writing the scale failed for good (``errors``), by the HPA's ``namespace/name``: no
        event is stored, and its conditions tell. Those that write nothing have nothing to be refused."""
        origin = self._known()
        all_errors = {**self.refusals, **errors}
        flags = np.fromiter((key in all_errors for key in self.keys), np.uint8, len(self.keys))
        given = replace(origin.given, targets=replace(origin.given.targets, refused=flags))
        again = decide_columns(
            given, origin.chosen.memory, now=origin.now, options=origin.options, threads=origin.threads
        )
        return replace(again, keys=self.keys, refusals=all_errors, origin=origin)

    def _known(self) -> Origin:
        if self.origin is None:
            raise TypeError("only decisions made from objects, in this process, have texts")
        return self.origin


@typed
def decide_columns(
    given: Encoded, memory: Memory, *, now: datetime | Moment, options: HPAOptions | None = None, threads: int = 1
) -> Decisions:
    """Decides from columns: ``given``, those of what was read; ``memory``, of the rounds before.

    Nothing that is passed in is changed; the result does not depend on ``threads``.
    """
    options, time = options or HPAOptions(), moment(now)
    answers = calculate(
        given.rows, given.pods, given.samples, given.requests, given.values, options=options, now=time, threads=threads
    )
    return Decisions.of(*_columns(given, answers, memory, time, options, threads))


def decided_again(
    last: Decisions, given: Encoded, *, since: Moment, now: Moment, options: HPAOptions
) -> Decisions | None:
    """What is decided ``now`` from the columns of the ``last`` decisions, made at ``since``, and from what they
    remember. None: something else is decided, or for other reasons."""
    answers = last.metrics
    if options.legacy or not len(given.pods) or given.pods.start.max() + options.cpu_initialization_ns > since:
        rows = given.rows, given.pods, given.samples, given.requests, given.values
        answers = calculate(*rows, options=options, now=now)
        if not all(_is_same(getattr(last.metrics, each.name), getattr(answers, each.name)) for each in fields(answers)):
            return None
    columns, _, _, memory = _columns(given, answers, last.memory, now, options, 1)
    before, after = last.memory.conditions, memory.conditions
    same = _is_same(before.status, after.status) and _is_same(before.reason, after.reason) and last.came_of(columns)
    return replace(last, memory=memory) if same else None


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """So that no number is another of its kind that is equal to it, and what is none is itself."""
    return one.tobytes() == other.tobytes()


def _columns(
    given: Encoded, answers: CalculatorColumns, memory: Memory, now: Moment, options: HPAOptions, threads: int
) -> tuple[tuple[NDArray[Any], ...], Encoded, CalculatorColumns, Memory]:
    """What :meth:`Decisions.of` takes."""
    error = (answers.error != 0).astype(np.uint8)
    np.copyto(error, 2, where=given.rows.invalid != 0)
    before = memory.histories
    past, added, removed = before.past.with_room(), before.added.with_room(), before.removed.with_room()
    conditions = memory.conditions.copy()
    columns: tuple[NDArray[Any], ...] = _reconcile.decide(
        replace(given.targets, fresh=before.fresh),
        answers.replicas,
        error,
        given.up,
        given.down,
        past,
        added,
        removed,
        conditions.status,
        conditions.reason,
        conditions.time,
        now,
        options.downscale_stabilization_ns,
        options.enabled("HPAScaleToZero"),
        options.legacy,
        threads,
    )
    fresh = before.fresh * (columns[0] == 0).astype(np.uint8)
    if given.problems:  # nothing of them is decided, and nothing changes
        rows = np.array(sorted(given.problems))
        columns[0][rows], columns[9][rows] = BRANCHES.index("failed"), 0
        old = memory.conditions
        conditions.status[rows], conditions.reason[rows] = old.status[rows], old.reason[rows]
        conditions.time[rows] = old.time[rows]
    return columns, given, answers, Memory(Histories(fresh, past, added, removed), conditions)


def _unpickled(values: dict[str, Any]) -> Decisions:
    return Decisions(**values)


def _masked(values: NDArray[np.int32], nothing: NDArray[np.bool_]) -> Masked:
    out: Masked = np.ma.MaskedArray(np.where(nothing, np.int32(-1), values), nothing, fill_value=-1)
    return out


def _answer(action: Action, row: int, origin: Origin) -> Any:
    observed, given = origin.observed, origin.given
    if isinstance(action, GetScale):
        return given.scales[row]
    if isinstance(action, List):
        return given.pods_of(row, observed.pods)
    if isinstance(action, GetMetric):
        return given.answer(row, action, observed.metrics)
    return None
