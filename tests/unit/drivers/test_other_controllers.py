"""Who else writes an HPA's status, and for how long that counts."""

from __future__ import annotations

import logging

import pytest

from kscale.drivers.horizontal_autoscaler import OtherControllers
from kscale.effects import SECOND, Moment, to_text
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.decode import from_dict

PERIOD = 15 * SECOND
HOUR = 3600 * SECOND
LONG = 40 * PERIOD
NOW = 1_800_000_000 * SECOND
KEY = "shop/web"


def hpa(**writers: Moment) -> HorizontalPodAutoscaler:
    """Whose status was written, by whom, and when; labels were written by somebody else."""
    fields = [{"manager": "kubectl", "operation": "Update", "time": to_text(NOW)}]
    fields += [
        {"manager": name, "operation": "Update", "subresource": "status", "time": to_text(at)}
        for name, at in writers.items()
    ]
    return from_dict(
        {"metadata": {"name": "web", "namespace": "shop", "managedFields": fields}}, HorizontalPodAutoscaler
    )


def rivals() -> OtherControllers:
    return OtherControllers("ours", PERIOD)


def test_a_write_counts_for_four_periods() -> None:
    result = rivals()
    item = hpa(other=NOW - 30 * SECOND, ours=NOW)
    assert result.has(item, KEY, NOW)
    assert result.skipped_count == 1
    assert result.has(item, KEY, NOW + 29 * SECOND)
    assert not result.has(item, KEY, NOW + 30 * SECOND)
    assert result.skipped_count == 0
    assert not rivals().has(hpa(ours=NOW), KEY, NOW)
    assert not rivals().has(HorizontalPodAutoscaler(), KEY, NOW)


def test_one_that_goes_on_writing_is_left_alone_and_relieved_four_periods_after_it_ends() -> None:
    result, now = rivals(), NOW
    for _ in range(10):
        assert result.has(hpa(other=now), KEY, now)
        now += 3 * PERIOD
    last = now - 3 * PERIOD
    assert not result.has(hpa(other=last), KEY, last + 4 * PERIOD)


@pytest.mark.parametrize("before", [{}, {"other": NOW - 70 * SECOND}])
def test_one_that_was_silent_and_comes_back_counts_for_longer(
    before: dict[str, Moment], caplog: pytest.LogCaptureFixture
) -> None:
    result = rivals()
    assert not result.has(hpa(**before), KEY, NOW)
    back = hpa(other=NOW + PERIOD, ours=NOW)
    with caplog.at_level(logging.WARNING):
        assert result.has(back, KEY, NOW + PERIOD)
        assert result.has(back, KEY, NOW + PERIOD + LONG - 1)
    assert caplog.messages == [
        f"HorizontalPodAutoscaler {KEY} is left alone: other writes its status, which had been silent"
    ]
    assert not result.has(back, KEY, NOW + PERIOD + LONG)
    again = NOW + 2 * HOUR
    assert result.has(hpa(other=again), KEY, again)
    assert result.has(hpa(other=again), KEY, again + LONG - 1)


def test_the_clocks_need_not_agree() -> None:
    """Ours is two hours ahead: what it writes now looks old, and counts all the same."""
    result, ahead = rivals(), 2 * HOUR
    assert not result.has(hpa(other=NOW), KEY, NOW + ahead)  # as old as it looks
    assert result.has(hpa(other=NOW + PERIOD), KEY, NOW + PERIOD + ahead)


def test_write_with_a_future_time_counts_from_now() -> None:
    """Ours is two hours behind: nobody is waited for until it has caught up."""
    result, behind = rivals(), NOW - 2 * HOUR
    assert result.has(hpa(other=NOW), KEY, behind)
    assert result.has(hpa(other=NOW), KEY, behind + 4 * PERIOD - 1)
    assert not result.has(hpa(other=NOW), KEY, behind + 4 * PERIOD)
    assert result.has(hpa(other=NOW + PERIOD), KEY, behind + 5 * PERIOD)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_remaining_time_is_kept_when_the_clock_is_set(by: int) -> None:
    result, item = rivals(), hpa(other=NOW)
    assert result.has(item, KEY, NOW)
    result.clock_set(by)
    assert result.has(item, KEY, NOW + by + 4 * PERIOD - 1)
    assert not result.has(item, KEY, NOW + by + 4 * PERIOD)


def test_one_without_rivals_has_none_when_the_clock_is_set() -> None:
    result = rivals()
    assert not result.has(hpa(), KEY, NOW)
    result.clock_set(HOUR)
    assert not result.has(hpa(), KEY, NOW + HOUR)


def test_deleted_hpa_is_forgotten() -> None:
    result = rivals()
    assert not result.has(hpa(other=NOW - HOUR), KEY, NOW)
    result.forget(KEY)
    assert result.has(hpa(other=NOW), KEY, NOW)
    result.forget(KEY)
    assert result.skipped_count == 0
    assert result.has(hpa(other=NOW + PERIOD), KEY, NOW + PERIOD)
    assert not result.has(hpa(other=NOW + PERIOD), KEY, NOW + 5 * PERIOD)  # it has not come back


def test_removed_and_older_managed_fields_are_not_writes() -> None:
    result = rivals()
    assert not result.has(hpa(other=NOW - HOUR, third=NOW - 2 * HOUR), KEY, NOW)
    assert not result.has(hpa(third=NOW - 2 * HOUR), KEY, NOW)
    assert not result.has(HorizontalPodAutoscaler(), KEY, NOW)
