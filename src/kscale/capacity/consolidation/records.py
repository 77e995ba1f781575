"""Options and result records of ``kscale consolidate``. Not in upstream."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import ClassVar

import msgspec

from kscale.capacity.consolidation.budgets import DisruptionBudget, PoolDisruption, check_budgets
from kscale.capacity.records import Part
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import check_fields
from kscale.records import Record

__all__ = [
    "ConsolidationOptions",
    "ConsolidationPlan",
    "ConsolidationStep",
    "Eviction",
    "HeldNode",
    "NewNode",
    "Outlook",
]


class ConsolidationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a path, and where it stops.

    Attributes
    ----------
    budgets : list of DisruptionBudget, optional
        How many nodes a step may remove, by time. Default: 10 %, as Karpenter's. With ``node_pools`` the default is
        no limit beside the budgets of these.
    node_pools : list of PoolDisruption
        Disruption rules of NodePools, for the nodes with the label ``karpenter.sh/nodepool``.
    max_evictions : int, optional
        Maximum number of pods that a step evicts.
    max_waves : int
        Maximum number of waves of evictions that a node may need because of PodDisruptionBudgets.
    max_steps : int
        Maximum number of steps.
    step_time : timedelta
        Time from the start of a step to the start of the next one.
    min_saving : float
        A step that saves less per hour ends the path.
    eviction_cost : float
        Cost of one eviction, in the unit of the prices. A node is removed only if it saves more within ``payback``
        than its evictions cost.
    payback : timedelta
        Time in which a removed node must repay its evictions.
    replace : bool
        Whether nodes may be replaced by new, cheaper ones. If False, nodes are only removed.
    bound_effort : int
        Work for the lower bound, in units of about a microsecond; 0 leaves the bound out.
    """

    budgets: list[DisruptionBudget] | None = None
    node_pools: list[PoolDisruption] = msgspec.field(default_factory=list)
    max_evictions: int | None = None
    max_waves: int = 10
    max_steps: int = 200
    step_time: timedelta = timedelta(minutes=10)
    min_saving: float = 0.0
    eviction_cost: float = 0.0
    payback: timedelta = timedelta(hours=24)
    replace: bool = True
    bound_effort: int = 1_500_000

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise InputError for invalid values; the message names the option."""
        check_budgets(self.budgets or ())
        problems = [each for i, pool in enumerate(self.node_pools) for each in pool.problems(f"node_pools[{i}]")]
        for name, least in (("max_evictions", 0), ("max_waves", 1), ("max_steps", 0), ("bound_effort", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                problems.append(Problem(f"{value} is less than {least}", field=name))
        for name in ("min_saving", "eviction_cost"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                problems.append(Problem(f"{value} is not an amount of money", field=name))
        for name in ("step_time", "payback"):
            value = getattr(self, name)
            if not timedelta(0) < value <= timedelta(days=365):
                problems.append(Problem(f"{value} is not a time above zero, of a year at most", field=name))
        if problems:
            raise InputError(problems)


class NewNode(Part, frozen=True):
    """A node to create.

    Attributes
    ----------
    name : str
        Name of the node in the plan; the cloud will choose another one.
    group : str
        Id of its node group.
    type : str
        Its instance type.
    price : float
        Its price per hour.
    """

    name: str
    group: str
    type: str
    price: float


class Eviction(Part, frozen=True, rename={"from_node": "from"}):
    """A pod that is evicted.

    A pod that was evicted in an earlier step has a new name in the cluster; the plan keeps its first name.

    Attributes
    ----------
    pod : str
        The pod as ``namespace/name``.
    from_node : str
        Node that the pod leaves.
    to : str
        Node that kube-scheduler would choose for it.
    wave : int
        Number of the wave in which the pod is evicted.
    """

    pod: str
    from_node: str
    to: str
    wave: int


class ConsolidationStep(Part, frozen=True):
    """A step of the path: create the nodes in ``add``, cordon the nodes in ``remove``, evict their pods, delete them.

    Attributes
    ----------
    number : int
        Number of the step, from 1.
    kind : str
        ``empty`` (nodes without pods to move), ``remove`` (their pods fit on other nodes) or ``replace`` (new, cheaper
        nodes take pods, too).
    at : str
        Earliest start of the step (RFC 3339).
    add : list of NewNode
        Nodes to create.
    evict : list of Eviction
        Pods to evict. The disruption budgets allow every wave at once. The next wave begins when the evicted pods are
        ready elsewhere.
    remove : list of str
        Names of the nodes to remove.
    waves : int
        Number of waves of evictions.
    saves : float
        Decrease of the cost per hour.
    nodes : int
        Number of nodes after the step.
    cost : float
        Cost per hour after the step.
    peak : float
        Cost per hour while old and new nodes exist.
    """

    number: int
    kind: str
    at: str
    add: list[NewNode]
    evict: list[Eviction]
    remove: list[str]
    waves: int
    saves: float
    nodes: int
    cost: float
    peak: float


class Outlook(Part, frozen=True):
    """A state of the cluster.

    Attributes
    ----------
    state : str
        ``today``, ``path`` (the end of the path) or ``optimum`` (lower bound: no nodes cost less).
    nodes : int or None
        Number of nodes. None for the optimum, which is only a bound of the cost.
    cost : float
        Cost per hour.
    saves : float
        Difference from the cost today, per hour.
    """

    state: str
    nodes: int | None
    cost: float
    saves: float


class HeldNode(Part, frozen=True):
    """A node that the path cannot remove, whatever happens to the others.

    Attributes
    ----------
    node : str
        Name of the node.
    reason : str
        Scale-down's reason.
    why : str
        Explanation of the reason.
    """

    node: str
    reason: str
    why: str


class ConsolidationPlan(Record, frozen=True):
    """A path from the running cluster to a cheaper one, in steps.

    Attributes
    ----------
    table : list of Outlook
        The states ``today`` and ``path`` and, if it is proven for the question as stated, ``optimum``.
    steps : list of ConsolidationStep
        Steps in their order.
    evictions : int
        Number of evictions of all steps.
    stopped : str
        Why the path ends: ``nothing-saves``, ``min-saving``, ``budgets`` (no disruption is allowed within a week) or
        ``max-steps``.
    held : list of HeldNode
        Nodes that cannot be removed.
    unpriced : int
        Number of nodes without a known price. They are never removed and not part of costs.
    pending_count : int
        Number of pods that are pending today and stay pending.
    no_bound : str
        Why there is no optimum in ``table``. Empty: there is one.
    unmodelled : list of str
        Properties of pods that no decision takes into account.
    """

    KIND: ClassVar[str] = "ConsolidationPlan"
    ROWS: ClassVar[str] = "steps"

    table: list[Outlook]
    steps: list[ConsolidationStep]
    evictions: int
    stopped: str
    held: list[HeldNode]
    unpriced: int
    pending_count: int
    no_bound: str = ""
    unmodelled: list[str] = msgspec.field(default_factory=list)
