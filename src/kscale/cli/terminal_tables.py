"""Tables on a terminal: as wide as the terminal, with long texts wrapped and then shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kscale.cli.terminal import on_one_line
from kscale.views import Cell, Column, Tone, as_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

__all__ = ["MAX_LINES", "STYLES", "UNLIMITED", "fit_widths", "rich_table"]

STYLES: Final[dict[Tone, str]] = {"": "", "good": "green", "warn": "yellow", "bad": "red", "dim": "dim"}
UNLIMITED: Final = 1 << 20
"""Width of a console that breaks no line."""
_GAP: Final = 2
MAX_LINES: Final = 2
"""Lines of a cell that is shortened."""
_COMFORTABLE, _MIN_SENTENCE, _MIN_TEXT = 16, 8, 4
"""Widths down to which columns shrink: sentences, then names, are comfortable as long as possible."""


def fit_widths(widths: Sequence[int], sentences: Sequence[bool], fixed: Sequence[bool], available: int) -> list[int]:
    """Shrink columns until they fit.

    Parameters
    ----------
    widths : sequence of int
        Widths of the columns that show everything.
    sentences : sequence of bool
        Whether a column has cells of several words. These columns shrink first, the widest before the others.
    fixed : sequence of bool
        Whether a column keeps its width: a number broken over two lines would be misread.
    available : int
        Width of the terminal.

    Returns
    -------
    list of int
        Widths whose sum with the gaps is ``available`` at most, unless fixed columns take too much.
    """
    result = list(widths)
    room = available - _GAP * (len(result) - 1)
    shrinkable = [index for index, is_fixed in enumerate(fixed) if not is_fixed]
    of_sentences = [index for index in shrinkable if sentences[index]]
    stages = (
        (_COMFORTABLE, of_sentences),
        (_COMFORTABLE, [index for index in shrinkable if not sentences[index]]),
        (_MIN_SENTENCE, of_sentences),
        (_MIN_TEXT, shrinkable),
    )
    for minimum, columns in stages:
        while sum(result) > room and (wider := [index for index in columns if result[index] > minimum]):
            result[max(wider, key=lambda index: result[index])] -= 1
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
    fixed = [column.align == "right" for column in columns]
    if available is not None:
        sentences = [any(" " in text for text in column) for column in zip(*texts, strict=True)]
        widths = fit_widths(widths, sentences, fixed, available)
    table = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", title_justify="left")
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
