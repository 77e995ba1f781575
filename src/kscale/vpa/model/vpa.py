"""VPAs and pods as the recommender models them: label sets, containers, conditions, recommendation (upstream:
``pkg/recommender/model/vpa.go``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kscale.effects import ZERO_TIME, Moment
from kscale.effects.moments import format_moment
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    PodResourcePolicy,
    PodUpdatePolicy,
    RecommendedPodResources,
    TargetReference,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerCondition,
    VerticalPodAutoscalerStatus,
)
from kscale.objects.selectors import Selector
from kscale.vpa.metrics import QualityObserver
from kscale.vpa.model.aggregates import Aggregate, AggregateKey
from kscale.vpa.options import RecommenderOptions

__all__ = [
    "CONFIG_DEPRECATED",
    "CONFIG_UNSUPPORTED",
    "FETCHING_HISTORY",
    "INACTIVE_PHASES",
    "NO_PODS_MATCHED",
    "RECOMMENDATION_PROVIDED",
    "CachedCapping",
    "CachedComparison",
    "CachedPodRecommendation",
    "ContainerState",
    "LabelSet",
    "PodKey",
    "PodState",
    "Vpa",
    "format_labels",
    "update_from_object",
]

INACTIVE_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended."""
PodKey = tuple[str, str]
"""(namespace, name)."""


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as canonical text: ``key=value`` pairs sorted by key and joined with commas."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


@dataclass(slots=True)
class ContainerState:
    """A container: its slot in the store, and the aggregate that it is linked to directly (``bound``).

    ``bound`` None: samples go to the aggregate of the container's key, which is looked up for each sample.
    """

    slot: int
    bound: Aggregate | None = None


@dataclass(slots=True, eq=False)
class LabelSet:
    """The labels of some pods of a namespace: the pods that have them, their aggregates, and the VPAs that select them.

    Selectors are matched with label sets, not with pods, because there are far fewer label sets.
    """

    namespace: str
    labels: dict[str, str]
    key: str
    pods: dict[str, PodState] = field(default_factory=dict)
    """Pods by name."""
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    """Aggregates by container name."""
    vpas: list[str] = field(default_factory=list)
    """Names of the VPAs that select the labels, sorted. Upstream iterates over a map in random order."""


@dataclass(slots=True, eq=False)
class PodState:
    """A pod as the recommender models it. ``sources``: where the resources of each container are read from."""

    name: str
    label_set: LabelSet
    phase: str = ""
    containers: dict[str, ContainerState] = field(default_factory=dict)
    init_containers: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """Return the pod's namespace."""
        return self.label_set.namespace

    @property
    def labels(self) -> dict[str, str]:
        """Return the pod's labels."""
        return self.label_set.labels

    @property
    def label_key(self) -> str:
        """Return the pod's labels as canonical text."""
        return self.label_set.key

    @property
    def key(self) -> PodKey:
        """Return the pod's (namespace, name)."""
        return self.label_set.namespace, self.name

    @property
    def active(self) -> bool:
        """Return whether the pod is neither Succeeded nor Failed."""
        return self.phase not in INACTIVE_PHASES


RECOMMENDATION_PROVIDED: Final = "RecommendationProvided"
NO_PODS_MATCHED: Final = "NoPodsMatched"
FETCHING_HISTORY: Final = "FetchingHistory"
CONFIG_UNSUPPORTED: Final = "ConfigUnsupported"
CONFIG_DEPRECATED: Final = "ConfigDeprecated"


class CachedPodRecommendation(NamedTuple):
    """Formatted recommendation: of each container its name, controlled resources and amounts (see
    :mod:`kscale.vpa.recommender.estimators`); ``recommendation`` is not post-processed.
    """

    amounts: Sequence[tuple[str, tuple[str, ...], list[list[int]]]]
    options: RecommenderOptions
    recommendation: RecommendedPodResources


class CachedCapping(NamedTuple):
    """Result of capping a recommendation (``raw``) by a policy and the maximum allowed amounts."""

    raw: RecommendedPodResources
    policy: PodResourcePolicy | None
    most: ResourceList
    recommendation: RecommendedPodResources


class CachedComparison(NamedTuple):
    """Result of comparing an observed recommendation with another one."""

    observed: RecommendedPodResources | None
    other: RecommendedPodResources | None
    same: bool


class StableRound(NamedTuple):
    """A round that did not change a VPA's status, which another round with the same inputs repeats.

    ``item``: the VPA object; ``raw``: the recommendation before it was capped; ``most``: the maximum allowed amounts;
    ``pods``: the number of pods; ``result``: the :class:`~kscale.vpa.recommender.records.VpaResult`; ``labels``: values
    of the labels of the metric that counts VPAs.
    """

    item: VerticalPodAutoscaler
    raw: RecommendedPodResources
    most: ResourceList
    pods: int
    result: Any
    labels: tuple[str | bool, ...]


