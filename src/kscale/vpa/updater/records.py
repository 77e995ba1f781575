"""What a loop of the updater is given, keeps and answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.effects import Action, Event, Moment, Observation
from kscale.objects.core import Pod
from kscale.objects.vpa import RecommendedPodResources, VerticalPodAutoscaler
from kscale.vpa.controllers import Controllers
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.updater.rate_limiter import RateLimiter

__all__ = ["ChosenPod", "UnchangedPod", "UpdaterResult", "UpdaterRound", "UpdaterState"]


class UpdaterState(msgspec.Struct, kw_only=True):
    """What an updater keeps between loops.

    - ``infeasible_attempts``: pod UID -> the recommendation that its node had no room for.
    - ``last_in_place_attempts``: "namespace/name" of a pod -> when it was first seen resizing; never forgotten, as
      upstream.
    - ``eviction_limiter``, ``in_place_limiter``: those of evictions and of resizes, each with the rate and the burst
      that ``eviction_rate_limit`` and ``eviction_rate_burst`` had at its first use; None before that.
    """

    infeasible_attempts: dict[str, RecommendedPodResources] = {}
    last_in_place_attempts: dict[str, Moment] = {}
    eviction_limiter: RateLimiter | None = None
    in_place_limiter: RateLimiter | None = None

    def clock_set(self, by: int) -> None:
        """The clock has been set by so many nanoseconds: what is left to wait stays."""
        self.last_in_place_attempts = {key: at + by for key, at in self.last_in_place_attempts.items()}
        for limiter in (self.eviction_limiter, self.in_place_limiter):
            if limiter is not None:
                limiter.clock_set(by)

    def __repr__(self) -> str:
        infeasible, resizing = len(self.infeasible_attempts), len(self.last_in_place_attempts)
        return f"<UpdaterState: {infeasible} infeasible attempts, {resizing} pods seen resizing>"


class UpdaterRound(msgspec.Struct, kw_only=True):
    """What a loop sees. ``pods``: those that are on a node and have not ended, in listed order."""

    vpas: Sequence[VerticalPodAutoscaler]
    pods: Sequence[Pod]
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    limit_ranges: LimitRangeLookup | None = None

    def __repr__(self) -> str:
        return f"<UpdaterRound: {len(self.vpas)} VPAs, {len(self.pods)} pods>"


class ChosenPod(msgspec.Struct, kw_only=True, frozen=True):
    """A pod that is due for an update, and why: what upstream logs as accepted. ``vpa``: the name of its VPA."""

    namespace: str
    pod: str
    vpa: str
    outside_recommended_range: bool
    scale_up: bool
    resource_diff: float
    quick_oom: bool
    targets: str
    """The processed recommendation, as upstream's log prints it."""


class UnchangedPod(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A pod of a VPA that a loop left as it is, and why.

    ``reason`` is one of ``Mode``, ``Namespace``, ``FeatureGate``, ``StartupBoost``, ``Controller``, ``TooFewReplicas``,
    ``Pending``, ``NoRecommendation``, ``Capping``, ``Resizing``, ``Infeasible``, ``InRange``, ``Lifetime``,
    ``EvictionRequirements``, ``Budget``, ``RateLimit`` and ``Refused`` (by the API server, such as for a disruption
    budget); ``message`` has the numbers.
    """

    namespace: str
    pod: str
    vpa: str
    reason: str
    message: str


class UpdaterResult(msgspec.Struct, kw_only=True):
    """What a loop found out.

    - ``chosen``: by VPA, the neediest first; whether each is updated depends on budgets and limits.
    - ``diagnostics``: what upstream logs; ``details``: what it logs from ``-v=2`` on.
    - ``unchanged``: pods that are left as they are, and why; only of the plain call, or with ``explain``.
    - ``stopped_early``: a limiter could not wait, and the loop ended there.
    - ``actions``, ``events``, ``observations``: what the plain call (:func:`~kscale.vpa.run_updater`) would have done
      and said, in order; whoever runs the step machine has seen them.
    """

    chosen: list[ChosenPod] = []
    diagnostics: list[str] = []
    details: list[str] = []
    unchanged: list[UnchangedPod] = []
    state: UpdaterState = msgspec.field(default_factory=UpdaterState)
    stopped_early: bool = False
    actions: list[Action] = []
    events: list[Event] = []
    observations: list[Observation] = []

    def __repr__(self) -> str:
        stopped = ", stopped early" if self.stopped_early else ""
        return f"<UpdaterResult: {len(self.chosen)} pods chosen, {len(self.actions)} actions{stopped}>"

    def _repr_html_(self) -> str:
        """For a notebook: the pods that were chosen."""
        from kscale.html import notebook

        rows = [(f"{each.namespace}/{each.pod}", each.vpa, each.targets) for each in self.chosen]
        return notebook.listing(repr(self), ("pod", "VPA", "targets"), rows)
