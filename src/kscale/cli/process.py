"""Run a program from the command line: logs, signals, client and exit status.

A program's module under ``kscale.cli.commands.run`` has a ``command`` with its flags (:class:`ProcessFlags`, mostly
:class:`LeaseFlags`, and its own), ``COMMAND = GoCommand`` or a subclass that refuses flags by name, and ends with
:func:`run_program`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer

import kscale
from kscale.cli.go_flags import given_flags, idle_flags
from kscale.cli.inputs import collect_garbage_of_connections, return_large_buffers
from kscale.cli.process_flags import ProcessFlags
from kscale.cli.terminal import on_one_line
from kscale.effects import to_text
from kscale.errors import InputError, KscaleError, Problem
from kscale.imports import import_aiohttp_without_authorities
from kscale.records import Record

if TYPE_CHECKING:
    from kscale.drivers.leader_election import LeaderElectionOptions
    from kscale.drivers.process import Build

__all__ = ["FAILED", "print_record", "run_program", "set_up_logs"]


_DETAILED: Final = 4
_LEVELS: Final = {10: "D", 20: "I", 30: "W", 40: "E", 50: "F"}
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def set_up_logs(verbosity: int, format_: str, *, min_level: int = 0, stream: TextIO | None = None) -> None:
    """Write kscale's log messages to ``stream``, by default stderr. Replaces the handlers of kscale's logger.

    Parameters
    ----------
    verbosity : int
        As klog's ``-v``: details are included from 4 on.
    format_ : str
        ``json``, else text. Values passed as ``extra`` become keys in JSON and follow the message in text.
    min_level : int
        Lowest level of Python's logging that is written.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if format_ == "json" else _Text())
    handler.setLevel(min_level)
    log = logging.getLogger("kscale")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if verbosity >= _DETAILED else logging.INFO)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line (letter of the level, time, logger, message, fields), then its traceback."""
        more = "".join(f" {key}={json.dumps(value, default=str)}" for key, value in _extra(record).items())
        line = f"{_LEVELS.get(record.levelno, 'I')} {_format_time(record)} {record.name}: {record.getMessage()}{more}"
        return on_one_line(line) + _trace(self, record, "\n")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON: time, level, logger, message, extra values and traceback."""
        line = {
            "ts": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_extra(record),
        }
        if trace := _trace(self, record):
            line["trace"] = trace
        return json.dumps(line, default=str)


def _format_time(record: logging.LogRecord) -> str:
    """Return the time of the record as RFC 3339 with a fraction."""
    return to_text(int(record.created * 1e6) * 1000, fraction=True) or ""


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return the values that the log call passed as ``extra``."""
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


def _trace(formatter: logging.Formatter, record: logging.LogRecord, before: str = "") -> str:
    """Return ``before`` and the traceback of the record's exception; empty without an exception."""
    return before + formatter.formatException(record.exc_info) if record.exc_info else ""


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
    """Run a program until a signal ends it.

    Parameters
    ----------
    name : str
        Upstream's name of the program.
    flags : ProcessFlags
        API server, logs, HTTP endpoints and dry run.
    build : Build
        Called once connected; assembles the program.
    election : LeaderElectionOptions, optional
        Default: no leader election.
    qps, burst : float, int
        Client-side rate limit; 0 selects client-go's default.
    user_agent : str
        Of requests to the API server. Default: ``name``.
    server : str
        API server to use instead of the kubeconfig's.

    Raises
    ------
    InputError
        If flags or the kubeconfig cannot be used (exit status 2).
    typer.Exit
        With :data:`FAILED` if the program cannot continue, for instance because another instance leads.
    """
    if flags.log_format not in ("text", "json"):
        raise InputError(Problem(f"{flags.log_format!r} is neither text nor json", field="--log-format"))
    level = flags.get_log_level()
    from kscale.drivers.process import ProcessOptions
    from kscale.world.kubernetes.kubeconfig import load_access, without_password
    from kscale.world.serve.app import parse_address

    import_aiohttp_without_authorities()
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
        access = access.with_server(server)
    set_up_logs(flags.verbosity, flags.log_format, min_level=level)
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
            loop.add_signal_handler(each, _handle_signal, each, stop)
        client = connect(access, clock, user_agent=user_agent or name, qps=qps, burst=burst, limits=limits)
        try:
            await run_process(build, client, options, version=kscale.__version__, stop=stop, clock=clock)
        finally:
            await client.close()

    collect_garbage_of_connections()
    return_large_buffers()
    handlers = {each: signal.getsignal(each) for each in _SIGNALS}
    try:
        with asyncio.Runner(loop_factory=_create_event_loop) as runner:
            runner.run(main())
    except InputError:
        raise
    except KscaleError as error:
        _log.critical("%s", error)
        raise typer.Exit(FAILED) from None
    finally:
        for each, handler in handlers.items():  # a closed loop of uvloop keeps its handlers, which ignore the signals
            if handler is not None:  # None: it was not set from Python
                signal.signal(each, handler)
    _log.info("ended")


def _create_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's if it is installed, else asyncio's, which takes more CPU time for TLS."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return new_event_loop()


def print_record(record: Record) -> None:
    """Print a record on stdout as one line of JSON."""
    sys.stdout.write(record.to_json().decode() + "\n")
    sys.stdout.flush()


def _handle_signal(number: signal.Signals, stop: asyncio.Event) -> None:
    """Log the signal and ask the program to stop."""
    _log.info("received signal %s, ending", number.name)
    stop.set()
