"""Let a strategy advise in a running recommender, from samples that Prometheus has of the past days and from out-of-
memory kills.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

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
    """What was seen of kills since the start. Single owner.

    They are kept by the labels that the pod had: a pod that was killed is often gone when it matters. Of the kills of
    one container with the same labels those are kept that no later one outdoes: the first is the greatest.
    """

    def __init__(self) -> None:
        self._by_container: dict[tuple[str, str], dict[str, tuple[LabelSet, list[_OOMKillRecord]]]] = {}
        """(namespace, container) -> key of the label set."""
        self._seen: dict[ContainerName, Moment] = {}
        """The last kill of containers of pods that are there: a pod tells of it on and on, with what it requests by
        then."""

    def __len__(self) -> int:
        return sum(len(kills) for own in self._by_container.values() for _, kills in own.values())

    def notice(self, state: RecommenderState, pods: Iterable[Pod], ooms: Iterable[OutOfMemory]) -> list[str]:
        """Kills, and pods that may tell of some, while ``state`` knows the pods; texts of what cannot be read come
        back."""
        problems: list[str] = []
        for one in sorted((*ooms, *find_last_oom_kills(pods, problems)), key=attrgetter("time")):
            namespace, pod, container = one.container
            known = state.pods.get((namespace, pod))
            seen = self._seen.get(one.container)
            if known is None or (seen is not None and one.time <= seen):
                continue
            self._seen[one.container] = one.time
            own = self._by_container.setdefault((namespace, container), {})
            _, kills = own.get(known.label_set.key, (None, []))
            own[known.label_set.key] = (known.label_set, _insert_kill(kills, _OOMKillRecord(one.time, one.memory)))
        return problems

    def forget(self, state: RecommenderState, before: Moment) -> None:
        """Kills that are older, and those of pods that are gone and that no VPA selects."""
        self._seen = {name: at for name, at in self._seen.items() if name[:2] in state.pods}
        for where, own in list(self._by_container.items()):
            left = {}
            for key, (label_set, kills) in own.items():
                newer = [kill for kill in kills if kill.time >= before]
                if newer and (label_set.pods or state.is_selected(label_set.namespace, label_set.labels)):
                    left[key] = (label_set, newer)
            if left:
                self._by_container[where] = left
            else:
                del self._by_container[where]

    def most(self, vpa: Vpa, container: str) -> int:
        """Bytes of the greatest kill of a container of the pods that a VPA selects; 0: there was none."""
        own = self._by_container.get((vpa.namespace, container), {})
        return max(
            (kills[0].memory for label_set, kills in own.values() if vpa.selector.matches(label_set.labels)), default=0
        )


def _insert_kill(kills: list[_OOMKillRecord], new: _OOMKillRecord) -> list[_OOMKillRecord]:
    """In order of time, which leaves memory in falling order."""
    kept = [kill for kill in kills if kill.time > new.time or kill.memory > new.memory]
    if any(kill.time > new.time and kill.memory >= new.memory for kill in kept):
        return kept
    return sorted((*kept, new))


_MAX_POINTS: Final = 11_000
"""Of a series in one answer: Prometheus refuses more."""
MAX_RESPONSE_BYTES: Final = 512 << 20
"""Of one answer, where nothing else is said."""
_MAX_CONCURRENT_NAMESPACES: Final = 4
"""Namespaces that are asked for side by side."""
_MAX_CONCURRENT_RETRIES: Final = _MAX_CONCURRENT_NAMESPACES - 1
"""Of these, such as had no answer the last time."""
_POLL_INTERVAL: Final = SECOND // 10
"""How often a round looks whether all has been answered."""
_SAMPLES_METRIC: Final = "kscale_strategy_samples_total"
STRATEGY_METRICS: Final = (
    Metric(_SAMPLES_METRIC, "counter", ("resource",), help="Usage samples that strategies received."),
)
"""How many samples strategies have been given."""
_Labels = Mapping[tuple[str, str], LastLabels]
_UsageByVpa = dict[Vpa, dict[str, ContainerUsage]]
_NO_SAMPLES_CONDITION: Final = (
    "NoSamples",
    "Prometheus has given no samples for the strategy yet; what was recommended stays",
)


class LatestAdvice(msgspec.Struct, frozen=True):
    """What a strategy said last of VPAs. ``had``: by container; ``failures``: why it has said nothing since then.

    A VPA that selects other pods than before is another one, of which nothing is known.
    """

    had: dict[Vpa, Mapping[str, StrategyAdvice]] = {}
    failures: dict[Vpa, str] = {}

    def missing(self, vpa: Vpa) -> tuple[str, str] | None:
        """Reason and text of the condition of a VPA whose recommendation stays what it was."""
        if vpa in self.failures:
            return ("StrategyFailed", f"{self.failures[vpa]}; what was recommended stays")
        return None if vpa in self.had else _NO_SAMPLES_CONDITION

    def of(self, vpas: Container[Vpa]) -> LatestAdvice:
        """No others' advice."""
        return LatestAdvice(
            had={vpa: advice for vpa, advice in self.had.items() if vpa in vpas},
            failures={vpa: why for vpa, why in self.failures.items() if vpa in vpas},
        )


