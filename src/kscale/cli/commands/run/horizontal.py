"""``kscale run horizontal``: the horizontal pod autoscaler of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from kscale.cli.commands.run import run_if_simulated
from kscale.cli.go_flags import KLOG_IDLE, GoCommand, Idle, StructFlags, struct_flags
from kscale.cli.hpa_options import DURATION, ControllerFlags
from kscale.cli.options import flag_of
from kscale.cli.process import run_program
from kscale.cli.process_flags import LeaseFlags, ProcessFlags, WorldFlags
from kscale.errors import InputError, Problem
from kscale.hpa.options import HPAOptions
from kscale.objects.selectors import SelectorError, parse_selector
from kscale.objects.times import parse_duration

if TYPE_CHECKING:
    from kscale.drivers.process import Build

__all__ = ["COMMAND", "command"]

_SYNCS: Final = "concurrent_horizontal_pod_autoscaler_syncs"
_PERIOD: Final = "horizontal_pod_autoscaler_sync_period"
_AGENT: Final = "kscale-horizontal-pod-autoscaler"
_NO_EFFECT: Final = Idle("upstream ignores it, too", parse_duration)
_OTHERS: Final = "kscale runs no other controller"


class _Horizontal(GoCommand):
    refused: ClassVar[dict[str, str]] = {
        "horizontal-pod-autoscaler-use-rest-clients": "it was removed in Kubernetes 1.25",
        "controllers": _OTHERS,
    }
    idle: ClassVar[Mapping[str, Idle]] = {
        **KLOG_IDLE,
        "horizontal-pod-autoscaler-upscale-delay": _NO_EFFECT,
        "horizontal-pod-autoscaler-downscale-delay": _NO_EFFECT,
    }


COMMAND = _Horizontal


@dataclass(eq=False, repr=False, init=False)
class _Lease(LeaseFlags):
    """Leader election flags with the controller's lease."""

    leader_elect_resource_name: str = _AGENT


@struct_flags(HPAOptions, _SYNCS, _PERIOD, forms={_PERIOD: DURATION})
class _Flags(StructFlags):
    """Flags of kube-controller-manager for its work, and kscale's own.

    Attributes
    ----------
    qps
        Maximum number of requests to the API server per second; negative: no limit.
    burst
        Maximum number of requests to the API server at once.
    hpa_selector : SELECTOR
        Manage only HPAs with these labels, to divide the work or to start with a few HPAs.
    take_over
        Also write HPAs whose status another controller writes.
    """

    title = "Decisions"
    common = ("horizontal_pod_autoscaler_sync_period", "hpa_selector", "take_over")

    qps: Annotated[float, typer.Option("--kube-api-qps")] = 20.0
    burst: Annotated[int, typer.Option("--kube-api-burst")] = 30
    hpa_selector: str = ""
    take_over: bool = False


def command(
    *, process: ProcessFlags, lease: _Lease, decisions: ControllerFlags, flags: _Flags, world: WorldFlags
) -> None:
    """Run the horizontal pod autoscaler against a cluster, in place of kube-controller-manager's.

    Two controllers must not manage the same HPA. kube-controller-manager runs one unless it is started with
    --controllers=*,-horizontal-pod-autoscaler-controller; an HPA whose status another has written within the last four
    sync periods is left alone, unless --take-over is given.

    Raises
    ------
    InputError
        If flags or files cannot be used.
    """
    work = flags.values()
    try:
        parse_selector(flags.hpa_selector)
    except SelectorError as error:
        raise InputError(Problem(str(error), field="--hpa-selector")) from None
    options = decisions.options(**work)
    allowed = [flag_of(_SYNCS), flag_of(_PERIOD)]
    if run_if_simulated(world, "horizontal", options, idle=[process, lease, flags], allowed=allowed):
        return
    run_program(
        "horizontal-pod-autoscaler",
        process,
        _build(options, flags),
        election=lease.election(),
        qps=flags.qps,
        burst=flags.burst,
        user_agent=_AGENT,
    )


def _build(options: HPAOptions, flags: _Flags) -> Build:
    """Return the function that assembles the HPA controller once the process has connected."""
    from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler
    from kscale.drivers.process import Program, ProgramContext
    from kscale.world.metrics_apis import RESTMetrics

    def build(context: ProgramContext) -> Program:
        renewal = options.horizontal_pod_autoscaler_sync_period
        driver = HorizontalAutoscaler(
            options,
            selector=flags.hpa_selector,
            manager=_AGENT,
            take_over=flags.take_over or context.dry_run,  # without writes there is no conflict with another controller
        )
        return Program(
            driver=driver,
            metrics=HORIZONTAL_METRICS,
            clock_set=driver.clock_set,
            source=RESTMetrics(context.client, context.resources, context.steady, renewal=renewal),
        )

    return build
