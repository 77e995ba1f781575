"""Cluster Autoscaler decisions. Every name here is public; each is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.ca import quota as quota
    from kscale.ca import templates as templates
    from kscale.ca.entry_points.loops import run_once as run_once
    from kscale.ca.entry_points.loops import run_once_steps as run_once_steps
    from kscale.ca.entry_points.loops import scale_up_steps as scale_up_steps
    from kscale.ca.errors import AutoscalerError as AutoscalerError
    from kscale.ca.errors import combine_errors as combine_errors
    from kscale.ca.expander.chain import EXPANDER_NAMES as EXPANDER_NAMES
    from kscale.ca.expander.chain import Expansion as Expansion
    from kscale.ca.expander.chain import build_expander_chain as build_expander_chain
    from kscale.ca.expander.chain import expand as expand
    from kscale.ca.expander.chain import expand_steps as expand_steps
    from kscale.ca.expander.price import HourlyPrices as HourlyPrices
    from kscale.ca.expander.types import ExpanderInput as ExpanderInput
    from kscale.ca.expander.types import Option as Option
    from kscale.ca.expander.types import PodRun as PodRun
    from kscale.ca.loop_context import LoopInputs as LoopInputs
    from kscale.ca.node_group_set import Comparator as Comparator
    from kscale.ca.node_group_set import DifferenceRatios as DifferenceRatios
    from kscale.ca.node_group_set import GroupSize as GroupSize
    from kscale.ca.node_group_set import ScaleUpInfo as ScaleUpInfo
    from kscale.ca.node_group_set import SimilarGroups as SimilarGroups
    from kscale.ca.node_group_set import balance_scale_up_between_groups as balance_scale_up_between_groups
    from kscale.ca.node_group_set import compare_templates as compare_templates
    from kscale.ca.node_group_set import find_similar_node_groups as find_similar_node_groups
    from kscale.ca.options import AutoscalingOptions as AutoscalingOptions
    from kscale.ca.options import ResourceLimiter as ResourceLimiter
    from kscale.ca.options import ScaleDownOptions as ScaleDownOptions
    from kscale.ca.options import ScaleUpOptions as ScaleUpOptions
    from kscale.ca.pod_lists.processors import filter_out_schedulable as filter_out_schedulable
    from kscale.ca.pod_lists.should_scale_up import can_scale_down as can_scale_down
    from kscale.ca.pod_lists.should_scale_up import (
        has_provisioning_request_consumer as has_provisioning_request_consumer,
    )
    from kscale.ca.repair import repair_steps as repair_steps
    from kscale.ca.scale_down.actuation.actuator import Actuator as Actuator
    from kscale.ca.scale_down.actuation.actuator import sync_deletions as sync_deletions
    from kscale.ca.scale_down.budgets import BudgetGroup as BudgetGroup
    from kscale.ca.scale_down.budgets import DeletionsInProgress as DeletionsInProgress
    from kscale.ca.scale_down.budgets import GroupNodes as GroupNodes
    from kscale.ca.scale_down.budgets import NodeInGroup as NodeInGroup
    from kscale.ca.scale_down.budgets import crop_nodes as crop_nodes
    from kscale.ca.scale_down.candidates import filter_registered_nodes as filter_registered_nodes
    from kscale.ca.scale_down.drainability import DrainabilityChecker as DrainabilityChecker
    from kscale.ca.scale_down.drainability import DrainContext as DrainContext
    from kscale.ca.scale_down.drainability import Listers as Listers
    from kscale.ca.scale_down.drainability import check_drainability as check_drainability
    from kscale.ca.scale_down.drainability import get_default_rules as get_default_rules
    from kscale.ca.scale_down.drainability import get_drain_status as get_drain_status
    from kscale.ca.scale_down.inputs import ScaleDownInputs as ScaleDownInputs
    from kscale.ca.scale_down.pdb import RemainingPdbTracker as RemainingPdbTracker
    from kscale.ca.scale_down.plan import ScaleDownPlan as ScaleDownPlan
    from kscale.ca.scale_down.removal import RemovableNode as RemovableNode
    from kscale.ca.scale_down.removal import RemovalResult as RemovalResult
    from kscale.ca.scale_down.removal import RemovalSimulator as RemovalSimulator
    from kscale.ca.scale_down.removal import UnremovableCandidate as UnremovableCandidate
    from kscale.ca.scale_down.removal import simulate_removals as simulate_removals
    from kscale.ca.scale_up.executor import initialize_node_groups_steps as initialize_node_groups_steps
    from kscale.ca.scale_up.expansion import ScaleUpContext as ScaleUpContext
    from kscale.ca.scale_up.min_size import scale_up_to_min_size_steps as scale_up_to_min_size_steps
    from kscale.ca.scale_up.orchestrator import OrchestratorResult as OrchestratorResult
    from kscale.ca.scale_up.orchestrator import orchestrate as orchestrate
    from kscale.ca.scale_up.orchestrator import orchestrate_steps as orchestrate_steps
    from kscale.ca.scale_up_status import ScaleUpStatus as ScaleUpStatus
    from kscale.ca.scale_up_status import build_scale_up_events as build_scale_up_events
    from kscale.ca.state.loop_state import AsyncInitializer as AsyncInitializer
    from kscale.ca.state.loop_state import LoopState as LoopState
    from kscale.ca.state.loop_state import ScaleDownState as ScaleDownState
    from kscale.ca.state.loop_state import ScaleUpState as ScaleUpState
    from kscale.ca.state.loop_state import clear_unneeded_nodes as clear_unneeded_nodes
    from kscale.ca.state.loop_state import register_group_change as register_group_change
    from kscale.ca.state.loop_state import reset_for_new_process as reset_for_new_process
    from kscale.ca.static_autoscaler.report import LoopReport as LoopReport
    from kscale.ca.static_autoscaler.scale_up_loop import scale_up_salvo_steps as scale_up_salvo_steps

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
    "pod_lists.processors": ("filter_out_schedulable",),
    "options": ("AutoscalingOptions", "ResourceLimiter", "ScaleDownOptions", "ScaleUpOptions"),
    "pod_lists.should_scale_up": ("can_scale_down", "has_provisioning_request_consumer"),
    "quota": (),
    "repair": ("repair_steps",),
    "static_autoscaler.report": ("LoopReport",),
    "loop_context": ("LoopInputs",),
    "entry_points.loops": ("run_once", "run_once_steps", "scale_up_steps"),
    "scale_down.actuation.actuator": ("Actuator", "sync_deletions"),
    "scale_down.candidates": ("filter_registered_nodes",),
    "scale_down.budgets": ("BudgetGroup", "DeletionsInProgress", "GroupNodes", "NodeInGroup", "crop_nodes"),
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
    "state.loop_state": (
        "AsyncInitializer",
        "LoopState",
        "ScaleDownState",
        "ScaleUpState",
        "clear_unneeded_nodes",
        "register_group_change",
        "reset_for_new_process",
    ),
    "scale_up.expansion": ("ScaleUpContext",),
    "scale_up.orchestrator": ("OrchestratorResult", "orchestrate", "orchestrate_steps"),
    "scale_up.executor": ("initialize_node_groups_steps",),
    "scale_up.min_size": ("scale_up_to_min_size_steps",),
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
