"""Pods and usage of a dump as columns, and the HPA that an external metrics list belongs to.

A list contains neither its namespace nor the selector that it was requested with, and KEDA's server responds without
labels: two ScaledObjects of a namespace both have a metric ``s0-prometheus``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from kscale._native import _projection
from kscale.effects import ZERO_TIME, Moment, from_text
from kscale.errors import InputError, Problem
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.replica_calculator import format_metric_selector
from kscale.imports import lazy_pattern
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.api.metrics import ExternalMetricValue
from kscale.objects.kinds import group_of
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.snapshot.pods.index import PodIndex
from kscale.snapshot.pods.store import PodStore
from kscale.snapshot.text.pod_reader import PodBatch, ScannedList
from kscale.snapshot.text.sources import RawObject

__all__ = [
    "DumpPods",
    "ExternalMetricLists",
    "MetricsScope",
    "decode_usage_items",
    "decode_usage_records",
    "is_valid_text",
    "iterate_records",
    "join_documents",
    "parse_cached_time",
    "read_newest_time",
    "split_scope",
]


@lru_cache(maxsize=1 << 14)
def parse_cached_time(text: str) -> Moment:
    """Parse a time with :func:`~kscale.effects.from_text`, cached as texts repeat."""
    return from_text(text)


class _UsageItem(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    status: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def head(self) -> _UsageItemHead:
        """Return the fields that identify an item as usage; they are equal for nearly all items."""
        return self.api_version, self.kind, self.spec is msgspec.UNSET and self.status is msgspec.UNSET


_UsageItemHead = tuple[str | None, str | None, bool]
"""API version, kind, and whether the item has neither spec nor status."""

_ITEMS_DECODER: Final = msgspec.json.Decoder(list[_UsageItem])


def join_documents(records: Sequence[RawObject]) -> memoryview:
    """Return the JSON objects of the records as one JSON list. Records with other data are left out."""
    items = b",".join(memoryview(each.data) for each in records if isinstance(each.data, msgspec.Raw))
    return memoryview(b"".join((b'{"apiVersion":"v1","kind":"List","items":[', items, b"]}")))


def decode_usage_records(records: Sequence[RawObject]) -> tuple[PodUsage, set[str]] | None:
    """Decode the usage in records and its creation times, or return None if they must be read one by one."""
    return decode_usage_items(
        b",".join(memoryview(each.data) for each in records if isinstance(each.data, msgspec.Raw))
    )


def decode_usage_items(text: bytes | memoryview) -> tuple[PodUsage, set[str]] | None:
    """Decode a list's items, separated by commas, as :func:`decode_usage_records` does; None if that is impossible."""
    listed = b"".join((b'{"kind":"PodMetricsList","items":[', text, b"]}"))
    if not is_valid_text(listed):
        return None
    try:
        usage, created = PodUsage.read_items(listed)
        if created is None:
            decoded = _ITEMS_DECODER.decode(b"".join((b"[", text, b"]")))
            if not all(map(_is_usage_head, {each.head for each in decoded})):
                return None
            created = list(map(attrgetter("metadata.creation_timestamp"), decoded))
    except (msgspec.DecodeError, RecursionError, InputError):
        return None
    return None if "" in usage.namespaces else (usage, {text for text in created if text})


def _is_usage_head(head: _UsageItemHead) -> bool:
    """Check whether the fields are those of an item of a PodMetricsList."""
    api_version, kind, bare = head
    return bare and kind in (None, "PodMetrics") and (api_version is None or group_of(api_version) == "metrics.k8s.io")


def is_valid_text(data: bytes | memoryview) -> bool:
    """Check whether all of the data is UTF-8 without escaped surrogates, even where the decoder does not look.

    False also for an escaped backslash before ``ud``. Callers then read the data by a slower path.
    """
    text = bytes(data)
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
    return b"\\" not in text or (b"\\ud" not in text and b"\\uD" not in text)


