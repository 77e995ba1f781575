"""HPAs, their targets, pods and metrics lists from a dump, and what the HPA would decide on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kscale.effects import ZERO_TIME, ApiError, Moment, moment
from kscale.effects.outcomes import NOT_FOUND
from kscale.errors import InputError, Problem
from kscale.hpa.admission import Admission, DecodeError, check_stored, decode
from kscale.hpa.decide import decide
from kscale.hpa.decisions import Decisions
from kscale.hpa.dump_json import hpa_of_record, pod_of, time_of, usage_of, usage_of_items
from kscale.hpa.dump_pods import DumpPods, times_of
from kscale.hpa.dump_records import check_names, in_namespace, key_of, plain, untold
from kscale.hpa.external_lists import ExternalLists, MetricsScope
from kscale.hpa.keda import Pause, check_shape, guessed, hpa_of, pause_of, unmodelled
from kscale.hpa.options import HPAOptions
from kscale.hpa.queries import MetricLists
from kscale.hpa.state import ControllerState, settled
from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.durations import parse_duration
from kscale.objects.kinds import group_of
from kscale.objects.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kscale.objects.namespaces import with_namespace
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.rest_mapping import BUILT_IN, RESTMapper, RESTMappingError, ServedResource, parse_group_version
from kscale.objects.scale import WELL_KNOWN_PATHS, ScaleError, ScalePaths, definition_of, has_built_in_scale, scale_of
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.sources import RawObject

__all__ = ["Dump"]

_METRIC_GROUPS: Final = {
    "metrics.k8s.io": "PodMetrics",
    "custom.metrics.k8s.io": "MetricValue",
    "external.metrics.k8s.io": "ExternalMetricValue",
}
_APIS: Final = {
    "metrics.k8s.io": "resource",
    "custom.metrics.k8s.io": "custom",
    "external.metrics.k8s.io": "external",
}
_PASSED_OVER: Final = frozenset({"Node", "NodeMetrics", "Secret", "ConfigMap", "Event", "Namespace", "Service"})


_BUILT_IN_KINDS: Final = frozenset((each.group, each.kind) for each in BUILT_IN)


def _has_no_scale(group: str, kind: str) -> bool:
    return (group, kind) in _BUILT_IN_KINDS and not has_built_in_scale(group, kind)


@dataclass(slots=True)
class Dump:
    """What was read. ``targets`` are objects an HPA may scale (plain data) by (group, kind, namespace, name);
    ``newest`` is the newest time in it; ``unmodelled`` what of it is not taken into account, by object; ``generated``
    the objects that HPAs were made of, by the HPA. Of a live cluster (:mod:`kscale.hpa.dump_asking`) ``known_mapper``
    says how kinds are served, and ``unanswered`` what it did not answer, in words; None: this is of files.

    - ``definitions``: of CustomResourceDefinitions, by (group, kind): the plural, and where the scale is, by version
      (of those that have one).
    - ``paused``: ScaledObjects that are paused, whose HPAs KEDA deletes, by ``namespace/name``.
    - ``scaled_objects``: KEDA's ScaledObjects as plain data, by ``namespace/name``.
    - ``usage``: what was read of the usage of pods, in that order; :meth:`finish` puts it into ``metrics``.
    - ``known_scales``: the scale of every HPA's target by the HPA's ``namespace/name``, or why there is none; None: not
      found out yet.
    - ``total``: how many objects there were, damaged ones too; ``problems``: why some are left out.
    - ``duplicates``: what came more than once, in words (``Pod default/web``); the last one counts.
    - ``external_lists``: external metrics whose HPA is not known before everything is read.
    - ``list_number``: while it is read, which list the next external metrics are of: values of one list add up, those
      of a later one replace them.
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
    paused: dict[str, Pause] = field(default_factory=dict)
    external_lists: ExternalLists = field(default_factory=ExternalLists)

    def mapper(self) -> RESTMapper:
        """Resources of the built-in kinds, and of the custom ones that are defined or at hand."""
        if self.known_mapper is not None:
            return self.known_mapper
        named = {(each.group, each.kind): each.name for each in BUILT_IN}
        for group, kind, _, _ in self.targets:
            named.setdefault((group, kind), f"{kind.lower()}s")
        named.update({key: plural for key, (plural, _) in self.definitions.items()})
        return RESTMapper(ServedResource(group, "", kind, name) for (group, kind), name in named.items())

    def scales(self) -> dict[str, Scale | ApiError]:
        """The scale of every HPA's target, or why there is none."""
        if self.known_scales is not None:
            return self.known_scales
        mapper = self.mapper()
        # Kinds are found in lower case too, as discovery finds them.
        targets = {
            (group, kind.lower(), namespace, name): each
            for (group, kind, namespace, name), each in self.targets.items()
        }
        return {key: self._scale(hpa, mapper, targets) for key, hpa in self.hpas.items()}

    def _scale(
        self,
        hpa: HorizontalPodAutoscaler,
        mapper: RESTMapper,
        targets: Mapping[tuple[str, str, str, str], Mapping[str, Any]],
    ) -> Scale | ApiError:
        reference = hpa.spec.scale_target_ref
        try:
            group, _ = parse_group_version(reference.api_version)
            resource = mapper.resources(group, reference.kind)[0]
        except RESTMappingError as error:
            return ApiError(str(error))
        found = targets.get((group, reference.kind.lower(), hpa.metadata.namespace, reference.name))
        if found is None:
            return ApiError(f'{resource} "{reference.name}" not found', code=404, reason=NOT_FOUND)
        kind, version = str(found.get("kind")), str(found.get("apiVersion", "")).rpartition("/")[2]
        paths = WELL_KNOWN_PATHS.get((group, kind))
        if (group, kind) in self.definitions:
            paths = self.definitions[group, kind][1].get(version)
        if paths is None and ((group, kind) in self.definitions or _has_no_scale(group, kind)):
            return ApiError("the server could not find the requested resource", code=404, reason=NOT_FOUND)
        try:
            return scale_of(found, paths)
        except ScaleError as error:
            return ApiError(str(error))

    def assumed_scale(self, hpa: HorizontalPodAutoscaler) -> str:
        """Return what is assumed of the scale of an HPA's target without a CustomResourceDefinition; empty: nothing."""
        if self.known_mapper is not None:  # a live cluster has answered
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
        """What is not in the dump and matters, in words."""
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
        """The HPAs of a namespace, with labels that a selector matches, in input order. Raises ``InputError``."""
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
        """Forgets the HPAs of all other namespaces."""
        self.hpas = {key: hpa for key, hpa in self.hpas.items() if hpa.metadata.namespace in namespaces}

    def settled(self) -> ControllerState:
        """The state in which nothing of the past holds a size back."""
        return ControllerState(hpas={key: settled() for key in self.hpas})

    def decide(
        self,
        *,
        state: ControllerState | None = None,
        now: datetime | Moment | None = None,
        options: HPAOptions | None = None,
        threads: int = 1,
    ) -> Decisions:
        """Decide for all HPAs of the dump: HPAs that select the same pods block each other, so none decides alone.

        ``state`` None: settled, nothing of the past holds a size back. ``now`` None: the newest time of the dump; one
        without any decides at the beginning of 1970. Raises ``InputError`` where a state of the past needs a ``now``
        and there is none.
        """
        time = self.newest if now is None else moment(now)
        if time == ZERO_TIME:
            if state is not None and state.hpas:
                raise InputError("the input holds no time: a state of the past needs to be told what time it is now")
            time = 0
        if state is None:
            state = self.settled()
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

    def see(self, *texts: str | None) -> None:
        """Times that were read (``texts``; None: there was none). Raises ``InputError`` for a text that is no time,
        before anything is kept."""
        try:
            times = [time_of(text) for text in texts if text]
        except ValueError as error:
            raise InputError(str(error)) from None
        for time in times:
            self.newest = max(self.newest, time)

    def add(self, record: RawObject, scope: MetricsScope | None) -> None:
        """Take one object (``record``). ``scope``: what external metrics are for, if known. Raises ``InputError``."""
        group, kind = group_of(record.api_version), record.kind
        if record.empty:
            if kind == f"{_METRIC_GROUPS.get(group)}List":  # an API that answered nothing is there
                setattr(self.metrics, _APIS[group], True)
            return
        pod = pod_of(record) if kind == "Pod" and not group else None
        if pod is not None:
            self.read[kind] += 1
            self.see(pod.metadata.creation_timestamp)
            self._add_pod(pod)
            return
        hpa = hpa_of_record(record) if kind == "HorizontalPodAutoscaler" else None
        if hpa is not None:
            self.read[kind] += 1
            self.see(hpa.metadata.creation_timestamp)
            hpa = with_namespace(hpa)
            self._keep_hpa(check_stored(hpa, is_stored=bool(hpa.metadata.resource_version)))
            return
        data = plain(record)
        self.read[kind] += 1
        check_names(data)
        if kind not in _PASSED_OVER:
            data = in_namespace(data)
        self.see((data.get("metadata") or {}).get("creationTimestamp"))
        if group in _METRIC_GROUPS:
            self._add_metric(group, kind, data, scope, record.source)
        elif kind == "HorizontalPodAutoscaler":
            self._add_hpa(data)
        elif kind == "ScaledObject" and group == "keda.sh":
            check_shape(data)
            if key_of(data) in self.scaled_objects:
                self.duplicates.append(f"ScaledObject {key_of(data)}")
            self.scaled_objects[key_of(data)] = data
        elif kind == "Pod" and not group:
            self._add_pod(from_dict(data, Pod))
        elif kind == "CustomResourceDefinition":
            of, of_kind, plural, paths = definition_of(data)
            self.definitions[of, of_kind] = (plural, paths)
        elif kind not in _PASSED_OVER:
            metadata = data.get("metadata") or {}
            key = (group, kind, metadata.get("namespace", ""), metadata.get("name", ""))
            if key in self.targets:
                self.duplicates.append(f"{kind} {key_of(data)}")
            self.targets[key] = data

    def add_usage(self, records: Sequence[RawObject]) -> bool:
        """Usage of pods (``records``) that comes in a row; False: it is read object by object."""
        return self._add_usage(usage_of(records))

    def add_usage_items(self, text: memoryview) -> bool:
        """Usage of pods that comes as a list, of which this is the text of the items; False as above."""
        return self._add_usage(usage_of_items(text))

    def _add_usage(self, found: tuple[PodUsage, set[str]] | None) -> bool:
        if found is None:
            return False
        usage, created = found
        try:
            self.see(*created)
        except InputError:
            return False  # whose it is has to be told
        self.read["PodMetrics"] += len(usage)
        self.newest = max(self.newest, int(usage.time.max(initial=ZERO_TIME)))
        self.usage.append(usage)
        return True

    def _add_hpa(self, data: Mapping[str, Any], *, stored: bool = True) -> None:
        """An HPA; one that is ``stored`` may break rules that only a new object must keep."""
        try:
            hpa = decode(data)
        except DecodeError as error:
            raise InputError(str(error)) from None
        self._keep_hpa(check_stored(hpa, is_stored=stored and bool(hpa.metadata.resource_version)))

    def _keep_hpa(self, out: Admission) -> None:
        if out.hpa is None:
            raise InputError([Problem(str(each).partition(": ")[2], field=each.field) for each in out.errors])
        self.see(
            out.hpa.status.last_scale_time, *(each.last_transition_time for each in out.hpa.status.conditions or ())
        )
        key = f"{out.hpa.metadata.namespace}/{out.hpa.metadata.name}"
        if key in self.hpas:
            self.duplicates.append(f"HorizontalPodAutoscaler {key}")
        self.hpas[key] = out.hpa

    def _add_pod(self, pod: Pod) -> None:
        pod = with_namespace(pod)
        self.see(pod.status.start_time, *(each.last_transition_time for each in pod.status.conditions))
        if self.pods.add(pod):
            self.duplicates.append(f"Pod {pod.metadata.namespace}/{pod.metadata.name}")

    def add_pods(self, batch: PodBatch) -> bool:
        """Pods (a ``batch`` of them) that come in a row; False: they are read one by one."""
        times = times_of(batch)
        if times is None:
            return False
        self.newest = max(self.newest, *times, ZERO_TIME)
        self.read["Pod"] += len(batch)
        self.duplicates += [f"Pod {key}" for key in self.pods.add_batch(batch)]
        return True

    def _add_metric(
        self, group: str, kind: str, data: Mapping[str, Any], scope: MetricsScope | None, source: str
    ) -> None:
        if kind == "NodeMetrics":
            return  # kubectl prints them from the same API
        if kind != _METRIC_GROUPS[group]:
            raise InputError(f"a {kind} of {group}, where a list holds {_METRIC_GROUPS[group]} items")
        if group == "metrics.k8s.io":
            item = from_dict(data, PodMetrics)
            self.see(item.timestamp)
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
            self.see(value.timestamp)
            self.duplicates += self.metrics.add_custom([value])
        else:
            external = from_dict(data, ExternalMetricValue)
            self.see(external.timestamp)
            scope = scope or MetricsScope("")
            if self.external_lists.add(self.list_number, scope, external, source):
                self.metrics.external = True
            else:
                self.duplicates += self.metrics.add_external(scope.namespace, [external], self.list_number)

    def finish(self) -> None:
        """After everything was read: HPAs of ScaledObjects, labels of pods. Raises one ``InputError``."""
        problems: list[Problem] = []
        for key, scaled in self.scaled_objects.items():
            namespace = (scaled.get("metadata") or {}).get("namespace", "")
            known = [*self.metrics.external_names(namespace), *self.external_lists.names(namespace)]
            data = hpa_of(scaled, known)
            pause = pause_of(scaled)
            if pause is not None:
                self.paused[key] = pause
                self.hpas.pop(key_of(data), None)  # what KEDA has not deleted yet
                continue
            missing = unmodelled(scaled)
            if key_of(data) not in self.hpas:
                missing += guessed(scaled, known)
            if missing:
                self.unmodelled[f"ScaledObject {key}"] = missing
            if not data["spec"]["metrics"] and key_of(data) not in self.hpas:
                continue  # without metrics it would be decided by cpu
            self.generated[key_of(data)] = f"ScaledObject {key}"
            if key_of(data) not in self.hpas:
                try:
                    self._add_hpa(data, stored=False)
                except InputError as error:
                    whose = f"HPA of ScaledObject {key}"
                    problems += [Problem(each.message, object=whose, field=each.field) for each in error.problems]
        owners = {key.removeprefix("ScaledObject "): hpa for hpa, key in self.generated.items()}
        problems += self.external_lists.resolve(self.hpas, owners, self.metrics)
        for usage in self.usage:
            self.duplicates += self.metrics.add_pod_metrics(usage)
        self.pods.cluster.tidy()
        self.metrics.know_pods(self.pods.cluster)
        self.known_scales = self.scales()
        for key, hpa in self.hpas.items():
            if texts := untold(hpa, self.metrics):
                self.unmodelled[f"HorizontalPodAutoscaler {key}"] = texts
        if problems:
            raise InputError(problems)
