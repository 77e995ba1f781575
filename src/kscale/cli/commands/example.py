"""``kscale example``: the files that the documentation works with, from the installed package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from kscale.cli.terminal import Terminal
from kscale.errors import InputError
from kscale.files import replace_file

__all__ = ["command"]


def command(
    *,
    directory: Annotated[
        Path, typer.Argument(metavar="[DIRECTORY]", help="Directory to write the files to: a new one, or an empty one.")
    ] = Path("examples"),
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing on stderr except errors.")] = False,
) -> None:
    """Write the bundled example: a cluster's dump, its node groups, scenarios, simulations, excerpts of real traces.

    With the directory that it has by itself, examples, the commands of the documentation run as they are printed.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory}: is there already, and nothing is written over: name another directory")
    written = 0
    for name, file in _bundled(files("kscale").joinpath("examples"), directory):
        name.parent.mkdir(parents=True, exist_ok=True)
        replace_file(name, file.read_bytes())
        written += 1
    Terminal(quiet=quiet).note(
        f"{directory}: {written} files. Next: kscale estimate -f {directory / 'cluster.json.gz'} "
        f"-g {directory / 'groups.yaml'}"
    )


def _bundled(folder: Traversable, directory: Path) -> Iterator[tuple[Path, Traversable]]:
    """Each file of a folder of the package, and where it goes."""
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        if each.is_dir():
            yield from _bundled(each, directory / each.name)
        else:
            yield directory / each.name, each
