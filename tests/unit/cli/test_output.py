"""How one answer looks in seven formats."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
import yaml

from kscale.cli.output import Answer, Cell, Column, Format, Table, View, fit_widths, render
from kscale.cli.terminal import Terminal
from kscale.records import Record


class Sample(Record, frozen=True):
    """A record for these tests."""

    KIND = "Sample"
    node_count: int
    why: str | None = None


class Screen(io.StringIO):
    """A terminal as far as a program can tell."""

    def isatty(self) -> bool:
        return True


TABLE = Table(
    [Column("NODE GROUP"), Column("NODES", "right"), Column("METHOD", wide=True), Column("WHY NOT MORE")],
    [
        ["m5-2xlarge-a", 1234, "volume", None],
        ["gpu [red]", 0, "L2", Cell("12 pods: node(s) had | taint\x1b[31m", "warn", value="taint")],
    ],
)
ANSWER = Answer(
    Sample(node_count=1234, why="x" * 200),
    lambda: View("Two groups.", [TABLE, Table([Column("EMPTY")], [])], ["kscale explain tells more."], ["a", "b"]),
)


def show(form: Format, stream: io.StringIO | None = None, **flags: bool) -> str:
    stream = stream or io.StringIO()
    render(ANSWER, form, Terminal(stdout=stream, stderr=io.StringIO(), environ={}, **flags))
    return stream.getvalue()


def test_table() -> None:
    assert show(Format.TABLE) == (
        "Two groups.\n"
        "\n"
        "NODE GROUP    NODES  WHY NOT MORE\n"
        "m5-2xlarge-a  1,234  -\n"
        "gpu [red]         0  12 pods: node(s) had | taint\\x1b[31m\n"
        "\n"
        "kscale explain tells more.\n"
    )


def test_wide_has_the_wide_columns() -> None:
    assert show(Format.WIDE).splitlines()[2].split() == ["NODE", "GROUP", "NODES", "METHOD", "WHY", "NOT", "MORE"]


def test_json_and_yaml_are_the_whole_record() -> None:
    want = {"apiVersion": "kscale.dev/v1alpha1", "kind": "Sample", "nodeCount": 1234, "why": "x" * 200}
    assert json.loads(show(Format.JSON)) == want
    assert yaml.safe_load(show(Format.YAML)) == want
    assert show(Format.YAML).count("\n") == 4


def test_name() -> None:
    assert show(Format.NAME) == "a\nb\n"


def test_csv_has_every_column_and_bare_values() -> None:
    rows = list(csv.reader(io.StringIO(show(Format.CSV))))
    assert rows == [
        ["node_group", "nodes", "method", "why_not_more"],
        ["m5-2xlarge-a", "1234", "volume", ""],
        ["gpu [red]", "0", "L2", "taint"],
    ]


def test_markdown_is_a_table() -> None:
    lines = show(Format.MARKDOWN).splitlines()
    assert lines[2:6] == [
        "| NODE GROUP | NODES | METHOD | WHY NOT MORE |",
        "|---|---:|---|---|",
        "| m5-2xlarge-a | 1,234 | volume | - |",
        "| gpu [red] | 0 | L2 | 12 pods: node(s) had \\| taint\\\\x1b[31m |",
    ]


def test_piped_output_is_never_truncated() -> None:
    table = Table([Column("A"), Column("B", "right")], [["x" * 5000, 1]])
    stream = io.StringIO()
    answer = Answer(ANSWER.record, lambda: View("y" * 5000, [table]))
    render(answer, Format.TABLE, Terminal(stdout=stream, stderr=io.StringIO(), environ={}))
    assert stream.getvalue().splitlines() == ["y" * 5000, "", f"A{' ' * 5001}B", f"{'x' * 5000}  1"]


def test_width_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    text = show(Format.TABLE, Screen(), no_color=True)
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(len(line) for line in plain.splitlines()) <= 40
    assert "1,234" in plain


def test_a_command_to_copy_is_one_line_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    command = f"3 pods fit nowhere: kscale explain -f {'x' * 60} -g groups.yaml shop/web"
    answer = Answer(ANSWER.record, lambda: View("Three.", [TABLE], [command]))
    screen = Screen()
    render(answer, Format.TABLE, Terminal(stdout=screen, stderr=io.StringIO(), environ={}, no_color=True))
    assert command in screen.getvalue().splitlines()


def test_a_cell_of_several_values_is_several_columns_of_csv() -> None:
    sizes = Column("CURRENT -> DESIRED", fields=("current", "desired"))
    rows = [["web", Cell("3 -> 5", value=(3, 5))], ["gone", Cell("? -> ?", value=(None, None))]]
    stream = io.StringIO()
    answer = Answer(ANSWER.record, lambda: View("", [Table([Column("HPA"), sizes], rows)]))
    render(answer, Format.CSV, Terminal(stdout=stream, stderr=io.StringIO(), environ={}))
    assert stream.getvalue() == "hpa,current,desired\nweb,3,5\ngone,,\n"


def test_wide_characters_take_two_places() -> None:
    stream = io.StringIO()
    table = Table([Column("NAME"), Column("N", "right")], [["节点", 1], ["node-1", 22]])
    render(Answer(ANSWER.record, lambda: View("", [table])), Format.TABLE, Terminal(stdout=stream, environ={}))
    assert stream.getvalue().splitlines() == ["NAME     N", "节点     1", "node-1  22"]


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33m" in show(Format.TABLE, Screen())
    assert "\x1b[33m" not in show(Format.TABLE, Screen(), no_color=True)
    assert "\x1b" not in show(Format.TABLE)


STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(
    monkeypatch: pytest.MonkeyPatch,
    view: View,
    form: Format = Format.TABLE,
    *,
    code: int = 0,
    columns: int = 80,
    lines: int = 50,
) -> str:
    for name, value in {"COLUMNS": columns, "LINES": lines, "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, str(value))
    screen = Screen()
    render(Answer(ANSWER.record, lambda: view, exit_code=code), form, Terminal(stdout=screen, environ={}))
    return screen.getvalue()


def plain_lines(text: str) -> list[str]:
    return [line.rstrip() for line in STYLE.sub("", text).splitlines()]


REASON = "28 pods: node(s) didn't match Pod's node affinity/selector; 4 pods: would fit an empty node; 3 pods: no room"
LONG = Table([Column("NODE"), Column("N", "right"), Column("WHY")], [["ip-10-0-1-35.ec2.internal", 12, REASON]])


def test_a_reason_is_wrapped_and_then_shortened_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = plain_lines(on_terminal(monkeypatch, View("", [LONG])))
    assert plain == [
        "NODE                        N  WHY",
        "ip-10-0-1-35.ec2.internal  12  28 pods: node(s) didn't match Pod's node",
        "                               affinity/selector; 4 pods: would fit an empty…",
        "Texts are shortened to the terminal's width; -o wide shows all.",
    ]
    plain = plain_lines(on_terminal(monkeypatch, View("", [LONG]), columns=200))
    assert plain[1:] == [f"ip-10-0-1-35.ec2.internal  12  {REASON}"]


def test_wide_shortens_nothing_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = plain_lines(on_terminal(monkeypatch, View("x" * 100, [LONG]), Format.WIDE))
    assert plain == ["x" * 100, "", f"NODE{' ' * 24}N  WHY", f"ip-10-0-1-35.ec2.internal  12  {REASON}"]


@pytest.mark.parametrize(
    ("available", "widths"),
    [
        (80, [25, 5, 25, 19]),  # all fits
        (70, [25, 5, 17, 17]),  # sentences shrink, the widest first
        (60, [17, 5, 16, 16]),  # then names
        (45, [16, 5, 9, 9]),  # then sentences once more
        (30, [6, 5, 6, 7]),  # then all texts
        (23, [4, 5, 4, 4]),
        (22, [4, 4, 4, 4]),  # then titles of numbers
        (10, [4, 3, 4, 4]),  # numbers stay
    ],
)
def test_columns_shrink_in_order(available: int, widths: list[int]) -> None:
    name, number = (False, None), (False, 3)
    sentence = (True, None)
    sentences, numbers = zip(name, number, sentence, sentence, strict=True)
    assert fit_widths([25, 5, 25, 19], sentences, numbers, available) == widths


def test_numbers_stay_in_one_piece_on_a_terminal_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [f"12345.{i}" for i in range(6)]
    columns = [Column("NAME"), *(Column(f"NUMBERS {i}", "right") for i in range(6))]
    view = View("Numbers.", [Table(columns, [["a-long-name", *numbers]])])
    shown = plain_lines(on_terminal(monkeypatch, view, columns=40))
    assert any(line.split()[-6:] == numbers for line in shown), shown


def test_the_headline_comes_last_if_the_output_is_longer_than_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([Column("NODE")], [[f"node-{i}"] for i in range(5)])
    view = View("Five nodes.", [table], ["kscale explain tells more."])
    long = plain_lines(on_terminal(monkeypatch, view, lines=9))
    assert long == ["NODE", *(f"node-{i}" for i in range(5)), "", "kscale explain tells more.", "", "Five nodes."]
    short = plain_lines(on_terminal(monkeypatch, view, lines=20))
    assert short == ["Five nodes.", "", *long[:-2]]


def test_the_headline_is_red_if_something_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(monkeypatch, View("None fits."), code=1) == "\x1b[1;31mNone fits.\x1b[0m\n"
    assert on_terminal(monkeypatch, View("All fit.")) == "\x1b[1mAll fit.\x1b[0m\n"
