"""``kscale manifests vpa-recommender``."""

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
    """Print what kubectl apply takes for the recommender of the Vertical Pod Autoscaler.

    An account with the least rights, a Deployment, a budget, a NetworkPolicy.
    """
    from kscale.drivers.autoscaler_manifests import autoscaler_manifests

    flags = flag or ()
    options = own_options("vpa-recommender", flags, leader_elect_resource_namespace=namespace)
    print_objects(
        show,
        autoscaler_manifests(
            "vpa-recommender", image=image, namespace=namespace, flags=flags, options=options, replicas=replicas
        ),
    )
