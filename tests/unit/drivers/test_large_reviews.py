"""Large admission reviews: answered in their own process, in bounded number and time, in time linear in their size."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

import pytest

from kscale.drivers import vpa_admission
from kscale.drivers.live import Live
from kscale.drivers.vpa_admission import AdmissionController, LargeReviews, ReviewLimits
from kscale.effects import Action, Observation, Observe, Outcome
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import LimitRange
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.processes import worker_processes
from kscale.vpa import ControllerKey
from kscale.vpa.admission import ReviewResult
from kscale.world.clock import SystemClock
from kscale.world.protocols import Change, Watch
from unit.drivers.test_vpa_admission import review
from unit.drivers.vpa_world import NAMESPACE, autoscaler, running_pod, workload

LIMITS = {
    "kind": "LimitRange",
    "apiVersion": "v1",
    "metadata": {"name": "l", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}, {"type": "Pod", "max": {"cpu": "1M"}}]},
}


def pod_of(containers: int) -> dict[str, Any]:
    pod = running_pod("web-9", "web")
    own = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    pod["spec"]["containers"] = [{"name": f"c{i}", "resources": own} for i in range(containers)]
    return pod


def driver_for(containers: int) -> AdmissionController:
    """A driver whose VPA has a recommendation and a policy for each of as many containers."""
    driver = AdmissionController()
    names = [f"c{i}" for i in range(containers)]
    recommended = [{"containerName": name, "target": {"cpu": "1"}} for name in names]
    policies = [{"containerName": name, "maxAllowed": {"cpu": "300m"}} for name in names]
    vpa = autoscaler(
        "web",
        status={"recommendation": {"containerRecommendations": recommended}},
        resourcePolicy={"containerPolicies": policies},
    )
    for item, type_ in ((workload("web"), ReplicaSet), (LIMITS, LimitRange), (vpa, VerticalPodAutoscaler)):
        watch = Watch(kind=item["kind"], api_version=item["apiVersion"], typed=True)
        driver.notice(Change(watch=watch, new=from_dict(item, type_)), 0)
    return driver


def live() -> Live:
    async def perform(action: Action) -> Outcome:
        assert isinstance(action, Observe)
        return Outcome(at=0)

    return Live(perform, SystemClock())


def reviews_of(
    driver: AdmissionController,
    limits: ReviewLimits | None = None,
    observe: Callable[[Sequence[Observation]], None] = lambda _: None,
    start: Callable[[], Executor] = lambda: ThreadPoolExecutor(1),
) -> LargeReviews:
    limits = limits or ReviewLimits(timeout=60.0)
    return LargeReviews(live(), driver.match, driver.limit_ranges, driver.options, limits, observe, start=start)


def answer_of(reviewed: ReviewResult) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(reviewed.body)["response"]
    return response


def patches_of(reviewed: ReviewResult) -> list[dict[str, Any]]:
    patches: list[dict[str, Any]] = json.loads(base64.b64decode(answer_of(reviewed)["patch"]))
    return patches


def test_a_large_review_is_answered_as_a_small_one() -> None:
    observed: list[Observation] = []

    async def run() -> tuple[ReviewResult, ReviewResult]:
        driver = driver_for(300)
        large = reviews_of(driver, observe=observed.extend, start=partial(worker_processes, 1))
        body = review(pod_of(300))
        try:
            small: ReviewResult = await live().run(lambda now: driver.review(body, now))
            return small, await large.review(body)
        finally:
            large.close()

    small, large = asyncio.run(run())
    assert patches_of(large) == patches_of(small)
    assert {patch["path"]: patch["value"] for patch in patches_of(large)}[
        "/spec/containers/7/resources/limits/cpu"
    ] == "600m"
    assert (large.status, large.messages) == (small.status, small.messages) == ("applied", [])
    assert [(each.name, each.labels) for each in observed] == [
        ("vpa_admission_controller_admission_pods_total", {"applied": "true"})
    ]


@pytest.mark.parametrize("body", [b"{", b"{}", review({"metadata": {"name": "p"}}, "pods", "apps")])
def test_unreadable_review_is_admitted_unchanged(body: bytes) -> None:
    async def run() -> ReviewResult:
        large = reviews_of(driver_for(1))
        try:
            return await large.review(body)
        finally:
            large.close()

    reviewed = asyncio.run(run())
    assert (answer_of(reviewed)["allowed"], reviewed.status, len(reviewed.messages)) == (True, "error", 1)


def test_a_pod_with_more_containers_than_allowed_is_not_patched() -> None:
    async def run(allowed: int) -> ReviewResult:
        large = reviews_of(driver_for(5), ReviewLimits(timeout=60.0, containers=allowed))
        try:
            return await large.review(review(pod_of(5)))
        finally:
            large.close()

    assert asyncio.run(run(5)).status == "applied"
    reviewed = asyncio.run(run(4))
    assert (answer_of(reviewed), reviewed.status) == ({"uid": "u", "allowed": True}, "error")
    assert reviewed.messages == ["the pod has 5 containers, more than the 4 that are looked at; it is not patched"]


def test_the_event_loop_goes_on_while_a_large_review_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many reviews as may wait are held in the thread; a further one, and those that are too late, are admitted."""
    release, began = threading.Event(), threading.Event()
    read = vpa_admission.read_review

    def blocked_read(*args: Any, **options: Any) -> Any:
        began.set()
        assert release.wait(60)
        return read(*args, **options)

    monkeypatch.setattr(vpa_admission, "read_review", blocked_read)

    async def run() -> None:
        driver, body = driver_for(5), review(pod_of(5))
        large = reviews_of(driver, ReviewLimits(timeout=0.2))
        try:
            waiting = [asyncio.create_task(large.review(body)) for _ in range(8)]
            await asyncio.to_thread(began.wait)
            small: ReviewResult = await live().run(lambda now: driver.review(body, now))
            assert small.status == "applied"
            over = await large.review(body)
            assert over.messages == ["8 large reviews are being answered already; this one is not patched"]
            for late in await asyncio.gather(*waiting):
                assert late.messages == ["the review was not answered within 0.2 s; it is not patched"]
                assert answer_of(late) == {"uid": "", "allowed": True}
            assert (await large.review(body)).messages == over.messages  # the thread still has the first ones
            release.set()
            while (again := await large.review(body)).messages == over.messages:
                await asyncio.sleep(0)
            assert (again.status, again.messages) in (("applied", []), ("error", waiting[0].result().messages))
        finally:
            release.set()
            large.close()

    asyncio.run(run())


