"""What is said beside the answer: only when asked, only on a terminal, only when it takes long."""

from __future__ import annotations

import io
from threading import Event

import pytest

from kscale.cli import terminal
from kscale.cli.terminal import Terminal


class Screen(io.StringIO):
    """A terminal as far as a program can tell; ``seen`` is set once ``word`` was written."""

    def __init__(self, word: str = "") -> None:
        super().__init__()
        self.word = word
        self.is_shown = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.word and self.word in self.getvalue():
            self.is_shown.set()
        return written


def test_quick_work_says_nothing() -> None:
    screen = Screen()
    with Terminal(stderr=screen, environ={}).step("reading"):
        pass
    assert screen.getvalue() == ""


def test_long_work_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PROGRESS_AFTER", 0)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen("reading a\\x1bb ...")
    with Terminal(stderr=screen, environ={}).step("reading a\x1bb"):
        assert screen.is_shown.wait(30)


def test_long_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PROGRESS_AFTER", 0)
    monkeypatch.setattr(terminal, "PROGRESS_EVERY", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen("reading: 5 rows ...")
    with Terminal(stderr=screen, environ={}).step("reading") as tell:
        tell("reading: 5 rows")
        assert screen.is_shown.wait(30)


def test_long_work_says_nothing_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PROGRESS_AFTER", 0)
    pipe = io.StringIO()
    with Terminal(stderr=pipe, environ={}).step("reading"):
        pass
    assert pipe.getvalue() == ""


def test_verbose_says_how_long_it_took() -> None:
    pipe = io.StringIO()
    with Terminal(stderr=pipe, verbose=True, environ={}).step("reading"):
        pass
    assert pipe.getvalue().startswith("reading: 0.")


def test_quiet_leaves_errors_only() -> None:
    pipe = io.StringIO()
    quiet = Terminal(stderr=pipe, quiet=True, environ={})
    quiet.note("a")
    quiet.warn("b")
    quiet.error("c", "d")
    assert pipe.getvalue() == "error: c\n  d\n"


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_errors_are_coloured_on_terminals_that_want_it(environ: dict[str, str], coloured: bool) -> None:
    screen = Screen()
    Terminal(stderr=screen, environ=environ).error("x")
    assert ("\x1b[" in screen.getvalue()) is coloured
    assert "error: " in screen.getvalue().replace("\x1b[0m", "")
