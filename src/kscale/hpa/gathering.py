"""What many HPAs ask in common, asked once, some questions at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kscale.effects import GetMetric, Moment, Progress, Steps
from kscale.hpa.batch_specs import target_references
from kscale.hpa.gathered import GatheredMetrics
from kscale.hpa.scale_target import TargetScale, ask_scale
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.rest_mapping import BUILT_IN_MAPPER, RESTMapper, RESTMappingError, parse_group_version

__all__ = ["are_usual", "gather_metrics", "gather_scales"]


def are_usual(hpas: Iterable[HorizontalPodAutoscaler]) -> bool:
    """Whether every server has the kinds that HPAs scale, so that nobody needs to be asked how they are served."""
    references = {(hpa.spec.scale_target_ref.api_version, hpa.spec.scale_target_ref.kind) for hpa in hpas}
    return all(_is_usual(*each) for each in references)


def _is_usual(api_version: str, kind: str) -> bool:
    try:
        BUILT_IN_MAPPER.resources(parse_group_version(api_version)[0], kind)
    except RESTMappingError:
        return api_version.count("/") > 1  # which no server could mend
    return True


def gather_scales(
    progress: Progress,
    hpas: Sequence[HorizontalPodAutoscaler],
    keys: Sequence[str],
    known: Mapping[str, Any],
    mapper: RESTMapper,
    at_most: int,
) -> Steps[dict[str, Any]]:
    """The scale of every target, or why there is none, by ``keys`` of the HPAs: what is not ``known`` is asked for."""
    resources = target_references(hpas, mapper).resources
    rows = [row for row, key in enumerate(keys) if key not in known and resources[row]]
    if not rows:
        return dict(known)
    machines = [partial(_scale_of, hpas[row], resources[row]) for row in rows]
    found = yield from progress.together(machines, at_most=at_most, brief=True)
    return {**known, **{keys[row]: scale for row, scale in zip(rows, found, strict=True)}}


def gather_metrics(progress: Progress, questions: Sequence[GetMetric], at_most: int) -> Steps[GatheredMetrics]:
    """What the metrics APIs answer."""
    answers: list[Any] = []
    if questions:
        machines = [partial(_answer_to, each) for each in questions]
        answers = yield from progress.together(machines, at_most=at_most, brief=True)
    return GatheredMetrics(dict(zip(questions, answers, strict=True)))


def _answer_to(question: GetMetric, now: Moment) -> Steps[Any]:
    outcome = yield from Progress(now).act(question)
    return outcome.value if outcome.error is None else outcome.error


def _scale_of(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...], now: Moment) -> Steps[Any]:
    """The scale of a target, or why there is none."""
    found = yield from ask_scale(Progress(now), hpa.metadata.namespace, hpa.spec.scale_target_ref.name, resources)
    return found.scale if isinstance(found, TargetScale) else found