def test_a_worker_that_is_killed_is_replaced() -> None:
    workers: list[Executor] = []

    def start() -> Executor:
        workers.append(worker_processes(1))
        return workers[-1]

    async def run() -> tuple[ReviewResult, ReviewResult]:
        large, body = reviews_of(driver_for(5), start=start), review(pod_of(5))
        try:
            assert (await large.review(body)).status == "applied"
            process = await asyncio.wrap_future(workers[0].submit(os.getpid))
            assert process != os.getpid()
            os.kill(process, signal.SIGKILL)
            return await large.review(body), await large.review(body)
        finally:
            large.close()

    during, after = asyncio.run(run())
    assert (answer_of(during)["allowed"], during.status) == (True, "error")
    text = "the process of large reviews ended (for want of memory?); this one is not patched"
    assert during.messages == [text]
    assert (after.status, len(workers)) == ("applied", 2)


def lines_run(function: Callable[[], Any]) -> int:
    """Count the lines of Python that a call runs: the same number on every machine."""
    lines = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


def test_the_work_of_a_review_grows_linearly_with_its_containers() -> None:
    def work(containers: int) -> int:
        driver = driver_for(containers)
        read = vpa_admission.read_review(review(pod_of(containers)))
        assert not isinstance(read, ReviewResult)
        (vpa,) = driver.vpas.targeting(ControllerKey(NAMESPACE, "ReplicaSet", "web", "apps/v1"))
        return lines_run(lambda: vpa_admission.review_pod(read, vpa, limit_ranges=driver.limit_ranges))

    assert work(400) < 2.2 * work(200)
    assert work(3_000) < 16.5 * work(200)  # each container was once compared with all others: 225 times the work


def test_a_small_pod_of_a_large_vpa_costs_little() -> None:
    """The VPA is read for each pod: what it says of containers that the pod has not is passed over."""

    def work(entries: int) -> int:
        driver = driver_for(entries)
        read = vpa_admission.read_review(review(pod_of(1)))
        assert not isinstance(read, ReviewResult)
        (vpa,) = driver.vpas.targeting(ControllerKey(NAMESPACE, "ReplicaSet", "web", "apps/v1"))
        return lines_run(lambda: vpa_admission.review_pod(read, vpa, limit_ranges=driver.limit_ranges))

    assert work(400) - work(200) < 10 * 200
