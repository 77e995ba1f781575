"""A program as a whole process, in virtual time, against the fake API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kscale.ca.legacy.metrics import LEGACY_METRICS as METRICS_1_3
from kscale.ca.metrics import METRICS
from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS
from kscale.drivers.leader_election import LEADER_METRICS, LeaderElectionOptions, LostLeadershipError
from kscale.drivers.live import DRIVE_METRICS
from kscale.drivers.process import HealthCheck, HealthCheckOptions, ProcessOptions, Program, ProgramContext, run_process
from kscale.drivers.vpa_admission import ADMISSION_METRICS
from kscale.drivers.vpa_recommender import RECOMMENDER_METRICS
from kscale.drivers.vpa_updater import UPDATER_METRICS
from kscale.effects import (
    SECOND,
    Create,
    Event,
    Get,
    InBackground,
    Metric,
    Moment,
    Observation,
    Patch,
    Progress,
    Steps,
    Together,
)
from kscale.objects.api.core import ConfigMap, ObjectReference
from kscale.objects.api.meta import ObjectMeta
from kscale.vpa.metrics import LEGACY_METRICS
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import WATCH_METRICS
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.protocols import Change, Watch
from unit.world.fake_api_server import status
from unit.world.informer_cases import pod, until
from unit.world.test_informer import FakeApi, against_fake

ROUNDS = Metric("rounds_total", "counter")
ELECTION = LeaderElectionOptions(identity="one", resource_name="tally", resource_namespace="default")


class Tally:
    """Each second: writes the number of pods, starts a slow job in the background, says so."""

    name = "tally"
    watches = (Watch(kind="Pod", api_version="v1"),)

    def __init__(self) -> None:
        self.due: Moment = 0
        self.ended: list[str] = []

    def notice(self, change: Change, now: Moment) -> None:
        raise AssertionError(change)

    def next_due(self) -> Moment | None:
        return self.due

    def observe(self, stores: Any, now: Moment) -> int:
        self.due = now + SECOND
        return len(stores.cluster.keys("Pod"))

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        progress = Progress(now)
        yield from progress.observe(Observation(name=ROUNDS.name))
        created = ConfigMap(metadata=ObjectMeta(name=f"tally-{sight}", namespace="default"), data={"pods": str(sight)})
        done = yield from progress.act(Create(created))
        if done.error is None:
            about = ObjectReference(api_version="v1", kind="ConfigMap", namespace="default", name=created.name)
            yield from progress.emit(Event(regarding=about, type="Normal", reason="Counted", message=f"{sight} pods"))
            yield from progress.act(InBackground(self.slow))

    def slow(self, now: Moment) -> Steps[None]:
        progress = Progress(now)
        try:
            yield from progress.wait(3600 * SECOND)
            patch = Patch(kind="ConfigMap", name="late", namespace="default", patch={"data": {"late": "yes"}})
            yield from progress.act(patch)
            self.ended.append("done")
        finally:
            self.ended.append("closed")


def forget(now: Moment) -> Steps[None]:
    progress = Progress(now)
    created = ConfigMap(metadata=ObjectMeta(name="farewell", namespace="default"))
    yield from progress.act(Create(created))


class Run:
    def __init__(self, api: FakeApi, options: ProcessOptions, *, driver: Tally | None = None, **more: Any) -> None:
        self.api, self.driver, self.stop = api, driver or Tally(), asyncio.Event()
        self.around: list[ProgramContext] = []
        self.closed = 0

        def build(around: ProgramContext) -> Program:
            self.around.append(around)
            return Program(driver=self.driver, metrics=[ROUNDS], at_end=forget, close=self.close, **more)

        self.task = asyncio.create_task(
            run_process(build, api.client, options, version="1", stop=self.stop, clock=api.clock)
        )

    def close(self) -> None:
        self.closed += 1

    def maps(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.server.all("configmaps")]


def against(case: Callable[[FakeApi], Awaitable[None]]) -> FakeApi:
    return against_fake(case)


def test_process_leads_writes_reports_and_shuts_down() -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        run = Run(api, ProcessOptions(election=ELECTION))
        await until(lambda: run.maps() == ["tally-1"])
        await api.create("pods", pod("b"))
        await until(lambda: run.maps() == ["tally-1", "tally-2"])
        metrics = run.around[0].metrics
        assert (metrics.value("rounds_total") or 0) >= 2
        assert metrics.value("kscale_build_info", program="tally", version="1") == 1
        assert b'kscale_decision_seconds_count{driver="tally"} ' in metrics.exposition()[0]
        assert api.server.get("leases.coordination.k8s.io", "tally", "default")["spec"]["holderIdentity"] == "one"
        run.stop.set()
        await run.task
        assert run.driver.ended == ["closed", "closed"]  # given up, and not done
        assert run.maps() == ["farewell", "tally-1", "tally-2"]
        assert run.closed == 1
        assert api.server.get("leases.coordination.k8s.io", "tally", "default")["spec"]["holderIdentity"] == ""
        messages = [each["message"] for each in api.server.all("events") if each["reason"] == "Counted"]
        assert messages == ["1 pods", "2 pods"]

    against(case)


def test_a_dry_run_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        await api.create("pods", pod("a"))
        run = Run(api, ProcessOptions(election=ELECTION, dry_run=True))
        with caplog.at_level("INFO", "kscale"):
            await until(lambda: (run.around[0].metrics.value("rounds_total") or 0) > 3 if run.around else False)
            run.stop.set()
            await run.task
        assert all(api.server.requested_paths(method) == [] for method in ("POST", "PATCH", "PUT", "DELETE"))

    against(case)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("dry run: Create ") and "tally-1" in line for line in lines)
    assert "dry run: event Normal Counted ConfigMap/default/tally-1: 1 pods" in lines


def test_lost_lease_ends_the_process() -> None:
    async def case(api: FakeApi) -> None:
        run = Run(api, ProcessOptions(election=ELECTION))
        await until(lambda: run.maps() == ["tally-0"])
        take_the_lease(api)
        with pytest.raises(LostLeadershipError):
            await run.task
        assert run.driver.ended == ["closed"]
        assert run.maps() == ["tally-0"]  # what is done at an end is for the leader to do
        assert run.closed == 1

    against(case)


def take_the_lease(api: FakeApi) -> None:
    lease = api.server.get("leases.coordination.k8s.io", "tally", "default")
    spec = {**lease["spec"], "holderIdentity": "another", "leaseDurationSeconds": 3600}
    api.server.put("leases.coordination.k8s.io", {**lease, "spec": spec})


def test_shutdown_after_a_lost_lease_skips_the_final_write() -> None:
    """While what ran beside it still ends."""
    ending: list[str] = []

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.append("begun")
            await asyncio.sleep(60)
            ending.append("done")

    async def case(api: FakeApi) -> None:
        run = Run(api, ProcessOptions(election=ELECTION), beside=[slow_to_end])
        await until(lambda: run.maps() == ["tally-0"])
        take_the_lease(api)
        await until(lambda: ending == ["begun"])
        run.stop.set()
        with suppress(LostLeadershipError):  # whether it is told of that is not what counts here
            await run.task
        assert run.maps() == ["tally-0"]

    against(case)


def test_shutdown_while_releasing_the_lease_skips_the_final_write() -> None:
    """Another may lead as soon as that is written."""

    async def broken() -> None:
        await asyncio.sleep(5)
        raise ValueError("it broke")

    async def case(api: FakeApi) -> None:
        run = Run(api, ProcessOptions(election=ELECTION), beside=[broken])
        await until(lambda: run.maps() == ["tally-0"])
        refusal = status(409, "Conflict", "it was written to meanwhile")
        released: list[str] = []

        def fault(call: Call) -> Answer | None:
            if "leases" not in call.path or b'"holderIdentity":""' not in (call.body or b""):
                return None
            released.append(call.path)
            run.stop.set()
            return Answer(409, {}, json.dumps(refusal).encode()) if len(released) < 9 else None

        api.server.fault = fault
        with suppress(ValueError):
            await run.task
        assert released
        assert run.maps() == ["tally-0"]

    against(case)


class Busy(Tally):
    """Asks a lot at once."""

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        progress = Progress(now)
        gets = (lambda at: Progress(at).act(Get(kind="ConfigMap", name="x", namespace="default")),) * 500
        yield from progress.act(Together(machines=gets))


def test_the_lease_does_not_wait_behind_other_requests() -> None:
    async def case(api: FakeApi) -> None:
        api.client = Client(api.client.transport, api.clock, qps=0.7, burst=1)
        run = Run(api, ProcessOptions(election=ELECTION), driver=Busy())
        await asyncio.sleep(120)
        assert not run.task.done(), run.task.result()
        run.stop.set()
        await run.task

    against(case)


class Thoughtful(Tally):
    """Thinks until it may go on, once it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        self.begun.set()
        assert self.may_go_on.wait(60)
        yield from super().steps(sight, now)


