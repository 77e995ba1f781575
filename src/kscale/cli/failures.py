"""Error messages and exit statuses of the command line.

A message names the object and gives a hint; the status of bad input is 2. Tracebacks appear only with KSCALE_DEBUG.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kscale.cli.terminal import Terminal
from kscale.errors import InputError, KscaleError

__all__ = [
    "BAD_INPUT",
    "BROKEN_PIPE",
    "INTERRUPTED",
    "DumpError",
    "abandon_stdout",
    "convert_dump_errors",
    "report_interrupt",
    "run_guarded",
]

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
BROKEN_PIPE = 141  # 128 + SIGPIPE; 1 would mean that a pod does not fit
_NOT_WRITTEN = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT)
SHOWN = 20  # problems listed before "and N more"


class DumpError(InputError):
    """An error in the dump (-f), not in a manifest, groups file or catalogue."""


@contextlib.contextmanager
def convert_dump_errors() -> Iterator[None]:
    """Turn InputError into DumpError while a dump is read, so that the hint can offer ``--skip-invalid``."""
    try:
        yield
    except InputError as error:
        raise DumpError(error.problems, total=error.total) from error


def run_guarded(work: Callable[[], Any], terminal: Terminal) -> int:
    """Run ``work`` and return its exit status.

    If it fails, reports the error and returns the status of the error. With KSCALE_DEBUG, errors other than Ctrl-C and
    a closed pipe are raised. A result of ``work`` that is no integer gives status 0.
    """
    try:
        code = work()
        terminal.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        report_interrupt(terminal)
        return INTERRUPTED
    except BrokenPipeError:
        abandon_stdout()
        return BROKEN_PIPE
    except Exception as error:
        if os.environ.get("KSCALE_DEBUG"):
            raise
        return _print_error(error, terminal)
    finally:
        # Flush what an error left in the buffer, or discard it: the interpreter would try to write it again at exit.
        try:
            terminal.stdout.flush()
        except (OSError, ValueError):
            abandon_stdout()


def _print_error(error: Exception, terminal: Terminal) -> int:
    """Report an error and return the exit status: of an interrupt for typer's ``Abort``, else of bad input."""
    if isinstance(error, InputError):
        _print_input_error(error, terminal)
    elif isinstance(error, KscaleError):
        terminal.error(str(error))
    elif isinstance(error, OSError):
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes, os.PathLike)) else ""
        if not name and error.errno in _NOT_WRITTEN:
            name = "stdout"
        terminal.error(": ".join(part for part in (name, error.strerror or str(error)) if part))
    elif isinstance(error, MemoryError):
        terminal.error("out of memory")
    elif hasattr(error, "format_message"):
        _print_usage_error(error, terminal)
    elif type(error).__name__ == "Abort":  # typer's own, under two names in its versions
        terminal.error("interrupted")
        return INTERRUPTED
    else:
        terminal.error(
            f"internal error: {type(error).__name__}: {error}",
            "This is a bug in kscale. KSCALE_DEBUG=1 shows where; please report it.",
        )
    return BAD_INPUT


def _print_input_error(error: InputError, terminal: Terminal) -> None:
    """Report the problems of an error: the first ones, or all with ``verbose``.

    An error in a dump gets a hint, unless a whole source cannot be read.
    """
    shown = error.problems if terminal.verbose else error.problems[:SHOWN]
    for problem in shown:
        terminal.error(str(problem))
    if len(shown) < len(error.problems):
        terminal.note(f"  ... and {len(error.problems) - len(shown):,} more; -v shows all.")
    if isinstance(error, DumpError) and not any(problem.of_source for problem in error.problems):
        damaged = len({(problem.source, problem.object) for problem in error.problems})
        it = "it" if damaged == 1 else "them"
        terminal.note(
            f"  {damaged:,} of {error.total:,} objects could not be read. "
            f"Fix {it}, or run with --skip-invalid to go on without {it}."
        )


def _print_usage_error(error: Any, terminal: Terminal) -> None:
    """Report a usage error of click; for a command line without arguments print the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        terminal.stderr.write(context.get_help() + "\n")
        return
    hint = f"{context.command_path} --help shows how it is used." if context is not None else ""
    terminal.error(str(error.format_message()), hint)


def report_interrupt(terminal: Terminal) -> None:
    """Report Ctrl-C, and discard the rest of the answer: a reader that has stopped would never take it."""
    abandon_stdout()
    terminal.error("interrupted")


def abandon_stdout() -> None:
    """Send the rest of stdout's buffer to the null device, so that the interpreter does not try to write it again.

    Has no effect if stdout is not a file.
    """
    with contextlib.suppress(OSError, ValueError):  # not a real file, as under a test runner
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
