"""The interface of Filter plug-ins: PreFilters, verdicts on single nodes, and counters of pods per topology domain.

A plug-in does not depend on how a session is compiled. A verdict that depends on a pod and a node alone is a *node
filter*, called once for each distinct combination of the node columns that it reads. Whatever depends on placed pods
is counted: the plug-in adds a *part* to the packing engine, which decides in C++, and provides the verdicts' texts and
numbers. Whether a counter row counts a pod depends only on the pod's namespace, labels and whether it is being deleted.

A plug-in is static if it has node filters, and needs counters if it has a ``part``. ``plugins/__init__.py`` lists all
plug-ins in order (``PROFILE``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.selectors import Selector
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import Status
from kscale.snapshot.classes.interner import PodClass

__all__ = [
    "MAX_PODS",
    "NOTHING",
    "Eligibility",
    "ExplainContext",
    "NodeFilter",
    "Numbers",
    "Part",
    "Plugin",
    "PreFilter",
    "Row",
    "Rows",
]

Label = tuple[str, str]


class Eligibility(msgspec.Struct, frozen=True, eq=False):
    """Which nodes a row counts pods on; it depends on ``columns`` of the node."""

    columns: frozenset[str]
    counts: Callable[[NodeFacts], bool]


class Row(msgspec.Struct, frozen=True, eq=False):
    """A counter row: counts pods per value of a topology key.

    - ``key``: the topology key
    - ``counts_pod``: returns whether a pod counts; None: only pods that refer to the row themselves count
    - ``selector``: a selector that all counted pods match
    - ``group``: affinity group whose total the row contributes to, -1 = none
    - ``eligibility``: nodes on which pods count; None: on every node
    """

    key: str
    counts_pod: Callable[[PodClass], bool] | None
    selector: Selector | None = None
    group: int = -1
    eligibility: Eligibility | None = None


class _Counted(msgspec.Struct, frozen=True):
    """Numbers of the counter rows that count the pods of a class.

    ``spread``: rows with an eligibility; ``rows``: the other rows; ``upto``: number of rows considered so far.
    """

    upto: int
    spread: list[int]
    rows: list[int]


class Rows(msgspec.Struct, eq=False):
    """All counter rows of an engine, numbered in the order they are added.

    ``keys``: number of each topology key. ``eligibilities``: number of each rule that selects the nodes to count, in
    order of first use. ``groups``: number of affinity groups.
    """

    rows: list[Row] = []
    keys: dict[str, int] = {}
    groups: int = 0
    eligibilities: dict[Eligibility, int] = {}
    _by_label: dict[Label, list[int]] = {}
    _anywhere: list[int] = []
    _counted: dict[int, _Counted] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def add_group(self) -> int:
        """Return the number of a new affinity group. The engine adds up the counts of rows with the same ``group``."""
        self.groups += 1
        return self.groups - 1

    def add(self, row: Row) -> int:
        """Add a row and return its number."""
        number = len(self.rows)
        self.rows.append(row)
        self.keys.setdefault(row.key, len(self.keys))
        if row.eligibility is not None:
            self.eligibilities.setdefault(row.eligibility, len(self.eligibilities))
        if row.counts_pod is not None:
            labels = _get_required_labels(row.selector)
            for label in labels or ():
                self._by_label.setdefault(label, []).append(number)
            if labels is None:
                self._anywhere.append(number)
        return number

    def get_counting_rows(self, pod: PodClass) -> tuple[list[int], list[int]]:
        """Return the numbers of the rows whose ``counts_pod`` accepts a class, as (rows with eligibility, other rows).

        Rows without ``counts_pod`` are left out. The lists are cached; do not modify them.
        """
        if not self._anywhere and (pod.labels is None or self._by_label.keys().isdisjoint(pod.labels.items())):
            return _NONE, _NONE
        cached = self._counted.get(pod.identity_id)
        if cached is None or cached.upto < len(self.rows):
            cached = self._counted[pod.identity_id] = self._count(pod)
        return cached.spread, cached.rows

    def _count(self, pod: PodClass) -> _Counted:
        """Compute the result of :meth:`get_counting_rows` for all rows added so far."""
        by_label = self._by_label
        candidates = list(self._anywhere)
        if by_label and pod.labels:
            for label in pod.labels.items():
                if label in by_label:
                    candidates += by_label[label]
        spread: list[int] = []
        rows: list[int] = []
        for number in sorted(set(candidates)):
            row = self.rows[number]
            if row.counts_pod is not None and row.counts_pod(pod):
                (rows if row.eligibility is None else spread).append(number)
        return _Counted(len(self.rows), spread, rows)

    def columns(self) -> frozenset[str]:
        """Return the names of the node columns that the eligibility of any row reads."""
        return frozenset().union(*(each.columns for each in self.eligibilities))

    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return the key, group and eligibility of each row: int32[n] each, -1 = none."""
        rows, count = self.rows, len(self.rows)
        eligible = (-1 if row.eligibility is None else self.eligibilities[row.eligibility] for row in rows)
        return (
            np.fromiter((self.keys[row.key] for row in rows), np.int32, count),
            np.fromiter((row.group for row in rows), np.int32, count),
            np.fromiter(eligible, np.int32, count),
        )


