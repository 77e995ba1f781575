"""Flags of kube-controller-manager that the HPA reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace

from kscale.cli.go_flags import DURATION_FORM, StructFlags, struct_flags
from kscale.cli.inputs import parse_duration_option
from kscale.cli.options import flag_of
from kscale.effects import timedelta_of
from kscale.errors import InputError, Problem
from kscale.hpa.options import HPAOptions

__all__ = ["DURATION", "ControllerFlags", "DecisionFlags"]


DURATION: Final = replace(DURATION_FORM, read=lambda text, flag: timedelta_of(parse_duration_option(text, flag)))
"""The form of a flag for a duration that is not negative."""
_DURATIONS: Final = ("downscale_stabilization", "cpu_initialization_period", "initial_readiness_delay")
_TOLERANCE: Final = "horizontal_pod_autoscaler_tolerance"
_FORMS: Final = {f"horizontal_pod_autoscaler_{name}": DURATION for name in _DURATIONS}


@struct_flags(HPAOptions, _TOLERANCE, *_FORMS, forms=_FORMS)
class DecisionFlags(StructFlags):
    """Flags of kube-controller-manager that change HPA decisions.

    Attributes
    ----------
    feature_gates : NAME=true|false
        Feature gates of the controller, NAME=true or NAME=false. Repeatable.
    """

    title = "Controller"
    common = ("profile",)

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
            options = HPAOptions(feature_gates=gates, **self.values(), **more)
            problems: Sequence[Problem] = options.problems()
        except InputError as error:
            problems = error.problems
        for problem in problems:
            raise typer.BadParameter(problem.message, param_hint=flag_of(problem.field))
        return options


@dataclass(eq=False, repr=False, init=False)
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
        """Return the flags as HPAOptions, with the profile and the version; ``more`` sets further fields.

        Raises typer.BadParameter for a malformed one.
        """
        return super().options(profile=self.profile, kubernetes_version=self.kubernetes_version, **more)
