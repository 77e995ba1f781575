"""A Cluster Autoscaler in virtual time makes the calls that upstream's binary made when it was recorded.

The cases and what was recorded of upstream are those of the duel (``docs/duel.md``). Its runs begin in wall clock, with
processes that take their time to start, and every loop of theirs takes some, too. So calls within one loop are one
step, in any order; each step must come when it came in one of upstream's runs, give or take one loop, told from the
start and from the step before.

How long a pod that is told to end was still there is not recorded. An autoscaler that drains looks for it at once and
then every five seconds, so that it matters whether the first look finds it: both runs are made, one must agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.duel.case import CASES, Case, Group, Step, Until, read_case
from e2e.duel.facts import CloudCall, read_logs
from e2e.duel.programs import CLUSTER_AUTOSCALER, PROGRAMS
from kscale.ca.flag_parsing import parse_flags
from kscale.ca.options import AutoscalingOptions
from kscale.cli.commands.serve import ranker
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes
from kscale.drivers.driver import VirtualDrive
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.effects import (
    SECOND,
    Action,
    ApiError,
    DecreaseTargetSize,
    Delete,
    DeleteNodes,
    Emit,
    IncreaseSize,
    Moment,
    Outcome,
    Patch,
)
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.scheduling.scores.options import ScoreOptions
from kscale.snapshot.loading import load_objects
from kscale.world.protocols import Ranker
from kscale.world.simulated.cloud import GroupTimes
from kscale.world.simulated.controllers import DRIVERS
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import MILLION, DurationDistribution
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.world.simulated_cases import T0

RECORDED = CASES.parent / "recorded"
NAMES = sorted(path.stem for path in CASES.iterdir() if CLUSTER_AUTOSCALER in read_case(path).programs)
_KINDS = {"pods": "Pod", "statefulsets": "StatefulSet", "deployments": "Deployment"}


def group_of(group: Group) -> NodeGroup:
    offered = {"cpu": group.cpu, "memory": group.memory, "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": group.name, "labels": {"group": group.name, **group.labels}},
        "status": {"capacity": offered, "allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return NodeGroup(
        id=group.name,
        min_size=group.least,
        max_size=group.most,
        target_size=group.start,
        template=NodeTemplate(node=from_dict(node, Node)),
        price=group.price,
    )


class Run:
    """A case in virtual time; ``calls``: as the duel records them; ``termination``: of each pod, nanoseconds."""

    def __init__(self, case: Case, folder: Path, termination: int) -> None:
        self.case, self.calls = case, list[CloudCall]()
        self.reasons: set[str] = set()
        self.remaining = [rule.times for rule in case.refuse]
        pods = PodTimes(start=DurationDistribution.fixed(0), termination=DurationDistribution.fixed(termination))
        options = WorldOptions(pods=pods, scores=ScoreOptions())
        self.world = world = SimulatedWorld(now=T0, options=options, ranker=self.ranker(folder))
        world.perform.fault = self.fault
        for group in case.groups:
            times = GroupTimes(
                boot=DurationDistribution.fixed(round(group.boot * SECOND)),
                apart=round(group.apart * SECOND),
                deletion=DurationDistribution.fixed(0),
                failures=0 if group.registers else MILLION,
            )
            world.cloud.add(group_of(group), times)
        for data in case.objects:
            for loaded in load_objects(data):
                world.add(loaded.obj)
        world.begin()
        self.wait(2.0)  # nodes and pods are there before the autoscaler is, as in the duel
        self.drive = self.autoscaler()

    def ranker(self, folder: Path) -> Ranker | None:
        """What the autoscaler of the case asks which group should grow."""
        if not self.case.expander:
            return None
        offered = {each.name: {"status": {"allocatable": {"cpu": each.cpu}}} for each in self.case.groups}
        groups = [{"id": each.name, "price": each.price, "template": offered[each.name]} for each in self.case.groups]
        (folder / "groups.json").write_text(json.dumps(groups))
        return ranker(self.case.expander[0], str(folder / "groups.json"))

    def autoscaler(self) -> VirtualDrive:
        more = ["--expander=grpc"] if self.case.expander else []
        known = [*PROGRAMS[CLUSTER_AUTOSCALER].flags, *more, *self.case.programs[CLUSTER_AUTOSCALER]]
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in known)
        self.loop = float(flags["scan-interval"].removesuffix("s"))
        del flags["cloud-provider"], flags["v"]
        options = AutoscalingOptions(**parse_flags([f"{name}={value}" for name, value in flags.items()]).values)
        world = self.world
        driver = ClusterAutoscaler(
            options,
            AutoscalerProcess(dra=False, frequent_loops=True),
            world.clock,
            HealthCheck(HealthCheckOptions(), world.time.now),
            CurrentNodes(),
        )
        return VirtualDrive(driver, world.stores(driver.watches), world.time, self.perform, rank=DRIVERS)

    def perform(self, action: Action, now: Moment) -> Outcome:
        outcome = self.world.perform(action, now)
        if isinstance(action, Emit):
            self.reasons.update(event.reason for event in action.events)
        if isinstance(action, IncreaseSize | DecreaseTargetSize | DeleteNodes):
            rest = action.nodes if isinstance(action, DeleteNodes) else [action.delta]
            self.calls.append(
                CloudCall(
                    at=(now - T0) / SECOND,
                    group=action.group,
                    what=" ".join([type(action).__name__, *(str(each).removeprefix("sim:///") for each in rest)]),
                    refused="" if outcome.error is None else outcome.error.message,
                )
            )
        return outcome

    def fault(self, action: Action, now: Moment) -> ApiError | None:
        del now
        for i, rule in enumerate(self.case.refuse):
            group = getattr(action, "group", None)
            if type(action).__name__ == rule.call and rule.group in ("", group) and self.remaining[i]:
                self.remaining[i] -= 1
                return ApiError(rule.message, reason="cloudProviderError")
        return None

    # -- steps -------------------------------------------------------------------------------------------------------

    def run(self) -> list[CloudCall]:
        for step in self.case.steps:
            self.step(step)
        self.wait(self.case.rest)
        self.drive.stop()
        return self.calls

    def wait(self, seconds: float) -> None:
        self.world.time.run(self.world.time.now + round(seconds * SECOND))

    def step(self, step: Step) -> None:
        assert step.samples is None
        assert step.create == step.start == step.restart == []
        if step.path:
            kind, name = _KINDS[step.path.split("/")[-2]], step.path.split("/")[-1]
            written = {"kind": kind, "api_version": "v1", "namespace": "default", "name": name}
            change = Delete(**written) if step.delete else Patch(**written, type="merge", patch=step.patch)
            assert self.world.perform(change, self.world.time.now).error is None
        if step.until is not None:
            end = self.world.time.now + round(step.within * SECOND)
            while not self.holds(step.until):
                assert self.world.time.now < end, f"{step.until}: {self.calls}"
                self.wait(0.1)
        self.wait(step.wait)

    def holds(self, until: Until) -> bool:
        assert until.status == "" == "".join(until.says)
        phases = [pod.status.phase for pod in self.world.api.get_all("Pod").values()]
        result = {
            "nodes": len(self.world.api.get_all("Node")),
            "calls": len(self.calls),
            "running": phases.count("Running"),
            "pending": phases.count("Pending"),
        }
        expected = {name: getattr(until, name) for name in result if getattr(until, name) is not None}
        enough = all(
            result[name] >= expected[name] if name == "calls" else result[name] == expected[name] for name in expected
        )
        return enough and (not until.event or until.event in self.reasons)


class LoopCalls(NamedTuple):
    """Calls of one loop, and when the loop started, in seconds since the start of the run."""

    at: float
    calls: list[tuple[str, str, str]]


def steps(calls: list[CloudCall], loop: float) -> list[LoopCalls]:
    result: list[LoopCalls] = []
    for call in sorted(calls, key=lambda each: each.at):
        if not result or call.at - result[-1].at >= loop:
            result.append(LoopCalls(call.at, []))
        result[-1].calls.append((call.group, call.what, call.refused))
    return [LoopCalls(each.at, sorted(each.calls)) for each in result]


def differences(mine: list[LoopCalls], theirs: list[list[LoopCalls]], loop: float) -> Iterator[str]:
    """In what steps differ from those of upstream's runs."""
    for each in theirs:
        if [step.calls for step in each] != [step.calls for step in mine]:
            yield f"{mine} is not {each}"
            return
    for i, step in enumerate(mine):
        for what, since in ("the start", 0.0), ("the step before", mine[i - 1].at if i else 0.0):
            passed = [each[i].at - (each[i - 1].at if since else 0.0) for each in theirs]
            if not min(passed) - loop <= step.at - since <= max(passed) + loop:
                yield f"{step} is {step.at - since:.1f} s after {what}, there {passed}"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_calls_within_a_loop(name: str, tmp_path: Path) -> None:
    case, upstream = read_case(CASES / f"{name}.yaml"), read_logs(RECORDED / f"{name}.jsonl.gz")
    result: list[list[str]] = []
    for termination in (0, SECOND):
        run = Run(case, tmp_path, termination)
        mine = steps(run.run(), run.loop)
        result.append([*differences(mine, [steps(log.calls, run.loop) for log in upstream], run.loop)])
    assert mine
    assert [] in result, result


def test_late_step_and_changed_order_are_detected() -> None:
    def call(at: float, what: str) -> CloudCall:
        return CloudCall(at=at, group="g", what=what)

    theirs = [steps([call(2.0, "a"), call(2.3, "b"), call(9.0, "c")], 1.0)]
    assert [*differences(steps([call(3.0, "b"), call(3.1, "a"), call(9.5, "c")], 1.0), theirs, 1.0)] == []
    for other in ([(4.0, "a"), (4.0, "b"), (10.0, "c")], [(2.0, "a"), (2.0, "b"), (11.0, "c")]):
        assert [*differences(steps([call(*each) for each in other], 1.0), theirs, 1.0)]
    assert [*differences(steps([call(2.0, "c"), call(9.0, "a"), call(9.0, "b")], 1.0), theirs, 1.0)]


def test_all_recorded_autoscaler_cases_are_tested() -> None:
    assert NAMES == ["asked", "balance", "drain", "held", "lost", "refused"]
