"""Table of the legal outcomes of each action. Not in upstream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from kscale.effects.actions import (
    Action,
    Create,
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    Delete,
    DeleteGroup,
    DeleteNodes,
    Discover,
    Emit,
    Evict,
    Get,
    GetMetric,
    GetPrices,
    GetScale,
    GetWhole,
    HasInstances,
    InBackground,
    IncreaseSize,
    List,
    Observe,
    Patch,
    Preview,
    Prices,
    PutScale,
    QueryPrometheus,
    Ranking,
    RankOptions,
    ReadStores,
    Refresh,
    Resize,
    Together,
    Wait,
    Within,
    WriteStatus,
)
from kscale.effects.outcomes import ApiError, Outcome
from kscale.errors import KscaleError
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList
from kscale.objects.kinds import KINDS, find_kind
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.nodegroups import Groups
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["ANSWERS", "Answer", "WrongAnswerError", "check_answer"]


class WrongAnswerError(KscaleError, TypeError):
    """A world returned an illegal outcome: ``outcome`` for ``action``."""

    def __init__(self, action: object, outcome: object, text: str) -> None:
        super().__init__(f"{type(action).__name__}: {text}")
        self.action = action
        self.outcome = outcome


class Answer(NamedTuple):
    """Legal outcomes of an action.

    - ``words``: description of the value. ``fits(action, value)``: whether a value is legal.
    - ``question``: the action only reads, and the machine cannot continue without a value or an error.
    - ``refusable``: the outcome may be an error.
    """

    words: str
    fits: Callable[[Any, Any], bool]
    question: bool = False
    refusable: bool = True


def _is_none(_action: object, value: object) -> bool:
    return value is None


@cache
def _structs(api_version: str, kind: str) -> tuple[type[KubeObject], ...]:
    """Return the structs of a kind, without ``api_version`` those of every group; KubeObject if there is none."""
    versions = [api_version] if api_version else [group for group, name in KINDS if name == kind]
    structs = [struct for version in versions if (struct := find_kind(version, kind)) is not None]
    return tuple(structs) or (KubeObject,)


def _object(action: Get, value: object) -> bool:
    return isinstance(value, _structs(action.api_version, action.kind))


def _objects(action: List, value: object) -> bool:
    structs = _structs(action.read_as or action.api_version, action.kind)
    return isinstance(value, list | tuple) and all(isinstance(item, structs) for item in value)


def _metric(action: GetMetric, value: object) -> bool:
    if action.api == "resource":
        return isinstance(value, PodUsage if action.columns else PodMetricsList)
    if action.api == "external":
        return isinstance(value, ExternalMetricValueList)
    return isinstance(value, MetricValueList) or (bool(action.name) and isinstance(value, MetricValue))


def _groups(_action: object, value: object) -> bool:
    if value is None or isinstance(value, Groups):
        return True
    return isinstance(value, list | tuple) and all(isinstance(item, NodeGroup) for item in value)


def _machines(action: HasInstances, value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= set(action.nodes)
        and all(isinstance(item, bool) for item in value.values())
    )


def _prices(action: GetPrices, value: object) -> bool:
    if not isinstance(value, Prices) or (len(value.nodes), len(value.pods)) != (len(action.nodes), len(action.pods)):
        return False
    return all(isinstance(price, float | int | ApiError) for price in (*value.nodes, *value.pods))


def _values(action: Together, value: object) -> bool:
    return isinstance(value, list) and len(value) == len(action.machines)


_DATA: Final = Answer("an object as a dict", lambda _, value: isinstance(value, dict), question=True)
_DONE: Final = Answer("None", _is_none)
_SAID: Final = Answer("None", _is_none, refusable=False)
_WRITTEN: Final = Answer(
    "the resource version after the write, or None", lambda _, value: value is None or isinstance(value, str)
)

ANSWERS: Final[Mapping[type[Any], Answer]] = {
    Refresh: Answer("a list of NodeGroups or Groups, or None: as they were", _groups),
    HasInstances: Answer("a dict of booleans by the names of nodes", _machines, question=True),
    GetPrices: Answer("Prices of each node and each pod", _prices, question=True),
    IncreaseSize: _DONE,
    DecreaseTargetSize: _DONE,
    DeleteNodes: _DONE,
    CreateGroup: Answer(
        "CreatedGroups, or None: made as it was described",
        lambda _, value: value is None or isinstance(value, CreatedGroups),
    ),
    DeleteGroup: _DONE,
    Get: Answer("an object of the kind", _object, question=True),
    GetWhole: _DATA,
    List: Answer("a list of objects of the kind", _objects, question=True),
    Discover: Answer("a RESTMapper", lambda _, value: isinstance(value, RESTMapper), question=True),
    Create: _WRITTEN,
    Preview: _DATA,
    Patch: _WRITTEN,
    Delete: _DONE,
    Evict: _DONE,
    Resize: _DONE,
    GetScale: Answer("a Scale", lambda _, value: isinstance(value, Scale), question=True),
    PutScale: Answer("the Scale as written, or None", lambda _, value: value is None or isinstance(value, Scale)),
    WriteStatus: _WRITTEN,
    GetMetric: Answer(
        "a PodMetricsList (resource; as columns a PodUsage), a MetricValueList (custom; of one object its MetricValue "
        "does too), an ExternalMetricValueList (external)",
        _metric,
        question=True,
    ),
    QueryPrometheus: Answer("the bytes of its answer", lambda _, value: isinstance(value, bytes), question=True),
    RankOptions: Answer("a Ranking", lambda _, value: isinstance(value, Ranking), question=True),
    Wait: _DONE,
    Together: Answer("the list of what the machines return", _values, refusable=False),
    Within: Answer("what the machine returns", lambda _action, _value: True, refusable=False),
    InBackground: _SAID,
    ReadStores: Answer("what was read, or None", lambda _action, _value: True, question=True, refusable=False),
    Emit: _SAID,
    Observe: _SAID,
}
"""Action -> its legal outcomes. An outcome may have an error instead, unless ``refusable`` is False. A Wait that ends
with an error was cut short, because the process or its deadline ends."""


def check_answer(action: Action, outcome: Outcome) -> Outcome:
    """Return the outcome if it is legal for the action. Raises :class:`WrongAnswerError` if not."""
    answer = ANSWERS.get(type(action))
    if answer is None:
        raise WrongAnswerError(action, outcome, "no such action is known")
    if type(outcome) is not Outcome:
        raise WrongAnswerError(action, outcome, f"an Outcome is due, not {type(outcome).__name__}")
    if type(outcome.at) is not int:
        raise WrongAnswerError(action, outcome, f"a moment is an int of nanoseconds, not {type(outcome.at).__name__}")
    if outcome.error is not None:
        if not isinstance(outcome.error, ApiError):
            raise WrongAnswerError(action, outcome, f"an error is an ApiError, not {type(outcome.error).__name__}")
        if not answer.refusable:
            raise WrongAnswerError(action, outcome, "it cannot be refused")
        if outcome.value is not None:
            raise WrongAnswerError(action, outcome, "an error comes without a value")
    elif not answer.fits(action, outcome.value):
        raise WrongAnswerError(action, outcome, f"{answer.words} is due, not {type(outcome.value).__name__}")
    return outcome
