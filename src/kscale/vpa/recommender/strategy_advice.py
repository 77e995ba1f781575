"""Apply a strategy in a running recommender, with samples of past days from Prometheus and with OOM kills."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from kscale.effects import (
    SECOND,
    InBackground,
    Metric,
    Moment,
    Observation,
    Observe,
    Progress,
    QueryPrometheus,
    StepsOf,
    Together,
    Wait,
    Within,
    duration,
)
from kscale.errors import InputError, KscaleError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import RecommendedContainerResources, RecommendedPodResources
from kscale.series.columns import Series, SeriesKey
from kscale.series.prometheus import LastLabels, PrometheusHistory, container_keys, last_labels
from kscale.vpa.model.saved_state import RecommenderState, Vpa
from kscale.vpa.model.usage import ContainerName, OutOfMemory, find_last_oom_kills
from kscale.vpa.model.vpa import LabelSet
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.cluster_feeder import query_prometheus_steps
from kscale.vpa.recommender.estimators import format_resources, recommend_pod_resources
from kscale.vpa.resources import CPU, MEMORY
from kscale.vpa.strategies import ContainerUsage, Strategy, StrategyAdvice, get_checked_advice

__all__ = [
    "MAX_RESPONSE_BYTES",
    "STRATEGY_METRICS",
    "LatestAdvice",
    "OOMKillHistory",
    "StrategyAdvisor",
    "apply_advice",
]


class _OOMKillRecord(NamedTuple):
    time: Moment
    memory: int


class OOMKillHistory:
    """OOM kills since the start. Not safe for concurrent use.

    Kills are stored by the pod's labels, as a killed pod is often removed when its kill matters. Of a container's kills
    with equal labels, those that a later and greater one supersedes are dropped, so the first is the greatest.
    """

    def __init__(self) -> None:
        self._by_container: dict[tuple[str, str], dict[str, tuple[LabelSet, list[_OOMKillRecord]]]] = {}
        """(namespace, container) -> key of the label set."""
        self._seen: dict[ContainerName, Moment] = {}
        """Time of the last kill by container of existing pods, as the status repeats a kill with current requests."""

    def __len__(self) -> int:
        return sum(len(kills) for own in self._by_container.values() for _, kills in own.values())

    def notice(self, state: RecommenderState, pods: Iterable[Pod], ooms: Iterable[OutOfMemory]) -> list[str]:
        """Record the OOM kills in ``ooms`` and in the statuses of ``pods``. ``state`` must contain the killed pods.

        Kills of pods that it lacks, and kills that are not newer than the container's last one, are skipped. Returns
        texts on kills that cannot be read.
        """
        problems: list[str] = []
        for oom in sorted((*ooms, *find_last_oom_kills(pods, problems)), key=attrgetter("time")):
            namespace, pod, container = oom.container
            pod_state = state.pods.get((namespace, pod))
            seen = self._seen.get(oom.container)
            if pod_state is None or (seen is not None and oom.time <= seen):
                continue
            self._seen[oom.container] = oom.time
            own = self._by_container.setdefault((namespace, container), {})
            _, kills = own.get(pod_state.label_set.key, (None, []))
            own[pod_state.label_set.key] = (
                pod_state.label_set,
                _insert_kill(kills, _OOMKillRecord(oom.time, oom.memory)),
            )
        return problems

    def forget(self, state: RecommenderState, before: Moment) -> None:
        """Drop kills before the time ``before``, and kills of label sets without pods that no VPA selects."""
        self._seen = {name: at for name, at in self._seen.items() if name[:2] in state.pods}
        for container_key, own in list(self._by_container.items()):
            remaining = {}
            for key, (label_set, kills) in own.items():
                newer = [kill for kill in kills if kill.time >= before]
                if newer and (label_set.pods or state.is_selected(label_set.namespace, label_set.labels)):
                    remaining[key] = (label_set, newer)
            if remaining:
                self._by_container[container_key] = remaining
            else:
                del self._by_container[container_key]

    def get_max_bytes(self, vpa: Vpa, container: str) -> int:
        """Return the greatest memory (bytes) of the kills of a container of a VPA's pods; 0 without kills."""
        own = self._by_container.get((vpa.namespace, container), {})
        return max(
            (kills[0].memory for label_set, kills in own.values() if vpa.selector.matches(label_set.labels)), default=0
        )


