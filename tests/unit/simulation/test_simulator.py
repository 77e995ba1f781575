"""The question ``simulate`` of what-if scenarios."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kscale import InputError
from kscale.capacity.whatif import ScenarioRow, WhatIfReport, scenarios_from, whatif
from kscale.capacity.whatif.running import rows_of_base
from kscale.simulation import Simulator
from unit.capacity.test_whatif import GROUPS, base

SCENARIO = """
apiVersion: kscale.dev/v1alpha1
kind: Simulation
horizon: 20m
machines: [{boot: 5m}]
"""


def simulate_edits(*edits: dict[str, Any], simulate: Simulator | None = None) -> WhatIfReport:
    scenarios = [{"name": f"s{i}", "edits": [edit]} for i, edit in enumerate(edits)] or [{"name": "same"}]
    base_inputs = replace(base(), simulate=simulate or Simulator())
    return whatif(base_inputs, scenarios_from({"question": "simulate", "scenarios": scenarios}))


def waited(row: ScenarioRow) -> float:
    assert row.pending_seconds is not None
    return row.pending_seconds


def test_simulated_hour_gives_cost_and_pending_time() -> None:
    report = simulate_edits({"prices": {"scale": {"*": "x2"}}}, {"flags": {"new-pod-scale-up-delay": "10m"}})
    (baseline,) = report.baselines
    dearer, patient = report.scenarios
    assert (baseline.pending, baseline.nodes > 4, waited(baseline) > 0) == (0, True, True)
    assert (dearer.cost, dearer.differs) == (2 * (baseline.cost or 0), "")
    assert waited(dearer) == waited(baseline)
    assert report.shared == 1  # the same run serves both
    assert waited(patient) > waited(baseline) + 500
    assert patient.differs.startswith("6")  # after ten minutes
    assert "IncreaseSize" in patient.differs
    assert patient.cost is not None
    assert patient.cost < (baseline.cost or 0)


def test_as_a_scenario_file_says(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SCENARIO)
    slow = Simulator.of(tmp_path / "slow.yaml")
    usual, late = simulate_edits(), simulate_edits(simulate=slow)
    assert waited(late.baselines[0]) > waited(usual.baselines[0]) + 200


def test_lost_nodes_are_no_home() -> None:
    report = simulate_edits({"lose": {"node": ["a1", "a2", "b1", "big1"]}}, {"groups": {"set": {"*": {"max": 4}}}})
    assert report.scenarios[0].homeless <= report.scenarios[0].pending
    assert report.scenarios[0].differs != ""


def test_simulator_can_be_sent_to_workers() -> None:
    base_inputs = pickle.loads(pickle.dumps(replace(base(), simulate=Simulator())))
    (row,) = rows_of_base(base_inputs, scenarios_from([{"name": "s", "edits": [], "question": "simulate"}]))
    assert row.row is not None
    assert row.row.pending_seconds == simulate_edits().baselines[0].pending_seconds


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("cluster: [a.json]", "cluster: it is that of the what-if scenario"),
        ("groups: g.yaml", "groups: it is that of the what-if scenario"),
        ("controllers: {clusterAutoscaler: {flags: {expander: price}}}", "flags are edits of the what-if scenario"),
        ("horizons: 1h", "horizons"),
    ],
)
def test_invalid_scenario_fields_are_input_errors(tmp_path: Path, more: str, message: str) -> None:
    (tmp_path / "wrong.yaml").write_text(SCENARIO + more)
    with pytest.raises(InputError) as error:
        Simulator.of(tmp_path / "wrong.yaml")
    assert message in str(error.value)


def test_unsupported_questions_are_input_errors() -> None:
    with pytest.raises(InputError, match="there is no simulator"):
        whatif(base(), scenarios_from([{"name": "s", "edits": [], "question": "simulate"}]))
    with pytest.raises(InputError, match="flag kubeconfig has no effect"):
        simulate_edits({"flags": {"kubeconfig": "x"}})
    with pytest.raises(InputError, match="at two prices"):
        simulate_edits({"groups": {"remove": ["small"], "add": [{**GROUPS[0], "price": 0.5}]}})