_NONE: Final[list[int]] = []
"""The empty list of rows, shared by all classes that no row counts."""


def _get_required_labels(selector: Selector | None) -> list[Label] | None:
    """Return labels of which a pod must have at least one to match; None if the selector requires no label.

    Empty if the selector matches nothing.
    """
    if selector is None:
        return None
    if selector.nothing:
        return []
    pinned = next((r for r in selector.requirements if r.operator in ("in", "=", "==")), None)
    return None if pinned is None else [(pinned.key, value) for value in dict.fromkeys(pinned.values)]


MAX_PODS = 5
"""Maximum number of pods that explain a failure by name; counts include all."""

Numbers = tuple[dict[str, Any], ...]
"""Values that explain the result of a plug-in to people: one dict per conflict, with keys of the plug-in's choice."""


class PreFilter(msgspec.Struct, frozen=True):
    """A PreFilter's result for a pod: a failure, or the names of the nodes to check (None = all)."""

    failure: Status | None = None
    nodes: frozenset[str] | None = None


NOTHING = PreFilter()


class NodeFilter(msgspec.Struct, frozen=True, eq=False):
    """Decides on single nodes, as a plug-in's Filter does for one pod class.

    ``key``: node filters of a plug-in with equal keys agree on every node; ``columns``: what they read of a node (label
    keys and the columns of :mod:`kscale.scheduling.profile`).
    """

    key: Hashable
    columns: frozenset[str]
    check: Callable[[NodeFacts], Status | None]


class Part:
    """A plug-in's part of an engine. Classes are added one after the other; numbers that it assigned stay valid."""

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Add a class whose verdicts read counters, and assign numbers to these counters.

        ``counters``: what the plug-in's ``get_counters`` returned for the class. The default does nothing.
        """

    def finish_classes(self, pods: Sequence[PodClass], ctx: Context, copies: list[NodeFacts]) -> None:
        """Complete the counters once all classes are added.

        ``pods``: all classes that may be checked, including those that read no counters. ``copies``: the new nodes that
        may be added. The default does nothing.
        """

    def is_used(self) -> bool:
        """Return whether verdicts on any added class read what this part counts. Default: False."""
        return False

    def may_count(self, pod: PodClass) -> bool:
        """Return whether pods of a class may count in a counter or be checked against one. Default: False."""
        return False

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return the fields that describe a class to the engine (see :class:`kscale._native._engine.Extras`).

        These are the counters that such a pod counts in and, if the class may be ``checked``, those that verdicts on it
        read. Default: none.
        """
        return {}

    def engine_arguments(self) -> dict[str, int]:
        """Return keyword arguments that the engine's constructor needs for this part. Default: none."""
        return {}

    def declare(self, engine: _engine.Engine, ctx: Context) -> None:
        """Declare counters and their state on nodes to the engine, before the engine gets classes.

        The default does nothing.
        """

    def build_template_arguments(self, facts: NodeFacts) -> dict[str, Any]:
        """Return keyword arguments for the engine's template of a new node with these ``facts``. Default: none."""
        return {}


P = TypeVar("P", bound=Part)


