"""Inputs, options and results of expanders (upstream: ``expander/expander.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.effects import SECOND, ApiError, Event, GetPrices, Moment, Prices, Ranking, RankOptions, moment
from kscale.effects.moments import OtherDuration
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import to_dict
from kscale.snapshot.pods.record import PodRecord

__all__ = [
    "HOUR",
    "ExpanderInput",
    "FilterResult",
    "MinimumScore",
    "Option",
    "PodRun",
    "PodRuns",
    "PriceModel",
    "PriceResponder",
    "RankResponder",
    "Rng",
]


HOUR: Final[OtherDuration] = 3600 * SECOND
"""Period that prices are for."""


class PodRun(msgspec.Struct, frozen=True):
    """A run of ``count`` consecutive pods with equal requests and prices; ``pod`` is one of them.

    ``record``: the record that the pod was read from, if known.
    """

    pod: Pod
    count: int = 1
    record: PodRecord | None = None

    @property
    def data(self) -> dict[str, Any]:
        """Return the pod's API data: that of ``record``, or if there is none, that of ``pod``."""
        return to_dict(self.pod) if self.record is None else self.record.data()


class PodRuns(Sequence[PodRun]):
    """Runs of pods that know their sums. ``pod_count``: all pods; ``requested``: exact sum of their requests: (cpu,
    memory) in billionths of a core and of a byte.
    """

    @property
    def pod_count(self) -> int:
        """Return the total number of pods. Subclasses implement this."""
        raise NotImplementedError

    @property
    def requested(self) -> tuple[int, int]:
        """Return the sum of the requests: (cpu, memory) in billionths of a core and of a byte.

        Subclasses implement this.
        """
        raise NotImplementedError

    def sum_by_class(self, value_of: Callable[[Mapping[str, int]], float]) -> float:
        """Return the sum of a value of all pods, added one by one in their order.

        ``value_of`` computes the value from what a pod occupies, by resource: cpu in milli-units, otherwise bytes or
        counts. Subclasses implement this.
        """
        raise NotImplementedError


class Option(msgspec.Struct, kw_only=True, frozen=True):
    """One way to scale up: ``node_count`` new nodes of ``group`` would take ``pods`` (in placement order).

    - ``similar``: ids of the groups that may share the scale-up with it, in the provider's order (upstream's
      ``SimilarNodeGroups``). Empty if none may, or without balancing; ``price`` removes them.
    - ``exists``: False for a group that would have to be created first.
    - ``debug``: upstream's ``Debug``, a text about the option: ``price`` appends its calculation, and the ``grpc``
      expander sends it to the server.
    """

    group: str
    node_count: int
    pods: Sequence[PodRun]
    similar: list[str] = msgspec.field(default_factory=list)
    exists: bool = True
    debug: str = ""

    @property
    def pod_count(self) -> int:
        """Return the number of pods that the option's nodes take."""
        return self.pods.pod_count if isinstance(self.pods, PodRuns) else sum(run.count for run in self.pods)


class PriceModel(Protocol):
    """Prices from ``start`` to ``end``. An unknown price raises :class:`kscale.ca.AutoscalerError`."""

    def node_price(self, node: Node, start: Moment, end: Moment) -> float:
        """Return the price of a node from ``start`` to ``end``."""
        ...

    def pod_price(self, pod: Pod, start: Moment, end: Moment) -> float:
        """Return the price of what a pod requests from ``start`` to ``end``."""
        ...


class Rng(Protocol):
    """A source of random numbers: ``randrange(n)`` is uniform in 0..n-1 (``random.Random`` is one)."""

    def randrange(self, stop: int, /) -> int:
        """Return a random integer from 0 up to ``stop``, exclusive."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpanderInput:
    """Inputs of the expanders of a chain besides the options.

    - ``nodes``: the template node of each group.
    - ``priorities``: data of ConfigMap ``cluster-autoscaler-priority-expander`` in ``namespace``; None: no such map.
    - ``prices`` and ``cluster_node_count`` (None: the node lister failed): inputs of the price expander.
    - ``ask_prices``: without ``prices`` the cloud provider is queried (:class:`~kscale.effects.GetPrices`). Entry
      points that run as if everything succeeded reject this unless they get a responder (``prices=`` of ``run_once``).
    - ``price_per_core_hour``, ``price_per_gib_hour``: prices of the pods' requests, if a loop derives prices from those
      of the groups (:mod:`kscale.ca.expander.price`); None: derived from the groups' prices.
    - ``gpu_label``: the node label that names the type of GPU: ``price`` counts nodes that have it as unfit, and the
      scale-up counts GPUs by it for its limits.
    - ``now``: prices are requested for the hour that begins now.
    - ``compared``: keys of pods that upstream has stripped by comparing them, which an external ranker can see
      (:mod:`kscale.ca.scale_up.expansion`).
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    priorities: Mapping[str, str] | None = None
    prices: PriceModel | None = None
    ask_prices: bool = False
    price_per_core_hour: float | None = None
    price_per_gib_hour: float | None = None
    cluster_node_count: int | None = 0
    gpu_label: str = DEFAULT_GPU_LABEL
    namespace: str = "kube-system"
    now: Moment | None = None
    compared: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.now is not None:
            object.__setattr__(self, "now", moment(self.now))

    @property
    def hour(self) -> tuple[Moment, Moment]:
        """Return start and end of the hour for which prices are requested.

        The hour begins at ``now``, or in 1970 if ``now`` is None.
        """
        start = self.now or 0
        return start, start + HOUR


class FilterResult(msgspec.Struct, kw_only=True):
    """Result of one expander: the remaining options, in order.

    ``scores`` (by group id; smaller is better) and ``notes`` (upstream's log texts by group id) are what the expander
    computed, ``parts`` the numbers of a score by name; ``skipped``: options without a score, and why. ``warnings``:
    what upstream logs of an external ranker's response, and what was left out of the request.
    """

    survivors: list[Option]
    scores: dict[str, float] = msgspec.field(default_factory=dict)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    parts: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    events: list[Event] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)


ExpanderFilter = Callable[[Sequence[Option], ExpanderInput], FilterResult]


RankResponder = Callable[[RankOptions], Ranking | ApiError]
"""Answers for an outside ranker: the grpc expander's server."""

PriceResponder = Callable[[GetPrices], Prices | ApiError]
"""Responds for a cloud that has prices."""


class MinimumScore(msgspec.Struct, eq=False):
    """Offer options one after the other; ``options`` are those whose scores equal the smallest one exactly.

    Comparisons with NaN are false: a first score that is NaN stays and nothing joins or beats it.
    """

    options: list[Option] = []
    score: float = 0.0

    def offer(self, option: Option, score: float) -> None:
        """Keep the option if it is the first, or if its score is at most the smallest one so far.

        A smaller score replaces the options so far, an equal one is added. Comparisons with NaN are false: a first
        score of NaN stays, a later one is dropped.
        """
        if self.options and score == self.score:
            self.options.append(option)
        elif not self.options or score < self.score:
            self.options = [option]
            self.score = score
