"""Output of an answer: one record, and a view of it, in any of eight formats.

Tables on a terminal are as wide as the terminal, with long texts wrapped and then shortened.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import typer
from msgspec.structs import replace

from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal, on_one_line, printable
from kscale.records import Record
from kscale.views import Block, Cell, Column, Origin, Table, Tone, View, as_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

__all__ = [
    "MAX_LINES",
    "STYLES",
    "UNLIMITED",
    "Answer",
    "Cell",
    "Column",
    "Format",
    "Row",
    "Show",
    "Table",
    "View",
    "failing_cell",
    "fit_widths",
    "make_columns",
    "money_cell",
    "render",
    "rich_table",
    "share_cell",
]

STYLES: Final[dict[Tone, str]] = {"": "", "good": "green", "warn": "yellow", "bad": "red", "dim": "dim"}
UNLIMITED: Final = 1 << 20
"""Width of a console that breaks no line."""
_GAP: Final = 2
MAX_LINES: Final = 2
"""Lines of a cell that is shortened."""
_PREFERRED_WIDTH, _MIN_SENTENCE, _MIN_TEXT = 16, 8, 4
"""Widths down to which columns shrink: sentences, then names, are comfortable as long as possible."""


def fit_widths(
    widths: Sequence[int], sentences: Sequence[bool], numbers: Sequence[int | None], available: int
) -> list[int]:
    """Shrink columns until they fit.

    Parameters
    ----------
    widths : sequence of int
        Widths of the columns that show everything.
    sentences : sequence of bool
        Whether a column has cells of several words. These columns shrink first, the widest before the others.
    numbers : sequence of int or None
        Width of the longest number of a column of numbers, None for other columns. These columns shrink last, and only
        their titles are broken: a number broken over two lines would be misread.
    available : int
        Width of the terminal.

    Returns
    -------
    list of int
        Widths whose sum with the gaps is ``available`` at most, unless the numbers and the least widths of the other
        columns take more.
    """
    result = list(widths)
    room = available - _GAP * (len(result) - 1)
    shrinkable = [index for index, number in enumerate(numbers) if number is None]
    of_sentences = [index for index in shrinkable if sentences[index]]
    stages = (
        (_PREFERRED_WIDTH, of_sentences),
        (_PREFERRED_WIDTH, [index for index in shrinkable if not sentences[index]]),
        (_MIN_SENTENCE, of_sentences),
        (_MIN_TEXT, shrinkable),
    )
    for minimum, columns in stages:
        while sum(result) > room and (wider := [index for index in columns if result[index] > minimum]):
            result[max(wider, key=lambda index: result[index])] -= 1
    titles = {index: max(number, 1) for index, number in enumerate(numbers) if number is not None}
    while sum(result) > room and (wider := [index for index, number in titles.items() if result[index] > number]):
        result[max(wider, key=lambda index: result[index] - titles[index])] -= 1
    return result


def rich_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell | str | float | None]],
    console: Console,
    available: int | None,
    max_lines: int = MAX_LINES,
) -> tuple[RichTable, bool]:
    """Return the table for a terminal, and whether a text in it is shortened.

    ``available`` is the width to which the table is fitted; None keeps every cell on one line. ``max_lines`` is the
    number of lines that a cell may have.
    """
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    cells = [[as_cell(value) for value in row] for row in rows]
    texts = [[on_one_line(cell.text) for cell in row] for row in cells]
    widths = [max(map(cell_len, column)) for column in zip([each.title for each in columns], *texts, strict=True)]
    if available is not None and texts:
        sentences = [any(" " in text for text in column) for column in zip(*texts, strict=True)]
        numbers = [
            max(map(cell_len, shown)) if column.align == "right" else None
            for column, shown in zip(columns, zip(*texts, strict=True), strict=True)
        ]
        widths = fit_widths(widths, sentences, numbers, available)
    table = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", title_justify="left")
    width = sum(widths) + _GAP * (len(widths) - 1)
    if available is not None and width > available:
        table.width = width  # otherwise rich shrinks columns of numbers
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.title, justify=column.align, width=width, no_wrap=available is None, overflow="fold")
    shortened = False
    for row, line in zip(cells, texts, strict=True):
        shown = []
        for cell, text, width in zip(row, line, widths, strict=True):
            fitted, is_cut = _shorten(Text(text, STYLES[cell.tone]), width, max_lines, console)
            shown.append(fitted)
            shortened |= is_cut
        table.add_row(*shown)
    return table, shortened


def _shorten(text: Text, width: int, max_lines: int, console: Console) -> tuple[Text, bool]:
    """Return the text's first lines at this width, and whether lines are left out, which an ellipsis shows."""
    from rich.text import Text

    lines = text.wrap(console, width, overflow="fold")
    if len(lines) <= max_lines:
        return text, False
    last = lines[max_lines - 1]
    last.rstrip()
    last.truncate(width - 1)
    last.append("…")
    return Text("\n").join(lines[:max_lines]), True


