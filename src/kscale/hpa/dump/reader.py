"""Read a dump: HPAs, ScaledObjects, targets, definitions, pods and metrics lists, from any source.

Records that the fast decoders do not accept are read as plain data, whose errors name the object. Not in upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from kscale.effects import ZERO_TIME
from kscale.errors import InputError, Problem
from kscale.hpa.api.admission import Admission, DecodeError, decode_hpa, decode_hpas_fast, validate_stored
from kscale.hpa.api.keda import (
    KEDAWebhook,
    check_scaled_object,
    check_scaled_object_alone,
    generate_hpa,
    get_pause,
    list_guessed_metric_names,
    list_unmodelled_features,
)
from kscale.hpa.batch.requests import MetricLists
from kscale.hpa.controller.replica_calculator import format_metric_selector
from kscale.hpa.dump.dump import Dump
from kscale.hpa.dump.records import (
    ExternalMetricLists,
    MetricsScope,
    decode_usage_items,
    decode_usage_records,
    is_valid_text,
    iterate_records,
    join_documents,
    parse_cached_time,
    read_newest_time,
)
from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition
from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.meta import Condition, KubeObject
from kscale.objects.api.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kscale.objects.argument_types import typed
from kscale.objects.custom_workloads import ScaledObject
from kscale.objects.decode import decoder, describe, find_deepest_path, from_dict, object_head, to_dict
from kscale.objects.kinds import (
    DEFAULT_NAMESPACE,
    group_of,
    with_namespace,
)
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.scale import definition_of
from kscale.objects.times import parse_duration
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.text.pod_reader import PodBatch, PodRun, ScannedList
from kscale.snapshot.text.sources import DecodedItems, RawObject, Source, read_scanned

__all__ = ["decode_hpa_records", "read_dump"]


_METRIC_ITEM_KINDS: Final = {
    "metrics.k8s.io": "PodMetrics",
    "custom.metrics.k8s.io": "MetricValue",
    "external.metrics.k8s.io": "ExternalMetricValue",
}
_METRIC_API_NAMES: Final = {
    "metrics.k8s.io": "resource",
    "custom.metrics.k8s.io": "custom",
    "external.metrics.k8s.io": "external",
}
_IGNORED_KINDS: Final = frozenset({"Node", "NodeMetrics", "Secret", "ConfigMap", "Event", "Namespace", "Service"})


@collector_paused()
@typed
def read_dump(*sources: Source, metrics: Iterable[tuple[str | None, Source]] = (), strict: bool = True) -> Dump:
    """Read HPAs (v1, v2), ScaledObjects, scale targets, definitions, pods and metrics lists.

    Parameters
    ----------
    *sources
        As :func:`kscale.load` takes them.
    metrics : iterable of tuple
        Further (scope, source) pairs. The scope is that of an external list, which the list does not contain: ``NS``,
        ``NS/HPA`` or ``NS:SELECTOR`` (the selector of the request). None: the namespace of the HPAs if they share one.
    strict : bool
        Raise for objects that cannot be read. Otherwise they are left out and recorded in ``problems``.

    Returns
    -------
    Dump
        The contents of all sources.

    Raises
    ------
    InputError
        If a source cannot be read, or with ``strict`` any object: one error for all of them. Also for a malformed
        scope.
    """
    reading = _DumpReader()
    for text, source in [*((None, each) for each in sources), *metrics]:
        scope = None if text is None else MetricsScope.parse(text)
        for record in read_scanned(source, scan=reading.scan, empty_lists=True):
            assert not isinstance(record, DecodedItems)  # this scan decodes nothing
            reading.take(record, scope)
    return reading.end(strict=strict)


_MAPPING_OR_NONE: Final = (dict, NoneType, Mapping)
""":class:`~collections.abc.Mapping` last, as its check is slow."""


def read_plain_data(record: RawObject) -> Any:
    """Decode a record to plain data. A mapping without ``apiVersion`` or ``kind`` gets those of the record.

    Data that is plain already is returned itself, with these keys added. Raises :class:`~kscale.errors.InputError` for
    JSON that is invalid, not UTF-8 or nested too deeply.
    """
    data = record.data
    if isinstance(data, KubeObject):
        data = to_dict(data)
    elif isinstance(data, msgspec.Raw):
        text = memoryview(data)
        try:
            data = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise InputError(f"not readable as JSON in UTF-8: {problem}") from None
        except RecursionError:
            raise InputError(Problem("nested too deeply", field=find_deepest_path(text))) from None
    if isinstance(data, dict):
        data.setdefault("apiVersion", record.api_version)
        data.setdefault("kind", record.kind)
    return data


def read_data_for_name(record: RawObject) -> Any:
    """Return the data of an object as :func:`read_plain_data` does; of invalid JSON, only kind, namespace and name.

    None if the object is invalid and not JSON.
    """
    try:
        return read_plain_data(record)
    except InputError:
        if not isinstance(record.data, msgspec.Raw):
            return None
        head = object_head(memoryview(record.data))
        return {"kind": record.kind, "metadata": {"namespace": head.namespace, "name": head.name}}


def check_object_shape(data: Any) -> None:
    """Raise :class:`~kscale.errors.InputError` if the data, or a field that every object has, has the wrong type."""
    if not isinstance(data, (dict, Mapping)):
        raise InputError("not an object")
    for field_ in ("metadata", "spec", "status"):
        if not isinstance(data.get(field_), _MAPPING_OR_NONE):
            raise InputError(Problem("expected an object", field=field_))
    metadata = data.get("metadata") or {}
    for name in ("name", "namespace", "creationTimestamp"):
        if not isinstance(metadata.get(name), (str, NoneType)):
            raise InputError(Problem("expected a text", field=f"metadata.{name}"))


def with_default_namespace(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return data with the default namespace, as :func:`~kscale.objects.kinds.with_namespace` does.

    Objects of unknown kinds are namespaced too, as HPAs may scale them. Data without a name (a metric value) is
    unchanged.
    """
    metadata = data.get("metadata") or {}
    if metadata.get("namespace") or not metadata.get("name"):
        return data
    return {**data, "metadata": {**metadata, "namespace": DEFAULT_NAMESPACE}}


