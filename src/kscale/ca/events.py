"""Events of the Cluster Autoscaler and the objects that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kscale.ca.options import AutoscalingOptions
from kscale.effects import Event
from kscale.objects.api.core import Node, ObjectReference, Pod

__all__ = ["PodUidLookup", "build_node_event", "build_pod_event", "build_pod_events", "build_status_events"]

PodUidLookup = Callable[[str], str]
"""The UID of a pod by ``namespace/name``; empty if it is not known."""


def build_status_events(options: AutoscalingOptions, type_: str, reason: str, *messages: str) -> list[Event]:
    """Build an event about the cluster as a whole for each message. ``type_``: Normal or Warning.

    Upstream attaches such events to its status ConfigMap, whose UID the world knows. Without ``write_status_configmap``
    there is no ConfigMap, and upstream records no event (``pkg/clusterstate/utils/logging.go``,
    ``LogEventRecorder.Event``): the list is empty.
    """
    if not options.write_status_configmap:
        return []
    where = ObjectReference(
        api_version="v1", kind="ConfigMap", namespace=options.namespace, name=options.status_config_map_name
    )
    return [Event(regarding=where, type=type_, reason=reason, message=message) for message in messages]


def build_node_event(node: Node, type_: str, reason: str, message: str) -> Event:
    """Build an event about a node. ``type_``: Normal or Warning."""
    metadata = node.metadata
    where = ObjectReference(api_version="v1", kind="Node", name=metadata.name, uid=metadata.uid)
    return Event(regarding=where, type=type_, reason=reason, message=message)


def build_pod_event(pod: Pod, type_: str, reason: str, message: str) -> Event:
    """Build an event about a pod. ``type_``: Normal or Warning."""
    metadata = pod.metadata
    where = ObjectReference(
        api_version="v1", kind="Pod", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
    )
    return Event(regarding=where, type=type_, reason=reason, message=message)


def build_pod_events(
    pods: Iterable[str], type_: str, reason: str, message: str, *, uid_of: PodUidLookup
) -> list[Event]:
    """Build the same event about each pod (``namespace/name``). ``type_``: Normal or Warning.

    ``uid_of`` returns a pod's UID.
    """
    return [
        Event(
            regarding=ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid_of(pod)),
            type=type_,
            reason=reason,
            message=message,
        )
        for pod in pods
        for namespace, _, name in (pod.rpartition("/"),)
    ]