def test_shutdown_does_not_wait_for_a_decision() -> None:
    async def main() -> list[str]:
        api = FakeApi(SystemClock())
        run = Run(api, ProcessOptions(election=ELECTION), driver=(driver := Thoughtful()))
        assert await asyncio.to_thread(driver.begun.wait, 60)
        run.stop.set()
        async with asyncio.timeout(60):
            while run.maps() != ["farewell"]:
                await asyncio.sleep(0.01)
        assert not run.task.done()
        driver.may_go_on.set()
        await run.task
        return run.maps()

    assert asyncio.run(main()) == ["farewell"]


def test_waiting_candidate_can_be_stopped() -> None:
    async def case(api: FakeApi) -> None:
        first = Run(api, ProcessOptions(election=ELECTION))
        await until(lambda: first.maps() == ["tally-0"])
        second = LeaderElectionOptions(identity="two", resource_name="tally", resource_namespace="default")
        waiting = Run(api, ProcessOptions(election=second))
        await asyncio.sleep(60)
        assert waiting.around[0].metrics.value("rounds_total") is None
        waiting.stop.set()
        await waiting.task
        assert not first.task.done()
        first.stop.set()
        await first.task

    against(case)


def test_failing_side_task_ends_the_process() -> None:
    async def broken() -> None:
        await asyncio.sleep(5)
        raise ValueError("it broke")

    async def case(api: FakeApi) -> None:
        run = Run(api, ProcessOptions(), beside=[broken])
        with pytest.raises(ValueError, match="it broke"):
            await run.task
        assert run.maps() == ["tally-0"]

    against(case)


