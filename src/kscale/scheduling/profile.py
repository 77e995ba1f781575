"""How the scheduler framework is configured: the arguments of the default profile's plug-ins."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kscale.objects.core import NodeSelector, TopologySpreadConstraint

__all__ = ["Predicate", "SchedulerProfile"]


class Predicate(Protocol):
    """A compiled predicate (:class:`kscale.plugin.PredicatePlugin`)."""

    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def resources(self) -> tuple[str, ...]: ...
    @property
    def address(self) -> int: ...


class SchedulerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The default profile of Kubernetes 1.37 with its plug-ins' arguments.

    ``added_affinity``: NodeAffinity's ``addedAffinity`` (its required part). ``default_constraints``: those
    of PodTopologySpread with ``defaultingType: List``; None = the stock setting, which never filters.
    ``ignored_resources``, ``ignored_resource_groups``: NodeResourcesFit's arguments. ``disabled_filters``: plug-ins
    switched off at the Filter extension point; their PreFilter still runs. ``predicates``: compiled predicates of the
    user's (:func:`kscale.plugin.predicate`), asked after all others.
    """

    added_affinity: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    disabled_filters: frozenset[str] = frozenset()
    predicates: tuple[Predicate, ...] = ()
