"""The Filter plug-ins of the default profile of Kubernetes 1.37, one file each. This list is the only registry."""

from __future__ import annotations

from kscale.scheduling.plugins.base import Plugin, PreFilter, Status
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.inter_pod_affinity import InterPodAffinity
from kscale.scheduling.plugins.node_affinity import NodeAffinity
from kscale.scheduling.plugins.node_declared_features import NodeDeclaredFeatures
from kscale.scheduling.plugins.node_name import NodeName
from kscale.scheduling.plugins.node_ports import NodePorts
from kscale.scheduling.plugins.node_resources_fit import NodeResourcesFit
from kscale.scheduling.plugins.node_unschedulable import NodeUnschedulable
from kscale.scheduling.plugins.node_volume_limits import NodeVolumeLimits
from kscale.scheduling.plugins.pod_topology_spread import PodTopologySpread
from kscale.scheduling.plugins.taint_toleration import TaintToleration
from kscale.scheduling.plugins.volume_binding import VolumeBinding
from kscale.scheduling.plugins.volume_restrictions import VolumeRestrictions
from kscale.scheduling.plugins.volume_zone import VolumeZone

__all__ = ["BY_NAME", "BY_ORDINAL", "PROFILE", "Plugin", "PreFilter", "Status"]

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
"""In PreFilter and Filter order; a plug-in's ordinal is its place, from 1."""

BY_ORDINAL: dict[int, Plugin] = {plugin.ordinal: plugin for plugin in PROFILE}
BY_NAME: dict[str, Plugin] = {plugin.name: plugin for plugin in PROFILE}
