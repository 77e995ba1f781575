"""Cluster Autoscaler decisions. Every name here is public; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.imports import import_on_use

if TYPE_CHECKING:
    from kscale.ca import quota, templates
    from kscale.ca.entry_points import run_once, run_once_steps, scale_up_steps
    from kscale.ca.errors import AutoscalerError, combine_errors
    from kscale.ca.expander.chain import EXPANDER_NAMES, Expansion, build_expander_chain, expand, expand_steps
    from kscale.ca.expander.price import HourlyPrices
    from kscale.ca.expander.types import ExpanderInput, Option, PodRun
    from kscale.ca.loop_context import LoopInputs
    from kscale.ca.loop_state import (
        AsyncInitializer,
        LoopState,
        ScaleDownState,
        ScaleUpState,
        clear_unneeded_nodes,
        register_group_change,
        reset_for_new_process,
    )
    from kscale.ca.node_group_set import (
        Comparator,
        DifferenceRatios,
        GroupSize,
        ScaleUpInfo,
        SimilarGroups,
        balance_scale_up_between_groups,
        compare_templates,
        find_similar_node_groups,
    )
    from kscale.ca.options import AutoscalingOptions, ResourceLimiter, ScaleDownOptions, ScaleUpOptions
    from kscale.ca.pod_lists import can_scale_down, filter_out_schedulable
    from kscale.ca.pod_lists import (
        has_provisioning_request_consumer as has_provisioning_request_consumer,
    )
    from kscale.ca.repair import repair_steps
    from kscale.ca.scale_down.actuation.actuator import Actuator, sync_deletions
    from kscale.ca.scale_down.candidates import (
        BudgetGroup,
        DeletionsInProgress,
        GroupNodes,
        NodeInGroup,
        crop_nodes,
        filter_registered_nodes,
    )
    from kscale.ca.scale_down.drainability import (
        DrainabilityChecker,
        DrainContext,
        Listers,
        check_drainability,
        get_default_rules,
        get_drain_status,
    )
    from kscale.ca.scale_down.inputs import ScaleDownInputs
    from kscale.ca.scale_down.pdb import RemainingPdbTracker
    from kscale.ca.scale_down.plan import ScaleDownPlan
    from kscale.ca.scale_down.removal import (
        RemovableNode,
        RemovalResult,
        RemovalSimulator,
        UnremovableCandidate,
        simulate_removals,
    )
    from kscale.ca.scale_up.executor import initialize_node_groups_steps
    from kscale.ca.scale_up.expansion import ScaleUpContext
    from kscale.ca.scale_up.orchestrator import (
        OrchestratorResult,
        orchestrate,
        orchestrate_steps,
        scale_up_to_min_size_steps,
    )
    from kscale.ca.scale_up_status import ScaleUpStatus, build_scale_up_events
    from kscale.ca.static_autoscaler.report import LoopReport
    from kscale.ca.static_autoscaler.scale_up_loop import scale_up_salvo_steps

_MODULES: dict[str, tuple[str, ...]] = {
    "node_group_set": (
        "Comparator",
        "DifferenceRatios",
        "GroupSize",
        "ScaleUpInfo",
        "SimilarGroups",
        "balance_scale_up_between_groups",
        "compare_templates",
        "find_similar_node_groups",
    ),
    "errors": ("AutoscalerError", "combine_errors"),
    "expander.chain": ("EXPANDER_NAMES", "Expansion", "build_expander_chain", "expand", "expand_steps"),
    "expander.price": ("HourlyPrices",),
    "expander.types": ("ExpanderInput", "Option", "PodRun"),
    "options": ("AutoscalingOptions", "ResourceLimiter", "ScaleDownOptions", "ScaleUpOptions"),
    "pod_lists": ("can_scale_down", "filter_out_schedulable", "has_provisioning_request_consumer"),
    "quota": (),
    "repair": ("repair_steps",),
    "static_autoscaler.report": ("LoopReport",),
    "loop_context": ("LoopInputs",),
    "entry_points": ("run_once", "run_once_steps", "scale_up_steps"),
    "scale_down.actuation.actuator": ("Actuator", "sync_deletions"),
    "scale_down.candidates": (
        "BudgetGroup",
        "DeletionsInProgress",
        "GroupNodes",
        "NodeInGroup",
        "crop_nodes",
        "filter_registered_nodes",
    ),
    "scale_down.drainability": (
        "DrainContext",
        "DrainabilityChecker",
        "Listers",
        "check_drainability",
        "get_default_rules",
        "get_drain_status",
    ),
    "scale_down.inputs": ("ScaleDownInputs",),
    "scale_down.pdb": ("RemainingPdbTracker",),
    "scale_down.plan": ("ScaleDownPlan",),
    "scale_down.removal": (
        "RemovableNode",
        "RemovalResult",
        "RemovalSimulator",
        "UnremovableCandidate",
        "simulate_removals",
    ),
    "templates": (),
    "loop_state": (
        "AsyncInitializer",
        "LoopState",
        "ScaleDownState",
        "ScaleUpState",
        "clear_unneeded_nodes",
        "register_group_change",
        "reset_for_new_process",
    ),
    "scale_up.expansion": ("ScaleUpContext",),
    "scale_up.executor": ("initialize_node_groups_steps",),
    "scale_up.orchestrator": (
        "OrchestratorResult",
        "orchestrate",
        "orchestrate_steps",
        "scale_up_to_min_size_steps",
    ),
    "static_autoscaler.scale_up_loop": ("scale_up_salvo_steps",),
    "scale_up_status": ("ScaleUpStatus", "build_scale_up_events"),
}

__all__ = [
    "EXPANDER_NAMES",
    "Actuator",
    "AsyncInitializer",
    "AutoscalerError",
    "AutoscalingOptions",
    "BudgetGroup",
    "Comparator",
    "DeletionsInProgress",
    "DifferenceRatios",
    "DrainContext",
    "DrainabilityChecker",
    "ExpanderInput",
    "Expansion",
    "GroupNodes",
    "GroupSize",
    "HourlyPrices",
    "Listers",
    "LoopInputs",
    "LoopReport",
    "LoopState",
    "NodeInGroup",
    "Option",
    "OrchestratorResult",
    "PodRun",
    "RemainingPdbTracker",
    "RemovableNode",
    "RemovalResult",
    "RemovalSimulator",
    "ResourceLimiter",
    "ScaleDownInputs",
    "ScaleDownOptions",
    "ScaleDownPlan",
    "ScaleDownState",
    "ScaleUpContext",
    "ScaleUpInfo",
    "ScaleUpOptions",
    "ScaleUpState",
    "ScaleUpStatus",
    "SimilarGroups",
    "UnremovableCandidate",
    "balance_scale_up_between_groups",
    "build_expander_chain",
    "build_scale_up_events",
    "can_scale_down",
    "check_drainability",
    "clear_unneeded_nodes",
    "combine_errors",
    "compare_templates",
    "crop_nodes",
    "expand",
    "expand_steps",
    "filter_out_schedulable",
    "filter_registered_nodes",
    "find_similar_node_groups",
    "get_default_rules",
    "get_drain_status",
    "has_provisioning_request_consumer",
    "initialize_node_groups_steps",
    "orchestrate",
    "orchestrate_steps",
    "quota",
    "register_group_change",
    "repair_steps",
    "reset_for_new_process",
    "run_once",
    "run_once_steps",
    "scale_up_salvo_steps",
    "scale_up_steps",
    "scale_up_to_min_size_steps",
    "simulate_removals",
    "sync_deletions",
    "templates",
]


import_on_use(__name__, _MODULES)
