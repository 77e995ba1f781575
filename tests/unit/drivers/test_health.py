"""Health: upstream's tables (``liveness_test.go``), and what the endpoint says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kscale.drivers.process import ActivityCheck, HealthCheck, HealthCheckOptions
from kscale.effects import SECOND, Moment

T0 = 1_800_000_000 * SECOND


def check(activity: float = 1, failing: float = 1, startup: float = 1, *, monitored: bool = True) -> HealthCheck:
    options = HealthCheckOptions(
        max_inactivity=timedelta(seconds=activity),
        max_failing_time=timedelta(seconds=failing),
        max_startup_time=timedelta(seconds=startup),
    )
    created = HealthCheck(options, T0 - 3600 * SECOND)
    if monitored:
        created.start_monitoring(T0 - 3600 * SECOND)
    return created


def at(check: HealthCheck, activity: float, success: float) -> HealthCheck:
    check.last_activity, check.last_success = T0 + round(activity * SECOND), T0 + round(success * SECOND)
    return check


@pytest.mark.parametrize(
    ("since", "monitored", "healthy"),
    [(0, True, True), (-2, True, False), (-2, False, True), (2, False, True), (-1, True, True)],
)
def test_health_depends_on_the_last_activity(since: float, monitored: bool, healthy: bool) -> None:
    assert (at(check(monitored=monitored), since, since).check(T0) == "") is healthy


def test_activity() -> None:
    created = at(check(), -2, 10)
    assert created.check(T0) == "Error: last activity more 2s ago, last success more than -10s ago"
    created.update_last_activity(T0)
    assert created.check(T0) == ""


def test_success_is_activity() -> None:
    created = at(check(), -2, 10)
    assert created.check(T0)
    created.update_last_success(T0)
    assert created.check(T0) == ""
    assert created.last_success > created.last_activity  # what was in the future stays


def test_success() -> None:
    created = at(check(), 10, -2)
    assert created.check(T0)
    created.update_last_success(T0)
    assert created.check(T0) == ""
    assert created.last_activity > created.last_success


def test_the_first_loop_has_longer() -> None:
    created = at(check(startup=4), -3, -3)
    assert created.check(T0) == ""
    created.update_last_success(T0 - 2 * SECOND)
    assert created.check(T0)


@pytest.mark.parametrize(
    ("inactivity", "failing", "startup", "counts"), [(10, 15, 5, 15), (15, 10, 5, 15), (10, 10, 15, 15)]
)
def test_the_first_loop_never_has_less(inactivity: int, failing: int, startup: int, counts: int) -> None:
    options = HealthCheckOptions(
        max_inactivity=timedelta(minutes=inactivity),
        max_failing_time=timedelta(minutes=failing),
        max_startup_time=timedelta(minutes=startup),
    )
    assert options.startup == timedelta(minutes=counts)


def test_starting_monitoring_resets_the_times() -> None:
    created = HealthCheck(HealthCheckOptions(), T0)
    later: Moment = T0 + 3600 * SECOND
    assert created.check(later) == ""
    created.start_monitoring(later)
    assert created.check(later) == ""
    assert (
        created.check(later + 1201 * SECOND) == "Error: last activity more 20m1s ago, last success more than 20m1s ago"
    )


def test_programs_of_the_vpa() -> None:
    created = ActivityCheck(timedelta(minutes=5), T0)
    assert created.check(T0 + 301 * SECOND) == ""
    created.start_monitoring(T0)
    assert created.check(T0 + 300 * SECOND) == ""
    assert created.check(T0 + 301 * SECOND) == "Error: last activity more than 5m1s ago"
    created.update_last_activity(T0 + 10 * SECOND)
    assert created.check(T0 + 301 * SECOND) == ""
