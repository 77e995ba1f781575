"""From a command's function to what typer runs, for one cluster or several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import msgspec
import typer

from kscale.cli.failures import BAD_INPUT
from kscale.cli.inputs import started
from kscale.cli.options import OptionGroup, fields, parameters
from kscale.cli.output import Answer, Cell, Column, Show, Table, View
from kscale.cli.terminal import Terminal, plural
from kscale.errors import KscaleError
from kscale.records import Record, to_builtins
from kscale.views import Block

__all__ = ["ClusterAnswer", "ClusterAnswers", "callback", "of_all", "option_groups"]


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


def callback(function: Callable[..., Answer | None]) -> Callable[..., int]:
    """What typer runs for a command: option groups flattened to options, the answer shown, the exit status returned."""
    flat: list[inspect.Parameter] = []
    taken = _taken(function)
    groups = _groups_of(taken)
    for parameter in taken:
        if parameter.name in groups:
            flat += parameters(groups[parameter.name])
        else:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(typer_context: typer.Context, **values: Any) -> int:
        arguments = _filled(groups, values)
        show = next((value for value in arguments.values() if isinstance(value, Show)), Show())
        show.adopt(typer_context.find_root().params)
        started()
        answer = _answer(function, arguments | values, show)
        return show.emit(answer) if answer is not None else 0

    context = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *flat])  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [context, *flat]}
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    return run


def _answer(function: Callable[..., Answer | None], arguments: dict[str, Any], show: Show) -> Answer | None:
    """What the command says; of several clusters, where its options name them."""
    for name, value in arguments.items():
        if isinstance(value, OptionGroup) and (parts := value.apart()):
            answering = cast("Callable[..., Answer]", function)  # who asks about clusters answers
            commands = {each: partial(answering, **(arguments | {name: part})) for each, part in parts.items()}
            return of_all(commands, show.terminal)
    return function(**arguments)


def option_groups(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The option groups that a command's function takes, by parameter, with the ``values`` of its flat options."""
    return _filled(_groups_of(_taken(function)), dict(values))


def _taken(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _groups_of(taken: list[inspect.Parameter]) -> dict[str, type[Any]]:
    kinds = {each.name: each.annotation for each in taken}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, OptionGroup)}


def _filled(groups: dict[str, type[Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Takes out of ``values`` what belongs to the groups."""
    return {name: kind(**{option: values.pop(option) for option in fields(kind)}) for name, kind in groups.items()}
