"""Choosing one option of several: a chain of filters, then chance (``expander/factory/chain.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from kscale.ca.expander.grpc import NO_CLIENT, grpc_steps
from kscale.ca.expander.price import price, price_steps
from kscale.ca.expander.random_choice import choose
from kscale.ca.expander.registry import FILTERS, GRPC, build_chain
from kscale.ca.expander.types import ExpanderInput, Filter, Filtered, Option, Rank, Rng, TellPrices
from kscale.effects import (
    Action,
    ApiError,
    Event,
    GetPrices,
    Moment,
    Prices,
    Progress,
    Ranking,
    RankOptions,
    StepsOf,
    as_if_done,
    moment,
)
from kscale.errors import InputError, Problem
from kscale.objects.argument_types import typed
from kscale.objects.nodegroup import ProviderError

__all__ = ["ExpanderStep", "Expansion", "expand", "expand_steps", "respond_with"]


class ExpanderStep(msgspec.Struct, kw_only=True):
    """One filter that was really run, and what it left."""

    expander: str
    filtered: Filtered


class Expansion(msgspec.Struct, kw_only=True):
    """The choice. ``survivors`` is what the last filter left (all if none ran); ``tied`` says that chance chose.

    ``best`` is None when nothing survived.
    """

    best: Option | None
    survivors: list[Option]
    steps: list[ExpanderStep]

    @property
    def tied(self) -> bool:
        return len(self.survivors) > 1

    @property
    def events(self) -> list[Event]:
        return [event for step in self.steps for event in step.filtered.events]

    @property
    def warnings(self) -> list[str]:
        return [text for step in self.steps for text in step.filtered.warnings]


@typed
def expand_steps(
    options: Sequence[Option],
    expanders: Sequence[str],
    given: ExpanderInput | None = None,
    *,
    now: datetime | Moment | Progress,
    rng: Rng | None = None,
    filters: Mapping[str, Filter] | None = None,
) -> StepsOf[RankOptions | GetPrices, Expansion]:
    """The chain as a step machine: yields :class:`~kscale.effects.RankOptions` where ``grpc`` asks, and
    :class:`~kscale.effects.GetPrices` where ``price`` has to ask the cloud.

    ``given``: what expanders look at besides the options. ``now``: when it is begun, or the machine that it is a part
    of.

    The first filter sees even a single option; once exactly one survives the later ones are not run. Ties that
    remain go to ``rng``, or without one to the first survivor. ``filters`` are further expanders by name. Raises
    :class:`kscale.ca.AutoscalerError` for a chain that cannot be built, :class:`InputError` for ``price`` without
    prices where nobody is to be asked.
    """
    given = given or ExpanderInput()
    known = {**FILTERS, **(filters or {})}
    names = build_chain(expanders, known)
    if "price" in names and given.prices is None and not given.ask_prices:
        raise InputError("the price expander needs prices")
    p = now if isinstance(now, Progress) else Progress(moment(now))
    survivors = list(options)
    steps: list[ExpanderStep] = []
    for name in names:
        if name == GRPC:
            filtered = yield from grpc_steps(p, survivors, given)
        elif known[name] is price:
            filtered = yield from price_steps(p, survivors, given)
        else:
            filtered = known[name](survivors, given)
        steps.append(ExpanderStep(expander=name, filtered=filtered))
        survivors = filtered.survivors
        if len(survivors) == 1:
            break
    return Expansion(best=choose(survivors, rng), survivors=survivors, steps=steps)


@typed
def expand(
    options: Sequence[Option],
    expanders: str | Sequence[str] = "least-waste",
    given: ExpanderInput | None = None,
    *,
    rng: Rng | None = None,
    rank: Rank | None = None,
) -> Expansion:
    """Chooses an option by a chain of expanders (names, or the text of ``--expander``).

    ``given``: what expanders look at besides the options; ``rng`` settles ties, without it the first survivor is taken.

    ``rank`` answers for the ``grpc`` expander; without it there is no client and that expander keeps every option.
    Raises :class:`InputError` for ``ask_prices`` without prices: nobody is there to be asked.
    """
    names = expanders.split(",") if isinstance(expanders, str) else expanders
    respond = respond_with(given, rank)
    return as_if_done(expand_steps(options, names, given, now=0, rng=rng), now=0, respond=respond).value


def respond_with(
    given: ExpanderInput | None, rank: Rank | None, prices: TellPrices | None = None
) -> Callable[[Action], Ranking | Prices | ApiError]:
    """Answers the questions of a scale-up in a dry run: for an outside ranker, and for a cloud that tells prices, or
    refuses to (:class:`~kscale.objects.nodegroup.ProviderError`). Raises InputError where ``given`` wants a cloud asked
    and there is none."""
    if given is not None and given.ask_prices and given.prices is None and prices is None:
        raise InputError(Problem("nobody is there to tell prices", object="ExpanderInput", field="ask_prices"))

    def respond(action: Action) -> Ranking | Prices | ApiError:
        if isinstance(action, GetPrices):
            assert prices is not None  # else nothing asks
            try:
                return prices(action)
            except ProviderError as error:
                return ApiError(error.message, reason=error.type)
        assert isinstance(action, RankOptions)
        return NO_CLIENT if rank is None else rank(action)

    return respond
