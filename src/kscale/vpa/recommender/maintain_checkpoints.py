"""``MaintainCheckpoints``: checkpoints are written, orphans deleted (``checkpoint``, ``input/cluster_feeder.go``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, Never

from kscale.effects import (
    DEADLINE_EXCEEDED,
    ApiError,
    Create,
    Delete,
    Get,
    List,
    Moment,
    Patch,
    PatchOperation,
    Progress,
    StepsOf,
    Together,
    Within,
    duration,
)
from kscale.objects.meta import ObjectMeta
from kscale.objects.vpa import (
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCheckpointSpec,
    VerticalPodAutoscalerCheckpointStatus,
)
from kscale.vpa.model import RecommenderState, Vpa
from kscale.vpa.model.vpa import FETCHING_HISTORY
from kscale.vpa.recommender.container_checkpoints import ContainerCheckpoints
from kscale.vpa.recommender.update_vpas import API_VERSION

__all__ = ["collect_checkpoints_steps", "maintain_checkpoints_steps", "orphaned"]

_KIND: Final = "VerticalPodAutoscalerCheckpoint"
_TOGETHER: Final = 256
"""VPAs that are prepared in one call."""
_TOO_LATE: Final = "Failed to store all checkpoints within the configured `checkpoints-timeout`"


def maintain_checkpoints_steps(
    state: RecommenderState,
    vpas: Sequence[VerticalPodAutoscaler] | None,
    progress: Progress,
    diagnostics: list[str],
) -> StepsOf[Together | Within, None]:
    """Writes checkpoints within ``checkpoints_timeout``, the one written longest ago first; now and then deletes those
    that belong to no VPA. ``vpas``: all that there are, of whatever recommender; None: they could not be listed.
    """
    options = state.options
    if not options.use_checkpoints:
        return
    deadline = progress.now + duration(options.checkpoints_timeout)
    yield from _store_steps(state, progress, deadline, diagnostics)
    if progress.now - state.last_checkpoint_gc > duration(options.checkpoints_gc_interval):
        state.last_checkpoint_gc = progress.now

        def collect(now: Moment) -> StepsOf[List | Get | Delete, list[str]]:
            return collect_checkpoints_steps(state, vpas, now)

        diagnostics += yield from progress.within(deadline - progress.now, collect)


# -- writing ---------------------------------------------------------------------------------------------------


def _store_steps(
    state: RecommenderState, progress: Progress, deadline: Moment, diagnostics: list[str]
) -> StepsOf[Together, None]:
    """``StoreCheckpoints``. Each worker finishes a VPA before it looks at the time, so those of as many VPAs as there
    are workers are written even when it is over."""
    ready = [vpa for vpa in state.vpas.values() if not vpa.condition_is_true(FETCHING_HISTORY)]
    ordered = sorted(ready, key=lambda vpa: (vpa.checkpoint_written, vpa.key))
    waiting = deque(enumerate(ordered))
    prepared = ContainerCheckpoints(state)

    def worker(begun: Moment) -> StepsOf[Patch | Create | Together, None]:
        mine = Progress(begun)
        while waiting:
            number, vpa = waiting.popleft()
            if vpa not in prepared:  # by itself, as it is no brief step
                first = number - number % _TOGETHER
                yield from mine.together([partial(_prepare_steps, prepared, vpa, ordered[first : first + _TOGETHER])])
            yield from _write_steps(vpa, prepared, mine, diagnostics)
            if mine.now >= deadline:
                return

    if waiting:
        workers = [worker] * min(state.options.update_worker_count, len(waiting))
        yield from progress.together(workers, brief=True)
    if progress.now >= deadline:
        diagnostics.append(f"{_TOO_LATE}: {DEADLINE_EXCEEDED.message}")


def _prepare_steps(prepared: ContainerCheckpoints, vpa: Vpa, those: Sequence[Vpa], now: Moment) -> StepsOf[Never, None]:
    """Prepares those that a VPA is among, unless another worker's turn came first."""
    if vpa not in prepared:
        prepared.prepare(those, now)
    yield from ()


