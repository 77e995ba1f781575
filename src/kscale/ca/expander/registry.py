"""The expanders by name, and the rules for a chain of them (``expander/factory``)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.expander.least_nodes import least_nodes
from kscale.ca.expander.least_waste import least_waste
from kscale.ca.expander.most_pods import most_pods
from kscale.ca.expander.price import price
from kscale.ca.expander.priority import priority
from kscale.ca.expander.types import Filter
from kscale.objects.argument_types import typed

__all__ = ["EXPANDER_NAMES", "FILTERS", "GRPC", "RANDOM", "build_chain"]

RANDOM = "random"
GRPC = "grpc"

FILTERS: dict[str, Filter] = {
    "most-pods": most_pods,
    "least-waste": least_waste,
    "least-nodes": least_nodes,
    "price": price,
    "priority": priority,
}
"""The expanders that answer at once. ``random`` picks one option for good and ``grpc`` asks somebody."""

EXPANDER_NAMES = (RANDOM, *FILTERS, GRPC)


@typed
def build_chain(names: Sequence[str], own: Container[str] = ()) -> list[str]:
    """The names of the filters to run, in order (``random`` is what follows every chain, and is not listed).

    ``own`` are names of filters that the caller brings along. Raises :class:`AutoscalerError` for a repeated or an
    unknown name and for one that comes after ``random``.
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
        if name == RANDOM:
            complete = name
        elif name in FILTERS or name == GRPC or name in own:
            filters.append(name)
        else:
            raise AutoscalerError(INTERNAL_ERROR, f"Expander {name} not supported")
    return filters
