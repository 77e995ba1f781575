"""Events on their way: upstream's tables (``events_cache_test.go``, ``event_test.go``)."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from kscale.drivers.event_correlator import (
    CLUSTER_AUTOSCALER,
    Correlated,
    CorrelatorOptions,
    EventCorrelator,
    make_event,
    object_spam_key,
)
from kscale.effects import (
    CANCELED,
    SECOND,
    Action,
    ApiError,
    Create,
    Event,
    Moment,
    Outcome,
    Patch,
    VirtualTime,
    Wait,
)
from kscale.objects.api.core import Event as EventObject
from kscale.objects.api.core import ObjectReference
from kscale.objects.decode import to_dict

T0 = 1_800_000_000 * SECOND
POD = ObjectReference(api_version="v1", kind="Pod", namespace="my-ns", name="my-pod", uid="differentUid")


def event(reason: str, message: str, regarding: ObjectReference = POD) -> Event:
    return Event(regarding=regarding, type="Normal", reason=reason, message=message)


def many(count: int, reason: str, message: str) -> list[Event]:
    return [event(reason, f"{message} {i}") for i in range(count)]


def of_container(name: str) -> Event:
    return event("similar", "similar message", msgspec.structs.replace(POD, field_path=f"spec.containers{{{name}}}"))


FIRST, AGAIN, UNIQUE = event("first", "i am first"), event("duplicate", "me again"), event("unique", "snowflake")
SIMILAR = of_container("container1")
UNIQUE_OBJECTS = [event("unique", "snowflake", msgspec.structs.replace(POD, uid=f"other-{i}")) for i in range(30)]


def similar(count: int) -> list[Event]:
    return [msgspec.structs.replace(SIMILAR, message=f"similar message {i}") for i in range(count)]


# TestEventCorrelator: what was said before, what is said now, seconds between two readings of the clock (three readings
# an event), and how often it was said; None: it is spam.
TABLE: dict[str, tuple[list[Event], Event, int, int | None]] = {
    "create-a-single-event": ([], FIRST, 5, 1),
    "the-same-event-should-just-count": ([AGAIN], AGAIN, 5, 2),
    "the-same-event-should-just-count-even-if-more-than-aggregate": ([AGAIN] * 10, AGAIN, 30, 11),
    "the-same-event-is-spam-if-happens-too-frequently": ([AGAIN] * 26, AGAIN, 1, None),
    "create-many-unique-events": (UNIQUE_OBJECTS, UNIQUE, 5, 1),
    "similar-events-should-aggregate-event": (similar(9), SIMILAR, 5, 1),
    "similar-events-many-times-should-count-the-aggregate": (similar(10), SIMILAR, 5, 2),
    "events-from-different-containers-do-not-aggregate": ([of_container("container2")], SIMILAR, 5, 1),
    "similar-events-whose-interval-is-greater-than-aggregate-interval-do-not-aggregate": (similar(9), SIMILAR, 600, 1),
}


def correlate(correlator: EventCorrelator, what: Event, now: Moment) -> Correlated | None:
    return correlator.correlate(make_event(what, component="kubelet", now=now), now)


@pytest.mark.parametrize("name", TABLE)
def test_event_correlator(name: str) -> None:
    before, new, interval, count = TABLE[name]
    correlator, now = EventCorrelator(), T0
    for each in before:
        correlate(correlator, each, now)
        now += 3 * interval * SECOND
    result = correlate(correlator, new, now)
    if count is None:
        assert result is None
        return
    assert result is not None
    assert result.event.count == count
    combined = name.startswith("similar-events") and "do-not" not in name
    assert result.event.message == ("(combined from similar events): " if combined else "") + new.message
    assert (result.patch is None) == (count == 1)
    assert (result.event.first_timestamp == result.event.last_timestamp) == (count == 1)


def by_reason(event: EventObject) -> tuple[object, str]:
    return object_spam_key(event), event.reason


# TestEventSpamFilter
@pytest.mark.parametrize(
    ("options", "new", "sent"),
    [
        (CorrelatorOptions(burst=1), event("duplicate", "me again"), False),
        (CorrelatorOptions(burst=1, spam_key=by_reason), event("duplicate", "me again"), True),
        (CorrelatorOptions(burst=1, spam_key=by_reason), event("original", "me again"), False),
    ],
)
def test_spam_filter(options: CorrelatorOptions, new: Event, sent: bool) -> None:
    correlator = EventCorrelator(options)
    assert correlate(correlator, event("original", "i am first"), T0) is not None
    assert (correlate(correlator, new, T0 + SECOND) is not None) is sent


def test_spam_of_the_cluster_autoscaler() -> None:
    correlator = EventCorrelator(CLUSTER_AUTOSCALER)
    status = ObjectReference(kind="ConfigMap", namespace="kube-system", name="cluster-autoscaler-status")
    events = [
        event("ScaleDown", "a"), event("ScaleDown", "b"), event("ScaleDownFailed", "a"),
        event("ScaledUpGroup", "a", status), event("ScaledUpGroup", "b", status), event("ScaledUpGroup", "a", status),
    ]  # fmt: skip
    assert [correlate(correlator, each, T0) is not None for each in events] == [True, False, True, True, True, False]


def test_the_budget_comes_back() -> None:
    correlator = EventCorrelator()
    assert [correlate(correlator, AGAIN, T0) is not None for _ in range(26)] == [True] * 25 + [False]
    assert correlate(correlator, AGAIN, T0 + 299 * SECOND) is None
    result = correlate(correlator, AGAIN, T0 + 301 * SECOND)
    assert result is not None
    assert result.event.count == 28  # what was not sent was counted


def test_cache_size_is_limited() -> None:
    correlator = EventCorrelator(CorrelatorOptions(cache_size=2))
    for i in (1, 2, 1, 3):  # 2 was used last, and goes
        correlate(correlator, event("r", str(i)), T0)
    counts = [
        result.event.count for i in (1, 2) if (result := correlate(correlator, event("r", str(i)), T0)) is not None
    ]
    assert counts == [3, 1]


def test_the_object_of_an_event() -> None:
    node = ObjectReference(api_version="v1", kind="Node", name="n1", uid="n1")
    created = make_event(event("ScaleDown", "marked", node), component="cluster-autoscaler", now=T0 + 1)
    assert to_dict(created) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"n1.{T0 + 1:x}", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"},
        "source": {"component": "cluster-autoscaler"},
        "reportingComponent": "cluster-autoscaler",
        "type": "Normal",
        "reason": "ScaleDown",
        "message": "marked",
        "count": 1,
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }
    odd = make_event(event("r", "m", ObjectReference(kind="Role", name="system:x")), component="c", now=T0)
    assert ":" not in odd.name
    assert odd.name == make_event(event("r", "m", ObjectReference(name="system:x")), component="c", now=T0).name


class Sink:
    def __init__(self, *errors: ApiError | None) -> None:
        self.errors = list(errors)
        self.requests: list[Create | Patch] = []

    def __call__(self, action: Action, now: Moment) -> Outcome:
        assert isinstance(action, Create | Patch)
        self.requests.append(action)
        return Outcome(at=now, error=self.errors.pop(0) if self.errors else None)


def sent(correlator: EventCorrelator, sink: Sink, what: Event, now: Moment = T0) -> tuple[bool, Moment]:
    time = VirtualTime(sink, now=now)
    running = time.start(lambda at: correlator.record_steps(make_event(what, component="c", now=now), at))
    time.run()
    return running.value, time.now - now


# TestWriteEventError
@pytest.mark.parametrize(
    ("errors", "tries", "is_sent"),
    [
        ([ApiError("refused", code=403, reason="Forbidden")] * 99, 1, False),
        ([ApiError("connection refused")] * 99, 12, False),
        ([ApiError("connection refused")], 2, True),
        ([], 1, True),
    ],
    ids=["giveUp2", "retry2", "succeedEventually", "at once"],
)
def test_write_errors(errors: list[ApiError], tries: int, is_sent: bool) -> None:
    sink = Sink(*errors)
    assert sent(EventCorrelator(), sink, FIRST)[0] is is_sent
    assert len(sink.requests) == tries


def test_pauses() -> None:
    waits: list[Wait] = []
    correlator = EventCorrelator()
    steps = correlator.record_steps(make_event(FIRST, component="c", now=T0), T0)
    action = next(steps)
    while len(waits) < 3:
        refused = isinstance(action, Create)
        waits += [action] if isinstance(action, Wait) else []
        action = steps.send(Outcome(at=T0, error=ApiError("connection refused") if refused else None))
    assert waits == [Wait(1, 10.0 * SECOND), Wait(10 * SECOND), Wait(10 * SECOND)]
    assert isinstance(action, Create)
    action = steps.send(Outcome(at=T0, error=ApiError("connection refused")))
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(at=T0, error=CANCELED))  # TestCancelEvent
    assert end.value.value is False


# TestUpdateExpiredEvent
def test_deleted_event_is_created_again() -> None:
    correlator, sink = EventCorrelator(), Sink(None, ApiError("gone", code=404, reason="NotFound"))
    assert sent(correlator, sink, AGAIN)[0]
    assert sent(correlator, sink, AGAIN, T0 + 5 * SECOND)[0]
    first, patch, again = sink.requests
    assert isinstance(first, Create)
    assert patch == Patch(
        kind="Event",
        api_version="v1",
        name=first.object.name,
        namespace="my-ns",
        type="strategic",
        patch={"count": 2, "lastTimestamp": "2027-01-15T08:00:05Z", "message": "me again"},
    )
    assert isinstance(again, Create)
    assert (again.object.name, again.object.metadata.resource_version) == (first.object.name, "")


def test_spam_is_not_sent() -> None:
    correlator, sink = EventCorrelator(CLUSTER_AUTOSCALER), Sink()
    assert [sent(correlator, sink, FIRST)[0] for _ in range(2)] == [True, False]
    assert len(sink.requests) == 1


def test_caches_hold_no_text_of_events() -> None:
    """Messages may be as long as a tenant likes: the memory depends on the number of entries alone."""
    correlator = EventCorrelator()
    tracemalloc.start()
    try:
        for i in range(100):
            pod = msgspec.structs.replace(POD, uid=f"other-{i}")
            assert correlator.correlate(make_event(event("r", f"{i}" * 50_000, pod), component="c", now=T0 + i), T0)
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 1_000_000
