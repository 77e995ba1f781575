"""Cluster Autoscaler decisions. Every name here is public; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kscale.ca import quota as quota
    from kscale.ca import templates as templates
    from kscale.ca.balancing import GroupSize as GroupSize
    from kscale.ca.balancing import ScaleUpInfo as ScaleUpInfo
    from kscale.ca.balancing import balance as balance
    from kscale.ca.errors import AutoscalerError as AutoscalerError
    from kscale.ca.errors import combine as combine
    from kscale.ca.expander.chain import Expansion as Expansion
    from kscale.ca.expander.chain import expand as expand
    from kscale.ca.expander.chain import expand_steps as expand_steps
    from kscale.ca.expander.price import HourlyPrices as HourlyPrices
    from kscale.ca.expander.registry import EXPANDER_NAMES as EXPANDER_NAMES
    from kscale.ca.expander.registry import build_chain as build_chain
    from kscale.ca.expander.types import ExpanderInput as ExpanderInput
    from kscale.ca.expander.types import Option as Option
    from kscale.ca.expander.types import PodRun as PodRun
    from kscale.ca.filter_out_schedulable import filter_out_schedulable as filter_out_schedulable
    from kscale.ca.options import AutoscalingOptions as AutoscalingOptions
    from kscale.ca.options import ResourceLimiter as ResourceLimiter
    from kscale.ca.options import ScaleDownOptions as ScaleDownOptions
    from kscale.ca.options import ScaleUpOptions as ScaleUpOptions
    from kscale.ca.pod_lists.degradation import may_scale_down as may_scale_down
    from kscale.ca.pod_lists.enforcer import any_consumes_provisioning_request as any_consumes_provisioning_request
    from kscale.ca.repair import repair_steps as repair_steps
    from kscale.ca.scale_down.actuation.actuator import Actuator as Actuator
    from kscale.ca.scale_down.actuation.remember import caught_up as caught_up
    from kscale.ca.scale_down.atomic import registered_nodes as registered_nodes
    from kscale.ca.scale_down.budgets import BudgetGroup as BudgetGroup
    from kscale.ca.scale_down.budgets import DeletionsInProgress as DeletionsInProgress
    from kscale.ca.scale_down.budgets import GroupNodes as GroupNodes
    from kscale.ca.scale_down.budgets import NodeInGroup as NodeInGroup
    from kscale.ca.scale_down.budgets import crop as crop
    from kscale.ca.scale_down.drainability.context import DrainContext as DrainContext
    from kscale.ca.scale_down.drainability.context import Listers as Listers
    from kscale.ca.scale_down.drainability.engine import DrainJudge as DrainJudge
    from kscale.ca.scale_down.drainability.engine import default_rules as default_rules
    from kscale.ca.scale_down.drainability.engine import drain_status as drain_status
    from kscale.ca.scale_down.drainability.engine import drainability as drainability
    from kscale.ca.scale_down.inputs import ScaleDownInputs as ScaleDownInputs
    from kscale.ca.scale_down.pdb import RemainingPdbTracker as RemainingPdbTracker
    from kscale.ca.scale_down.plan import ScaleDownPlan as ScaleDownPlan
    from kscale.ca.scale_down.removal import RemovalSimulator as RemovalSimulator
    from kscale.ca.scale_down.removal import simulate_removals as simulate_removals
    from kscale.ca.scale_down.removal_answers import RemovableNode as RemovableNode
    from kscale.ca.scale_down.removal_answers import RemovalResult as RemovalResult
    from kscale.ca.scale_down.removal_answers import UnremovableCandidate as UnremovableCandidate
    from kscale.ca.scale_up.creation import AsyncInitializer as AsyncInitializer
    from kscale.ca.scale_up.ground import ScaleUpGround as ScaleUpGround
    from kscale.ca.scale_up.initializer import initialize_steps as initialize_steps
    from kscale.ca.scale_up.inputs import OrchestratorInputs as OrchestratorInputs
    from kscale.ca.scale_up.inputs import ScaleUpInputs as ScaleUpInputs
    from kscale.ca.scale_up.min_size import scale_up_to_min_size_steps as scale_up_to_min_size_steps
    from kscale.ca.scale_up.one_loop import scale_up_steps as scale_up_steps
    from kscale.ca.scale_up.orchestration import Orchestration as Orchestration
    from kscale.ca.scale_up.orchestrator import orchestrate as orchestrate
    from kscale.ca.scale_up.orchestrator import orchestrate_steps as orchestrate_steps
    from kscale.ca.scale_up.salvo import salvo_steps as salvo_steps
    from kscale.ca.scale_up.status import ScaleUpStatus as ScaleUpStatus
    from kscale.ca.scale_up.status import status_events as status_events
    from kscale.ca.similarity import Comparator as Comparator
    from kscale.ca.similarity import DifferenceRatios as DifferenceRatios
    from kscale.ca.similarity import SimilarGroups as SimilarGroups
    from kscale.ca.similarity import find_similar as find_similar
    from kscale.ca.similarity import similar as similar
    from kscale.ca.state import LoopState as LoopState
    from kscale.ca.state import ScaleDownState as ScaleDownState
    from kscale.ca.state import ScaleUpState as ScaleUpState
    from kscale.ca.state import cleared as cleared
    from kscale.ca.state import register_group_change as register_group_change
    from kscale.ca.state import restarted as restarted
    from kscale.ca.static_autoscaler.inputs import LoopInputs as LoopInputs
    from kscale.ca.static_autoscaler.report import LoopReport as LoopReport
    from kscale.ca.static_autoscaler.run_once import run_once as run_once
    from kscale.ca.static_autoscaler.run_once import run_once_steps as run_once_steps

_MODULES: dict[str, tuple[str, ...]] = {
    "balancing": ("GroupSize", "ScaleUpInfo", "balance"),
    "errors": ("AutoscalerError", "combine"),
    "expander.chain": ("Expansion", "expand", "expand_steps"),
    "expander.price": ("HourlyPrices",),
    "expander.registry": ("EXPANDER_NAMES", "build_chain"),
    "expander.types": ("ExpanderInput", "Option", "PodRun"),
    "filter_out_schedulable": ("filter_out_schedulable",),
    "options": (
        "AutoscalingOptions",
        "ResourceLimiter",
        "ScaleDownOptions",
        "ScaleUpOptions",
    ),
    "pod_lists.degradation": ("may_scale_down",),
    "pod_lists.enforcer": ("any_consumes_provisioning_request",),
    "quota": (),
    "repair": ("repair_steps",),
    "static_autoscaler.inputs": ("LoopInputs",),
    "static_autoscaler.run_once": ("run_once", "run_once_steps"),
    "static_autoscaler.report": ("LoopReport",),
    "scale_down.actuation.actuator": ("Actuator",),
    "scale_down.actuation.remember": ("caught_up",),
    "scale_down.atomic": ("registered_nodes",),
    "scale_down.budgets": ("BudgetGroup", "DeletionsInProgress", "GroupNodes", "NodeInGroup", "crop"),
    "scale_down.drainability.context": ("DrainContext", "Listers"),
    "scale_down.drainability.engine": ("DrainJudge", "default_rules", "drain_status", "drainability"),
    "scale_down.inputs": ("ScaleDownInputs",),
    "scale_down.pdb": ("RemainingPdbTracker",),
    "scale_down.plan": ("ScaleDownPlan",),
    "scale_down.removal": ("RemovalSimulator", "simulate_removals"),
    "scale_down.removal_answers": ("RemovableNode", "RemovalResult", "UnremovableCandidate"),
    "templates": (),
    "scale_up.creation": ("AsyncInitializer",),
    "scale_up.ground": ("ScaleUpGround",),
    "scale_up.inputs": ("OrchestratorInputs", "ScaleUpInputs"),
    "scale_up.orchestration": ("Orchestration",),
    "scale_up.orchestrator": ("orchestrate", "orchestrate_steps"),
    "scale_up.initializer": ("initialize_steps",),
    "scale_up.one_loop": ("scale_up_steps",),
    "scale_up.min_size": ("scale_up_to_min_size_steps",),
    "scale_up.salvo": ("salvo_steps",),
    "scale_up.status": ("ScaleUpStatus", "status_events"),
    "state": ("LoopState", "ScaleDownState", "ScaleUpState", "cleared", "register_group_change", "restarted"),
    "similarity": ("Comparator", "DifferenceRatios", "SimilarGroups", "find_similar", "similar"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

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
    "DrainJudge",
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
    "Orchestration",
    "OrchestratorInputs",
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
    "ScaleUpGround",
    "ScaleUpInfo",
    "ScaleUpInputs",
    "ScaleUpOptions",
    "ScaleUpState",
    "ScaleUpStatus",
    "SimilarGroups",
    "UnremovableCandidate",
    "any_consumes_provisioning_request",
    "balance",
    "build_chain",
    "caught_up",
    "cleared",
    "combine",
    "crop",
    "default_rules",
    "drain_status",
    "drainability",
    "expand",
    "expand_steps",
    "filter_out_schedulable",
    "find_similar",
    "initialize_steps",
    "may_scale_down",
    "orchestrate",
    "orchestrate_steps",
    "quota",
    "register_group_change",
    "registered_nodes",
    "repair_steps",
    "restarted",
    "run_once",
    "run_once_steps",
    "salvo_steps",
    "scale_up_steps",
    "scale_up_to_min_size_steps",
    "similar",
    "simulate_removals",
    "status_events",
    "templates",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"kscale.ca.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"kscale.ca.{name}")
    else:
        from kscale.deprecations import leaving_name

        return leaving_name(__name__, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
