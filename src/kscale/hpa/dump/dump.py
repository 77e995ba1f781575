"""Read a dump (HPAs, ScaledObjects, targets, pods, metrics lists) and decide what the controller would do with it.

For a live cluster, request what the dump lacks. Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from kscale.effects import ZERO_TIME, ApiError, Discover, Moment, Progress, Steps, moment
from kscale.effects.actions import NOT_FOUND
from kscale.errors import InputError, Problem
from kscale.hpa.api.admission import Admission, DecodeError, decode_hpa, validate_stored
from kscale.hpa.api.keda import (
    KEDAWebhook,
    PausedTarget,
    check_scaled_object,
    check_scaled_object_alone,
    generate_hpa,
    get_pause,
    list_guessed_metric_names,
    list_unmodelled_features,
)
from kscale.hpa.batch.decisions import Decisions, decide
from kscale.hpa.batch.inputs import BatchObjects, prepare_batch
from kscale.hpa.batch.pods import to_batch_pods
from kscale.hpa.batch.requests import MetricLists, has_built_in_targets, request_metrics_steps, request_scales_steps
from kscale.hpa.controller.state import ControllerState, stable_state
from kscale.hpa.dump.records import (
    DumpPods,
    ExternalMetricLists,
    MetricsScope,
    check_object_shape,
    decode_hpa_record,
    decode_pod_record,
    decode_usage_items,
    decode_usage_records,
    describe_unlabelled_metrics,
    get_data_key,
    is_pod_document,
    is_usage_record,
    iterate_records,
    join_documents,
    parse_cached_time,
    read_data_for_name,
    read_plain_data,
    read_times,
    with_default_namespace,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.api.core import LimitRange, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.api.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kscale.objects.argument_types import typed
from kscale.objects.custom_workloads import ScaledObject
from kscale.objects.decode import describe, from_dict
from kscale.objects.kinds import (
    BUILT_IN,
    RESTMapper,
    RESTMappingError,
    ServedResource,
    group_of,
    parse_group_version,
    with_namespace,
)
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.scale import WELL_KNOWN_PATHS, ScaleError, ScalePaths, definition_of, has_built_in_scale, scale_of
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.objects.times import parse_duration
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.text.pod_reader import PodBatch, PodRun, ScannedList
from kscale.snapshot.text.sources import RawObject, Source, read_scanned

__all__ = ["Dump", "read_dump", "request_missing_steps"]


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


_BUILT_IN_KINDS: Final = frozenset((each.group, each.kind) for each in BUILT_IN)


def _has_no_scale(group: str, kind: str) -> bool:
    """Check whether a kind is built in and has no scale."""
    return (group, kind) in _BUILT_IN_KINDS and not has_built_in_scale(group, kind)


@dataclass(slots=True)
class Dump:
    """Contents of a dump.

    - ``targets``: objects that an HPA may scale (plain data) by (group, kind, namespace, name).
    - ``newest``: the newest time in the dump.
    - ``unmodelled``: features that are not modelled, by object.
    - ``generated``: the object that an HPA was generated from, by HPA.
    - ``known_mapper``: how a live cluster serves kinds; ``unanswered``: requests without a response, as texts. None for
      files.
    - ``definitions``: of CustomResourceDefinitions, by (group, kind): the plural, and the scale's paths by version.
    - ``paused``: paused ScaledObjects, whose HPAs KEDA deletes, by ``namespace/name``.
    - ``scaled_objects``: KEDA's ScaledObjects as plain data, by ``namespace/name``.
    - ``keda_refusals``: errors of KEDA's webhook about the ScaledObject of an HPA, as texts, by HPA.
    - ``usage``: pod usage in reading order; :meth:`finish` adds it to ``metrics``.
    - ``known_scales``: the scale of every HPA's target by the HPA's ``namespace/name``, or its error; None before they
      are computed.
    - ``total``: number of objects, including those that cannot be read; ``problems``: why some are left out.
    - ``duplicates``: objects that appeared more than once, as texts (``Pod default/web``); the last one counts.
    - ``external_lists``: external metrics whose HPA is known only after everything is read.
    - ``list_number``: number of the list being read: external values of one list add up, those of a later list replace
      them.
    """

    hpas: dict[str, HorizontalPodAutoscaler] = field(default_factory=dict)
    pods: DumpPods = field(default_factory=DumpPods)
    targets: dict[tuple[str, str, str, str], Mapping[str, Any]] = field(default_factory=dict)
    definitions: dict[tuple[str, str], tuple[str, dict[str, ScalePaths]]] = field(default_factory=dict)
    metrics: MetricLists = field(default_factory=MetricLists)
    newest: int = ZERO_TIME
    read: Counter[str] = field(default_factory=Counter)
    duplicates: list[str] = field(default_factory=list)
    unmodelled: dict[str, list[str]] = field(default_factory=dict)
    generated: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    total: int = 0
    list_number: int = 0
    scaled_objects: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    usage: list[PodUsage | list[PodMetrics]] = field(default_factory=list)
    known_scales: dict[str, Scale | ApiError] | None = None
    known_mapper: RESTMapper | None = None
    unanswered: list[str] | None = None
    paused: dict[str, PausedTarget] = field(default_factory=dict)
    external_lists: ExternalMetricLists = field(default_factory=ExternalMetricLists)
    keda_refusals: dict[str, list[str]] = field(default_factory=dict)

    def mapper(self) -> RESTMapper:
        """Build a mapper of the built-in kinds, and of custom kinds that are defined or present."""
        if self.known_mapper is not None:
            return self.known_mapper
        named = {(each.group, each.kind): each.name for each in BUILT_IN}
        for group, kind, _, _ in self.targets:
            named.setdefault((group, kind), f"{kind.lower()}s")
        named.update({key: plural for key, (plural, _) in self.definitions.items()})
        return RESTMapper([ServedResource(group, "", kind, name) for (group, kind), name in named.items()])

    def scales(self) -> dict[str, Scale | ApiError]:
        """Return the scale of every HPA's target, or its error, by the HPA's ``namespace/name``."""
        if self.known_scales is not None:
            return self.known_scales
        mapper = self.mapper()
        # Kinds are found in lower case too, as discovery finds them.
        targets = {
            (group, kind.lower(), namespace, name): each
            for (group, kind, namespace, name), each in self.targets.items()
        }
        return {key: self._compute_scale(hpa, mapper, targets) for key, hpa in self.hpas.items()}

    def _compute_scale(
        self,
        hpa: HorizontalPodAutoscaler,
        mapper: RESTMapper,
        targets: Mapping[tuple[str, str, str, str], Mapping[str, Any]],
    ) -> Scale | ApiError:
        """Return the scale of an HPA's target, or the API server's error.

        ``targets``: plain data by (group, lower-case kind, namespace, name).
        """
        reference = hpa.spec.scale_target_ref
        try:
            group, _ = parse_group_version(reference.api_version)
            resource = mapper.resources(group, reference.kind)[0]
        except RESTMappingError as error:
            return ApiError(str(error))
        target = targets.get((group, reference.kind.lower(), hpa.metadata.namespace, reference.name))
        if target is None:
            return ApiError(f'{resource} "{reference.name}" not found', code=404, reason=NOT_FOUND)
        kind, version = str(target.get("kind")), str(target.get("apiVersion", "")).rpartition("/")[2]
        paths = WELL_KNOWN_PATHS.get((group, kind))
        if (group, kind) in self.definitions:
            paths = self.definitions[group, kind][1].get(version)
        if paths is None and ((group, kind) in self.definitions or _has_no_scale(group, kind)):
            return ApiError("the server could not find the requested resource", code=404, reason=NOT_FOUND)
        try:
            return scale_of(target, paths)
        except ScaleError as error:
            return ApiError(str(error))

    def assumed_scale(self, hpa: HorizontalPodAutoscaler) -> str:
        """Return what kscale assumes of a target's scale without a CustomResourceDefinition; empty if nothing."""
        if self.known_mapper is not None:  # a live cluster has returned the scale
            return ""
        reference = hpa.spec.scale_target_ref
        group, kind = group_of(reference.api_version), reference.kind
        if has_built_in_scale(group, kind) or (group, kind) in _BUILT_IN_KINDS or (group, kind) in self.definitions:
            return ""
        name = f"{kind}{f'.{group}' if group else ''}"
        if (group, kind, hpa.metadata.namespace, reference.name) not in self.targets:
            return f"the input has no {name} {hpa.metadata.namespace}/{reference.name}"
        paths = WELL_KNOWN_PATHS.get((group, kind))
        how = "as it usually is for this kind" if paths is not None else "as most kinds have it, which may be wrong"
        paths = paths or ScalePaths()
        where = f"{paths.spec_replicas}, {paths.status_replicas}, {paths.label_selector}"
        return f"the input has no CustomResourceDefinition of {name}: its scale is read {how} ({where})"

    def missing(self) -> list[str]:
        """Return texts on missing inputs that affect the decisions; empty if nothing is missing."""
        out = []
        types = {spec.type for hpa in self.hpas.values() for spec in hpa.spec.metrics or ()}
        absent = [key for key, scale in self.scales().items() if isinstance(scale, ApiError)]
        if absent:
            names = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
            out.append(f"the scale target of {names}: an HPA that cannot get its target's size changes nothing")
        if not len(self.pods):
            out.append("no pods: the HPA could not count any")
        if self.unanswered is not None:
            return out + self.unanswered
        if types & {"Resource", "ContainerResource"} and not self.metrics.resource:
            text = "no PodMetricsList (metrics.k8s.io): Resource metrics fail, which forbids scaling down"
            alone = any(
                {spec.type for spec in hpa.spec.metrics or ()} <= {"Resource", "ContainerResource"}
                for hpa in self.hpas.values()
            )
            out.append(f"{text}, and scaling up too where an HPA has no other metrics" if alone else text)
        if types & {"Pods", "Object"} and not self.metrics.custom:
            out.append("no MetricValueList (custom.metrics.k8s.io): Pods and Object metrics fail")
        if "External" in types and not self.metrics.external:
            out.append("no ExternalMetricValueList (external.metrics.k8s.io): External metrics fail")
        return out

    def select(self, namespace: str | None = None, selector: str = "") -> list[HorizontalPodAutoscaler]:
        """Return the HPAs of a namespace (None: all) whose labels match a selector, in input order.

        Raises ``InputError`` for an invalid selector.
        """
        try:
            wanted = parse_selector(selector)
        except SelectorError as error:
            raise InputError(f'"{selector}" is not a label selector: {error}') from None
        return [
            hpa
            for hpa in self.hpas.values()
            if namespace in (None, hpa.metadata.namespace) and wanted.matches(hpa.metadata.labels)
        ]

    def leave_out_hpas(self, namespaces: Collection[str]) -> None:
        """Remove the HPAs of all namespaces except these."""
        self.hpas = {key: hpa for key, hpa in self.hpas.items() if hpa.metadata.namespace in namespaces}

    def build_stable_state(self) -> ControllerState:
        """Return a state of all HPAs without past recommendations or events that hold back a change."""
        return ControllerState(hpas={key: stable_state() for key in self.hpas})

    def decide(
        self,
        *,
        state: ControllerState | None = None,
        now: datetime | Moment | None = None,
        options: HPAOptions | None = None,
        threads: int = 1,
    ) -> Decisions:
        """Decide all HPAs of the dump together, as HPAs that select the same pods block each other.

        ``state`` None: no past restrains a change. ``now`` None: the newest time of the dump, or the beginning of 1970
        if the dump has no time. Raises ``InputError`` if there is no time at all and ``state`` has HPAs.
        """
        time = self.newest if now is None else moment(now)
        if time == ZERO_TIME:
            if state is not None and state.hpas:
                raise InputError("the input contains no time: a saved state needs the current time (now)")
            time = 0
        if state is None:
            state = self.build_stable_state()
        return decide(
            list(self.hpas.values()),
            self.scales(),
            self.pods.cluster,
            self.metrics,
            options=options,
            state=state,
            now=time,
            mapper=self.mapper(),
            threads=threads,
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    def update_newest(self, *texts: str | None) -> None:
        """Update the newest time from texts (None for no time).

        Raises ``InputError`` for a text that is not a time, before anything is stored.
        """
        try:
            times = [parse_cached_time(text) for text in texts if text]
        except ValueError as error:
            raise InputError(str(error)) from None
        for time in times:
            self.newest = max(self.newest, time)

    def add(self, record: RawObject, scope: MetricsScope | None) -> None:
        """Add one object (``record``): pod, metric, HPA, ScaledObject, CustomResourceDefinition or scale target.

        ``scope``: whose external metrics the list has, if known. Raises ``InputError`` if the object cannot be read.
        """
        group, kind = group_of(record.api_version), record.kind
        if record.empty:
            if kind == f"{_METRIC_ITEM_KINDS.get(group)}List":  # the API exists, although it returned no item
                setattr(self.metrics, _METRIC_API_NAMES[group], True)
            return
        pod = decode_pod_record(record) if kind == "Pod" and not group else None
        if pod is not None:
            self.read[kind] += 1
            self.update_newest(pod.metadata.creation_timestamp)
            self._add_pod(pod)
            return
        hpa = decode_hpa_record(record) if kind == "HorizontalPodAutoscaler" else None
        if hpa is not None:
            self.read[kind] += 1
            self.update_newest(hpa.metadata.creation_timestamp)
            hpa = with_namespace(hpa)
            self._store_hpa(validate_stored(hpa, is_stored=bool(hpa.metadata.resource_version)))
            return
        data = read_plain_data(record)
        self.read[kind] += 1
        check_object_shape(data)
        if kind not in _IGNORED_KINDS:
            data = with_default_namespace(data)
        self.update_newest((data.get("metadata") or {}).get("creationTimestamp"))
        if group in _METRIC_ITEM_KINDS:
            self._add_metric(group, kind, data, scope, record.source)
        elif kind == "HorizontalPodAutoscaler":
            self._add_hpa(data)
        elif kind == "ScaledObject" and group == "keda.sh":
            check_scaled_object(data)
            if get_data_key(data) in self.scaled_objects:
                self.duplicates.append(f"ScaledObject {get_data_key(data)}")
            self.scaled_objects[get_data_key(data)] = data
        elif kind == "Pod" and not group:
            self._add_pod(from_dict(data, Pod))
        elif kind == "CustomResourceDefinition":
            of, of_kind, plural, paths = definition_of(data)
            self.definitions[of, of_kind] = (plural, paths)
        elif kind not in _IGNORED_KINDS:
            metadata = data.get("metadata") or {}
            key = (group, kind, metadata.get("namespace", ""), metadata.get("name", ""))
            if key in self.targets:
                self.duplicates.append(f"{kind} {get_data_key(data)}")
            self.targets[key] = data

    def add_usage(self, records: Sequence[RawObject]) -> bool:
        """Add consecutive records of pod usage, or return False if they must be read one by one."""
        return self._add_usage(decode_usage_records(records))

    def add_usage_items(self, text: memoryview) -> bool:
        """Add pod usage from the text of a list's items, or return False if they must be read one by one."""
        return self._add_usage(decode_usage_items(text))

    def _add_usage(self, usage_and_times: tuple[PodUsage, set[str]] | None) -> bool:
        """Add columns of usage and their creation times. Returns False if the argument is None or a time is invalid."""
        if usage_and_times is None:
            return False
        usage, created = usage_and_times
        try:
            self.update_newest(*created)
        except InputError:
            return False  # a plain read names the object
        self.read["PodMetrics"] += len(usage)
        self.newest = max(self.newest, int(usage.time.max(initial=ZERO_TIME)))
        self.usage.append(usage)
        return True

    def _add_hpa(self, data: Mapping[str, Any], *, stored: bool = True) -> None:
        """Add an HPA. A stored one may break rules that apply to new objects only.

        Raises InputError if it cannot be decoded.
        """
        try:
            hpa = decode_hpa(data)
        except DecodeError as error:
            raise InputError(str(error)) from None
        self._store_hpa(validate_stored(hpa, is_stored=stored and bool(hpa.metadata.resource_version)))

    def _store_hpa(self, out: Admission) -> None:
        """Add an admitted HPA. Raises InputError with the API server's errors if it was rejected."""
        if out.hpa is None:
            raise InputError([Problem(str(each).partition(": ")[2], field=each.field) for each in out.errors])
        self.update_newest(
            out.hpa.status.last_scale_time, *(each.last_transition_time for each in out.hpa.status.conditions or ())
        )
        key = f"{out.hpa.metadata.namespace}/{out.hpa.metadata.name}"
        if key in self.hpas:
            self.duplicates.append(f"HorizontalPodAutoscaler {key}")
        self.hpas[key] = out.hpa

    def _add_pod(self, pod: Pod) -> None:
        """Add a pod, note a duplicate, and update the newest time that the dump contains."""
        pod = with_namespace(pod)
        self.update_newest(pod.status.start_time, *(each.last_transition_time for each in pod.status.conditions))
        if self.pods.add(pod):
            self.duplicates.append(f"Pod {pod.metadata.namespace}/{pod.metadata.name}")

    def add_pods(self, batch: PodBatch) -> list[int] | None:
        """Add a batch of pods. Returns the positions of duplicates, which are not recorded in ``duplicates`` yet.

        Returns None if the pods must be read one by one.
        """
        times = read_times(batch)
        if times is None:
            return None
        self.newest = max(self.newest, *times, ZERO_TIME)
        self.read["Pod"] += len(batch)
        return self.pods.add_batch(batch)

    def _add_metric(
        self, group: str, kind: str, data: Mapping[str, Any], scope: MetricsScope | None, source: str
    ) -> None:
        """Add one item of a metrics list. Raises InputError if it cannot be read, or its kind does not fit the list."""
        if kind == "NodeMetrics":
            return  # kubectl prints them from the same API
        if kind != _METRIC_ITEM_KINDS[group]:
            raise InputError(f"a {kind} of {group}, where a list holds {_METRIC_ITEM_KINDS[group]} items")
        if group == "metrics.k8s.io":
            item = from_dict(data, PodMetrics)
            self.update_newest(item.timestamp)
            try:
                parse_duration(item.window)
            except ValueError as error:
                raise InputError(Problem(str(error), field="window")) from None
            last = self.usage[-1] if self.usage else None
            if isinstance(last, list):
                last.append(item)
            else:
                self.usage.append([item])
        elif group == "custom.metrics.k8s.io":
            value = from_dict(data, MetricValue)
            self.update_newest(value.timestamp)
            self.duplicates += self.metrics.add_custom([value])
        else:
            external = from_dict(data, ExternalMetricValue)
            self.update_newest(external.timestamp)
            scope = scope or MetricsScope("")
            if self.external_lists.add(self.list_number, scope, external, source):
                self.metrics.external = True
            else:
                self.duplicates += self.metrics.add_external(scope.namespace, [external], self.list_number)

    def finish(self) -> None:
        """Generate the HPAs of ScaledObjects and add usage and pod labels to the metrics, after everything is read.

        Raises one ``InputError`` with all problems.
        """
        problems: list[Problem] = []
        refusals = self._check_scaled_objects()
        for key, scaled in self.scaled_objects.items():
            namespace = (scaled.get("metadata") or {}).get("namespace", "")
            known = [*self.metrics.external_names(namespace), *self.external_lists.names(namespace)]
            data = generate_hpa(scaled, known)
            pause = get_pause(scaled)
            if pause is not None:
                self.paused[key] = pause
                self.hpas.pop(get_data_key(data), None)  # KEDA has not deleted it yet
                continue
            missing = list_unmodelled_features(scaled)
            if get_data_key(data) not in self.hpas:
                missing += list_guessed_metric_names(scaled, known)
            if refusals[key]:
                self.keda_refusals.setdefault(get_data_key(data), []).extend(refusals[key])
            if missing:
                self.unmodelled[f"ScaledObject {key}"] = missing
            if not data["spec"]["metrics"] and get_data_key(data) not in self.hpas:
                continue  # without metrics, the default metric cpu would apply
            self.generated[get_data_key(data)] = f"ScaledObject {key}"
            if get_data_key(data) not in self.hpas:
                try:
                    self._add_hpa(data, stored=False)
                except InputError as error:
                    label = f"HPA of ScaledObject {key}"
                    problems += [Problem(each.message, object=label, field=each.field) for each in error.problems]
        owners = {key.removeprefix("ScaledObject "): hpa for hpa, key in self.generated.items()}
        problems += self.external_lists.resolve(self.hpas, owners, self.metrics)
        for usage in self.usage:
            self.duplicates += self.metrics.add_pod_metrics(usage)
        self.pods.cluster.tidy()
        self.metrics.add_pod_labels(self.pods.cluster)
        self.known_scales = self.scales()
        for key, hpa in self.hpas.items():
            if texts := describe_unlabelled_metrics(hpa, self.metrics):
                self.unmodelled[f"HorizontalPodAutoscaler {key}"] = texts
        if problems:
            raise InputError(problems)

    def _check_scaled_objects(self) -> dict[str, list[str]]:
        """Return the errors of KEDA's webhook as texts, by the ScaledObject's ``namespace/name``."""
        if not self.scaled_objects:
            return {}
        webhook = KEDAWebhook(self.hpas.values())
        for (group, kind, _, _), target in self.targets.items():
            type_ = _CHECKED_BY_KEDA.get((group, kind))
            if type_ is not None:
                with suppress(InputError):  # the decisions name what cannot be read of a target
                    webhook.add(from_dict(target, type_))
        refusals = {}
        for key, data in self.scaled_objects.items():
            scaled = from_dict(data, ScaledObject)
            texts = [text for _, text in (*check_scaled_object_alone(scaled), *webhook.check(scaled))]
            refusals[key] = [f"KEDA's webhook refuses ScaledObject {key}: {text}" for text in texts]
            webhook.add(scaled)
        return refusals


_CHECKED_BY_KEDA: Final[Mapping[tuple[str, str], type[KubeObject]]] = {
    ("apps", "Deployment"): Deployment,
    ("apps", "StatefulSet"): StatefulSet,
    ("", "LimitRange"): LimitRange,
}


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
        One error for everything that cannot be read.
    """
    reading = _DumpReader()
    for text, source in [*((None, each) for each in sources), *metrics]:
        scope = None if text is None else MetricsScope.parse(text)
        for record in read_scanned(source, scan=reading.scan, empty_lists=True):
            reading.take(record, scope)
    return reading.end(strict=strict)


_Messages = tuple[list[Problem], list[str]]
"""Problems, and objects that appeared more than once."""


class _Waiting(NamedTuple):
    """Pods or usage that wait for others of their kind, and the numbers of problems and duplicates before them."""

    item: RawObject | PodRun
    problems: int
    duplicates: int


class _DumpReader:
    """Reader of a dump.

    ``external``: external metrics with their list's number, which are added when all HPAs are known. Pods and their
    usage are collected until there are enough to be decoded together, whatever comes between them.
    """

    def __init__(self) -> None:
        self.dump = Dump()
        self.external: list[tuple[int, RawObject, MetricsScope | None]] = []
        self._waiting: list[_Waiting] = []
        self._waiting_count = self._waiting_size = 0
        self._number = 0
        self._last = ("", "", -1)  # source, place and number in the list of what came last

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """Read a list whose pods are stored as columns; None if the list must be read item by item.

        Items of a list of usage are added at once; the result then has no items.
        """
        scanned = self.dump.pods.scan(view, source, place)
        if scanned is None or scanned.kind != "PodMetricsList" or group_of(scanned.api_version) != "metrics.k8s.io":
            return scanned
        self._add_collected()
        if not self.dump.add_usage_items(scanned.text):
            return scanned
        self.dump.total += len(scanned)
        self._start_list(source, place, len(scanned) - 1)
        return scanned.without_items()

    def take(self, record: RawObject | Problem | PodRun, scope: MetricsScope | None) -> None:
        """Add the next record of a source. ``scope``: whose external metrics it has, if known."""
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
        if is_usage_record(record):
            self._collect(record, record.kind, 1)
            return
        place, _, index = record.where.rpartition("[")
        at = int(index[:-1]) if index[:-1].isdigit() else -1
        self._start_list(record.source, place, at, again=at <= self._last[2])
        group = group_of(record.api_version)
        if is_pod_document(record):
            self._collect(record, record.kind, 1)
        elif group == "external.metrics.k8s.io":
            self.external.append((self._number, record, scope))
        else:
            if self._waiting and (record.kind == "Pod" or group == "metrics.k8s.io"):
                self._add_collected()
            _add_record(dump, record, scope)

    def _start_list(self, source: str, place: str, at: int, *, again: bool = False) -> None:
        """Give the records that follow a new list number, unless they belong to the list of the last call.

        ``at``: index in the list of the last record read, or -1. ``again``: the same list is read a second time.
        """
        self._number += again or (source, place) != self._last[:2]
        self._last = (source, place, at)

    def _collect(self, item: RawObject | PodRun, kind: str, count: int) -> None:
        """Collect pods or usage (``count`` of them) to be decoded together; add them if there are many."""
        dump = self.dump
        dump.read.setdefault(kind, 0)  # kinds are listed in the order in which they came
        self._waiting.append(_Waiting(item, len(dump.problems), len(dump.duplicates)))
        self._waiting_count += count
        if isinstance(item, RawObject) and isinstance(item.data, msgspec.Raw):
            self._waiting_size += len(memoryview(item.data))
        if self._waiting_count >= _MAX_WAITING or self._waiting_size >= _MAX_WAITING_SIZE:
            self._add_collected()

    def _add_collected(self) -> None:
        """Add all collected pods and usage.

        Problems and duplicates are recorded in the order in which the objects came.
        """
        waiting, self._waiting = self._waiting, []
        self._waiting_count = self._waiting_size = 0
        dump, messages = self.dump, {}
        usage = {number: each.item for number, each in enumerate(waiting) if _is_usage(each.item)}
        if usage and not dump.add_usage([each for each in usage.values() if isinstance(each, RawObject)]):
            messages = {number: self._add_singly(item) for number, item in usage.items()}
        pods = {number: each.item for number, each in enumerate(waiting) if number not in usage}
        for parent, group in groupby(pods.items(), lambda each: each[1].pods if isinstance(each[1], PodRun) else None):
            items = dict(group)
            messages.update(self._add_documents(items) if parent is None else self._add_runs(items, parent))
        for number in sorted(messages, reverse=True):
            problems, duplicates = messages[number]
            dump.problems[waiting[number].problems : waiting[number].problems] = problems
            dump.duplicates[waiting[number].duplicates : waiting[number].duplicates] = duplicates

    def _add_runs(self, runs: Mapping[int, RawObject | PodRun], pods: PodBatch) -> dict[int, _Messages]:
        """Add consecutive runs of a batch of pods.

        Returns the messages by the number of the run.
        """
        parts = [each for each in runs.values() if isinstance(each, PodRun)]
        batch = PodRun(pods, parts[0].begin, parts[-1].end).batch
        duplicates = self.dump.add_pods(batch)
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
        """Add pods that are single documents, as columns if all can be decoded.

        Returns the messages by the number of the document.
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
                duplicates = self.dump.add_pods(batch)
                for position in duplicates or ():
                    messages[numbers[begin + position]] = ([], [f"Pod {batch.keys[position]}"])
            if duplicates is None:
                for number in numbers[begin:end]:
                    messages[number] = self._add_singly(documents[number])
            begin = end
        return messages

    def _add_singly(self, item: RawObject | PodRun) -> _Messages:
        """Add objects one by one. Returns the messages without recording them in the dump."""
        dump = self.dump
        problems, duplicates = dump.problems, dump.duplicates
        dump.problems, dump.duplicates = [], []
        for record in iterate_records(item.batch) if isinstance(item, PodRun) else (item,):
            _add_record(dump, record, None)
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
        for dump.list_number, record, scope in self.external:
            if scope is None and only is None and not record.empty:
                text = "an external list does not say its namespace, and the HPAs are of several: give it as NS=FILE"
                dump.problems.append(Problem(text, record.source, record.where or record.kind))
            else:
                _add_record(dump, record, scope or MetricsScope(only or ""))
        try:
            dump.finish()
        except InputError as error:
            dump.problems.extend(error.problems)
        fatal = [problem for problem in dump.problems if strict or problem.of_source]
        if fatal:
            raise InputError(fatal, total=dump.total)
        return dump


def _is_usage(item: RawObject | PodRun) -> bool:
    """Check whether a collected item is pod usage, not a pod."""
    return isinstance(item, RawObject) and item.kind != "Pod"


_MAX_WAITING: Final = 1 << 14
_MAX_WAITING_SIZE: Final = 1 << 25
"""Maximum size in bytes of the records that are collected before they are decoded."""


def _add_record(dump: Dump, record: RawObject, scope: MetricsScope | None) -> None:
    """Add a record to the dump, or its errors to the dump's problems."""
    try:
        dump.add(record, scope)
    except InputError as error:
        name = describe(record.where, record.kind, read_data_for_name(record))
        dump.problems.extend(Problem(each.message, record.source, name, each.field) for each in error.problems)


def request_missing_steps(dump: Dump, state: ControllerState | None, options: HPAOptions, now: Moment) -> Steps[None]:
    """Request what :meth:`Dump.decide <kscale.hpa.dump.dump.Dump.decide>` needs and ``dump`` lacks.

    Requests are those of the controller with ``state`` and ``options``. Afterwards the dump has the time of the last
    response. Failed requests are in ``unanswered``, and are errors of the HPAs that need them.
    """
    progress = Progress(now)
    hpas, keys = list(dump.hpas.values()), list(dump.hpas)
    unanswered = []
    mapper = RESTMapper()
    if not has_built_in_targets(hpas):
        outcome = yield from progress.act(Discover())
        if outcome.error is None:
            mapper = outcome.value
        else:
            unanswered.append(f"what the server serves: {outcome.error.message}")
    dump.known_mapper = mapper
    known_scales = dump.scales()
    listed = {key: scale for key, scale in known_scales.items() if isinstance(scale, Scale)}
    requested = yield from request_scales_steps(progress, hpas, keys, listed, mapper, options.workers)
    scales = {**known_scales, **requested}  # kinds that are not served have an error
    pods = to_batch_pods(dump.pods.cluster)
    objects = BatchObjects.read(hpas, scales, pods, dump.metrics, None, mapper)
    prepared = prepare_batch(objects, dump.build_stable_state() if state is None else state, options)
    metrics = yield from request_metrics_steps(progress, prepared.list_requests(), options.workers)
    metrics.add_pod_labels(dump.pods.cluster)
    dump.known_scales, dump.metrics = scales, metrics
    dump.unanswered = [*unanswered, *metrics.describe_failures()]
    dump.newest = progress.now
