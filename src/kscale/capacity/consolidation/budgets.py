"""Disruption rules of Karpenter's NodePools: which nodes a step of a path may remove, and how many at a moment.

Upstream: Karpenter's ``pkg/apis/v1/nodepool.go`` (``Budget``; schedules are those of ``robfig/cron``, in UTC),
``pkg/controllers/disruption/helpers.go`` (``BuildDisruptionBudgetMapping``), ``consolidation.go`` and ``emptiness.go``
(``ShouldDisrupt``), and ``pkg/controllers/nodeclaim/disruption/consolidation.go``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from kscale.effects import SECOND, Moment, duration, moment, to_datetime
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.core import Node
from kscale.objects.conditions import is_true
from kscale.objects.go_numbers import parse_int64
from kscale.objects.times import parse_duration
from kscale.objects.validation import share_of

__all__ = ["EMPTY", "REASONS", "UNDERUTILIZED", "DisruptionBudget", "PoolDisruption", "PoolRules", "allowed_nodes"]


EMPTY: Final = "Empty"
UNDERUTILIZED: Final = "Underutilized"
REASONS: Final = (EMPTY, UNDERUTILIZED, "Drifted")

_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_LONGEST: Final = 366 * 8
"""Days to search for the last time of a schedule: 29 February may be eight years away."""
_AMOUNT: Final = lazy_pattern(r"\d+%?", re.ASCII)
_MOST_DIGITS: Final = 20


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """At most ``nodes`` (a number, or a percentage, rounded up) may be disrupted at a time.

    ``schedule`` (a cron schedule in UTC) and ``duration`` (of Go) say when the budget holds: for this duration from
    each time of the schedule. Without both it always holds. ``reasons``: the kinds of disruption that it limits,
    ``Empty`` and ``Underutilized`` (null: all).
    """

    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: list[str] | None = None

    def problems(self, field: str) -> list[Problem]:
        """Return the mistakes in the budget; empty if it is valid. ``field`` names the budget in problems."""
        problems = []
        most = 100 if "%" in self.nodes else 2**31 - 1
        if not _AMOUNT.fullmatch(self.nodes) or len(self.nodes) > _MOST_DIGITS or int(self.nodes.rstrip("%")) > most:
            problems.append(Problem(f'"{self.nodes}" is neither a number of nodes nor a percentage', field=field))
        if (self.schedule is None) != (self.duration is None):
            problems.append(Problem("schedule and duration need each other", field=field))
        try:
            if self.schedule is not None:
                _parse_schedule(self.schedule)
            if self.duration is not None and parse_duration(self.duration) < 0:
                problems.append(Problem(f"duration {self.duration} is negative", field=field))
        except ValueError as error:
            problems.append(Problem(str(error), field=field))
        problems += [
            Problem(f'"{reason}" is not one of {", ".join(REASONS)}', field=field)
            for reason in self.reasons or ()
            if reason not in REASONS
        ]
        return problems

    def is_active(self, now: Moment) -> bool:
        """Return whether the budget limits disruptions at a moment.

        A budget with a schedule does so for its ``duration`` after each time of the schedule; any other budget always.
        """
        at = moment(now)
        if self.schedule is None or self.duration is None:
            return True
        last = _find_last_time(_parse_schedule(self.schedule), at)
        return last is not None and at - last < parse_duration(self.duration)


def allowed_nodes(budgets: Iterable[DisruptionBudget], now: Moment, total: int, reason: str) -> int | None:
    """Return how many of ``total`` nodes may be disrupted at a moment for a reason.

    The result is the smallest limit of the active budgets for this reason, where percentages of ``total`` are rounded
    up. None if no active budget limits disruptions for the reason.
    """
    limits = [
        share_of(budget.nodes if "%" in budget.nodes else int(budget.nodes), total, up=True)
        for budget in budgets
        if (budget.reasons is None or reason in budget.reasons) and budget.is_active(now)
    ]
    return min(limits, default=None)


class _Schedule(NamedTuple):
    """Values of each field of a cron schedule; ``any_day``, ``any_weekday``: whether the field is a star."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def matches(self, day: date) -> bool:
        """Return whether the schedule has times on a day. Two restricted day fields are alternatives, as in cron."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month and of_week if self.any_day or self.any_weekday else of_month or of_week


@lru_cache(maxsize=256)
def _parse_schedule(text: str) -> _Schedule:
    """Parse a cron schedule of five fields, or a descriptor such as ``@daily``. Raises ValueError for another text."""
    fields = _DESCRIPTORS.get(text.strip(), text).split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f'"{text}" is not a cron schedule: minute, hour, day of month, month and day of week')
    values, stars = [], []
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        allowed: set[int] = set()
        star = False
        for part in field.split(","):
            numbers, is_star = _parse_part(part, low, high, names)
            if not numbers:
                raise ValueError(f'"{text}" is not a cron schedule: {name} "{part}" is not from {low} to {high}')
            allowed.update(numbers)
            star |= is_star
        values.append(allowed)
        stars.append(star)
    return _Schedule(
        tuple(sorted(values[0], reverse=True)),
        tuple(sorted(values[1], reverse=True)),
        frozenset(values[2]),
        frozenset(values[3]),
        frozenset(values[4]),
        stars[2],
        stars[4],
    )


def _parse_part(part: str, low: int, high: int, names: Sequence[str]) -> tuple[Sequence[int], bool]:
    """Return (values of one part of a cron field, whether the part is a star). The values are empty if it is malformed.

    ``low``, ``high``: allowed values. ``names``: names of the values, from ``low`` on.
    """
    span, slash, step_text = part.partition("/")
    step = parse_int64(step_text) or 0
    if slash and step < 1:
        return (), False
    if span in ("*", "?"):
        return range(low, high + 1, step or 1), step <= 1
    first, dash, last = span.partition("-")
    begin = _parse_value(first, low, names)
    end = _parse_value(last, low, names) if dash else high if slash else begin
    if begin is None or end is None or not low <= begin <= end <= high:
        return (), False
    return range(begin, end + 1, step or 1), False


def _parse_value(text: str, low: int, names: Sequence[str]) -> int | None:
    """Return the value of a number, or of one of ``names`` (the first is ``low``); None for any other text.

    The range is not checked.
    """
    if text.lower() in names:
        return names.index(text.lower()) + low
    return parse_int64(text)


def _find_last_time(schedule: _Schedule, now: Moment) -> Moment | None:
    """Return the last time of a schedule up to a moment; None if there is none in the last :data:`_LONGEST` days."""
    at = to_datetime(now - now % SECOND)
    for back in range(_LONGEST):
        day = at.date() - timedelta(days=back)
        if not schedule.matches(day):
            continue
        for hour in schedule.hours:
            for minute in schedule.minutes:
                time = datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
                if time <= at:
                    return int(time.timestamp()) * SECOND
    return None


def check_budgets(budgets: Sequence[DisruptionBudget]) -> None:
    """Raise InputError if budgets have mistakes; it names all of them."""
    problems = [problem for i, budget in enumerate(budgets) for problem in budget.problems(f"budgets[{i}]")]
    if problems:
        raise InputError(problems)


POOL_LABEL = "karpenter.sh/nodepool"
_REGISTERED, _INITIALIZED = "karpenter.sh/registered", "karpenter.sh/initialized"


class PoolDisruption(msgspec.Struct, frozen=True, kw_only=True):
    """Disruption rules of the NodePool ``name``.

    ``budgets``: how many of its nodes a step may remove, by time and reason; the smallest that holds counts.
    ``only_empty``: the policy ``WhenEmpty``, by which only empty nodes are removed. ``consolidate_after``: time without
    a new or removed pod after which a node may be removed (None: never).
    """

    name: str
    budgets: list[DisruptionBudget]
    only_empty: bool = False
    consolidate_after: timedelta | None = timedelta(0)

    def problems(self, field: str) -> list[Problem]:
        """Return the mistakes in the rules; empty if they are valid. ``field`` names the pool in problems."""
        result = [each for i, item in enumerate(self.budgets) for each in item.problems(f"{field}.budgets[{i}]")]
        if self.consolidate_after is not None and self.consolidate_after < timedelta(0):
            result.append(Problem(f"{self.consolidate_after} is negative", field=f"{field}.consolidate_after"))
        return result


class PoolRules:
    """The rules of all pools, and the nodes of the path that belong to them.

    ``pool_of``: the pool of each node, by its number in the path; empty for a node of no pool with rules.
    """

    def __init__(self, pools: Iterable[PoolDisruption], nodes: Sequence[Node], last_events: Sequence[Moment]) -> None:
        """Collect the rules by pool, and the pool and state of each node.

        ``last_events``: when a pod was last placed on each node, or the node was created.
        """
        self._pools = {pool.name: pool for pool in pools}
        self.pool_of = [self.get_pool(node.metadata.labels or {}) for node in nodes]
        self._last_events = list(last_events)
        self._counts = [_is_initialized(node) for node in nodes]
        self._disrupted = [
            not is_true(node.status.conditions or (), "Ready") or node.metadata.deletion_timestamp is not None
            for node in nodes
        ]

    def get_pool(self, labels: Mapping[str, str]) -> str:
        """Return the name of the pool with rules that a node with these labels belongs to, or an empty string."""
        name = labels.get(POOL_LABEL, "")
        return name if name in self._pools else ""

    def add_node(self, pool: str, now: Moment) -> None:
        """Add a new, initialized and ready node of a pool (empty: of none). ``now`` counts as its last pod event."""
        self.pool_of.append(pool)
        self._last_events.append(now)
        self._counts.append(True)
        self._disrupted.append(False)

    def record_pod_event(self, node: int, now: Moment) -> None:
        """Record that a pod was placed on the node number ``node`` at ``now``."""
        self._last_events[node] = now

    def allowed(self, now: Moment, alive: Sequence[bool], reason: str) -> dict[str, int]:
        """Return how many nodes of each pool a step may remove for a reason at ``now``.

        The number is the limit of the pool's budgets minus the nodes that are not ready or are being deleted. Without a
        limit, all nodes may be removed but these. Nodes that are not initialized are ignored. The number is 0 for a
        pool whose policy excludes the reason or that never consolidates. ``alive``: whether each node still exists.
        """
        totals: Counter[str] = Counter()
        disrupted: Counter[str] = Counter()
        for node, pool in enumerate(self.pool_of):
            if pool and alive[node] and self._counts[node]:
                totals[pool] += 1
                disrupted[pool] += self._disrupted[node]
        result = {}
        for name, rules in self._pools.items():
            limit = allowed_nodes(rules.budgets, now, totals[name], reason)
            limit = totals[name] if limit is None else limit
            is_off = rules.consolidate_after is None or (rules.only_empty and reason != EMPTY)
            result[name] = 0 if is_off else max(0, limit - disrupted[name])
        return result

    def list_waiting(self, now: Moment, alive: Sequence[bool]) -> frozenset[int]:
        """Return the numbers of the nodes whose last pod event is less than ``consolidateAfter`` ago.

        ``alive``: whether each node still exists; nodes that do not are left out. So are nodes of a pool that never
        allows consolidation.
        """
        return frozenset(
            node
            for node, pool in enumerate(self.pool_of)
            if pool
            and alive[node]
            and (after := self._pools[pool].consolidate_after)
            and now - self._last_events[node] < duration(after)
        )

    def may_be_allowed_later(self, reason: str, allowed: Mapping[str, int], alive: Sequence[bool]) -> bool:
        """Check whether any pool with nodes allows no disruption for a reason now but may allow some at another time.

        ``allowed``: how many nodes of each pool may be disrupted now. ``alive``: whether each node still exists.
        """
        with_nodes = {pool for pool, exists in zip(self.pool_of, alive, strict=True) if exists}
        return any(
            not allowed[name] and pool.consolidate_after is not None and (reason == EMPTY or not pool.only_empty)
            for name, pool in self._pools.items()
            if name in with_nodes
        )


def _is_initialized(node: Node) -> bool:
    """Check whether a node is initialized by Karpenter's label, or was never registered by Karpenter."""
    labels = node.metadata.labels or {}
    return labels.get(_INITIALIZED) == "true" or _REGISTERED not in labels
