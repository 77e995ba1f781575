"""Expanders by name and the chain of them, with the expanders ``random``, ``least-nodes``, ``least-waste``,
``most-pods`` and ``grpc``.

The gRPC client is :mod:`kscale.drivers.grpc_expander`; this module defines the request and how a response counts.

Upstream: ``expander/factory``, ``expander/random``, ``expander/leastnodes``, ``expander/waste``, ``expander/mostpods``,
``expander/grpcplugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.expander.price import filter_by_price, filter_by_price_steps
from kscale.ca.expander.priority import filter_by_priority
from kscale.ca.expander.types import (
    ExpanderFilter,
    ExpanderInput,
    FilterResult,
    MinimumScore,
    Option,
    PodRun,
    PodRuns,
    PriceResponder,
    RankResponder,
    Rng,
)
from kscale.effects import (
    Action,
    ApiError,
    Event,
    GetPrices,
    Moment,
    Prices,
    Progress,
    Ranking,
    RankOption,
    RankOptions,
    StepsOf,
    moment,
    run_dry,
)
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed
from kscale.objects.go_numbers import divide_floats, format_fixed, wrap_int64
from kscale.objects.nodegroup import ProviderError
from kscale.objects.pod_resources import CPU, MEMORY, occupancy
from kscale.objects.quantity import Quantity

__all__ = [
    "EXPANDER_FILTERS",
    "EXPANDER_NAMES",
    "GRPC_EXPANDER",
    "NO_GRPC_CLIENT",
    "RANDOM_EXPANDER",
    "ExpanderStep",
    "Expansion",
    "build_dry_run_responder",
    "build_expander_chain",
    "choose_random",
    "expand",
    "expand_steps",
    "filter_least_nodes",
    "filter_least_waste",
    "filter_most_pods",
    "filter_with_grpc_steps",
]


def filter_least_nodes(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the smallest node count. Options without nodes are skipped; if all are, none survives."""
    del inputs
    counted = [option for option in options if option.node_count != 0]
    best = min((option.node_count for option in counted), default=0)
    return FilterResult(
        survivors=[option for option in counted if option.node_count == best],
        scores={option.group: float(option.node_count) for option in counted},
        skipped={option.group: "no nodes" for option in options if option.node_count == 0},
    )


