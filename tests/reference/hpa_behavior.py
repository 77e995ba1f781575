"""Stabilisation, rate limits and scale events, slow and obvious: one HPA, histories as lists."""

from __future__ import annotations

from reference.go import ceil, i32, to_int32

SECOND = 10**9
Recommendation = tuple[int, int]  # (replicas, time)
Event = list[int]  # [change, time, outdated]
Policy = tuple[str, int, int]  # (type, value, period in seconds)
Rules = tuple[str, int, list[Policy]]  # (select policy, window in seconds, policies)


def store(past: list[Recommendation], slot: int | None, proposal: int, now: int) -> None:
    if slot is None:
        past.append((proposal, now))
    else:
        past[slot] = (proposal, now)


def stabilize_plain(proposal: int, past: list[Recommendation], window: int, now: int) -> int:
    old = [i for i, (_, time) in enumerate(past) if time < now - window]
    best = max([proposal, *(value for value, time in past if time >= now - window)])
    store(past, old[-1] if old else None, proposal, now)
    return best


def limit_plain(current: int, desired: int, minimum: int, maximum: int) -> tuple[int, str]:
    rate = to_int32(max(2.0 * current, 4.0))
    if desired < minimum:
        return minimum, "TooFewReplicas"
    if desired > min(maximum, rate):
        return min(maximum, rate), "ScaleUpLimit" if maximum > rate else "TooManyReplicas"
    return desired, "DesiredWithinRange"


def stabilize(current: int, proposal: int, past: list[Recommendation], up: int, down: int, now: int) -> int:
    up_since, down_since = now - up * SECOND, now - down * SECOND
    low = min([proposal, *(value for value, time in past if time > up_since)])
    high = max([proposal, *(value for value, time in past if time > down_since)])
    old = [i for i, (_, time) in enumerate(past) if time < up_since and time < down_since]
    store(past, old[-1] if old else None, proposal, now)
    return min(max(current, low), high)


def reachable(up: bool, current: int, rules: Rules, added: list[Event], removed: list[Event], now: int) -> int:
    select, _, policies = rules
    if select == "Disabled":
        return current
    sizes = []
    for type_, value, period in policies:
        since = now - period * SECOND
        grown = sum(change for change, time, _ in added if time > since)
        shrunk = sum(change for change, time, _ in removed if time > since)
        start = i32(i32(current - i32(grown)) + i32(shrunk))
        if type_ == "Pods":
            sizes.append(i32(start + value if up else start - value))
        elif up:
            sizes.append(to_int32(ceil(float(start) * (1 + float(value) / 100))))
        else:
            sizes.append(to_int32(float(start) * (1 - float(value) / 100)))
    if not sizes:
        return -(2**31) if (select != "Min") == up else 2**31 - 1
    return max(sizes) if (select != "Min") == up else min(sizes)


def limit(
    current: int,
    desired: int,
    minimum: int,
    maximum: int,
    up: Rules,
    down: Rules,
    added: list[Event],
    removed: list[Event],
    now: int,
) -> tuple[int, str]:
    if desired > current:
        rate = max(reachable(True, current, up, added, removed, now), current)
        if desired > min(maximum, rate):
            return min(maximum, rate), "ScaleUpLimit" if maximum > rate else "TooManyReplicas"
    elif desired < current:
        rate = min(reachable(False, current, down, added, removed, now), current)
        if desired < max(minimum, rate):
            return max(minimum, rate), "ScaleDownLimit" if minimum < rate else "TooFewReplicas"
    return desired, "DesiredWithinRange"


def store_event(events: list[Event], policies: list[Policy], change: int, now: int) -> None:
    longest = max([0, *(period for _, _, period in policies)])
    for event in events:
        if event[1] < now - longest * SECOND:
            event[2] = 1
    old = [i for i, event in enumerate(events) if event[2]]
    if old:
        events[old[-1]] = [change, now, 0]
    else:
        events.append([change, now, 0])
