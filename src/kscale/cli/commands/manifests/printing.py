"""What the commands under ``kscale manifests`` share: their flags, and how objects are printed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from kscale.cli.cluster_autoscaler_flags import LoopFlags
from kscale.cli.command import option_groups
from kscale.cli.hpa_options import DecisionFlags
from kscale.cli.output import Format, Show
from kscale.cli.registry import find

__all__ = ["Flags", "Image", "Namespace", "Replicas", "own_options", "print_objects"]

Image = Annotated[str, typer.Option("--image", metavar="NAME", help="A container image with kscale in it.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Where it runs.")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="One leads, the others wait.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="--NAME=VALUE", help="Of kscale run with this program. Repeatable."),
]

_NO_TLS = "the Deployment mounts no such file, and its probes ask without TLS: patch them with it"
_FOLLOWED_BY_NOTHING: Final = {
    "address": "the port of probes, of monitoring and of the NetworkPolicy is that of the default: patch them with it",
    "tls_cert_file": _NO_TLS,
    "tls_private_key_file": _NO_TLS,
}
"""Flags that objects besides the arguments would have to follow, and do not."""


def print_objects(show: Show, objects: Sequence[dict[str, Any]]) -> None:
    """As YAML, one document each, or as a List in JSON. What occurs twice is written twice: kubectl reads anchors,
    people do not.

    Raises BadParameter for what kubectl does not read, and for arguments in a Deployment that its program does not
    take.
    """
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                _option_values(container["args"])
    write = show.terminal.stdout.write
    match show.output:
        case Format.JSON:
            import msgspec

            found = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
            write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        case Format.TABLE | Format.YAML:
            import yaml

            class Whole(yaml.SafeDumper):
                def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
                    return True

            write(yaml.dump_all(objects, Dumper=Whole, sort_keys=False))
        case _:
            raise typer.BadParameter("kubectl apply takes yaml and json", param_hint="-o")


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
    for group in option_groups(import_module(entry.module).command, values).values():
        if isinstance(group, LoopFlags | DecisionFlags):
            group.options()
    return values