def filter_most_pods(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the largest number of pods; ``scores`` are the negated numbers."""
    del inputs
    counts = [option.pod_count for option in options]
    best = max(counts, default=0)
    return FilterResult(
        survivors=[option for option, count in zip(options, counts, strict=True) if count == best],
        scores={option.group: -float(count) for option, count in zip(options, counts, strict=True)},
    )


_ZERO_QUANTITY = Quantity.zero()


def filter_least_waste(options: Sequence[Option], inputs: ExpanderInput) -> FilterResult:
    """Keep the options with the smallest score: wasted CPU fraction plus wasted memory fraction.

    Options without a node in ``inputs.nodes`` are skipped. Requests are summed exactly and rounded up once. The waste
    is relative to the capacity of the nodes, not to what is allocatable. Nodes without capacity make the score infinite
    or NaN: no later option beats a first option that is NaN.
    """
    result = FilterResult(survivors=[])
    minimum = MinimumScore()
    known: _RequestsByPod = {}
    for option in options:
        node = inputs.nodes.get(option.group)
        if node is None:
            result.skipped[option.group] = f"No node info for: {option.group}"
            continue
        cpu, memory = _compute_waste(option, node, known)
        score = cpu + memory
        result.scores[option.group] = score
        result.notes[option.group] = (
            f"{format_fixed(cpu * 100.0, 2)}% CPU, {format_fixed(memory * 100.0, 2)}% Memory, "
            f"{format_fixed(score * 50.0, 2)}%"
        )
        minimum.offer(option, score)
    result.survivors = minimum.options
    return result


_RequestsByPod = dict[int, tuple[Pod, int, int]]
"""By ``id`` of a pod: the pod, to keep it alive, and its requests of cpu and memory, in billionths."""

_NANO = 10**9


def _compute_waste(option: Option, node: Node, known: _RequestsByPod) -> tuple[float, float]:
    """Return the unused fractions of CPU and of memory on the option's new nodes. ``known`` caches requests of pods."""
    capacity = node.status.capacity or {}
    cpu = wrap_int64(capacity.get(CPU, _ZERO_QUANTITY).milli_value() * option.node_count)
    memory = wrap_int64(capacity.get(MEMORY, _ZERO_QUANTITY).value() * option.node_count)
    used_cpu, used_memory = _sum_requests(option.pods, known)
    return (
        divide_floats(float(wrap_int64(cpu - used_cpu)), float(cpu)),
        divide_floats(float(wrap_int64(memory - used_memory)), float(memory)),
    )


def _sum_requests(runs: Sequence[PodRun], known: _RequestsByPod) -> tuple[int, int]:
    """Return the requests of all pods as (milli-CPU, bytes), each rounded up once after the exact sum.

    ``known`` caches requests of pods by id.
    """
    cpu = memory = 0
    if isinstance(runs, PodRuns):
        cpu, memory = runs.requested
        runs = ()
    for run in runs:
        pod_requests = known.get(id(run.pod))
        if pod_requests is None:
            requests = occupancy(run.pod)
            amounts = [requests.get(name, _ZERO_QUANTITY).billionths() for name in (CPU, MEMORY)]
            pod_requests = known[id(run.pod)] = run.pod, amounts[0], amounts[1]
        cpu += pod_requests[1] * run.count
        memory += pod_requests[2] * run.count
    return _round_away_from_zero(cpu, _NANO // 1000), _round_away_from_zero(memory, _NANO)


def _round_away_from_zero(amount: int, unit: int) -> int:
    """Return the amount in multiples of ``unit``, rounded away from zero as quantities are; 64-bit overflow wraps."""
    rounded = -(-abs(amount) // unit)
    return wrap_int64(rounded if amount >= 0 else -rounded)


def choose_random(options: Sequence[Option], rng: Rng | None) -> Option | None:
    """Choose an option by ``rng``; without one the first, so that results are reproducible. None without options."""
    if not options:
        return None
    return options[rng.randrange(len(options)) if rng is not None else 0]


RANDOM_EXPANDER = "random"
GRPC_EXPANDER = "grpc"

EXPANDER_FILTERS: dict[str, ExpanderFilter] = {
    "most-pods": filter_most_pods,
    "least-waste": filter_least_waste,
    "least-nodes": filter_least_nodes,
    "price": filter_by_price,
    "priority": filter_by_priority,
}
"""Expanders that need no action. ``random`` is missing because it ends the chain, ``grpc`` because it queries a server.
"""

EXPANDER_NAMES = (RANDOM_EXPANDER, *EXPANDER_FILTERS, GRPC_EXPANDER)


@typed
def build_expander_chain(names: Sequence[str], own: Container[str] = ()) -> list[str]:
    """Return the names of the filters to run, in order (``random`` follows every chain and is not listed).

    ``own`` are names of the caller's filters. Raises :class:`AutoscalerError` for a repeated or unknown name and for a
    name after ``random``.
    """
    filters: list[str] = []
    seen: set[str] = set()
    complete = ""
    for name in names:
        if name in seen:
            text = f"Expander {name} was specified multiple times, each expander must not be specified more than once"
            raise AutoscalerError(INTERNAL_ERROR, text)
        if complete:
            text = (
                f"Expander {name} came after an expander {complete} that will always return only one result, "
                f"this is not allowed since {name} will never be used"
            )
            raise AutoscalerError(INTERNAL_ERROR, text)
        seen.add(name)
        if name == RANDOM_EXPANDER:
            complete = name
        elif name in EXPANDER_FILTERS or name == GRPC_EXPANDER or name in own:
            filters.append(name)
        else:
            raise AutoscalerError(INTERNAL_ERROR, f"Expander {name} not supported")
    return filters


NO_GRPC_CLIENT: Final = ApiError("Incorrect gRPC client config", reason="NotConfigured")
"""Response if no gRPC client is configured."""


def filter_with_grpc_steps(
    p: Progress, options: Sequence[Option], inputs: ExpanderInput
) -> StepsOf[RankOptions, FilterResult]:
    """Query the external ranker, and return the options that it names, in its order.

    An error, or a response that names only unknown groups, keeps all options; an empty response keeps none.
    ``warnings`` are what upstream logs.
    """
    outcome = yield from p.act(
        RankOptions(
            options=[RankOption(group=o.group, node_count=o.node_count, debug=o.debug, pods=o.pods) for o in options],
            nodes=inputs.nodes,
            bare=inputs.compared,
        )
    )
    if outcome.error is not None:
        if outcome.error == NO_GRPC_CLIENT:
            text = f"{outcome.error.message}, filtering no options"
        else:
            text = f"GRPC call failed, no options filtered: {outcome.error.message}"
        return FilterResult(survivors=list(options), warnings=[text])
    ranking = outcome.value
    warnings = list(ranking.warnings)
    if not ranking.groups:
        return FilterResult(survivors=[], warnings=[*warnings, "GRPC returned nil bestOptions"])
    by_id = {option.group: option for option in options}
    named = []
    for group in ranking.groups:
        if group is None:
            warnings.append("GRPC server returned nil Option")
        elif group not in by_id:
            warnings.append(f"GRPC server returned invalid nodeGroup ID: {group}")
        else:
            named.append(by_id[group])
    if not named:
        warnings.append("Unable to sanitize GPRC returned bestOptions, no options filtered")
    return FilterResult(survivors=named or list(options), warnings=warnings)


class ExpanderStep(msgspec.Struct, kw_only=True):
    """One filter that was really run, and what it left."""

    expander: str
    filtered: FilterResult


class Expansion(msgspec.Struct, kw_only=True):
    """Result of a chain of expanders. ``best`` is the chosen option; None if no option survived.

    ``survivors`` are the options that the last filter returned (all options if no filter ran). If there are several
    (:attr:`has_tie`), ``best`` was chosen among them at random or is the first.
    """

    best: Option | None
    survivors: list[Option]
    steps: list[ExpanderStep]

    @property
    def has_tie(self) -> bool:
        """Return whether more than one option survived all filters."""
        return len(self.survivors) > 1

    @property
    def events(self) -> list[Event]:
        """Return the events of all filters, in the order of the chain."""
        return [event for step in self.steps for event in step.filtered.events]

    @property
    def warnings(self) -> list[str]:
        """Return the warnings of all filters, in the order of the chain."""
        return [text for step in self.steps for text in step.filtered.warnings]


@typed
def expand_steps(
    options: Sequence[Option],
    expanders: Sequence[str],
    inputs: ExpanderInput | None = None,
    *,
    now: datetime | Moment | Progress,
    rng: Rng | None = None,
    filters: Mapping[str, ExpanderFilter] | None = None,
) -> StepsOf[RankOptions | GetPrices, Expansion]:
    """Run a chain of expanders as a step machine.

    It yields :class:`~kscale.effects.RankOptions` for ``grpc``, and :class:`~kscale.effects.GetPrices` if the prices
    of ``price`` must be requested. The first filter sees even a single option; once exactly one survives, the later
    filters are skipped.

    Parameters
    ----------
    options : sequence of Option
        The possible scale-ups.
    expanders : sequence of str
        Names of expanders.
    inputs : ExpanderInput, optional
        Inputs of the expanders besides the options.
    now : datetime, Moment or Progress
        Start time, or the progress of the machine that this one is a part of.
    rng : Rng, optional
        Breaks remaining ties. Without it the first survivor is chosen.
    filters : mapping of str to callable, optional
        Further expanders by name. The name of a built-in one (except ``grpc`` and ``random``) replaces it.

    Returns
    -------
    Steps of Expansion
        The step machine.

    Raises
    ------
    AutoscalerError
        For an invalid chain (:class:`kscale.ca.AutoscalerError`).
    InputError
        For ``price`` without prices if they cannot be requested.
    """
    inputs = inputs or ExpanderInput()
    known = {**EXPANDER_FILTERS, **(filters or {})}
    names = build_expander_chain(expanders, known)
    if "price" in names and inputs.prices is None and not inputs.ask_prices:
        raise InputError("the price expander needs prices")
    p = now if isinstance(now, Progress) else Progress(moment(now))
    survivors = list(options)
    steps: list[ExpanderStep] = []
    for name in names:
        if name == GRPC_EXPANDER:
            filtered = yield from filter_with_grpc_steps(p, survivors, inputs)
        elif known[name] is filter_by_price:
            filtered = yield from filter_by_price_steps(p, survivors, inputs)
        else:
            filtered = known[name](survivors, inputs)
        steps.append(ExpanderStep(expander=name, filtered=filtered))
        survivors = filtered.survivors
        if len(survivors) == 1:
            break
    return Expansion(best=choose_random(survivors, rng), survivors=survivors, steps=steps)


@typed
def expand(
    options: Sequence[Option],
    expanders: str | Sequence[str] = "least-waste",
    inputs: ExpanderInput | None = None,
    *,
    rng: Rng | None = None,
    rank: RankResponder | None = None,
) -> Expansion:
    """Choose an option by a chain of expanders, as if every action succeeded.

    Parameters
    ----------
    options : sequence of Option
        The possible scale-ups.
    expanders : str or sequence of str
        Names of expanders, or the text of ``--expander``.
    inputs : ExpanderInput, optional
        Inputs of the expanders besides the options.
    rng : Rng, optional
        Breaks ties. Without it the first survivor is chosen.
    rank : callable, optional
        Responder for the ``grpc`` expander. Without it that expander keeps every option.

    Returns
    -------
    Expansion
        The best option, the survivors and the result of every expander.

    Raises
    ------
    InputError
        If ``ask_prices`` is set without prices, as there is no cloud provider to query, and for ``price`` without
        prices.
    AutoscalerError
        For an invalid chain (:class:`kscale.ca.AutoscalerError`).
    """
    names = expanders.split(",") if isinstance(expanders, str) else expanders
    respond = build_dry_run_responder(inputs, rank)
    return run_dry(expand_steps(options, names, inputs, now=0, rng=rng), now=0, respond=respond).value


def build_dry_run_responder(
    inputs: ExpanderInput | None, rank: RankResponder | None, prices: PriceResponder | None = None
) -> Callable[[Action], Ranking | Prices | ApiError]:
    """Build the function that responds to RankOptions and GetPrices actions in a dry run.

    ``rank`` and ``prices`` answer them. Without ``rank`` the response is the error that there is no ranker. ``prices``
    may raise :class:`~kscale.objects.nodegroup.ProviderError`, which becomes an error response. Raises InputError if
    ``inputs`` requests prices of a provider and there is no ``prices``.
    """
    if inputs is not None and inputs.ask_prices and inputs.prices is None and prices is None:
        raise InputError(
            Problem("there is no cloud provider that reports prices", object="ExpanderInput", field="ask_prices")
        )

    def respond(action: Action) -> Ranking | Prices | ApiError:
        if isinstance(action, GetPrices):
            assert prices is not None  # checked above
            try:
                return prices(action)
            except ProviderError as error:
                return ApiError(error.message, reason=error.type)
        assert isinstance(action, RankOptions)
        return NO_GRPC_CLIENT if rank is None else rank(action)

    return respond
