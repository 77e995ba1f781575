"""A log of decisions beside another run of its scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kscale import InputError
from kscale.cli.commands.replay import _decisions_view as decisions_view
from kscale.simulation import DecisionReplay, Scenario, build, read_decisions, replay_decisions
from kscale.simulation.records import Decision
from kscale.simulation.running import AutoscalerReplay
from unit.cli.support import kscale
from unit.simulation.test_simulation import ran, scenario
from unit.simulation.test_skipping import HPA, STEPS, WEB

LOADED: dict[str, Any] = {
    "objects": [WEB, HPA],
    "load": [{"workload": "Deployment/shop/web", "total": {"cpu": STEPS}}],
    "controllers": {"horizontal": {}, "clusterAutoscaler": {}},
    "horizon": "8m",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    path.write_bytes(ran(**LOADED).decisions.to_bytes())
    return path


def replayed(log: Path, **more: Any) -> DecisionReplay:
    setup = build(msgspec.convert(scenario(**{**LOADED, **more}), Scenario))
    return replay_decisions(read_decisions(log), setup)


def test_the_same_scenario_decides_the_same(log: Path) -> None:
    result = replayed(log)
    assert (result.recorded, result.same, result.differs) == (result.replayed, result.recorded, False)
    assert [each.name for each in result.autoscalers] == ["horizontal-pod-autoscaler", "cluster-autoscaler"]
    assert all(each.recorded >= 2 for each in result.autoscalers)
    assert {(each.recorded_first, each.replayed_first) for each in result.autoscalers} == {(None, None)}


def test_first_differing_decision_is_reported(log: Path) -> None:
    slower = {"horizontal": {"flags": {"horizontal-pod-autoscaler-sync-period": "40s"}}, "clusterAutoscaler": {}}
    horizontal = replayed(log, controllers=slower).autoscalers[0]
    assert horizontal.same == 0
    assert horizontal.recorded_first is not None
    assert horizontal.replayed_first is not None
    assert horizontal.recorded_first.at < horizontal.replayed_first.at
    assert horizontal.recorded_first.action == horizontal.replayed_first.action == "PutScale"


def test_one_of_the_two_may_have_nothing_left(log: Path) -> None:
    shorter, alone = replayed(log, horizon="4m"), replayed(log, controllers={"horizontal": {}})
    for each in shorter.autoscalers:
        assert each.same == each.replayed < each.recorded
        assert each.recorded_first is not None
        assert each.replayed_first is None
    (autoscaler,) = (each for each in alone.autoscalers if each.name == "cluster-autoscaler")
    assert (autoscaler.replayed, autoscaler.same, alone.differs) == (0, 0, True)
    more = replay_decisions((), build(msgspec.convert(scenario(), Scenario))).autoscalers[0]
    assert (more.recorded, more.recorded_first) == (0, None)
    assert more.replayed_first is not None


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_decisions(tmp_path / "none.jsonl")
    path = tmp_path / "d.jsonl"
    for line in ("", "{", "[]", '{"at": "x"}', '{"at": 1, "by": "a", "action": "b", "arguments": {}}'):
        path.write_text(f'{{"at": "x", "by": "a", "action": "b", "arguments": {{}}}}\n{line}\n')
        with pytest.raises(InputError, match="line 2: no decision"):
            read_decisions(path)


def test_the_number_that_differs_is_never_cut_off() -> None:
    def decision(delta: int, action: str = "Patch", **more: Any) -> Decision:
        labels = {f"example.com/a-rather-long-label-{i}": "and a rather long value of it" for i in range(9)}
        arguments = {"kind": "Node", "patch": {"metadata": {"labels": labels}, "spec": {"delta": delta}}, **more}
        return Decision(at="2026-05-04T00:05:30Z", by="a", action=action, arguments=arguments)

    def texts(recorded: Decision | None, replayed: Decision | None) -> list[Any]:
        each = AutoscalerReplay(
            name="a", recorded=1, replayed=1, same=0, recorded_first=recorded, replayed_first=replayed
        )
        record = DecisionReplay(name="s", recorded=1, replayed=1, same=0, differs=True, autoscalers=[each])
        return list(decisions_view(record).tables[0].rows[0])[-2:]

    before, now = texts(decision(31), decision(32))
    assert before.startswith("2026-05-04T00:05:30Z Patch kind=Node ")
    assert before.endswith("... patch.spec.delta=31")
    assert now.endswith("... patch.spec.delta=32")
    assert max(map(len, (before, now))) < 250
    before, now = texts(decision(31, reason="r" * 200), decision(31))
    assert before.endswith(f"reason={'r' * 200}")
    assert now.endswith("(without reason)")
    alone, nothing = texts(decision(31), None)
    assert (alone.endswith("'spec': {'delta': 31}}"), nothing) == (True, None)
    before, now = texts(decision(31), decision(31, "Other"))
    assert "'delta': 31" in before
    assert "'delta': 31" in now


def test_the_command(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(scenario(**LOADED)))
    same = kscale("replay", "decisions", file, log, "--fail-on", "differs")
    assert same.code == 0, same.stderr
    assert "all are the same." in same.stdout
    shorter = ("replay", "decisions", file, log, "--horizon", "4m", "-q")
    assert kscale(*shorter).code == 0
    result = kscale(*shorter, "--fail-on", "differs")
    assert result.code == 1
    assert "some differ." in result.stdout
    assert "PutScale" in result.stdout
    assert kscale(*shorter, "-o", "name").stdout.split() == ["horizontal-pod-autoscaler", "cluster-autoscaler"]
    assert json.loads(kscale(*shorter, "-o", "json").stdout)["differs"] is True
    wrong = kscale(*shorter, "--fail-on", "same")
    assert (wrong.code, "'same' is not differs" in wrong.stderr) == (2, True)