def _write_steps(
    vpa: Vpa, prepared: ContainerCheckpoints, progress: Progress, diagnostics: list[str]
) -> StepsOf[Patch | Create, None]:
    """Writes the checkpoints of one VPA, those of its containers by name."""
    now = progress.now
    for container, status in prepared.take(vpa, now):
        error = yield from _save_steps(vpa, container, status, progress)
        if error is None:
            vpa.checkpoint_written = now
        else:
            where = f"{vpa.namespace}/{vpa.name} container {container}"
            diagnostics.append(f"Cannot save checkpoint for VPA {where}: {error.message}")


def _save_steps(
    vpa: Vpa, container: str, status: VerticalPodAutoscalerCheckpointStatus, progress: Progress
) -> StepsOf[Patch | Create, ApiError | None]:
    """``CreateOrUpdateVpaCheckpoint``."""
    name = f"{vpa.name}-{container}"
    outcome = yield from progress.act(
        Patch(
            kind=_KIND,
            api_version=API_VERSION,
            namespace=vpa.namespace,
            name=name,
            type="json",
            patch=(PatchOperation("replace", "/status", status),),
        )
    )
    if outcome.error is not None and f'"{name}" not found' in outcome.error.message:
        made = VerticalPodAutoscalerCheckpoint(
            api_version=API_VERSION,
            kind=_KIND,
            metadata=ObjectMeta(name=name, namespace=vpa.namespace),
            spec=VerticalPodAutoscalerCheckpointSpec(vpa_object_name=vpa.name, container_name=container),
            status=status,
        )
        outcome = yield from progress.act(Create(made))
    return outcome.error


# -- deleting --------------------------------------------------------------------------------------------------


def collect_checkpoints_steps(
    state: RecommenderState, vpas: Sequence[VerticalPodAutoscaler] | None, now: Moment
) -> StepsOf[List | Get | Delete, list[str]]:
    """``GarbageCollectCheckpoints``: deletes checkpoints of live namespaces whose VPA is gone; texts of what failed.

    Before a history is deleted, its VPA is asked for: one that cannot be read, or that the watch has not brought yet,
    is not among ``vpas``, either.
    """
    progress = Progress(now)
    if vpas is None:
        return ["Cannot list VPAs"]
    listed = yield from progress.act(List(kind="Namespace", api_version="v1", watched=False))
    if listed.error is not None:
        return [f"Cannot list namespaces: {listed.error.message}"]
    namespaces = [each.name for each in listed.value if not state.options.ignores(each.name)]
    found = yield from progress.act(
        List(kind=_KIND, api_version=API_VERSION, namespace=state.options.vpa_object_namespace, watched=False)
    )
    if found.error is not None:
        return [f"error cleaning checkpoints: {found.error.message}"]
    problems = []
    are_gone: dict[tuple[str, str], bool] = {}
    for item in orphaned(found.value, vpas, namespaces):
        key = item.namespace, item.spec.vpa_object_name
        if key not in are_gone:
            are_gone[key] = yield from _is_gone(*key, progress)
        if not are_gone[key]:
            continue
        gone = yield from progress.act(
            Delete(kind=_KIND, api_version=API_VERSION, namespace=item.namespace, name=item.name)
        )
        if gone.error is not None:
            text = f"failed to delete orphaned checkpoint {item.key}: {gone.error.message}"
            problems.append(f"error cleaning checkpoints: {text}")
    return problems


def _is_gone(namespace: str, name: str, progress: Progress) -> StepsOf[Get, bool]:
    if not name:
        return True
    asked = Get(kind="VerticalPodAutoscaler", api_version=API_VERSION, namespace=namespace, name=name)
    error = (yield from progress.act(asked)).error
    return error is not None and error.is_not_found


def orphaned(
    checkpoints: Iterable[VerticalPodAutoscalerCheckpoint],
    vpas: Iterable[VerticalPodAutoscaler],
    namespaces: Sequence[str],
) -> list[VerticalPodAutoscalerCheckpoint]:
    """The checkpoints of these namespaces, in their order, whose VPA is not among ``vpas``."""
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
