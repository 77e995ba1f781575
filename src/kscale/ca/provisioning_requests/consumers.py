"""Pods that wait for the capacity of a request add no nodes themselves (``processors/provreq/pods_filter.go``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kscale.ca.event_subjects import pod_event
from kscale.ca.pod_lists.enforcer import CONSUME_ANNOTATIONS
from kscale.effects import Event
from kscale.objects.core import Pod
from kscale.objects.pod_annotations import pod_annotation

__all__ = ["WithoutConsumers", "request_of", "without_consumers"]

_MOST_EVENTS: Final = 50


class WithoutConsumers(msgspec.Struct, kw_only=True):
    """The pods that no request is made for; the others; what is said of the first fifty of these."""

    pods: list[Pod] = []
    consumers: list[Pod] = []
    events: list[Event] = []


def request_of(pod: Pod) -> str | None:
    """The name of the request that a pod consumes: its annotation, else the old one."""
    return next((name for key in CONSUME_ANNOTATIONS if (name := pod_annotation(pod, key)) is not None), None)


def without_consumers(pods: Iterable[Pod]) -> WithoutConsumers:
    """Takes out the pods that consume a request."""
    found = WithoutConsumers()
    for pod in pods:
        name = request_of(pod)
        if name is None:
            found.pods.append(pod)
            continue
        found.consumers.append(pod)
        if len(found.events) < _MOST_EVENTS:
            whose = f"{pod.namespace}/{name}"
            text = f"Unschedulable pod didn't trigger scale-up, because it's consuming ProvisioningRequest {whose}"
            found.events.append(pod_event(pod, "Normal", "", text))
    return found
