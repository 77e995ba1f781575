"""Inputs and results of one round of the recommender (upstream: ``pkg/recommender/input/cluster_feeder.go``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from kscale.effects import (
    Action,
    ApiError,
    Create,
    Delete,
    Emit,
    Get,
    GetMetric,
    GetScale,
    InBackground,
    List,
    Observation,
    Observe,
    Patch,
    Progress,
    StepsOf,
    Together,
    Wait,
    Within,
)
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.vpa import RecommendedPodResources, VerticalPodAutoscaler, VerticalPodAutoscalerStatus
from kscale.objects.argument_types import typed
from kscale.records import Result, Rows
from kscale.vpa.controllers import Controllers
from kscale.vpa.model.saved_state import AggregateKey, RecommenderState, Usage, UsageError
from kscale.vpa.model.usage import OutOfMemory
from kscale.vpa.model.vpa import PodKey
from kscale.vpa.options import RecommenderOptions, describe_percentiles
from kscale.vpa.recommender.estimators import get_minimum_amounts
from kscale.vpa.resources import ResourceTargets, explain_target, get_amount

__all__ = [
    "ExplainSteps",
    "PodChanges",
    "RecommenderAction",
    "RecommenderResult",
    "RecommenderRound",
    "VpaResult",
    "diff_pods",
]

RecommenderAction = (
    Get
    | GetScale
    | GetMetric
    | List
    | Patch
    | Create
    | Delete
    | Wait
    | Together
    | Within
    | InBackground
    | Emit
    | Observe
)
"""Actions of a round."""

ExplainSteps = Callable[[Sequence["VpaResult"], Progress], StepsOf[GetScale | Emit, None]]
"""Receives the results of a round's VPAs before they are written."""


class PodChanges(msgspec.Struct, kw_only=True, frozen=True):
    """Changes of pods since the previous round.

    ``changed``: their current state, including new pods; unchanged pods are allowed. ``deleted``: (namespace, name) of
    deleted pods. Upstream does not watch pending pods, so the caller leaves them out.
    """

    changed: Sequence[Pod] = ()
    deleted: Sequence[PodKey] = ()

    def __repr__(self) -> str:
        return f"<PodChanges: {len(self.changed)} changed, {len(self.deleted)} deleted>"


@typed
def diff_pods(state: RecommenderState, pods: Sequence[Pod]) -> PodChanges:
    """Compute the changes from a complete list of pods: all listed pods are changed, all others are removed."""
    listed = {(pod.namespace, pod.name) for pod in pods}
    known = (key for keys in (state.pods, state.unselected_pods) for key in keys)
    return PodChanges(changed=pods, deleted=sorted(key for key in known if key not in listed))


class RecommenderRound(msgspec.Struct, kw_only=True):
    """Inputs of a round.

    - ``vpas``: all VPAs, of any recommender. None: they could not be listed, so the round uses those of the previous
      one.
    - ``pods``: changes since the previous round; in the first round, all pods.
    - ``controllers``: the current controllers of well-known kinds, and the source of scales.
    - ``usage``: samples in the order in which they are added. None: metrics-server is queried, or the external
      metrics that the options name.
    - ``ooms``: containers that were OOM-killed; they are added after the samples.
    """

    vpas: Sequence[VerticalPodAutoscaler] | None = None
    pods: PodChanges = PodChanges()
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    usage: Sequence[Usage] | None = None
    ooms: Sequence[OutOfMemory] = ()

    def __repr__(self) -> str:
        vpas = "no list of VPAs" if self.vpas is None else f"{len(self.vpas)} VPAs"
        return f"<RecommenderRound: {vpas}, {len(self.pods.changed)} pods changed, {len(self.pods.deleted)} deleted>"


_TARGET_RESOURCES: Final = ("cpu", "memory")