def test_list_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        refusal = status(403, "Forbidden", "pods is forbidden: no")
        api.server.fault = lambda call: Answer(403, {}, json.dumps(refusal).encode()) if "/pods" in call.path else None
        run = Run(api, ProcessOptions())
        await asyncio.sleep(25)
        run.stop.set()
        await run.task

    with caplog.at_level("WARNING", "kscale"):
        against(case)
    assert "waiting for the list of Pod (v1): pods is forbidden: no" in [each.getMessage() for each in caplog.records]


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], str]]:
    """What ``/readyz`` of each process asks; nothing is served."""
    result: list[Callable[[], str]] = []

    def endpoints(**arguments: Any) -> dict[str, Any]:
        result.append(arguments["ready"])
        return {}

    monkeypatch.setattr("kscale.drivers.process.endpoints", endpoints)
    monkeypatch.setattr("kscale.drivers.process.Server", lambda *_, **__: nullcontext())
    return result


def test_process_is_ready_after_lists_and_program(ready: list[Callable[[], str]]) -> None:
    async def case(api: FakeApi) -> None:
        why = ["it does not listen yet"]
        refusal = Answer(403, {}, json.dumps(status(403, "Forbidden", "no")).encode())
        api.server.fault = lambda call: refusal if "/pods" in call.path else None
        run = Run(api, ProcessOptions(address=":0"), ready=lambda: why[0])
        await asyncio.sleep(1)
        assert ready[0]() == "waiting for the lists of Pod"
        api.server.fault = lambda call: None
        await until(lambda: ready[0]() == "it does not listen yet")
        why[0] = ""
        assert ready[0]() == ""
        run.stop.set()
        await run.task

    against(case)


def test_a_candidate_that_waits_for_the_lease_is_ready(ready: list[Callable[[], str]]) -> None:
    async def case(api: FakeApi) -> None:
        first = Run(api, ProcessOptions(election=ELECTION))
        await asyncio.sleep(5)
        another = msgspec.structs.replace(ELECTION, identity="two")
        run = Run(api, ProcessOptions(address=":0", election=another), ready=lambda: "it does not listen yet")
        await asyncio.sleep(5)
        assert ready[0]() == ""
        for each in (first, run):
            each.stop.set()
            await each.task

    against(case)


def test_health_endpoint_reports_the_program_health() -> None:
    async def case(api: FakeApi) -> None:
        health = HealthCheck(HealthCheckOptions(max_startup_time=timedelta(minutes=1)), api.clock.now())
        begun: list[bool] = []
        run = Run(api, ProcessOptions(), health=health, monitored=lambda: begun.append(True))
        await until(lambda: bool(begun))
        run.stop.set()
        await run.task

    against(case)


def test_every_metric_of_the_programs_has_a_help_text() -> None:
    served = [
        *METRICS.values(),
        *METRICS_1_3.values(),
        *HORIZONTAL_METRICS,
        *RECOMMENDER_METRICS,
        *UPDATER_METRICS,
        *LEGACY_METRICS.values(),
        *ADMISSION_METRICS,
        *LEADER_METRICS,
        *DRIVE_METRICS,
        *WATCH_METRICS,
    ]
    assert [metric.name for metric in served if not metric.help] == []
    assert METRICS["cluster_autoscaler_nodes_count"].help == "[ALPHA] Number of nodes in cluster."
