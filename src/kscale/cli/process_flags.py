"""Flags that every running program has (cluster access, endpoints, logs, lease, limits on what an API server may
send), and those of the VPA programs.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from kscale.cli.go_flags import KLOG_IDLE, Idle, idle_switches
from kscale.cli.options import OptionGroup, Switch
from kscale.effects import duration, timedelta_of
from kscale.errors import InputError, Problem
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import format_duration, parse_duration

if TYPE_CHECKING:
    from kscale.drivers.leader_election import LeaderElectionOptions
    from kscale.world.kubernetes.transport import ServerLimits
    from kscale.world.serve.app import ConnectionLimits
    from kscale.world.serve.tls import ReloadingContext

__all__ = [
    "COMMON",
    "IDLE",
    "PANEL",
    "Address",
    "ApiFlags",
    "LeaderElect",
    "LeaseFlags",
    "LeaseName",
    "ProcessFlags",
    "ServerFlags",
    "ServerLimitFlags",
    "flag_of",
    "flags_of",
    "go_duration",
    "host_name",
    "positive_seconds",
    "struct_of",
]


_LIMITS: Final = "Limits of what an API server sends"


@dataclass
class ServerLimitFlags(OptionGroup):
    """How much is taken from an API server.

    Attributes
    ----------
    kube_api_max_response_bytes : BYTES
        Largest response of an API server, decompressed; also the events of a watch that wait.
    kube_api_max_buffered_bytes : BYTES
        Size of all responses of an API server that are being read at once; further ones wait.
    kube_api_max_list_pages : N
        Largest number of pages of a list; a page has up to 500 objects.
    kube_api_max_line_bytes : BYTES
        Longest line of a watch.
    kube_api_max_header_bytes : BYTES
        Longest header of a response.
    kube_api_request_timeout : DURATION
        Time for a whole response, or for the headers of a watch.
    kube_api_max_retry_after : DURATION
        Longest Retry-After that is waited for; a longer one counts as this.
    """

    kube_api_max_response_bytes: Annotated[int, typer.Option(min=1 << 16)] = 256 << 20
    kube_api_max_buffered_bytes: Annotated[int, typer.Option(min=1 << 16)] = 256 << 20
    kube_api_max_list_pages: Annotated[int, typer.Option(min=1)] = 2000
    kube_api_max_line_bytes: Annotated[int, typer.Option(min=1 << 12)] = 16 << 20
    kube_api_max_header_bytes: Annotated[int, typer.Option(min=1 << 8)] = 16 << 10
    kube_api_request_timeout: str = "1m0s"
    kube_api_max_retry_after: str = "30s"

    def limits(self) -> ServerLimits:
        """How much is taken from an API server. Raises InputError."""
        from kscale.world.kubernetes.transport import ServerLimits

        request = go_duration(self.kube_api_request_timeout, "--kube-api-request-timeout").total_seconds()
        if request <= 0:
            raise InputError(Problem("must be more than 0", field="--kube-api-request-timeout"))
        retry = go_duration(self.kube_api_max_retry_after, "--kube-api-max-retry-after").total_seconds()
        return ServerLimits(
            response_bytes=self.kube_api_max_response_bytes,
            buffered_bytes=self.kube_api_max_buffered_bytes,
            list_pages=self.kube_api_max_list_pages,
            line_bytes=self.kube_api_max_line_bytes,
            header_bytes=self.kube_api_max_header_bytes,
            request_seconds=request,
            retry_seconds=retry,
        )


_PROCESS: Final = "Process"
_SERVER: Final = "HTTP server"
_LEASE: Final = "Leader election"
_SEVERITIES: Final = {"INFO": 0, "WARNING": 30, "ERROR": 40, "FATAL": 50}
"""Of klog, by the levels of Python's logging from which on they are."""
_TIME: Final = {"metavar": "DURATION", "rich_help_panel": _LEASE}


@dataclass
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


