"""Kubernetes autoscaling decisions from data alone: the same results as upstream, faster, and explained.

==============  ================================================================================================
Read            ``load`` (files, data, a live cluster), ``read_groups``, ``apply_manifests``, ``from_columns``
Schedule        ``fit``, ``place``, ``node_scores``, ``fork``
Scale nodes     ``estimate``, ``estimate_many``, ``scale_up``, ``scale_down``, ``ca.run_once``
Plan            ``mix``, ``whatif``, ``sweep``, ``fit_manifests``, ``consolidate``, ``drain``, ``preempt``
Compare         ``node_usage``, ``diff``
Scale pods      ``hpa``, ``vpa``
Objects         ``Cluster``, ``Snapshot``, ``NodeGroup``, ``NodeTemplate``, ``Offer``, ``Quantity``
Options         ``EstimateOptions``, ``MixOptions``, ``PlaceState``, ``scheduler_profile``, ``score_options``
Errors          ``KscaleError``, ``InputError``
==============  ================================================================================================

Each result has ``repr``, ``to_dict``, ``to_json``, ``to_arrow`` and HTML for notebooks. More expensive modules are
imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kscale.errors import InputError, KscaleError

if TYPE_CHECKING:
    from kscale import ca, hpa, plugin, vpa
    from kscale.build import build_info
    from kscale.ca.entry_points.loops import scale_down, scale_up
    from kscale.ca.estimator import EstimateOptions, estimate, estimate_many
    from kscale.ca.scale_down.plan import ScaleDownPlan
    from kscale.ca.scale_up.plan import ScaleUpPlan
    from kscale.capacity.consolidation import ConsolidationOptions, ConsolidationPlan, DisruptionBudget, consolidate
    from kscale.capacity.diff import ClusterDiff, diff
    from kscale.capacity.drain import DrainReport, drain
    from kscale.capacity.fit import fit_manifests
    from kscale.capacity.groups import read_groups
    from kscale.capacity.mix import MixOptions, MixPlan, Offer, mix
    from kscale.capacity.node_usage import NodeUsageReport, node_usage
    from kscale.capacity.preemption import PreemptionReport, preempt
    from kscale.capacity.sweep import sweep
    from kscale.capacity.whatif import whatif
    from kscale.objects.nodegroup import NodeGroup, NodeTemplate
    from kscale.objects.quantity import Quantity
    from kscale.scheduling.configuration import scheduler_profile, score_options
    from kscale.scheduling.fit import fit
    from kscale.scheduling.fork import fork
    from kscale.scheduling.place import PlaceState, place
    from kscale.scheduling.profile import SchedulerProfile
    from kscale.scheduling.scores.choosing import node_scores
    from kscale.scheduling.scores.options import ScoreOptions
    from kscale.snapshot.cluster import Cluster
    from kscale.snapshot.manifests import AppliedManifests, apply_manifests
    from kscale.snapshot.snapshot import Snapshot
    from kscale.world.load import load

__version__ = "0.1.0"

# Public name -> the module that defines it. A name that equals its module's name is a module itself.
_LAZY: dict[str, str] = {
    "AppliedManifests": "kscale.snapshot.manifests",
    "apply_manifests": "kscale.snapshot.manifests",
    "fit_manifests": "kscale.capacity.fit",
    "build_info": "kscale.build",
    "Quantity": "kscale.objects.quantity",
    "mix": "kscale.capacity.mix",
    "MixOptions": "kscale.capacity.mix",
    "MixPlan": "kscale.capacity.mix",
    "Offer": "kscale.capacity.mix",
    "ca": "kscale.ca",
    "Cluster": "kscale.snapshot.cluster",
    "ConsolidationOptions": "kscale.capacity.consolidation",
    "ConsolidationPlan": "kscale.capacity.consolidation",
    "DisruptionBudget": "kscale.capacity.consolidation",
    "consolidate": "kscale.capacity.consolidation",
    "diff": "kscale.capacity.diff",
    "ClusterDiff": "kscale.capacity.diff",
    "drain": "kscale.capacity.drain",
    "DrainReport": "kscale.capacity.drain",
    "EstimateOptions": "kscale.ca.estimator",
    "NodeGroup": "kscale.objects.nodegroup",
    "NodeTemplate": "kscale.objects.nodegroup",
    "PlaceState": "kscale.scheduling.place",
    "SchedulerProfile": "kscale.scheduling.profile",
    "ScoreOptions": "kscale.scheduling.scores.options",
    "node_usage": "kscale.capacity.node_usage",
    "NodeUsageReport": "kscale.capacity.node_usage",
    "node_scores": "kscale.scheduling.scores.choosing",
    "score_options": "kscale.scheduling.configuration",
    "scheduler_profile": "kscale.scheduling.configuration",
    "Snapshot": "kscale.snapshot.snapshot",
    "estimate": "kscale.ca.estimator",
    "estimate_many": "kscale.ca.estimator",
    "fit": "kscale.scheduling.fit",
    "fork": "kscale.scheduling.fork",
    "from_columns": "kscale.snapshot.from_columns",
    "load": "kscale.world.load",
    "preempt": "kscale.capacity.preemption",
    "PreemptionReport": "kscale.capacity.preemption",
    "place": "kscale.scheduling.place",
    "read_groups": "kscale.capacity.groups",
    "scale_up": "kscale.ca.entry_points.loops",
    "ScaleUpPlan": "kscale.ca.scale_up.plan",
    "scale_down": "kscale.ca.entry_points.loops",
    "ScaleDownPlan": "kscale.ca.scale_down.plan",
    "plugin": "kscale.plugin",
    "hpa": "kscale.hpa",
    "sweep": "kscale.capacity.sweep",
    "vpa": "kscale.vpa",
    "whatif": "kscale.capacity.whatif",
}

__all__ = [
    "AppliedManifests",
    "Cluster",
    "ClusterDiff",
    "ConsolidationOptions",
    "ConsolidationPlan",
    "DisruptionBudget",
    "DrainReport",
    "EstimateOptions",
    "InputError",
    "KscaleError",
    "MixOptions",
    "MixPlan",
    "NodeGroup",
    "NodeTemplate",
    "NodeUsageReport",
    "Offer",
    "PlaceState",
    "PreemptionReport",
    "Quantity",
    "ScaleDownPlan",
    "ScaleUpPlan",
    "SchedulerProfile",
    "ScoreOptions",
    "Snapshot",
    "__version__",
    "apply_manifests",
    "build_info",
    "ca",
    "consolidate",
    "diff",
    "drain",
    "estimate",
    "estimate_many",
    "fit",
    "fit_manifests",
    "fork",
    "from_columns",
    "hpa",
    "load",
    "mix",
    "node_scores",
    "node_usage",
    "place",
    "plugin",
    "preempt",
    "read_groups",
    "scale_down",
    "scale_up",
    "scheduler_profile",
    "score_options",
    "sweep",
    "vpa",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    value = module if _LAZY[name] == f"kscale.{name}" and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