@dataclass(slots=True, eq=False)
class Vpa:
    """One VPA: its selector, aggregates, conditions and recommendation."""

    namespace: str
    name: str
    selector: Selector
    created: str | None = None
    annotations: dict[str, str] | None = None
    target: TargetReference | None = None
    api_version: str = "v1"
    update_policy: PodUpdatePolicy | None = None
    resource_policy: PodResourcePolicy | None = None
    generation: int = 0
    observed_status: VerticalPodAutoscalerStatus = field(default_factory=VerticalPodAutoscalerStatus)
    """Status of the VPA object in the last list."""
    conditions: dict[str, VerticalPodAutoscalerCondition] = field(default_factory=dict)
    recommendation: RecommendedPodResources | None = None
    label_sets: dict[str, LabelSet] = field(default_factory=dict)
    """Label sets that the VPA selects, by key."""
    aggregates: dict[AggregateKey, Aggregate] = field(default_factory=dict)
    initial_states: dict[str, Aggregate] = field(default_factory=dict)
    """Container name -> aggregate of the checkpoint."""
    pod_count: int = 0
    """Number of pods that the VPA selects."""
    checkpoint_written: Moment = ZERO_TIME
    selector_text: str = field(init=False, default="")
    shown: CachedPodRecommendation | None = field(init=False, default=None, repr=False)
    """Cached recommendation of the last update. This cache and the next two are valid while their input objects are
    identical.
    """
    capped: CachedCapping | None = field(init=False, default=None, repr=False)
    compared: CachedComparison | None = field(init=False, default=None, repr=False)
    item: VerticalPodAutoscaler | None = field(init=False, default=None, repr=False)
    """The VPA object of the last list."""
    uncapped: tuple[RecommendedPodResources, dict[str, ResourceList | None]] | None = field(
        init=False, default=None, repr=False
    )
    """The last recommendation, and its uncapped targets by container name."""
    stable: StableRound | None = field(init=False, default=None, repr=False)
    """The last round, if it did not change the status."""

    def __post_init__(self) -> None:
        self.selector_text = str(self.selector)

    @property
    def key(self) -> tuple[str, str]:
        """Return the VPA's (namespace, name)."""
        return self.namespace, self.name

    def is_loaded_from(self, item: VerticalPodAutoscaler) -> bool:
        """Return whether the last round read this same object ``item`` and did not change its status."""
        return self.stable is not None and self.stable.item is item

    @property
    def update_mode(self) -> str | None:
        """Return the update mode of the VPA's object; None if there is none."""
        return self.update_policy.update_mode if self.update_policy is not None else None

    @property
    def has_recommendation(self) -> bool:
        """Return whether at least one container has a recommendation."""
        return self.recommendation is not None and bool(self.recommendation.container_recommendations)

    def condition_is_true(self, type_: str) -> bool:
        """Check whether a condition is True; False if it is not set."""
        condition = self.conditions.get(type_)
        return condition is not None and condition.status == "True"

    def set_condition(self, type_: str, status: bool, reason: str, message: str, now: Moment) -> None:
        """Set the condition ``type_``. Its transition time becomes ``now`` only if it is new or the status changes."""
        text = "True" if status else "False"
        old = self.conditions.get(type_)
        if old is not None and (old.status, old.reason, old.message) == (text, reason, message):
            return
        moved = old is None or old.status != text
        self.conditions[type_] = VerticalPodAutoscalerCondition(
            type=type_,
            status=text,
            last_transition_time=format_moment(now) if moved or old is None else old.last_transition_time,
            reason=reason,
            message=message,
        )

    def update_conditions(self, now: Moment) -> None:
        """Update the conditions NoPodsMatched and RecommendationProvided (``UpdateConditions``).

        NoPodsMatched is True without pods, and removed with pods. RecommendationProvided becomes True or False.
        """
        reason = message = ""
        if self.pod_count > 0:
            self.conditions.pop(NO_PODS_MATCHED, None)
        else:
            reason, message = NO_PODS_MATCHED, "No pods match this VPA object"
            self.set_condition(NO_PODS_MATCHED, True, reason, message, now)
        if self.has_recommendation:
            self.set_condition(RECOMMENDATION_PROVIDED, True, "", "", now)
        else:
            self.set_condition(RECOMMENDATION_PROVIDED, False, reason, message, now)

    def update_recommendation(
        self, recommendation: RecommendedPodResources, quality: QualityObserver | None = None
    ) -> None:
        """Set the recommendation, and store the uncapped targets in the aggregates of its containers.

        Aggregates of other containers stay unchanged. ``quality`` receives the changes of targets.
        """
        if self.uncapped is None or self.uncapped[0] is not recommendation:
            items = recommendation.container_recommendations
            self.uncapped = recommendation, {item.container_name: item.uncapped_target for item in items}
        uncapped = self.uncapped[1]
        mode, pods = self.update_mode, self.pod_count
        for key, aggregate in self.aggregates.items():
            container = key.container
            if container in uncapped:
                old, new = aggregate.last_recommendation, uncapped[container]
                if quality is not None and old is not None and new is not None:
                    quality.change(old, new, mode, pods)
                aggregate.last_recommendation = new
        self.recommendation = recommendation

    def status(self) -> VerticalPodAutoscalerStatus:
        """Build the status to write, with the conditions sorted by type."""
        return VerticalPodAutoscalerStatus(
            recommendation=self.recommendation,
            conditions=[self.conditions[type_] for type_ in sorted(self.conditions)],
            observed_generation=self.generation,
        )


def update_from_object(vpa: Vpa, item: VerticalPodAutoscaler) -> None:
    """Copy metadata, target, status and recommendation of the object ``item`` to ``vpa``.

    The policies, on which the linked aggregates depend, are not copied. The recommendation is None unless the condition
    RecommendationProvided is True.
    """
    vpa.created = item.metadata.creation_timestamp
    vpa.annotations = item.metadata.annotations
    vpa.target = item.spec.target_ref
    vpa.observed_status = item.status
    vpa.conditions = {condition.type: condition for condition in item.status.conditions}
    provided = vpa.condition_is_true(RECOMMENDATION_PROVIDED)
    vpa.recommendation = item.status.recommendation if provided else None
    vpa.api_version = item.api_version.rpartition("/")[2] or vpa.api_version
    vpa.generation = item.metadata.generation or 0
