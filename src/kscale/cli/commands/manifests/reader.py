"""``kscale manifests reader``."""

from __future__ import annotations

from typing import Annotated

import typer

from kscale.cli.commands.manifests.printing import ShowObjects, print_objects

__all__ = ["command"]


def command(
    *,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of the service account.")
    ] = "kube-system",
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes for an account that may read what --context asks for, and nothing else.

    A ServiceAccount, a ClusterRole and its binding, all named kscale-reader: lists of the kinds that plans depend on
    (no Secret, no ConfigMap), scales, and the metrics APIs. kubectl create token kscale-reader makes a token of it.
    """
    from kscale.drivers.reader_manifests import reader_manifests

    print_objects(show, reader_manifests(namespace))
