"""``kscale manifests vpa-crds``."""

from __future__ import annotations

from kscale.cli.commands.manifests.printing import ShowObjects, print_objects

__all__ = ["command"]


def command(*, show: ShowObjects) -> None:
    """Print the definitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint (autoscaling.k8s.io/v1)."""
    from kscale.drivers.vpa_definitions import vpa_definitions

    print_objects(show, vpa_definitions())
