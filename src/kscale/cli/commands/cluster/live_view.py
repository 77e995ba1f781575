"""A view of a live cluster that follows it on the terminal until it is ended."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kscale.cli.output import rich_table
from kscale.cli.terminal import Terminal, on_one_line, printable
from kscale.errors import InputError
from kscale.views import Table, View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kscale.cli.live_inputs import Clusters
    from kscale.snapshot.cluster import Cluster
    from kscale.world.kubernetes.client import Client

__all__ = ["Keys", "draw_frame", "follow_cluster", "read_keys"]

_MIN_ROWS: Final = 3
"""Rows of a table that are shown on a screen that is too small."""


def follow_cluster(source: Clusters, terminal: Terminal, interval: float, view: Callable[[Cluster], View]) -> None:
    """Show ``view`` of the cluster every ``interval`` seconds until q or Ctrl-C is pressed.

    Raises whatever the connection to the API server raises before the first view.
    """
    from rich.live import Live

    from kscale.drivers.cluster_watch import watch_cluster
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
    """Draw a view that fills the console: status, headline, and as many rows of each table as fit.

    The last table gets the rows that it needs, up to a third of the screen; the first one gets the rest.
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
    """Return the table's title, its first ``shown`` rows, and a line with the number of the others."""
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
        """Record typed text: q ends the view; each space pauses or resumes it."""
        self.ended |= "q" in text.lower()
        self.paused ^= bool(text.count(" ") % 2)
        self._pressed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for this time in seconds, or until a key is pressed."""
        self._pressed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._pressed.wait()
        except TimeoutError:
            return


@contextmanager
def read_keys() -> Iterator[Keys]:
    """Read keys from the terminal, without echo, while the context is open; the terminal's mode is restored."""
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