class _NamespaceRequest(NamedTuple):
    """What was asked for a VPA: of which containers with usage, and when that is due again."""

    containers: frozenset[str]
    again: Moment


class _ContainerSamples(NamedTuple):
    """Of a container: of one resource, by time."""

    resource: str
    key: SeriesKey
    values: np.ndarray


class StrategyAdvisor:
    """``advice``: the strategy's, of the VPAs whose samples have been had. ``kills``: for memory. Single owner.

    Prometheus is asked for all samples of a namespace at each ``interval`` (nanoseconds), at once where a VPA is new
    there, selects other pods than before, or has usage of a container that had none. It is asked in the background,
    four namespaces at a time: a question may take ``timeout``, however long rounds are, and its answer may have
    ``most_bytes``. A round waits up to half of ``recommender_interval`` for what it has begun to ask, and later rounds
    take what has come since. Nothing of samples is kept but the advice: memory is that of the samples of four
    namespaces. An answer is for the VPAs that were there when it was asked for, and still are. A namespace of which
    Prometheus does not answer keeps its advice, and is asked again in the next round, after those that did answer or
    are new, and with no more than two others like it: however many hang, a place is left for the rest. A VPA for which
    the strategy fails keeps its advice too, until the interval is over.

    Pods that are gone count by the labels that Prometheus has of them. Raises :class:`~kscale.errors.InputError` for a
    history of more values than Prometheus gives at once.
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
        for question in history.range_queries(0):
            points = (question.end - question.start) // question.step + 1 if question.step else _MAX_POINTS + 1
            if points > _MAX_POINTS:
                text = f"{history.history_length} by {history.history_resolution} are more than {_MAX_POINTS:,} values"
                raise InputError(f"a history of {text} of a container, the most that Prometheus answers")
        self.advice = LatestAdvice()
        self.kills = OOMKillHistory()
        self._asked: dict[Vpa, _NamespaceRequest] = {}
        self._tried: dict[str, Moment] = {}
        """When each namespace was asked for last, with or without an answer."""
        self._unanswered: set[str] = set()
        """Namespaces that had no answer the last time."""
        self._waiting: set[str] = set()
        """Namespaces that are due, and not being asked for."""
        self._asking: dict[str, Moment] = {}
        """Since when each namespace is being asked for."""
        self._is_beginning = False
        """Whether labels are being asked for, before namespaces."""
        self._problems: list[str] = []

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left of intervals stays."""
        self._asked = {vpa: asked._replace(again=asked.again + by) for vpa, asked in self._asked.items()}
        self._tried = {namespace: at + by for namespace, at in self._tried.items()}
        self._asking = {namespace: at + by for namespace, at in self._asking.items()}

    def refresh_steps(self, state: RecommenderState, progress: Progress) -> StepsOf[InBackground | Wait, list[str]]:
        """Asks for what is due, and takes the strategy's advice; texts of what has gone wrong since the last time come
        back."""
        vpas = _group_by_namespace(state)
        observed = {vpa for own in vpas.values() for vpa in own}
        now = progress.now
        self.advice = self.advice.of(observed)
        self._asked = {vpa: asked for vpa, asked in self._asked.items() if vpa in observed}
        self._tried = {namespace: at for namespace, at in self._tried.items() if namespace in vpas}
        self._unanswered &= vpas.keys()
        self.kills.forget(state, self._history.range_queries(now)[0].start)
        due = [name for name, own in vpas.items() if any(self._is_due(state, vpa, now) for vpa in own)]
        self._waiting = set(due) - self._asking.keys()
        begun = frozenset(self._waiting - self._unanswered if self._many_hang else self._waiting)
        if begun and not self._is_beginning and len(self._asking) < _MAX_CONCURRENT_NAMESPACES:
            self._is_beginning = True
            yield from progress.act(InBackground(partial(self._ask_steps, state)))
            left = duration(state.options.recommender_interval) // 2
            while left > 0 and not begun.isdisjoint(self._waiting | self._asking.keys()):
                yield from progress.wait(_POLL_INTERVAL)
                left -= _POLL_INTERVAL
        found, self._problems = self._problems, []
        return found

    def _is_due(self, state: RecommenderState, vpa: Vpa, now: Moment) -> bool:
        asked = self._asked.get(vpa)
        return asked is None or asked.again <= now or not asked.containers.issuperset(_find_used_containers(state, vpa))

    def _ask_steps(self, state: RecommenderState, now: Moment) -> StepsOf[Within | Observe | Together, None]:
        """Of the namespaces that wait, as many side by side as have room; ``state`` is what it is by then."""
        progress = Progress(now)
        warnings: dict[str, None] = {}
        try:
            labels = yield from self._labels_steps(warnings, progress)
        except InputError as error:
            self._problems.append(f"Cannot get samples for the strategy {self._name}: {error}")
            self._waiting.clear()  # until the next round
            return
        finally:
            self._is_beginning = False
            self._warn(warnings)
        names = sorted(self._waiting, key=lambda name: (name in self._unanswered, self._tried.get(name, 0), name))
        queue = deque(names)
        room = min(_MAX_CONCURRENT_NAMESPACES - len(self._asking), len(names))
        yield from progress.together([partial(self._ask_each_steps, state, labels, queue)] * room)

    def _ask_each_steps(
        self, state: RecommenderState, labels: _Labels, queue: deque[str], now: Moment
    ) -> StepsOf[Within | Observe, None]:
        """Of one namespace of the queue after the other, but those that somebody else has asked for meanwhile."""
        progress = Progress(now)
        while queue:
            if queue[0] in self._unanswered and self._many_hang:
                return  # who asks for one of these goes on
            namespace = queue.popleft()
            if namespace in self._waiting:
                self._waiting.remove(namespace)
                self._asking[namespace] = self._tried[namespace] = progress.now
                try:
                    yield from self._ask_one_steps(state, labels, namespace, progress)
                finally:
                    del self._asking[namespace]

    def _ask_one_steps(
        self, state: RecommenderState, labels: _Labels, namespace: str, progress: Progress
    ) -> StepsOf[Within | Observe, None]:
        used = {vpa: _find_used_containers(state, vpa) for vpa in _group_by_namespace(state).get(namespace, [])}
        warnings: dict[str, None] = {}
        try:
            samples = yield from self._samples_steps(namespace, warnings, progress)
        except InputError as error:
            self._unanswered.add(namespace)
            self._problems.append(f"Cannot get samples of namespace {namespace} for the strategy {self._name}: {error}")
            return
        finally:
            self._warn(warnings)
        self._unanswered.discard(namespace)
        vpas = [vpa for vpa in _group_by_namespace(state).get(namespace, []) if vpa in used]
        given: Counter[str] = Counter()
        self._problems += self._advise(state, vpas, _group_samples_by_vpa(state, labels, samples), given)
        for vpa in vpas:
            self._asked[vpa] = _NamespaceRequest(used[vpa], self._asking[namespace] + self._interval)
        yield from progress.observe(
            *(Observation(name=_SAMPLES_METRIC, labels={"resource": name}, value=float(n)) for name, n in given.items())
        )

    @property
    def _many_hang(self) -> bool:
        """No other namespace is asked for that had no answer the last time."""
        return len(self._unanswered & self._asking.keys()) >= _MAX_CONCURRENT_RETRIES

    @property
    def _name(self) -> str:
        return self._strategy.name or type(self._strategy).__name__

    def _warn(self, warnings: Iterable[str]) -> None:
        said = (f"Prometheus warns of the samples for the strategy {self._name}: {text}" for text in warnings)
        self._problems += (text for text in said if text not in self._problems)

    def _labels_steps(self, warnings: dict[str, None], progress: Progress) -> StepsOf[Within | Observe, _Labels]:
        if not self._strategy.needs_samples:
            return {}
        question = QueryPrometheus(
            query=self._history.metric_for_pod_labels, end=progress.now, most_bytes=self._most_bytes
        )
        told = yield from query_prometheus_steps(question, self._history, progress, self._timeout)
        warnings.update(dict.fromkeys(told.warnings))
        return last_labels(self._history, told)

    def _samples_steps(
        self, namespace: str, warnings: dict[str, None], progress: Progress
    ) -> StepsOf[Within | Observe, list[_ContainerSamples]]:
        found: list[_ContainerSamples] = []
        if not self._strategy.needs_samples:
            return found
        history = msgspec.structs.replace(self._history, namespace=namespace)
        for each, resource in zip(history.range_queries(progress.now), (CPU, MEMORY), strict=True):
            question = QueryPrometheus(
                query=each.query, start=each.start, end=each.end, step=each.step, most_bytes=self._most_bytes
            )
            series = yield from query_prometheus_steps(question, history, progress, self._timeout)
            warnings.update(dict.fromkeys(series.warnings))
            found += (_ContainerSamples(resource, key, values) for key, values in _iterate_samples(history, series))
        return found

    def _advise(self, state: RecommenderState, vpas: list[Vpa], usage: _UsageByVpa, given: Counter[str]) -> list[str]:
        """Texts of failures; ``given`` gets how many samples of each resource the strategy has had."""
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
                    of = own.get(container) or ContainerUsage()
                    of.recommendation = recommended.get(container)
                    of.oom_memory = self.kills.most(vpa, container)
                    for resource, pods in ((CPU, of.cpu), (MEMORY, of.memory)):
                        given[resource] += sum(map(len, pods.values()))
                    where = f"container {container} of {vpa.namespace}/{vpa.name}"
                    advice[container] = get_checked_advice(self._strategy, of, where)
            except KscaleError as error:
                self.advice.failures[vpa] = failures[vpa] = str(error)
            else:
                self.advice.had[vpa] = advice
                self.advice.failures.pop(vpa, None)
        return list(failures.values())


