"""Input options for commands that read a dump or live clusters, and the limits of what an API server sends."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

import kscale
from kscale.cli.failures import convert_dump_errors
from kscale.cli.inputs import Dump, NamingSource, Source
from kscale.cli.options import OptionGroup, fields
from kscale.cli.terminal import Terminal, plural, progress
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from kscale.snapshot.cluster import Cluster
    from kscale.world.kubernetes.client import Client
    from kscale.world.kubernetes.listing import Listing
    from kscale.world.kubernetes.transport import ServerLimits

__all__ = ["AskedClusters", "BeginningCluster", "Clusters", "NamingClusters", "PlannedClusters", "ServerLimitFlags"]

_T = TypeVar("_T")


@dataclass(eq=False, repr=False, init=False)
class ServerLimitFlags(OptionGroup):
    """Limits of what is read from an API server.

    Attributes
    ----------
    kube_api_max_response_bytes : BYTES
        Maximum size of a response of an API server, decompressed, and of the waiting events of a watch.
    kube_api_max_buffered_bytes : BYTES
        Maximum total size of the responses of an API server that are read at the same time; further responses wait.
    kube_api_max_list_pages : N
        Maximum number of pages of a list; a page has up to 500 objects.
    kube_api_max_line_bytes : BYTES
        Maximum size of a line of a watch.
    kube_api_max_header_bytes : BYTES
        Maximum size of a header of a response.
    kube_api_request_timeout : DURATION
        Timeout of a complete response, or of the headers of a watch.
    kube_api_max_retry_after : DURATION
        Maximum wait after a response with Retry-After; a longer value counts as this one.
    """

    title = "Limits on an API server"

    kube_api_max_response_bytes: Annotated[int, typer.Option(min=1 << 16)] = 256 << 20
    kube_api_max_buffered_bytes: Annotated[int, typer.Option(min=1 << 16)] = 256 << 20
    kube_api_max_list_pages: Annotated[int, typer.Option(min=1)] = 2000
    kube_api_max_line_bytes: Annotated[int, typer.Option(min=1 << 12)] = 16 << 20
    kube_api_max_header_bytes: Annotated[int, typer.Option(min=1 << 8)] = 16 << 10
    kube_api_request_timeout: str = "1m0s"
    kube_api_max_retry_after: str = "30s"

    def limits(self) -> ServerLimits:
        """Return the limits of what is read from an API server.

        Raises InputError for a malformed duration, and for a timeout that is not above 0.
        """
        from kscale.cli.go_flags import go_duration
        from kscale.world.kubernetes.transport import ServerLimits

        request = go_duration(self.kube_api_request_timeout, "--kube-api-request-timeout").total_seconds()
        if request <= 0:
            raise InputError(Problem("must be more than 0", field="--kube-api-request-timeout"))
        retry = go_duration(self.kube_api_max_retry_after, "--kube-api-max-retry-after").total_seconds()
        limited = ("response_bytes", "buffered_bytes", "list_pages", "line_bytes", "header_bytes")
        limits = {name: getattr(self, f"kube_api_max_{name}") for name in limited}
        return ServerLimits(request_seconds=request, retry_seconds=retry, **limits)


ServerLimitFlags.listed_last = frozenset(fields(ServerLimitFlags))


@dataclass(eq=False, repr=False, init=False)
class Clusters(Dump, ServerLimitFlags):
    """Options of commands that read a dump or live clusters: by default that of the kubeconfig's current context.

    Attributes
    ----------
    context : NAME
        Read a live cluster instead of a dump: the name of its context in the kubeconfig. Without -f and --context: the
        current context. Repeatable.
    kubeconfig : FILE
        Path of the kubeconfig; without --context its current context is used.
    """

    title = "Input"
    common = ("context",)

    context: list[str] | None = None
    kubeconfig: str | None = None
    several: bool = field(default=False, init=False)
    """Whether this is one of several clusters that are asked about."""
    refused: Collection[str] = field(default=(), init=False)
    """Kinds that the cluster did not let us list."""

    def prepare(self, terminal: Terminal) -> None:
        """Read the kubeconfig's current context, if there is one and no input is named.

        Raises InputError if the kubeconfig cannot be read.
        """
        if self.has_input:
            return
        from kscale.world.kubernetes.kubeconfig import read_contexts

        contexts, current = read_contexts()
        if current in contexts:
            self.context = [current]
            terminal.note(f"reading the cluster of context {current}")

    def check(self) -> None:
        """Check the input options. Raises typer.BadParameter for contradictions."""
        if not self.has_input:
            message = "nothing to read: name a dump, or - for stdin; no kubeconfig has a current context"
            raise typer.BadParameter(message, param_hint=["-f", "--context"])
        super().check()
        if not self.live:
            for option, _ in self._limits_given():
                raise typer.BadParameter("no live cluster is read: name a context", param_hint=option)
        if self.live and self.filename:
            raise typer.BadParameter("-f and a live cluster exclude each other", param_hint="-f")
        if len(set(self.context or ())) < len(self.context or ()):
            raise typer.BadParameter("a context is named twice", param_hint="--context")

    def split_by_context(self) -> dict[str, OptionGroup]:
        """Return the options for each context by its name if there are several contexts; else empty."""
        self.check()
        names = self.context or []
        parts: dict[str, OptionGroup] = {}
        for name in names if len(names) > 1 else []:
            parts[name] = part = replace(self, context=[name])
            part.several = True
        return parts

    def check_alone(self, *options: tuple[str, object]) -> None:
        """Raise BadParameter if several contexts are named but an option is set that is about one cluster only.

        ``options`` are pairs of name and value.
        """
        for name, value in options:
            if self.several and value is not None:
                raise typer.BadParameter("it is of one cluster: name one context", param_hint=name)

    @property
    def live(self) -> bool:
        """Return whether a live cluster is read."""
        return bool(self.context or self.kubeconfig)

    @property
    def source_names(self) -> str:
        """Return the sources' names for messages."""
        if not self.live:
            return super().source_names
        return f"context {self.context[0]}" if self.context else f"the current context of {self.kubeconfig}"

    def words(self) -> list[str]:
        """Return the options that name the input as command-line words."""
        named = [("--context", name) for name in self.context or ()]
        named += [("--kubeconfig", self.kubeconfig)] if self.kubeconfig else []
        named += self._limits_given()
        return [*super().words(), *(word for option, value in named for word in (option, shlex.quote(value)))]

    def _limits_given(self) -> list[tuple[str, str]]:
        """Return the options of limits that are not as they are by default, with their values."""
        default = ServerLimitFlags()
        values = {name: getattr(self, name) for name in fields(ServerLimitFlags)}
        return [
            (f"--{name.replace('_', '-')}", str(value))
            for name, value in values.items()
            if value != getattr(default, name)
        ]

    def unknown(self, kinds: Iterable[str]) -> Iterable[str]:
        """Return those of ``kinds`` that the cluster may have although :meth:`load` read none.

        For a live cluster these are the kinds that may not be listed; for a dump, all.
        """
        return [kind for kind in kinds if kind in self.refused] if self.live else kinds

    def load(self, terminal: Terminal, update: Callable[[str], None]) -> Cluster:
        """Load the cluster from files or from its API server. ``update`` is called with texts about the progress.

        Raises InputError if it cannot be read.
        """
        if not self.live:
            return super().load(terminal, update)
        from kscale.world.kubernetes.listing import list_cluster

        listing = self.run_with_client(lambda client: list_cluster(client, tell=self.report_progress(update)))
        self.warn_refused(listing, terminal)
        with convert_dump_errors():
            return kscale.load(*listing.pages, strict=not self.skip_invalid, threads=self.threads)

    def load_with_owners(self, terminal: Terminal, update: Callable[[str], None]) -> Cluster:
        """Load the cluster. If it is live, also the scales of custom resources that own pods or are targets of VPAs.

        ``update`` is called with texts about the progress. A scale that cannot be read is a warning. Raises InputError
        if the cluster cannot be read.
        """
        cluster = self.load(terminal, update)
        if not self.live:
            return cluster
        from kscale.drivers.live_dump import read_custom_owners
        from kscale.vpa.controllers import find_custom_owners
        from kscale.world.clock import SystemClock

        owners = find_custom_owners(cluster)
        if not owners:
            return cluster
        update(f"reading the scales of {len(owners):,} custom {plural('resource', len(owners))}")
        answer = self.run_with_client(lambda client: read_custom_owners(client, SystemClock(), owners))
        for item in answer.objects:
            cluster.apply(item)
        for problem in answer.problems:
            terminal.warn(f"not read: {problem}")
        return cluster

    def run_with_client(self, request: Callable[[Client], Awaitable[_T]]) -> _T:
        """Run ``request`` with a client of the cluster's API server and return its result.

        Raises whatever ``request`` raises, and InputError if the kubeconfig cannot be used.
        """
        from kscale.world.load import run_with_client

        return run_with_client(
            request,
            context=self.context[0] if self.context else "",
            kubeconfig=self.kubeconfig or "",
            limits=self.limits(),
        )

    def report_progress(self, update: Callable[[str], None]) -> Callable[[int, int], None]:
        """Return a function of (objects received, objects expected) that passes them as text to ``update``."""
        return lambda received, expected: update(f"reading {self.source_names} {progress(received, expected)} objects")

    def warn_refused(self, listing: Listing, terminal: Terminal) -> None:
        """Log a warning for each kind that may not be listed, and remember these kinds."""
        self.refused = listing.refused.keys()
        for kind, why in listing.refused.items():
            terminal.warn(f"{plural(kind, 2)} are not read: {why}")


