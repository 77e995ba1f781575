"""Read the HPAs of a live cluster and their inputs, and the owners of custom kinds, once; nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from kscale.drivers.live import Live
from kscale.effects import Machine
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.dump.dump import Dump, read_dump, request_missing_steps
from kscale.hpa.options import HPAOptions
from kscale.vpa.custom_owners import CustomOwner, CustomOwners, request_custom_owners_steps
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.listing import NEEDED_FOR_HPAS, READ_FOR_HPAS, Listing, Tell, list_cluster
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.metrics.rest import RESTMetrics
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
    """What :func:`~kscale.hpa.dump.dump.read_dump` would read of a dump, and what was listed for it.

    HPAs, pods and usual targets are listed; scales of other targets and metrics are asked for as the controller asks
    for them, which depends on ``state`` (None: settled) and ``options``. ``namespaces``: HPAs of others are left out,
    and nothing is asked for them (None: none is); those of one are decided together, as rivals for pods block each
    other. Raises
    :class:`~kscale.world.kubernetes.client.RequestFailedError` where HPAs or pods may not be listed, and
    :class:`~kscale.errors.InputError` for objects that cannot be read (without ``strict`` they are left out).
    """
    listing = await list_cluster(client, READ_FOR_HPAS, needed=NEEDED_FOR_HPAS, tell=tell)
    dump = read_dump(*listing.pages, strict=strict)
    if namespaces is not None:
        dump.leave_out_hpas(namespaces)
    await _run(client, clock, partial(request_missing_steps, dump, state, options or HPAOptions()))
    return dump, listing


async def read_custom_owners(client: Client, clock: Clock, owners: Sequence[CustomOwner]) -> CustomOwners:
    """Ask a live cluster which custom owners have a scale, and for these scales."""
    answer: CustomOwners = await _run(client, clock, partial(request_custom_owners_steps, owners, _AT_A_TIME))
    return answer


async def _run(client: Client, clock: Clock, machine: Machine) -> Any:
    resources = Resources(client)
    perform = Performer(client, clock, resources=resources, metrics=RESTMetrics(client, resources, clock))
    async with Live(perform, clock) as live:
        return await live.run(machine)
