"""``kscale run ... --world simulated``: flags of a program, in a scenario."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from kscale.simulation import Setup, Simulation
from unit.cli.support import kscale as kscale_command
from unit.drivers.vpa_world import autoscaler
from unit.simulation.test_simulation import scenario

ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(scenario(name="small", horizon="2m", controllers={"horizontal": {}})))
    return path


def test_a_program_runs_with_its_own_flags_beside_those_of_the_scenario(file: Path) -> None:
    result = kscale_command(
        "run", "cluster-autoscaler", "--world", "simulated", "--scenario", file, "--scan-interval", "20s"
    )
    assert result.code == 0, result.stderr
    assert "small: 2 min simulated" in result.stdout
    assert "IncreaseSize 1" in result.stdout
    assert "cluster-autoscaler 8 " in result.stdout
    assert "horizontal-pod-autoscaler" in result.stdout


def test_the_horizontal_pod_autoscaler_alone(file: Path) -> None:
    result = kscale_command("run", "horizontal", "--world", "simulated", "--scenario", file)
    assert result.code == 0, result.stderr
    assert "cluster-autoscaler" not in result.stdout


def test_each_program_of_the_vpa_runs_beside_the_others(tmp_path: Path) -> None:
    """One is the program that is run, with a flag of its own; the others are those of the scenario."""
    path = tmp_path / "s.yaml"
    vpa = autoscaler("web", kind="Deployment", updatePolicy={"updateMode": "Recreate"})
    load = [{"workload": "Deployment/shop/web", "total": {"cpu": "1", "memory": "20Gi"}}]
    controllers = {"vpaRecommender": "vpa-recommender", "vpaUpdater": "vpa-updater", "vpaAdmission": "vpa-admission"}
    pool = {**scenario()["groups"][0], "target": 3}
    for program, flag in (
        ("vpa-recommender", "--recommendation-margin-fraction=0.3"),
        ("vpa-updater", "--eviction-tolerance=0.6"),
        ("vpa-admission", "--status-lease-update-interval=5s"),
    ):
        others = {name: {} for name, other in controllers.items() if other != program}
        objects = [*scenario()["objects"], vpa]
        path.write_text(
            yaml.safe_dump(scenario(horizon="15m", objects=objects, load=load, groups=[pool], controllers=others))
        )
        result = kscale_command("run", program, "--world", "simulated", "--scenario", path, flag)
        assert result.code == 0, result.stderr
        assert "Evict" in result.stdout, program
        assert all(name in result.stdout for name in controllers.values())


def test_contradictory_arguments_are_refused(file: Path) -> None:
    for arguments, text in (
        (("--world", "flat"), "neither live nor simulated"),
        (("--scenario", file), "only with --world simulated"),
        (("--world", "simulated", "--scenario", "none.yaml"), "No such file"),
    ):
        result = kscale_command("run", "vpa-updater", *arguments)
        assert result.code == 2
        assert text in result.stderr


def test_flags_that_would_mean_nothing_are_refused(file: Path) -> None:
    for program, flags in (
        ("cluster-autoscaler", {"--dry-run": None, "--cloud-provider": "kwok", "--leader-elect": "false"}),
        ("horizontal", {"--dry-run": None, "--hpa-selector": "a=b", "--kube-api-qps": "3"}),
        (
            "vpa-recommender",
            {
                "--kubeconfig": "none",
                "--prometheus-address": "http://p",
                "--history-length": "1d",
                "--min-checkpoints": "9",
            },
        ),
        ("vpa-updater", {"--dry-run": None, "--address": ":1", "--kube-api-burst": "7"}),
        ("vpa-admission", {"--dry-run": None, "--tls-cert-file": "none", "--port": "9", "--vpa-object-namespace": "a"}),
    ):
        words = [name if value is None else f"{name}={value}" for name, value in flags.items()]
        result = kscale_command("run", program, "--world", "simulated", "--scenario", file, *words)
        assert result.code == 2
        for name in flags:
            assert f"{name}: has no effect with --world simulated" in result.stderr


def test_frequent_loops_are_heeded(file: Path) -> None:
    def rounds(*flags: str) -> str:
        result = kscale_command("run", "cluster-autoscaler", "--world", "simulated", "--scenario", file, *flags)
        assert result.code == 0, result.stderr
        return re.search(r"cluster-autoscaler (\d+) ", result.stdout)[1]

    assert int(rounds("--no-frequent-loops-enabled")) < int(rounds())


def test_ctrl_c_ends_a_simulation_early_and_is_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first asks it to end, the second is a KeyboardInterrupt as ever."""
    import kscale.simulation

    original = kscale.simulation.simulate

    def pressed(setup: Setup, **more: Any) -> Simulation:
        signal.raise_signal(signal.SIGINT)
        return original(setup, **more)

    monkeypatch.setattr(kscale.simulation, "simulate", pressed)
    before = signal.getsignal(signal.SIGINT)
    result = kscale_command("simulate", file, "-o", "json")
    assert result.code == 130
    assert json.loads(result.stdout)["interrupted"]
    assert signal.getsignal(signal.SIGINT) is before


def test_scenarios_come_along() -> None:
    from kscale.simulation import BUNDLED, BUNDLED_VPA, read_scenario

    for path, name in ((BUNDLED, "simulate-web.yaml"), (BUNDLED_VPA, "simulate-requests.yaml")):
        assert path.read_text() == (ROOT / "examples" / name).read_text()
    shop, requests = read_scenario(BUNDLED).controllers, read_scenario(BUNDLED_VPA).controllers
    assert None not in (shop.cluster_autoscaler, shop.horizontal)
    assert None not in (requests.vpa_recommender, requests.vpa_updater, requests.vpa_admission)


def test_a_program_of_the_vpa_has_a_scenario_with_one() -> None:
    result = kscale_command("run", "vpa-recommender", "--world", "simulated", "--target-memory-percentile=0.5")
    assert result.code == 0, result.stderr
    assert re.search(r"^shop/api +api +\d+m +\d{9,}$", result.stdout, re.MULTILINE), result.stdout
    assert "Evict" in result.stdout