@dataclass
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
        Decide and say what would be done; write nothing (no lease, no events, no status).
    """

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
        """Return the lowest level of Python's logging that is written; 0 writes everything that ``-v`` allows.

        Raises InputError for an unknown severity, or if ``--logtostderr`` is off.
        """
        if not self.logtostderr:
            raise InputError(Problem("logs go to stderr: there is no log file", field="--logtostderr"))
        text = self.stderrthreshold.upper()
        if text.isdecimal() and int(text) < len(_SEVERITIES):
            return [*_SEVERITIES.values()][int(text)]
        if text not in _SEVERITIES:
            raise InputError(Problem(f"unknown severity name {self.stderrthreshold}", field="--stderrthreshold"))
        return _SEVERITIES[text]

    def tls(self) -> ReloadingContext | None:
        """Return the TLS context for endpoints; None without TLS. Raises InputError if only one of both files is
        set."""
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise InputError("--tls-cert-file and --tls-private-key-file go together")
        if not self.tls_cert_file:
            return None
        from kscale.world.serve.tls import ReloadingContext

        return ReloadingContext(self.tls_cert_file, self.tls_private_key_file)


@dataclass
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

    leader_elect: Switch = True
    leader_elect_lease_duration: str = "15s"
    leader_elect_renew_deadline: str = "10s"
    leader_elect_retry_period: str = "2s"
    leader_elect_resource_lock: str = "leases"
    leader_elect_resource_name: str = ""
    leader_elect_resource_namespace: str = "kube-system"

    def election(self, *, identity: str = "", namespace: str = "") -> LeaderElectionOptions | None:
        """Return the leader election options; None without leader election.

        ``identity`` defaults to the host name and a unique suffix, ``namespace`` to the flag's. Raises InputError for
        what upstream refuses.
        """
        if not self.leader_elect:
            return None
        if self.leader_elect_resource_lock != "leases":
            text = f"Invalid lock-type {self.leader_elect_resource_lock}: leases is the only one"
            if self.leader_elect_resource_lock == "endpoints":
                text += "; older releases could lock Endpoints, which client-go no longer offers"
            raise InputError(Problem(text, field="--leader-elect-resource-lock"))
        from kscale.drivers.leader_election import LeaderElectionOptions

        return LeaderElectionOptions(
            identity=identity or f"{host_name()}_{uuid.uuid4()}",
            resource_name=self.leader_elect_resource_name,
            resource_namespace=namespace or self.leader_elect_resource_namespace,
            lease_duration=go_duration(self.leader_elect_lease_duration, "--leader-elect-lease-duration"),
            renew_deadline=go_duration(self.leader_elect_renew_deadline, "--leader-elect-renew-deadline"),
            retry_period=go_duration(self.leader_elect_retry_period, "--leader-elect-retry-period"),
        )


def host_name() -> str:
    """Return the pod's name from HOSTNAME, or else the host's name."""
    return os.environ.get("HOSTNAME") or socket.gethostname()


def go_duration(text: str, flag: str) -> timedelta:
    """Parse a duration in Go's syntax. Raises InputError with the flag's name."""
    try:
        return timedelta_of(parse_duration(text))
    except ValueError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def positive_seconds(text: str, flag: str) -> float:
    """Return the seconds of a duration above zero. Raises InputError."""
    seconds = go_duration(text, flag).total_seconds()
    if seconds <= 0:
        raise InputError(Problem(f'invalid argument "{text}": a time above zero is expected', field=flag))
    return seconds


_T = TypeVar("_T", bound=msgspec.Struct)
_BOOLS: Final = {text: text[0] in "1tT" for text in ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false",
    "FALSE", "False")}  # fmt: skip


def flag_of(field: str) -> str:
    """Return the flag of a field: ``some_field`` is ``--some-field``."""
    return f"--{field.replace('_', '-')}"


def flags_of(name: str, struct: type[msgspec.Struct], helps: Mapping[str, str], *, panel: str) -> type[OptionGroup]:
    """Build an option group class with one option per field in ``helps``.

    Parameters
    ----------
    name : str
        Name of the class.
    struct : type
        The struct whose fields give defaults and types. :func:`struct_of` converts the options to it.
    helps : mapping of str to str
        Field -> help text.
    panel : str
        Help panel of the options.
    """
    options: list[tuple[str, Any, Any]] = []
    struct_fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for field, text in helps.items():
        default = struct_fields[field].default
        if default is msgspec.NODEFAULT:
            default = struct_fields[field].default_factory()
        shown, type_, metavar = _as_flag(default)
        words = f"{flag_of(field)}/--no-{flag_of(field)[2:]}" if type_ is bool else flag_of(field)
        option = typer.Option(words, help=text, metavar=metavar, rich_help_panel=panel)
        options.append((field, Annotated[type_, option], dataclasses.field(default=shown)))
    return dataclasses.make_dataclass(name, options, bases=(OptionGroup,))


def struct_of(flags: OptionGroup, struct: type[_T]) -> _T:
    """Return the flags as a struct. Raises :class:`~kscale.InputError` with the flag's name for a bad value."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if not hasattr(flags, field.name):
            continue
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        value = getattr(flags, field.name)
        read = next((read for type_, read in _READERS if isinstance(default, type_)), None)
        values[field.name] = value if read is None else read(value, flag_of(field.name))
    result = struct(**values)
    problems: list[Problem] = getattr(result, "problems", list)()
    if problems:
        raise InputError([dataclasses.replace(each, field=flag_of(each.field)) for each in problems])
    return result


