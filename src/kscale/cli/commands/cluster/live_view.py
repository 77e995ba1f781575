"""A view of a live cluster that follows it on the terminal until it is ended."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kscale.cli.output import rich_table
from kscale.cli.terminal import Terminal, on_one_line, printable
from kscale.errors import InputError
from kscale.snapshot.cluster import Cluster
from kscale.views import Table, View
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.listing import NEEDED, READ
from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.protocols import Clock, Watch

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kscale.cli.live_inputs import Clusters

__all__ = ["WATCHED", "ClusterWatch", "Keys", "draw_frame", "follow_cluster", "read_keys", "watch_cluster"]


_MIN_ROWS: Final = 3
"""Rows of a table that are shown on a screen that is too small."""


def follow_cluster(source: Clusters, terminal: Terminal, interval: float, view: Callable[[Cluster], View]) -> None:
    """Show ``view`` of the cluster every ``interval`` seconds, and after each key, until q or Ctrl-C is pressed.

    While the view is paused it does not change. Raises what the connection to the API server raises before the first
    view, and later an error that ended the watch (:meth:`ClusterWatch.read`).
    """
    from rich.live import Live

    from kscale.world.clock import SystemClock

    console = terminal.console()
    logging.getLogger("kscale").addHandler(logging.NullHandler())  # a line on stderr would break the screen

    async def follow(client: Client) -> None:
        with read_keys() as keys:
            async with watch_cluster(client, SystemClock()) as watch:
                with terminal.step(f"reading {source.source_names}"):
                    await watch.read()
                with Live(console=console, screen=True, auto_refresh=False) as live:
                    while not keys.ended:
                        cluster = await watch.read()
                        if not keys.paused:
                            status = f"{source.source_names}, every {interval:g} s. q: quit, space: pause"
                            frame = _frame(cluster, view, status, watch.errors, console)
                            live.update(frame, refresh=True)
                        await keys.wait(interval)

    try:
        source.run_with_client(follow)
    except KeyboardInterrupt:  # the usual way to end
        return


def _frame(
    cluster: Cluster, view: Callable[[Cluster], View], status: str, errors: dict[str, str], console: Console
) -> RenderableType:
    """Draw a cluster's view with the current time and the watch's errors by kind.

    If the view raises InputError, the error is drawn instead: the next state of the cluster may be readable.
    """
    problems = [f"{kind}: {message}" for kind, message in errors.items()]
    try:
        current = view(cluster)
    except InputError as error:  # of this state of the cluster: the next one may be readable
        current = View(str(error))
    return draw_frame(current, f"{datetime.now(UTC):%H:%M:%S} UTC, {status}", problems, console)


def draw_frame(view: View, status: str, problems: list[str], console: Console) -> RenderableType:
    """Draw a view that fills the console: status, problems, headline, and as many rows of each table as fit.

    At most three problems are shown, and at least three rows of each table that has as many. Tables without rows are
    left out.

    Each later table gets the rows that it needs, up to a third of the screen; the first one gets the rest.
    """
    from rich.console import Group
    from rich.text import Text

    head: list[RenderableType] = [Text(on_one_line(status), style="dim", no_wrap=True, overflow="ellipsis")]
    head += [Text(on_one_line(text), style="red", no_wrap=True, overflow="ellipsis") for text in problems[:_MIN_ROWS]]
    lines = printable(view.headline).splitlines()
    head += [Text(line, style="bold", no_wrap=True, overflow="ellipsis") for line in lines]
    tables = [table for table in view.tables if table.rows]
    left = console.height - len(head) - 4 * len(tables)  # a blank line, the title, the columns, and "and N more"
    parts: list[RenderableType] = []
    for table in reversed(tables):
        share = left if table is tables[0] else min(len(table.rows), max(console.height // 3, _MIN_ROWS))
        shown = max(min(share, len(table.rows)), _MIN_ROWS)
        left -= shown
        parts = [*_draw_table(table, shown, console), *parts]
    return Group(*head, *parts)


def _draw_table(table: Table, shown: int, console: Console) -> list[RenderableType]:
    """Draw a table on one line per row: its title, its first ``shown`` rows, and the number of the others, if any.

    Columns that are marked as wide are left out.
    """
    from rich.text import Text

    visible = [index for index, column in enumerate(table.columns) if not column.wide]
    rows = [[row[index] for index in visible] for row in table.rows[:shown]]
    drawn, _ = rich_table([table.columns[index] for index in visible], rows, console, console.width, max_lines=1)
    more = len(table.rows) - len(rows)
    return [
        Text(""),
        Text(table.title, style="bold"),
        drawn,
        *([Text(f"... and {more:,} more", style="dim")] if more else []),
    ]


class Keys:
    """Keys that were pressed: q ends the view, space pauses it or goes on."""

    def __init__(self) -> None:
        self.ended = False
        self.paused = False
        self._pressed = asyncio.Event()

    def press(self, text: str) -> None:
        """Record typed text and wake :meth:`wait`: q ends the view; each space pauses or resumes it."""
        self.ended |= "q" in text.lower()
        self.paused ^= bool(text.count(" ") % 2)
        self._pressed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for this time in seconds, or until a key is pressed; the keys then are in ``ended`` and ``paused``."""
        self._pressed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._pressed.wait()
        except TimeoutError:
            return


@contextmanager
def read_keys() -> Iterator[Keys]:
    """Read keys from the terminal, without echo, while the context is open; the terminal's mode is restored.

    Without a terminal no key is ever pressed.
    """
    keys = Keys()
    if sys.stdin is None or not sys.stdin.isatty():
        yield keys
        return
    import os
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()
    try:
        tty.setcbreak(number)
        loop.add_reader(number, lambda: keys.press(os.read(number, 64).decode(errors="replace")))
        yield keys
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


WATCHED: Final = tuple(kind for kind in READ if not kind.endswith(("Autoscaler", "AutoscalerCheckpoint")))
"""Kinds that are watched."""
_POLL: Final = 0.05
"""Seconds between two looks at the informers."""


class ClusterWatch:
    """A cluster that is kept current by watches."""

    def __init__(self, stores: KubernetesStores, task: asyncio.Task[None]) -> None:
        self._stores, self._task = stores, task

    async def read(self) -> Cluster:
        """Wait until the cluster is a consistent state, and return it.

        The returned object changes again at the caller's next ``await``.

        Raises
        ------
        RequestFailedError
            If nodes or pods cannot be listed. Other kinds that cannot be listed have no objects. An error that ended
            the watch is raised, too.
        """
        while True:
            if self._task.done():
                self._task.result()
            for informer in self._stores.informers:
                error = informer.last_error
                if informer.watch.kind in NEEDED and not informer.synced and error is not None:
                    raise RequestFailedError(error)
            if all(informer.settled or informer.last_error is not None for informer in self._stores.informers):
                await self._stores.caught_up()
                return self._stores.cluster
            await asyncio.sleep(_POLL)

    @property
    def errors(self) -> dict[str, str]:
        """Return the current error of each kind whose list or watch fails."""
        informers = ((each.watch.kind, each.last_error) for each in self._stores.informers)
        return {kind: error.message for kind, error in informers if error is not None}


@asynccontextmanager
async def watch_cluster(client: Client, clock: Clock) -> AsyncIterator[ClusterWatch]:
    """Watch all objects of :data:`WATCHED` while the context is open."""
    watches = [Watch(kind=kind, api_version="") for kind in WATCHED]
    stores = KubernetesStores(client, watches, clock)
    task = asyncio.create_task(stores.run(), name="watch the cluster")
    try:
        yield ClusterWatch(stores, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
