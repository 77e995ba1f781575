"""``kscale schema``: the published JSON Schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kscale.cli.output import Answer, Column, Show, Table, View
from kscale.cli.registry import schema_kinds
from kscale.cli.terminal import program
from kscale.files import replace_file
from kscale.schemas import DOCUMENTS, INPUTS, SchemaList, input_schema_text, record_type, schema_files, schema_text

__all__ = ["command"]


def command(
    kind: Annotated[str, typer.Argument(autocompletion=schema_kinds)] = "",
    *,
    show: Show,
    directory: Path | None = None,
) -> Answer | None:
    """Print the JSON Schema of a document that -o json writes, or of an input file.

    Without KIND: list the documents and input files.

    Parameters
    ----------
    kind : KIND
        The document or input file; none lists them.
    directory
        Write every schema into this directory, one file each.

    Returns
    -------
    Answer or None
        The list of kinds; None if schemas were printed or written.

    Raises
    ------
    typer.BadParameter
        If the kind is unknown, or set together with the directory.
    """
    if directory is not None:
        if kind:
            raise typer.BadParameter("every schema is written: leave out KIND", param_hint="--directory")
        directory.mkdir(parents=True, exist_ok=True)
        files = schema_files()
        for name, text in files.items():
            replace_file(directory / name, text.encode())
        show.terminal.note(f"wrote {len(files)} schemas to {directory}")
        return None
    if not kind:
        return Answer(SchemaList(kinds=sorted(DOCUMENTS), inputs=sorted(INPUTS)), _kinds)
    name_of = {name.lower(): name for name in (*DOCUMENTS, *INPUTS)}
    if kind.lower() not in name_of:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(sorted(name_of.values()))}", param_hint="KIND")
    name = name_of[kind.lower()]
    show.terminal.stdout.write(input_schema_text(name) if name in INPUTS else schema_text(name))
    return None


def _kinds() -> View:
    """Build the view that lists the kinds of documents and the input files that have a schema."""
    rows = [[name, " ".join((record_type(name).__doc__ or "").split("\n\n")[0].split())] for name in sorted(DOCUMENTS)]
    rows += [[name, "An input file."] for name in sorted(INPUTS)]
    return View(
        headline=f"{len(rows)} kinds of documents and files have a published schema.",
        tables=[Table([Column("KIND"), Column("WHAT IT IS")], rows)],
        footer=[f"{program()} schema KIND prints one."],
        names=[str(row[0]) for row in rows],
    )
