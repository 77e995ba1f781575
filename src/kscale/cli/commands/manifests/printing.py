"""What the commands under ``kscale manifests`` share: their flags, and how objects are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kscale.cli.cluster_autoscaler_flags import LoopFlags
from kscale.cli.command import option_groups
from kscale.cli.hpa_options import DecisionFlags
from kscale.cli.output import Format, Show
from kscale.cli.registry import find
from kscale.files import read_file, replace_file

__all__ = ["Flags", "Image", "Namespace", "Replicas", "ShowObjects", "own_options", "print_objects"]

Image = Annotated[str, typer.Option("--image", metavar="NAME", help="A container image with kscale in it.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Namespace in which the program runs.")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="Number of replicas: one leads, the others wait.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="--NAME=VALUE", help="Flag for kscale run with this program. Repeatable."),
]

_NO_TLS = "the Deployment mounts no such file, and its probes ask without TLS: patch them with it"
_NO_FILE: Final = "the Deployment mounts no such file: patch it with it"
_FOLLOWED_BY_NOTHING: Final = {
    "address": "the port of probes, of monitoring and of the NetworkPolicy is that of the default: patch them with it",
    "tls_cert_file": _NO_TLS,
    "tls_private_key_file": _NO_TLS,
    "client_ca_file": _NO_FILE,
    "prometheus_bearer_token_file": _NO_FILE,
}
"""Flags that objects besides the arguments would have to follow, and do not."""


_OBJECTS: Final = "kscale.yaml"
_BASE: Final = "kustomization.yaml"


@dataclass(eq=False, repr=False)
class ShowObjects(Show):
    """The options about output, and where a kustomize base is written instead."""

    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help=f"Directory for a kustomize base instead of stdout: {_BASE} and {_OBJECTS}.",
        ),
    ] = None


def print_objects(show: ShowObjects, objects: Sequence[dict[str, Any]]) -> None:
    """As YAML, one document each, or as a List in JSON; or as a kustomize base. What occurs twice is written twice:
    kubectl reads anchors, people do not.

    Raises BadParameter for what kubectl does not read, for arguments in a Deployment that its program does not take,
    and for a directory that has another kustomization, or a file that is in the way of the objects.
    """
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                _option_values(container["args"])
    if show.directory is not None:
        if show.output not in (Format.TABLE, Format.YAML):
            raise typer.BadParameter("a kustomize base is written as yaml", param_hint="-o")
        _write_base(show, objects, show.directory)
        return
    write = show.terminal.stdout.write
    match show.output:
        case Format.JSON:
            import msgspec

            found = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
            write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        case Format.TABLE | Format.YAML:
            write(_yaml(objects))
        case _:
            raise typer.BadParameter("kubectl apply takes yaml and json", param_hint="-o")


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    import yaml

    class Whole(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
            return True

    text: str = yaml.dump_all(documents, Dumper=Whole, sort_keys=False)
    return text


def _write_base(show: Show, objects: Sequence[Mapping[str, Any]], directory: Path) -> None:
    base = _yaml([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [_OBJECTS]}])
    file, listed = directory / _BASE, directory / _OBJECTS
    if file.exists():
        if read_file(file) != base.encode():
            raise typer.BadParameter(f"{file} is there, and is another kustomization", param_hint="--directory")
    elif listed.exists():
        raise typer.BadParameter(f"{listed} is there, without the {_BASE} of this command", param_hint="--directory")
    directory.mkdir(parents=True, exist_ok=True)
    # First: without it, objects of a run that was interrupted would be taken for another's.
    replace_file(file, base.encode())
    replace_file(listed, _yaml(objects).encode(), secret=True)  # a Secret may be in it
    show.terminal.note(f"wrote {len(objects)} objects to {listed}")


def own_options(program: str, flags: Sequence[str], **own: str) -> dict[str, Any]:
    """What the options of ``kscale run PROGRAM`` are with these flags, by their names. ``own``: those that the command
    itself gives.

    Raises BadParameter for what the program does not take, for a flag that says another than one of ``own``, and for
    one that the printed objects do not follow.
    """
    options = {name: f"--{name.replace('_', '-')}" for name in own}
    values = _option_values(["run", program, *(f"{options[name]}={value}" for name, value in own.items()), *flags])
    for name, value in own.items():
        if values[name] != value:
            raise typer.BadParameter(
                f"{options[name]} is said by this command: its rules go by it", param_hint="--flag"
            )
    usual = _option_values(["run", program, *(f"{options[name]}={value}" for name, value in own.items())])
    for name, why in _FOLLOWED_BY_NOTHING.items():
        if name in values and values[name] != usual[name]:
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}", param_hint="--flag")
    return values


def _option_values(arguments: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``kscale`` as the program would read them: the values of its options. Runs nothing.

    Raises BadParameter for what the program does not take, and for ``--help``, with which it would do nothing else.
    """
    from kscale.cli.app import command_of

    entry = find(" ".join(arguments[:2]))
    assert entry is not None, arguments
    try:
        context = command_of(entry).make_context(entry.name, list(arguments[2:]), help_option_names=[])
    except typer.TyperException as error:
        raise typer.BadParameter(error.format_message(), param_hint="--flag") from None
    values: dict[str, Any] = context.params
    for group in option_groups(entry.load(), values).values():
        if isinstance(group, LoopFlags | DecisionFlags):
            group.options()
    return values
