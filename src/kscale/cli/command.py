"""Converts a command's function to the callback that typer runs, for one cluster or several."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast

import msgspec
import typer

import kscale
from kscale.cli.failures import BAD_INPUT
from kscale.cli.inputs import start_garbage_collector
from kscale.cli.options import OptionGroup, command_parameters, fields, split_docstring
from kscale.cli.output import Answer, Cell, Column, Format, Row, Show, Table, View
from kscale.cli.terminal import ARGUMENTS, Terminal, plural, program
from kscale.errors import KscaleError
from kscale.records import Record
from kscale.views import Block, Origin

__all__ = ["ClusterAnswer", "ClusterAnswers", "callback", "option_groups", "run_for_all"]

_INPUT_FILES: Final = ("scenario", "scenarios", "decisions", "before", "after", "series", "filename", "pod")
"""Names of arguments and options outside of the option groups that are input files."""


class ClusterAnswer(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """The answer of a command about one cluster, or an error.

    Attributes
    ----------
    cluster : str
        Name of the context of the cluster in the kubeconfig.
    answer : dict of str to Any or None
        The document that the command prints for one cluster. None: there is an ``error``.
    error : str
        Why there is no answer. Empty: there is one.
    """

    cluster: str
    answer: dict[str, Any] | None = None
    error: str = ""


class ClusterAnswers(Record, frozen=True):
    """Answers of a command about several clusters.

    Attributes
    ----------
    clusters : list of ClusterAnswer
        One answer per cluster, in the order in which the clusters were named.
    """

    KIND: ClassVar[str] = "ClusterAnswers"
    clusters: list[ClusterAnswer]


def run_for_all(commands: Mapping[str, Callable[[], Answer]], terminal: Terminal) -> Answer:
    """Run a command once per cluster and combine the answers into one.

    Parameters
    ----------
    commands : mapping of str to callable
        Cluster name -> call that returns the cluster's Answer.
    terminal : Terminal
        Gets one error message per cluster that failed.

    Returns
    -------
    Answer
        Record ``ClusterAnswers``. The exit status is the greatest of the clusters' statuses. If a cluster failed, it
        is at least that of bad input.

    Raises
    ------
    typer.BadParameter
        If all clusters refused the arguments.
    """
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
    results: list[ClusterAnswer] = []
    for name in commands:
        failure = failures.get(name)
        if failure is None:
            results.append(ClusterAnswer(cluster=name, answer=answers[name].record.to_dict()))
        else:
            text = failure.format_message() if isinstance(failure, typer.BadParameter) else str(failure)
            terminal.error(f"{name}: {text}")
            results.append(ClusterAnswer(cluster=name, error=text))
    code = max((answer.exit_code for answer in answers.values()), default=0)
    return Answer(
        ClusterAnswers(clusters=results),
        lambda: _view(results, {name: answer.view() for name, answer in answers.items()}),
        exit_code=code if len(answers) == len(results) else max(code, BAD_INPUT),
        blocks=lambda: _blocks(answers),
    )


def _view(results: Sequence[ClusterAnswer], views: Mapping[str, View]) -> View:
    """Merge the views of several clusters into one. ``views``: views by cluster, without the clusters that failed.

    Tables with the same title and columns are joined, with the cluster as the first column. The headlines of the
    clusters form the footer. A cluster that failed becomes a row of the first table.
    """
    rows: dict[tuple[str, tuple[Column, ...]], list[Row]] = {}
    for name, view in views.items():
        for table in view.tables:
            same_table = rows.setdefault((table.title, tuple(table.columns)), [])
            same_table += [[name, *row] for row in table.rows]
    tables = [Table((Column("CLUSTER"), *columns), joined, title) for (title, columns), joined in rows.items()]
    if errors := {each.cluster: each.error for each in results if each.error}:
        tables[:1] = [_with_errors(tables[0] if tables else Table((Column("CLUSTER"),), []), errors, results)]
    sentences = [f"{each.cluster}: {each.error or views[each.cluster].headline}" for each in results]
    more = [f"{name}: {line}" for name, view in views.items() for line in view.footer]
    return View(
        headline=f"{len(views):,} of {len(results):,} {plural('cluster', len(results))} answered.",
        tables=tables,
        footer=[*sentences, *more],
        names=[f"{name}/{each}" for name, view in views.items() for each in view.names],
    )


def _with_errors(table: Table, errors: Mapping[str, str], results: Sequence[ClusterAnswer]) -> Table:
    """Return the table with an ERROR column and one row per failed cluster, in the order of the clusters."""
    blank = [Cell("", value=("",) * len(column.fields) if column.fields else "") for column in table.columns[1:]]
    rows: list[Row] = []
    for name in (each.cluster for each in results):
        if name in errors:
            rows.append([name, *blank, Cell(errors[name], "bad")])
        rows += [[*row, ""] for row in table.rows if row[0] == name]
    return msgspec.structs.replace(table, columns=(*table.columns, Column("ERROR")), rows=rows)


def _blocks(answers: Mapping[str, Answer]) -> list[Block]:
    """Return the HTML blocks of all answers, each titled with the name of its cluster."""
    return [
        msgspec.structs.replace(block, title=f"{name}: {block.title}")
        for name, answer in answers.items()
        for block in answer.blocks()
    ]


def callback(function: Callable[..., Answer | None]) -> Callable[..., int]:
    """Return the function that typer runs for a command.

    Its signature has the options of the option groups as keyword-only parameters. It builds the groups, calls
    ``function``, prints the answer and returns the exit status.
    """
    groups = _groups_of(function)

    def run(typer_context: typer.Context, **values: Any) -> int:
        arguments = _build_option_groups(groups, values)
        show = next((value for value in arguments.values() if isinstance(value, Show)), Show())
        show.adopt(typer_context.find_root().params)
        start_garbage_collector()
        for group in arguments.values():
            group.prepare(show.terminal)
        answer = _answer(function, arguments | values, show)
        if answer is not None and show.output == Format.HTML:
            show.origin = _build_origin(typer_context, values, arguments.values())
        return show.emit(answer) if answer is not None else 0

    context = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    declared = [context, *command_parameters(function)]
    run.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}
    run.__doc__ = split_docstring(function.__doc__)[0]
    run.__name__ = function.__name__
    return run


def _build_origin(context: typer.Context, values: Mapping[str, Any], groups: Iterable[OptionGroup]) -> Origin:
    """Return the time, input files, command line and version that an HTML report shows.

    ``values``: the command's own arguments and options; ``groups``: its option groups. The environment variable
    SOURCE_DATE_EPOCH (seconds since 1970) replaces the current time. Passwords are removed.
    """
    from kscale.html.markup import time_of_document
    from kscale.world.kubernetes.kubeconfig import without_password

    now = time_of_document()
    inputs = [*_input_files(values), *(name for group in groups for name in group.inputs)]
    words = context.find_root().meta.get(ARGUMENTS, ())
    return Origin(
        time=f"{now:%Y-%m-%d %H:%M:%S} UTC",
        inputs=without_password(", ".join(inputs)),
        command=shlex.join([program(), *map(without_password, words)]),
        version=kscale.__version__,
    )


def _input_files(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the input files that a command's own arguments and options name. A single ``pod`` is no file."""
    for name in _INPUT_FILES:
        value = values.get(name) or ()
        if isinstance(value, list | tuple):
            yield from value
        elif name != "pod":  # a single one is a pod of the cluster, several are manifests
            yield str(value)


def _answer(function: Callable[..., Answer | None], arguments: dict[str, Any], show: Show) -> Answer | None:
    """Call the command, or once per cluster if an option group names several; then the answers are combined.

    Returns None if the command prints its output itself.
    """
    for name, value in arguments.items():
        if isinstance(value, OptionGroup) and (parts := value.split_by_context()):
            answering = cast("Callable[..., Answer]", function)  # such commands always return one
            commands = {each: partial(answering, **(arguments | {name: part})) for each, part in parts.items()}
            return run_for_all(commands, show.terminal)
    return function(**arguments)


def option_groups(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Build the option groups that a command's function takes, by parameter, from ``values`` of flat options."""
    return _build_option_groups(_groups_of(function), dict(values))


def _groups_of(function: Callable[..., Any]) -> dict[str, type[Any]]:
    """Return the option group classes that a function takes, by parameter name."""
    kinds = {each.name: each.annotation for each in inspect.signature(function, eval_str=True).parameters.values()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, OptionGroup)}


def _build_option_groups(groups: dict[str, type[Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Return an instance of each option group by parameter; their options are removed from ``values``."""
    return {name: kind(**{option: values.pop(option) for option in fields(kind)}) for name, kind in groups.items()}
