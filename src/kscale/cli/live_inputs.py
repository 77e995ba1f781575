"""What a command reads, where that may be clusters themselves instead of a dump."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

import kscale
from kscale.cli.failures import of_dump
from kscale.cli.inputs import Dump, NamingSource, Source
from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal, plural, progress

if TYPE_CHECKING:
    from kscale.snapshot.cluster import Cluster
    from kscale.world.kubernetes.client import Client
    from kscale.world.kubernetes.listing import Listing

__all__ = ["AskedClusters", "BeginningCluster", "Clusters", "NamingClusters"]

_QPS, _BURST = 50.0, 300  # as kubectl asks a server
_T = TypeVar("_T")


@dataclass(eq=False, repr=False)
class Clusters(Dump):
    """The options of a question about a dump, or about clusters themselves."""

    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Read a live cluster instead of a dump, by its context in the kubeconfig. Repeatable: "
            "one answer for all.",
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="Path of the kubeconfig; without --context its current context is used.",
        ),
    ] = None
    several: bool = field(default=False, init=False)
    """Whether this is one of several clusters that are asked about."""
    refused: Collection[str] = field(default=(), init=False)
    """Kinds that the cluster did not let us list."""

    def check(self) -> None:
        """Usage that cannot be meant."""
        super().check()
        if self.live and self.filename:
            raise typer.BadParameter("-f and a live cluster exclude each other", param_hint="-f")
        if len(set(self.context or ())) < len(self.context or ()):
            raise typer.BadParameter("a context is named twice", param_hint="--context")

    def apart(self) -> dict[str, OptionGroup]:
        """For each context by itself, where there are several."""
        self.check()
        names = self.context or []
        parts: dict[str, OptionGroup] = {}
        for name in names if len(names) > 1 else []:
            parts[name] = part = replace(self, context=[name])
            part.several = True
        return parts

    def check_alone(self, *options: tuple[str, object]) -> None:
        """Raises BadParameter for options, by name and value, that are given and mean one cluster only."""
        for name, value in options:
            if self.several and value is not None:
                raise typer.BadParameter("it is of one cluster: name one context", param_hint=name)

    @property
    def live(self) -> bool:
        """Whether a cluster itself is read."""
        return bool(self.context or self.kubeconfig)

    @property
    def what(self) -> str:
        """The sources, as they are named in what is said."""
        if not self.live:
            return super().what
        return f"context {self.context[0]}" if self.context else f"the current context of {self.kubeconfig}"

    def words(self) -> list[str]:
        """The options that name the input, as they would be typed again."""
        named = [("--context", name) for name in self.context or ()]
        named += [("--kubeconfig", self.kubeconfig)] if self.kubeconfig else []
        return [*super().words(), *(word for option, value in named for word in (option, shlex.quote(value)))]

    def unknown(self, kinds: Iterable[str]) -> Iterable[str]:
        """Of a live cluster the kinds that may not be listed: of the others it has none."""
        return [kind for kind in kinds if kind in self.refused] if self.live else kinds

    def load(self, terminal: Terminal, tell: Callable[[str], None]) -> Cluster:
        """The cluster, as a dump or by asking its API server. Raises InputError."""
        if not self.live:
            return super().load(terminal, tell)
        from kscale.world.kubernetes.listing import list_cluster

        found = self.ask(lambda client: list_cluster(client, tell=self.shown(tell)))
        self.say_refused(found, terminal)
        with of_dump():
            return kscale.load(*found.pages, strict=not self.skip_invalid, threads=self.threads)

    def load_with_owners(self, terminal: Terminal, tell: Callable[[str], None]) -> Cluster:
        """The cluster with the owners and VPA targets of custom kinds, of which a live cluster is asked for the scales.

        Raises InputError.
        """
        cluster = self.load(terminal, tell)
        if not self.live:
            return cluster
        from kscale.drivers.live_dump import read_custom_owners
        from kscale.vpa.custom_owners import find_custom_owners
        from kscale.world.clock import SystemClock

        owners = find_custom_owners(cluster)
        if not owners:
            return cluster
        tell(f"reading the scales of {len(owners):,} custom {plural('resource', len(owners))}")
        answer = self.ask(lambda client: read_custom_owners(client, SystemClock(), owners))
        for item in answer.objects:
            cluster.apply(item)
        for problem in answer.problems:
            terminal.warn(f"not read: {problem}")
        return cluster

    def ask(self, question: Callable[[Client], Awaitable[_T]]) -> _T:
        """What the cluster's API server answers. Raises what ``question`` does, and InputError for a kubeconfig that
        cannot be used."""
        import asyncio

        from kscale.world.clock import SystemClock
        from kscale.world.kubernetes.aiohttp_transport import connect
        from kscale.world.kubernetes.kubeconfig import load_access

        access = load_access(self.kubeconfig or "", context=self.context[0] if self.context else "")

        async def asked() -> _T:
            client = connect(access, SystemClock(), user_agent=f"kscale/{kscale.__version__}", qps=_QPS, burst=_BURST)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(asked())

    def shown(self, tell: Callable[[str], None]) -> Callable[[int, int], None]:
        """Progress of a listing as text."""
        return lambda come, expected: tell(f"reading {self.what} {progress(come, expected)} objects")

    def say_refused(self, found: Listing, terminal: Terminal) -> None:
        """On stderr: what may not be listed."""
        self.refused = found.refused.keys()
        for kind, why in found.refused.items():
            terminal.warn(f"{plural(kind, 2)} are not read: {why}")


@dataclass(eq=False, repr=False)
class BeginningCluster(Clusters):
    """The options of a command that goes on from a dump or a cluster if one is named."""

    def check(self) -> None:
        """Usage that cannot be meant."""
        if self.named:
            super().check()
        for name, given in (("--skip-invalid", self.skip_invalid), ("--threads", self.threads)):
            if given and not self.named:
                raise typer.BadParameter("nothing is read: name a dump, or a context", param_hint=name)


@dataclass(eq=False, repr=False)
class NamingClusters(Clusters, NamingSource):
    """The options of a question about what is named."""


@dataclass(eq=False, repr=False)
class AskedClusters(Clusters, Source):
    """The options of a question about some of the pods."""
