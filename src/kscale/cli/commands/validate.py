"""``kscale validate``: read everything, decide nothing."""

from __future__ import annotations

from kscale.capacity.validation import Validation, validate
from kscale.cli.failures import BAD_INPUT
from kscale.cli.inputs import DUMP_HELP, Files
from kscale.cli.output import Answer, Cell, Column, Row, Show, Table, View
from kscale.cli.terminal import plural

__all__ = ["EPILOG", "command", "validation_view"]

EPILOG = DUMP_HELP


def command(*, source: Files, show: Show) -> Answer:
    """Check the objects of a dump: how many of each kind there are, which cannot be read, and which look wrong.

    HPAs, VPAs and ScaledObjects are validated as the API server and the webhooks of the VPA and of KEDA do, misspelled
    fields included. Status 2 if an object cannot be read or would be refused; -o name then prints these objects,
    otherwise the kinds.
    """
    source.check()
    with show.terminal.step(f"reading {source.source_names}"):
        record = validate(source.filename)
    return Answer(record, lambda: validation_view(record), exit_code=0 if record.valid else BAD_INPUT)


def validation_view(record: Validation) -> View:
    """Build the view of a validation: counts per kind, then problems, then warnings."""
    good = record.objects - record.damaged
    state = f"{good:,} can be read, {record.damaged:,} cannot" if record.damaged else "all can be read"
    state += f", {record.refused:,} would be refused" if record.refused else ""
    others = sum(item.objects for item in record.kinds if not item.modelled)
    more = f" ({others:,} more of kinds that are not modelled)" if others else ""
    odd = f", {record.warning_count:,} {plural('warning', record.warning_count)}" if record.warning_count else ""
    kinds: list[Row] = [
        [item.kind, item.objects, "yes" if item.modelled else "no, not modelled"] for item in record.kinds
    ]
    tables = [Table([Column("KIND"), Column("OBJECTS", "right"), Column("READ")], kinds)]
    tables += [
        Table([Column("PROBLEM")], [[Cell(text, "bad")] for text in record.problems], limit=50),
        Table([Column("WARNING")], [[Cell(text, "warn")] for text in record.warnings], limit=50),
    ]
    footer = []
    if record.unreadable:
        footer.append("The other commands refuse this input: a file that cannot be read is never left out.")
    elif record.damaged:
        footer.append("The other commands refuse this input, or go on without the damaged objects with --skip-invalid.")
    if record.refused:
        footer.append("Objects that would be refused: an API server or its webhooks do not store them as they are.")
    return View(
        headline=f"{record.objects:,} {plural('object', record.objects)}: {state}{odd}{more}.",
        tables=tables,
        footer=footer,
        names=record.damaged_objects or [item.kind for item in record.kinds],
    )