def get_data_key(data: Mapping[str, Any]) -> str:
    """Return ``namespace/name`` of an object in plain data. A part that is absent is empty."""
    metadata = data.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def describe_unlabelled_metrics(hpa: HorizontalPodAutoscaler, metrics: MetricLists) -> list[str]:
    """Return texts on metrics of an HPA that are selected by labels, while their values have no labels.

    Metrics with a malformed selector are left out: the HPA's decision reports them.
    """
    out = []
    for spec in hpa.spec.metrics or ():
        source = spec.pods or spec.object or spec.external
        if source is None:
            continue
        metric = source.metric
        try:
            selector = format_metric_selector(metric.selector)
        except ValueError:
            continue  # the HPA reports it
        lacks_labels = metrics.lacks_external_labels if spec.external else metrics.lacks_selectors
        if lacks_labels(hpa.metadata.namespace, metric.name, selector):
            out.append(f"the values of {metric.name} do not say their labels: taken to match {selector}")
    return out


_CREATED: Final = "metadata.creationTimestamp"


def _list_transitions(
    conditions: Iterable[Condition | HorizontalPodAutoscalerCondition],
) -> Iterator[tuple[str, str | None]]:
    """Yield the field and the text of the last transition of each condition in the status."""
    for number, condition in enumerate(conditions):
        yield f"status.conditions[{number}].lastTransitionTime", condition.last_transition_time


def decode_pod_record(record: RawObject) -> Pod | None:
    """Decode the pod of a record, or return None if it must be read as plain data."""
    raw = record.data
    if not isinstance(raw, msgspec.Raw) or not is_valid_text(memoryview(raw)):
        return None
    try:
        pod = decoder(Pod).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    pod.kind, pod.api_version = pod.kind or record.kind, pod.api_version or record.api_version
    return pod


