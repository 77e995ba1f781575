"""What a scale-up begins with, beside the simulated cluster and the pods that need nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.options import AutoscalingOptions
from kscale.ca.scale_up.inputs import OrchestratorInputs
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups

__all__ = ["ScaleUpGround"]


@dataclass(frozen=True, kw_only=True)
class ScaleUpGround:
    """``nodes``: all that count for limits, upcoming ones included; ``templates``: what a new node of a group is;
    ``cursor``: where the search for a node goes on."""

    groups: Groups
    nodes: Sequence[Node]
    templates: Mapping[str, NodeTemplate]
    state: ClusterStateRegistry
    options: AutoscalingOptions = field(default_factory=AutoscalingOptions)
    inputs: OrchestratorInputs = field(default_factory=OrchestratorInputs)
    cursor: int = 0
