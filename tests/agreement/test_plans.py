"""Bounds are true and plans hold: random small questions against every content of every node.

`--plans N` asks N questions instead of 100, every third of them at the slower doors; `--plans-seed` begins at another
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import kscale
from agreement.plans import Case, case_of, running
from kscale.capacity.cost import ideal_mix
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from
from kscale.capacity.mix import MixOptions, MixPlan, mix
from kscale.capacity.whatif import Base, scenarios_from, whatif
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.bounds.master import have_solver
from kscale.simulation import Scenario, accounting, build, simulate
from reference.mixes import Problem, cheapest, faults

pytestmark = pytest.mark.skipif(not have_solver(), reason="the extra [solver] is not installed")

NOW = datetime(2027, 1, 1, tzinfo=UTC)
CLOSE = 1e-6


def seeds(request: pytest.FixtureRequest) -> range:
    first, count = request.config.getoption("plans_seed"), request.config.getoption("plans")
    return range(first, first + count)


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Iterator[tuple[int, Case]]:
    return ((seed, case_of(seed)) for seed in seeds(request))


@pytest.fixture
def some_cases(request: pytest.FixtureRequest) -> Iterator[tuple[int, Case]]:
    return ((seed, case_of(seed)) for seed in seeds(request)[::3])


def faults_of(case: Case, plan: MixPlan) -> list[str]:
    """What the plain look at a plan finds wrong with it."""
    assert plan.placement is not None
    assert plan.existing is not None
    new = [(node.offer, bare(node.pods)) for node in plan.placement]
    there = {name: bare(pods) for name, pods in plan.existing.items()}
    price = {machine.name: machine.price for machine in case.problem.machines}
    found = faults(case.problem, new, there, set(bare(plan.nowhere_pods)))
    if plan.cost != pytest.approx(sum(price[name] for name, _ in new)):
        found.append(f"{plan.cost} is not what the nodes cost")
    return found


def bare(names: list[str]) -> list[str]:
    return [name.partition("/")[2] for name in names]


def without_spread(problem: Problem) -> Problem:
    """What a bound sees."""
    return replace(problem, shapes=[replace(shape, even=False) for shape in problem.shapes])


def false_bound(case: Case, plan: MixPlan) -> list[str]:
    """What the optimum for the same pods says about the bound."""
    best = cheapest(without_spread(case.problem))
    if plan.bound.cost is None or best is None or plan.nowhere != best[0] or plan.bound.cost <= best[1] + CLOSE:
        return []
    return [f"the bound {plan.bound.cost} is more than the optimum {best[1]}"]


def test_mixes_hold_and_are_the_cheapest(cases: Iterator[tuple[int, Case]]) -> None:
    wrong: dict[int, Any] = {}
    gaps = {}
    for seed, case in cases:
        best = cheapest(case.problem)
        try:
            plan = mix(case.cluster, case.groups, options=case.options, placements=True)
        except kscale.InputError as error:
            if best is not None:
                wrong[seed] = str(error)
            continue
        if best is None:
            wrong[seed] = "the limits contradict each other"
            continue
        found = faults_of(case, plan)
        if plan.nowhere > best[0]:
            found.append(f"{plan.nowhere} pods are left, {best[0]} have to be")
        found += false_bound(case, plan)
        if found:
            wrong[seed] = found
        elif plan.nowhere == best[0] and best[1] > 0:
            gaps[seed] = plan.cost / best[1] - 1.0
    print(f"{len(gaps)} plans: gap {sum(gaps.values()) / len(gaps):.3%} on average, {max(gaps.values()):.2%} at worst")
    assert not wrong
    assert max(gaps.values()) <= 0.05
    assert sum(gap > CLOSE for gap in gaps.values()) <= 0.03 * len(gaps)


def test_mixes_hold_without_a_solver(some_cases: Iterator[tuple[int, Case]], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("solve", "exact"):
        monkeypatch.setattr(f"kscale.capacity.mix.{module}.have_solver", lambda: False)
    wrong: dict[int, Any] = {}
    for seed, case in some_cases:
        try:
            plan = mix(case.cluster, case.groups, options=case.options, placements=True)
        except kscale.InputError as error:
            if cheapest(case.problem) is not None:
                wrong[seed] = str(error)
            continue
        found = [*faults_of(case, plan), *false_bound(case, plan)]
        if found:
            wrong[seed] = found
    assert not wrong


@pytest.mark.parametrize("question", ["scale-up", "estimate", "mix"])
def test_no_decision_costs_less_than_its_bound(some_cases: Iterator[tuple[int, Case]], question: str) -> None:
    """Minima are those of the autoscaler's own making: only the question mix buys them."""
    wrong: dict[int, Any] = {}
    scenario = {"name": "x", "question": question, "edits": []}
    proven = 0
    for seed, case in some_cases:
        problem = replace(case.problem, limits={}, spot_share=None, max_types=None)
        if question != "mix":
            problem = replace(problem, machines=[replace(machine, least=0) for machine in problem.machines])
        base = Base(case.cluster, case.groups, NOW, bound=True, catalogue=None)
        base = replace(base, groups=[*case.groups, *free_groups(case)])
        report = whatif(base, scenarios_from({"scenarios": [scenario]}))
        (row,) = report.scenarios
        if row.bound is None:
            continue
        proven += 1
        best = cheapest(without_spread(problem))
        assert best is not None
        if row.cost is not None and row.bound > row.cost + CLOSE:
            wrong[seed] = f"{row.bound} is more than the decision's {row.cost}"
        elif row.pending == 0 and not best[0] and row.bound > best[1] + CLOSE:
            wrong[seed] = f"{row.bound} is more than the optimum {best[1]}"
    assert not wrong
    assert proven


