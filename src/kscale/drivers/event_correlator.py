"""Aggregation and rate limit of events (upstream: ``client-go/tools/record``), without a clock.

An event is either a repetition of an earlier one (its count is patched), one of many that differ only in the message
(they are combined), spam (not sent), or new.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

import msgspec

from kscale.effects import SECOND, Create, Event, Moment, Outcome, Patch, Progress, StepsOf, Wait, to_text
from kscale.objects.api.core import Event as EventObject
from kscale.objects.api.core import EventSource
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.names import dns_subdomain_errors
from kscale.world.kubernetes.client import TokenBucket

__all__ = [
    "CLUSTER_AUTOSCALER",
    "Correlated",
    "CorrelatorOptions",
    "EventCorrelator",
    "cluster_autoscaler_spam_key",
    "make_event",
    "object_spam_key",
]

_COMBINED: Final = "(combined from similar events): "
_TRIES: Final = 12
_PAUSE: Final = 10 * SECOND
_T = TypeVar("_T")


def object_spam_key(event: EventObject) -> Hashable:
    """Return the rate limit key of an event: events of one source and type about one object share a budget."""
    ref = event.involved_object
    return (
        event.source.component, event.source.host,
        ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version, event.type,
    )  # fmt: skip


def cluster_autoscaler_spam_key(event: EventObject) -> Hashable:
    """Return the rate limit key of an event of the Cluster Autoscaler.

    Events with one reason about one object share a budget. Events about the autoscaler's status ConfigMap, if it has
    the default name and namespace, share a budget only if their messages are equal, too.
    """
    ref = event.involved_object
    if (ref.kind, ref.namespace, ref.name) == ("ConfigMap", "kube-system", "cluster-autoscaler-status"):
        return event.message
    return (
        event.reason, event.source.component, event.source.host,
        ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version,
    )  # fmt: skip


class CorrelatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the event correlation.

    ``burst`` events of one ``spam_key`` at once, then ``qps`` per second. Similar events are combined from
    ``max_events`` messages on, each at most ``max_interval`` nanoseconds after the last. ``cache_size``: entries of
    each cache.
    """

    spam_key: Callable[[EventObject], Hashable] = object_spam_key
    burst: int = 25
    qps: float = 1 / 300
    max_events: int = 10
    max_interval: int = 600 * SECOND
    cache_size: int = 4096


CLUSTER_AUTOSCALER: Final = CorrelatorOptions(spam_key=cluster_autoscaler_spam_key, burst=1, cache_size=8192)
"""Options of the Cluster Autoscaler without ``--record-duplicated-events``."""


class Correlated(msgspec.Struct, frozen=True):
    """What to send: the event, and the patch if it repeats an earlier one."""

    event: EventObject
    patch: dict[str, Any] | None = None


def make_event(event: Event, *, component: str, now: Moment) -> EventObject:
    """Build the API object of an event that ``component`` reports at ``now``. The time is part of its name.

    If the name would be invalid, it is a UUID that depends on it.
    """
    ref = event.regarding
    name = f"{ref.name}.{now:x}"
    if dns_subdomain_errors(name):
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    timestamp = to_text(now)
    return EventObject(
        api_version="v1",
        kind="Event",
        metadata=ObjectMeta(name=name, namespace=ref.namespace or "default"),
        involved_object=ref,
        type=event.type,
        reason=event.reason,
        message=event.message,
        count=1,
        first_timestamp=timestamp,
        last_timestamp=timestamp,
        source=EventSource(component=component),
        reporting_component=component,
    )


