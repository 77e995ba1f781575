"""What many HPAs ask in common, asked once, some questions at a time. A question that takes too long is answered with
``DEADLINE_EXCEEDED`` (:func:`is_late`); however many there are, the others are answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kscale.effects import DEADLINE_EXCEEDED, ApiError, GetMetric, Machine, Moment, Progress, Steps
from kscale.hpa.batch_specs import target_references
from kscale.hpa.gathered import GatheredMetrics
from kscale.hpa.scale_target import TargetScale, ask_scale
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.rest_mapping import BUILT_IN_MAPPER, RESTMapper, RESTMappingError, parse_group_version

__all__ = ["are_usual", "gather_metrics", "gather_scales", "is_late"]


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
    within: int | None = None,
    took: dict[Any, int] | None = None,
) -> Steps[dict[str, Any]]:
    """The scale of every target, or why there is none, by ``keys`` of the HPAs: what is not ``known`` is asked for.
    ``within``: what takes so many nanoseconds is too late (None: nothing is); ``took`` is told how many each took."""
    resources = target_references(hpas, mapper).resources
    rows = [row for row, key in enumerate(keys) if key not in known and resources[row]]
    if not rows:
        return dict(known)
    machines = [partial(_scale_of, hpas[row], resources[row]) for row in rows]
    found = yield from _found(progress, machines, at_most, within)
    if took is not None:
        took.update((keys[row], time) for row, (_, time) in zip(rows, found, strict=True))
    return {**known, **{keys[row]: scale for row, (scale, _) in zip(rows, found, strict=True)}}


def gather_metrics(
    progress: Progress,
    questions: Sequence[GetMetric],
    at_most: int,
    within: int | None = None,
    took: dict[Any, int] | None = None,
) -> Steps[GatheredMetrics]:
    """What the metrics APIs answer. ``within``: what takes so many nanoseconds is too late (None: nothing is);
    ``took`` is told how many each took."""
    answers: list[tuple[Any, int]] = []
    if questions:
        machines = [partial(_answer_to, each) for each in questions]
        answers = yield from _found(progress, machines, at_most, within)
    if took is not None:
        took.update((asked, time) for asked, (_, time) in zip(questions, answers, strict=True))
    return GatheredMetrics({asked: answer for asked, (answer, _) in zip(questions, answers, strict=True)})


def is_late(found: Any) -> bool:
    """Whether an answer took too long."""
    return isinstance(found, ApiError) and found == DEADLINE_EXCEEDED


def _found(
    progress: Progress, machines: Sequence[Machine], at_most: int, within: int | None
) -> Steps[list[tuple[Any, int]]]:
    """What machines return: (answer, nanoseconds that it took).

    All have the time of one, again and again: one by one they would cost more than what they do. Whose time was cut
    short, because it began late, begins anew; who had half of it or more is too late. So are all that are left once
    none of them finds anything: it is something else that gives them no time.
    """
    found: list[tuple[Any, int]] = [(None, 0)] * len(machines)
    left = list(range(len(machines)))
    while left:
        some = [machines[number] for number in left]
        if within is None:
            answers = yield from progress.together(some, at_most=at_most, brief=True)
        else:
            answers = yield from progress.within(within, partial(_together, some, at_most))
        again = []
        for number, (answer, took) in zip(left, answers, strict=True):
            found[number] = answer, took
            if within is not None and 2 * took < within and is_late(answer):
                again.append(number)
        left = again if len(again) < len(left) else []
    return found


def _together(machines: Sequence[Machine], at_most: int, now: Moment) -> Steps[list[Any]]:
    return (yield from Progress(now).together(machines, at_most=at_most, brief=True))


def _answer_to(question: GetMetric, now: Moment) -> Steps[Any]:
    outcome = yield from Progress(now).act(question)
    return (outcome.value if outcome.error is None else outcome.error), outcome.at - now


def _scale_of(hpa: HorizontalPodAutoscaler, resources: tuple[str, ...], now: Moment) -> Steps[Any]:
    """The scale of a target, or why there is none."""
    progress = Progress(now)
    found = yield from ask_scale(progress, hpa.metadata.namespace, hpa.spec.scale_target_ref.name, resources)
    return (found.scale if isinstance(found, TargetScale) else found), progress.now - now
