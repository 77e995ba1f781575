"""``kscale manifests cluster-autoscaler``."""

from __future__ import annotations

from typing import Annotated

import typer

from kscale.cli.commands.manifests.printing import (
    Flags,
    Image,
    Namespace,
    Replicas,
    ShowObjects,
    own_options,
    print_objects,
)

__all__ = ["command"]


def command(
    *,
    image: Image,
    namespace: Namespace = "kube-system",
    cloud_provider: Annotated[
        str, typer.Option("--cloud-provider", metavar="NAME", help="Cloud provider: externalgrpc, kwok or clusterapi.")
    ] = "externalgrpc",
    cloud_config: Annotated[
        str,
        typer.Option(
            "--cloud-config",
            metavar="SECRET",
            help="Secret that holds the cloud provider's configuration file under the key config.",
        ),
    ] = "",
    replicas: Replicas = 2,
    flag: Flags = None,
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring",
            help="Also print objects for the Prometheus operator (what to scrape, alert rules) and a "
            "Grafana dashboard.",
        ),
    ] = False,
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes: an account with the least rights, a Deployment, a budget, a NetworkPolicy."""
    from kscale.drivers.manifests import cluster_autoscaler_manifests
    from kscale.drivers.monitoring import cluster_autoscaler_monitoring

    if cloud_provider not in ("externalgrpc", "kwok", "clusterapi"):
        raise typer.BadParameter(f"there is no cloud provider {cloud_provider!r} here", param_hint="--cloud-provider")
    flags = flag or ()
    options = own_options("cluster-autoscaler", flags, cloud_provider=cloud_provider, namespace=namespace)
    objects = cluster_autoscaler_manifests(
        image=image,
        namespace=namespace,
        config=cloud_config,
        flags=flags,
        options=options,
        replicas=replicas,
    )
    if monitoring:
        objects += cluster_autoscaler_monitoring(namespace, options["leader_elect_resource_name"])
    print_objects(show, objects)
