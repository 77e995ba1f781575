"""Figures of a report beside what a look at everything, at every moment, comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kscale.effects import SECOND, Action, Evict, Moment, Outcome, PutScale, Resize
from kscale.objects.pod_resources import demand
from kscale.simulation import Scenario, Setup, build, running, simulate
from kscale.simulation.accounting import quantile
from unit.simulation.test_simulation import scenario
from unit.simulation.test_skipping import BUDGET, FLAGS, HPA, SPREAD, STEPS
from unit.simulation.test_skipping_property import scenarios
from unit.world.simulated_cases import workload


class Looks:
    """Adds up what there is until something happens next."""

    def __init__(self, setup: Setup) -> None:
        self.world, self.end = setup.world, setup.world.time.now + setup.horizon
        self.hours: defaultdict[str, float] = defaultdict(float)
        self.begun: dict[str, Moment] = {}
        self.waits: list[float] = []
        self.lengths: defaultdict[int, float] = defaultdict(float)
        self.most = 0
        self.done: Counter[type[Action]] = Counter()
        perform = self.world.perform

        def performing(action: Action, now: Moment) -> Outcome:
            outcome = perform(action, now)
            self.done[type(action)] += outcome.error is None
            return outcome

        self.world.perform = performing

    def __call__(self) -> bool:
        api, time = self.world.api, self.world.time
        waiting = {
            pod.metadata.uid: pod
            for pod in api.get_all("Pod").values()
            if not pod.spec.node_name and pod.metadata.deletion_timestamp is None
        }
        for uid in [each for each in self.begun if each not in waiting]:
            self.waits.append((time.now - self.begun.pop(uid)) / SECOND)
        for uid in waiting:
            self.begun.setdefault(uid, time.now)
        self.most = max(self.most, len(api.get_all("Node")))
        due = time.next_due
        hours = (min(self.end if due is None else due, self.end) - time.now) / SECOND / 3600
        if hours > 0:
            on = [
                p
                for p in api.get_all("Pod").values()
                if p.spec.node_name and p.status.phase not in ("Succeeded", "Failed")
            ]
            offered = sum(node.status.allocatable["cpu"].milli_value() for node in api.get_all("Node").values()) / 1000
            requested_cpu = sum(demand(pod)["cpu"].milli_value() for pod in on) / 1000
            self.hours["provisioned"] += offered * hours
            self.hours["requested"] += requested_cpu * hours
            self.hours["over_provisioned"] += max(offered - requested_cpu, 0) * hours
            self.hours["under_provisioned"] += (
                sum(demand(p)["cpu"].milli_value() for p in waiting.values()) * hours / 1000
            )
            self.hours["pending"] += len(waiting) * hours
            self.lengths[len(waiting)] += hours
            for name, pool in self.world.cloud.pools.items():
                self.hours[name] += sum(each.error is None for each in pool.machines.values()) * hours
        return False


ALL = scenario(
    horizon="13m",
    objects=[workload("Deployment", "web", 4), HPA, BUDGET],
    load=[{"workload": "Deployment/shop/web", "total": {"cpu": STEPS}}],
    machines=[{"boot": SPREAD, "ready": "5s", "failures": 0.2, "stock": 1, "lifetime": {"p0": "3m", "p100": "30m"}}],
    pods=[{"readiness": SPREAD, "termination": "7s"}],
    controllers={"horizontal": {}, "clusterAutoscaler": {"flags": FLAGS}},
)

MANY = scenario(
    horizon="6m",
    objects=[workload("Deployment", "web", 17)],
    machines=[{"boot": SPREAD, "apart": "20s"}],
)


@settings(max_examples=max(settings().max_examples // 50, 2))
@example(data=ALL)
@example(data=MANY)
@given(data=scenarios())
def test_figures_equal_step_by_step_sums(data: dict[str, Any]) -> None:
    setup = build(msgspec.convert(data, Scenario))
    looks = Looks(setup)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "_STEPS", 1)
        report = simulate(setup, stop=looks).report
    looks()
    waits = sorted([*looks.waits, *((setup.world.time.now - each) / SECOND for each in looks.begun.values())])
    pending = report.pending_pods
    assert (pending.pods, pending.at_end) == (len(waits), len(looks.begun))
    assert pending.pod_seconds == pytest.approx(looks.hours["pending"] * 3600)
    shares = (pending.p50, 0.5), (pending.p90, 0.9), (pending.p95, 0.95), (pending.p99, 0.99), (pending.max, 1.0)
    for value, share in shares:
        within = sum(each <= value + 1e-9 for each in waits)
        below = sum(each < value - 1e-9 for each in waits)
        assert not waits or below < share * len(waits) <= within + 1e-9
    total = sum(looks.lengths.values())
    assert pending.length.mean == pytest.approx(looks.hours["pending"] / total)
    for length, share in ((pending.length.p50, 0.5), (pending.length.p90, 0.9), (pending.length.p99, 0.99)):
        within, below = (
            sum(time for other, time in looks.lengths.items() if other <= most) for most in (length, length - 1)
        )
        assert below < share * total + 1e-9
        assert share * total <= within + 1e-9
    assert pending.length.max >= max(looks.lengths)
    for name in ("provisioned", "requested", "over_provisioned", "under_provisioned"):
        assert getattr(report.cores, name) == pytest.approx(looks.hours[name]), name
    for group in report.groups:
        assert group.node_hours == pytest.approx(looks.hours[group.group])
        assert group.cost == pytest.approx(0.2 * looks.hours[group.group])
    assert report.most_nodes == looks.most
    assert report.node_hours == pytest.approx(sum(group.node_hours for group in report.groups))
    assert (report.rescales, report.evictions, report.resizes) == tuple(
        looks.done[each] for each in (PutScale, Evict, Resize)
    )


@given(values=st.lists(st.integers(0, 9), max_size=30), share=st.integers(0, 100))
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(values: list[int], share: int) -> None:
    result = quantile(values, share, 100)
    enough = [each for each in values if sum(other <= each for other in values) * 100 >= share * len(values)]
    assert result == min(enough, default=0)
