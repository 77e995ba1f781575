"""Upstream's own tables on container states."""

from __future__ import annotations

import pytest

from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE
from unit.vpa.recorder import DAY, HOUR, MIB, T0, Recorder, bucket


def test_cpu_samples_weigh_a_tenth() -> None:
    recorder = Recorder()
    assert (
        recorder.add((T0, 3140, CPU_SAMPLE), (T0 + 12 * HOUR, 6280, CPU_SAMPLE), (T0 + DAY, 1570, CPU_SAMPLE))
        == [True] * 3
    )
    assert int(recorder.state.store.samples[0]) == 3
    assert recorder.add((T0 + DAY, 1, CPU_SAMPLE), (T0 + 2 * DAY, -1000, CPU_SAMPLE)) == [False, False]


MEMORY_STEPS: list[tuple[list[tuple[int, int, int]], list[int], int]] = [
    # (events, sizes that remain, end of the last window)
    (
        [(T0, 500 * MIB, 1), (T0 + 12 * HOUR, 900 * MIB, 1), (T0 + DAY, 200 * MIB, 1)],
        [900 * MIB, 200 * MIB],
        T0 + 2 * DAY,
    ),
    ([(T0, 1000 * MIB, 2)], [1200 * MIB], T0 + DAY),
    ([(T0, 1000 * MIB, 2), (T0, 999 * MIB, 2), (T0, 999 * MIB, 2), (T0, 2000 * MIB, 2)], [2400 * MIB], T0 + DAY),
    ([(T0, 1 * MIB, 2)], [101 * MIB], T0 + DAY),
    ([(T0, 3000 * MIB, 1), (T0, 1000 * MIB, 2)], [3600 * MIB], T0 + DAY),
    ([(T0, 2000 * MIB, 1), (T0 + 2 * DAY, 1000 * MIB, 2)], [2000 * MIB, 2400 * MIB], T0 + 3 * DAY),
    (
        [(T0, 100 * MIB, 1), (T0 + DAY, 2000 * MIB, 1), (T0 + DAY - 10**9, 1000 * MIB, 2)],
        [100 * MIB, 2400 * MIB],
        T0 + 2 * DAY,
    ),
]


@pytest.mark.parametrize(("events", "peaks", "end"), MEMORY_STEPS)
def test_memory_windows(events: list[tuple[int, int, int]], peaks: list[int], end: int) -> None:
    recorder = Recorder()
    assert all(recorder.add(*events))
    assert set(recorder.memory()) == {bucket(size) for size in peaks}
    assert recorder.window_end == end


@pytest.mark.parametrize(
    ("steps", "end"),
    [([(0.0, 5), (2.0, 10)], 3.0), ([(0.0, 5), (0.5, 10)], 1.0)],
)
def test_memory_windows_of_an_hour(steps: list[tuple[float, int]], end: float) -> None:
    recorder = Recorder(1)
    recorder.add(*((T0 + int(hours * HOUR), size * 10**8, 1) for hours, size in steps))
    assert recorder.window_end == T0 + int(end * HOUR)


@pytest.mark.parametrize(("interval", "late", "count"), [(24, 30 * HOUR, 8), (1, 2 * HOUR, 8), (24, 72 * HOUR, 2)])
def test_old_ooms_are_refused(interval: int, late: int, count: int) -> None:
    recorder = Recorder(interval, memory_aggregation_interval_count=count)
    assert recorder.add((T0, 1000 * MIB, 1), (T0 - late, 1000 * MIB, 2)) == [True, False]


def test_negative_memory_is_refused() -> None:
    assert Recorder().add((T0, -1000, MEMORY_SAMPLE)) == [False]