@dataclass(eq=False, repr=False, init=False)
class BeginningCluster(Clusters):
    """Options of a command that can start from a dump or a cluster, or from neither."""

    def prepare(self, terminal: Terminal) -> None:
        """Do nothing: without an input, no cluster is read (other commands read the current context)."""

    def check(self) -> None:
        """Raise typer.BadParameter for contradictory options, and for options that need an input if there is none."""
        if self.has_input:
            super().check()
        options = [("--skip-invalid", self.skip_invalid), ("--threads", self.threads), *self._limits_given()]
        for name, value in options:
            if value and not self.has_input:
                raise typer.BadParameter("nothing is read: name a dump, or a context", param_hint=name)


@dataclass(eq=False, repr=False, init=False)
class NamingClusters(Clusters, NamingSource):
    """Options of commands about named objects, in a dump or live clusters."""


@dataclass(eq=False, repr=False, init=False)
class AskedClusters(Clusters, Source):
    """Options of commands about some of the pods, in a dump or live clusters."""


@dataclass(eq=False, repr=False, init=False)
class PlannedClusters(AskedClusters):
    """Options of a command that plans nodes for the pods of an input, or of manifests on an empty cluster.

    Attributes
    ----------
    pod : FILE|DIR
        Plan for the pods of these manifests (Pods, Deployments, Jobs, ...) instead of the pending pods; without a dump
        or context, on an empty cluster. Repeatable.
    """

    pod: list[str] | None = None

    def check(self) -> None:
        """Raise typer.BadParameter for contradictory options, and if neither an input nor manifests are named."""
        if self.pod and self.selector:
            raise typer.BadParameter("-l and --pod exclude each other", param_hint="-l")
        if self.has_input or not self.pod:
            super().check()

    @property
    def source_names(self) -> str:
        """Return the sources' names for messages."""
        return super().source_names if self.has_input else "no cluster"

    @property
    def inputs(self) -> list[str]:
        """Return the names of the files and clusters that are read, for the header of a page."""
        return [*super().inputs, *(self.pod or ())]

    def load(self, terminal: Terminal, update: Callable[[str], None]) -> Cluster:
        """Load the cluster, which is empty if only manifests are named. Raises InputError if it cannot be read.

        ``update`` is called with texts about the progress.
        """
        return super().load(terminal, update) if self.has_input else kscale.load([])
