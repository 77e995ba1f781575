"""Reads the shapes that the recorded Cluster Autoscaler cases share: objects, pod lists, templates, groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kscale import ca
from kscale.effects import Event
from kscale.objects.api.core import Container, Node, Pod, PodSpec, ResourceRequirements
from kscale.objects.api.meta import KubeObject, ObjectMeta
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.quantity import Quantity

T = TypeVar("T", bound=KubeObject)

GPU_LABEL = "example.com/accelerator"


def read(data: dict[str, Any]) -> KubeObject:
    """One object."""
    kind = find_kind(data["apiVersion"], data["kind"])
    assert kind is not None, data["kind"]
    return from_dict(data, kind)


def of_type(objects: Iterable[KubeObject], kind: type[T]) -> list[T]:
    return [item for item in objects if isinstance(item, kind)]


def pod_runs(entries: Iterable[dict[str, Any]] | None) -> list[ca.PodRun]:
    """A pods list: full pods, and runs of pods in the compact form."""
    return [
        ca.PodRun(from_dict(entry, Pod))
        if entry.get("kind") == "Pod"
        else ca.PodRun(_compact(entry), entry.get("count", 1))
        for entry in entries or []
    ]


def pods(entries: Iterable[dict[str, Any]] | None) -> list[Pod]:
    """A pods list, every pod written out (those of a run share their name here: nothing reads it)."""
    return [run.pod for run in pod_runs(entries) for _ in range(run.count)]


def _compact(entry: dict[str, Any]) -> Pod:
    requests = {name: Quantity(text) for name, text in (entry.get("requests") or {}).items()}
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(name=f"{entry['name']}-0", namespace="default"),
        spec=PodSpec(containers=[Container(resources=ResourceRequirements(requests=requests))]),
    )


def template(data: dict[str, Any] | None) -> NodeTemplate | None:
    if data is None:
        return None
    return NodeTemplate(node=from_dict(data["node"], Node), pods=pods(data.get("pods")))


def error_of(error: ca.AutoscalerError | None) -> dict[str, str] | None:
    return None if error is None else {"type": error.type, "message": error.message}


def event_of(event: Event) -> dict[str, str]:
    return {"object": event.about, "type": event.type, "reason": event.reason, "message": event.message}


def sorted_events(events: Iterable[Event]) -> list[dict[str, str]]:
    return sorted(map(event_of, events), key=lambda e: (e["object"], e["reason"], e["type"], e["message"]))
