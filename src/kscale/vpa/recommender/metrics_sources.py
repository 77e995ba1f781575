"""Where a round's usage comes from: metrics-server, or external metrics (``pkg/recommender/input/metrics``)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kscale.effects import ApiError, GetMetric, Progress, StepsOf, from_text
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.objects.base import ResourceList
from kscale.objects.meta import ObjectMeta
from kscale.objects.metrics import ContainerMetrics, ExternalMetricValueList, PodMetrics, PodMetricsList
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.selectors import EQUALS, Selector, SelectorError, requirement
from kscale.vpa.model import CPU_SAMPLE, MEMORY_SAMPLE, RecommenderState, Usage
from kscale.vpa.model.usage import ContainerName
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["external_metrics_steps", "usage_of_columns", "usage_of_pods"]


@typed
def usage_of_pods(items: Iterable[PodMetrics]) -> Usage:
    """Two samples of each container of ``items`` at its pod's time, CPU first; an amount that is missing counts as 0.

    A time that is missing is the zero time, of which no sample is taken in. Raises :class:`InputError` for a text that
    is no time.
    """
    names: list[ContainerName] = []
    times: list[int] = []
    values: list[int] = []
    for pod in items:
        if not pod.containers:
            continue
        try:
            time = from_text(pod.timestamp)
        except ValueError as error:
            raise InputError(Problem(str(error), f"PodMetrics {pod.key}", field="timestamp")) from None
        namespace, name = pod.namespace, pod.name
        for container in pod.containers:
            usage = container.usage
            cpu, memory = usage.get(CPU), usage.get(MEMORY)
            names.append((namespace, name, container.name))
            times.append(time)
            values.append(cpu.milli_value() if cpu is not None else 0)
            values.append(memory.value() if memory is not None else 0)
    count = len(names)
    return Usage(
        names,
        np.repeat(np.arange(count, dtype=np.int32), 2),
        np.repeat(np.array(times, np.int64), 2),
        np.array(values, np.int64),
        np.tile(np.array([CPU_SAMPLE, MEMORY_SAMPLE], np.uint8), count),
    )


def usage_of_columns(found: PodUsage) -> Usage:
    """The same of columns."""
    counts = np.diff(found.ends, prepend=0)
    values = np.zeros((len(found.container), 2), np.int64)
    for name, milli, _ in found.columns():
        if name == CPU:
            values[:, CPU_SAMPLE] = milli
    values[:, MEMORY_SAMPLE] = found.whole(MEMORY)
    which, kind = _by_turns(len(values))
    each = 2 * counts[0] if len(counts) and (counts == counts[0]).all() else 2 * counts
    return Usage(found.container_names(), which, np.repeat(found.time, each), values.ravel(), kind)


@lru_cache(maxsize=1)  # every scrape of the same pods has these
def _by_turns(count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Which container, and the kind, of two samples of each."""
    which = np.repeat(np.arange(count, dtype=np.int32), 2)
    kind = np.tile(np.array([CPU_SAMPLE, MEMORY_SAMPLE], np.uint8), count)
    which.setflags(write=False)
    kind.setflags(write=False)
    return which, kind


@typed
def external_metrics_steps(
    state: RecommenderState, progress: Progress, namespace: str = ""
) -> StepsOf[GetMetric, PodMetricsList | ApiError]:
    """Asks external.metrics.k8s.io for each pod of each VPA that has some, in ``namespace`` or all.

    ``progress``: of the machine that asks. What the metrics say of the pods, as metrics-server would; or why one
    question was refused: then nothing is known of any pod. Which metrics, and the label that tells containers apart,
    are options of the recommender.

    VPAs and their pods by name, CPU first. Time and window are those of the first item of the last answer that has
    one; of two items of one container the last counts; items without the label of the container are passed over. A pod
    that two VPAs select is asked for twice.
    """
    options = state.options
    wanted = ((CPU, options.external_metrics_cpu_metric), (MEMORY, options.external_metrics_memory_metric))
    found = []
    for key in sorted(state.vpas):
        vpa = state.vpas[key]
        if vpa.pod_count == 0 or (namespace and vpa.namespace != namespace):
            continue
        for pod in state.matching_pods(vpa):
            try:
                selector = str(_and_pod(vpa.selector, pod.name))
            except SelectorError as error:  # a name that is too long for a label
                return ApiError(str(error))
            timestamp, window = None, 0
            usage: dict[str, ResourceList] = {}
            for resource, metric in wanted:
                if not metric:
                    continue
                outcome = yield from progress.act(
                    GetMetric(api="external", namespace=vpa.namespace, metric=metric, metric_selector=selector)
                )
                if outcome.error is not None:
                    return outcome.error
                answer: ExternalMetricValueList = outcome.value
                if answer.items:
                    timestamp, window = answer.items[0].timestamp, answer.items[0].window or window
                for item in answer.items:
                    name = (item.metric_labels or {}).get(options.container_name_label)
                    if name is not None:
                        usage.setdefault(name, {})[resource] = item.value
            found.append(
                PodMetrics(
                    metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
                    timestamp=timestamp,
                    window=f"{window}s",
                    containers=[ContainerMetrics(name=name, usage=usage[name]) for name in sorted(usage)],
                )
            )
    return PodMetricsList(items=found)


def _and_pod(selector: Selector, pod: str) -> Selector:
    """A selector that also wants the pod's name; requirements by key."""
    added = (*selector.requirements, requirement("pod", EQUALS, [pod]))
    return Selector(tuple(sorted(added, key=lambda item: item.key)), selector.nothing)