class Format(StrEnum):
    """Output formats of ``-o``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"


class Answer(msgspec.Struct, frozen=True, eq=False):
    """Result of a command.

    ``view`` is called only for formats that need it, as texts take longer than decisions. ``blocks`` returns what an
    HTML page shows beside the view.
    """

    record: Record
    view: Callable[[], View]
    exit_code: int = 0
    blocks: Callable[[], Sequence[Block]] = tuple


Row = list[Cell | str | float | None]
"""Cells of one row of a table."""


def share_cell(share: float | None) -> Cell:
    """Return a cell with a share in percent; ``-`` for None."""
    return Cell("-", value="") if share is None else Cell(f"{share:.0%}", value=round(share, 4))


def failing_cell(count: int) -> Cell:
    """Return a cell with a number of failures, red unless it is 0."""
    return Cell(f"{count:,}", "bad" if count else "", count)


def money_cell(amount: float | None) -> Cell:
    """Return a cell with an amount of money, and the amount without ``$`` for CSV; ``-`` for None."""
    return Cell("-", value="") if amount is None else Cell(f"${amount:,.2f}", value=f"{amount:,.2f}")


def make_columns(*titles: str, align: Literal["left", "right"] = "left", wide: bool = False) -> list[Column]:
    """Return a column for each title, all with the same alignment. ``wide``: show them with ``-o wide`` only."""
    return [Column(title, align, wide) for title in titles]


def _shown_columns(table: Table, wide: bool) -> list[int]:
    """Return the indices of the table's columns that are shown: all if ``wide``, else those not marked as wide."""
    return [index for index, column in enumerate(table.columns) if wide or not column.wide]


def _format_plain(table: Table, wide: bool) -> str:
    """Format a table for a pipe, with columns as wide as their cells."""
    shown = _shown_columns(table, wide)
    rows = [[on_one_line(as_cell(row[index]).text) for index in shown] for row in _limit_rows(table, wide)]
    rows.insert(0, [table.columns[index].title for index in shown])
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    right = [table.columns[index].align == "right" for index in shown]
    return "".join(
        "  ".join(
            " " * (width - _width(text)) + text if flush else text + " " * (width - _width(text))
            for text, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        + "\n"
        for row in rows
    )


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _limit_rows(table: Table, wide: bool) -> Sequence[Sequence[Cell | str | float | None]]:
    """Return the table's first rows, up to its limit; all rows if ``wide`` or without a limit."""
    return table.rows if wide or not table.limit else table.rows[: table.limit]


def _parts(view: View, wide: bool) -> Iterator[str | Table]:
    """Yield the lines and tables that are printed, in order. Tables without rows are left out.

    ``wide``: also tables that the headline says already, and no line about rows that are left out.
    """
    if view.headline:
        yield printable(view.headline)
    for table in view.tables:
        if not table.rows or (table.said and not wide):
            continue
        if view.headline or table is not view.tables[0]:
            yield ""
        if table.title:
            yield printable(table.title)
        yield table
        left_out = len(table.rows) - table.limit
        if table.limit and left_out > 0 and not wide:
            yield f"... and {left_out:,} more; -o wide shows all."
    if view.footer:
        yield ""
        yield from map(on_one_line, view.footer)


def _print_view(answer: Answer, terminal: Terminal, wide: bool) -> None:
    """Print the answer's view: coloured and fitted to a terminal, or plain for a pipe.

    On a terminal, the headline comes last if the output does not fit on the screen.
    """
    view = answer.view()
    if not terminal.stdout.isatty():
        for part in _parts(view, wide):
            terminal.stdout.write(_format_plain(part, wide) if isinstance(part, Table) else f"{part}\n")
        return
    console = terminal.console()
    screen = console.height
    if wide:
        console.width = UNLIMITED
    lines = _terminal_lines(view, console, wide, "bold red" if answer.exit_code else "bold")
    if view.headline and len(lines) >= screen:  # the end of the output is what stays on the screen
        headline = _terminal_lines(View(view.headline), console, wide, "bold red" if answer.exit_code else "bold")
        lines = [*_terminal_lines(replace(view, headline=""), console, wide), "", *headline]
    terminal.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))


