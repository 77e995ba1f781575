"""Load checkpoints, write them, and delete orphaned ones.

Upstream: ``pkg/recommender/checkpoint``, ``MaintainCheckpoints``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kscale.effects import (
    DEADLINE_EXCEEDED,
    ZERO_TIME,
    Create,
    Delete,
    Get,
    List,
    Moment,
    Outcome,
    Patch,
    PatchOperation,
    Progress,
    StepsOf,
    Together,
    Wait,
    Within,
    duration,
)
from kscale.effects.moments import format_moment
from kscale.effects.progress import SingleAction
from kscale.errors import InputError, KscaleError, Problem
from kscale.objects.api.meta import ObjectMeta, object_key, shorten
from kscale.objects.api.vpa import (
    HistogramCheckpoint,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointSpec,
    VerticalPodAutoscalerCheckpointStatus,
)
from kscale.objects.go_numbers import parse_int64
from kscale.objects.times import nanoseconds
from kscale.vpa.model.cluster_state import VpaContainerSlots, merge_containers
from kscale.vpa.model.histogram import Histogram, HistogramError, SavedHistogram
from kscale.vpa.model.saved_state import Aggregate, AggregateKey, AggregateStore, RecommenderState, Vpa
from kscale.vpa.model.vpa import FETCHING_HISTORY
from kscale.vpa.recommender.update_vpas import API_VERSION

__all__ = [
    "CHECKPOINT_VERSION",
    "CheckpointBatch",
    "CheckpointError",
    "CheckpointStorage",
    "build_checkpoint_status",
    "collect_checkpoints_steps",
    "encode_histogram",
    "find_orphaned_checkpoints",
    "load_checkpoint",
    "load_checkpoints",
    "maintain_checkpoints_steps",
]

CHECKPOINT_VERSION: Final = "v3"
_YEAR_ONE_MOMENT: Final = nanoseconds("0001-01-01T00:00:00Z")


class CheckpointError(KscaleError, ValueError):
    """A checkpoint that cannot be used, with upstream's text."""


# -- reading ---------------------------------------------------------------------------------------------------


def _load_histogram(histogram: Histogram, saved: HistogramCheckpoint, field: str) -> None:
    """Add the weights of a saved histogram to ``histogram``.

    Raises InputError, which names ``field``, for a value of a wrong type or range, and HistogramError for a saved
    histogram that upstream rejects.
    """
    weights = {}
    for name, weight in (saved.bucket_weights or {}).items():
        bucket = parse_int64(name)
        if bucket is None:
            raise InputError(Problem(f"{name!r} is no bucket", field=f"{field}.bucketWeights"))
        if type(weight) is not int or not 0 <= weight < 2**32:
            raise InputError(
                Problem(f"{_format_weight(weight)} is no uint32", field=f"{field}.bucketWeights[{bucket}]")
            )
        weights[bucket] = weight
    histogram.load(weights, saved.total_weight, _parse_time(saved.reference_timestamp, f"{field}.referenceTimestamp"))


def _format_weight(weight: Any) -> str:
    """Return an invalid weight as a short text."""
    return shorten(repr(weight), 40)


def _parse_time(text: str | None, field: str) -> int:
    """Parse a time to nanoseconds since 1970; the zero time for None and for the first moment of the year 1.

    Raises :class:`InputError` for a text that is not a time or is out of range.
    """
    if text is None:
        return ZERO_TIME
    try:
        time = nanoseconds(text)
    except ValueError as error:
        raise InputError(Problem(str(error), field=field)) from None
    if time == _YEAR_ONE_MOMENT:
        return ZERO_TIME
    if not ZERO_TIME <= time < 2**63:
        raise InputError(Problem(f'"{text}" is out of range: times go from 1677-09-22 to 2262-04-11', field=field))
    return time


def load_checkpoint(store: AggregateStore, row: int, status: VerticalPodAutoscalerCheckpointStatus) -> None:
    """Load a checkpoint into the row ``row`` of the store, which is an aggregate's (``LoadFromCheckpoint``).

    Raises :class:`CheckpointError` for a checkpoint that upstream rejects, and :class:`InputError` for invalid weights
    and times out of range. The row may be partly filled after an error.
    """
    if status.version != CHECKPOINT_VERSION:
        raise CheckpointError(f"unsupported checkpoint version {status.version}")
    store.samples[row] = status.total_samples_count
    store.first[row] = _parse_time(status.first_sample_start, "status.firstSampleStart")
    store.last[row] = _parse_time(status.last_sample_start, "status.lastSampleStart")
    try:
        _load_histogram(store.memory.row(row), status.memory_histogram, "status.memoryHistogram")
        _load_histogram(store.cpu.row(row), status.cpu_histogram, "status.cpuHistogram")
    except HistogramError as error:
        raise CheckpointError(str(error)) from None


