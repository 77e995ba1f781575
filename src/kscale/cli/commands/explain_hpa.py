"""``kscale explain hpa``: pod groups and every intermediate of HPAs."""

from __future__ import annotations

from typing import Annotated

import typer

from kscale.cli.commands.hpa import answer
from kscale.cli.hpa_options import ControllerFlags
from kscale.cli.live_inputs import NamingClusters
from kscale.cli.output import Answer, Show

__all__ = ["command"]


def command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="[NS/]NAME...", help="The HPAs to explain; without a namespace, -n or default."),
    ],
    *,
    source: NamingClusters,
    controller: ControllerFlags,
    show: Show,
    metrics: Annotated[
        list[str] | None, typer.Option("--metrics", metavar="[SCOPE=]FILE", help="As of kscale hpa.")
    ] = None,
    now: Annotated[str, typer.Option("--now", metavar="TIME", help="As of kscale hpa.")] = "",
    state: Annotated[str, typer.Option("--state", metavar="settled|fresh|FILE", help="As of kscale hpa.")] = "settled",
) -> Answer:
    """How an HPA comes to its size: the pods by group, the ratio of usage to target, the proposal, and what held it."""
    return answer(names, source, show, options=controller.options(), metrics=metrics or (), now=now, state=state)
