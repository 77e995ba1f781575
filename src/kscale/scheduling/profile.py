"""How the scheduler framework is configured: the arguments of the default profile's plug-ins."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from kscale._native import _engine
from kscale.errors import InputError
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
    ``ignored_resources``, ``ignored_resource_groups``: NodeResourcesFit's arguments. ``device_binding_timeout``:
    DynamicResources' ``bindingTimeout``, how long devices may wait for their conditions. ``disabled_filters``: plug-ins
    switched off at the Filter extension point; their PreFilter still runs unless they are in ``disabled_prefilters``
    too. ``predicates``: compiled predicates of the user's (:func:`kscale.plugin.predicate`), asked after all others.

    :func:`kscale.scheduler_profile` makes one of a KubeSchedulerConfiguration. Raises InputError for plug-ins that do
    not exist, and for a PreFilter that is switched off where its Filter, which needs it, is not.
    """

    added_affinity: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    device_binding_timeout: timedelta = timedelta(seconds=600)
    disabled_filters: frozenset[str] = frozenset()
    disabled_prefilters: frozenset[str] = frozenset()
    predicates: tuple[Predicate, ...] = ()

    def __post_init__(self) -> None:
        for what in ("disabled_filters", "disabled_prefilters"):
            unknown = sorted(getattr(self, what) - _engine.ORDINALS.keys())
            if unknown:
                raise InputError(f"{what}: no plug-in {unknown[0]!r}; known: {', '.join(_engine.ORDINALS)}")
        alone = sorted(self.disabled_prefilters - self.disabled_filters)
        if alone:
            raise InputError(f"disabled_prefilters: the Filter of {alone[0]} needs its PreFilter: disable both")
