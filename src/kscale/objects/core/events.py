"""Events of the core group, and what they are about."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

import msgspec

from kscale.objects.base import ApiStruct, Int32
from kscale.objects.meta import KubeObject

__all__ = [
    "Event",
    "EventSource",
    "ObjectReference",
]


class ObjectReference(ApiStruct, gc=False):  # texts only, and there are as many as events
    """Any object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


class EventSource(ApiStruct):
    """Who says it: a program, and on which host."""

    component: str = ""
    host: str = ""


class Event(KubeObject):
    """Something that was said about an object."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""
    reporting_instance: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    count: Int32 = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
