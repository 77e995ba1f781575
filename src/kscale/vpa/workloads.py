"""Workloads of a dump as the recommender needs them: their pods, their VPAs, and where pods that are gone belonged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kscale.objects.core import Container, Pod
from kscale.objects.meta import ObjectMeta
from kscale.objects.selectors import Selector
from kscale.objects.vpa import (
    PodUpdatePolicy,
    TargetReference,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerSpec,
)
from kscale.vpa.target import WELL_KNOWN, ControllerKey, Controllers, TargetError

__all__ = ["Workload", "Workloads"]

_OF_REPLICA_SET = re.compile(r"(?P<deployment>.+)-[bcdf-hj-np-tv-xz0-9]{1,10}-[bcdf-hj-np-tv-xz0-9]{5}")
_NUMBERED = re.compile(r"(?P<name>.+)-\d+")
_SUFFIXED = re.compile(r"(?P<name>.+)-[bcdf-hj-np-tv-xz0-9]{5}")
_CRON_JOB = re.compile(r"(?P<name>.+)-\d+-[bcdf-hj-np-tv-xz0-9]{5}")


@dataclass(slots=True)
class Workload:
    """A topmost controller, its live pods, and the VPA that recommends for it (``implied``: made up, mode Off)."""

    key: ControllerKey
    labels: dict[str, str]
    """Of its pod template."""
    selector: Selector
    vpa: VerticalPodAutoscaler
    implied: bool
    containers: dict[str, Container] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``Deployment/web``."""
        return f"{self.key.kind}/{self.key.name}"


class Workloads:
    """All workloads of a dump that have a topmost controller with a selector."""

    def __init__(self, controllers: Controllers, pods: Iterable[Pod], vpas: Iterable[VerticalPodAutoscaler]) -> None:
        self.controllers = controllers
        self.items: dict[tuple[str, str, str], Workload] = {}
        self.bare_pods = 0
        self.unresolved: list[str] = []
        by_target = {
            (vpa.namespace, vpa.spec.target_ref.kind, vpa.spec.target_ref.name): vpa
            for vpa in vpas
            if vpa.spec.target_ref is not None
        }
        for key, template in controllers.templates():
            try:
                top = controllers.topmost(key)
            except TargetError as error:
                self.unresolved.append(f"{key}: {error}")
                continue
            if top == key:
                self._add(key, template.metadata.labels or {}, template.spec.containers, by_target)
        self.pod_owner: dict[tuple[str, str], Workload] = {}
        for pod in pods:
            try:
                parent = controllers.parent_of(pod)
            except TargetError as error:
                self.unresolved.append(f"Pod {pod.key}: {error}")
                continue
            workload = self.items.get((parent.namespace, parent.kind, parent.name)) if parent is not None else None
            if workload is None:
                self.bare_pods += 1
                continue
            workload.pods.append(pod)
            self.pod_owner[pod.namespace, pod.name] = workload
            for container in pod.spec.containers:
                workload.containers.setdefault(container.name, container)

    def _add(
        self,
        key: ControllerKey,
        labels: Mapping[str, str],
        containers: Iterable[Container],
        by_target: Mapping[tuple[str, str, str], VerticalPodAutoscaler],
    ) -> None:
        identity = (key.namespace, key.kind, key.name)
        vpa = by_target.get(identity)
        implied = vpa is None
        if vpa is None:
            vpa = VerticalPodAutoscaler(
                api_version="autoscaling.k8s.io/v1",
                kind="VerticalPodAutoscaler",
                metadata=ObjectMeta(name=f"{key.kind.lower()}-{key.name}", namespace=key.namespace),
                spec=VerticalPodAutoscalerSpec(
                    target_ref=TargetReference(api_version=key.api_version, kind=key.kind, name=key.name),
                    update_policy=PodUpdatePolicy(update_mode="Off"),
                ),
            )
        try:
            selector = self.controllers.selector(vpa)
        except TargetError as error:
            self.unresolved.append(f"{key}: {error}")
            return
        found = {container.name: container for container in containers}
        self.items[identity] = Workload(key, dict(labels), selector, vpa, implied, found)

    def owner_of_gone(self, namespace: str, pod: str, named: str = "") -> Workload | None:
        """Where a pod that is no longer there belonged: ``named`` (``Kind/name`` or a name), else by its own name."""
        if named:
            kind, _, name = named.rpartition("/")
            kinds = [kind] if kind else sorted(WELL_KNOWN)
            for each in kinds:
                found = self.items.get((namespace, each, name))
                if found is not None:
                    return found
        for pattern, candidates in (
            (_OF_REPLICA_SET, ("Deployment",)),
            (_CRON_JOB, ("CronJob",)),
            (_NUMBERED, ("StatefulSet",)),
            (_SUFFIXED, ("DaemonSet", "ReplicaSet", "ReplicationController", "Job")),
        ):
            match = pattern.fullmatch(pod)
            for kind in candidates if match is not None else ():
                assert match is not None
                found = self.items.get((namespace, kind, match[1]))
                if found is not None:
                    return found
        return None
