"""Plans are feasible and bounds are valid: random small instances against an exact model.

`--plans N` draws N instances instead of 30 (the slower tests take every third); `--plans-seed` is the first seed. Each
test prints how many instances it compared; `-rP` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import kscale
from agreement.plans import Case, case_of, running, wide_case_of
from kscale.capacity.cost import ideal_mix
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from
from kscale.capacity.mix import MixOptions, MixPlan, mix
from kscale.capacity.whatif import Base, scenarios_from, whatif
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.bounds.master import have_solver
from kscale.simulation import Scenario, accounting, build, simulate
from reference.mix_assignment import least_cost
from reference.mixes import Problem, cheapest, faults

pytestmark = pytest.mark.skipif(not have_solver(), reason="the extra [solver] is not installed")

NOW = datetime(2027, 1, 1, tzinfo=UTC)
CLOSE = 1e-6


@dataclass
class Tally:
    """Instances of one test: how many were drawn, how many bounds were compared, and what is wrong with which."""

    name: str
    instances: int = 0
    bounds: int = 0
    infeasible: dict[int, Any] = field(default_factory=dict)
    false_bounds: dict[int, Any] = field(default_factory=dict)

    def finish(self, more: str = "") -> None:
        """Print the counts, and fail if anything is wrong."""
        print(
            f"{self.name}: {self.instances} instances, {self.bounds} bounds compared, {len(self.false_bounds)} false, "
            f"{len(self.infeasible)} infeasible plans{more}"
        )
        assert not self.infeasible
        assert not self.false_bounds
        assert self.bounds


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
    """List what the plain-Python checker finds wrong with a plan."""
    assert plan.nodes is not None
    assert plan.placed is not None
    new = [(node.offer, bare(node.pods)) for node in plan.nodes]
    new_names = {node.name for node in plan.nodes}
    there: dict[str, list[str]] = {}
    for pod, node_name in plan.placed.items():
        if node_name not in new_names:
            there.setdefault(node_name, []).extend(bare([pod]))
    price = {machine.name: machine.price for machine in case.problem.machines}
    problems = faults(case.problem, new, there, set(bare(plan.unschedulable)))
    if plan.cost != pytest.approx(sum(price[name] for name, _ in new)):
        problems.append(f"{plan.cost} is not what the nodes cost")
    return problems


def bare(names: list[str]) -> list[str]:
    return [name.partition("/")[2] for name in names]


def without_spread(problem: Problem) -> Problem:
    """Return the instance without spread constraints, which bounds do not consider."""
    return replace(problem, shapes=[replace(shape, even=False) for shape in problem.shapes])


def compare_bound(tally: Tally, seed: int, case: Case, plan: MixPlan) -> None:
    """Compare the bound of a plan with the optimum for the same pods."""
    best = cheapest(without_spread(case.problem))
    if plan.bound.cost is None or best is None or plan.unschedulable_count != best[0]:
        return
    tally.bounds += 1
    if plan.bound.cost > best[1] + CLOSE:
        tally.false_bounds[seed] = f"the bound {plan.bound.cost} is more than the optimum {best[1]}"


def test_mixes_hold_and_are_the_cheapest(cases: Iterator[tuple[int, Case]]) -> None:
    compare_with_optimum(Tally("mix"), cases)


def test_larger_mixes_hold_and_are_the_cheapest(request: pytest.FixtureRequest) -> None:
    """Up to 40 pods and 15 types, with reserved machines, node affinity and anti-affinity between shapes."""
    compare_with_optimum(Tally("larger mix"), ((seed, wide_case_of(seed)) for seed in seeds(request)[::5]))


def compare_with_optimum(tally: Tally, cases: Iterator[tuple[int, Case]]) -> None:
    """Check plans and bounds; at most 3 % of the plans cost more than the optimum, and none more than 5 % more."""
    gaps = {}
    for seed, case in cases:
        tally.instances += 1
        best = cheapest(case.problem)
        try:
            plan = mix(case.cluster, case.groups, options=case.options, placements=True)
        except kscale.InputError as error:
            if best is not None:
                tally.infeasible[seed] = str(error)
            continue
        if best is None:
            tally.infeasible[seed] = "the limits contradict each other"
            continue
        problems = faults_of(case, plan)
        if plan.unschedulable_count > best[0]:
            problems.append(f"{plan.unschedulable_count} pods are left, {best[0]} have to be")
        compare_bound(tally, seed, case, plan)
        if problems:
            tally.infeasible[seed] = problems
        elif plan.unschedulable_count == best[0] and best[1] > 0:
            gaps[seed] = plan.cost / best[1] - 1.0
    mean, worst = sum(gaps.values()) / len(gaps), max(gaps.values())
    tally.finish(f"; {len(gaps)} gaps to the optimum: {mean:.3%} on average, {worst:.2%} at worst")
    assert worst <= 0.05
    assert sum(gap > CLOSE for gap in gaps.values()) <= 0.03 * len(gaps)


def test_two_exact_models_agree(request: pytest.FixtureRequest) -> None:
    """The second model judges plans and bounds, too. Where its search ends early, its own bounds have to hold."""
    tally = Tally("mix, the second model")
    optimal = 0
    for seed in seeds(request)[::5]:
        case = wide_case_of(seed, pods=14)
        best, second = cheapest(case.problem), least_cost(case.problem, nodes=5_000)
        if best is None or best[0] or second is None:
            continue
        tally.instances += 1
        lowest, cost = second
        optimal += cost <= lowest + CLOSE
        assert lowest - CLOSE <= best[1] <= cost + CLOSE, f"seed {seed}: {best[1]}, and the second model says {second}"
        plan = mix(case.cluster, case.groups, options=case.options)
        if not plan.unschedulable_count and plan.cost < lowest - CLOSE:
            tally.infeasible[seed] = f"{plan.cost} is less than the least cost {lowest}"
        if plan.bound.cost is not None:
            tally.bounds += 1
            if plan.bound.cost > cost + CLOSE:
                tally.false_bounds[seed] = f"the bound {plan.bound.cost}, a plan for {cost}"
    tally.finish(f"; {optimal} solved to the optimum")
    assert optimal


def test_mixes_hold_without_a_solver(some_cases: Iterator[tuple[int, Case]], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("solve", "exact"):
        monkeypatch.setattr(f"kscale.capacity.mix.{module}.have_solver", lambda: False)
    tally = Tally("mix without a solver")
    for seed, case in some_cases:
        tally.instances += 1
        try:
            plan = mix(case.cluster, case.groups, options=case.options, placements=True)
        except kscale.InputError as error:
            if cheapest(case.problem) is not None:
                tally.infeasible[seed] = str(error)
            continue
        compare_bound(tally, seed, case, plan)
        if problems := faults_of(case, plan):
            tally.infeasible[seed] = problems
    tally.finish()


@pytest.mark.parametrize("question", ["scale-up", "estimate", "mix"])
def test_no_decision_costs_less_than_its_bound(some_cases: Iterator[tuple[int, Case]], question: str) -> None:
    """Only the question mix buys the minimum sizes of groups; the autoscaler takes them as they are."""
    tally = Tally(f"whatif, question {question}")
    scenario = {"name": "x", "question": question, "edits": []}
    for seed, case in some_cases:
        tally.instances += 1
        problem = replace(case.problem, limits={}, spot_share=None, max_types=None)
        if question != "mix":
            problem = replace(problem, machines=[replace(machine, least=0) for machine in problem.machines])
        base = Base(case.cluster, case.groups, NOW, bound=True, catalogue=None)
        base = replace(base, groups=[*case.groups, *free_groups(case)])
        report = whatif(base, scenarios_from({"scenarios": [scenario]}))
        (row,) = report.scenarios
        if row.bound is None:
            continue
        tally.bounds += 1
        best = cheapest(without_spread(problem))
        assert best is not None
        if row.cost is not None and row.bound > row.cost + CLOSE:
            tally.false_bounds[seed] = f"{row.bound} is more than the decision's {row.cost}"
        elif row.pending == 0 and not best[0] and row.bound > best[1] + CLOSE:
            tally.false_bounds[seed] = f"{row.bound} is more than the optimum {best[1]}"
    tally.finish()


def free_groups(case: Case) -> list[NodeGroup]:
    """Return one group without a price per existing node, so that these cost nothing."""
    return [
        NodeGroup(id=machine.name, min_size=1, max_size=1, target_size=1, nodes=[machine.name], price=0.0)
        for machine in case.problem.machines
        if machine.exists
    ]


def test_cost_report_bound_does_not_exceed_the_optimum(some_cases: Iterator[tuple[int, Case]]) -> None:
    """The cluster itself is a mix, without the rules that a cost report does not consider."""
    tally = Tally("cost")
    for seed, case in some_cases:
        tally.instances += 1
        plan = mix(case.cluster, case.groups, options=MixOptions(existing=False), placements=True)
        if not plan.node_count or plan.unschedulable_count:
            continue
        objects, described = running(case, plan)
        cluster = kscale.load(objects)
        groups = with_templates(cluster, cluster.snapshot(dra=True), groups_from(described))
        ideal = ideal_mix(cluster, groups)
        problem = replace(case.problem, limits={}, spot_share=None, max_types=None)
        problem = replace(problem, machines=[machine for machine in problem.machines if not machine.exists])
        best = cheapest(without_spread(problem))
        assert best is not None
        assert ideal.bound is not None
        tally.bounds += 1
        if ideal.bound > min(best[1], plan.cost) + CLOSE:
            tally.false_bounds[seed] = f"the bound {ideal.bound}, the cluster costs {plan.cost}, the optimum {best[1]}"
    tally.finish()


def test_simulation_bound_does_not_exceed_the_optimum(
    some_cases: Iterator[tuple[int, Case]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate every fourth instance, and compare each mix that the simulation computes with the optimum."""
    plans: list[MixPlan] = []

    def recorded_mix(*arguments: Any, **more: Any) -> MixPlan:
        plans.append(mix(*arguments, **more))
        return plans[-1]

    monkeypatch.setattr(accounting, "mix", recorded_mix)
    tally = Tally("simulate --ideal")
    for seed, case in some_cases:
        if seed % 4:
            continue
        tally.instances += 1
        plan = mix(case.cluster, case.groups, options=MixOptions(existing=False), placements=True)
        if not plan.node_count or plan.unschedulable_count:
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
        for computed in plans:
            if computed.pods == plan.pods and computed.bound.cost is not None:
                tally.bounds += 1
                if computed.bound.cost > best[1] + CLOSE:
                    tally.false_bounds[seed] = f"the bound {computed.bound.cost}, the optimum {best[1]}"
        if report.bound > report.ideal + CLOSE:
            tally.false_bounds[seed] = f"{report}"
    tally.finish()
