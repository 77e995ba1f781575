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

from typing import TYPE_CHECKING

from kscale.errors import InputError, KscaleError
from kscale.imports import import_on_use
from kscale.version import __version__

if TYPE_CHECKING:
    from kscale import ca, hpa, plugin, vpa
    from kscale.ca.entry_points import scale_down
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
    from kscale.capacity.scale_up import scale_up
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
    from kscale.snapshot.from_columns import from_columns
    from kscale.snapshot.manifests import AppliedManifests, apply_manifests
    from kscale.snapshot.snapshot import Snapshot
    from kscale.version import build_info
    from kscale.world.load import load

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


import_on_use(
    __name__,
    {
        "version": ("build_info",),
        "ca": (),
        "ca.entry_points": ("scale_down",),
        "ca.estimator": ("EstimateOptions", "estimate", "estimate_many"),
        "ca.scale_down.plan": ("ScaleDownPlan",),
        "ca.scale_up.plan": ("ScaleUpPlan",),
        "capacity.consolidation": ("ConsolidationOptions", "ConsolidationPlan", "DisruptionBudget", "consolidate"),
        "capacity.diff": ("ClusterDiff", "diff"),
        "capacity.drain": ("DrainReport", "drain"),
        "capacity.fit": ("fit_manifests",),
        "capacity.groups": ("read_groups",),
        "capacity.mix": ("MixOptions", "MixPlan", "Offer", "mix"),
        "capacity.node_usage": ("NodeUsageReport", "node_usage"),
        "capacity.preemption": ("PreemptionReport", "preempt"),
        "capacity.scale_up": ("scale_up",),
        "capacity.sweep": ("sweep",),
        "capacity.whatif": ("whatif",),
        "hpa": (),
        "objects.nodegroup": ("NodeGroup", "NodeTemplate"),
        "objects.quantity": ("Quantity",),
        "plugin": (),
        "scheduling.configuration": ("scheduler_profile", "score_options"),
        "scheduling.fit": ("fit",),
        "scheduling.fork": ("fork",),
        "scheduling.place": ("PlaceState", "place"),
        "scheduling.profile": ("SchedulerProfile",),
        "scheduling.scores.choosing": ("node_scores",),
        "scheduling.scores.options": ("ScoreOptions",),
        "snapshot.cluster": ("Cluster",),
        "snapshot.from_columns": ("from_columns",),
        "snapshot.manifests": ("AppliedManifests", "apply_manifests"),
        "snapshot.snapshot": ("Snapshot",),
        "vpa": (),
        "world.load": ("load",),
    },
)
