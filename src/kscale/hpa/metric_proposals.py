"""All metrics of an HPA: the largest proposal, and what becomes of those that failed.

Upstream: ``computeReplicasForMetrics`` in ``horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kscale.effects import Emit, GetMetric, List, Observation, Observe, StepsOf
from kscale.hpa.calculation import Replicas
from kscale.hpa.metric_sources import (
    MetricError,
    MetricProposal,
    Target,
    compute,
    proposal_of,
    source_of,
    tolerances_of,
)
from kscale.hpa.metrics import METRIC_COMPUTATION_DURATION, METRIC_COMPUTATIONS, seconds
from kscale.hpa.metrics_client import RESTMetricsClient
from kscale.hpa.options import HPAOptions
from kscale.hpa.reconcile_pass import Pass
from kscale.hpa.replica_calculator import ReplicaCalculator
from kscale.objects.autoscaling import HorizontalPodAutoscaler, MetricStatus, Scale

__all__ = ["Proposals", "measured", "propose", "propose_known"]

_UNABLE: Final = "the HPA was unable to compute the replica count: "


class Proposals(msgspec.Struct, frozen=True, gc=False):
    """What came of the metrics of a spec, in its order.

    ``replicas`` is the largest proposal, ``name`` that of its metric; ``refused``: too many failed to go by what is
    left. ``error``: what failed, whether refused or not; ``error_class`` is that of the first.
    """

    each: tuple[MetricProposal | MetricError, ...]
    statuses: tuple[MetricStatus, ...]
    replicas: int
    name: str
    error: str
    error_class: str
    refused: bool


def propose(now: Pass, scale: Scale) -> StepsOf[List | GetMetric | Emit | Observe, Proposals]:
    """Computes every metric. Sets ScalingActive, tells of each metric that failed, and counts and times each."""
    target = Target(now.hpa.metadata.namespace, scale.status.selector, scale.spec.replicas, scale.status.replicas)
    calculator = ReplicaCalculator(RESTMetricsClient(now.progress), now.progress, now.now, now.options)
    tolerances = tolerances_of(now.hpa, now.options)
    found: list[MetricProposal | MetricError] = []
    for spec in now.hpa.spec.metrics or ():
        begun = now.progress.now
        proposal = yield from compute(spec, target, calculator, tolerances)
        found.append(proposal)
        if isinstance(proposal, MetricError):
            yield from now.warn(proposal.reason, proposal.message)
        # The outcome of the first tells when the metric was done: what it took is what passed until then.
        labels = _labels(now, spec.type, proposal)
        yield from now.progress.observe(Observation(name=METRIC_COMPUTATIONS, labels=labels))
        yield from now.progress.observe(seconds(METRIC_COMPUTATION_DURATION, begun, now.progress.now, labels))
    return _concluded(now, found, scale.spec.replicas)


def propose_known(now: Pass, scale: Scale, known: Sequence[Replicas]) -> tuple[Proposals, list[Observation]]:
    """What :func:`propose` comes to, and what it counts, where it is known what the calculator says of each metric,
    none of it an error: nothing is asked then, and it takes no time."""
    found = measured(now.hpa, known, now.options)
    observations: list[Observation] = []
    for spec, proposal in zip(now.hpa.spec.metrics or (), found, strict=True):
        labels = _labels(now, spec.type, proposal)
        observations.append(Observation(name=METRIC_COMPUTATIONS, labels=labels))
        observations.append(seconds(METRIC_COMPUTATION_DURATION, now.now, now.now, labels))
    return _concluded(now, found, scale.spec.replicas), observations


def measured(
    hpa: HorizontalPodAutoscaler, known: Sequence[Replicas], options: HPAOptions
) -> tuple[MetricProposal, ...]:
    """The proposals of the metrics of an HPA, where it is known what the calculator says of each, none of it an
    error."""
    found: list[MetricProposal] = []
    for spec, replicas in zip(hpa.spec.metrics or (), known, strict=True):
        source = source_of(spec, options)
        assert source is not None  # the calculator has an answer
        proposal = proposal_of(source, replicas)
        assert isinstance(proposal, MetricProposal)  # as that is no error
        found.append(proposal)
    return tuple(found)


def _concluded(now: Pass, found: Sequence[MetricProposal | MetricError], current: int) -> Proposals:
    """The largest proposal, unless too many failed. Sets ScalingActive."""
    best, best_name = 0, ""
    failed: list[MetricError] = []
    statuses: list[MetricStatus] = []
    for proposal in found:
        if isinstance(proposal, MetricError):
            failed.append(proposal)
            statuses.append(MetricStatus())
            continue
        statuses.append(proposal.status)
        replicas = proposal.replicas.replicas
        if best == 0 or replicas > best:
            best, best_name = replicas, proposal.name
    error, error_class = "", "none"
    if failed:
        error_class = "spec" if failed[0].invalid else "internal"
        error = f"invalid metrics ({len(failed)} invalid out of {len(found)}), first error is: {failed[0].error}"
    # Legacy: goes by what is left, whichever way, and says nothing.
    lenient = now.options.legacy and len(failed) < len(found)
    refused = not lenient and (len(failed) >= len(found) or (bool(failed) and best < current))
    if lenient:
        error, error_class = "", "none"
    if refused:
        if failed:
            now.set("ScalingActive", False, failed[0].reason, f"{_UNABLE}{failed[0].message}")
        error = error or "invalid metrics (0 invalid out of 0), first error is: %!w(<nil>)"
    else:
        text = f"the HPA was able to successfully calculate a replica count from {best_name}"
        now.set("ScalingActive", True, "ValidMetricFound", text)
    return Proposals(tuple(found), tuple(statuses), best, best_name, error, error_class, refused)


def _labels(now: Pass, type_: str, proposal: MetricProposal | MetricError) -> dict[str, str]:
    if isinstance(proposal, MetricError):
        return {"action": "none", "error": "spec" if proposal.invalid else "internal", "metric_type": type_}
    # Against the size of the last status, not of the scale.
    before, wanted = now.hpa.status.current_replicas, proposal.replicas.replicas
    action = "scale_up" if wanted > before else "scale_down" if wanted < before else "none"
    return {"action": action, "error": "none", "metric_type": type_}