def decode_hpa_records(records: Sequence[RawObject]) -> list[HorizontalPodAutoscaler | None]:
    """Decode the v2 HPAs of JSON records as the API server does. None for an HPA that must be read as plain data.

    Items of a list may lack apiVersion and kind, which the record has.
    """
    hpas = decode_hpas_fast([bytes(memoryview(each.data)) for each in records if isinstance(each.data, msgspec.Raw)])
    return [hpa if record.api_version == "autoscaling/v2" else None for record, hpa in zip(records, hpas, strict=True)]


def classify_record(record: RawObject) -> tuple[bool, bool, str]:
    """Return (whether a record is pod usage in JSON, whether it is decoded together with others, its API group).

    Decoded together are JSON objects of one kind: v2 HPAs, and pods that are no items of a list.
    """
    group, is_json, kind = group_of(record.api_version), isinstance(record.data, msgspec.Raw), record.kind
    is_usage = is_json and kind == "PodMetrics" and group == "metrics.k8s.io"
    is_hpa = is_json and kind == "HorizontalPodAutoscaler" and record.api_version == "autoscaling/v2"
    is_pod = is_json and kind == "Pod" and record.api_version == "v1" and not record.where.endswith("]")
    return is_usage, is_hpa or is_pod, group


_Messages = tuple[list[Problem], list[str]]
"""Problems, and objects that appeared more than once."""


class _Waiting(NamedTuple):
    """Pods, usage or an HPA that waits for others of the kind, and the numbers of problems and duplicates before it."""

    item: RawObject | PodRun
    problems: int
    duplicates: int


