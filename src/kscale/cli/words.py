"""Counts and reasons in words, the same in every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kscale.capacity.records import Rejection

__all__ = ["counted", "plural", "pods", "rejected", "rejections"]


def counted(counts: Mapping[str, int]) -> str:
    """``48 nodes, 2,310 pods, 1 deployment``: the counts per kind as a sentence's part."""
    return ", ".join(f"{count:,} {plural(kind, count)}" for kind, count in counts.items()) or "nothing"


def plural(word: str, count: int) -> str:
    """``word`` as English wants it beside ``count``."""
    if count == 1 or word.endswith("Metrics"):  # the kinds NodeMetrics and PodMetrics
        return word
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"


def pods(count: int) -> str:
    """``1 pod``, ``2,310 pods``."""
    return f"{count:,} {plural('pod', count)}"


def rejections(found: Sequence[Rejection], between: str = ", ") -> str:
    """The three largest, and how many are left. ``between`` stands between the reasons of one rejection."""
    shown = [rejected(rejection, between) for rejection in found[:3]]
    if len(found) > 3:
        shown.append(f"{pods(sum(rejection.pods for rejection in found[3:]))} for other reasons")
    return "; ".join(shown)


def rejected(rejection: Rejection, between: str = ", ") -> str:
    """``12 pods: node(s) had untolerated taint(s)``."""
    return f"{pods(rejection.pods)}: {between.join(rejection.reasons) or rejection.plugin}"
