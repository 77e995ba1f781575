"""The work queue, and what it counts."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.drivers.work_queue import QUEUE_METRICS, WorkQueue
from kscale.effects import SECOND, Observation

NOW = 1_800_000_000 * SECOND
BOUNDS = next(each.bounds for each in QUEUE_METRICS if each.name == "workqueue_work_duration_seconds")


def counted(queue: WorkQueue, now: int) -> dict[str, Observation]:
    result = list(queue.metrics.observations(now))
    assert all(each.labels == {"name": "q"} for each in result)
    return {each.name.removeprefix("workqueue_"): each for each in result}


def gauges(observations: dict[str, Observation]) -> tuple[float, float, float]:
    names = ("depth", "unfinished_work_seconds", "longest_running_processor_seconds")
    depth, unfinished, longest = (observations[name].value for name in names)
    return depth, unfinished, longest


def bucket(observation: Observation) -> list[float]:
    """The upper bounds of the buckets that something fell into."""
    assert observation.buckets is not None
    return [(*BOUNDS, float("inf"))[i] for i, count in enumerate(observation.buckets) for _ in range(count)]


def test_waiting_and_active_keys_are_counted() -> None:
    queue = WorkQueue("q")
    queue.add("a", NOW)
    queue.add("a", NOW)  # once is enough
    queue.add("b", NOW)
    assert gauges(counted(queue, NOW)) == (2, 0, 0)
    assert queue.take(NOW + 2 * SECOND) == "a"
    queue.add("a", NOW + 3 * SECOND)  # worked on: it comes up again
    assert queue.take(NOW + 4 * SECOND) == "b"
    result = counted(queue, NOW + 6 * SECOND)
    assert gauges(result) == (1, 6, 4)
    assert result["adds_total"].value == 1  # the others were told before
    assert (result["queue_duration_seconds"].value, bucket(result["queue_duration_seconds"])) == (6, [10, 10])
    assert "work_duration_seconds" not in result
    queue.done("a", NOW + 6 * SECOND)
    assert queue.take(NOW + 6 * SECOND) == "a"
    queue.done("a", NOW + 6 * SECOND + 500)
    queue.done("b", NOW + 104 * SECOND)
    result = counted(queue, NOW + 104 * SECOND)
    assert gauges(result) == (0, 0, 0)
    assert bucket(result["work_duration_seconds"]) == [BOUNDS[0], 10, BOUNDS[-2]]
    assert result["queue_duration_seconds"].value == 3
    assert gauges(counted(queue, NOW)) == (0, 0, 0)
    assert set(counted(queue, NOW)) == {"depth", "unfinished_work_seconds", "longest_running_processor_seconds"}


def test_delayed_add_is_a_retry_and_waits_from_its_due_time() -> None:
    queue = WorkQueue("q")
    queue.add_after("a", NOW + 15 * SECOND)
    queue.add_after("a", NOW + 20 * SECOND)
    assert queue.take(NOW) is None
    result = counted(queue, NOW)
    assert (result["retries_total"].value, result["depth"].value, "adds_total" in result) == (2, 0, False)
    assert queue.take(NOW + 16 * SECOND) == "a"
    result = counted(queue, NOW + 16 * SECOND)
    assert (result["queue_duration_seconds"].value, result["adds_total"].value) == (1, 1)


def test_taking_all_ready_keys_equals_taking_each() -> None:
    def filled() -> WorkQueue:
        queue = WorkQueue("q")
        for key, due in (("c", 3), ("a", 1), ("b", 1), ("late", 9)):
            queue.add_after(key, NOW + due * SECOND)
        queue.add("now", NOW)
        queue.add("c", NOW)
        return queue

    one, all_ = filled(), filled()
    singly = iter(lambda: one.take(NOW + 5 * SECOND), None)
    assert all_.take_all(NOW + 5 * SECOND) == list(singly) == ["now", "c", "a", "b"]
    assert counted(one, NOW + 6 * SECOND) == counted(all_, NOW + 6 * SECOND)
    all_.add("a", NOW + 6 * SECOND)
    assert all_.take_all(NOW + 6 * SECOND) == []  # it is worked on
    all_.done("a", NOW + 7 * SECOND)
    assert all_.take_all(NOW + 7 * SECOND) == ["a"]


@given(st.data())
def test_keys_that_come_up_together_do_as_each_would_alone(data: st.DataObject) -> None:
    """Added at once, later, or by the end of work; some of them sooner; the clock is set."""
    one, all_ = WorkQueue("q"), WorkQueue("q")
    at, popped = NOW, list[str]()
    seconds, some = st.integers(0, 6), st.lists(st.sampled_from("abcde"), unique=True)
    for _ in range(data.draw(st.integers(1, 12))):
        at += data.draw(seconds) * SECOND
        match data.draw(st.sampled_from(["now", "later", "clock", "work"])):
            case "now":
                key = data.draw(st.sampled_from("abcde"))
                one.add(key, at), all_.add(key, at)
            case "later":
                key, due = data.draw(st.sampled_from("abcde")), at + data.draw(seconds) * SECOND
                one.add_after(key, due), all_.add_after(key, due)
            case "clock":
                by = data.draw(st.integers(0, 3)) * SECOND
                one.clock_set(by), all_.clock_set(by)
                at += by
            case _:
                over = [key for key in popped if key in data.draw(some)]
                due = at + data.draw(seconds) * SECOND
                for key in over:
                    one.add_after(key, due)
                    one.done(key, at)
                all_.done_until(over, due, at)
        assert one.next_due() == all_.next_due()
        assert one.waiting(at) == all_.waiting(at)
        assert list(iter(partial(one.take, at), None)) == all_.take_all(at)
        assert one.working == all_.working
        assert counted(one, at) == counted(all_, at)
        popped = sorted(all_.working)


def test_work_is_over_for_all_as_for_one_by_one() -> None:
    def worked_on() -> WorkQueue:
        queue = WorkQueue("q")
        for key, due in (("a", 1), ("b", 2), ("c", 2), ("sooner", 2)):
            queue.add(key, NOW + due * SECOND)
        assert len(queue.take_all(NOW + 3 * SECOND)) == 4
        queue.add("b", NOW + 4 * SECOND)
        queue.add_after("sooner", NOW + 8 * SECOND)
        return queue

    one, all_ = worked_on(), worked_on()
    keys, due, now = ["sooner", "c", "b"], NOW + 15 * SECOND, NOW + 5 * SECOND
    for key in keys:
        one.add_after(key, due)
        one.done(key, now)
    all_.done_until(keys, due, now)
    assert all_.working == one.working == {"a"}
    assert counted(all_, now) == counted(one, now)
    for queue in (one, all_):
        assert queue.take_all(now) == ["b"]
        assert queue.take_all(NOW + 9 * SECOND) == ["sooner"]
        assert queue.take_all(due) == ["c"]


def rounds(offsets: dict[str, float], takes: float, until: int, *, each: int = 2) -> list[tuple[int, list[str]]]:
    """Return the rounds that take all that is ready: (when they end, which keys).

    Keys, ``each`` of so many, become ready again 15 s after their work ended, or up to 1.5 s later together with
    others. A round takes so many seconds.
    """
    queue, result = WorkQueue("q"), []
    start = NOW // (15 * SECOND) * 15 * SECOND
    for key, offset in offsets.items():
        for number in range(each):
            queue.add_after(f"{key}{number}", start + int(offset * SECOND))
    while (due := queue.next_due()) is not None and due < start + until * SECOND:
        at = max(due, result[-1][0] if result else due)
        keys = queue.take_all(at)
        end = at + int(takes * SECOND)
        queue.done_until(keys, end + 15 * SECOND, end, within=1_500_000_000, period=15 * SECOND)
        result.append((end, sorted({key[0] for key in keys})))
    return result


@pytest.mark.parametrize("takes", [0.0, 0.3])
def test_nearby_due_times_are_merged(takes: float) -> None:
    result = rounds({"a": 0, "b": 0.4, "c": 3, "d": 6.5}, takes, 300)
    assert [keys for _, keys in result[-8:]] == [["a", "b", "c", "d"]] * 8
    last: dict[str, int] = {}
    for end, keys in result:
        for key in keys:
            wait = end - last.get(key, end - int((15 + takes) * SECOND))
            assert (15 + takes) * SECOND <= wait <= (16.5 + 3 * takes) * SECOND
            last[key] = end
    assert {later - earlier for (earlier, _), (later, _) in pairwise(result[-8:])} == {int((15 + takes) * SECOND)}


def test_keys_do_not_wait_for_a_distant_key() -> None:
    result = rounds({"a": 0, "b": 5}, 0.0, 300, each=1)
    assert [keys for _, keys in result[-4:]] == [["a"], ["b"], ["a"], ["b"]]
    result = [end for end, keys in result if keys == ["a"]]
    assert {later - earlier for earlier, later in pairwise(result)} == {15 * SECOND}


def test_keys_do_not_follow_each_other_for_ever() -> None:
    """Of three that are as far from each other one keeps its time."""
    result = rounds({"a": 0, "b": 5, "c": 10}, 0.0, 600)
    assert [keys for _, keys in result[-4:]] == [["a", "b", "c"]] * 4
