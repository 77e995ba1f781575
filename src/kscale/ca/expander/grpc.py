"""grpc: an outside ranker decides (``expander/grpcplugin``). What is asked and how an answer counts.

The client is :mod:`kscale.drivers.grpc_expander`: a decision does not talk to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kscale.ca.expander.types import ExpanderInput, Filtered, Option
from kscale.effects import ApiError, Progress, RankOption, RankOptions, StepsOf

__all__ = ["NO_CLIENT", "grpc_steps"]

NO_CLIENT: Final = ApiError("Incorrect gRPC client config", reason="NotConfigured")
"""The answer where there is nobody to ask."""


def grpc_steps(p: Progress, options: Sequence[Option], given: ExpanderInput) -> StepsOf[RankOptions, Filtered]:
    """Asks the ranker, and returns what is left.

    An error, or an answer that names only unknown groups, leaves all options; an empty answer leaves none. Survivors
    stand in the ranker's order. ``warnings`` are what upstream logs.
    """
    outcome = yield from p.act(
        RankOptions(
            options=[RankOption(group=o.group, node_count=o.node_count, debug=o.debug, pods=o.pods) for o in options],
            nodes=given.nodes,
            bare=given.compared,
        )
    )
    if outcome.error is not None:
        if outcome.error == NO_CLIENT:
            text = f"{outcome.error.message}, filtering no options"
        else:
            text = f"GRPC call failed, no options filtered: {outcome.error.message}"
        return Filtered(survivors=list(options), warnings=[text])
    ranking = outcome.value
    warnings = list(ranking.warnings)
    if not ranking.groups:
        return Filtered(survivors=[], warnings=[*warnings, "GRPC returned nil bestOptions"])
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
    return Filtered(survivors=named or list(options), warnings=warnings)
