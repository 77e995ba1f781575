"""Counts and reasons in words, the same in every answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kscale.capacity.records import Rejection

__all__ = [
    "counted",
    "expendable_room",
    "object_name",
    "on_nodes",
    "plural",
    "pods",
    "program",
    "rejected",
    "rejections",
]


def counted(counts: Mapping[str, int]) -> str:
    """``48 nodes, 2,310 pods, 1 deployment``: the counts per kind as a sentence's part."""
    return ", ".join(f"{count:,} {plural(kind, count)}" for kind, count in counts.items()) or "nothing"


def object_name(kind: str, namespace: str | None, name: str) -> str:
    """What ``-o name`` prints of an object: ``deployment/shop/web``, ``node/n1``."""
    return "/".join(part for part in (kind.lower(), namespace, name) if part)


def on_nodes(replicas: Mapping[str, int], most: int = 3) -> str:
    """``node-2 (4), node-8 (3) and 5 more``: where replicas land, the fullest first."""
    order = sorted(replicas.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} ({count:,})" for name, count in order[:most])
    more = len(order) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def program() -> str:
    """How this program was called: ``kscale``, or ``kubectl kscale`` as a plug-in of kubectl."""
    return "kubectl kscale" if PurePath(sys.argv[0]).stem.startswith("kubectl") else "kscale"


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


def expendable_room(running: int, cutoff: int) -> str:
    """Return the sentence about running pods that the Cluster Autoscaler takes for evicted."""
    verb = "is" if running == 1 else "are"
    what = f"{running:,} running {plural('pod', running)} of a priority below {cutoff}"
    return f"{what} {verb} expendable: their room counts as free."