class _Recent(Generic[_T]):
    """LRU cache of ``size`` entries. Keys are digests: the memory does not depend on the texts of events."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[bytes, _T] = OrderedDict()

    def get(self, key: bytes) -> _T | None:
        """Return the value of a key, which then counts as used last; None if it is not cached."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: bytes, value: _T) -> None:
        """Store a value. The entry used longest ago is removed if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)


def _digest(key: Hashable) -> bytes:
    """Return 16 bytes that identify a key."""
    return hashlib.blake2b(repr(key).encode(), digest_size=16).digest()


class _Group(msgspec.Struct):
    messages: dict[bytes, None]
    """Digests of the messages, the oldest first."""
    last: Moment


class _RecentEvent(msgspec.Struct, frozen=True):
    count: int
    first_timestamp: str | None
    name: str


class EventCorrelator:
    """Correlates the events of one source in order. Single owner."""

    __slots__ = ("_buckets", "_groups", "_options", "_recent_events")

    def __init__(self, options: CorrelatorOptions | None = None) -> None:
        self._options = options or CorrelatorOptions()
        size = self._options.cache_size
        self._groups: _Recent[_Group] = _Recent(size)
        self._recent_events: _Recent[_RecentEvent] = _Recent(size)
        self._buckets: _Recent[TokenBucket] = _Recent(size)

    def correlate(self, event: EventObject, now: Moment) -> Correlated | None:
        """Return what to send for an event; None if it exceeds the rate limit."""
        event, key = self._aggregate(event, now)
        correlated = self._observe(event, key)
        return correlated if self._is_wanted(correlated.event, now) else None

    def record_steps(self, event: EventObject, now: Moment) -> StepsOf[Create | Patch | Wait, bool]:
        """Send an event after correlation. While the server cannot be reached, retry up to eleven times.

        Waits ten seconds before each retry, and a shorter random time before the first. Returns whether the event was
        sent: False if it exceeds the rate limit, the server rejects it, all retries fail, or a wait is cut short.
        """
        correlated = self.correlate(event, now)
        if correlated is None:
            return False
        progress = Progress(now)
        for tried in range(1, _TRIES + 1):
            outcome = yield from _send(progress, correlated)
            if outcome.error is None:
                return True
            if outcome.error.code or outcome.error.reason:
                return False  # the server rejected it and would do so again
            if tried == _TRIES:
                break
            # The first pause is random, so that clients do not all return at once.
            cut = yield from (progress.wait(1, jitter=float(_PAUSE)) if tried == 1 else progress.wait(_PAUSE))
            if cut.error is not None:
                break
        return False

    def _aggregate(self, event: EventObject, now: Moment) -> tuple[EventObject, bytes]:
        """Return (event to send, its key). The event is the given one, or one that combines similar events.

        Upstream: ``EventAggregate``.
        """
        ref, source = event.involved_object, event.source
        similar = _digest(
            (
                source.component, source.host, ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version, event.type,
                event.reason, event.reporting_component, event.reporting_instance,
            )
        )  # fmt: skip
        group = self._groups.get(similar)
        if group is None or now - group.last > self._options.max_interval:
            group = _Group({}, now)
        group.messages[_digest(event.message)] = None
        group.last = now
        self._groups.put(similar, group)
        if len(group.messages) < self._options.max_events:
            return event, _digest(
                (
                    source.component, source.host,
                    ref.kind, ref.namespace, ref.name, ref.field_path, ref.uid, ref.api_version,
                    event.type, event.reason, event.message,
                )
            )  # fmt: skip
        del group.messages[next(iter(group.messages))]
        combined = EventObject(
            api_version="v1",
            kind="Event",
            metadata=ObjectMeta(name=f"{ref.name}.{now:x}", namespace=event.metadata.namespace),
            involved_object=ref,
            type=event.type,
            reason=event.reason,
            message=_COMBINED + event.message,
            count=1,
            first_timestamp=to_text(now),
            last_timestamp=to_text(now),
            source=source,
        )
        return combined, similar

    def _observe(self, event: EventObject, key: bytes) -> Correlated:
        """Count an event under ``key``. Return it with its count, and with a patch if it repeats an earlier event.

        Upstream: ``eventObserve``.
        """
        earlier = self._recent_events.get(key)
        patch = None
        if earlier is not None:
            event = msgspec.structs.replace(
                event,
                metadata=msgspec.structs.replace(event.metadata, name=earlier.name),
                first_timestamp=earlier.first_timestamp,
                count=earlier.count + 1,
            )
            patch = {"count": event.count, "lastTimestamp": event.last_timestamp}
            if event.message:
                patch["message"] = event.message
        self._recent_events.put(key, _RecentEvent(event.count, event.first_timestamp, event.metadata.name))
        return Correlated(event, patch)

    def _is_wanted(self, event: EventObject, now: Moment) -> bool:
        """Take a token from the rate limit of an event, and return whether there was one."""
        key = _digest(self._options.spam_key(event))
        bucket = self._buckets.get(key) or TokenBucket(self._options.qps, self._options.burst)
        self._buckets.put(key, bucket)
        return bucket.try_accept(now)


def _send(progress: Progress, correlated: Correlated) -> StepsOf[Create | Patch, Outcome]:
    """Create an event, or patch the earlier event that it repeats, and return the outcome of the request.

    If the earlier event does not exist any more, the event is created.
    """
    event = correlated.event
    if correlated.patch is not None:
        outcome = yield from progress.act(
            Patch(
                kind="Event",
                api_version="v1",
                name=event.name,
                namespace=event.namespace,
                type="strategic",
                patch=correlated.patch,
            )
        )
        if outcome.error is None or outcome.error.code != 404:
            return outcome
    return (yield from progress.act(Create(event)))
