"""The Filter plug-ins of the default profile of Kubernetes 1.37. This list is the only registry."""

from __future__ import annotations

from collections.abc import Iterable

from kscale._native import _engine
from kscale.scheduling.plugins.base import Plugin
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.inter_pod_affinity import InterPodAffinity
from kscale.scheduling.plugins.node_fields import (
    NodeAffinity,
    NodeDeclaredFeatures,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from kscale.scheduling.plugins.node_ports import NodePorts
from kscale.scheduling.plugins.node_resources_fit import NodeResourcesFit
from kscale.scheduling.plugins.node_volume_limits import NodeVolumeLimits
from kscale.scheduling.plugins.pod_topology_spread import PodTopologySpread
from kscale.scheduling.plugins.volume_binding import VolumeBinding, VolumeZone
from kscale.scheduling.plugins.volume_restrictions import VolumeRestrictions

__all__ = ["PROFILE", "implementing"]


PROFILE: tuple[Plugin, ...] = (
    NodeName(),
    NodeUnschedulable(),
    TaintToleration(),
    NodeAffinity(),
    NodePorts(),
    NodeResourcesFit(),
    VolumeRestrictions(),
    NodeVolumeLimits(),
    VolumeBinding(),
    VolumeZone(),
    PodTopologySpread(),
    InterPodAffinity(),
    DynamicResources(),
    NodeDeclaredFeatures(),
)
"""All plug-ins in PreFilter and Filter order, as in the engine (``engine/plugins.hpp``)."""

assert [plugin.name for plugin in PROFILE] == list(_engine.ORDINALS), "the engine knows other plug-ins"


def implementing(method: str, plugins: Iterable[Plugin] = PROFILE) -> tuple[Plugin, ...]:
    """Return the plug-ins whose class overrides a method of :class:`Plugin`, in order."""
    return tuple(plugin for plugin in plugins if getattr(type(plugin), method) is not getattr(Plugin, method))
