"""``kscale run horizontal``: flags by upstream's names, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kscale.cli.commands.run import horizontal
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.process import ProgramContext
from kscale.hpa.options import HPAOptions
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.resources import Resources
from kscale.world.serve.metrics import MetricStore
from unit.cli.support import kscale as run

RUNS: list[tuple[Any, dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def not_really(monkeypatch: pytest.MonkeyPatch) -> None:
    RUNS.clear()
    monkeypatch.setattr(horizontal, "run_program", lambda *arguments, **more: RUNS.append((arguments, more)))


def driver(*, dry_run: bool = False) -> HorizontalAutoscaler:
    """What the last run would have run."""
    ((_, _, build), _) = RUNS[-1]
    clock = SystemClock()
    client = Client(None, clock)
    around = ProgramContext(
        client=client,
        resources=Resources(client),
        clock=clock,
        steady=clock,
        metrics=MetricStore([]),
        dry_run=dry_run,
    )
    result = build(around).driver
    assert isinstance(result, HorizontalAutoscaler)
    return result


def test_defaults_are_upstreams() -> None:
    assert run("run", "horizontal").code == 0
    ((name, _, _), more) = RUNS[0]
    assert (name, more["qps"], more["burst"]) == ("horizontal-pod-autoscaler", 20.0, 30)
    assert more["user_agent"] == more["election"].resource_name == "kscale-horizontal-pod-autoscaler"
    assert driver().options == horizontal.ControllerFlags().options()


def test_the_legacy_profile() -> None:
    assert run("run", "horizontal", "--profile=legacy").code == 0
    assert driver().options == horizontal.ControllerFlags(profile="legacy").options()
    for flags, message in ((["--profile=odd"], "odd"),):
        refused = run("run", "horizontal", *flags)
        assert refused.code == 2
        assert message in refused.stderr


def test_flags() -> None:
    flags = (
        "--horizontal-pod-autoscaler-sync-period=30s",
        "--concurrent-horizontal-pod-autoscaler-syncs=7",
        "--horizontal-pod-autoscaler-tolerance=0.2",
        "--feature-gates=HPAScaleToZero=false",
        "--kube-api-qps=-1",
        "--hpa-selector=team in (a,b)",
        "--leader-elect=false",
    )
    assert run("run", "horizontal", *flags).code == 0
    assert (RUNS[0][1]["qps"], RUNS[0][1]["election"]) == (-1.0, None)
    options, result = driver().options, driver()
    assert options.horizontal_pod_autoscaler_sync_period == timedelta(seconds=30)
    assert (options.workers, options.horizontal_pod_autoscaler_tolerance) == (7, 0.2)
    assert not options.gates["HPAScaleToZero"]
    assert result.watches[0].label_selector == "team in (a,b)"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        (
            "--horizontal-pod-autoscaler-upscale-delay=soon",
            'argument "soon" for --horizontal-pod-autoscaler-up',
        ),
        ("--controllers=*", "kscale runs no other controller"),
        ("--hpa-selector=a==b=c", "--hpa-selector"),
        ("--horizontal-pod-autoscaler-sync-period=0", "it must be greater than zero"),
        ("--horizontal-pod-autoscaler-sync-period=soon", "--horizontal-pod-autoscaler-sync-period"),
        ("--concurrent-horizontal-pod-autoscaler-syncs=0", "must be greater than 0, but got 0"),
        ("--concurrent-horizontal-pod-autoscaler-syncs=0", "for --concurrent-horizontal-pod-autoscaler-syncs"),
        ("--feature-gates=Nothing=true", "for --feature-gates: unrecognized feature gate: Nothing"),
    ],
)
def test_unsupported_flags_are_refused(flag: str, text: str) -> None:
    result = run("run", "horizontal", flag)
    assert result.code == 2
    assert text in " ".join(result.stderr.split())
    assert not RUNS


def test_delays_that_have_no_effect_with_upstream_are_taken() -> None:
    delays = ("--horizontal-pod-autoscaler-upscale-delay=3m", "--horizontal-pod-autoscaler-downscale-delay=5m0s")
    assert run("run", "horizontal", *delays).code == 0
    assert driver().options == HPAOptions()
