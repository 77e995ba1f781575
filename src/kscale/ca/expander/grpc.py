"""grpc: an outside ranker decides (``expander/grpcplugin``). What is asked and how an answer counts; no client."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kscale.ca.expander.types import ExpanderInput, Filtered, GrpcOption, Option, Ranking, RankOptions

__all__ = ["grpc_steps"]


def grpc_steps(options: Sequence[Option], given: ExpanderInput) -> Generator[RankOptions, Ranking | None, Filtered]:
    """Yields the question, is sent the :class:`Ranking` (None: there is no client), and returns what is left.

    No client, an error, or an answer that names only unknown groups leaves all options; an empty answer leaves none.
    Survivors stand in the ranker's order.
    """
    question = RankOptions(
        options=[
            GrpcOption(node_group_id=o.group, node_count=o.node_count, debug=o.debug, pods=o.pods) for o in options
        ],
        nodes=given.nodes,
    )
    ranking = yield question
    if ranking is None or ranking.error is not None:
        return Filtered(survivors=list(options))
    if not ranking.groups:
        return Filtered(survivors=[])
    by_id = {option.group: option for option in options}
    named = [by_id[group] for group in ranking.groups if group is not None and group in by_id]
    return Filtered(survivors=named or list(options))
