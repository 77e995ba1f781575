"""Flags that every running program has: world, cluster access, endpoints, logs, lease, limits of servers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from kscale.cli.go_flags import KLOG_IDLE, Idle, go_duration, idle_switches, positive_seconds
from kscale.cli.live_inputs import ServerLimitFlags
from kscale.cli.options import OptionGroup, Switch
from kscale.errors import InputError, Problem
from kscale.objects.go_numbers import parse_int64

if TYPE_CHECKING:
    from kscale.drivers.leader_election import LeaderElectionOptions
    from kscale.world.serve.app import ConnectionLimits
    from kscale.world.serve.tls import ReloadingContext

__all__ = ["IDLE", "ApiFlags", "LeaseFlags", "ProcessFlags", "ServerFlags", "WorldFlags", "host_name"]


_SEVERITIES: Final = {"INFO": 0, "WARNING": 30, "ERROR": 40, "FATAL": 50}
"""Of klog, by the levels of Python's logging from which on they are."""


@dataclass(eq=False, repr=False, init=False)
class ServerFlags(OptionGroup):
    """Flags for the limits of HTTP servers.

    Attributes
    ----------
    http_max_connections
        Open connections of each HTTP server; further ones wait until one is closed.
    http_read_timeout : DURATION
        Close a connection that takes longer to send its request or to read its answer.
    http_idle_timeout : DURATION
        Close a connection that sends no further request for this time.
    """

    title = "HTTP servers"

    http_max_connections: Annotated[int, typer.Option(min=1)] = 1000
    http_read_timeout: str = "10s"
    http_idle_timeout: str = "1m30s"

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits. Raises InputError if a duration is malformed or not above zero."""
        from kscale.world.serve.app import ConnectionLimits

        return ConnectionLimits(
            connections=self.http_max_connections,
            read_timeout=positive_seconds(self.http_read_timeout, "--http-read-timeout"),
            idle_timeout=positive_seconds(self.http_idle_timeout, "--http-idle-timeout"),
        )


@dataclass(eq=False, repr=False, init=False)
class ProcessFlags(ServerFlags, ServerLimitFlags):
    """Flags of the process of every program. A program with another default has a subclass.

    Attributes
    ----------
    kubeconfig : FILE
        Path of the kubeconfig; empty: KUBECONFIG, ~/.kube/config, or the service account of this pod.
    context : NAME
        Context of the kubeconfig to use.
    address : HOST:PORT
        Address that serves /metrics and /health-check; empty: none.
    tls_cert_file : FILE
        Certificate file; with it, metrics are served over TLS. The file may be replaced at any time.
    tls_private_key_file : FILE
        File of the certificate's private key.
    verbosity : LEVEL
        Verbosity of the logs; 4 adds details.
    logtostderr
        Write logs to stderr only.
    stderrthreshold : LEVEL
        Lowest severity that is logged: INFO, WARNING, ERROR or FATAL, or 0 to 3.
    log_format : text|json
        Format of the logs.
    dry_run
        Log what would be done, and write nothing (no lease, no events, no status).
    """

    title = "Process"
    common: ClassVar[Sequence[str]] = ("kubeconfig", "context", "dry_run", "address", "verbosity")

    kubeconfig: str = ""
    context: str = ""
    address: str = ":8085"
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    verbosity: Annotated[int, typer.Option("--v", "-v", min=0)] = 0
    logtostderr: Switch = True
    stderrthreshold: str = "INFO"
    log_format: str = "text"
    dry_run: bool = False

    def get_log_level(self) -> int:
        """Return the lowest level of :mod:`logging` that is written, according to ``--stderrthreshold``.

        ======================  ==============================================
        ``--stderrthreshold``   Level
        ======================  ==============================================
        ``INFO`` or ``0``       0: everything is written that ``-v`` lets pass
        ``WARNING`` or ``1``    30 (``logging.WARNING``)
        ``ERROR`` or ``2``      40 (``logging.ERROR``)
        ``FATAL`` or ``3``      50 (``logging.CRITICAL``)
        ======================  ==============================================

        Raises InputError if ``--stderrthreshold`` has another value, or if ``--logtostderr`` is off.
        """
        if not self.logtostderr:
            raise InputError(Problem("logs go to stderr: there is no log file", field="--logtostderr"))
        text = self.stderrthreshold.upper()
        number = parse_int64(text)
        if number is not None and 0 <= number < len(_SEVERITIES):
            return [*_SEVERITIES.values()][number]
        if text not in _SEVERITIES:
            raise InputError(Problem(f"unknown severity name {self.stderrthreshold}", field="--stderrthreshold"))
        return _SEVERITIES[text]

    def tls(self) -> ReloadingContext | None:
        """Return the TLS context of the HTTP endpoints; None if no certificate file is set.

        Raises InputError if only one of ``--tls-cert-file`` and ``--tls-private-key-file`` is set.
        """
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise InputError("--tls-cert-file and --tls-private-key-file go together")
        if not self.tls_cert_file:
            return None
        from kscale.world.serve.tls import ReloadingContext

        return ReloadingContext(self.tls_cert_file, self.tls_private_key_file)


@dataclass(eq=False, repr=False, init=False)
class LeaseFlags(OptionGroup):
    """Upstream's flags of leader election. A program with another default has a subclass.

    Attributes
    ----------
    leader_elect
        Act only while holding the lease.
    leader_elect_lease_duration : DURATION
        Time after which another replica may take a lease that is not renewed.
    leader_elect_renew_deadline : DURATION
        Time after which a leader that cannot renew its lease gives up.
    leader_elect_retry_period : DURATION
        Wait between two tries to get or renew the lease.
    leader_elect_resource_lock
        Kind of the lock; leases is the only one.
    leader_elect_resource_name
        Name of the lease.
    leader_elect_resource_namespace
        Namespace of the lease.
    """

    title = "Leader election"
    common = ("leader_elect",)

    leader_elect: Switch = True
    leader_elect_lease_duration: str = "15s"
    leader_elect_renew_deadline: str = "10s"
    leader_elect_retry_period: str = "2s"
    leader_elect_resource_lock: str = "leases"
    leader_elect_resource_name: str = ""
    leader_elect_resource_namespace: str = "kube-system"

    def election(self, *, identity: str = "", namespace: str = "") -> LeaderElectionOptions | None:
        """Return the options of leader election; None if ``--leader-elect`` is off.

        ``identity`` defaults to the host name and a unique suffix, ``namespace`` to the flag's value. Raises InputError
        for another lock than leases and for a malformed duration; the durations are not compared here.
        """
        if not self.leader_elect:
            return None
        if self.leader_elect_resource_lock != "leases":
            text = f"Invalid lock-type {self.leader_elect_resource_lock}: leases is the only one"
            if self.leader_elect_resource_lock == "endpoints":
                text += "; older releases could lock Endpoints, which client-go no longer offers"
            raise InputError(Problem(text, field="--leader-elect-resource-lock"))
        from uuid import uuid4

        from kscale.drivers.leader_election import LeaderElectionOptions

        return LeaderElectionOptions(
            identity=identity or f"{host_name()}_{uuid4()}",
            resource_name=self.leader_elect_resource_name,
            resource_namespace=namespace or self.leader_elect_resource_namespace,
            **{
                name: go_duration(getattr(self, f"leader_elect_{name}"), f"--leader-elect-{name.replace('_', '-')}")
                for name in ("lease_duration", "renew_deadline", "retry_period")
            },
        )


def host_name() -> str:
    """Return the pod's name from HOSTNAME, or else the host's name."""
    from socket import gethostname

    return os.environ.get("HOSTNAME") or gethostname()


IDLE: Final[Mapping[str, Idle]] = {**idle_switches("there are no Go profiles", "profiling"), **KLOG_IDLE}
"""Flags of upstream's programs that have an effect there, and none here."""


@dataclass(eq=False, repr=False, init=False)
class ApiFlags(OptionGroup):
    """Flags for the rate limit of requests to the API server.

    Attributes
    ----------
    kube_api_qps
        Maximum number of requests to the API server per second; negative: no limit.
    kube_api_burst
        Maximum number of requests to the API server at once.
    """

    title = "Process"

    kube_api_qps: float = 50.0
    kube_api_burst: int = 100


@dataclass(eq=False, repr=False, init=False)
class WorldFlags(OptionGroup):
    """Flags for the cluster, real or simulated, in which the program runs.

    Attributes
    ----------
    world : live|simulated
        Run on a cluster, or on a simulated one in virtual time, which prints what happened at the end.
    scenario : FILE
        Scenario of the simulated cluster (see kscale simulate); empty: the example that comes with kscale.
    """

    title = "World"
    common = ("world", "scenario")

    world: str = "live"
    scenario: str = ""
