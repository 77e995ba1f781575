"""Which HPA an external metrics list is for.

A list names neither its namespace nor the selector that it was requested with, and KEDA's server answers without
labels: two ScaledObjects of a namespace both have a metric ``s0-prometheus``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kscale.errors import InputError, Problem
from kscale.hpa.queries import MetricLists
from kscale.hpa.replica_calculator import selector_text
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.metrics import ExternalMetricValue
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError

__all__ = ["ExternalLists", "MetricsScope", "split_scope"]

_NAMESPACE: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SCOPE: Final = re.compile(
    rf"(?P<namespace>{_NAMESPACE})(?:/(?P<hpa>[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)|:(?P<selector>.+))?"
)


class MetricsScope(NamedTuple):
    """What an external list is for: a namespace, and an HPA of it or the selector that the list was requested with."""

    namespace: str
    hpa: str = ""
    selector: str = ""

    @classmethod
    def parse(cls, text: str) -> MetricsScope:
        """Parse ``NS``, ``NS/HPA`` or ``NS:SELECTOR``. Raises :class:`~kscale.errors.InputError`."""
        match = _SCOPE.fullmatch(text)
        if match is None:
            raise InputError(f"{text!r} is none of NS, NS/HPA and NS:SELECTOR")
        selector = match["selector"] or ""
        try:
            canonical = str(parse_selector(selector)) if selector else ""
        except SelectorError as error:
            raise InputError(f'"{selector}" is not a label selector: {error}') from None
        return cls(match["namespace"], match["hpa"] or "", canonical)

    def __str__(self) -> str:
        return self.namespace + (f"/{self.hpa}" if self.hpa else f":{self.selector}" if self.selector else "")


def split_scope(text: str) -> tuple[str, str] | None:
    """Split ``SCOPE=FILE``; None if the text has no scope. A selector may hold ``=``, so that the last one counts."""
    split = str.rpartition if ":" in text.partition("=")[0] else str.partition
    scope, equals, path = split(text, "=")
    return (scope, path) if equals and _SCOPE.fullmatch(scope) else None


@dataclass(slots=True)
class _List:
    """The values of one metric in one list."""

    scope: MetricsScope
    source: str
    items: list[ExternalMetricValue] = field(default_factory=list)


class ExternalLists:
    """Collects external lists until all HPAs are known, then says which values belong to which selector."""

    def __init__(self) -> None:
        self._scoped: dict[tuple[int, str], _List] = {}
        self._unlabelled: dict[tuple[int, str, str], _List] = {}

    def add(self, number: int, scope: MetricsScope, item: ExternalMetricValue, source: str) -> bool:
        """Take a value of list ``number``; False if it counts for whoever selects it in its namespace."""
        if scope.hpa or scope.selector:
            self._scoped.setdefault((number, item.metric_name), _List(scope, source)).items.append(item)
            return True
        if item.metric_labels is None:
            key = number, scope.namespace, item.metric_name
            self._unlabelled.setdefault(key, _List(scope, source)).items.append(item)
        return False

    def names(self, namespace: str) -> list[str]:
        """Return the metrics of scoped lists of a namespace."""
        return list(
            dict.fromkeys(name for (_, name), each in self._scoped.items() if each.scope.namespace == namespace)
        )

    def resolve(
        self, hpas: Mapping[str, HorizontalPodAutoscaler], owners: Mapping[str, str], metrics: MetricLists
    ) -> list[Problem]:
        """Hand the values over to ``metrics`` and return what is ambiguous, whose values are dropped.

        ``owners``: the key of an HPA by that of the ScaledObject that it is made of.
        """
        users = _users(hpas.values())
        problems: list[Problem] = []
        answers: dict[tuple[str, str, str], _List] = {}
        for (_, name), values in self._scoped.items():
            selector = _selector_of(values.scope, name, hpas, owners, users)
            if isinstance(selector, Problem):
                problems.append(selector)
                continue
            key = values.scope.namespace, name, selector
            other = answers.setdefault(key, values)
            if _texts(other) != _texts(values):
                problems.append(_several([other, values], name, values.scope))
        for (namespace, name, selector), values in answers.items():
            metrics.add_external_answer(namespace, name, selector, values.items)
        unlabelled: dict[tuple[str, str], list[_List]] = {}
        for (_, namespace, name), values in self._unlabelled.items():
            unlabelled.setdefault((namespace, name), []).append(values)
        for (namespace, name), lists in unlabelled.items():
            selectors = [
                each for each in users.get((namespace, name), {}) if not metrics.is_answered(namespace, name, each)
            ]
            if len(selectors) > 1:
                problems.append(_ambiguous(lists, namespace, name, users[namespace, name], selectors))
            elif any(_texts(each) != _texts(lists[0]) for each in lists):
                problems.append(_several(lists, name, MetricsScope(namespace)))
            else:
                continue
            metrics.drop_unlabelled(namespace, name)
        return problems


_Users = Mapping[tuple[str, str], Mapping[str, str]]
"""By (namespace, metric) the selectors of its series, each with the name of an HPA that has it."""


def _users(hpas: Iterable[HorizontalPodAutoscaler]) -> _Users:
    users: dict[tuple[str, str], dict[str, str]] = {}
    for hpa in hpas:
        for spec in hpa.spec.metrics or ():
            if spec.external is None:
                continue
            try:
                selector = selector_text(spec.external.metric.selector)
            except ValueError:
                continue  # the HPA reports it
            where = hpa.metadata.namespace, spec.external.metric.name
            users.setdefault(where, {}).setdefault(selector, hpa.metadata.name)
    return users


def _selector_of(
    scope: MetricsScope,
    name: str,
    hpas: Mapping[str, HorizontalPodAutoscaler],
    owners: Mapping[str, str],
    users: _Users,
) -> str | Problem:
    """The selector that a scoped list answers."""
    where = f"ExternalMetricValueList {scope}"
    if scope.selector:
        known = users.get((scope.namespace, name), {})
        if scope.selector in known:
            return scope.selector
        return Problem(f"no HorizontalPodAutoscaler of {scope.namespace} selects {name} by {scope.selector}", "", where)
    key = f"{scope.namespace}/{scope.hpa}"
    hpa = hpas.get(key) or hpas.get(owners.get(key, ""))
    if hpa is None:
        return Problem(f"no HorizontalPodAutoscaler {key} in the input", "", where)
    selectors = list(_users([hpa]).get((scope.namespace, name), {}))
    if len(selectors) == 1:
        return selectors[0]
    if not selectors:
        return Problem(f"HorizontalPodAutoscaler {key} has no external metric {name}", "", where)
    text = f"HorizontalPodAutoscaler {key} selects {name} by {' and by '.join(selectors)}: give the list as "
    return Problem(f"{text}{scope.namespace}:SELECTOR=FILE", "", where)


def _texts(values: _List) -> list[str]:
    return [str(each.value) for each in values.items]


def _several(lists: list[_List], name: str, scope: MetricsScope) -> Problem:
    sources = ", ".join(dict.fromkeys(each.source for each in lists if each.source))
    text = f"lists with different values and no labels are given for {name} in {scope}"
    text += "" if scope.hpa or scope.selector else "; give each as NS/HPA=FILE or NS:SELECTOR=FILE"
    return Problem(text, sources, f"ExternalMetricValue {scope.namespace}/{name}")


def _ambiguous(
    lists: list[_List], namespace: str, name: str, names: Mapping[str, str], selectors: list[str]
) -> Problem:
    sources = ", ".join(dict.fromkeys(each.source for each in lists if each.source))
    shown = ", ".join(f"{names[each]} by {each or 'no label'}" for each in selectors[:3])
    text = f"the values carry no labels, and several HorizontalPodAutoscalers select the metric ({shown}): "
    text += f"give each list with its HPA, such as {namespace}/{names[selectors[0]]}=FILE"
    return Problem(text, sources, f"ExternalMetricValue {namespace}/{name}")
