"""What the commands under ``kscale manifests`` share: their flags, and how objects are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kscale.cli.output import Show

__all__ = ["Flags", "Image", "Namespace", "Replicas", "print_objects"]

Image = Annotated[str, typer.Option("--image", metavar="NAME", help="A container image with kscale in it.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Where it runs.")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="One leads, the others wait.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="--NAME=VALUE", help="Of kscale run with this program. Repeatable."),
]


def print_objects(show: Show, objects: Sequence[dict[str, Any]]) -> None:
    """As YAML, one document each. What occurs twice is written twice: kubectl reads anchors, people do not."""
    import yaml

    class Whole(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
            return True

    show.terminal.stdout.write(yaml.dump_all(objects, Dumper=Whole, sort_keys=False))