def load_checkpoints(
    state: RecommenderState,
    checkpoints: Iterable[VerticalPodAutoscalerCheckpoint],
    now: Moment,
    *,
    strict: bool = True,
) -> list[str]:
    """Load checkpoints into the VPAs that they belong to. Returns texts on those that could not be loaded.

    A checkpoint is loaded as a whole or not at all, and replaces an earlier one of the same container. An invalid
    weight or a time out of range gives a text, but with ``strict`` it raises :class:`InputError`, which names the
    object and the field; the checkpoints before it are loaded then.
    """
    problems = []
    state.merge_plans = []  # checkpoints may add containers to merge
    for item in checkpoints:
        vpa = state.vpas.get((item.namespace, item.spec.vpa_object_name))
        if vpa is None:
            problems.append(
                f"cannot load checkpoint to missing VPA object {item.namespace}/{item.spec.vpa_object_name}"
            )
            continue
        row = state.store.take_row()
        container = item.spec.container_name
        try:
            load_checkpoint(state.store, row, item.status)
        except CheckpointError as error:
            state.store.give_row(row)
            problems.append(f"cannot load checkpoint for VPA {vpa.namespace}/{vpa.name}. Reason: {error}")
            continue
        except InputError as error:
            state.store.give_row(row)
            (problem,) = error.problems
            if not strict:
                problems.append(f"cannot load checkpoint for VPA {vpa.namespace}/{vpa.name}. Reason: {problem}")
                continue
            where = f"VerticalPodAutoscalerCheckpoint {item.key}"
            raise InputError(dataclasses.replace(problem, object=where)) from None
        old = vpa.initial_states.get(container)
        if old is not None:
            state.store.give_row(old.row)
        vpa.initial_states[container] = Aggregate(AggregateKey(vpa.namespace, container, ""), row, now)
    return problems


# -- writing ---------------------------------------------------------------------------------------------------


def build_checkpoint_status(
    samples: tuple[Moment, Moment, int], memory: SavedHistogram, cpu: SavedHistogram, now: Moment
) -> VerticalPodAutoscalerCheckpointStatus:
    """Build the checkpoint of an aggregate from its saved histograms (``SaveToCheckpoint``).

    ``samples``: time of the first sample, time of the last, and number of samples. ``now``: the time of the update.
    """
    first, last, count = samples
    return VerticalPodAutoscalerCheckpointStatus(
        last_update_time=format_moment(now),
        version=CHECKPOINT_VERSION,
        cpu_histogram=encode_histogram(cpu),
        memory_histogram=encode_histogram(memory),
        first_sample_start=format_moment(first),
        last_sample_start=format_moment(last),
        total_samples_count=count,
    )


def encode_histogram(histogram: SavedHistogram) -> HistogramCheckpoint:
    """Convert a saved histogram to the struct of a checkpoint object."""
    saved = HistogramCheckpoint(
        reference_timestamp=format_moment(histogram.reference_time),
        bucket_weights={str(bucket): weight for bucket, weight in histogram.bucket_weights.items()} or None,
    )
    if histogram.total_weight:  # what stays the default is not written
        saved.total_weight = histogram.total_weight
    return saved


_NEVER_TIME: Final = np.iinfo(np.int64).max


class _PreparedCheckpoints(NamedTuple):
    """Prepared checkpoints of a VPA, as the ``rows`` of its containers in lists that it shares with other VPAs.

    The lists have first and last time and number of ``samples``, and saved histograms. ``until``: when the first open
    window of the VPA closes.
    """

    samples: list[tuple[Moment, Moment, int]]
    memory: list[SavedHistogram]
    cpu: list[SavedHistogram]
    rows: dict[str, int]
    until: Moment

    def build(self, now: Moment) -> list[tuple[str, VerticalPodAutoscalerCheckpointStatus]]:
        """Return the (container, checkpoint) pairs of one VPA, written at ``now``, sorted by container."""
        return [
            (name, build_checkpoint_status(self.samples[row], self.memory[row], self.cpu[row], now))
            for name, row in sorted(self.rows.items())
        ]


