"""grpc: an outside ranker decides (``expander/grpcplugin``). What is asked and how an answer counts.

The client is :mod:`kscale.drivers.grpc_expander`: a decision does not talk to anybody.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kscale.ca.expander.types import ExpanderInput, Filtered, GrpcOption, Option, Ranking, RankOptions

__all__ = ["grpc_steps"]


def grpc_steps(options: Sequence[Option], given: ExpanderInput) -> Generator[RankOptions, Ranking | None, Filtered]:
    """Yields the question, is sent the :class:`Ranking` (None: there is no client), and returns what is left.

    No client, an error, or an answer that names only unknown groups leaves all options; an empty answer leaves none.
    Survivors stand in the ranker's order. ``warnings`` are what upstream logs.
    """
    question = RankOptions(
        options=[
            GrpcOption(node_group_id=o.group, node_count=o.node_count, debug=o.debug, pods=o.pods) for o in options
        ],
        nodes=given.nodes,
        compared=given.compared,
    )
    ranking = yield question
    if ranking is None:
        return Filtered(survivors=list(options), warnings=["Incorrect gRPC client config, filtering no options"])
    warnings = list(ranking.warnings)
    if ranking.error is not None:
        warnings.append(f"GRPC call failed, no options filtered: {ranking.error}")
        return Filtered(survivors=list(options), warnings=warnings)
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
