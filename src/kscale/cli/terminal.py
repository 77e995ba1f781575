"""The two output streams (results on stdout, everything else on stderr), and texts for counts and reasons."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TextIO

from kscale.imports import lazy_pattern

if TYPE_CHECKING:
    from rich.console import Console

    from kscale.capacity.records import Rejection

__all__ = [
    "ARGUMENTS",
    "Terminal",
    "expendable_room",
    "format_counts",
    "format_rejection",
    "object_name",
    "on_nodes",
    "on_one_line",
    "plural",
    "pods",
    "printable",
    "program",
    "progress",
    "rejections",
]

ARGUMENTS: Final = "kscale.arguments"
"""Key of the command line's words in the ``meta`` of typer's contexts."""


def format_counts(counts: Mapping[str, int]) -> str:
    """Format counts per kind: ``48 nodes, 2,310 pods, 1 deployment``, or ``nothing``."""
    return ", ".join(f"{count:,} {plural(kind, count)}" for kind, count in counts.items()) or "nothing"


def object_name(kind: str, namespace: str | None, name: str) -> str:
    """Return an object's line of ``-o name``: ``deployment/shop/web``, ``node/n1``."""
    return "/".join(part for part in (kind.lower(), namespace, name) if part)


def on_nodes(replicas: Mapping[str, int], most: int = 3) -> str:
    """Format replicas per node, highest count first: ``node-2 (4), node-8 (3) and 5 more``.

    ``most``: maximum number of nodes that are named.
    """
    order = sorted(replicas.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} ({count:,})" for name, count in order[:most])
    more = len(order) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def program() -> str:
    """Return the name of this program: ``kscale``, or ``kubectl kscale`` as a kubectl plug-in."""
    return "kubectl kscale" if PurePath(sys.argv[0]).stem.startswith("kubectl") else "kscale"


def plural(word: str, count: int) -> str:
    """Return ``word`` in the singular or plural form for ``count``."""
    if count == 1 or word.endswith("Metrics"):  # the kinds NodeMetrics and PodMetrics
        return word
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"


def pods(count: int) -> str:
    """Format a number of pods: ``1 pod``, ``2,310 pods``."""
    return f"{count:,} {plural('pod', count)}"


def rejections(all_rejections: Sequence[Rejection], between: str = ", ") -> str:
    """Format the first three rejections and the number of pods of the others.

    ``between`` separates the reasons of one rejection.
    """
    shown = [format_rejection(rejection, between) for rejection in all_rejections[:3]]
    if len(all_rejections) > 3:
        shown.append(f"{pods(sum(rejection.pods for rejection in all_rejections[3:]))} for other reasons")
    return "; ".join(shown)


def format_rejection(rejection: Rejection, between: str = ", ") -> str:
    """Format a rejection: ``12 pods: node(s) had untolerated taint(s)``."""
    return f"{pods(rejection.pods)}: {between.join(rejection.reasons) or rejection.plugin}"


def expendable_room(running: int, cutoff: int) -> str:
    """Return a note that ``running`` pods below priority ``cutoff`` count as evicted for the Cluster Autoscaler."""
    verb = "is" if running == 1 else "are"
    subject = f"{running:,} running {plural('pod', running)} of a priority below {cutoff}"
    return f"{subject} {verb} expendable: their room counts as free."


PROGRESS_AFTER = 0.5  # seconds
PROGRESS_EVERY = 0.25
_BAR = 20  # characters

# A dump is untrusted: a name in it must not move the cursor or recolour the terminal.
_CONTROL = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return ``text`` with control characters as escapes, except line feed and tab."""
    if text.isprintable():  # no control character, and the expression need not be compiled
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def on_one_line(text: str) -> str:
    """Return ``text`` with all control characters as escapes, also line feed and tab.

    Used where a further line would look like another result.
    """
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def progress(done: int, of: int) -> str:
    """Return a progress bar for ``done`` items of ``of``, with both numbers."""
    filled = _BAR * done // of if of else 0
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done:,} of {of:,}"


class Terminal:
    """Output streams of the command line. ``verbose`` adds timings; ``quiet`` keeps only errors."""

    def __init__(
        self,
        *,
        no_color: bool = False,
        verbose: bool = False,
        quiet: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        environ = os.environ if environ is None else environ
        self.no_color = no_color or bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.verbose = verbose
        self.quiet = quiet

    def console(self, stream: TextIO | None = None) -> Console:
        """Return a rich console for a stream that is a terminal (stdout by default)."""
        from rich.console import Console

        return Console(file=stream or self.stdout, no_color=self.no_color, highlight=False, markup=False, emoji=False)

    def note(self, text: str) -> None:
        """Log a line about what was read or done, unless ``quiet``."""
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """Log a warning about the result's reliability, unless ``quiet``."""
        if not self.quiet:
            self._print(text, label="warning")

    def error(self, text: str, hint: str = "") -> None:
        """Log why there is no result, and a hint about what to do."""
        self._print(text, label="error")
        if hint:
            self._print(f"  {hint}")

    def detail(self, text: str) -> None:
        """Log a line if ``verbose``."""
        if self.verbose:
            self._print(text)

    def _print(self, text: str, label: str = "") -> None:
        """Write a line to stderr, after a label in colour if there is one (``error``, ``warning``)."""
        if label:
            tone = "1;31" if label == "error" else "1;33"
            coloured = self.stderr.isatty() and not self.no_color
            label = f"\x1b[{tone}m{label}:\x1b[0m " if coloured else f"{label}: "
        self.stderr.write(f"{label}{printable(text)}\n")
        self.stderr.flush()

    @contextmanager
    def step(self, label: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner while the block runs longer than half a second; with ``verbose`` log how long it took.

        The spinner needs a terminal on stderr. Yields a function that replaces its text (see :func:`progress`).
        """
        started = time.perf_counter()
        with self._spinner(label) as update:
            yield update
        self.detail(f"{label}: {time.perf_counter() - started:.3f} s")

    @contextmanager
    def _spinner(self, label: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner while the block runs longer than half a second; yield a function that replaces its text.

        Nothing is shown with ``quiet``, or if stderr is no terminal.
        """
        shown = [label]

        def update(text: str) -> None:
            shown[0] = text

        if self.quiet or not self.stderr.isatty():
            yield update
            return
        done = threading.Event()

        def spin() -> None:
            if done.wait(PROGRESS_AFTER):
                return
            from rich.text import Text

            def line() -> Text:
                return Text(f"{printable(shown[0])} ...")

            with self.console(self.stderr).status(line()) as status:
                while not done.wait(PROGRESS_EVERY):
                    status.update(line())

        thread = threading.Thread(target=spin, name="kscale-progress", daemon=True)
        thread.start()
        try:
            yield update
        finally:
            done.set()
            thread.join()
