"""How one answer looks in seven formats."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from kscale.cli.output import Answer, Cell, Column, Format, Table, View, render
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


def test_what_is_piped_is_never_cut() -> None:
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