class DumpPods:
    """Pods by ``namespace/name``, in order of first appearance. The last of equal names counts.

    ``index``: the pods after the last one was added (:meth:`close`).
    """

    index: PodIndex

    def __init__(self) -> None:
        self.store = PodStore(threads=os.cpu_count() or 1)
        self._keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def namespaces(self) -> set[str]:
        """Return the namespaces of the pods."""
        return {key.partition("/")[0] for key in self._keys}

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """Read a JSON list whose pods are stored as columns.

        ``source``, ``place``: where the list is, for messages. None if the list is empty, or if the text is not a JSON
        list or has a syntax error. The caller then reads the text in another way.
        """
        scanned = self.store.reader.scan(view, source, place)
        return scanned if scanned is not None and len(scanned) else None

    def add(self, pod: Pod) -> bool:
        """Add a pod with a namespace and return True if it replaces one of the same name.

        Raises :class:`~kscale.errors.InputError` if the pod cannot be stored.
        """
        return self._is_duplicate(self.store.put(pod, None))

    def close(self) -> None:
        """Index the pods after all of them were added."""
        self.store.tidy()
        self.index = PodIndex(self.store.table.freeze())

    def add_batch(self, batch: PodBatch) -> list[int]:
        """Add pods. Returns the positions in the batch of pods that existed already, or came earlier in the batch."""
        self.store.put_batch(batch, refer=True, anew=True)
        new = set(batch.keys)
        if len(new) == len(batch.keys) and new.isdisjoint(self._keys):
            self._keys |= new
            return []
        return [position for position, key in enumerate(batch.keys) if self._is_duplicate(key)]

    def _is_duplicate(self, key: str) -> bool:
        """Check whether a pod's key was seen before, and record the key."""
        if key in self._keys:
            return True
        self._keys.add(key)
        return False


def read_newest_time(batch: PodBatch) -> Moment | None:
    """Return the newest time in a batch of pods, ``ZERO_TIME`` if there is none; None if a time is invalid."""
    newest, unusual = _projection.newest_time(batch.view, batch.column("begin"), batch.column("size"))
    try:
        return max(newest, *(parse_cached_time(each.decode()) for each in set(unusual)), ZERO_TIME)
    except ValueError:
        return None


def iterate_records(batch: PodBatch) -> Iterator[RawObject]:
    """Yield the pods of a batch as records."""
    columns = (batch.column(name).tolist() for name in ("where", "begin", "size"))
    for where, begin, size in zip(*columns, strict=True):
        text = msgspec.Raw(batch.view[begin : begin + size])
        yield RawObject("v1", "Pod", text, batch.source, f"{batch.place}[{where}]")


_NAMESPACE_PATTERN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SCOPE_PATTERN: Final = lazy_pattern(
    rf"(?P<namespace>{_NAMESPACE_PATTERN})(?:/(?P<hpa>[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)|:(?P<selector>.+))?"
)


class MetricsScope(NamedTuple):
    """Scope of an external list, which is its namespace, and an HPA in it or the selector of the request."""

    namespace: str
    hpa: str = ""
    selector: str = ""

    @classmethod
    def parse(cls, text: str) -> MetricsScope:
        """Parse ``NS``, ``NS/HPA`` or ``NS:SELECTOR``. Raises :class:`~kscale.errors.InputError`."""
        match = _SCOPE_PATTERN.fullmatch(text)
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
    """Split ``SCOPE=FILE`` into (scope, file); None if the text has no scope.

    A selector may contain ``=``, so the last one separates.
    """
    split = str.rpartition if ":" in text.partition("=")[0] else str.partition
    scope, equals, path = split(text, "=")
    return (scope, path) if equals and _SCOPE_PATTERN.fullmatch(scope) else None


@dataclass(slots=True)
class _ExternalList:
    """The values of one metric in one list."""

    scope: MetricsScope
    source: str
    items: list[ExternalMetricValue] = field(default_factory=list)


class ExternalMetricLists(msgspec.Struct, eq=False):
    """Collector of external lists, which assigns values to selectors once all HPAs are known."""

    _scoped: dict[tuple[int, str], _ExternalList] = {}
    _unlabelled: dict[tuple[int, str, str], _ExternalList] = {}

    def add(self, number: int, scope: MetricsScope, item: ExternalMetricValue, source: str) -> bool:
        """Add a value of list ``number`` to the values of its scope.

        Returns False if the scope has neither HPA nor selector: the caller then adds the value to the metrics, where it
        counts for every HPA of its namespace that selects it.
        """
        if scope.hpa or scope.selector:
            self._scoped.setdefault((number, item.metric_name), _ExternalList(scope, source)).items.append(item)
            return True
        if item.metric_labels is None:
            key = number, scope.namespace, item.metric_name
            self._unlabelled.setdefault(key, _ExternalList(scope, source)).items.append(item)
        return False

    def names(self, namespace: str) -> list[str]:
        """Return the names of the metrics of scoped lists of a namespace."""
        return list(
            dict.fromkeys(name for (_, name), each in self._scoped.items() if each.scope.namespace == namespace)
        )

    def resolve(
        self, hpas: Mapping[str, HorizontalPodAutoscaler], owners: Mapping[str, str], metrics: MetricLists
    ) -> list[Problem]:
        """Add the values of scoped lists to ``metrics``, and return problems for ambiguous and conflicting values.

        Of scoped lists with different values for one selector, the first is added. Values without labels that several
        selectors could mean, or that conflict, are dropped from ``metrics``. ``owners``: the key of an HPA by the key
        of the ScaledObject that it is generated from.
        """
        users = _find_selector_users(hpas.values())
        problems: list[Problem] = []
        answers: dict[tuple[str, str, str], _ExternalList] = {}
        for (_, name), values in self._scoped.items():
            selector = _find_list_selector(values.scope, name, hpas, owners, users)
            if isinstance(selector, Problem):
                problems.append(selector)
                continue
            key = values.scope.namespace, name, selector
            other = answers.setdefault(key, values)
            if _format_values(other) != _format_values(values):
                problems.append(_conflicting_lists_problem([other, values], name, values.scope))
        for (namespace, name, selector), values in answers.items():
            metrics.add_external_answer(namespace, name, selector, values.items)
        unlabelled: dict[tuple[str, str], list[_ExternalList]] = {}
        for (_, namespace, name), values in self._unlabelled.items():
            unlabelled.setdefault((namespace, name), []).append(values)
        for (namespace, name), lists in unlabelled.items():
            selectors = [
                each for each in users.get((namespace, name), {}) if not metrics.is_answered(namespace, name, each)
            ]
            if len(selectors) > 1:
                problems.append(_ambiguous_list_problem(lists, namespace, name, users[namespace, name], selectors))
            elif any(_format_values(each) != _format_values(lists[0]) for each in lists):
                problems.append(_conflicting_lists_problem(lists, name, MetricsScope(namespace)))
            else:
                continue
            metrics.drop_unlabelled(namespace, name)
        return problems


