"""``kscale serve expander``: rank the options of a Cluster Autoscaler over gRPC."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kscale.cli.go_flags import GoCommand
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from kscale.ca.expander.rankers import RankedOption
    from kscale.effects import ApiError, Ranking, RankOptions

__all__ = ["COMMAND", "ranker", "serve_expander"]


_log = logging.getLogger(__name__)


class COMMAND(GoCommand):
    """The typer command, whose flags have the syntax of the Cluster Autoscaler's."""


def serve_expander(
    *,
    rule: Annotated[str, typer.Argument()],
    address: str = "0.0.0.0:7000",
    cert: Annotated[str, typer.Option("--tls-cert-file")],
    key: Annotated[str, typer.Option("--tls-private-key-file")],
    client_ca: Annotated[str, typer.Option("--client-ca-file")] = "",
    groups_file: Annotated[str, typer.Option("-g", "--groups")] = "",
    verbosity: Annotated[int, typer.Option("--v", "-v", min=0)] = 0,
    log_format: str = "text",
) -> None:
    """Rank the options of a Cluster Autoscaler's scale-ups over gRPC, for upstream's autoscaler or kscale's.

    Start the autoscaler with --expander=grpc --grpc-expander-url=HOST:PORT --grpc-expander-cert=FILE. It speaks TLS
    only. RULE may be a function that takes a request (kscale.effects.RankOptions) and returns the ids of the best
    groups, best first. Runs until a signal ends it.

    Parameters
    ----------
    rule : RULE
        least-cost, least-waste, or a function: FILE.py:NAME, MODULE:NAME.
    address : HOST:PORT
        Address that the server listens on; port 0: any free port.
    cert : FILE
        Certificate file of the server.
    key : FILE
        File of the server certificate's private key.
    client_ca : FILE
        File of the certificate authority that signed the clients' certificates; other clients are refused.
    groups_file : FILE
        Node groups with their prices, for least-cost.
    verbosity : LEVEL
        Verbosity of the logs; 4 adds details.
    log_format : text|json
        Format of the logs on stderr.

    Raises
    ------
    InputError
        If --log-format is unknown, or the rule's inputs are missing or superfluous.
    """
    if log_format not in ("text", "json"):
        raise InputError(Problem(f"{log_format!r} is neither text nor json", field="--log-format"))
    from kscale.cli.process import set_up_logs
    from kscale.drivers.grpc_expander import ExpanderServer

    rank = ranker(rule, groups_file)
    server = ExpanderServer(rank, address, cert=cert, key=key, client_ca=client_ca)
    set_up_logs(verbosity, log_format)
    with server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        _log.info("expander %s listens at %s", rule, server.url)
        server.wait()
    _log.info("ended")


def ranker(rule: str, groups_file: str = "") -> Callable[[RankOptions], Ranking | ApiError]:
    """Return the ranking function for a rule's name. Raises InputError if its inputs are missing or superfluous."""
    from kscale.ca.expander.rankers import least_cost, least_waste

    if groups_file and rule != "least-cost":
        raise InputError(Problem(f"{rule} does not look at prices", field="--groups"))
    if rule == "least-waste":
        return lambda request: _best(least_waste(request))
    if rule == "least-cost":
        if not groups_file:
            raise InputError(Problem("least-cost needs the groups' prices", field="--groups"))
        from kscale.capacity.groups import read_groups

        prices = {group.id: group.price for group in read_groups(groups_file) if group.price is not None}
        if not prices:
            raise InputError(Problem("no group has a price", groups_file))
        return lambda request: _best(least_cost(request, prices))
    return _import_ranker(rule)


def _best(ranked: list[RankedOption]) -> Ranking:
    """Rank groups: return the ids of the best ones, with a warning for each group that could not be scored.

    Raises InputError if no group could be scored.
    """
    from kscale.ca.expander.rankers import best_of
    from kscale.effects import Ranking

    for each in ranked:
        _log.debug("%s: %s", each.group, each.note)
    unranked = [f"node group {each.group} is left out: {each.note}" for each in ranked if each.score is None]
    return Ranking(groups=tuple(best_of(ranked)), warnings=tuple(unranked))


def _import_ranker(rule: str) -> Callable[[RankOptions], Ranking]:
    """Import the user's ranking function: ``FILE.py:NAME`` or ``MODULE:NAME``. Raises InputError if that fails."""
    from kscale.effects import Ranking

    module_name, colon, name = rule.rpartition(":")
    if not colon:
        raise InputError(Problem(f"no rule {rule!r}: there are least-cost, least-waste, FILE.py:NAME", field="RULE"))
    try:
        module = _load_module(Path(module_name)) if module_name.endswith(".py") else import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(Problem(f"{type(error).__name__}: {error}", module_name)) from error
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise InputError(Problem(f"there is no function {name}", module_name))

    def rank(request: RankOptions) -> Ranking:
        """Rank with the user's function, whose errors pass through. A group that is named twice counts once.

        Raises InputError if the result is not ids of the offered groups.
        """
        ranked = function(request)
        if isinstance(ranked, str) or not isinstance(ranked, Iterable):
            raise InputError(f"{rule} returned {ranked!r}, not ids of groups")
        groups = list(ranked)
        offered = {option.group for option in request.options}
        for group in groups:
            if group not in offered:
                raise InputError(f"{rule} returned {group!r}, which is none of the options")
        return Ranking(groups=tuple(dict.fromkeys(groups)))

    return rank


def _load_module(path: Path) -> ModuleType:
    """Import a Python file as a module. Raises ImportError, and whatever the file raises."""
    spec = spec_from_file_location(f"kscale_expander_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
