"""``kscale generate`` and ``kscale example``: a realistic cluster of any size, and the files of the documentation."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Annotated

import typer

from kscale.capacity.generate import generate
from kscale.cli.terminal import Terminal
from kscale.errors import InputError
from kscale.files import replace_file, replacing
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict

__all__ = ["generate_cluster", "write_examples"]


def generate_cluster(
    *,
    nodes: Annotated[int, typer.Option(min=1)] = 40,
    pods: Annotated[int, typer.Option(min=0)] = 600,
    pending: Annotated[int | None, typer.Option(min=0, show_default="a tenth")] = None,
    seed: int = 0,
    lean: bool = False,
    to: str = "-",
    groups: Path | None = None,
    usage: Path | None = None,
    usage_hours: Annotated[float, typer.Option(min=0.1)] = 48.0,
    usage_step: Annotated[float, typer.Option(min=1.0)] = 300.0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet")] = False,
) -> None:
    """Make a realistic cluster: node pools in three zones, workloads with all kinds of rules, pods that are pending.

    Running pods are legally placed; pending ones are too large, meet a taint, ask for a zone without nodes, or find no
    room. The objects are one List in JSON, as kubectl prints it.

    Parameters
    ----------
    nodes
        Number of nodes to generate.
    pods
        How many pods, system pods and pending ones included.
    pending
        How many of the pods have no node yet.
    seed
        Random seed: the same seed makes the same cluster everywhere.
    lean
        Leave out fields that no autoscaler reads: about 1.5 KB per pod instead of 7 KB.
    to : FILE
        File to write the objects to, compressed if the name ends in .gz; -: stdout.
    groups : FILE
        Also write a groups file (YAML) for its node groups.
    usage : FILE
        Also write the usage of the running pods to this file, .csv or .parquet.
    usage_hours
        How many hours of usage.
    usage_step
        Seconds between samples.
    quiet
        Print only errors to stderr.
    """
    terminal = Terminal(quiet=quiet)
    with terminal.step("generating") as update:
        cluster = generate(nodes, pods, seed=seed, pending=pending, lean=lean)
        with _file(to) as file:
            cluster.write(file, progress=lambda done: update(f"generating: {done:,} objects"))
    if groups is not None:
        import yaml

        replace_file(groups, yaml.safe_dump(cluster.groups(), sort_keys=False, encoding="utf-8"))
    if usage is not None:
        from kscale.capacity.generate.workloads import write_usage

        all_pods = (from_dict(item, Pod) for item in cluster.objects() if item["kind"] == "Pod")
        with terminal.step("generating usage"):
            write_usage(usage, all_pods, seed=seed, hours=usage_hours, step=usage_step)
    counts = cluster.counts
    terminal.note(
        f"{counts['nodes']:,} nodes, {counts['running']:,} pods running and {counts['pending']:,} pending, "
        f"of {counts['workloads']:,} workloads"
    )


@contextmanager
def _file(to: str) -> Iterator[IO[bytes]]:
    """Open the target for writing: ``-`` is stdout; ``.gz`` compresses. A file is replaced when the block ends.

    Raises OSError if it cannot be written; it is then unchanged.
    """
    if to == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with replacing(to) as file:
        if not to.endswith(".gz"):
            yield file
            return
        # No name and no time in the header: the same cluster is the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # typeshed does not declare GzipFile as a binary stream


def write_examples(
    *,
    directory: Annotated[Path, typer.Argument()] = Path("examples"),
    quiet: Annotated[bool, typer.Option("-q", "--quiet")] = False,
) -> None:
    """Write the bundled example: a cluster's dump, its node groups, scenarios, simulations, excerpts of real traces.

    In the default directory, examples, the commands of the documentation run as they are printed.

    Parameters
    ----------
    directory : [DIRECTORY]
        Directory to write the files to: a new one, or an empty one.
    quiet
        Print only errors to stderr.

    Raises
    ------
    InputError
        If the directory has files already.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory}: exists already, and no file is overwritten: name another directory")
    written = 0
    for name, file in _list_bundled_files(files("kscale").joinpath("examples"), directory):
        name.parent.mkdir(parents=True, exist_ok=True)
        replace_file(name, file.read_bytes())
        written += 1
    Terminal(quiet=quiet).note(
        f"{directory}: {written} files. Next: kscale estimate -f {directory / 'cluster.json.gz'} "
        f"-g {directory / 'groups.yaml'}"
    )


def _list_bundled_files(folder: Traversable, directory: Path) -> Iterator[tuple[Path, Traversable]]:
    """Yield each file of a folder of the package with its target path."""
    for each in sorted(folder.iterdir(), key=lambda file: file.name):
        if each.name == "__pycache__":  # an installer compiles the programs
            continue
        if each.is_dir():
            yield from _list_bundled_files(each, directory / each.name)
        else:
            yield directory / each.name, each