def _insert_kill(kills: list[_OOMKillRecord], new: _OOMKillRecord) -> list[_OOMKillRecord]:
    """Return a new list of OOM kills with ``new`` added, sorted by time. ``kills`` is not changed.

    A kill is left out if a later one had at least as much memory. This also applies to ``new``. If an old kill has the
    same time as ``new``, and no more memory, the old one is left out.
    """
    remaining = [kill for kill in kills if kill.time > new.time or kill.memory > new.memory]
    if any(kill.time > new.time and kill.memory >= new.memory for kill in remaining):
        return remaining
    return sorted((*remaining, new))


_MAX_POINTS: Final = 11_000
"""Maximum number of values of a series in one response of Prometheus."""
MAX_RESPONSE_BYTES: Final = 512 << 20
"""Default maximum size of a response."""
_MAX_CONCURRENT_NAMESPACES: Final = 4
"""Namespaces that are queried at a time."""
_MAX_CONCURRENT_RETRIES: Final = _MAX_CONCURRENT_NAMESPACES - 1
"""Namespaces queried at a time whose last query failed."""
_POLL_INTERVAL: Final = SECOND // 10
"""Interval at which a loop checks whether its queries are finished."""
_SAMPLES_METRIC: Final = "kscale_strategy_samples_total"
STRATEGY_METRICS: Final = (
    Metric(_SAMPLES_METRIC, "counter", ("resource",), help="Usage samples that strategies received."),
)
"""Metrics of the samples that strategies received."""
_Labels = Mapping[tuple[str, str], LastLabels]
_UsageByVpa = dict[Vpa, dict[str, ContainerUsage]]
_NO_SAMPLES_CONDITION: Final = (
    "NoSamples",
    "Prometheus has given no samples for the strategy yet; what was recommended stays",
)


class LatestAdvice(msgspec.Struct, frozen=True):
    """Latest advice of a strategy by VPA.

    ``by_vpa``: advice by container. ``failures``: why there has been no advice since. A VPA whose selector changed is a
    new one without advice.
    """

    by_vpa: dict[Vpa, Mapping[str, StrategyAdvice]] = {}
    failures: dict[Vpa, str] = {}

    def missing(self, vpa: Vpa) -> tuple[str, str] | None:
        """Return (reason, text) of the condition of a VPA without advice, or whose last advice failed; else None."""
        if vpa in self.failures:
            return ("StrategyFailed", f"{self.failures[vpa]}; what was recommended stays")
        return None if vpa in self.by_vpa else _NO_SAMPLES_CONDITION

    def for_vpas(self, vpas: Container[Vpa]) -> LatestAdvice:
        """Return a copy with the advice and failures of the VPAs in ``vpas`` only."""
        return LatestAdvice(
            by_vpa={vpa: advice for vpa, advice in self.by_vpa.items() if vpa in vpas},
            failures={vpa: why for vpa, why in self.failures.items() if vpa in vpas},
        )


class _NamespaceRequest(NamedTuple):
    """The last request for a VPA: its containers with usage, and when the next request is due."""

    containers: frozenset[str]
    due_at: Moment


class _ContainerSamples(NamedTuple):
    """Samples of one resource of a container from one series, in order of time."""

    resource: str
    key: SeriesKey
    values: np.ndarray


