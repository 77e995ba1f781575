"""``kscale manifests vpa-admission``."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

import typer

from kscale.cli.commands.manifests.printing import Flags, Image, Namespace, ShowObjects, own_options, print_objects

__all__ = ["command"]


def command(
    *,
    image: Image,
    namespace: Namespace = "kube-system",
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Number of replicas; all of them answer.")] = 1,
    tls_secret: Annotated[
        str,
        typer.Option(
            "--tls-secret",
            metavar="NAME",
            help="Secret with serverCert.pem, serverKey.pem and caCert.pem, as upstream's script creates it.",
        ),
    ] = "vpa-tls-certs",
    cert_manager: Annotated[
        bool,
        typer.Option("--cert-manager", help="Have cert-manager make and renew the certificate."),
    ] = False,
    self_signed: Annotated[
        bool,
        typer.Option("--self-signed", help="Make an authority and a certificate now, good for ten years."),
    ] = False,
    api_server_network: Annotated[
        list[str] | None,
        typer.Option(
            "--api-server-network",
            metavar="CIDR",
            help="Network of the API servers, the only ones that may reach the webhook. Repeatable; default: any.",
        ),
    ] = None,
    flag: Flags = None,
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes for the admission controller of the Vertical Pod Autoscaler.

    An account with the least rights, a Service, a Deployment, a budget, a NetworkPolicy. It registers its webhook
    itself.
    """
    from kscale.drivers.autoscaler_manifests import admission_manifests, secret_of, webhook_service

    if cert_manager and self_signed:
        raise typer.BadParameter("--cert-manager and --self-signed exclude each other", param_hint="--self-signed")
    callers = [_network(text) for text in api_server_network or ()]
    flags = flag or ()
    options = own_options("vpa-admission", flags, status_lease_namespace=namespace)
    objects = admission_manifests(
        image=image,
        namespace=namespace,
        flags=flags,
        options=options,
        replicas=replicas,
        secret=tls_secret,
        keys="cert-manager" if cert_manager else "upstream",
        callers=callers,
    )
    if self_signed:
        from datetime import UTC, datetime

        from kscale.world.serve.self_signed import self_signed_pair

        pair = self_signed_pair(f"{webhook_service(options)}.{namespace}.svc", datetime.now(UTC))
        objects.insert(0, secret_of(pair, tls_secret, namespace))
    print_objects(show, objects)


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--api-server-network") from None
