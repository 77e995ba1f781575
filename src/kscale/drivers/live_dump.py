"""Read the HPAs of a live cluster and their inputs, and the owners of custom kinds, once; nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from kscale.drivers.live import Live
from kscale.effects import Machine
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.dump.dump import Dump, request_missing_steps
from kscale.hpa.dump.reader import read_dump
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.vpa.controllers import CustomOwner, CustomOwners, request_custom_owners_steps
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.listing import NEEDED_FOR_HPAS, READ_FOR_HPAS, Listing, Tell, list_cluster
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.metrics_apis import RESTMetrics
from kscale.world.protocols import Clock

__all__ = ["read_custom_owners", "read_live_dump"]

_AT_A_TIME = 8
"""Requests for scales at a time."""


async def read_live_dump(
    client: Client,
    clock: Clock,
    *,
    state: ControllerState | None = None,
    options: HPAOptions | None = None,
    strict: bool = True,
    namespaces: Collection[str] | None = None,
    tell: Tell = lambda *_: None,
) -> tuple[Dump, Listing]:
    """Read the HPAs of a live cluster and their inputs, as :func:`~kscale.hpa.dump.reader.read_dump` reads a dump.

    HPAs, pods, Deployments and other usual targets are listed. The scales of other kinds of targets, and the metrics,
    are requested one by one as the controller would, which depends on ``state`` and ``options``.

    Parameters
    ----------
    client : Client
        Client of the API server.
    clock : Clock
        Clock of the requests.
    state : ControllerState, optional
        State of the controller. Default: stable.
    options : HPAOptions, optional
        Options of the controller.
    strict : bool
        Raise for objects that cannot be read; otherwise they are left out.
    namespaces : collection of str, optional
        Namespaces whose HPAs are read (None: all). HPAs of one namespace are decided together, as HPAs that select the
        same pods block each other.
    tell : callable
        Called after each page of a list with (objects so far, objects expected in total).

    Returns
    -------
    tuple of Dump and Listing
        The inputs, and what was listed for them.

    Raises
    ------
    RequestFailedError
        If HPAs or pods may not be listed, or a list fails
        (:class:`~kscale.world.kubernetes.client.RequestFailedError`).
    InputError
        For objects that cannot be read, if ``strict``.
    """
    listing = await list_cluster(client, READ_FOR_HPAS, needed=NEEDED_FOR_HPAS, tell=tell)
    dump = read_dump(*listing.pages, strict=strict)
    if namespaces is not None:
        dump.keep_namespaces(namespaces)
    await _run(client, clock, partial(request_missing_steps, dump, state, options or DEFAULT_OPTIONS))
    return dump, listing


async def read_custom_owners(client: Client, clock: Clock, owners: Sequence[CustomOwner]) -> CustomOwners:
    """Request the scales of custom owners from a live cluster. The result also says which owners have no scale."""
    answer: CustomOwners = await _run(client, clock, partial(request_custom_owners_steps, owners, _AT_A_TIME))
    return answer


async def _run(client: Client, clock: Clock, machine: Machine) -> Any:
    """Run a step machine whose requests go to the cluster of ``client``, and return its value."""
    resources = Resources(client)
    perform = Performer(client, clock, resources=resources, metrics=RESTMetrics(client, resources, clock))
    async with Live(perform, clock) as live:
        return await live.run(machine)