class StrategyAdvisor:
    """Requests samples, and stores the strategy's advice of VPAs with samples. Not safe for concurrent use.

    ``advice``: the advice. ``kills``: OOM kills, for memory. All samples of a namespace are queried at each
    ``interval`` (nanoseconds), or at once if a VPA is new there, has another selector than before, or has usage of a
    new container. Queries run in the background, four namespaces at a time. A query may take ``timeout``, independent
    of loops, and its response may have ``most_bytes``. A loop waits up to half of ``recommender_interval`` for the
    queries that it starts, and later loops use what has arrived since. Only the advice is stored, so at most the
    samples of four namespaces are in memory. A response applies to VPAs that existed at the time of the query and still
    exist.

    A namespace whose query fails keeps its advice and is queried again in the next loop, after other namespaces, and
    with at most two others like it. So queries that hang leave room for the rest. A VPA for which the strategy fails
    also keeps its advice, until the interval is over.

    Removed pods are matched by the labels that Prometheus has. Raises :class:`~kscale.errors.InputError` for a history
    of more values than Prometheus returns at once.
    """

    def __init__(
        self,
        strategy: Strategy,
        history: PrometheusHistory,
        *,
        interval: int,
        timeout: int,
        most_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._strategy, self._history = strategy, history
        self._interval, self._timeout, self._most_bytes = interval, timeout, most_bytes
        for query in history.range_queries(0):
            points = (query.end - query.start) // query.step + 1 if query.step else _MAX_POINTS + 1
            if points > _MAX_POINTS:
                text = f"{history.history_length} by {history.history_resolution} are more than {_MAX_POINTS:,} values"
                raise InputError(f"a history of {text} of a container, the most that Prometheus answers")
        self.advice = LatestAdvice()
        self.kills = OOMKillHistory()
        self._last_requests: dict[Vpa, _NamespaceRequest] = {}
        self._last_attempts: dict[str, Moment] = {}
        """Start of the last query of each namespace, successful or not."""
        self._failed: set[str] = set()
        """Namespaces whose last query failed."""
        self._pending: set[str] = set()
        """Namespaces that are due but not queried yet."""
        self._in_progress: dict[str, Moment] = {}
        """Start of the running query of each namespace."""
        self._is_reading_labels = False
        """Whether the labels are being queried, before namespaces."""
        self._problems: list[str] = []

    def clock_set(self, by: int) -> None:
        """Shift the stored times by ``by`` nanoseconds after the clock was set; remaining intervals stay equal."""
        self._last_requests = {
            vpa: request._replace(due_at=request.due_at + by) for vpa, request in self._last_requests.items()
        }
        self._last_attempts = {namespace: at + by for namespace, at in self._last_attempts.items()}
        self._in_progress = {namespace: at + by for namespace, at in self._in_progress.items()}

    def refresh_steps(self, state: RecommenderState, progress: Progress) -> StepsOf[InBackground | Wait, list[str]]:
        """Start queries that are due in the background, wait for them, and update ``advice``.

        Nothing is started while the labels of pods are being read, or while as many namespaces as allowed are queried.
        The wait takes at most half of ``recommender_interval``. Returns texts of problems since the last call.
        """
        vpas = _group_by_namespace(state)
        observed = {vpa for own in vpas.values() for vpa in own}
        now = progress.now
        self.advice = self.advice.for_vpas(observed)
        self._last_requests = {vpa: request for vpa, request in self._last_requests.items() if vpa in observed}
        self._last_attempts = {namespace: at for namespace, at in self._last_attempts.items() if namespace in vpas}
        self._failed &= vpas.keys()
        self.kills.forget(state, self._history.range_queries(now)[0].start)
        due = [name for name, own in vpas.items() if any(self._is_due(state, vpa, now) for vpa in own)]
        self._pending = set(due) - self._in_progress.keys()
        started = frozenset(self._pending - self._failed if self._is_retry_limit_reached else self._pending)
        if started and not self._is_reading_labels and len(self._in_progress) < _MAX_CONCURRENT_NAMESPACES:
            self._is_reading_labels = True
            yield from progress.act(InBackground(partial(self._query_steps, state)))
            remaining = duration(state.options.recommender_interval) // 2
            while remaining > 0 and not started.isdisjoint(self._pending | self._in_progress.keys()):
                yield from progress.wait(_POLL_INTERVAL)
                remaining -= _POLL_INTERVAL
        problems, self._problems = self._problems, []
        return problems

    def _is_due(self, state: RecommenderState, vpa: Vpa, now: Moment) -> bool:
        """Check whether a query for a VPA is due: it is new, its interval is over, or a new container has usage."""
        request = self._last_requests.get(vpa)
        return (
            request is None
            or request.due_at <= now
            or not request.containers.issuperset(_find_used_containers(state, vpa))
        )

    def _query_steps(self, state: RecommenderState, now: Moment) -> StepsOf[Within | Observe | Together, None]:
        """Query the namespaces in ``_pending`` in parallel, as many at a time as the limit allows.

        Namespaces whose last query failed come last. If the labels of pods cannot be read, add a problem and empty
        ``_pending``.
        """
        progress = Progress(now)
        warnings: dict[str, None] = {}
        try:
            labels = yield from self._request_labels_steps(warnings, progress)
        except InputError as error:
            self._problems.append(f"Cannot get samples for the strategy {self._name}: {error}")
            self._pending.clear()  # until the next round
            return
        finally:
            self._is_reading_labels = False
            self._add_warnings(warnings)
        names = sorted(self._pending, key=lambda name: (name in self._failed, self._last_attempts.get(name, 0), name))
        queue = deque(names)
        room = min(_MAX_CONCURRENT_NAMESPACES - len(self._in_progress), len(names))
        yield from progress.together([partial(self._query_queue_steps, state, labels, queue)] * room)

    def _query_queue_steps(
        self, state: RecommenderState, labels: _Labels, queue: deque[str], now: Moment
    ) -> StepsOf[Within | Observe, None]:
        """Query the namespaces of a queue one after the other, except those that another queue has queried.

        Ends before a namespace whose last query failed if the limit of concurrent retries is reached; the other queues
        query it later.
        """
        progress = Progress(now)
        while queue:
            if queue[0] in self._failed and self._is_retry_limit_reached:
                return  # leave the rest to the queues that retry one of these
            namespace = queue.popleft()
            if namespace in self._pending:
                self._pending.remove(namespace)
                self._in_progress[namespace] = self._last_attempts[namespace] = progress.now
                try:
                    yield from self._query_namespace_steps(state, labels, namespace, progress)
                finally:
                    del self._in_progress[namespace]

    def _query_namespace_steps(
        self, state: RecommenderState, labels: _Labels, namespace: str, progress: Progress
    ) -> StepsOf[Within | Observe, None]:
        """Query the samples of a namespace and update the advice of its VPAs; a failure is recorded.

        After a success the next query is due an interval after the start of this one. VPAs that were added during
        the query are left out.
        """
        used = {vpa: _find_used_containers(state, vpa) for vpa in _group_by_namespace(state).get(namespace, [])}
        warnings: dict[str, None] = {}
        try:
            samples = yield from self._request_samples_steps(namespace, warnings, progress)
        except InputError as error:
            self._failed.add(namespace)
            self._problems.append(f"Cannot get samples of namespace {namespace} for the strategy {self._name}: {error}")
            return
        finally:
            self._add_warnings(warnings)
        self._failed.discard(namespace)
        vpas = [vpa for vpa in _group_by_namespace(state).get(namespace, []) if vpa in used]
        sample_counts: Counter[str] = Counter()
        self._problems += self._update_advice(state, vpas, _group_samples_by_vpa(state, labels, samples), sample_counts)
        for vpa in vpas:
            self._last_requests[vpa] = _NamespaceRequest(used[vpa], self._in_progress[namespace] + self._interval)
        yield from progress.observe(
            *(
                Observation(name=_SAMPLES_METRIC, labels={"resource": name}, value=float(n))
                for name, n in sample_counts.items()
            )
        )

    @property
    def _is_retry_limit_reached(self) -> bool:
        """Return whether the limit of concurrent queries of namespaces whose last query failed is reached."""
        return len(self._failed & self._in_progress.keys()) >= _MAX_CONCURRENT_RETRIES

    @property
    def _name(self) -> str:
        """Return the name of the strategy; the name of its class if it has none."""
        return self._strategy.name or type(self._strategy).__name__

    def _add_warnings(self, warnings: Iterable[str]) -> None:
        """Add warnings of Prometheus to the problems, each once."""
        messages = (f"Prometheus warns of the samples for the strategy {self._name}: {text}" for text in warnings)
        self._problems += (text for text in messages if text not in self._problems)

    def _request_labels_steps(
        self, warnings: dict[str, None], progress: Progress
    ) -> StepsOf[Within | Observe, _Labels]:
        """Query the labels of all pods; empty if the strategy needs no samples.

        Raises InputError if the query fails. ``warnings`` receives the texts of Prometheus as keys.
        """
        if not self._strategy.needs_samples:
            return {}
        query = QueryPrometheus(
            query=self._history.metric_for_pod_labels, end=progress.now, most_bytes=self._most_bytes
        )
        series = yield from query_prometheus_steps(query, self._history, progress, self._timeout)
        warnings.update(dict.fromkeys(series.warnings))
        return last_labels(self._history, series)

    def _request_samples_steps(
        self, namespace: str, warnings: dict[str, None], progress: Progress
    ) -> StepsOf[Within | Observe, list[_ContainerSamples]]:
        """Query the samples of a namespace; empty if the strategy needs none. Raises InputError if a query fails.

        ``warnings`` receives the texts of Prometheus as keys.
        """
        samples: list[_ContainerSamples] = []
        if not self._strategy.needs_samples:
            return samples
        history = msgspec.structs.replace(self._history, namespace=namespace)
        for range_query, resource in zip(history.range_queries(progress.now), (CPU, MEMORY), strict=True):
            query = QueryPrometheus(
                query=range_query.query,
                start=range_query.start,
                end=range_query.end,
                step=range_query.step,
                most_bytes=self._most_bytes,
            )
            series = yield from query_prometheus_steps(query, history, progress, self._timeout)
            warnings.update(dict.fromkeys(series.warnings))
            samples += (_ContainerSamples(resource, key, values) for key, values in _iterate_samples(history, series))
        return samples

    def _update_advice(
        self, state: RecommenderState, vpas: list[Vpa], usage: _UsageByVpa, sample_counts: Counter[str]
    ) -> list[str]:
        """Update the advice of VPAs, and return texts of failures. A VPA for which the strategy fails keeps its advice.

        ``sample_counts`` receives the number of samples by resource.
        """
        raw = recommend_pod_resources(state, vpas) if self._strategy.uses_recommendation else [None] * len(vpas)
        failures: dict[Vpa, str] = {}
        for vpa, recommendation in zip(vpas, raw, strict=True):
            own = usage.get(vpa, {})
            recommended = {} if recommendation is None else {
                item.container_name: item for item in recommendation.container_recommendations
            }  # fmt: skip
            advice = {}
            try:
                for container in sorted({key.container for key in vpa.aggregates} | own.keys()):
                    usage_of_container = own.get(container) or ContainerUsage()
                    usage_of_container.recommendation = recommended.get(container)
                    usage_of_container.oom_memory = self.kills.get_max_bytes(vpa, container)
                    for resource, pods in ((CPU, usage_of_container.cpu), (MEMORY, usage_of_container.memory)):
                        sample_counts[resource] += sum(map(len, pods.values()))
                    label = f"container {container} of {vpa.namespace}/{vpa.name}"
                    advice[container] = get_checked_advice(self._strategy, usage_of_container, label)
            except KscaleError as error:
                self.advice.failures[vpa] = failures[vpa] = str(error)
            else:
                self.advice.by_vpa[vpa] = advice
                self.advice.failures.pop(vpa, None)
        return list(failures.values())


def _group_by_namespace(state: RecommenderState) -> dict[str, list[Vpa]]:
    """Return the observed VPAs by namespace."""
    groups: dict[str, list[Vpa]] = {}
    for vpa in state.observed_vpas():
        groups.setdefault(vpa.namespace, []).append(vpa)
    return groups


def _group_samples_by_vpa(state: RecommenderState, labels: _Labels, samples: list[_ContainerSamples]) -> _UsageByVpa:
    """Return the usage by VPA and container. A pod's samples go to each VPA that selects the pod."""
    grouped: _UsageByVpa = {}
    for resource, key, values in samples:
        pod_labels = labels.get((key.namespace, key.pod))
        for vpa in state.selecting(key.namespace, key.pod, None if pod_labels is None else pod_labels.labels):
            usage = grouped.setdefault(vpa, {}).setdefault(key.container, ContainerUsage())
            pods = usage.cpu if resource == CPU else usage.memory
            pods[key.pod] = np.concatenate([pods[key.pod], values]) if key.pod in pods else values
    return grouped


def _find_used_containers(state: RecommenderState, vpa: Vpa) -> frozenset[str]:
    """Return the names of the containers with a CPU sample. Prometheus has no samples of others."""
    return frozenset(key.container for key, own in vpa.aggregates.items() if not own.is_empty(state.store))


def apply_advice(
    raw: RecommendedPodResources, advice: Mapping[str, StrategyAdvice], options: RecommenderOptions
) -> RecommendedPodResources:
    """Return upstream's recommendation with the targets replaced by the strategy's requests.

    Bounds are the strategy's, else upstream's, and are extended to include the target. Resources without advice, and
    containers without any, are left out, as are resources and containers that ``raw`` does not have.
    """
    recommendations = []
    for item in raw.container_recommendations:
        advised = advice.get(item.container_name, StrategyAdvice())
        target = _format_advised_resources(advised.cpu_request, advised.memory_request, item.target or {}, options)
        if target:
            lower = _format_advised_resources(advised.cpu_lower, advised.memory_lower, target, options)
            upper = _format_advised_resources(advised.cpu_upper, advised.memory_upper, target, options)
            recommendations.append(
                RecommendedContainerResources(
                    container_name=item.container_name,
                    target=target,
                    lower_bound=_choose_bounds(lower, item.lower_bound, target, min),
                    upper_bound=_choose_bounds(upper, item.upper_bound, target, max),
                    uncapped_target=dict(target),
                )
            )
    return RecommendedPodResources(container_recommendations=recommendations)


def _format_advised_resources(
    cpu: int | None, memory: int | None, controlled: Iterable[str], options: RecommenderOptions
) -> ResourceList:
    """Convert the advice for controlled resources to quantities. ``cpu``: millicores; ``memory``: bytes; None: none."""
    advised = tuple(
        name for name, amount in ((CPU, cpu), (MEMORY, memory)) if amount is not None and name in controlled
    )
    return format_resources(cpu or 0, memory or 0, advised, options)


def _choose_bounds(
    advised: ResourceList, upstreams: ResourceList | None, target: ResourceList, choose: Callable[..., Any]
) -> ResourceList:
    """Return a bound for each target: ``choose`` (min or max) of the target and the strategy's or upstream's bound."""
    bounds = {**(upstreams or {}), **advised}
    return {name: choose(bounds.get(name, amount), amount) for name, amount in target.items()}


def _iterate_samples(history: PrometheusHistory, series: Series) -> Iterator[tuple[SeriesKey, np.ndarray]]:
    """Yield (key, samples) of each series: without non-finite values, negative ones as 0.

    A series without finite values is skipped.
    """
    bounds = np.searchsorted(series.series, np.arange(len(series.keys) + 1))
    for i, key in enumerate(container_keys(history, series)):
        values = series.value[bounds[i] : bounds[i + 1]]
        values = np.maximum(values[np.isfinite(values)], 0.0)
        if len(values):
            yield key, values
