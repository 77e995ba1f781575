"""Several clusters in one answer: a command runs for each of them, and what it says stands in the same tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import typer

from kscale.cli.failures import BAD_INPUT
from kscale.cli.output import Answer, Cell, Column, Table, View
from kscale.cli.terminal import Terminal
from kscale.cli.words import plural
from kscale.errors import KscaleError
from kscale.records import Record, to_builtins
from kscale.views import Block

__all__ = ["ClusterAnswer", "ClusterAnswers", "of_all"]


class ClusterAnswer(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The document that a command wrote about one cluster, or the ``error`` that it ended with. ``cluster`` is the name
    of its context."""

    cluster: str
    answer: dict[str, Any] | None = None
    error: str = ""


class ClusterAnswers(Record, frozen=True):
    """What a command says of several clusters, in the order in which they were named."""

    KIND: ClassVar[str] = "ClusterAnswers"
    clusters: list[ClusterAnswer]


def of_all(commands: Mapping[str, Callable[[], Answer]], terminal: Terminal) -> Answer:
    """The answers of ``commands``, by cluster, as one. A cluster that fails is an error of its own, and the exit status
    is then that of bad input; else it is the greatest of all. Raises BadParameter for arguments that do for none."""
    answers: dict[str, Answer] = {}
    failures: dict[str, KscaleError | OSError | typer.BadParameter] = {}
    for name, command in commands.items():
        try:
            answers[name] = command()
        except (KscaleError, OSError, typer.BadParameter) as error:
            failures[name] = error
    refusals = [error for error in failures.values() if isinstance(error, typer.BadParameter)]
    if len(refusals) == len(commands):
        raise refusals[0]
    told: list[ClusterAnswer] = []
    for name in commands:
        failure = failures.get(name)
        if failure is None:
            told.append(ClusterAnswer(cluster=name, answer=to_builtins(answers[name].record)))
        else:
            text = failure.format_message() if isinstance(failure, typer.BadParameter) else str(failure)
            terminal.error(f"{name}: {text}")
            told.append(ClusterAnswer(cluster=name, error=text))
    code = max((answer.exit_code for answer in answers.values()), default=0)
    return Answer(
        ClusterAnswers(clusters=told),
        lambda: _view(told, {name: answer.view() for name, answer in answers.items()}),
        exit_code=code if len(answers) == len(told) else max(code, BAD_INPUT),
        blocks=lambda: _blocks(answers),
    )


_Row = list[Cell | str | float | None]


def _view(told: Sequence[ClusterAnswer], views: Mapping[str, View]) -> View:
    """Tables of the same columns are one, with the cluster before each row; every cluster's sentence comes below.
    A cluster that failed is a row of the first table."""
    rows: dict[tuple[str, tuple[Column, ...]], list[_Row]] = {}
    for name, view in views.items():
        for table in view.tables:
            here = rows.setdefault((table.title, tuple(table.columns)), [])
            here += [[name, *row] for row in table.rows]
    tables = [Table((Column("CLUSTER"), *columns), found, title) for (title, columns), found in rows.items()]
    if errors := {each.cluster: each.error for each in told if each.error}:
        tables[:1] = [_with_errors(tables[0] if tables else Table((Column("CLUSTER"),), []), errors, told)]
    said = [f"{each.cluster}: {each.error or views[each.cluster].headline}" for each in told]
    more = [f"{name}: {line}" for name, view in views.items() for line in view.footer]
    return View(
        headline=f"{len(views):,} of {len(told):,} {plural('cluster', len(told))} answered.",
        tables=tables,
        footer=[*said, *more],
        names=[f"{name}/{each}" for name, view in views.items() for each in view.names],
    )


def _with_errors(table: Table, errors: Mapping[str, str], told: Sequence[ClusterAnswer]) -> Table:
    """The table with a row for each cluster that failed, at its place: nothing but its error, in a column of its
    own."""
    blank = [Cell("", value=("",) * len(column.fields) if column.fields else "") for column in table.columns[1:]]
    rows: list[_Row] = []
    for name in (each.cluster for each in told):
        if name in errors:
            rows.append([name, *blank, Cell(errors[name], "bad")])
        rows += [[*row, ""] for row in table.rows if row[0] == name]
    return msgspec.structs.replace(table, columns=(*table.columns, Column("ERROR")), rows=rows)


def _blocks(answers: Mapping[str, Answer]) -> list[Block]:
    return [
        msgspec.structs.replace(block, title=f"{name}: {block.title}")
        for name, answer in answers.items()
        for block in answer.blocks()
    ]