class CheckpointBatch:
    """Checkpoints of VPAs, prepared for several VPAs together and taken one by one."""

    def __init__(self, state: RecommenderState) -> None:
        self._state = state
        self._prepared: dict[Vpa, _PreparedCheckpoints] = {}

    def __contains__(self, vpa: Vpa) -> bool:
        return vpa in self._prepared

    def prepare(self, vpas: Sequence[Vpa], now: Moment) -> None:
        """Merge the aggregates of some VPAs, and store their checkpoints of the time ``now`` for :meth:`pop`.

        The peak of a memory aggregation interval that has not ended is subtracted, as it may still be replaced.
        """
        prepared = _MergedCheckpoints.of(self._state, vpas).prepare([now] * len(vpas))
        self._prepared.update(zip(vpas, prepared, strict=True))

    def pop(self, vpa: Vpa, now: Moment) -> list[tuple[str, VerticalPodAutoscalerCheckpointStatus]]:
        """Return the (container, checkpoint) pairs of a prepared VPA, sorted by container, and remove them.

        A VPA is prepared again if one of its memory aggregation intervals has ended since.
        """
        if now >= self._prepared[vpa].until:
            self.prepare([vpa], now)
        return self._prepared.pop(vpa).build(now)


class _MergedCheckpoints(NamedTuple):
    """Merged aggregates of some VPAs, from which their checkpoints are prepared.

    ``names``, ``store``: as in :class:`~kscale.vpa.model.cluster_state.MergedContainers`; ``slots``: the slots of each
    VPA's containers; ``ends``, ``peaks``: of the memory window of each slot.
    """

    vpas: Sequence[Vpa]
    names: Sequence[tuple[Vpa, str]]
    store: AggregateStore
    slots: Sequence[VpaContainerSlots]
    ends: npt.NDArray[np.int64]
    peaks: npt.NDArray[np.int64]

    @classmethod
    def of(cls, state: RecommenderState, vpas: Sequence[Vpa], *, copies: bool = False) -> _MergedCheckpoints:
        """Merge the aggregates of VPAs. With ``copies``, later samples do not change the result."""
        names, merged = merge_containers(state, vpas)
        store = state.store
        ends, peaks = store.window_end, np.maximum(store.memory_peak, store.oom_peak)
        return cls(vpas, names, merged, [*map(state.slots_of, vpas)], ends.copy() if copies else ends, peaks)

    def prepare(self, times: Sequence[Moment]) -> list[_PreparedCheckpoints]:
        """Prepare the checkpoint of each VPA for the time at which it is written. Call this once.

        The peak of a memory aggregation interval that has not ended then is subtracted, as it may still be replaced.
        """
        rows: dict[Vpa, dict[str, int]] = {vpa: {} for vpa in self.vpas}
        for row, (vpa, name) in enumerate(self.names):
            rows[vpa][name] = row
        until = self._subtract_open_windows([*rows.values()], np.array(times, np.int64))
        store, which = self.store, np.arange(len(self.names))
        memory, cpu = store.memory.save(which), store.cpu.save(which)
        columns = (each[which].tolist() for each in (store.first, store.last, store.samples))
        samples = list(zip(*columns, strict=True))
        return [
            _PreparedCheckpoints(samples, memory, cpu, own, closes)
            for own, closes in zip(rows.values(), until.tolist(), strict=True)
        ]

    def _subtract_open_windows(
        self, rows: Sequence[dict[str, int]], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Subtract from the memory histograms the peaks of memory aggregation intervals (windows) that have not ended.

        ``rows``: for each VPA, the store's row by container name. ``times``: for each VPA, the time at which a window
        is open or not. Returns when each VPA's first open window ends (nanoseconds), or ``_NEVER_TIME``.
        """
        until = np.full(len(rows), _NEVER_TIME)
        if not rows:
            return until
        which = np.concatenate([each.slot for each in self.slots])
        owner = np.repeat(np.arange(len(rows)), [len(each.slot) for each in self.slots])
        end = self.ends[which]
        is_open = end > times[owner]
        if is_open.any():
            # Concatenate the names of all VPAs, so that one lookup finds the rows of all containers.
            row_of = np.array(
                [own[name] for each, own in zip(self.slots, rows, strict=True) for name in each.names], np.int64
            )
            begins = np.cumsum([0, *(len(each.names) for each in self.slots)])[:-1]
            name = np.concatenate([each.name for each in self.slots])
            if not is_open.all():
                which, end, owner, name = which[is_open], end[is_open], owner[is_open], name[is_open]
            peak = self.peaks[which].astype(np.float64)
            self.store.memory.add_samples(row_of[name + begins[owner]], peak, np.ones(len(which)), end, subtract=True)
            np.minimum.at(until, owner, end)
        return until


class CheckpointStorage(Protocol):
    """A world that stores many checkpoints in one call, without a request for each.

    ``latency``: nanoseconds from a request until its checkpoint is stored.
    """

    @property
    def latency(self) -> int: ...

    def store_later(
        self, keys: Sequence[str], build: Callable[[], Mapping[str, VerticalPodAutoscalerCheckpointStatus]]
    ) -> bool:
        """Store the statuses of checkpoints, in this order, without reading them yet.

        ``keys``: keys of the checkpoints. ``build``: returns the statuses by key; may be called at any later time.
        Returns False, and stores nothing, if they must be written one by one.
        """
        ...


_CHECKPOINT_KIND: Final = "VerticalPodAutoscalerCheckpoint"
_VPAS_PER_BATCH: Final = 256
"""VPAs that are prepared in one call."""
_TIMEOUT_TEXT: Final = "Failed to store all checkpoints within the configured `checkpoints-timeout`"


def maintain_checkpoints_steps(
    state: RecommenderState,
    vpas: Sequence[VerticalPodAutoscaler] | None,
    progress: Progress,
    diagnostics: list[str],
    storage: CheckpointStorage | None = None,
) -> StepsOf[Together | Wait | Within, None]:
    """Write checkpoints within ``checkpoints_timeout``, the least recently written first.

    Also deletes checkpoints without a VPA, every ``checkpoints_gc_interval``. Does nothing if the history comes from
    Prometheus. ``vpas``: all VPAs, of any recommender; None: they could not be listed. ``diagnostics`` receives texts
    of failures. ``storage``: stores checkpoints without requests.
    """
    options = state.options
    if not options.use_checkpoints:
        return
    deadline = progress.now + duration(options.checkpoints_timeout)
    yield from _store_checkpoints_steps(state, progress, deadline, diagnostics, storage)
    if progress.now - state.last_checkpoint_gc > duration(options.checkpoints_gc_interval):
        state.last_checkpoint_gc = progress.now

        def collect(now: Moment) -> StepsOf[List | Get | Delete, list[str]]:
            return collect_checkpoints_steps(state, vpas, now)

        diagnostics += yield from progress.within(deadline - progress.now, collect)


# -- writing ---------------------------------------------------------------------------------------------------


def _store_checkpoints_steps(
    state: RecommenderState,
    progress: Progress,
    deadline: Moment,
    diagnostics: list[str],
    storage: CheckpointStorage | None,
) -> StepsOf[Together | Wait, None]:
    """Store checkpoints (``StoreCheckpoints``), those of several VPAs concurrently.

    VPAs that are still fetching history are skipped. After the deadline no write begins, except that at least as many
    VPAs as workers are always written. If the deadline has passed at the end, a text is added to ``diagnostics``. VPAs
    are prepared and written in batches, so that the prepared checkpoints of few VPAs are in memory.
    """
    ready = [
        vpa
        for vpa in state.vpas.values()
        if FETCHING_HISTORY not in vpa.conditions or not vpa.condition_is_true(FETCHING_HISTORY)
    ]
    ordered = sorted(ready, key=attrgetter("checkpoint_written", "namespace", "name"))
    ended = None if storage is None else _store_later(state, ordered, progress.now, deadline, storage)
    if ended is None:
        yield from _write_checkpoints_steps(state, ordered, progress, deadline, diagnostics)
    else:
        yield from progress.wait(ended - progress.now)
    if progress.now >= deadline:
        diagnostics.append(f"{_TIMEOUT_TEXT}: {DEADLINE_EXCEEDED.message}")


def _write_checkpoints_steps(
    state: RecommenderState, vpas: Sequence[Vpa], progress: Progress, deadline: Moment, diagnostics: list[str]
) -> StepsOf[Together, None]:
    """Write the checkpoints of VPAs with requests, as :func:`_store_checkpoints_steps` does."""
    prepared, workers = CheckpointBatch(state), state.options.update_worker_count
    for first in range(0, len(vpas), _VPAS_PER_BATCH):
        if first >= workers and progress.now >= deadline:
            break
        batch = vpas[first : first + _VPAS_PER_BATCH]
        prepared.prepare(batch, progress.now)
        writes = [
            _CheckpointWrite(vpa, prepared, ZERO_TIME if number < workers else deadline, diagnostics)
            for number, vpa in enumerate(batch, first)
        ]
        yield from progress.together(writes, at_most=workers, brief=True)


def _store_later(
    state: RecommenderState, vpas: Sequence[Vpa], now: Moment, deadline: Moment, storage: CheckpointStorage
) -> Moment | None:
    """Store the checkpoints of VPAs in one call, with the times that concurrent requests would have had.

    Returns the time at which the last request would end. Returns None, and stores nothing, if there are no VPAs, a VPA
    does not have exactly one container, a request would begin after the deadline, or the storage wants requests.
    """
    if not vpas:
        return None
    workers, latency = state.options.update_worker_count, storage.latency
    of_batch = [i // workers * latency for i in range(_VPAS_PER_BATCH)]
    batch_time = of_batch[-1] + latency  # a batch begins when the one before has ended
    times = [now + i // _VPAS_PER_BATCH * batch_time + of_batch[i % _VPAS_PER_BATCH] for i in range(len(vpas))]
    merged = _MergedCheckpoints.of(state, vpas, copies=True)
    if [vpa for vpa, _ in merged.names] != vpas or times[-1] >= deadline:  # each has one container
        return None
    keys = [object_key(vpa.namespace, f"{vpa.name}-{name}") for vpa, name in merged.names]

    def build() -> dict[str, VerticalPodAutoscalerCheckpointStatus]:
        written = zip(keys, merged.prepare(times), times, strict=True)
        return {key: prepared.build(time)[0][1] for key, prepared, time in written}

    if not storage.store_later(keys, build):
        return None
    for vpa, time in zip(vpas, times, strict=True):
        vpa.checkpoint_written = time
    return times[-1] + latency


class _CheckpointWrite(SingleAction):
    """Writes the checkpoints of one VPA, by container name, unless the ``deadline`` has passed (the zero time: none).

    Errors are added to ``diagnostics``.
    """

    __slots__ = ("_begun", "_deadline", "_diagnostics", "_left", "prepared", "vpa")

    def __init__(self, vpa: Vpa, prepared: CheckpointBatch, deadline: Moment, diagnostics: list[str]) -> None:
        self.vpa, self.prepared, self._deadline, self._diagnostics = vpa, prepared, deadline, diagnostics
        self._left: list[tuple[str, VerticalPodAutoscalerCheckpointStatus]] = []
        self._begun = ZERO_TIME

    def is_due(self, now: Moment) -> bool:
        """Check whether ``now`` is before the deadline, or there is no deadline."""
        return self._deadline == ZERO_TIME or now < self._deadline

    def build(self, now: Moment) -> Patch | None:
        """Return the patch of the first container's checkpoint; None after the deadline or without containers."""
        if not self.is_due(now):
            return None
        self._begun, self._left = now, self.prepared.pop(self.vpa, now)
        return self._build_patch() if self._left else None

    def finish(self, outcome: Outcome) -> StepsOf[Patch | Create, None] | None:
        """Record the outcome of the first patch.

        Returns the steps for further containers and for a checkpoint that does not exist yet; None if there are none.
        """
        if outcome.error is None and len(self._left) == 1:
            self.vpa.checkpoint_written = self._begun
            return None
        return self._continue_steps(outcome)

    def _continue_steps(self, outcome: Outcome) -> StepsOf[Patch | Create, None]:
        """Create the checkpoint if there is none, and write those of the other containers; failures are diagnostics."""
        vpa, progress = self.vpa, Progress(outcome.at)
        while True:
            container, status = self._left.pop(0)
            name = f"{vpa.name}-{container}"
            if outcome.error is not None and f'"{name}" not found' in outcome.error.message:
                checkpoint = VerticalPodAutoscalerCheckpoint(
                    api_version=API_VERSION,
                    kind=_CHECKPOINT_KIND,
                    metadata=ObjectMeta(name=name, namespace=vpa.namespace),
                    spec=VerticalPodAutoscalerCheckpointSpec(vpa_object_name=vpa.name, container_name=container),
                    status=status,
                )
                outcome = yield from progress.act(Create(checkpoint))
            if outcome.error is None:
                vpa.checkpoint_written = self._begun
            else:
                where = f"{vpa.namespace}/{vpa.name} container {container}"
                self._diagnostics.append(f"Cannot save checkpoint for VPA {where}: {outcome.error.message}")
            if not self._left:
                return
            outcome = yield from progress.act(self._build_patch())

    def _build_patch(self) -> Patch:
        """Build the patch of the next container's checkpoint (``CreateOrUpdateVpaCheckpoint``)."""
        container, status = self._left[0]
        return Patch(
            kind=_CHECKPOINT_KIND,
            api_version=API_VERSION,
            namespace=self.vpa.namespace,
            name=f"{self.vpa.name}-{container}",
            type="json",
            patch=(PatchOperation("replace", "/status", status),),
        )


# -- deleting --------------------------------------------------------------------------------------------------


def collect_checkpoints_steps(
    state: RecommenderState, vpas: Sequence[VerticalPodAutoscaler] | None, now: Moment
) -> StepsOf[List | Get | Delete, list[str]]:
    """Delete checkpoints whose VPA no longer exists, and return texts of failures (``GarbageCollectCheckpoints``).

    Only namespaces that exist and are not ignored are considered. The VPA is requested before its history is deleted,
    as an unreadable VPA, or one that the watch has not delivered yet, is not among ``vpas`` either.
    """
    progress = Progress(now)
    if vpas is None:
        return ["Cannot list VPAs"]
    listed = yield from progress.act(List(kind="Namespace", api_version="v1", watched=False))
    if listed.error is not None:
        return [f"Cannot list namespaces: {listed.error.message}"]
    namespaces = [each.name for each in listed.value if not state.options.ignores(each.name)]
    checkpoints = yield from progress.act(
        List(
            kind=_CHECKPOINT_KIND, api_version=API_VERSION, namespace=state.options.vpa_object_namespace, watched=False
        )
    )
    if checkpoints.error is not None:
        return [f"error cleaning checkpoints: {checkpoints.error.message}"]
    problems = []
    are_gone: dict[tuple[str, str], bool] = {}
    for item in find_orphaned_checkpoints(checkpoints.value, vpas, namespaces):
        key = item.namespace, item.spec.vpa_object_name
        if key not in are_gone:
            are_gone[key] = yield from _is_deleted_steps(*key, progress)
        if not are_gone[key]:
            continue
        deleted = yield from progress.act(
            Delete(kind=_CHECKPOINT_KIND, api_version=API_VERSION, namespace=item.namespace, name=item.name)
        )
        if deleted.error is not None:
            text = f"failed to delete orphaned checkpoint {item.key}: {deleted.error.message}"
            problems.append(f"error cleaning checkpoints: {text}")
    return problems


def _is_deleted_steps(namespace: str, name: str, progress: Progress) -> StepsOf[Get, bool]:
    """Request a VPA and return whether it does not exist: True for an empty name, False if the request fails."""
    if not name:
        return True
    asked = Get(kind="VerticalPodAutoscaler", api_version=API_VERSION, namespace=namespace, name=name)
    error = (yield from progress.act(asked)).error
    return error is not None and error.is_not_found


def find_orphaned_checkpoints(
    checkpoints: Iterable[VerticalPodAutoscalerCheckpoint],
    vpas: Iterable[VerticalPodAutoscaler],
    namespaces: Sequence[str],
) -> list[VerticalPodAutoscalerCheckpoint]:
    """Return the checkpoints whose VPA is not among ``vpas``, namespace by namespace in the order of ``namespaces``.

    Checkpoints of other namespaces are left out.
    """
    existing = {(vpa.namespace, vpa.name) for vpa in vpas}
    by_namespace: dict[str, list[VerticalPodAutoscalerCheckpoint]] = {}
    for item in checkpoints:
        by_namespace.setdefault(item.namespace, []).append(item)
    return [
        item
        for namespace in namespaces
        for item in by_namespace.get(namespace, ())
        if (item.namespace, item.spec.vpa_object_name) not in existing
    ]
