"""Flags that the three programs of the Vertical Pod Autoscaler have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from kscale.cli.go_flags import KLOG_IDLE, Idle, idle_switches
from kscale.cli.options import OptionGroup

__all__ = ["COMMON", "IDLE", "PANEL", "Address", "ApiFlags", "LeaderElect", "LeaseName"]

PANEL: Final = "Vertical Pod Autoscaler"
COMMON: Final[Mapping[str, str]] = {
    "vpa_object_namespace": "Only read VPAs in this namespace; empty: in all namespaces.",
    "ignored_vpa_object_namespaces": "Ignore VPAs in these namespaces.",
    "feature_gates": "Feature gates: PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha. All are off by default.",
}
"""Fields of all option structs, and what they say."""

IDLE: Final[Mapping[str, Idle]] = {**idle_switches("there is no pprof here", "profiling"), **KLOG_IDLE}
"""Flags of upstream's programs that have an effect there, and none here."""


_PROCESS: Final = "Process"
_LEASE: Final = "Leader election"
Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Address that serves /metrics and /health-check; empty: none.",
        rich_help_panel=_PROCESS,
    ),
]
LeaderElect = Annotated[
    bool,
    typer.Option("--leader-elect/--no-leader-elect", help="Act only while holding the lease.", rich_help_panel=_LEASE),
]
LeaseName = Annotated[
    str, typer.Option("--leader-elect-resource-name", help="Name of the lease.", rich_help_panel=_LEASE)
]


@dataclass
class ApiFlags(OptionGroup):
    """How much is asked of the API server."""

    kube_api_qps: Annotated[
        float,
        typer.Option(
            "--kube-api-qps",
            help="Maximum number of requests to the API server per second; negative: no limit.",
            rich_help_panel=_PROCESS,
        ),
    ] = 50.0
    kube_api_burst: Annotated[
        int,
        typer.Option(
            "--kube-api-burst", help="Maximum number of requests to the API server at once.", rich_help_panel=_PROCESS
        ),
    ] = 100
