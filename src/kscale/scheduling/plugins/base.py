"""What a Filter plug-in is: what it says of all nodes at once, of one node, and what it counts.

A plug-in never sees how a session is compiled. What depends on a pod and a node alone is a *judge*, asked once for each
distinct combination of the node columns that it reads. What depends on the pods that are there is counted: the plug-in
brings a *part* into the packing engine, which decides in C++, and gives its verdict's texts and numbers here.

So a plug-in is static where it has a ``judge``, and needs counters where it has a ``part``; ``plugins/__init__.py``
lists all of them in order (``PROFILE``) and the static ones (``STATIC``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from kscale._native import _engine
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import Status
from kscale.scheduling.topology_counters import Rows
from kscale.snapshot.classes.interner import PodClass

__all__ = ["MOST_PODS", "NOTHING", "Judge", "Numbers", "Part", "Plugin", "PreFilter", "Witness"]

MOST_PODS = 5
"""So many pods are named to explain a no; counts are of all."""

Numbers = tuple[dict[str, Any], ...]
"""What was compared, for people who ask why."""


class PreFilter(msgspec.Struct, frozen=True):
    """What a PreFilter says of a pod: a failure, or a set of node names to look at (None = all)."""

    failure: Status | None = None
    nodes: frozenset[str] | None = None


NOTHING = PreFilter()


class Judge(msgspec.Struct, frozen=True, eq=False):
    """The verdict on nodes one by one. ``key``: judges of a plug-in with equal keys agree on every node; ``columns``:
    what they read of a node (label keys and the columns of :mod:`kscale.scheduling.profile`)."""

    key: Hashable
    columns: frozenset[str]
    check: Callable[[NodeFacts], Status | None]


class Part:
    """What a plug-in brings into an engine. It learns of one class after the other, and only ever grows: numbers that
    it gave away keep their meaning."""

    def ask(self, pod: PodClass, looks: Any) -> None:
        """Number what verdicts on a class look at, which is what its plug-in's ``looks`` said."""

    def present(self, pods: Iterable[PodClass]) -> None:
        """Classes that are placed or may be placed."""

    def asked(self, pods: Sequence[PodClass], ctx: Context, copies: list[NodeFacts]) -> None:
        """These are all the classes that verdicts are asked on, whatever they look at; ``copies``: the new nodes that
        may come."""

    def awake(self) -> bool:
        """Whether any class that was asked about looks at what is counted here."""
        return False

    def concerns(self, pod: PodClass) -> bool:
        """Whether there may be an entry for a class."""
        return False

    def entry(self, pod: PodClass, ctx: Context, *, asked: bool) -> dict[str, Any]:
        """What the engine has to know of a class (see :class:`kscale._native._pod_classes.Extras`): what such a pod
        counts in and, if it is ``asked`` about, what its verdict looks at."""
        return {}

    def sizes(self) -> dict[str, int]:
        """Arguments of the engine."""
        return {}

    def declare(self, engine: _engine.Engine, ctx: Context) -> None:
        """Tell the engine what there is to count, and what nodes have, before it gets classes."""

    def of_copy(self, facts: NodeFacts) -> dict[str, Any]:
        """Arguments of an engine's template."""
        return {}


P = TypeVar("P", bound=Part)


class Witness(Protocol):
    """What a plug-in may ask to explain a verdict. Nodes go by their numbers in the engine, classes by theirs."""

    @property
    def ctx(self) -> Context: ...
    @property
    def engine(self) -> _engine.Engine: ...
    def facts(self, node: int) -> NodeFacts: ...
    def part(self, kind: type[P]) -> P: ...
    def key(self, name: str) -> int:
        """The number of a topology key in the engine."""
        ...

    def room(self, node: int) -> tuple[dict[str, int], int]:
        """(free amounts by resource, free pod places)."""
        ...

    def allocatable(self, node: int) -> Mapping[str, int]: ...
    def demand(self, number: int, node: int) -> Mapping[str, int]:
        """What NodeResourcesFit counts of a class on a node."""
        ...

    def classes_on(self, node: int) -> Iterable[tuple[str, PodClass]]:
        """The key and class of each pod on an existing node, in order of appearance."""
        ...

    def pods_on(self, node: int, means: Callable[[PodClass], bool]) -> list[str]:
        """The pods of an existing node that are meant, in order of appearance."""
        ...

    def pods_in_domain(self, key: str, node: int, means: Callable[[PodClass], bool]) -> list[str]:
        """The pods that are meant in the topology domain of an existing node, in order of appearance."""
        ...

    def first_in_domain(self, key: str, node: int, means: Callable[[PodClass], bool]) -> tuple[int, PodClass] | None:
        """(its place in order of appearance, its class) of the first of ``pods_in_domain``."""
        ...

    def pods_anywhere(self, means: Callable[[PodClass], bool]) -> list[str]:
        """The placed pods that are meant, in order of appearance."""
        ...


class Plugin:
    """The base of all Filter plug-ins: passes everything. ``ordinal``: its place in the profile, from 1, as the engine
    has it; ``statuses``: what the engine's details of a no mean."""

    name: ClassVar[str]
    ordinal: ClassVar[int]
    statuses: ClassVar[Mapping[int, Status]] = {}

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            cls.ordinal = _engine.ORDINALS[cls.name]

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Once per pod class, for all nodes."""
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Whether the PreFilter, if it does not fail, finds that there is nothing for the Filter to look at."""
        return False

    def judge(self, pod: PodClass, ctx: Context) -> Judge | None:
        """What decides on nodes one by one; None = nothing does, or what counts decides. Asked of pods whose PreFilter
        does not fail."""
        return None

    def part(self, rows: Rows) -> Part | None:
        """What the engine has to count for this plug-in; None = nothing."""
        return None

    def looks(self, pod: PodClass, ctx: Context) -> Any:
        """What a verdict on a class looks at of what is counted, for the part's ``ask``; None = nothing."""
        return None

    def grounds(self, pod: PodClass, ctx: Context) -> tuple[Any, ...] | None:
        """What ``prefilter``, ``judge`` and ``looks`` depend on besides pod and profile: while these are the same
        objects, so are the answers. None: on so much that they are not kept. That there are none, ``()``, must follow
        from the pod and the profile alone."""
        return ()

    def backdrop(self, ctx: Context) -> tuple[Any, ...]:
        """While these are the same objects, the ``grounds`` of every class are the same as before."""
        return ()

    def surroundings(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        """What the part stands on besides the classes and what verdicts on them look at: while these are the same
        objects, so are its entries. ``storage``: classes with volumes that are there or may be placed."""
        return ()

    def blame(self, detail: int, which: int, pod: PodClass, node: int, witness: Witness) -> Numbers:
        """Numbers behind a no of the engine; ``which`` constraint, term or driver it was, -1 = does not apply."""
        return ()

    def explain(self, pod: PodClass, number: int, node: int, witness: Witness) -> tuple[Status | None, Numbers]:
        """The Filter alone on one node: its status (None = passes) and what is behind it."""
        judge = self.judge(pod, witness.ctx)
        status = None if judge is None else judge.check(witness.facts(node))
        if status is not None:
            return status, ()
        counted = witness.engine.check_alone(self.ordinal, number, node)
        if counted is None:
            return None, ()
        detail, which = counted
        return self.statuses[detail], self.blame(detail, which, pod, node, witness)
