"""Pods and their containers as the recommender remembers them, by the labels that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kscale.vpa.model.aggregates import Aggregate

__all__ = ["INACTIVE", "ContainerState", "LabelSet", "PodKey", "PodState", "label_string"]

INACTIVE: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended."""
PodKey = tuple[str, str]
"""(namespace, name)."""


def label_string(labels: Mapping[str, str]) -> str:
    """Labels in the form that identifies an aggregate."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


@dataclass(slots=True)
class ContainerState:
    """A container: its slot in the store, and the aggregate that it is bound to.

    None stands for "whatever its key leads to", looked up anew for each sample.
    """

    slot: int
    bound: Aggregate | None = None


@dataclass(slots=True, eq=False)
class LabelSet:
    """The labels of some pods of a namespace: who has them, what is aggregated of them, and which VPAs select them.

    A selector is held against these, not against pods: there are far fewer.
    """

    namespace: str
    labels: dict[str, str]
    key: str
    pods: dict[str, PodState] = field(default_factory=dict)
    """By name."""
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    """By container."""
    vpas: list[str] = field(default_factory=list)
    """Their names, in order: upstream walks a map, this order is the canonical one."""
    placed: int = 0
    """Another number whenever another container of these pods may feed another aggregate."""


@dataclass(slots=True, eq=False)
class PodState:
    """A pod. ``sources``: where the resources of its containers are read from, one entry for each."""

    name: str
    label_set: LabelSet
    phase: str = ""
    containers: dict[str, ContainerState] = field(default_factory=dict)
    init_containers: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        return self.label_set.namespace

    @property
    def labels(self) -> dict[str, str]:
        return self.label_set.labels

    @property
    def label_key(self) -> str:
        """Its labels in canonical form."""
        return self.label_set.key

    @property
    def key(self) -> PodKey:
        """(namespace, name)."""
        return self.label_set.namespace, self.name

    @property
    def active(self) -> bool:
        """It has not ended."""
        return self.phase not in INACTIVE