class ExplainContext(Protocol):
    """Data that a plug-in may query to explain a verdict. Nodes and classes are identified by their numbers in the
    engine.
    """

    @property
    def ctx(self) -> Context:
        """Return the context of the decision (snapshot, informers, profile)."""
        ...

    @property
    def engine(self) -> _engine.Engine:
        """Return the packing engine."""
        ...

    def facts(self, node: int) -> NodeFacts:
        """Return the facts that predicates read about the node with the engine's number ``node``."""
        ...

    def part(self, kind: type[P]) -> P:
        """Return a plug-in's part of the engine by its type."""
        ...

    def key(self, name: str) -> int:
        """Return the engine's number of a topology key."""
        ...

    def room(self, node: int) -> tuple[dict[str, int], int]:
        """Return a node's free amounts by resource (cpu in milli-units), and its free pod slots."""
        ...

    def allocatable(self, node: int) -> Mapping[str, int]:
        """Return a node's allocatable amounts by resource (cpu in milli-units)."""
        ...

    def demand(self, class_number: int, node: int) -> Mapping[str, int]:
        """Return the amounts by resource (cpu in milli-units) that NodeResourcesFit counts for a class on a node."""
        ...

    def classes_on(self, node: int) -> Iterable[tuple[str, PodClass]]:
        """Return the key and class of each pod on an existing node, in order of appearance."""
        ...

    def pods_on(self, node: int, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of pods on an existing node that ``matches`` accepts, in order of appearance."""
        ...

    def pods_in_domain(self, key: str, node: int, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of pods that ``matches`` accepts in the domain of an existing node by label ``key``.

        They are in order of appearance.
        """
        ...

    def first_in_domain(self, key: str, node: int, matches: Callable[[PodClass], bool]) -> tuple[int, PodClass] | None:
        """Return (row, class) of the first placed pod that matches in the topology domain of ``node`` by label ``key``.

        None if there is none.
        """
        ...

    def pods_anywhere(self, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of placed pods that ``matches`` accepts, in order of appearance."""
        ...


class Plugin:
    """The base of all Filter plug-ins: passes everything.

    ``ordinal``: its position in the profile, from 1, as in the engine; ``statuses``: status for each detail code of the
    engine; ``checks_plain_pods``: whether there may be something to check for a pod without volumes, ports, claims,
    spread constraints and affinity to other pods.
    """

    name: ClassVar[str]
    ordinal: ClassVar[int]
    statuses: ClassVar[Mapping[int, Status]] = {}
    checks_plain_pods: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Set ``ordinal`` from the engine's numbers."""
        if "name" in vars(cls):
            cls.ordinal = _engine.ORDINALS[cls.name]

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return the PreFilter's result, computed once per pod class for all nodes.

        Default: no failure and no restriction.
        """
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the Filter is skipped for a pod, because it has nothing to check. Default: False.

        The result has no meaning for a pod whose PreFilter fails.
        """
        return False

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check of single nodes for a pod; None if there is nothing to check, or if counters decide.

        Called for pods whose PreFilter does not fail. Default: None.
        """
        return None

    def part(self, rows: Rows) -> Part | None:
        """Return a new part for an engine, which counts what this plug-in reads; None if the plug-in reads no counters.

        ``rows``: the engine's counter rows, to which the part adds its own. Default: None.
        """
        return None

    def get_counters(self, pod: PodClass, ctx: Context) -> Any:
        """Return the counters that a verdict on a class reads, for the part's ``add_class``; None if there are none.

        Default: None.
        """
        return None

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...] | None:
        """Return the objects besides pod and profile that the PreFilter, node filter and counters depend on.

        As long as these are identical objects, cached results stay valid. None: the results depend on too much to be
        cached. Whether the tuple is empty must depend on the pod and the profile alone. Default: no objects.
        """
        return ()

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return objects that all classes' dependencies come from.

        As long as these are identical objects, the dependencies of every class are unchanged. Default: none.
        """
        return ()

    def get_part_dependencies(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        """Return the objects that results of the part's ``entry`` depend on, besides classes and their dependencies.

        As long as identical objects are returned, cached entries stay valid. ``storage``: the classes with volumes
        that are placed or may be placed. Default: none.
        """
        return ()

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return the values that explain why a pod failed this plug-in's filter on a node, one dict per conflict.

        Parameters
        ----------
        code : int
            The engine's code of the failure, a key of ``statuses``.
        failed_index : int
            Number of the constraint, term or driver that failed; -1 if the plug-in has none.
        pod : PodClass
        node : int
            Position of the node.
        context : ExplainContext

        Returns
        -------
        tuple of dict
            Keys depend on the plug-in. Empty if there is nothing to report, and by default.
        """
        return ()

    def explain(
        self, pod: PodClass, class_number: int, node: int, context: ExplainContext
    ) -> tuple[Status | None, Numbers]:
        """Run only this plug-in's Filter on one node.

        Returns (status, or None if the pod passes; values that explain a failure).
        """
        node_filter = self.get_node_filter(pod, context.ctx)
        status = None if node_filter is None else node_filter.check(context.facts(node))
        if status is not None:
            return status, ()
        counted = context.engine.check_alone(self.ordinal, class_number, node)
        if counted is None:
            return None, ()
        detail, which = counted
        return self.statuses[detail], self.explain_failure(detail, which, pod, node, context)
