"""``kscale schema``: the published JSON Schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kscale.cli.output import Answer, Column, Show, Table, View
from kscale.schemas import DOCUMENTS, SchemaList, record_type, schema_text

__all__ = ["command"]


def command(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="The kind of document; none lists them.")] = None,
    *,
    show: Show,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Write every schema into this directory, one file per kind.")
    ] = None,
) -> Answer | None:
    """Print the JSON Schema of a document that -o json writes.

    Without KIND: the kinds there are.
    """
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for name in DOCUMENTS:
            (directory / f"{name}.json").write_text(schema_text(name), encoding="utf-8")
        show.terminal.note(f"wrote {len(DOCUMENTS)} schemas to {directory}")
        return None
    if kind is None:
        return Answer(SchemaList(kinds=sorted(DOCUMENTS)), _kinds)
    known = {name.lower(): name for name in DOCUMENTS}
    if kind.lower() not in known:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(sorted(DOCUMENTS))}", param_hint="KIND")
    show.terminal.stdout.write(schema_text(known[kind.lower()]))
    return None


def _kinds() -> View:
    rows = [[name, " ".join((record_type(name).__doc__ or "").split("\n\n")[0].split())] for name in sorted(DOCUMENTS)]
    return View(
        headline=f"{len(rows)} kinds of documents have a published schema.",
        tables=[Table([Column("KIND"), Column("WHAT IT IS")], rows)],
        footer=["kscale schema KIND prints one."],
        names=[str(row[0]) for row in rows],
    )
