"""The contents of a dump (HPAs, ScaledObjects, targets, pods, metrics lists), and what the controller would do with it.

For a live cluster, request what the dump lacks. Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from kscale.effects import ZERO_TIME, ApiError, Discover, Moment, Progress, Steps, moment
from kscale.effects.actions import NOT_FOUND
from kscale.errors import InputError, Problem
from kscale.hpa.api.keda import (
    PausedTarget,
)
from kscale.hpa.batch.decisions import Decisions, decide
from kscale.hpa.batch.inputs import BatchObjects, prepare_batch
from kscale.hpa.batch.pods import to_batch_pods
from kscale.hpa.batch.requests import MetricLists, has_built_in_targets, request_metrics_steps, request_scales_steps
from kscale.hpa.controller.state import ControllerState, stable_state
from kscale.hpa.dump.records import (
    DumpPods,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.kinds import (
    BUILT_IN,
    RESTMapper,
    RESTMappingError,
    ServedResource,
    group_of,
    parse_group_version,
)
from kscale.objects.scale import WELL_KNOWN_PATHS, ScaleError, ScalePaths, has_built_in_scale, scale_of
from kscale.objects.selectors import SelectorError, parse_selector

__all__ = ["Dump", "request_missing_steps"]


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
    - ``known_mapper``: how a live cluster serves kinds, or the result of :meth:`mapper` for files; None before all
      files are read. ``unanswered``: requests without a response, as texts; None for files.
    - ``definitions``: of CustomResourceDefinitions, by (group, kind): the plural, and the scale's paths by version.
    - ``paused``: paused ScaledObjects, whose HPAs KEDA deletes, by ``namespace/name``.
    - ``scaled_objects``: KEDA's ScaledObjects as plain data, by ``namespace/name``.
    - ``keda_refusals``: errors of KEDA's webhook about the ScaledObject of an HPA, as texts, by HPA.
    - ``known_scales``: the scale of every HPA's target by the HPA's ``namespace/name``, or its error; None before they
      are computed.
    - ``total``: number of objects, including those that cannot be read; ``problems``: why some are left out.
    - ``duplicates``: objects that appeared more than once, as texts (``Pod default/web``); the last one counts.
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
    scaled_objects: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    known_scales: dict[str, Scale | ApiError] | None = None
    known_mapper: RESTMapper | None = None
    unanswered: list[str] | None = None
    paused: dict[str, PausedTarget] = field(default_factory=dict)
    keda_refusals: dict[str, list[str]] = field(default_factory=dict)

    def mapper(self) -> RESTMapper:
        """Return ``known_mapper``, or else a new mapper of the built-in kinds and the custom kinds in the dump.

        Custom kinds are those of definitions and of scale targets.
        """
        if self.known_mapper is not None:
            return self.known_mapper
        named = {(each.group, each.kind): each.name for each in BUILT_IN}
        for group, kind, _, _ in self.targets:
            named.setdefault((group, kind), f"{kind.lower()}s")
        named.update({key: plural for key, (plural, _) in self.definitions.items()})
        return RESTMapper([ServedResource(group, "", kind, name) for (group, kind), name in named.items()])

    def scales(self) -> dict[str, Scale | ApiError]:
        """Return the scale of every HPA's target, or its error, by the HPA's ``namespace/name``.

        These are ``known_scales`` if set; otherwise they are computed from the targets, at each call.
        """
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
        """Return a text on how the scale of an HPA's target is read although its CustomResourceDefinition is missing.

        If the input lacks the target as well, the text says so. Empty for built-in and defined kinds, and if a live
        cluster returned the scale.
        """
        if self.unanswered is not None:  # a live cluster has returned the scale
            return ""
        reference = hpa.spec.scale_target_ref
        group, kind = group_of(reference.api_version), reference.kind
        if (group, kind) in _BUILT_IN_KINDS or has_built_in_scale(group, kind) or (group, kind) in self.definitions:
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

    def keep_namespaces(self, namespaces: Collection[str]) -> None:
        """Drop the HPAs of all other namespaces from the dump, in place. Its other objects stay."""
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

        ``state`` None: :meth:`build_stable_state`. ``now`` None: the newest time of the dump, or the beginning of 1970
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
            self.pods.index,
            self.metrics,
            options=options,
            state=state,
            now=time,
            mapper=self.mapper(),
            threads=threads,
        )


def request_missing_steps(dump: Dump, state: ControllerState | None, options: HPAOptions, now: Moment) -> Steps[None]:
    """Request what :meth:`Dump.decide <kscale.hpa.dump.dump.Dump.decide>` needs and ``dump`` lacks, and store it there.

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
    pods = to_batch_pods(dump.pods.index)
    objects = BatchObjects.read(hpas, scales, pods, dump.metrics, None, mapper)
    prepared = prepare_batch(objects, dump.build_stable_state() if state is None else state, options)
    metrics = yield from request_metrics_steps(progress, prepared.list_requests(), options.workers)
    metrics.add_pod_labels(dump.pods.index)
    dump.known_scales, dump.metrics = scales, metrics
    dump.unanswered = [*unanswered, *metrics.describe_failures()]
    dump.newest = progress.now
