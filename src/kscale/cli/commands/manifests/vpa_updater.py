"""``kscale manifests vpa-updater``."""

from __future__ import annotations

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
    *, image: Image, namespace: Namespace = "kube-system", replicas: Replicas = 2, flag: Flags = None, show: ShowObjects
) -> None:
    """Print what kubectl apply takes for the updater of the Vertical Pod Autoscaler.

    An account with the least rights, a Deployment, a budget, a NetworkPolicy.
    """
    from kscale.drivers.autoscaler_manifests import autoscaler_manifests

    flags = flag or ()
    options = own_options(
        "vpa-updater",
        flags,
        leader_elect_resource_namespace=namespace,
        admission_controller_status_lease_namespace=namespace,
    )
    print_objects(
        show,
        autoscaler_manifests(
            "vpa-updater", image=image, namespace=namespace, flags=flags, options=options, replicas=replicas
        ),
    )