class _DumpReader:
    """Reader of a dump.

    ``external``: external metrics with their list's number, which are added when all HPAs are known. Pods and their
    usage, and HPAs, are collected until there are enough to be decoded together, whatever comes between them.
    """

    def __init__(self) -> None:
        self.dump = Dump()
        self.external: list[tuple[int, RawObject, MetricsScope | None]] = []
        self._waiting: list[_Waiting] = []
        self._waiting_count = self._waiting_size = 0
        self._number = 0
        self._last = ("", "", -1)  # source, place and number in the list of what came last
        self._usage: list[PodUsage | list[PodMetrics]] = []  # in reading order
        self._external_lists = ExternalMetricLists()  # external metrics whose HPA is known only at the end
        self._list_number = 0  # external values of one list add up, those of a later list replace them

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """Read a list whose pods are stored as columns; None if :meth:`DumpPods.scan` cannot read it.

        Items of a list of usage are added to the dump at once; the result then has no items.
        """
        scanned = self.dump.pods.scan(view, source, place)
        if scanned is None or scanned.kind != "PodMetricsList" or group_of(scanned.api_version) != "metrics.k8s.io":
            return scanned
        self._add_collected()
        if not self._add_usage(decode_usage_items(scanned.text)):
            return scanned
        self.dump.total += len(scanned)
        self._start_list(source, place, len(scanned) - 1)
        return scanned.without_items()

    def take(self, record: RawObject | Problem | PodRun, scope: MetricsScope | None) -> None:
        """Add the next record of a source. ``scope``: whose external metrics it has, if known.

        Pods, usage and v2 HPAs are collected first, and external metrics kept until the end.
        """
        dump = self.dump
        if isinstance(record, Problem):
            dump.total += 1
            dump.problems.append(record)
            return
        if isinstance(record, PodRun):
            dump.total += len(record)
            self._start_list(record.pods.source, record.pods.place, record.last_item)
            self._collect(record, "Pod", len(record))
            return
        dump.total += not record.empty
        is_usage, is_collected, group = classify_record(record)
        if is_usage:
            self._collect(record, record.kind, 1)
            return
        place, _, index = record.where.rpartition("[")
        at = int(index[:-1]) if index[:-1].isdigit() else -1
        self._start_list(record.source, place, at, again=at <= self._last[2])
        if is_collected:
            self._collect(record, record.kind, 1)
        elif group == "external.metrics.k8s.io":
            self.external.append((self._number, record, scope))
        else:
            if self._waiting and (record.kind in _COLLECTED_KINDS or group == "metrics.k8s.io"):
                self._add_collected()
            self._add_record(record, group, scope)

    def _start_list(self, source: str, place: str, at: int, *, again: bool = False) -> None:
        """Start a new list number for the following records, unless they belong to the list of the last call.

        ``at``: index in the list of the last record read, or -1. ``again``: the same list is read a second time.
        """
        self._number += again or (source, place) != self._last[:2]
        self._last = (source, place, at)

    def _collect(self, item: RawObject | PodRun, kind: str, count: int) -> None:
        """Collect pods, usage or HPAs (``count`` of them in ``item``) to be decoded together.

        Adds the collected objects to the dump once there are many.
        """
        dump = self.dump
        dump.read.setdefault(kind, 0)  # kinds are listed in the order in which they came
        self._waiting.append(_Waiting(item, len(dump.problems), len(dump.duplicates)))
        self._waiting_count += count
        if isinstance(item, RawObject) and isinstance(item.data, msgspec.Raw):
            self._waiting_size += len(memoryview(item.data))
        if self._waiting_count >= _MAX_WAITING or self._waiting_size >= _MAX_WAITING_SIZE:
            self._add_collected()

    def _add_collected(self) -> None:
        """Add all collected pods, usage and HPAs.

        Problems and duplicates are recorded in the order in which the objects came.
        """
        waiting, self._waiting = self._waiting, []
        self._waiting_count = self._waiting_size = 0
        dump, messages = self.dump, {}
        usage: dict[int, RawObject] = {}
        hpas: dict[int, RawObject] = {}
        pods: dict[int, RawObject | PodRun] = {}
        for number, (item, _, _) in enumerate(waiting):
            if isinstance(item, PodRun) or item.kind == "Pod":
                pods[number] = item
            else:
                (hpas if item.kind == "HorizontalPodAutoscaler" else usage)[number] = item
        if usage and not self._add_usage(decode_usage_records([*usage.values()])):
            messages = {number: self._add_singly(item) for number, item in usage.items()}
        messages.update(self._add_hpas(hpas))
        for parent, group in groupby(pods.items(), lambda each: each[1].pods if isinstance(each[1], PodRun) else None):
            items = dict(group)
            messages.update(self._add_documents(items) if parent is None else self._add_runs(items, parent))
        for number in sorted(messages, reverse=True):
            problems, duplicates = messages[number]
            dump.problems[waiting[number].problems : waiting[number].problems] = problems
            dump.duplicates[waiting[number].duplicates : waiting[number].duplicates] = duplicates

    def _add_hpas(self, records: Mapping[int, RawObject]) -> dict[int, _Messages]:
        """Add v2 HPAs in JSON (``records``, by number). Returns (problems, duplicates) by the number of the record."""
        messages: dict[int, _Messages] = {}
        duplicates = self.dump.duplicates
        for (number, record), hpa in zip(records.items(), decode_hpa_records([*records.values()]), strict=True):
            count = len(duplicates)
            try:
                if hpa is not None:
                    self._update_newest((_CREATED, hpa.metadata.creation_timestamp))
                    hpa = with_namespace(hpa)
                    self._store_hpa(validate_stored(hpa, is_stored=bool(hpa.metadata.resource_version)))
                    self.dump.read[record.kind] += 1
            except InputError:
                hpa = None
            if hpa is None:  # a plain read names the object and its problems
                messages[number] = self._add_singly(record)
            elif len(duplicates) > count:
                messages[number] = [], [duplicates.pop()]
        return messages

    def _add_runs(self, runs: Mapping[int, RawObject | PodRun], pods: PodBatch) -> dict[int, _Messages]:
        """Add consecutive runs of a batch of pods (``runs``, by number).

        Returns (problems, duplicates) by the number of the run, for runs that have some.
        """
        parts = [each for each in runs.values() if isinstance(each, PodRun)]
        batch = PodRun(pods, parts[0].begin, parts[-1].end).batch
        duplicates = self._add_pods(batch)
        if duplicates is None:
            return {number: self._add_singly(run) for number, run in runs.items()}
        messages: dict[int, _Messages] = {}
        ends = np.cumsum([len(run) for run in parts])
        numbers = list(runs)
        for position in duplicates:
            number = numbers[int(np.searchsorted(ends, position, side="right"))]
            messages.setdefault(number, ([], []))[1].append(f"Pod {batch.keys[position]}")
        return messages

    def _add_documents(self, documents: Mapping[int, RawObject | PodRun]) -> dict[int, _Messages]:
        """Add pods that are single documents (``documents``, by number), as columns if several can all be decoded.

        Returns (problems, duplicates) by the number of the document.
        """
        messages: dict[int, _Messages] = {}
        numbers = list(documents)
        records = [each for each in documents.values() if isinstance(each, RawObject)]
        # Columns ignore fields that nothing reads. An invalid value of such a field is reported all the same.
        is_valid = len(records) > 1 and all(decode_pod_record(each) is not None for each in records)
        scanned = self.dump.pods.scan(join_documents(records), "", "items") if is_valid else None
        if scanned is None or len(scanned) != len(records):
            return {number: self._add_singly(record) for number, record in documents.items()}
        items = scanned.items()
        begin = columns = 0
        for end in [*(np.flatnonzero(np.diff(items.fast)) + 1).tolist(), len(records)]:
            duplicates = None
            if items.fast[begin]:
                batch = PodRun(items.pods, columns, columns + end - begin).batch
                columns += end - begin
                duplicates = self._add_pods(batch)
                for position in duplicates or ():
                    messages[numbers[begin + position]] = ([], [f"Pod {batch.keys[position]}"])
            if duplicates is None:
                for number in numbers[begin:end]:
                    messages[number] = self._add_singly(documents[number])
            begin = end
        return messages

    def _add_singly(self, item: RawObject | PodRun) -> _Messages:
        """Add objects one by one. Returns (problems, duplicates), which are not recorded in the dump."""
        dump = self.dump
        problems, duplicates = dump.problems, dump.duplicates
        dump.problems, dump.duplicates = [], []
        for record in iterate_records(item.batch) if isinstance(item, PodRun) else (item,):
            self._add_record(record, group_of(record.api_version), None)
        messages = dump.problems, dump.duplicates
        dump.problems, dump.duplicates = problems, duplicates
        return messages

    def end(self, *, strict: bool) -> Dump:
        """Return the dump after all records.

        Raises ``InputError`` for unreadable sources; if ``strict``, for any problem.
        """
        self._add_collected()
        dump = self.dump
        for kind in [kind for kind, count in dump.read.items() if not count]:
            del dump.read[kind]
        namespaces = {hpa.metadata.namespace for hpa in dump.hpas.values()}
        namespaces |= {(each.get("metadata") or {}).get("namespace", "") for each in dump.scaled_objects.values()}
        only = next(iter(namespaces), "") if len(namespaces) < 2 else None
        for number, record, scope in self.external:
            self._list_number = number
            if scope is None and only is None and not record.empty:
                text = "an external list does not say its namespace, and the HPAs are of several: give it as NS=FILE"
                dump.problems.append(Problem(text, record.source, record.where or record.kind))
            else:
                self._add_record(record, group_of(record.api_version), scope or MetricsScope(only or ""))
        try:
            self._finish()
        except InputError as error:
            dump.problems.extend(error.problems)
        fatal = [problem for problem in dump.problems if strict or problem.of_source]
        if fatal:
            raise InputError(fatal, total=dump.total)
        return dump

    # -- one object ----------------------------------------------------------------------------------------------

    def _add_record(self, record: RawObject, group: str, scope: MetricsScope | None) -> None:
        """Add a record to the dump, or its errors to the dump's problems."""
        try:
            self._add(record, group, scope)
        except InputError as error:
            name = describe(record.where, record.kind, read_data_for_name(record))
            self.dump.problems.extend(Problem(each.message, record.source, name, each.field) for each in error.problems)

    def _update_newest(self, *texts: tuple[str, str | None]) -> None:
        """Update the newest time from texts, each with its field (None for no time).

        Raises ``InputError``, which names the field, for a text that is not a time, before anything is stored.
        """
        times = [self.dump.newest]
        for field, text in texts:
            if text:
                try:
                    times.append(parse_cached_time(text))
                except ValueError as error:
                    raise InputError(Problem(str(error), field=field)) from None
        self.dump.newest = max(times)

    def _add(self, record: RawObject, group: str, scope: MetricsScope | None) -> None:
        """Add one object (``record``): pod, metric, HPA, ScaledObject, CustomResourceDefinition or scale target.

        Kinds that decisions do not read are only counted. ``group``: its API group; ``scope``: whose external metrics
        the list has, if known. Raises ``InputError`` if the object cannot be read.
        """
        kind = record.kind
        if record.empty:
            if kind == f"{_METRIC_ITEM_KINDS.get(group)}List":  # the API exists, although it returned no item
                setattr(self.dump.metrics, _METRIC_API_NAMES[group], True)
            return
        pod = decode_pod_record(record) if kind == "Pod" and not group else None
        if pod is not None:
            self.dump.read[kind] += 1
            self._update_newest((_CREATED, pod.metadata.creation_timestamp))
            self._add_pod(with_namespace(pod))
            return
        data = read_plain_data(record)
        self.dump.read[kind] += 1
        check_object_shape(data)
        if kind not in _IGNORED_KINDS:
            data = with_default_namespace(data)
        self._update_newest((_CREATED, (data.get("metadata") or {}).get("creationTimestamp")))
        if group in _METRIC_ITEM_KINDS:
            self._add_metric(group, kind, data, scope, record.source)
        elif kind == "HorizontalPodAutoscaler":
            self._add_hpa(data)
        elif kind == "ScaledObject" and group == "keda.sh":
            check_scaled_object(data)
            if get_data_key(data) in self.dump.scaled_objects:
                self.dump.duplicates.append(f"ScaledObject {get_data_key(data)}")
            self.dump.scaled_objects[get_data_key(data)] = data
        elif kind == "Pod" and not group:
            self._add_pod(with_namespace(from_dict(data, Pod)))
        elif kind == "CustomResourceDefinition":
            of, of_kind, plural, paths = definition_of(data)
            self.dump.definitions[of, of_kind] = (plural, paths)
        elif kind not in _IGNORED_KINDS:
            metadata = data.get("metadata") or {}
            key = (group, kind, metadata.get("namespace", ""), metadata.get("name", ""))
            if key in self.dump.targets:
                self.dump.duplicates.append(f"{kind} {get_data_key(data)}")
            self.dump.targets[key] = data

    def _add_usage(self, usage_and_times: tuple[PodUsage, set[str]] | None) -> bool:
        """Add columns of usage and their creation times; return False if they must be read one by one.

        That is, if the argument is None or a time is invalid.
        """
        if usage_and_times is None:
            return False
        usage, created = usage_and_times
        try:
            self._update_newest(*((_CREATED, text) for text in created))
        except InputError:
            return False  # a plain read names the object
        self.dump.read["PodMetrics"] += len(usage)
        self.dump.newest = max(self.dump.newest, int(usage.time.max(initial=ZERO_TIME)))
        self._usage.append(usage)
        return True

    def _add_hpa(self, data: Mapping[str, Any], *, stored: bool = True) -> None:
        """Add an HPA from plain data. A stored one may break rules that apply to new objects only.

        Raises InputError if it cannot be decoded or is invalid.
        """
        try:
            hpa = decode_hpa(data)
        except DecodeError as error:
            raise InputError(Problem(str(error), field=error.field)) from None
        self._store_hpa(validate_stored(hpa, is_stored=stored and bool(hpa.metadata.resource_version)))

    def _store_hpa(self, out: Admission) -> None:
        """Add an admitted HPA. Raises InputError with the API server's errors if it was rejected.

        It replaces an earlier HPA of the same name, which is recorded as a duplicate.
        """
        if out.hpa is None:
            raise InputError([Problem(str(each).partition(": ")[2], field=each.field) for each in out.errors])
        status = out.hpa.status
        transitions = _list_transitions(status.conditions or ())
        self._update_newest(("status.lastScaleTime", status.last_scale_time), *transitions)
        key = f"{out.hpa.metadata.namespace}/{out.hpa.metadata.name}"
        if key in self.dump.hpas:
            self.dump.duplicates.append(f"HorizontalPodAutoscaler {key}")
        self.dump.hpas[key] = out.hpa

    def _add_pod(self, pod: Pod) -> None:
        """Add a pod with a namespace, note a duplicate, and update the newest time that the dump contains."""
        self._update_newest(("status.startTime", pod.status.start_time), *_list_transitions(pod.status.conditions))
        if self.dump.pods.add(pod):
            self.dump.duplicates.append(f"Pod {pod.metadata.namespace}/{pod.metadata.name}")

    def _add_pods(self, batch: PodBatch) -> list[int] | None:
        """Add a batch of pods. Returns the positions of duplicates, which are not recorded in ``duplicates`` yet.

        Returns None if the pods must be read one by one.
        """
        newest = read_newest_time(batch)
        if newest is None:
            return None
        self.dump.newest = max(self.dump.newest, newest)
        self.dump.read["Pod"] += len(batch)
        return self.dump.pods.add_batch(batch)

    def _add_metric(
        self, group: str, kind: str, data: Mapping[str, Any], scope: MetricsScope | None, source: str
    ) -> None:
        """Add one item (``data``) of a metrics list whose items have this API group and kind; NodeMetrics are ignored.

        ``scope``: HPA or selector to which external values belong. Raises InputError if the item cannot be read, or if
        its kind does not fit the list.
        """
        if kind == "NodeMetrics":
            return  # kubectl prints them from the same API
        if kind != _METRIC_ITEM_KINDS[group]:
            raise InputError(f"a {kind} of {group}, where a list holds {_METRIC_ITEM_KINDS[group]} items")
        if group == "metrics.k8s.io":
            item = from_dict(data, PodMetrics)
            self._update_newest(("timestamp", item.timestamp))
            try:
                parse_duration(item.window)
            except ValueError as error:
                raise InputError(Problem(str(error), field="window")) from None
            last = self._usage[-1] if self._usage else None
            if isinstance(last, list):
                last.append(item)
            else:
                self._usage.append([item])
        elif group == "custom.metrics.k8s.io":
            value = from_dict(data, MetricValue)
            self._update_newest(("timestamp", value.timestamp))
            self.dump.duplicates += self.dump.metrics.add_custom([value])
        else:
            external = from_dict(data, ExternalMetricValue)
            self._update_newest(("timestamp", external.timestamp))
            scope = scope or MetricsScope("")
            if self._external_lists.add(self._list_number, scope, external, source):
                self.dump.metrics.external = True
            else:
                self.dump.duplicates += self.dump.metrics.add_external(scope.namespace, [external], self._list_number)

    def _finish(self) -> None:
        """Generate the HPAs of ScaledObjects and add usage and pod labels to the metrics, after everything is read.

        A paused ScaledObject has no HPA: one in the dump is removed. Raises one ``InputError`` with all problems of
        generated HPAs and external metrics.
        """
        problems: list[Problem] = []
        refusals = self._check_scaled_objects()
        for key, scaled in self.dump.scaled_objects.items():
            namespace = (scaled.get("metadata") or {}).get("namespace", "")
            known = [*self.dump.metrics.external_names(namespace), *self._external_lists.names(namespace)]
            data = generate_hpa(scaled, known)
            pause = get_pause(scaled)
            if pause is not None:
                self.dump.paused[key] = pause
                self.dump.hpas.pop(get_data_key(data), None)  # KEDA has not deleted it yet
                continue
            missing = list_unmodelled_features(scaled)
            if get_data_key(data) not in self.dump.hpas:
                missing += list_guessed_metric_names(scaled, known)
            if refusals[key]:
                self.dump.keda_refusals.setdefault(get_data_key(data), []).extend(refusals[key])
            if missing:
                self.dump.unmodelled[f"ScaledObject {key}"] = missing
            if not data["spec"]["metrics"] and get_data_key(data) not in self.dump.hpas:
                continue  # without metrics, the default metric cpu would apply
            self.dump.generated[get_data_key(data)] = f"ScaledObject {key}"
            if get_data_key(data) not in self.dump.hpas:
                try:
                    self._add_hpa(data, stored=False)
                except InputError as error:
                    label = f"HPA of ScaledObject {key}"
                    problems += [Problem(each.message, object=label, field=each.field) for each in error.problems]
        owners = {key.removeprefix("ScaledObject "): hpa for hpa, key in self.dump.generated.items()}
        problems += self._external_lists.resolve(self.dump.hpas, owners, self.dump.metrics)
        for usage in self._usage:
            self.dump.duplicates += self.dump.metrics.add_pod_metrics(usage)
        self.dump.pods.close()
        self.dump.metrics.add_pod_labels(self.dump.pods.index)
        self.dump.known_mapper = self.dump.mapper()
        self.dump.known_scales = self.dump.scales()
        for key, hpa in self.dump.hpas.items():
            if texts := describe_unlabelled_metrics(hpa, self.dump.metrics):
                self.dump.unmodelled[f"HorizontalPodAutoscaler {key}"] = texts
        if problems:
            raise InputError(problems)

    def _check_scaled_objects(self) -> dict[str, list[str]]:
        """Return the errors of KEDA's webhook as texts, by the ScaledObject's ``namespace/name``.

        Each is checked against the HPAs, the targets that can be read, and the ScaledObjects before it.
        """
        if not self.dump.scaled_objects:
            return {}
        webhook = KEDAWebhook(self.dump.hpas.values())
        for (group, kind, _, _), target in self.dump.targets.items():
            type_ = _CHECKED_BY_KEDA.get((group, kind))
            if type_ is not None:
                with suppress(InputError):  # the decisions name what cannot be read of a target
                    webhook.add(from_dict(target, type_))
        refusals = {}
        for key, data in self.dump.scaled_objects.items():
            scaled = from_dict(data, ScaledObject)
            texts = [text for _, text in (*check_scaled_object_alone(scaled), *webhook.check(scaled))]
            refusals[key] = [f"KEDA's webhook refuses ScaledObject {key}: {text}" for text in texts]
            webhook.add(scaled)
        return refusals


_COLLECTED_KINDS: Final = frozenset({"Pod", "HorizontalPodAutoscaler"})
"""Kinds of objects in JSON that wait for others of their kind, besides usage."""
_MAX_WAITING: Final = 1 << 14
_MAX_WAITING_SIZE: Final = 1 << 25
"""Maximum size in bytes of the records that are collected before they are decoded."""

_CHECKED_BY_KEDA: Final[Mapping[tuple[str, str], type[KubeObject]]] = {
    ("apps", "Deployment"): Deployment,
    ("apps", "StatefulSet"): StatefulSet,
    ("", "LimitRange"): LimitRange,
}
