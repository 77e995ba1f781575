"""priority: the options whose group names the user ranks highest (``expander/priority``)."""

from __future__ import annotations

from collections.abc import Sequence

from kscale.ca.expander.priority_config import PriorityConfigError, parse_priorities
from kscale.ca.expander.types import ExpanderInput, Filtered, Option
from kscale.effects import Event
from kscale.objects.core import ObjectReference

__all__ = ["CONFIG_MAP_NAME", "priority"]

CONFIG_MAP_NAME = "cluster-autoscaler-priority-expander"
_KEY = "priorities"
_LOWEST = -1
"""Priorities below this can never win."""


def priority(options: Sequence[Option], given: ExpanderInput) -> Filtered:
    """Keeps the options of the highest priority that any pattern gives; ``scores`` are the negated priorities.

    Without a ConfigMap, with one that cannot be read, or when nothing matches, all options stay.
    """
    result = Filtered(survivors=list(options))
    if not options or given.priorities is None:
        return result
    where = ObjectReference(api_version="v1", kind="ConfigMap", namespace=given.namespace, name=CONFIG_MAP_NAME)

    def warn(reason: str, message: str) -> None:
        result.events.append(Event(regarding=where, type="Warning", reason=reason, message=message))

    text = given.priorities.get(_KEY)
    if text is None:
        warn(
            "PriorityConfigMapInvalid",
            "Wrong configmap for priority expander, doesn't contain priorities key. Ignoring update.",
        )
        return result
    try:
        priorities = parse_priorities(text)
    except PriorityConfigError as error:
        warn("PriorityConfigMapInvalid", f"Wrong configuration for priority expander: {error}. Ignoring update.")
        return result

    best = _LOWEST
    winners: list[Option] = []
    for option in options:
        matching = [rank for rank, patterns in priorities.items() if any(p.search(option.group) for p in patterns)]
        if not matching:
            result.skipped[option.group] = "not found in priority expander configuration"
            warn(
                "PriorityConfigMapNotMatchedGroup",
                f"Priority expander: node group {option.group} not found in priority expander configuration. "
                "The group won't be used.",
            )
            continue
        highest = max(matching)
        result.scores[option.group] = -float(highest)
        if highest > best:
            best, winners = highest, []
        if highest == best:
            winners.append(option)
    if winners:
        result.survivors = winners
    else:
        warn(
            "PriorityConfigMapNoGroupMatched",
            "Priority expander: no priorities info found for any of the expansion options. No options filtered.",
        )
    return result