def _terminal_lines(view: View, console: Console, wide: bool, headline_style: str = "bold") -> list[str]:
    """Return what is printed on a terminal, by line. A note follows a table in which texts are shortened."""
    from rich.text import Text

    titles = {printable(table.title) for table in view.tables}
    headline = printable(view.headline)
    with console.capture() as capture:
        for part in _parts(view, wide):
            if isinstance(part, Table):
                shown = _shown_columns(part, wide)
                rows = [[row[index] for index in shown] for row in _limit_rows(part, wide)]
                width = None if wide else console.width
                table, is_shortened = rich_table([part.columns[index] for index in shown], rows, console, width)
                console.print(table, crop=False)
                if is_shortened:
                    console.print(Text("Texts are shortened to the terminal's width; -o wide shows all.", style="dim"))
            elif part and part in (headline, *titles):
                console.print(Text(part, style=headline_style if part == headline else "bold"))
            else:  # wrapped by the terminal, so that a copied command stays in one piece
                console.print(Text(part), soft_wrap=True)
    return capture.get().splitlines()


def _csv(view: View) -> str:
    """Format the view's first table as CSV; empty without tables."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for table in view.tables[:1]:
        names = [column.fields or (column.title.lower().replace(" ", "_"),) for column in table.columns]
        writer.writerow([name for each in names for name in each])
        for row in table.rows:
            writer.writerow([value for cell in map(as_cell, row) for value in _values(cell)])
    return text.getvalue()


def _values(cell: Cell) -> tuple[Any, ...]:
    """Return the values of a cell in CSV, one for each field of its column."""
    if isinstance(cell.value, tuple):
        return tuple("" if each is None else each for each in cell.value)
    return (cell.text if cell.value is None else cell.value,)


def _markdown(view: View) -> str:
    """Format headline, tables and footer as Markdown. Empty tables are left out."""

    def escape(text: str) -> str:
        return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")

    lines = [escape(view.headline)] if view.headline else []
    for table in view.tables:
        if not table.rows:
            continue
        lines += ["", f"**{escape(table.title)}**"] if table.title else []
        lines += ["", "| " + " | ".join(escape(column.title) for column in table.columns) + " |"]
        lines.append("|" + "|".join("---:" if column.align == "right" else "---" for column in table.columns) + "|")
        lines += ["| " + " | ".join(escape(as_cell(value).text) for value in row) + " |" for row in table.rows]
    lines += ["", *(escape(line) + "  " for line in view.footer)] if view.footer else []
    return "\n".join(lines).strip("\n") + "\n"


def _yaml(record: Record) -> str:
    """Return a record as YAML text."""
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(record.to_dict(), Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


def render(answer: Answer, form: Format, terminal: Terminal, origin: Origin | None = None) -> None:
    """Write the answer to the terminal's stdout. ``origin`` is for the header of an HTML page."""
    write = terminal.stdout.write
    match form:
        case Format.JSON:
            write(answer.record.to_json(indent=2).decode())
            write("\n")  # apart, as a document may be large
        case Format.YAML:
            write(_yaml(answer.record))
        case Format.NAME:
            write("".join(f"{on_one_line(name)}\n" for name in answer.view().names))
        case Format.CSV:
            write(_csv(answer.view()))
        case Format.MARKDOWN:
            write(_markdown(answer.view()))
        case Format.HTML:
            from kscale.html import page

            record = answer.record
            write(page(type(record).KIND, answer.view(), answer.blocks(), record=record.to_json(), origin=origin))
        case _:
            _print_view(answer, terminal, wide=form is Format.WIDE)
    terminal.stdout.flush()


@dataclass(eq=False, repr=False, init=False)
class Show(OptionGroup):
    """Options about output. ``terminal`` takes a command's log messages and warnings.

    Attributes
    ----------
    output
        Output format. json and yaml print the complete record, html prints a web page.
    verbose
        Print timings and all warnings to stderr.
    quiet
        Print only errors to stderr.
    no_color
        Print no colours. The environment variable NO_COLOR=1 does the same.
    """

    title = "Output"
    common = ("output",)

    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TABLE
    verbose: Annotated[bool, typer.Option("-v", "--verbose")] = False
    quiet: Annotated[bool, typer.Option("-q", "--quiet")] = False
    no_color: bool = False
    origin: Origin | None = field(default=None, init=False)
    """When and how the answer was made, for the header of a page."""
    _terminal: Terminal | None = field(default=None, init=False)

    def adopt(self, root: dict[str, Any]) -> None:
        """Apply the flags of ``kscale`` itself, typed before the command (``root``: their values by name)."""
        for name in ("verbose", "quiet", "no_color"):
            setattr(self, name, getattr(self, name) or bool(root.get(name)))

    @property
    def terminal(self) -> Terminal:
        """Return the terminal with these options, created on first access."""
        if self._terminal is None:
            self._terminal = Terminal(no_color=self.no_color, verbose=self.verbose, quiet=self.quiet)
        return self._terminal

    @property
    def needs_full_record(self) -> bool:
        """Return whether the output format prints the full record, so that all of its parts are needed."""
        return self.output in (Format.JSON, Format.YAML, Format.HTML)

    def emit(self, answer: Answer) -> int:
        """Print the answer in the chosen format and return the exit status."""
        render(answer, self.output, self.terminal, self.origin)
        return answer.exit_code