def _group_by_namespace(state: RecommenderState) -> dict[str, list[Vpa]]:
    found: dict[str, list[Vpa]] = {}
    for vpa in state.observed_vpas():
        found.setdefault(vpa.namespace, []).append(vpa)
    return found


def _group_samples_by_vpa(state: RecommenderState, labels: _Labels, samples: list[_ContainerSamples]) -> _UsageByVpa:
    """Samples by the VPAs that select their pods."""
    found: _UsageByVpa = {}
    for resource, key, values in samples:
        known = labels.get((key.namespace, key.pod))
        for vpa in state.selecting(key.namespace, key.pod, None if known is None else known.labels):
            usage = found.setdefault(vpa, {}).setdefault(key.container, ContainerUsage())
            pods = usage.cpu if resource == CPU else usage.memory
            pods[key.pod] = np.concatenate([pods[key.pod], values]) if key.pod in pods else values
    return found


def _find_used_containers(state: RecommenderState, vpa: Vpa) -> frozenset[str]:
    """Containers of which there is usage by now: before, Prometheus has nothing of them either."""
    return frozenset(key.container for key, own in vpa.aggregates.items() if not own.is_empty(state.store))


def apply_advice(
    raw: RecommendedPodResources, advice: Mapping[str, StrategyAdvice], options: RecommenderOptions
) -> RecommendedPodResources:
    """Upstream's recommendation with the strategy's requests for targets.

    Bounds are those of the strategy, else upstream's, and never leave the target out. A resource for which there is no
    advice is left out, and so is a container without any.
    """
    found = []
    for item in raw.container_recommendations:
        advised = advice.get(item.container_name, StrategyAdvice())
        target = _format_advised_resources(advised.cpu_request, advised.memory_request, item.target or {}, options)
        if target:
            lower = _format_advised_resources(advised.cpu_lower, advised.memory_lower, target, options)
            upper = _format_advised_resources(advised.cpu_upper, advised.memory_upper, target, options)
            found.append(
                RecommendedContainerResources(
                    container_name=item.container_name,
                    target=target,
                    lower_bound=_choose_bounds(lower, item.lower_bound, target, min),
                    upper_bound=_choose_bounds(upper, item.upper_bound, target, max),
                    uncapped_target=dict(target),
                )
            )
    return RecommendedPodResources(container_recommendations=found)


def _format_advised_resources(
    cpu: int | None, memory: int | None, controlled: Iterable[str], options: RecommenderOptions
) -> ResourceList:
    told = tuple(name for name, amount in ((CPU, cpu), (MEMORY, memory)) if amount is not None and name in controlled)
    return format_resources(cpu or 0, memory or 0, told, options)


def _choose_bounds(
    told: ResourceList, upstreams: ResourceList | None, target: ResourceList, choose: Callable[..., object]
) -> ResourceList:
    bounds = {**(upstreams or {}), **told}
    return {name: choose(bounds.get(name, amount), amount) for name, amount in target.items()}  # type: ignore[misc]  # min or max of two quantities


def _iterate_samples(history: PrometheusHistory, series: Series) -> Iterator[tuple[SeriesKey, np.ndarray]]:
    """The samples of each container; what is no finite number is none, and nothing is less than 0."""
    bounds = np.searchsorted(series.series, np.arange(len(series.keys) + 1))
    for i, key in enumerate(container_keys(history, series)):
        values = series.value[bounds[i] : bounds[i + 1]]
        values = np.maximum(values[np.isfinite(values)], 0.0)
        if len(values):
            yield key, values
