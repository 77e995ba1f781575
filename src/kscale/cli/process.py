"""Running a program from the command line: logs, signals, the client, and the exit status.

A program's module under ``kscale.cli.commands.run`` has a ``command`` with its flags (:class:`ProcessFlags`, mostly
:class:`LeaseFlags`, and its own), ``COMMAND = GoCommand`` or a subclass that refuses flags by name, and ends with
:func:`run_program`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

import typer

import kscale
from kscale.cli.go_flags import given_flags, idle_flags
from kscale.cli.logs import set_up_logs
from kscale.cli.process_flags import ProcessFlags
from kscale.errors import InputError, KscaleError, Problem
from kscale.records import Record, to_json

if TYPE_CHECKING:
    from kscale.drivers.leader_election import LeaderElectionOptions
    from kscale.drivers.process import Build

__all__ = ["FAILED", "print_record", "run_program"]

FAILED: Final = 1
"""The exit status of a program that could not go on."""

_log = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def run_program(
    name: str,
    flags: ProcessFlags,
    build: Build,
    *,
    election: LeaderElectionOptions | None = None,
    qps: float = 0.0,
    burst: int = 0,
    user_agent: str = "",
    server: str = "",
) -> None:
    """Runs a program until a signal ends it.

    ``name``: as upstream calls it; ``qps``, ``burst``: the client-side rate limit (0: client-go's); ``server``: another
    API server than the kubeconfig's. Raises InputError
    for flags and a kubeconfig that cannot be used (exit status 2), ``typer.Exit`` with :data:`FAILED` for a program
    that could not go on, for instance because another leads.
    """
    if flags.log_format not in ("text", "json"):
        raise InputError(Problem(f"{flags.log_format!r} is neither text nor json", field="--log-format"))
    least = flags.least_level()
    from kscale.drivers.process import ProcessOptions
    from kscale.world.kubernetes.access import without_password
    from kscale.world.kubernetes.kubeconfig import load_access
    from kscale.world.serve.app import parse_address

    if election is not None and (problems := election.problems()):
        raise InputError(problems)
    if flags.address:
        parse_address(flags.address)
    options = ProcessOptions(
        address=flags.address,
        tls=flags.tls(),
        limits=flags.connection_limits(),
        election=election,
        dry_run=flags.dry_run,
    )
    limits = flags.limits()
    access = load_access(flags.kubeconfig, context=flags.context)
    if server:
        access = access.at(server)
    set_up_logs(flags.verbosity, flags.log_format, least=least)
    _log.info("kscale %s %s%s", name, kscale.__version__, " (dry run: nothing is written)" if flags.dry_run else "")
    _log.info("flags", extra={flag: without_password(value) for flag, value in given_flags()})
    for flag, why in idle_flags().items():
        _log.warning("%s is not heeded: %s", flag, why)
    _log.info("API server %s", without_password(access.server))

    async def main() -> None:
        from kscale.drivers.process import run_process
        from kscale.world.clock import SystemClock
        from kscale.world.kubernetes.aiohttp_transport import connect

        clock = SystemClock()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, _told, each, stop)
        client = connect(access, clock, user_agent=user_agent or name, qps=qps, burst=burst, limits=limits)
        try:
            await run_process(build, client, options, version=kscale.__version__, stop=stop, clock=clock)
        finally:
            await client.close()

    try:
        asyncio.run(main())
    except InputError:
        raise
    except KscaleError as error:
        _log.critical("%s", error)
        raise typer.Exit(FAILED) from None
    _log.info("ended")


def print_record(record: Record) -> None:
    """A record that a program tells as it goes: one line of JSON."""
    sys.stdout.write(to_json(record).decode() + "\n")
    sys.stdout.flush()


def _told(number: signal.Signals, stop: asyncio.Event) -> None:
    _log.info("received signal %s, ending", number.name)
    stop.set()
