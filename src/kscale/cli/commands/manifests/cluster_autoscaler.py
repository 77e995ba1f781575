"""``kscale manifests cluster-autoscaler``."""

from __future__ import annotations

from typing import Annotated

import typer

from kscale.cli.output import Show

__all__ = ["command"]


def command(
    *,
    image: Annotated[str, typer.Option("--image", metavar="NAME", help="A container image with kscale in it.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where it runs.")] = "kube-system",
    cloud_provider: Annotated[
        str, typer.Option("--cloud-provider", metavar="NAME", help="externalgrpc, kwok or clusterapi.")
    ] = "externalgrpc",
    cloud_config: Annotated[
        str, typer.Option("--cloud-config", metavar="SECRET", help="A Secret with the file of that flag, key config.")
    ] = "",
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="One leads, the others wait.")] = 2,
    flag: Annotated[
        list[str] | None,
        typer.Option("--flag", metavar="--NAME=VALUE", help="Of kscale run cluster-autoscaler. Repeatable."),
    ] = None,
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring",
            help="Besides, for the Prometheus operator: where to scrape, and alert rules; a dashboard for Grafana.",
        ),
    ] = False,
    show: Show,
) -> None:
    """Print what kubectl apply takes: an account with the least rights, a Deployment, a budget, a NetworkPolicy."""
    import yaml

    from kscale.drivers.manifests import cluster_autoscaler_manifests
    from kscale.drivers.monitoring import cluster_autoscaler_monitoring

    if cloud_provider not in ("externalgrpc", "kwok", "clusterapi"):
        raise typer.BadParameter(f"there is no cloud provider {cloud_provider!r} here", param_hint="--cloud-provider")
    objects = cluster_autoscaler_manifests(
        image=image,
        namespace=namespace,
        cloud=cloud_provider,
        config=cloud_config,
        flags=flag or (),
        replicas=replicas,
    )
    if monitoring:
        objects += cluster_autoscaler_monitoring(namespace)
    show.terminal.stdout.write(yaml.dump_all(objects, Dumper=_whole_dumper(), sort_keys=False))


def _whole_dumper() -> type:
    """Writes what occurs twice twice: kubectl reads anchors, people do not."""
    import yaml

    class Whole(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
            return True

    return Whole
