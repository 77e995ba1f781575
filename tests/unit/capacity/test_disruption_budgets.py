"""Karpenter's disruption budgets: amounts, and cron schedules in UTC."""

from __future__ import annotations

import pytest

from kscale.capacity.consolidation.budgets import DisruptionBudget, allowed_nodes
from kscale.objects.times import nanoseconds


def at(text: str) -> int:
    return nanoseconds(f"{text}:00Z")


@pytest.mark.parametrize(
    ("nodes", "total", "allowed"), [("10%", 101, 11), ("10%", 1, 1), ("0%", 5, 0), ("3", 5, 3), ("100%", 7, 7)]
)
def test_percentages_are_rounded_up(nodes: str, total: int, allowed: int) -> None:
    assert allowed_nodes([DisruptionBudget(nodes=nodes)], 0, total, "Empty") == allowed


def test_the_least_budget_of_a_reason_counts() -> None:
    budgets = [DisruptionBudget(nodes="5"), DisruptionBudget(nodes="2", reasons=["Empty"])]
    assert allowed_nodes(budgets, 0, 100, "Empty") == 2
    assert allowed_nodes(budgets, 0, 100, "Underutilized") == 5
    assert allowed_nodes([], 0, 100, "Empty") is None


@pytest.mark.parametrize(
    ("schedule", "duration", "time", "active"),
    [
        ("0 9 * * mon-fri", "8h", "2026-07-01T09:00", True),
        ("0 9 * * mon-fri", "8h", "2026-07-01T08:59", False),
        ("0 9 * * mon-fri", "8h", "2026-07-01T16:59", True),
        ("0 9 * * mon-fri", "8h", "2026-07-01T17:00", False),  # the end does not count, as in Karpenter
        ("0 9 * * 1-5", "8h", "2026-07-05T10:00", False),  # a Sunday
        ("0 9 * * SUN", "8h", "2026-07-05T10:00", True),
        ("0 22 * * sat", "6h", "2026-07-05T03:00", True),  # over midnight
        ("@daily", "10m", "2026-07-05T00:09", True),
        ("@hourly", "10m", "2026-07-05T05:10", False),
        ("*/15 * * * *", "5m", "2026-07-05T05:34", True),
        ("5/30 * * * *", "1m", "2026-07-05T05:35", True),
        ("0 0 29 feb *", "24h", "2028-02-29T23:00", True),
        ("0 0 29 2 *", "24h", "2027-03-01T00:00", False),
        ("0 0 1 * mon", "24h", "2026-07-06T12:00", True),  # either day field is enough
        ("0 0 1 * mon", "24h", "2026-07-01T12:00", True),
        ("0 0 1 * *", "24h", "2026-07-06T12:00", False),
        ("0 0 */2 * mon", "24h", "2026-07-08T12:00", False),  # an even day, and a Wednesday
        ("0 0 30 2 *", "24h", "2026-07-06T12:00", False),  # never
        ("0 0,12 * * *", "1h", "2026-07-06T12:30", True),
    ],
)
def test_a_budget_holds_for_its_duration_after_each_time(schedule: str, duration: str, time: str, active: bool) -> None:
    budget = DisruptionBudget(nodes="0", schedule=schedule, duration=duration)
    assert budget.problems("b") == []
    assert budget.is_active(at(time)) == active


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (DisruptionBudget(nodes="101%"), "neither a number of nodes nor a percentage"),
        (DisruptionBudget(nodes="9" * 5_000), "neither a number of nodes nor a percentage"),
        (DisruptionBudget(nodes="-1"), "neither a number of nodes nor a percentage"),
        (DisruptionBudget(schedule="@daily"), "need each other"),
        (DisruptionBudget(duration="1h"), "need each other"),
        (DisruptionBudget(schedule="* * * *", duration="1h"), "is not a cron schedule"),
        (DisruptionBudget(schedule="60 * * * *", duration="1h"), 'minute "60" is not from 0 to 59'),
        (DisruptionBudget(schedule="* * * * 7", duration="1h"), 'day of week "7" is not from 0 to 6'),
        (DisruptionBudget(schedule="*/0 * * * *", duration="1h"), "is not a cron schedule"),
        (DisruptionBudget(schedule="9-5 * * * *", duration="1h"), "is not a cron schedule"),
        (DisruptionBudget(schedule="@every 1h", duration="1h"), "is not a cron schedule"),
        (DisruptionBudget(schedule="@daily", duration="soon"), "soon"),
        (DisruptionBudget(reasons=["Bored"]), '"Bored" is not one of Empty, Underutilized, Drifted'),
    ],
)
def test_bad_budgets_are_explained(budget: DisruptionBudget, text: str) -> None:
    (problem,) = budget.problems("budgets[0]")
    assert text in problem.message
