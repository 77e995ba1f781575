"""What an outside ranker is asked (upstream: ``expander/grpcplugin``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kscale.objects.core import Node, Pod

__all__ = ["RankOption", "RankOptions", "Ranking", "SamePods"]


class SamePods(Protocol):
    """``count`` pods alike in everything that a ranker reads, one after the other; ``pod`` is one of them, and ``data``
    its API data, whole."""

    @property
    def pod(self) -> Pod: ...

    @property
    def count(self) -> int: ...

    @property
    def data(self) -> dict[str, Any]: ...


class RankOption(msgspec.Struct, frozen=True, kw_only=True):
    """One way to scale up: ``node_count`` new nodes of ``group`` would take ``pods``. ``debug``: a text for logs."""

    group: str
    node_count: int
    debug: str
    pods: Sequence[SamePods]


class RankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Ask which options are best. ``nodes``: the template of each group.

    ``bare``: keys of pods whose environment is not to be sent (upstream has emptied it by then).
    """

    options: Sequence[RankOption]
    nodes: Mapping[str, Node]
    bare: frozenset[str] = frozenset()


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: group ids in the ranker's order (None stands for a nil entry). ``warnings``: what was not
    sent, or not ranked."""

    groups: tuple[str | None, ...] = ()
    warnings: tuple[str, ...] = ()