def _explain_vpa(vpa: VpaResult, options: RecommenderOptions) -> str:
    """Explain the targets of all containers of a VPA, or why there is no recommendation."""
    containers = [] if vpa.recommendation is None else vpa.recommendation.container_recommendations
    if not containers:
        reasons = [f"{each.type}: {each.message or each.reason}" for each in vpa.status.conditions or ()]
        return "; ".join([f"no recommendation, {vpa.pod_count:,} pods", *reasons])
    method = describe_percentiles(options)
    minimum = get_minimum_amounts(len(containers), options)
    texts = []
    for container in containers:
        for resource in _TARGET_RESOURCES:
            if resource not in (container.target or {}):
                continue
            target, uncapped, lower, upper = (
                get_amount(amounts, resource)
                for amounts in (
                    container.target,
                    container.uncapped_target,
                    container.lower_bound,
                    container.upper_bound,
                )
            )
            amounts = ResourceTargets(target, uncapped, lower, upper, minimum[resource])
            texts.append(f"{container.container_name}: {explain_target(resource, amounts, method)}")
    return "; ".join(texts)


class VpaResult(msgspec.Struct, kw_only=True):
    """Result of a round for one VPA.

    ``pod_count``: how many pods it selects; ``selector``: that of its target in the API's text form; empty if it
    selects all pods of the namespace, or if the target cannot be resolved and it selects none. ``status_written``: the
    status differs from the object's, so it is patched; ``refusal``: why the patch failed.
    """

    namespace: str
    name: str
    status: VerticalPodAutoscalerStatus
    status_written: bool
    pod_count: int
    selector: str
    refusal: ApiError | None = None

    @property
    def recommendation(self) -> RecommendedPodResources | None:
        """Return the recommendation in the status; None if there is none."""
        return self.status.recommendation

    def __repr__(self) -> str:
        count = len(self.recommendation.container_recommendations) if self.recommendation is not None else 0
        written = "written" if self.status_written and self.refusal is None else "not written"
        return f"<VpaResult {self.namespace}/{self.name}: {count} containers, {written}>"


class RecommenderResult(Result, msgspec.Struct, kw_only=True):
    """Result of a round.

    - ``vpas``: those of this recommender, in listed order.
    - ``errors``: samples and OOMs that were rejected, in order.
    - ``collected``: aggregates that were collected as garbage.
    - ``diagnostics``: what upstream logs.
    - ``steps``: how long each step took (upstream's names).
    - ``options``: those of the round, which the texts of :meth:`explain` name.
    - ``actions``, ``observations``: what the plain call (:func:`~kscale.vpa.run_once`) would have done and counted, in
      order; whoever runs the step machine has seen them.
    """

    vpas: list[VpaResult] = []
    errors: list[UsageError] = []
    collected: list[AggregateKey] = []
    diagnostics: list[str] = []
    steps: dict[str, timedelta] = {}
    options: RecommenderOptions = RecommenderOptions()
    actions: list[Action] = []
    observations: list[Observation] = []

    def __repr__(self) -> str:
        written = sum(each.status_written for each in self.vpas)
        counts = f"{len(self.vpas)} VPAs, {written} statuses written, {len(self.errors)} samples refused"
        return f"<RecommenderResult: {counts}>"

    def explain(self, vpa: str) -> str:
        """Explain in one line how the targets of a VPA's containers result from percentile, minimum and policy.

        ``vpa``: ``namespace/name``. Raises InputError if this recommender does not serve such a VPA.
        """
        for item in self.vpas:
            if vpa == f"{item.namespace}/{item.name}":
                return _explain_vpa(item, self.options)
        raise InputError(f"no VPA {vpa!r} in this result")

    def table_rows(self) -> Rows:
        """Return one row per recommended container: its VPA, its name, its targets of cpu and memory (text or None)."""
        rows = [
            (
                f"{vpa.namespace}/{vpa.name}",
                container.container_name,
                *(str(targets[name]) if name in targets else None for name in _TARGET_RESOURCES),
            )
            for vpa in self.vpas
            if vpa.recommendation is not None
            for container in vpa.recommendation.container_recommendations
            for targets in [container.target or {}]
        ]
        return Rows({"vpa": str, "container": str, **dict.fromkeys(_TARGET_RESOURCES, str)}, rows)