def free_groups(case: Case) -> list[NodeGroup]:
    """A group of no price that has the nodes that exist, so that they cost nothing."""
    return [
        NodeGroup(id=machine.name, min_size=1, max_size=1, target_size=1, nodes=[machine.name], price=0.0)
        for machine in case.problem.machines
        if machine.exists
    ]


def test_what_a_cluster_costs_at_least(some_cases: Iterator[tuple[int, Case]]) -> None:
    """The cluster is a mix itself, without the rules that a cost report does not know."""
    wrong: dict[int, Any] = {}
    for seed, case in some_cases:
        plan = mix(case.cluster, case.groups, options=MixOptions(existing=False), placements=True)
        if not plan.nodes or plan.nowhere:
            continue
        objects, described = running(case, plan)
        cluster = kscale.load(objects)
        groups = with_templates(cluster, cluster.snapshot(dra=True), groups_from(described))
        found = ideal_mix(cluster, groups)
        problem = replace(case.problem, limits={}, spot_share=None, max_types=None)
        problem = replace(problem, machines=[machine for machine in problem.machines if not machine.exists])
        best = cheapest(without_spread(problem))
        assert best is not None
        assert found.bound is not None
        if found.bound > min(best[1], plan.cost) + CLOSE:
            wrong[seed] = f"the bound {found.bound}, the cluster costs {plan.cost}, the optimum {best[1]}"
    assert not wrong


def test_what_simulated_nodes_cost_at_least(
    some_cases: Iterator[tuple[int, Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fourth of them begins a simulation; each mix that it looks for is compared with the optimum."""
    plans: list[MixPlan] = []

    def watched(*arguments: Any, **more: Any) -> MixPlan:
        plans.append(mix(*arguments, **more))
        return plans[-1]

    monkeypatch.setattr(accounting, "mix", watched)
    wrong: dict[int, Any] = {}
    for seed, case in some_cases:
        if seed % 4:
            continue
        plan = mix(case.cluster, case.groups, options=MixOptions(existing=False), placements=True)
        if not plan.nodes or plan.nowhere:
            continue
        objects, described = running(case, plan)
        scenario = {
            "apiVersion": "kscale.dev/v1alpha1",
            "kind": "Simulation",
            "horizon": "2m",
            "objects": objects,
            "groups": described,
            "controllers": {},
        }
        plans.clear()
        report = simulate(build(msgspec.convert(scenario, Scenario)), ideal=1).report.ideal
        problem = replace(case.problem, limits={}, spot_share=None, max_types=None)
        machines = [replace(m, least=0) for m in problem.machines if not m.exists]
        best = cheapest(without_spread(replace(problem, machines=machines)))
        assert report is not None
        assert best is not None
        for each in plans:
            if each.pods == plan.pods and each.bound.cost is not None and each.bound.cost > best[1] + CLOSE:
                wrong[seed] = f"the bound {each.bound.cost}, the optimum {best[1]}"
        if report.bound > report.ideal + CLOSE:
            wrong[seed] = f"{report}"
    assert not wrong
