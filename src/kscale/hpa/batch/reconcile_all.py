"""Reconcile many HPAs as one step machine: shared requests, decisions over columns, then the writes of each HPA. Also
checks whether a batch would only repeat the last one.

1. scales that are not known yet are asked for; 2. the metrics of those that need any; 3. HPAs, watched scales and pods
are read again, as they are once the answers have come (upstream lists pods after each answer); 4. all are decided
(:mod:`~kscale.hpa.batch.decisions`); 5. the step machine of each (:mod:`~kscale.hpa.controller.reconcile`) is given
what was decided, and says what follows: conditions, events, the status. Those that change a size decide again by the
scale as it is then.

Upstream, one by one: ``pkg/controller/podautoscaler/horizontal.go``.

Of equal HPAs, scales, pods and values of metrics a batch decides the same again, unless time makes a difference: by the
age of pods, by what is remembered of sizes before, and by the age of samples. The first two are decided anew, over
columns; of the third a batch can be told that no difference is left to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np

from kscale.effects import (
    ApiError,
    Emit,
    GetMetric,
    GetScale,
    List,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    Steps,
    moment,
)
from kscale.hpa.batch.columns import StateColumns, StateStore
from kscale.hpa.batch.decisions import Decisions, decide_columns, repeat_decisions
from kscale.hpa.batch.inputs import BatchColumns, BatchObjects, PreparedBatch, get_hpa_keys, prepare_batch
from kscale.hpa.batch.pods import PodsLike, to_batch_pods
from kscale.hpa.batch.precomputed import (
    UNCHANGED_OBSERVATIONS,
    CachedDecision,
    MetricsOnlyUpdate,
    PrecomputedReconcile,
    ReconcileRun,
)
from kscale.hpa.batch.requests import is_late_response, request_metrics_steps, request_scales_steps
from kscale.hpa.controller.reconcile import PrecomputedDecision, ReconcileResult, reconcile
from kscale.hpa.controller.replica_calculator import CalculatedReplicas
from kscale.hpa.controller.scale_target import SelectorStore, TargetScale
from kscale.hpa.controller.state import ControllerState, HPAState
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from kscale.objects.argument_types import typed
from kscale.objects.rest_mapping import RESTMapper
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
"""Reads the objects of some HPAs again; None: they cannot be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What came of a batch.

    ``keys``: of those that were reconciled, with ``histories`` and ``rest`` of their states, row by row;
    ``unfinished``: keys of those that there was no time for, or that changed meanwhile so that other questions are to
    be asked, ``late``: of those whose questions were not answered in time, ``gone``: of those that were deleted
    meanwhile, of all of which nothing has changed; ``slow``: of those that took as long to write, or whose questions
    took as long as would have been slow; ``problems``: what of an HPA was malformed, so that upstream would crash, by
    its key; ``records`` of those that did more than the columns say.

    ``chosen``, ``given``, ``decisions``: what all were decided from at ``at``, and what was; ``written``: the statuses
    that were written of those of which the columns say all, by key; ``rows``: of all that were given, what came of
    those of them whose size stays; ``ends``: when those ended that did anything in the world, by key.
    """

    keys: Sequence[str]
    histories: StateColumns
    rest: Sequence[HPAState]
    unfinished: Sequence[str]
    problems: Mapping[str, Exception]
    records: Mapping[str, ReconcileResult]
    chosen: PreparedBatch
    given: BatchColumns
    decisions: Decisions
    at: Moment
    written: Mapping[str, HorizontalPodAutoscalerStatus]
    rows: Sequence[CachedDecision | None] = ()
    ends: Mapping[str, Moment] = field(default_factory=dict)
    late: Sequence[str] = ()
    gone: Sequence[str] = ()
    slow: Sequence[str] = ()


@typed
def reconcile_all(
    hpas: Sequence[HorizontalPodAutoscaler],
    kept: StateStore,
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
    """Reconciles HPAs, all of them registered in ``selectors``, with the same answers as one by one.

    - ``hpas``: defaulted v2 structs, none of them older than what was written of it; ``kept``: what is remembered;
    - ``scales``: of targets that are watched, by the HPA's ``namespace/name``; the rest is asked for, and a scale that
      is to be written is asked for in any case. It may be behind: a write then meets a conflict, as upstream's does;
    - ``pods``: a cluster, a snapshot or its index, or a list;
    - ``within``: who has not begun to write so many nanoseconds after the first did is left for another time, and so is
      whose scale or metrics are not answered within as long;
    - ``slow_after``: where there is no such limit, whose questions or writes take so many nanoseconds is told as slow;
    - ``before``: the last batch, of the same options and mapper, of which is taken whatever still holds;
    - ``refresh``: reads ``hpas``, ``scales`` and ``pods`` again once metrics or scales were asked for; None: they stay
      as they were given.

    All know each other's selectors before the first is checked. Raises nothing for one HPA's sake.
    """
    return _BatchReconcile(
        hpas, kept, pods, scales, moment(now), options, selectors, mapper, within, slow_after, before, refresh
    ).run()


class _BatchReconcile:
    def __init__(
        self,
        hpas: Sequence[HorizontalPodAutoscaler],
        kept: StateStore,
        pods: PodsLike,
        scales: Mapping[str, Scale],
        now: Moment,
        options: HPAOptions,
        selectors: SelectorStore,
        mapper: RESTMapper,
        within: int | None,
        slow_after: int | None,
        before: BatchResult | None,
        refresh: RefreshObjects | None,
    ) -> None:
        self.hpas, self.kept, self.before, self.refresh = hpas, kept, before, refresh
        self.keys: Sequence[str] = get_hpa_keys(hpas, None if before is None else before.chosen.observed)
        self.pods = to_batch_pods(pods)
        self.scales: dict[str, Any] = dict(scales)
        self.watched = frozenset(scales)
        self.options, self.selectors, self.mapper = options, selectors, mapper
        self.progress = Progress(now)
        self.within, self.slow_after = within, slow_after if within is None else within
        self.took: dict[Any, int] | None = None if slow_after is None else {}
        self.until: Moment | None = None
        self.slow: list[str] = []
        self.at = now
        self.concluded: dict[int, CachedDecision] = {}
        self.ends: dict[str, Moment] = {}
        self.gone: frozenset[int] = frozenset()
        self.unanswered: frozenset[int] = frozenset()

    def run(self) -> Steps[BatchResult]:
        """The whole."""
        at_most = self.options.workers
        self.scales = yield from request_scales_steps(
            self.progress, self.hpas, self.keys, self.scales, self.mapper, at_most, self.within, self.took
        )
        before = self.before
        with collector_paused():
            last = None if before is None else before.chosen
            observed = BatchObjects.of(
                self.hpas,
                self.scales,
                self.pods,
                _reject_request,
                self.selectors,
                self.mapper,
                None if last is None else last.observed,
            )
            self.keys = observed.keys  # the same list as in the last batch, where they are the same
            self.chosen = prepare_batch(observed, ControllerState(hpas=self.kept), self.options, last)
        questions = self.chosen.questions()
        self.gathered = yield from request_metrics_steps(self.progress, questions, at_most, self.within, self.took)
        if self.refresh is not None and (questions or not self.watched.issuperset(self.keys)):
            current = yield from self.refresh(self.progress, self.hpas)
            if current is not None:
                with collector_paused():
                    self._go_on_with(current)
        self.at = self.progress.now
        self._note_slow()
        self.late = self._late()
        with collector_paused():
            left_out = self.late | self.gone | self.unanswered
            self.given = self.chosen.encoded(self.gathered, None if before is None else before.given, left_out)
            self.decisions = decide_columns(self.given, self.chosen.memory, now=self.at, options=self.options)
            self._register()
            self._read_columns()
            self.again = self._rows_again()
            self.rows = list(self.again)
            runs = [self._begin(row) for row, known in enumerate(self.again) if known is None and row not in left_out]
        yield from self._report([each for each in runs if each.action is None and each.begun])
        # Sizes first: a status can wait. Then whole namespaces, in the order of their first: what is left of them has
        # its metrics asked for again, and comes first the next time.
        turns: dict[str, int] = {}
        for hpa in self.hpas:
            turns.setdefault(hpa.namespace, len(turns))
        live = [each for each in runs if each.record is None and each.problem is None]
        live.sort(key=lambda each: (not self.rescales[each.row], turns[self.hpas[each.row].namespace]))
        alone, apart = self._live, self._apart
        machines = [partial(apart if each.works_it_out else alone, each) for each in live]
        yield from self.progress.together(machines, at_most=at_most, brief=True)
        return self._result(runs)

    def _go_on_with(self, current: CurrentObjects) -> None:
        """Choose again from objects as they are now. An HPA that is another object by now, whose target is not known
        any more, or that needs an answer that nobody asked for, is left for the next batch."""
        gone, other = set(), set()
        hpas = list(self.hpas)
        for row, (old, new) in enumerate(zip(self.hpas, current.hpas, strict=True)):
            if new is None:
                gone.add(row)
            elif new.metadata.uid != old.metadata.uid or (
                new.spec.scale_target_ref != old.spec.scale_target_ref and self.keys[row] not in current.scales
            ):
                other.add(row)
            else:
                hpas[row] = new
        scales = {**self.scales, **current.scales}
        lost = self.watched.difference(current.scales)
        if lost:
            other.update(row for row, key in enumerate(self.keys) if key in lost and row not in gone)
        self.hpas, self.scales, self.watched = hpas, scales, self.watched.union(current.scales)
        self.pods = to_batch_pods(current.pods)
        last, questions = self.chosen, self.chosen.questions()
        observed = BatchObjects.of(hpas, scales, self.pods, _reject_request, self.selectors, self.mapper, last.observed)
        self.keys = observed.keys
        self.chosen = prepare_batch(observed, ControllerState(hpas=self.kept), self.options, last)
        if self.chosen.questions() is not questions:
            other.update(self.chosen.rows_without_answer(self.gathered.answers))
        self.gone, self.unanswered = frozenset(gone), frozenset(other - gone)

    def _late(self) -> frozenset[int]:
        """The rows of those whose scale or metrics are not answered yet."""
        if self.within is None:
            return frozenset()
        keys = () if self.watched.issuperset(self.keys) else enumerate(self.keys)  # others' scales may be watched, too
        scales = (row for row, key in keys if is_late_response(self.scales.get(key)))
        asked = [question for question, found in self.gathered.answers.items() if is_late_response(found)]
        return frozenset([*scales, *(self.chosen.rows_that_ask(asked) if asked else ())])

    def _note_slow(self) -> None:
        """Those whose questions took long, though they were waited for."""
        if self.took is None or self.slow_after is None:
            return
        slow = {asked for asked, took in self.took.items() if took >= self.slow_after}
        asked = [each for each in slow if isinstance(each, GetMetric)]
        keys = {self.keys[row] for row in self.chosen.rows_that_ask(asked)} if asked else set()
        self.slow += sorted(keys | slow.intersection(self.keys))

    def _register(self) -> None:
        """The selectors of all, before any machine looks for rivals; those of the last batch are there, if nobody has
        changed any since."""
        if self.before is not None and self.before.chosen.selectors is self.chosen.selectors:
            return
        for row in np.flatnonzero(self.chosen.group >= 0).tolist():
            metadata = self.hpas[row].metadata
            self.selectors.put_if_present(metadata.namespace, metadata.name, self.chosen.selector(row))

    # -- one by one --------------------------------------------------------------------------------------------------

    def _rows_again(self) -> list[CachedDecision | None]:
        """What comes of those of which the last batch knows it, because the same is decided of them again."""
        before = self.before
        if before is None or not before.rows or self.keys != before.chosen.observed.keys:
            return [None] * len(self.hpas)
        found: list[CachedDecision | None] = [None] * len(self.hpas)
        for row, known in enumerate(before.rows):
            scale = self.given.scales[row]
            if known is None or not self.plain[row] or self.rescales[row] or isinstance(scale, ApiError):
                continue
            target, hpa = TargetScale(scale, self.chosen.references.resources[row][0]), self.hpas[row]
            if known.concludes(hpa, target, self.replicas[row], self.normalized[row]):
                if self.replicas[row] == known.replicas:
                    found[row] = known.again(hpa)
                else:
                    self.concluded[row] = known
        return found

    def _begin(self, row: int) -> ReconcileRun:
        """The step machine of one, as far as it gets without the world; of one that changes a size, not at all."""
        known, hpa = self._known(row), self.hpas[row]
        rescales = self.rescales[row]
        if known is not None and not rescales:
            state, last = _mark_registered(self.chosen.rest[row]), self.concluded.get(row)
            decided: PrecomputedReconcile | MetricsOnlyUpdate
            counted: Sequence[Observation]
            if last is None:
                target = TargetScale(known.scale, self.chosen.references.resources[row][0])
                decided = first = PrecomputedReconcile(hpa, state, known, target, now=self.at, options=self.options)
                concluded, counted = first.concluded, [*first.observations, *UNCHANGED_OBSERVATIONS]
            else:
                target, concluded, counted = last.target, last.concluded, last.observations
                decided = MetricsOnlyUpdate(hpa, state, known, concluded, now=self.at, options=self.options)
            out = ReconcileRun(row, decided.write(), self.at, [], decided.observations, by_columns=True)
            self.rows[row] = CachedDecision(
                hpa, target, self.replicas[row], self.normalized[row], None, counted, concluded
            )
            if not decided.writes:
                out.observations, out.record = list(counted), decided.ended()
                out.begun = True
        else:
            steps = reconcile(
                hpa,
                _mark_registered(self.kept.get(self.keys[row]) or HPAState()),
                now=self.at,
                options=self.options,
                selectors=self.selectors,
                mapper=self.mapper,
                known=known,
            )
            out = ReconcileRun(row, steps, self.at, works_it_out=known is None and rescales)
            if not rescales:
                out.go_on(None, self._answer)
        return out

    def _read_columns(self) -> None:
        """What :meth:`_known` goes by, as lists: rows of arrays are slow to look at."""
        decisions, columns = self.decisions, self.decisions.metrics
        targets = self.given.targets
        plain = decisions.by_metrics() & (targets.scale_error == 0) & (not self.options.legacy)
        self.plain, self.rescales = plain.tolist(), (decisions.rescaled != 0).tolist()
        said = columns.replicas.tolist(), columns.utilization.tolist(), columns.usage.tolist()
        of_metrics = list(zip(*said, strict=True))
        ends = zip(targets.metrics_begin.tolist(), targets.metrics_end.tolist(), strict=True)
        self.replicas = [of_metrics[begin:end] for begin, end in ends]
        self.normalized = decisions.normalized().rows()

    def _known(self, row: int) -> PrecomputedDecision | None:
        """What the columns say; None: it has to be worked out, because something failed. The recommendations of one
        whose size stays are kept in columns."""
        scale = self.given.scales[row]
        if not self.plain[row] or isinstance(scale, ApiError):
            return None
        replicas = [
            CalculatedReplicas(replicas=size, utilization=percent, usage=usage)
            for size, percent, usage in self.replicas[row]
        ]
        normalized = self.normalized[row]
        if self.rescales[row]:
            past = self.decisions.memory.histories.past
            normalized = msgspec.structs.replace(normalized, recommendations=past.recommended(row))
        return PrecomputedDecision(scale, replicas, normalized)

    def _answer(self, of: ReconcileRun, action: Any) -> Outcome | None:
        """What the batch knows, at once; None: the world has to be asked."""
        if type(action) in (Observe, Emit):
            return Outcome(at=of.at)
        found = self._looked_up(of.row, action)
        if found is None:
            return None
        return Outcome(at=of.at, error=found) if isinstance(found, ApiError) else Outcome(at=of.at, value=found)

    def _looked_up(self, row: int, action: Any) -> Any:
        if type(action) is GetScale:
            return None if action.fresh else self.given.scales[row]
        if type(action) is List and self._is_of(row, action.selector):
            return list(self.given.pods_of(row, self.pods))
        if type(action) is GetMetric:
            if action.api == "resource" and self._is_of(row, action.selector):
                return self.given.answer(row, action, self.gathered)
            return self.gathered.answers.get(action)
        return None

    def _is_of(self, row: int, selector: str) -> bool:
        return bool(self.chosen.group[row] >= 0) and self.chosen.selector(row) == selector

    # -- in the world ------------------------------------------------------------------------------------------------

    def _apart(self, running: ReconcileRun, now: Moment) -> Steps[None]:
        """What one does whose steps are not brief: of many pods it takes a tenth of a second to work a size out."""
        yield from Progress(now).together([partial(self._live, running)])

    def _live(self, running: ReconcileRun, now: Moment) -> Steps[None]:
        """What one does. Its time goes on from when it was decided: what it waited for others is not its own."""
        if self.within is not None:
            if self.until is None:  # however long was asked and decided: some are written each time
                self.until = now + self.within
            if now > self.until:
                running.steps.close()
                return
        progress, late = Progress(now), now - self.at
        answer = self._answer
        if not running.begun:
            answer = self._answer_anew
            running.go_on(None, answer)
        while running.action is not None:
            if running.events:
                yield from self._tell(progress, running)
            outcome = yield from progress.act(running.action)
            running.go_on(msgspec.structs.replace(outcome, at=outcome.at - late) if late else outcome, answer)
        if running.events:
            yield from self._tell(progress, running)
        yield from progress.observe(*running.observations)  # once, and what it did is done by then
        self.ends[self.keys[running.row]] = progress.now
        if self.slow_after is not None and progress.now - now >= self.slow_after:
            self.slow.append(self.keys[running.row])

    def _answer_anew(self, of: ReconcileRun, action: Any) -> Outcome | None:
        """As :meth:`_answer`, but the scale is read again before it is written."""
        if type(action) is GetScale and self.keys[of.row] in self.watched:
            return None
        return self._answer(of, action)

    def _tell(self, progress: Progress, running: ReconcileRun) -> Steps[None]:
        events, running.events = running.events, []
        yield from progress.emit(*events)

    def _report(self, runs: Sequence[ReconcileRun]) -> Steps[None]:
        """What those have said that are done."""
        yield from self.progress.emit(*[event for each in runs for event in each.events])
        said = {each.row: each.observations for each in runs}
        seen = [said.get(row, ()) if known is None else known.observations for row, known in enumerate(self.again)]
        yield from self.progress.observe(*[each for observations in seen for each in observations])

    # -- what is remembered ------------------------------------------------------------------------------------------

    def _result(self, runs: Sequence[ReconcileRun]) -> BatchResult:
        histories, rest = self.decisions.memory.histories, self.given.rest
        others: dict[int, HPAState] = {}
        left: dict[int, HPAState] = {}
        done, unfinished, late, gone = [], [], [], []
        problems: dict[str, Exception] = {}
        records = {}
        written = {}
        rows = self.rows
        run_of = {each.row: each for each in runs}
        for row, key in enumerate(self.keys):
            if row in self.gone:
                gone.append(key)
                continue
            if row in self.unanswered:
                unfinished.append(key)
                rows[row] = None
                continue
            if row in self.late:
                late.append(key)
                continue
            running = run_of.get(row)
            if running is None:  # as it was
                done.append(row)
                continue
            record = running.record
            if record is None and running.problem is None:
                unfinished.append(key)
                rows[row] = None
                continue
            done.append(row)
            if record is None:
                assert running.problem is not None
                problems[key] = running.problem
                others[row] = self.kept.get(key) or HPAState()
                rows[row] = None
            elif running.by_columns:
                if record.state.written is not None:
                    left[row] = msgspec.structs.replace(rest[row], written=record.state.written)
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
            which = np.array(list(others), np.int64)
            histories = histories.with_rows(which, StateColumns.of(list(others.values())))
            left.update((row, state.without_histories()) for row, state in others.items())
        if left:  # else it stays the very same list, of which the next batch knows what comes
            rest = [left.get(row, state) for row, state in enumerate(rest)]
        if unfinished or late or gone:
            histories, rest = histories.take(np.array(done, np.int64)), [rest[row] for row in done]
        return BatchResult(
            keys=[self.keys[row] for row in done],
            histories=histories,
            rest=rest,
            unfinished=unfinished,
            problems=problems,
            records=records,
            chosen=self.chosen,
            given=self.given,
            decisions=self.decisions,
            at=self.at,
            written=written,
            rows=rows,
            ends=self.ends,
            late=late,
            gone=gone,
            slow=self.slow,
        )


def _mark_registered(state: HPAState) -> HPAState:
    return state if state.registered else msgspec.structs.replace(state, registered=True)


def _reject_request(asked: GetMetric) -> ApiError:
    raise AssertionError(f"asked before: {asked}")


def is_stable_batch(found: BatchResult) -> bool:
    """Whether of all HPAs of a batch the columns said all, no size changed, and all samples were taken a whole window
    after the last pod became what it is: later ones then count as these (``groupPods``)."""
    if found.records or found.problems or found.unfinished or found.late or found.decisions.rescaled.any():
        return False
    samples, pods = found.given.samples, found.given.pods
    taken = samples.time[samples.present != 0]
    if not len(taken) or not len(pods):
        return not len(taken)
    return bool(taken.min() >= pods.transition.max() + samples.window.max())


def repeat_batch(last: BatchResult, now: Moment, options: HPAOptions) -> BatchResult | None:
    """What a batch that decides at ``now`` leaves that finds what the last one found, with the same pods, scales and
    values. None: it finds something else."""
    decisions = repeat_decisions(last.decisions, last.given, since=last.at, now=now, options=options)
    if decisions is None:
        return None
    return replace(last, histories=decisions.memory.histories, decisions=decisions, at=now, written={}, ends={})
