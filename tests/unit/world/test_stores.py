"""Stores against the fake API server, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import kscale
from kscale.drivers.live import Live, drive
from kscale.effects import Get, List, Moment, Outcome, Progress, ReadStores, Steps
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.protocols import Change, Watch
from unit.world.fake_api_server import status
from unit.world.informer_cases import Api, pod, until
from unit.world.stores_cases import CASES, asking, equal, node, random_changes_are_followed, storing
from unit.world.test_informer import FakeApi, against_fake, refusal


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
@pytest.mark.parametrize("minor", [32, 33, 37])
def test_cases(case: Callable[[Api], Awaitable[None]], minor: int) -> None:
    against_fake(case, minor=minor, cut=minor)


def test_stores_converge_in_any_order() -> None:
    """And what is held then decides as what a fresh list is read to."""

    async def case(api: FakeApi, seed: int) -> None:
        await random_changes_are_followed(api, seed, steps=40)
        async with storing(api, streaming=bool(seed % 2)) as stores:
            await equal(api, stores)
            items = [*api.server.all("nodes"), *api.server.all("pods")]
            fresh = kscale.load(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}).encode()).snapshot()
            mine = stores.snapshot()
            assert sorted(mine.pending) == sorted(fresh.pending)
            free = [dict(zip(each.nodes, each.free("cpu").tolist(), strict=True)) for each in (mine, fresh)]
            assert free[0] == free[1]

    for seed in range(12):
        against_fake(partial(case, seed=seed), seed=seed, cut=seed, delay=0.002, minor=33 + 4 * (seed % 2))


def test_a_list_that_does_not_come_to_its_end_is_listed_again() -> None:
    """The page after it is gone, and all at once it goes on, too: nothing may be decided on it, nor wait for ever."""

    async def case(api: FakeApi) -> None:
        odd = False

        def fault(call: Call) -> Answer | None:
            if not odd or "watch" in dict(call.query):
                return None
            if dict(call.query).get("continue"):
                return Answer(410, {}, json.dumps(status(410, "Expired")).encode())
            page = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1", "continue": "more"}}
            return Answer(200, {}, json.dumps({**page, "items": []}).encode())

        api.server.fault = fault
        await api.create("nodes", node("n1"))
        await api.create("pods", pod("a"))
        async with storing(api, streaming=False) as stores:
            odd = True
            api.server.fail_watches(410, "Expired")
            await asyncio.sleep(60)
            odd = False
            await api.create("pods", pod("b"))
            await until(lambda: stores.settled and stores.get("Pod", "default", "b") is not None)
            assert stores.get("Pod", "default", "a") is not None

    against_fake(case)


async def nothing(action: Any) -> Outcome:
    raise AssertionError(action)


class Driver:
    """Notes what it sees each second."""

    name = "noting"
    watches = ()

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.due: Moment = 0

    def notice(self, change: Change, now: Moment) -> None:
        raise AssertionError(change)

    def next_due(self) -> Moment | None:
        return self.due

    def observe(self, stores: Any, now: Moment) -> int:
        self.due = now + 10**9
        return int(stores.snapshot().counts["pending"])

    def steps(self, sight: int, now: Moment) -> Steps[None]:
        self.counts.append(sight)
        yield from Progress(now).wait(0)


@pytest.mark.parametrize(
    "question",
    [
        Get(kind="Pod", namespace="default", name="a", watched=True),
        List(kind="Pod", watched=True),
        List(kind="Pod", nodes=("n1",), watched=True),
    ],
)
def test_reads_within_a_round_see_the_latest_events(question: Get | List) -> None:
    """Not only who begins one: drains go by the pods of a node at that moment."""

    async def case(api: FakeApi) -> None:
        await api.create("nodes", node("n1"))
        turn = asyncio.Lock()
        async with storing(api, turn=turn) as stores:
            await asyncio.sleep(1)
            perform = Performer(api.client, api.clock, stores=stores, turn=turn)
            await api.create("pods", asking("a", "1", "n1"))
            await asyncio.sleep(0.01)
            assert stores.get("Pod", "default", "a") is None, "it lies there for a while"
            before = api.clock.monotonic()
            result = (await perform(question)).value
            names = [each.name for each in (result if isinstance(result, list) else [result]) if each is not None]
            assert (names, api.clock.monotonic() - before < 10**6) == (["a"], True)

    against_fake(case)


def test_no_decision_uses_a_partial_list() -> None:
    """While pods are listed anew page by page, the cluster holds old ones and new ones: no state that ever was."""
    driver = Driver()

    async def case(api: FakeApi) -> None:
        for i in range(1200):
            api.server.put("pods", pod(f"old{i}"))
        watches = (Watch(kind="Pod", api_version="v1"),)
        async with storing(api, watches=watches) as stores, Live(nothing, api.clock) as live:
            driving = asyncio.create_task(drive(driver, stores, live, api.clock))
            performer = Performer(api.client, api.clock, stores=stores)
            await asyncio.sleep(3)
            async with api.away():
                for i in range(1200):
                    api.server.drop("pods", f"old{i}", "default")
                    api.server.put("pods", pod(f"new{i}"))
                await api.forget()
            slow = [True]

            def fault(call: Any) -> Any:
                if slow and dict(call.query).get("continue"):
                    slow.pop()
                    api.server.delay = 5  # each page takes a while
                return None

            api.server.fault = fault
            await until(lambda: bool(api.server.pages) or not stores.settled)
            assert not stores.settled
            again = ReadStores(lambda stores: len(stores.snapshot().pending))
            assert (await performer(again)).value is None
            await until(lambda: stores.settled)
            assert (await performer(again)).value == 1200
            await asyncio.sleep(3)
            live.scope.cancel()
            await driving
            assert set(stores.cluster.keys("Pod")) == {f"default/new{i}" for i in range(1200)}

    against_fake(case, minor=33)
    assert set(driver.counts) == {1200}


def test_a_list_that_fails_midway_loses_nothing() -> None:
    async def case(api: FakeApi) -> None:
        for i in range(600):
            api.server.put("pods", pod(f"p{i}"))
        async with storing(api, watches=(Watch(kind="Pod", api_version="v1"),)) as stores:
            async with api.away():
                api.server.drop("pods", "p0", "default")
                await api.forget()
            failures = [3]

            def fault(call: Any) -> Any:
                if failures[0] and dict(call.query).get("continue"):
                    failures[0] -= 1
                    return refusal(500, "InternalError")
                return None

            api.server.fault = fault
            await until(lambda: failures[0] < 3)
            await asyncio.sleep(0.1)
            assert (
                len(stores.cluster.keys("Pod")) == 600
            )  # the one that is gone is still there, and nothing else missing
            assert not stores.settled
            await until(lambda: stores.settled)
            assert len(stores.cluster.keys("Pod")) == 599

    against_fake(case, minor=33)


def test_events_wait_while_a_decision_runs() -> None:
    async def case(api: FakeApi) -> None:
        turn = asyncio.Lock()
        async with storing(api, watches=(Watch(kind="Pod", api_version="v1"),), turn=turn) as stores:
            async with turn:
                for i in range(1000):
                    api.server.put("pods", pod(f"p{i}"))
                    if i % 100 == 0:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(1)
                assert stores.cluster.keys("Pod") == []
                assert all(watch.queue.empty() for watch in api.server.watches)  # but they were read
            await until(lambda: len(stores.cluster.keys("Pod")) == 1000)

    against_fake(case)


def test_stores_report_why_they_are_not_synced() -> None:
    async def case(api: FakeApi) -> None:
        api.server.fault = lambda call: refusal(403, "Forbidden") if "/nodes" in call.path else None
        watches = (Watch(kind="Pod", api_version="v1"), Watch(kind="Node", api_version="v1"))
        stores = KubernetesStores(api.client, watches, api.clock)
        task = asyncio.create_task(stores.run())
        await asyncio.sleep(30)
        assert not stores.synced
        ((watch, error),) = stores.waiting_for()
        assert watch.kind == "Node"
        assert error is not None
        assert error.reason == "Forbidden"
        task.cancel()
        await asyncio.wait([task])

    against_fake(case)


def test_one_way_to_watch_a_kind() -> None:
    async def case(api: FakeApi) -> None:
        watch = Watch(kind="Pod", api_version="v1")
        with pytest.raises(ValueError, match="Pod is watched twice"):
            KubernetesStores(api.client, (watch, watch), api.clock)
        both = (watch, Watch(kind="Pod", api_version="v1", field_selector="spec.nodeName=", typed=True))
        await api.create("nodes", node("n1"))
        await api.create("pods", asking("a", "1", "n1"))
        await api.create("pods", asking("b", "1"))
        async with storing(api, watches=both) as stores:
            assert [each.name for each in stores.objects("Pod")] == ["b"]  # the typed ones
            assert len(stores.cluster.keys("Pod")) == 2

    against_fake(case)