def _as_flag(default: Any) -> tuple[Any, type[Any], str | None]:
    """Return how a flag represents a default: the default's text, the flag's type, and its metavar."""
    match default:
        case bool() | int() | float():
            return default, type(default), None
        case timedelta():
            return format_duration(duration(default)), str, "DURATION"
        case Quantity():
            return "" if default.is_zero else str(default), str, "QUANTITY"
        case list():
            return ",".join(default), str, "A,B,..."
        case dict():
            return "", str, "NAME=true|false,..."
    return default, str, "TEXT"


def _quantity(text: str, flag: str) -> Quantity:
    if not text:
        return Quantity.zero()
    try:
        return Quantity(text)
    except QuantityError as error:
        raise InputError(Problem(f'invalid argument "{text}": {error}', field=flag)) from None


def _list(text: str, _flag: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _gates(text: str, flag: str) -> dict[str, bool]:
    gates = {}
    for part in filter(None, text.split(",")):
        name, equal, value = part.partition("=")
        if not equal or value.strip() not in _BOOLS:
            raise InputError(Problem(f"invalid value {part!r}: NAME=true or NAME=false is expected", field=flag))
        gates[name.strip()] = _BOOLS[value.strip()]
    return gates


_READERS: Final[tuple[tuple[type[Any], Callable[[str, str], Any]], ...]] = (
    (timedelta, go_duration),
    (Quantity, _quantity),
    (list, _list),
    (dict, _gates),
)


PANEL: Final = "Vertical Pod Autoscaler"
COMMON: Final[Mapping[str, str]] = {
    "vpa_object_namespace": "Only read VPAs in this namespace; empty: in all namespaces.",
    "ignored_vpa_object_namespaces": "Ignore VPAs in these namespaces.",
    "feature_gates": "Feature gates: PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha. All are off by default.",
}
"""Fields of all option structs, and what they say."""

IDLE: Final[Mapping[str, Idle]] = {**idle_switches("there is no pprof here", "profiling"), **KLOG_IDLE}
"""Flags of upstream's programs that have an effect there, and none here."""


Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Address that serves /metrics and /health-check; empty: none.",
        rich_help_panel=_PROCESS,
    ),
]
LeaderElect = Annotated[
    bool,
    typer.Option("--leader-elect/--no-leader-elect", help="Act only while holding the lease.", rich_help_panel=_LEASE),
]
LeaseName = Annotated[
    str, typer.Option("--leader-elect-resource-name", help="Name of the lease.", rich_help_panel=_LEASE)
]


@dataclass
class ApiFlags(OptionGroup):
    """Flags for the rate limit of requests to the API server.

    Attributes
    ----------
    kube_api_qps
        Maximum number of requests to the API server per second; negative: no limit.
    kube_api_burst
        Maximum number of requests to the API server at once.
    """

    kube_api_qps: float = 50.0
    kube_api_burst: int = 100
