"""Jobs whose pods go before their work is done, and jobs whose time is over."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kscale.effects import SECOND, Evict
from kscale.objects.api.apps import Job
from kscale.objects.conditions import find
from kscale.objects.decode import from_dict
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution
from kscale.world.simulated.world import SimulatedWorld, WorldOptions
from unit.world.simulated_cases import done, pod_template, run, workload, world_of


def world(work: int = 3600, **spec: Any) -> SimulatedWorld:
    item = workload("Job", "batch", None, spec={"template": pod_template("batch", cpu="500m"), **spec})
    times = PodTimes(work=DurationDistribution.fixed(work * SECOND))
    return world_of(from_dict(item, Job), options=WorldOptions(pods=times))


def job(of: SimulatedWorld) -> Job:
    stored_job: Job = of.api.get("Job", "shop", "batch")
    return stored_job


def lose(of: SimulatedWorld) -> None:
    """Its first pod is evicted."""
    pod = next(iter(of.api.get_all("Pod").values()))
    done(of, Evict(namespace="shop", name=pod.name))


def test_evicted_pod_counts_as_failure_with_growing_backoff() -> None:
    of = world()
    run(of, 5)
    for failed, wait in enumerate((10, 20, 40, 80, 160, 320), 1):
        lose(of)
        run(of, wait - 1)
        assert (job(of).status.failed, list(of.api.get_all("Pod"))) == (failed, [])
        run(of, 4)
        assert len(of.api.get_all("Pod")) == 1
        assert find(job(of).status.conditions, "Failed") is None
    lose(of)
    run(of, 700)
    failed = find(job(of).status.conditions, "Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == (
        "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    )  # fmt: skip
    assert (job(of).status.failed, job(of).status.active, list(of.api.get_all("Pod"))) == (7, 0, [])


def test_a_node_that_is_lost_fails_its_pods_and_ends_the_others() -> None:
    of = world(parallelism=2, completions=2, backoffLimit=0)
    run(of, 5)
    of.cloud.lose("pool-0")
    run(of, 20)
    assert (job(of).status.failed, job(of).status.completion_time, list(of.api.get_all("Pod"))) == (2, None, [])
    assert find(job(of).status.conditions, "Failed") is not None


def test_success_resets_the_backoff() -> None:
    of = world(work=30, completions=3)
    run(of, 5)
    lose(of)
    run(of, 45)  # the second has succeeded
    assert (job(of).status.succeeded, job(of).status.failed) == (1, 1)
    lose(of)
    run(of, 9)
    assert len(of.api.get_all("Pod")) == 0
    run(of, 3)
    assert len(of.api.get_all("Pod")) == 1
    run(of, 120)
    assert find(job(of).status.conditions, "Complete") is not None


@pytest.mark.parametrize("parallelism", [1, 4])
def test_job_fails_after_its_deadline(parallelism: int) -> None:
    of = world(parallelism=parallelism, activeDeadlineSeconds=100)
    run(of, 99)
    assert job(of).status.active == parallelism
    run(of, 3)
    failed = find(job(of).status.conditions, "Failed")
    assert failed is not None
    assert (failed.reason, failed.message) == ("DeadlineExceeded", "Job was active longer than specified deadline")
    status = job(of).status  # what had not ended has failed
    assert (status.active, status.ready, status.failed, list(of.api.get_all("Pod"))) == (0, 0, parallelism, [])


def test_changed_deadline_is_applied() -> None:
    of = world(activeDeadlineSeconds=100)
    run(of, 50)
    of.api.put(replace(job(of), spec=replace(job(of).spec, active_deadline_seconds=200)))
    run(of, 149)
    assert find(job(of).status.conditions, "Failed") is None
    run(of, 3)
    assert find(job(of).status.conditions, "Failed") is not None


def test_resumed_job_restarts_its_deadline() -> None:
    of = world(activeDeadlineSeconds=100)
    run(of, 50)
    for suspended in (True, False):
        of.api.put(replace(job(of), spec=replace(job(of).spec, suspend=suspended)))
        run(of, 30)
        condition = find(job(of).status.conditions, "Suspended")
        assert condition is not None
        reason = "JobSuspended" if suspended else "JobResumed"
        assert (condition.status, condition.reason) == (str(suspended), reason)
    assert (job(of).status.failed, job(of).status.start_time) == (0, condition.last_transition_time)
    run(of, 69)
    assert (job(of).status.active, find(job(of).status.conditions, "Failed")) == (1, None)
    run(of, 3)
    assert find(job(of).status.conditions, "Failed") is not None


def test_pods_that_a_job_gives_up_itself_have_not_failed() -> None:
    of = world(parallelism=4, completions=8)
    run(of, 5)
    of.api.put(replace(job(of), spec=replace(job(of).spec, parallelism=1)))
    run(of, 5)
    assert (job(of).status.failed, len(of.api.get_all("Pod"))) == (0, 1)
    of.api.put(replace(job(of), spec=replace(job(of).spec, suspend=True)))
    run(of, 5)
    assert (job(of).status.failed, len(of.api.get_all("Pod"))) == (0, 0)


def test_deleted_job_leaves_no_state() -> None:
    of = world(parallelism=2, activeDeadlineSeconds=9000)
    run(of, 5)
    lose(of)
    run(of, 1)
    of.api.remove(job(of))
    run(of, 60)
    (controller,) = (each for each in of.controllers if each.kind == "Job")
    assert list(of.api.get_all("Pod")) == []
    assert not any(getattr(controller, name) for name in ("_failures", "_dismissed", "_deadlines"))
