"""Workloads of a dump: their pods, their VPAs, and the workloads that deleted pods belonged to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kscale.errors import InputError
from kscale.objects.api.core import Container, Pod, PodTemplateSpec
from kscale.objects.api.meta import CustomWorkload, ObjectMeta
from kscale.objects.api.vpa import (
    PodUpdatePolicy,
    RecommenderSelector,
    TargetReference,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerSpec,
)
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.selectors import Selector
from kscale.vpa.controllers import WELL_KNOWN_KINDS, ControllerKey, Controllers, DumpScales, TargetError
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.cluster_feeder import is_managed_vpa
from kscale.vpa.target import find_topmost_controller, find_topmost_owner, is_stronger_vpa, resolve_target_selector

__all__ = ["Workload", "WorkloadKey", "Workloads"]

WorkloadKey = tuple[str, str, str]
"""(namespace, kind, name)."""

_REPLICA_SET_POD_PATTERN = re.compile(r"(?P<deployment>.+)-[bcdf-hj-np-tv-xz0-9]{1,10}-[bcdf-hj-np-tv-xz0-9]{5}")
_STATEFUL_SET_POD_PATTERN = re.compile(r"(?P<name>.+)-\d+")
_SUFFIXED_NAME_PATTERN = re.compile(r"(?P<name>.+)-[bcdf-hj-np-tv-xz0-9]{5}")
_INDEXED_JOB_POD_PATTERN = re.compile(r"(?P<name>.+)-\d+-[bcdf-hj-np-tv-xz0-9]{5}")
_OTHER_RECOMMENDER_TEXT = "VPAs of another recommender, not taken: their workloads get implied ones"
_REVISION_LABELS = frozenset(
    {
        "pod-template-hash",
        "rollouts-pod-template-hash",
        "controller-revision-hash",
        "apps.kruise.io/cloneset-instance-id",
    }
)
"""Labels that tell the revisions, or the pods, of one workload apart."""
_NO_WORKLOAD_TEXT = "VPAs whose target is no workload of the dump"
_LABEL_NAME_SEPARATORS = re.compile(r"[^a-zA-Z0-9_]")
_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Workload:
    """A topmost controller, its live pods, and its VPA (``implied``: not in the cluster, mode Off)."""

    key: ControllerKey
    labels: dict[str, str]
    """Of its pod template."""
    selector: Selector
    vpa: VerticalPodAutoscaler
    implied: bool
    containers: dict[str, Container] = field(default_factory=dict)
    init_containers: frozenset[str] = frozenset()
    pods: list[Pod] = field(default_factory=list)
    """Those that run."""
    finished: list[Pod] = field(default_factory=list)
    """Those that succeeded or failed and are still in the dump."""

    @property
    def name(self) -> str:
        """Return kind and name, such as ``Deployment/web``."""
        return f"{self.key.kind}/{self.key.name}"

    @property
    def identity(self) -> WorkloadKey:
        """Return (namespace, kind, name)."""
        return self.key.namespace, self.key.kind, self.key.name


class Workloads:
    """All workloads of a dump that have a topmost controller with a selector.

    ``pods``: all of the dump; ``custom``: its workloads of custom kinds. A workload's VPA is the strongest (as
    upstream, the oldest) of those that this recommender manages (``options``). ``skipped`` counts the others: texts by
    namespace.
    """

    def __init__(
        self,
        controllers: Controllers,
        pods: Iterable[Pod],
        vpas: Iterable[VerticalPodAutoscaler],
        options: RecommenderOptions | None = None,
        custom: Iterable[CustomWorkload] = (),
    ) -> None:
        self.controllers = controllers
        self.options = options or RecommenderOptions()
        self.items: dict[WorkloadKey, Workload] = {}
        self._refused: set[WorkloadKey] = set()
        self._by_namespace: dict[str, list[Workload]] | None = None
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(namespace, text) -> how many."""
        self.unresolved: list[tuple[str, str]] = []
        """(namespace, text)."""
        self.pod_owner: dict[tuple[str, str], Workload] = {}
        vpas = list(vpas)
        self._taken = {(vpa.namespace, vpa.name) for vpa in vpas}
        own = self._group_vpas_by_target(vpas)
        self._own = own
        self._custom = {(item.namespace, item.kind, item.name): item for item in custom}
        for key, template in controllers.templates():
            try:
                top = find_topmost_controller(key, controllers)
            except TargetError as error:
                self.unresolved.append((key.namespace, f"{key}: {error}"))
                continue
            if top == key:
                self._add(key, template, own.pop((key.namespace, key.kind, key.name), None))
            elif top is not None and top.kind not in WELL_KNOWN_KINDS:
                self._add_custom(top, template)
        for pod in pods:
            self._add_pod(pod)
        for (namespace, kind, name), vpa in own.items():
            self.skipped[namespace, _NO_WORKLOAD_TEXT] += 1
            text = f"VerticalPodAutoscaler {vpa.key}: its target {kind}/{name} is no workload of the input"
            self.unresolved.append((namespace, text))

    def notes(self) -> list[tuple[str, str]]:
        """Return (namespace, text) of what could not be resolved, and of what was assumed of owners."""
        scales = self.controllers.scales
        return [*self.unresolved, *(scales.assumed if isinstance(scales, DumpScales) else ())]

    def _group_vpas_by_target(self, vpas: Iterable[VerticalPodAutoscaler]) -> dict[WorkloadKey, VerticalPodAutoscaler]:
        by_target: dict[WorkloadKey, VerticalPodAutoscaler] = {}
        for vpa in vpas:
            if not is_managed_vpa(vpa, self.options):
                self.skipped[
                    vpa.namespace, "VPAs of another recommender, not taken: their workloads get implied ones"
                ] += 1
                continue
            target = vpa.spec.target_ref
            if target is None:
                self.skipped[vpa.namespace, _NO_WORKLOAD_TEXT] += 1
                continue
            identity = (vpa.namespace, target.kind, target.name)
            other = by_target.setdefault(identity, vpa)
            if other is not vpa:
                self.skipped[vpa.namespace, "VPAs on a workload that an older VPA is for, not taken"] += 1
                if is_stronger_vpa(vpa, other):
                    by_target[identity] = vpa
        return by_target

    def _add(self, key: ControllerKey, template: PodTemplateSpec, own: VerticalPodAutoscaler | None) -> None:
        vpa = own if own is not None else self._build_implied_vpa(key)
        try:
            selector = resolve_target_selector(vpa, self.controllers)
        except TargetError as error:
            self.unresolved.append((key.namespace, f"{key}: {error}"))
            return
        self.items[key.namespace, key.kind, key.name] = Workload(
            key,
            dict(template.metadata.labels or {}),
            selector,
            vpa,
            own is None,
            {container.name: container for container in template.spec.containers},
            frozenset(container.name for container in template.spec.init_containers),
        )

    def _add_custom(self, key: ControllerKey, template: PodTemplateSpec) -> None:
        """Add a workload of a custom kind that has a scale, once. ``template``: of what it owns, or of a pod."""
        identity = key.namespace, key.kind, key.name
        if identity in self.items or identity in self._refused:
            return
        item = self._custom.get(identity)
        template = _read_pod_template(item) or template
        scales, labels = self.controllers.scales, template.metadata.labels or {}
        if item is None and isinstance(scales, DumpScales):
            # The object is not in the dump, so its selector is unknown: its pods' labels without those of revisions.
            selector = ",".join(
                f"{name}={value}" for name, value in sorted(labels.items()) if name not in _REVISION_LABELS
            )
            scales.assume_selector(group_of(key.api_version), key.kind, key.namespace, key.name, selector)
        self._add(key, template, self._own.pop(identity, None))
        if identity not in self.items:
            self._refused.add(identity)

    def _build_implied_vpa(self, key: ControllerKey) -> VerticalPodAutoscaler:
        """Build a VPA in mode Off, with a name that no VPA of the dump has."""
        name = base = f"{key.kind.lower()}-{key.name}"
        number = 1
        while (key.namespace, name) in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add((key.namespace, name))
        recommender = self.options.recommender_name
        return VerticalPodAutoscaler(
            api_version="autoscaling.k8s.io/v1",
            kind="VerticalPodAutoscaler",
            metadata=ObjectMeta(name=name, namespace=key.namespace),
            spec=VerticalPodAutoscalerSpec(
                target_ref=TargetReference(api_version=key.api_version, kind=key.kind, name=key.name),
                update_policy=PodUpdatePolicy(update_mode="Off"),
                recommenders=[] if recommender == "default" else [RecommenderSelector(name=recommender)],
            ),
        )

    def _add_pod(self, pod: Pod) -> None:
        live = pod.status.phase not in _FINISHED_PHASES and pod.status.phase != "Pending"
        try:
            parent = find_topmost_owner(pod, self.controllers)
        except TargetError as error:
            if live:
                self.unresolved.append((pod.namespace, f"Pod {pod.key}: {error}"))
            return
        if parent is not None and parent.kind not in WELL_KNOWN_KINDS:
            metadata = ObjectMeta(labels=pod.metadata.labels)
            self._add_custom(parent, PodTemplateSpec(metadata=metadata, spec=pod.spec))
        workload = self.items.get((parent.namespace, parent.kind, parent.name)) if parent is not None else None
        if workload is None:
            if live:
                self.skipped[pod.namespace, "pods without a workload"] += 1
            return
        self.pod_owner[pod.namespace, pod.name] = workload
        if live:
            workload.pods.append(pod)
            for container in pod.spec.containers:
                workload.containers.setdefault(container.name, container)
        elif pod.status.phase in _FINISHED_PHASES:
            workload.finished.append(pod)

    def owner_of_gone(self, namespace: str, pod: str, named: str = "") -> Workload | None:
        """Return the workload of a pod that does not exist anymore; None if unknown.

        ``named`` (``Kind/name`` or a name) decides, else the pod's name: its part before the suffix is looked up among
        the dump's controllers, whose owners are followed. A deleted ReplicaSet, or Job of a CronJob, is recognized by
        its name.
        """
        if named:
            kind, _, name = named.rpartition("/")
            for each in [kind] if kind else sorted(WELL_KNOWN_KINDS):
                workload = self._top(namespace, each, name)
                if workload is not None:
                    return workload
        custom = sorted({kind for _, kind, _ in self.items} - WELL_KNOWN_KINDS)
        for pattern, candidates in (
            (_SUFFIXED_NAME_PATTERN, ("ReplicaSet", "Job")),
            (_REPLICA_SET_POD_PATTERN, ("Deployment", *custom)),
            (_INDEXED_JOB_POD_PATTERN, ("CronJob", "Job")),
            (_STATEFUL_SET_POD_PATTERN, ("StatefulSet", *custom)),
            (_SUFFIXED_NAME_PATTERN, ("DaemonSet", "ReplicationController", *custom)),
        ):
            match = pattern.fullmatch(pod)
            for kind in candidates if match is not None else ():
                assert match is not None
                workload = self._top(namespace, kind, match[1])
                if workload is not None:
                    return workload
        return None

    def owner_by_labels(self, namespace: str, labels: Mapping[str, str]) -> Workload | None:
        """Return the workload whose selector matches a pod's labels from Prometheus; None unless exactly one does.

        Prometheus has only label names with underscores, so they are compared with the labels of pod templates and
        selectors in that form.
        """
        matches = []
        if self._by_namespace is None:
            self._by_namespace = {}
            for (place, _, _), item in self.items.items():
                self._by_namespace.setdefault(place, []).append(item)
        for item in self._by_namespace.get(namespace, ()):
            keys = item.labels.keys() | {each.key for each in item.selector.requirements}
            own = {key: labels[name] for key in keys if (name := _LABEL_NAME_SEPARATORS.sub("_", key)) in labels}
            if own and item.selector.matches(own):
                matches.append(item)
        return matches[0] if len(matches) == 1 else None

    def _top(self, namespace: str, kind: str, name: str) -> Workload | None:
        """Return the workload of a controller of the dump (possibly the controller itself); None without one."""
        workload = self.items.get((namespace, kind, name))
        if workload is not None or self.controllers.get(kind, namespace, name) is None:
            return workload
        try:
            top = find_topmost_controller(ControllerKey(namespace, kind, name), self.controllers)
        except TargetError:
            return None
        return self.items.get((top.namespace, top.kind, top.name)) if top is not None else None


def _read_pod_template(item: CustomWorkload | None) -> PodTemplateSpec | None:
    """Read the pod template of a custom workload; None without one, or if it is invalid."""
    template = (item.spec or {}).get("template") if item is not None else None
    if not isinstance(template, dict):
        return None
    try:
        return from_dict(template, PodTemplateSpec)
    except InputError:
        return None