_SelectorUsers = Mapping[tuple[str, str], Mapping[str, str]]
"""(namespace, metric) -> selector of the series -> name of an HPA with that selector."""


def _find_selector_users(hpas: Iterable[HorizontalPodAutoscaler]) -> _SelectorUsers:
    """Return by (namespace, metric): selector -> name of the first HPA that uses it for this external metric.

    Malformed selectors are left out: the HPA's decision reports them.
    """
    users: dict[tuple[str, str], dict[str, str]] = {}
    for hpa in hpas:
        for spec in hpa.spec.metrics or ():
            if spec.external is None:
                continue
            try:
                selector = format_metric_selector(spec.external.metric.selector)
            except ValueError:
                continue  # the HPA reports it
            where = hpa.metadata.namespace, spec.external.metric.name
            users.setdefault(where, {}).setdefault(selector, hpa.metadata.name)
    return users


def _find_list_selector(
    scope: MetricsScope,
    name: str,
    hpas: Mapping[str, HorizontalPodAutoscaler],
    owners: Mapping[str, str],
    users: _SelectorUsers,
) -> str | Problem:
    """Return the selector with which a scoped list was requested, or a problem if that is not clear.

    ``name``: of the metric. ``owners``: the key of an HPA by the key of its ScaledObject. ``users``: see
    :func:`_find_selector_users`.
    """
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
    selectors = list(_find_selector_users([hpa]).get((scope.namespace, name), {}))
    if len(selectors) == 1:
        return selectors[0]
    if not selectors:
        return Problem(f"HorizontalPodAutoscaler {key} has no external metric {name}", "", where)
    text = f"HorizontalPodAutoscaler {key} selects {name} by {' and by '.join(selectors)}: give the list as "
    return Problem(f"{text}{scope.namespace}:SELECTOR=FILE", "", where)


def _format_values(values: _ExternalList) -> list[str]:
    """Return the values of a list as texts."""
    return [str(each.value) for each in values.items]


def _conflicting_lists_problem(lists: list[_ExternalList], name: str, scope: MetricsScope) -> Problem:
    """Build the problem of lists with different values for the same metric and scope."""
    sources = ", ".join(dict.fromkeys(each.source for each in lists if each.source))
    text = f"lists with different values and no labels are given for {name} in {scope}"
    text += "" if scope.hpa or scope.selector else "; give each as NS/HPA=FILE or NS:SELECTOR=FILE"
    return Problem(text, sources, f"ExternalMetricValue {scope.namespace}/{name}")


def _ambiguous_list_problem(
    lists: list[_ExternalList], namespace: str, name: str, names: Mapping[str, str], selectors: list[str]
) -> Problem:
    """Build the problem of a list without labels that several HPAs could mean.

    ``names``: the HPA by the selector that it uses, for each of ``selectors``.
    """
    sources = ", ".join(dict.fromkeys(each.source for each in lists if each.source))
    shown = ", ".join(f"{names[each]} by {each or 'no label'}" for each in selectors[:3])
    text = f"the values carry no labels, and several HorizontalPodAutoscalers select the metric ({shown}): "
    text += f"give each list with its HPA, such as {namespace}/{names[selectors[0]]}=FILE"
    return Problem(text, sources, f"ExternalMetricValue {namespace}/{name}")
