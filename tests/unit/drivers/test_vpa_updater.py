"""The updater as a whole process, in virtual time, against the fake API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kscale.capacity.vpa_round_plan import PlannedVPA, PutAnew, VPARoundPlan
from kscale.drivers.vpa_updater import VpaUpdater, updater_program
from kscale.effects import to_text
from kscale.vpa import UpdaterOptions
from kscale.world.kubernetes.transport import Answer, Call
from unit.drivers.vpa_world import NAMESPACE, SERVED, Run, autoscaler, cluster, node, running, running_pod, workload
from unit.world.fake_api_server import RefusalError, status
from unit.world.test_informer import FakeApi, against_fake

VPAS = "verticalpodautoscalers.autoscaling.k8s.io"
LEASES = "leases.coordination.k8s.io"
MINUTE = 60
FAR: dict[str, Any] = {
    "recommendation": {
        "containerRecommendations": [
            {
                "containerName": "c",
                "target": {"cpu": "1", "memory": "1Gi"},
                "lowerBound": {"cpu": "900m", "memory": "900Mi"},
                "upperBound": {"cpu": "2", "memory": "2Gi"},
            }
        ]
    }
}
RESIZED = "InPlaceResizedByVPA"


def against(case: Callable[[FakeApi], Awaitable[None]], **more: Any) -> FakeApi:
    return against_fake(case, resources=SERVED, **more)


def building(**options: Any) -> Any:
    return partial(updater_program, options=UpdaterOptions(**options))


def far(mode: str = "Recreate", name: str = "web", **more: Any) -> dict[str, Any]:
    return autoscaler(name, status=FAR, updatePolicy={"updateMode": mode}, **more)


def lives(api: FakeApi, at: int | None = None) -> None:
    """The admission controller says that it does, now (``at``: by another clock)."""
    now = to_text(api.clock.now() if at is None else at, fraction=True)
    name = {"name": "vpa-admission-controller", "namespace": "kube-system", "creationTimestamp": now}
    spec = {"holderIdentity": "x", "renewTime": f"{str(now).rstrip('Z').partition('.')[0]}.000000Z"}
    api.server.put(LEASES, {"metadata": name, "spec": spec})


def pods(api: FakeApi) -> list[str]:
    return [each["metadata"]["name"] for each in api.server.all("pods")]


def requests(api: FakeApi, name: str) -> dict[str, str]:
    result: dict[str, str] = api.server.get("pods", name, NAMESPACE)["spec"]["containers"][0]["resources"]["requests"]
    return result


def events(api: FakeApi) -> list[str]:
    return sorted(f"{each['involvedObject']['kind']} {each['reason']}" for each in api.server.all("events"))


def writes(api: FakeApi) -> list[str]:
    return [path for method in ("POST", "PATCH", "PUT", "DELETE") for path in api.server.requested_paths(method)]


def test_updater_evicts_within_the_budget_and_emits_events() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far())
        lives(api)
        api.server.delay = 0.001
        async with running(api, building()) as run:
            await asyncio.sleep(50)
            assert len(pods(api)) == 4
            lives(api)
            await asyncio.sleep(20)
            assert len(pods(api)) == 2
            await asyncio.sleep(5)
            assert events(api) == ["Pod EvictedByVPA"] * 2 + ["VerticalPodAutoscaler EvictedPod"] * 2
            (event,) = [each for each in api.server.all("events") if each["involvedObject"].get("name") == "web-0"]
            assert event["source"] == {"component": "vpa-updater"}
            counted = {"vpa_size_log2": "2", "update_mode": "Recreate", "vpa_name": "web", "vpa_namespace": NAMESPACE}
            assert run.metric("vpa_updater_evicted_pods_total", **counted) == 2
            for i in range(4):
                api.server.put("pods", running_pod(f"web-new-{i}", "web", cpu="1", memory="1Gi"))
            for name in ("web-2", "web-3"):
                api.server.drop("pods", name, NAMESPACE)
            lives(api)
            await asyncio.sleep(MINUTE)
            assert len(pods(api)) == 4  # they have what is recommended

    against(case)


@pytest.mark.parametrize("dry_run", [False, True])
def test_updater_reports_the_effect_on_nodes_before_acting(dry_run: bool) -> None:
    plans: list[tuple[VPARoundPlan, int]] = []

    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put("nodes", node())
        api.server.put(VPAS, far())
        lives(api)
        build = partial(
            updater_program, options=UpdaterOptions(), plan=lambda plan: plans.append((plan, len(pods(api))))
        )
        async with running(api, build, dry_run=dry_run):
            await asyncio.sleep(50)
            lives(api)
            await asyncio.sleep(25)
            assert len(pods(api)) == (4 if dry_run else 2)
            assert ("Node NodesPlanned" in events(api)) is not dry_run

    against(case)
    ((plan, there),) = plans
    assert there == 4
    assert plan.vpas == [PlannedVPA(namespace=NAMESPACE, name="web", pods=2, evict=["web-0", "web-1"], resize=[])]
    effect = plan.effect
    assert (effect.node, effect.pods, effect.nodes_before, effect.nodes_after) == ("n", 4, 1, 2)
    assert plan.event is not None
    assert plan.event.message == (
        "This round updates 2 pods of 1 VPAs: packed onto nodes like this one, 4 running pods need 2 nodes, 1 before"
        "; 1 of the changed find no place on the nodes that are there"
    )
    assert plan.anew == PutAnew(placed=1, waiting=[f"{NAMESPACE}/web-1"])


def test_plan_contains_only_resizable_pods() -> None:
    plans: list[VPARoundPlan] = []

    async def case(api: FakeApi) -> None:
        cluster(api, pods=2)
        api.server.put("nodes", node())
        api.server.put(VPAS, far("InPlaceOrRecreate"))
        async with running(api, partial(updater_program, options=UpdaterOptions(), plan=plans.append)):
            await asyncio.sleep(70)
            lives(api)
            await asyncio.sleep(MINUTE)

    against(case)
    without, plan = plans
    assert (without.vpas, without.event) == ([], None)  # the admission controller did not say that it lives
    (vpa,) = plan.vpas
    assert vpa.resize
    assert not vpa.evict


def test_without_an_admission_controller_nothing_is_done(caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far())
        async with running(api, building()):
            await asyncio.sleep(3 * MINUTE)
            lives(api)
            await asyncio.sleep(3 * MINUTE)
            assert len(pods(api)) == 2
            for i in range(4):
                api.server.put("pods", running_pod(f"web-{i}", "web"))
            await asyncio.sleep(5 * MINUTE)
            assert len(pods(api)) == 4  # it has not said so for long

    with caplog.at_level("WARNING", "kscale"):
        against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert "Admission Controller status is not valid. Skipping update loop" in messages
    assert any(text.startswith("Error getting Admission Controller status. Skipping") for text in messages)


def test_a_disruption_budget_refuses() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far())
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        api.server.may_evict = lambda pod: RefusalError(429, "TooManyRequests", message)
        async with running(api, building(use_admission_controller_status=False)) as run:
            await asyncio.sleep(1.5 * MINUTE)
            assert len(pods(api)) == 4
            failed = {
                "vpa_size_log2": "2", "update_mode": "Recreate", "reason": "EvictionError", "vpa_name": "web",
                "vpa_namespace": NAMESPACE,
            }  # fmt: skip
            # A refusal costs no budget: each is tried.
            assert run.metric("vpa_updater_failed_eviction_attempts_total", **failed) == 4
            assert events(api) == []
            api.server.may_evict = lambda pod: None
            await asyncio.sleep(MINUTE)
            assert len(pods(api)) == 2

    against(case)


def test_pods_are_resized_in_place() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far("InPlaceOrRecreate"))
        async with running(api, building(use_admission_controller_status=False)) as run:
            await asyncio.sleep(1.5 * MINUTE)
            assert len(pods(api)) == 4
            resized = [name for name in pods(api) if requests(api, name)["cpu"] == "1"]
            assert len(resized) == 2
            marked = api.server.get("pods", resized[0], NAMESPACE)["metadata"]["annotations"]
            assert marked["vpaInPlaceUpdated"] == "true"
            assert events(api) == [f"Pod {RESIZED}"] * 2
            updated = {"vpa_size_log2": "2", "vpa_name": "web", "vpa_namespace": NAMESPACE}
            assert run.metric("vpa_updater_in_place_updated_pods_total", **updated) == 2
            await asyncio.sleep(MINUTE)
            assert {requests(api, name)["cpu"] for name in pods(api)} == {"1"}

    against(case)


def no_room(call: Call) -> Answer | None:
    """A node that has no room for a resize."""
    if not call.path.endswith("/resize"):
        return None
    causes = [{"reason": "NodeCapacity", "message": "Node didn't have enough capacity", "field": ""}]
    refusal = status(403, "Forbidden", "pods is forbidden: node capacity", causes=causes)
    return Answer(403, {"content-type": "application/json"}, json.dumps(refusal).encode())


def test_a_resize_that_is_refused_ends_in_an_eviction() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far("InPlaceOrRecreate"))
        api.server.fault = no_room
        async with running(api, building(use_admission_controller_status=False)) as run:
            await asyncio.sleep(1.5 * MINUTE)
            assert len(pods(api)) == 2
            failed = {
                "vpa_size_log2": "2", "reason": "InPlaceUpdateError", "vpa_name": "web", "vpa_namespace": NAMESPACE
            }  # fmt: skip
            assert run.metric("vpa_updater_failed_in_place_update_attempts_total", **failed) == 4

    against(case)


def test_in_place_mode_never_evicts_and_remembers_infeasible_resizes() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=2)
        api.server.put("replicasets.apps", workload("web", 2))
        api.server.put(VPAS, far("InPlace"))
        api.server.fault = no_room
        gates = {"InPlace": True}
        async with running(api, building(use_admission_controller_status=False, feature_gates=gates)) as run:
            await asyncio.sleep(1.5 * MINUTE)
            driver = run.driver
            assert isinstance(driver, VpaUpdater)
            tried = len([path for path in writes(api) if path.endswith("/resize")])
            assert (len(pods(api)), len(driver.state.infeasible_attempts)) == (2, tried)
            assert tried > 0
            api.server.fault = lambda call: None
            await asyncio.sleep(2 * MINUTE)  # it had no room for as much: it is not asked for again
            assert len([path for path in writes(api) if path.endswith("/resize")]) == tried
            less = json.loads(json.dumps(FAR).replace('"1Gi"', '"950Mi"'))
            api.server.put(VPAS, autoscaler("web", status=less, updatePolicy={"updateMode": "InPlace"}))
            await asyncio.sleep(2 * MINUTE)
            assert requests(api, "web-0") == {"cpu": "1", "memory": "950Mi"}
            for name in list(pods(api)):
                api.server.drop("pods", name, NAMESPACE)
            await asyncio.sleep(MINUTE)
            assert driver.state.infeasible_attempts == {}

    against(case)


def test_limits_of_a_rate_and_the_end_of_a_loop() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=10)
        api.server.put(VPAS, far())
        options = {"eviction_rate_limit": 0.05, "eviction_tolerance": 1.0, "use_admission_controller_status": False}
        async with running(api, building(**options)):
            await asyncio.sleep(61)
            assert len(pods(api)) == 9
            await asyncio.sleep(20)
            assert len(pods(api)) == 8
            await asyncio.sleep(22)
            assert len(pods(api)) == 7

    against(case)


def test_limit_ranges_are_looked_at() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=2)
        metadata = {"name": "l", "namespace": NAMESPACE}
        limits = [{"type": "Container", "max": {"cpu": "100m", "memory": "100Mi"}}]
        api.server.put("limitranges", {"kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
        for i in range(2):
            created = running_pod(f"web-{i}", "web")
            created["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "100m", "memory": "100Mi"}
            api.server.put("pods", created)
        api.server.put(VPAS, far())
        async with running(api, building(use_admission_controller_status=False)):
            await asyncio.sleep(2 * MINUTE)
            assert len(pods(api)) == 2  # they have what they may have
            api.server.drop("limitranges", "l", NAMESPACE)
            await asyncio.sleep(MINUTE + 5)
            assert len(pods(api)) == 1

    against(case)


def test_a_dry_run_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far())
        lives(api)
        async with running(api, building(admission_controller_status_lease_timeout=timedelta(hours=1)), dry_run=True):
            await asyncio.sleep(2.5 * MINUTE)
            assert writes(api) == []
            assert len(pods(api)) == 4

    with caplog.at_level("INFO", "kscale"):
        against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert any(text.startswith("dry run: Evict ") for text in messages)
    assert any("dry run: event Normal EvictedByVPA Pod/shop/web-" in text for text in messages)
    assert any(text.startswith("Pod accepted for update: shop/web-") for text in messages)


def test_health_depends_on_recent_loops() -> None:
    def health(run: Run) -> str:
        check = run.programs[0].health
        assert check is not None
        return check.check(run.around[0].steady.now())

    async def case(api: FakeApi) -> None:
        cluster(api, pods=2)
        api.server.put(VPAS, far("Off"))
        async with running(api, building()) as run:
            await asyncio.sleep(20 * MINUTE)
            assert health(run) == ""
            api.server.delay = 3600
            await asyncio.sleep(10 * MINUTE)
            assert health(run) == ""  # the look at the lease ends with the loop's time

    against(case)


@pytest.mark.parametrize("seed", range(3))
def test_updates_survive_broken_connections(seed: int) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far("InPlaceOrRecreate"))
        async with running(api, building(use_admission_controller_status=False)):
            for _ in range(4):
                await asyncio.sleep(45)
                await api.cut()
            await asyncio.sleep(MINUTE)
            assert {requests(api, name)["cpu"] for name in pods(api)} == {"1"}
            assert len(pods(api)) == 4

    against(case, seed=seed, cut=seed, delay=0.01)


# -- the updater of 2020 -----------------------------------------------------------------------------------------------


def test_the_updater_of_2020_evicts_whether_the_admission_controller_lives_or_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=4)
        api.server.put(VPAS, far())
        api.server.put(VPAS, far("InPlaceOrRecreate", name="other"))
        api.server.delay = 0.001
        async with running(api, building(profile="legacy")) as run:
            await asyncio.sleep(50)
            assert len(pods(api)) == 4
            await asyncio.sleep(20)
            assert len(pods(api)) == 2
            await asyncio.sleep(5)
            assert events(api) == ["Pod EvictedByVPA"] * 2  # the VPA itself got none
            assert run.metric("vpa_updater_evicted_pods_total") == 2
            assert (
                api.server.requested_paths("GET").count(f"/apis/coordination.k8s.io/v1/namespaces/kube-system/{LEASES}")
                == 0
            )

    with caplog.at_level("INFO", "kscale"):
        against(case)
    logged = [record.getMessage() for record in caplog.records]
    assert "Rate limit disabled" in logged
    assert 'skipping VPA object other because its mode is not "Recreate" or "Auto"' in logged
    assert sum(text.startswith("evicting pod web-") for text in logged) == 2


@pytest.mark.parametrize(("age", "evicted"), [(11 * 60 + 58, 0), (12 * 60, 1), (13 * 60, 1), (25 * 60, 1)])
def test_the_updater_of_2020_leaves_pods_inside_the_bounds_alone_for_twelve_hours(age: int, evicted: int) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=2)
        inside = {"target": {"cpu": "1"}, "lowerBound": {"cpu": "1m"}, "upperBound": {"cpu": "9"}}
        recommended = {"containerRecommendations": [{"containerName": "c", **inside}]}
        api.server.put(
            VPAS, autoscaler("web", status={"recommendation": recommended}, updatePolicy={"updateMode": "Auto"})
        )
        for name in pods(api):
            pod = api.server.get("pods", name, NAMESPACE)
            pod["status"]["startTime"] = to_text(api.clock.now() - age * 60 * 10**9)
            api.server.put("pods", pod)
        async with running(api, building(profile="legacy")):
            await asyncio.sleep(70)
            assert 2 - len(pods(api)) == evicted

    against(case)


@pytest.mark.parametrize(
    ("profile", "few", "none"),
    [
        ("legacy", "too few replicas for ReplicaSet shop/web. Found 1 live pods", "no VPA objects to process"),
        ("current", "Too few replicas: ReplicaSet shop/web has 1 live pods", "No VPA objects to process"),
    ],
)
def test_updater_logs_why_nothing_is_done(profile: str, few: str, none: str, caplog: pytest.LogCaptureFixture) -> None:
    async def case(api: FakeApi) -> None:
        cluster(api, pods=1)
        api.server.put(VPAS, far())
        lives(api)
        async with running(api, building(profile=profile)):
            for _ in range(4):
                await asyncio.sleep(20)
                lives(api)
            assert len(pods(api)) == 1
            assert few in [record.getMessage() for record in caplog.records]
            assert none not in [record.getMessage() for record in caplog.records]
            api.server.put(VPAS, far("Off"))
            for _ in range(4):
                await asyncio.sleep(20)
                lives(api)
            assert none in [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    with caplog.at_level("INFO", "kscale"):
        against(case)
