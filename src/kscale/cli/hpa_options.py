"""Flags of kube-controller-manager that the HPA reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

import typer

from kscale.cli.options import OptionGroup
from kscale.effects import timedelta_of
from kscale.errors import InputError
from kscale.hpa.options import HPAOptions
from kscale.objects.times import parse_duration

__all__ = ["ControllerFlags", "DecisionFlags", "hpa_duration"]

_PANEL = "Flags of kube-controller-manager"


@dataclass
class DecisionFlags(OptionGroup):
    """Flags of kube-controller-manager that change HPA decisions.

    Attributes
    ----------
    tolerance
        Relative difference from the target below which an HPA whose behavior names no tolerance does not scale.
    downscale_stabilization
        Stabilization window for scaling down, for HPAs whose behavior names none.
    cpu_initialization_period
        Time after a pod's start during which its CPU usage counts only while the pod is ready.
    initial_readiness_delay
        Time after a pod's start during which an unready pod counts as never having been ready.
    feature_gates : NAME=true|false
        Feature gates of the controller, NAME=true or NAME=false. Repeatable.
    """

    tolerance: Annotated[float, typer.Option("--horizontal-pod-autoscaler-tolerance", min=0.0)] = 0.1
    downscale_stabilization: Annotated[str, typer.Option("--horizontal-pod-autoscaler-downscale-stabilization")] = "5m"
    cpu_initialization_period: Annotated[str, typer.Option("--horizontal-pod-autoscaler-cpu-initialization-period")] = (
        "5m"
    )
    initial_readiness_delay: Annotated[str, typer.Option("--horizontal-pod-autoscaler-initial-readiness-delay")] = "30s"
    feature_gates: list[str] = field(default_factory=list)

    def options(self, **more: Any) -> HPAOptions:
        """Return the flags as HPAOptions; ``more`` sets further fields.

        Raises ``typer.BadParameter`` for a malformed feature gate, duration or value.
        """
        gates = {}
        for text in ",".join(self.feature_gates).split(",") if self.feature_gates else ():
            name, _, value = text.partition("=")
            if value.lower() not in ("true", "false"):
                raise typer.BadParameter(f"{text!r} is not NAME=true or NAME=false", param_hint="--feature-gates")
            gates[name.strip()] = value.lower() == "true"
        try:
            return HPAOptions(
                horizontal_pod_autoscaler_tolerance=self.tolerance,
                horizontal_pod_autoscaler_downscale_stabilization=hpa_duration(
                    self.downscale_stabilization, "downscale-stabilization"
                ),
                horizontal_pod_autoscaler_cpu_initialization_period=hpa_duration(
                    self.cpu_initialization_period, "cpu-initialization-period"
                ),
                horizontal_pod_autoscaler_initial_readiness_delay=hpa_duration(
                    self.initial_readiness_delay, "initial-readiness-delay"
                ),
                feature_gates=gates,
                **more,
            )
        except InputError as error:
            (problem,) = error.problems
            raise typer.BadParameter(problem.message, param_hint=f"--{problem.field.replace('_', '-')}") from None


@dataclass
class ControllerFlags(DecisionFlags):
    """The decision flags and the controller's release.

    Attributes
    ----------
    profile : NAME
        Release to decide as: current, or legacy for the controller of Kubernetes 1.20; legacy-1.19 and legacy-1.18
        for those of 1.19.0 and 1.18.0.
    kubernetes_version : VERSION
        Kubernetes version of the cluster, such as 1.35: feature gates that are not set are as by default in that
        minor, 1.34 to 1.37. Default: the newest.
    """

    profile: str = "current"
    kubernetes_version: Annotated[str, typer.Option(show_default=False)] = ""

    def options(self, **more: Any) -> HPAOptions:
        """Return the flags as HPAOptions, with the profile and the version; ``more`` sets further fields."""
        return super().options(profile=self.profile, kubernetes_version=self.kubernetes_version, **more)


def hpa_duration(text: str, name: str) -> timedelta:
    """Parse the value of ``--horizontal-pod-autoscaler-NAME``. Raises ``typer.BadParameter`` if it is malformed or
    negative."""
    option = f"--horizontal-pod-autoscaler-{name}"
    try:
        nanoseconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if nanoseconds < 0:
        raise typer.BadParameter("a duration must not be negative", param_hint=option)
    return timedelta_of(nanoseconds)
