"""Aggregates: what containers of one name and one label set have in common (``aggregate_container_state.go``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kscale.effects import SECOND, Moment
from kscale.objects.base import ResourceList
from kscale.objects.vpa import ContainerResourcePolicy
from kscale.vpa.model.store import Store
from kscale.vpa.options import PER_VPA_CONFIG, gate

__all__ = ["CONTROLLED_RESOURCES", "SCALING_OFF", "Aggregate", "AggregateKey", "apply_policy", "scaling_of"]

CONTROLLED_RESOURCES: Final = ("cpu", "memory")
SCALING_AUTO: Final = "Auto"
SCALING_OFF: Final = "Off"


class AggregateKey(NamedTuple):
    """``labels`` in canonical form: ``k=v`` pairs by key, joined with commas. Keys sort as we merge."""

    namespace: str
    container: str
    labels: str


@dataclass(slots=True, eq=False)
class Aggregate:
    """One row of a :class:`~kscale.vpa.model.store.Store`, and what VPAs say about it."""

    key: AggregateKey
    row: int
    created: Moment
    labels: Mapping[str, str] = field(default_factory=dict)
    last_recommendation: ResourceList | None = None
    is_under_vpa: bool = False
    update_mode: str | None = None
    scaling_mode: str | None = None
    controlled_resources: tuple[str, ...] | None = None
    alive: bool = True
    """False once garbage collection took it; containers bound to it directly go on feeding it."""
    bound: int = 0
    """How many containers are bound to it directly, not through its key."""

    @property
    def needs_recommendation(self) -> bool:
        """Under a VPA that does not leave this container alone."""
        return self.is_under_vpa and self.scaling_mode is not None and self.scaling_mode != SCALING_OFF

    def mark_not_autoscaled(self) -> None:
        """No VPA is in charge any more."""
        self.is_under_vpa = False
        self.last_recommendation = None
        self.update_mode = None
        self.scaling_mode = None
        self.controlled_resources = None

    def is_empty(self, store: Store) -> bool:
        """No CPU sample yet."""
        return int(store.samples[self.row]) == 0

    def is_expired(self, store: Store, now: Moment) -> bool:
        """Nothing new for the whole window (interval * count)."""
        since = self.created if self.is_empty(store) else int(store.last[self.row])
        return now - since >= int(store.interval[self.row]) * int(store.interval_count[self.row])


def scaling_of(policy: ContainerResourcePolicy | None) -> tuple[str, tuple[str, ...]]:
    """Scaling mode and controlled resources under a policy; names that are no resource of the VPA are dropped."""
    mode = (policy.mode if policy is not None else None) or SCALING_AUTO
    if policy is None or policy.controlled_resources is None:
        return mode, CONTROLLED_RESOURCES
    return mode, tuple(name for name in policy.controlled_resources if name in CONTROLLED_RESOURCES)


def apply_policy(store: Store, aggregate: Aggregate, policy: ContainerResourcePolicy | None) -> None:
    """``UpdateFromPolicy``. Overrides of the aggregation stay when the policy no longer has them, as upstream."""
    aggregate.scaling_mode, aggregate.controlled_resources = scaling_of(policy)
    if policy is None or not gate(store.options.feature_gates, PER_VPA_CONFIG):
        return
    row = aggregate.row
    if policy.oom_bump_up_ratio is not None:
        store.oom_ratio[row] = float(policy.oom_bump_up_ratio.milli_value()) / 1000.0
    if policy.oom_min_bump_up is not None:
        store.oom_min_bump[row] = float(policy.oom_min_bump_up.milli_value()) / 1000.0
    if policy.memory_aggregation_interval_seconds is not None:
        store.interval[row] = policy.memory_aggregation_interval_seconds * SECOND
    if policy.memory_aggregation_interval_count is not None:
        store.interval_count[row] = policy.memory_aggregation_interval_count
