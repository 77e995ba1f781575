"""Provisioning requests: which count, what becomes of old ones, their pods, and the two classes."""

from __future__ import annotations

from typing import Any

import pytest

from builders import N0, Ran, at, container, node, pod, run_steps
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError, ErrorRecord
from kscale.ca.provisioning_requests import (
    BEST_EFFORT_ATOMIC_CLASS,
    CHECK_CAPACITY_CLASS,
    HintingSimulator,
    LoopRequests,
    MissingTemplatesError,
    RetryTimes,
    book_capacity_steps,
    build_request_pods,
    check_capacity_steps,
    filter_out_consumers,
    get_check_capacity_batch_steps,
    inject_next_request_steps,
    is_supported_request,
    provision_best_effort_atomic_steps,
    refresh_requests_steps,
    set_request_condition,
)
from kscale.ca.scale_up.orchestrator import OrchestratorResult
from kscale.ca.scale_up_status import ScaleUpStatus
from kscale.effects import SECOND, Delete, WriteStatus
from kscale.objects.api.cluster_autoscaler import PodSet, PodTemplateRef, ProvisioningRequest, ProvisioningRequestSpec
from kscale.objects.api.cluster_autoscaler import ProvisioningRequestStatus as Status
from kscale.objects.api.core import PodSpec, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import Groups
from kscale.snapshot.cluster import Cluster

MINUTE = 60 * SECOND
REFUSED = AutoscalerError(INTERNAL_ERROR, "conflict")
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
OLD_CONSUME = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"


def template(cpu_m: int = 500) -> PodTemplate:
    return PodTemplate(
        metadata=ObjectMeta(name="web", namespace="shop"),
        template=PodTemplateSpec(
            metadata=ObjectMeta(labels={"app": "web"}), spec=PodSpec(containers=[container(cpu_m, 1)])
        ),
    )


TEMPLATES = {"shop/web": template()}


def loop_requests(*requests: ProvisioningRequest) -> LoopRequests:
    return LoopRequests(requests, TEMPLATES)


def request(
    name: str = "r",
    *conditions: tuple[str, str, str],
    count: int = 2,
    of: str = CHECK_CAPACITY_CLASS,
    created: str | None = None,
    templates: tuple[str, ...] = ("web",),
    **parameters: str,
) -> ProvisioningRequest:
    """``conditions``: type, status, when."""
    return ProvisioningRequest(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(
            name=name, namespace="shop", uid=f"uid-{name}", generation=4, creation_timestamp=created or at(minutes=-1)
        ),
        spec=ProvisioningRequestSpec(
            pod_sets=[PodSet(pod_template_ref=PodTemplateRef(name=each), count=count) for each in templates],
            provisioning_class_name=of,
            parameters=parameters or None,
        ),
        status=Status(conditions=[Condition(type=t, status=s, last_transition_time=when) for t, s, when in conditions]),
    )


def written(ran: Ran) -> list[tuple[str, str, str, str]]:
    """Name, type, status and reason of the last condition of each status that was written."""
    result = []
    for action in ran.actions:
        assert isinstance(action, WriteStatus)
        item = action.object.status.conditions[-1]
        result.append((action.object.name, item.type, item.status, item.reason))
    return result


@pytest.mark.parametrize(
    ("instance", "name", "parameter", "want"),
    [
        ("", CHECK_CAPACITY_CLASS, None, True),
        ("", BEST_EFFORT_ATOMIC_CLASS, None, True),
        ("", "other", None, False),
        ("", CHECK_CAPACITY_CLASS, "a", False),
        ("a", CHECK_CAPACITY_CLASS, "a", True),
        ("a", CHECK_CAPACITY_CLASS, "b", False),
        ("a", CHECK_CAPACITY_CLASS, None, False),
        ("a", "a" + CHECK_CAPACITY_CLASS, None, True),
        ("a", "b" + CHECK_CAPACITY_CLASS, None, False),
        ("a", "a" + CHECK_CAPACITY_CLASS, "a", False),
        ("a", BEST_EFFORT_ATOMIC_CLASS, None, False),
    ],
)
def test_supported(instance: str, name: str, parameter: str | None, want: bool) -> None:
    request_ = request(of=name, **({} if parameter is None else {"processorInstance": parameter}))
    assert is_supported_request(request_, instance) is want


def test_a_condition_always_has_a_time_of_its_own() -> None:
    request_ = request("r", ("Provisioned", "False", at(minutes=-9)), ("Accepted", "True", at(minutes=-9)))
    result = set_request_condition(request_, "Provisioned", "CapacityIsNotFound", "later", N0, holds=False)
    assert [(each.type, each.last_transition_time) for each in result.status.conditions] == [
        ("Provisioned", at()),
        ("Accepted", at(minutes=-9)),
    ]
    assert result.status.conditions[0].observed_generation == 4
    assert request_.status.conditions[0].last_transition_time == at(minutes=-9)


def test_pods() -> None:
    pods = build_request_pods(request(count=2, templates=("web", "web")), TEMPLATES)
    assert [(each.key, each.metadata.uid) for each in pods] == [
        (f"shop/r-{i}-{j}", f"shop/r-{i}-{j}") for i in (0, 1) for j in (0, 1)
    ]
    first = pods[0]
    assert first.metadata.annotations == {
        CONSUME: "r",
        "autoscaling.x-k8s.io/provisioning-class-name": CHECK_CAPACITY_CLASS,
    }
    assert (first.metadata.labels, first.metadata.creation_timestamp) == ({"app": "web"}, at(minutes=-1))
    assert [(each.kind, each.uid, each.controller) for each in first.metadata.owner_references] == [
        ("ProvisioningRequest", "uid-r", True)
    ]
    assert first.spec.scheduler_name == "default-scheduler"


def test_missing_templates() -> None:
    text = "missing pod templates, 3 pod templates were referenced, 2 templates were missing: a,b"
    with pytest.raises(MissingTemplatesError, match=text):
        build_request_pods(request(templates=("a", "web", "b")), TEMPLATES)


WEEK = 7 * 24 * 60


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        (request("r", ("Provisioned", "True", at(minutes=-10))), []),
        (
            request("r", ("Provisioned", "True", at(minutes=-10, seconds=-1))),
            [("r", "BookingExpired", "True", "CapacityReservationTimeExpired")],
        ),
        (request("r", ("Provisioned", "True", at(hours=-1)), ("BookingExpired", "True", at())), []),
        (request("r", ("Provisioned", "True", at(hours=-1)), ("Failed", "True", at())), []),
        (request(created=at(minutes=-WEEK)), []),
        (request(created=at(minutes=-WEEK, seconds=-1)), [("r", "Failed", "True", "Expired")]),
        (
            request("r", ("Provisioned", "False", at()), created=at(minutes=-WEEK, seconds=-1)),
            [("r", "Failed", "True", "Expired")],
        ),
        (request(created=at(minutes=-WEEK, seconds=-1), of="other"), []),
    ],
)
def test_upkeep(request_: ProvisioningRequest, want: list[Any]) -> None:
    assert written(run_steps(refresh_requests_steps(loop_requests(request_), now=N0))) == want


def test_upkeep_writes_twenty_conditions_at_most() -> None:
    booked = [request(f"b{i}", ("Provisioned", "True", at(hours=-1))) for i in range(15)]
    old = [request(f"o{i}", created=at(minutes=-2 * WEEK)) for i in range(15)]
    assert len(written(run_steps(refresh_requests_steps(loop_requests(*booked, *old), now=N0)))) == 20
    ran = run_steps(refresh_requests_steps(loop_requests(*old, *booked), now=N0))
    assert len(ran.value.expired) == 15, "those whose booking is over are looked at although others were before"
    assert len(ran.value.failed) == 15


@pytest.mark.parametrize("of", [CHECK_CAPACITY_CLASS, "other"])
@pytest.mark.parametrize("type_", ["Provisioned", "Failed"])
@pytest.mark.parametrize("status", ["True", "False"])
def test_old_requests_are_deleted_regardless_of_conditions(of: str, type_: str, status: str) -> None:
    ended = [("BookingExpired", "True", at(minutes=-WEEK))]
    requests_ = [
        request("old", (type_, status, at(minutes=-WEEK, seconds=-1)), *ended, of=of),
        request("new", (type_, status, at(minutes=-WEEK)), *ended, of=of),
    ]
    requests = loop_requests(*requests_)
    ran = run_steps(refresh_requests_steps(requests, now=N0))
    assert ran.actions == [
        Delete(
            kind="ProvisioningRequest",
            api_version="autoscaling.x-k8s.io/v1",
            namespace="shop",
            name="old",
            uid="uid-old",
        )
    ]
    assert ran.value.deleted == ["shop/old"]
    assert [each.name for each in requests] == ["new"]


def test_upkeep_goes_on_after_a_refusal() -> None:
    requests_ = [request(name, ("Provisioned", "True", at(hours=-1))) for name in ("a", "b")]
    requests = loop_requests(*requests_)
    ran = run_steps(refresh_requests_steps(requests, now=N0), REFUSED)
    assert ran.value.expired == ["shop/b"]
    assert all(each.status.conditions[-1].type == "BookingExpired" for each in requests), "what upstream holds changes"
    assert ran.value.warnings == ["failed to add BookingExpired condition to ProvReq shop/a, err: conflict"]


def test_consumers() -> None:
    plain, new, old = pod("p"), pod("n", annotations={CONSUME: "r"}), pod("o", annotations={OLD_CONSUME: "q"})
    result = filter_out_consumers([plain, new, old])
    assert result.pods == [plain]
    assert [(event.type, event.reason, event.message) for event in result.events] == [
        (
            "Normal",
            "",
            f"Unschedulable pod didn't trigger scale-up, because it's consuming ProvisioningRequest default/{name}",
        )
        for name in ("r", "q")
    ]
    assert len(filter_out_consumers([new] * 60).events) == 50


def inject(*requests: ProvisioningRequest, retries: RetryTimes | None = None, answers: Any = (), **more: Any) -> Ran:
    return run_steps(inject_next_request_steps(loop_requests(*requests), retries or {}, now=N0, **more), *answers)


def test_the_next_request() -> None:
    ran = inject(
        request("other", of="other"),
        request("failed", ("Failed", "True", at())),
        request("done", ("Provisioned", "True", at())),
        request("waits", ("Provisioned", "False", at(seconds=-60))),
        request("next"),
        request("later"),
    )
    assert written(ran) == [("next", "Accepted", "True", "Accepted")]
    ((result, pods),) = ran.value.requests
    assert (result.name, [each.name for each in pods]) == ("next", ["next-0-0", "next-0-1"])
    assert ran.value.processed == N0


def test_unacceptable_request_lets_the_next_one_proceed() -> None:
    ran = inject(request("bad", templates=("x",)), request("a"), request("b"), answers=[None, REFUSED])
    assert written(ran) == [
        ("bad", "Failed", "True", "FailedToCreatePods"),
        ("a", "Accepted", "True", "Accepted"),
        ("b", "Accepted", "True", "Accepted"),
    ]
    assert [result.name for result, _ in ran.value.requests] == ["b"]
    assert ran.value.warnings == ["failed add Accepted condition to ProvReq shop/a, err: conflict"]


def test_retries_wait_longer_each_time() -> None:
    retries: RetryTimes = {}
    waits = []
    for _ in range(6):
        wait = retries.get("uid-r", MINUTE)
        waits.append(wait // MINUTE)
        just = at(seconds=-wait // SECOND)
        assert inject(request("r", ("Provisioned", "False", just)), retries=retries).value.requests == []
        due = inject(request("r", ("Provisioned", "False", at(seconds=-wait // SECOND - 1))), retries=retries).value
        assert len(due.requests) == 1
        retries = due.retries
    assert waits == [1, 2, 4, 8, 10, 10]
    later = inject(request("r", ("Provisioned", "True", at())), retries=retries).value
    assert later.retries == {}


def test_a_batch_is_accepted_later() -> None:
    assert inject(request("r"), batch=True).actions == []
    assert inject(request("r"), batch=True).value.processed == N0
    assert written(inject(request("r", of=BEST_EFFORT_ATOMIC_CLASS), batch=True)) == [
        ("r", "Accepted", "True", "Accepted")
    ]


def test_a_batch() -> None:
    """A request that was injected a moment ago waits for longer, and is not in the batch."""
    requests = loop_requests(
        request("again", ("Provisioned", "False", at(seconds=-61))),
        request("atomic", of=BEST_EFFORT_ATOMIC_CLASS),
        request("bad", templates=("x",)),
        request("a"),
        request("b"),
        request("c"),
    )
    injected = run_steps(inject_next_request_steps(requests, {}, now=N0, batch=True)).value
    assert [result.name for result, _ in injected.requests] == ["again"]
    ran = run_steps(get_check_capacity_batch_steps(requests, injected.retries, max_requests=2, now=N0))
    assert [result.name for result, _ in ran.value.requests] == ["a", "b"]
    assert written(ran) == [("bad", "Failed", "True", "FailedToCreatePods")]


PROVIDED = ("Provisioned", "True", at())


@pytest.mark.parametrize(
    ("request_", "placed", "pods", "want"),
    [
        (request("r", PROVIDED), 0, 2, []),
        (request("r", PROVIDED), 1, 2, []),
        (request("r", PROVIDED), 2, 0, [("r", "BookingExpired", "True", "CapacityBookingConsumed")]),
        (request("r", PROVIDED, templates=("x",)), 0, 0, [("r", "Failed", "True", "FailedToBookCapacity")]),
        (request("r", PROVIDED, ("Failed", "True", at())), 0, 0, []),
        (request("r", PROVIDED, ("BookingExpired", "True", at())), 0, 0, []),
        (request("r", ("Provisioned", "False", at())), 0, 0, []),
        (request("r"), 0, 0, []),
        (request("r", PROVIDED, of="other"), 0, 0, []),
    ],
)
def test_booking(request_: ProvisioningRequest, placed: int, pods: int, want: list[Any]) -> None:
    there = [pod(f"p{i}", namespace="shop", annotations={CONSUME: "r"}) for i in range(placed)]
    elsewhere = [pod(f"q{i}", namespace="other", annotations={CONSUME: "r"}) for i in range(5)]
    ran = run_steps(book_capacity_steps(loop_requests(request_), [*there, *elsewhere], now=N0))
    assert len(ran.value.pods) == pods
    assert written(ran) == want


def snapshot() -> Any:
    """Room for three pods of the template."""
    return Cluster([node("n", 1500, 1 << 30, ready=True)]).snapshot()


def check(*requests: ProvisioningRequest, answers: Any = ()) -> Ran:
    with_pods = [(each, build_request_pods(each, TEMPLATES)) for each in requests]
    steps = check_capacity_steps(snapshot(), with_pods, loop_requests(*requests), HintingSimulator(), now=N0)
    return run_steps(steps, *answers)


def test_capacity_is_reserved_for_the_first_fitting_request() -> None:
    ran = check(request("huge", count=4), request("a", count=2), request("b", count=2), request("c", count=1))
    assert written(ran) == [
        ("huge", "Provisioned", "False", "CapacityIsNotFound"),
        ("a", "Provisioned", "True", "CapacityIsFound"),
        ("b", "Provisioned", "False", "CapacityIsNotFound"),
        ("c", "Provisioned", "True", "CapacityIsFound"),
    ]
    assert ran.value.result == "ScaleUpSuccessful"
    assert all(action.object.status.conditions[0].type == "Accepted" for action in ran.actions)
    assert ran.value.snapshot.pods == ("shop/a-0-0", "shop/a-0-1", "shop/c-0-0")


@pytest.mark.parametrize(
    ("parameter", "want", "warnings"),
    [
        ("true", ("r", "Failed", "True", "CapacityIsNotFound"), 0),
        ("false", ("r", "Provisioned", "False", "CapacityIsNotFound"), 0),
        ("no", ("r", "Provisioned", "False", "CapacityIsNotFound"), 1),
    ],
)
def test_no_retry(parameter: str, want: tuple[str, ...], warnings: int) -> None:
    ran = check(request("r", count=9, noRetry=parameter))
    assert (written(ran), ran.value.result) == ([want], "ScaleUpNoOptionsAvailable")
    assert len(ran.value.warnings) == warnings


def test_the_best_result_of_a_batch() -> None:
    assert check().value.result == "ScaleUpNotTried"
    refused = check(request("r", count=9), answers=[REFUSED]).value
    assert refused.result == "ScaleUpError"
    assert refused.errors == ["error during ScaleUp: failed to update ProvReq shop/r, err: conflict"]
    assert check(request("r", count=1), answers=[REFUSED]).value.result == "ScaleUpSuccessful"
    several = check(request("b", count=1), request("a", count=1), answers=[REFUSED, REFUSED]).value
    texts = [f"error during ScaleUp: failed to update ProvReq shop/{name}, err: conflict" for name in "ab"]
    assert several.error.message == f'{texts[0]} ...and other concurrent errors: ["{texts[1]}"]'


@pytest.mark.parametrize(("seconds", "want"), [(1, ["a", "b"]), (2, ["a"])])
def test_a_batch_has_a_time_of_its_own(seconds: int, want: list[str]) -> None:
    requests = [request(name, count=1) for name in ("a", "b")]
    with_pods = [(each, build_request_pods(each, TEMPLATES)) for each in requests]
    steps = check_capacity_steps(
        snapshot(), with_pods, loop_requests(*requests), HintingSimulator(), now=N0 - seconds * SECOND, timebox=SECOND
    )
    assert [name for name, *_ in written(run_steps(steps))] == want


def done(result: str) -> OrchestratorResult:
    """What the orchestrator gives, as far as anybody looks."""
    error = ErrorRecord(type="cloudProviderError", message="no") if result == "ScaleUpError" else None
    status = ScaleUpStatus(result=result, error=error)
    return OrchestratorResult.without_options(status, ClusterStateRegistry(), Groups([]), {}, {})


@pytest.mark.parametrize(
    ("count", "result", "want"),
    [
        (3, None, ("r", "Provisioned", "True", "CapacityIsFound")),
        (4, "ScaleUpSuccessful", ("r", "Provisioned", "True", "CapacityIsProvisioned")),
        (5, "ScaleUpNoOptionsAvailable", ("r", "Provisioned", "False", "CapacityIsNotFound")),
        (5, "ScaleUpError", ("r", "Provisioned", "False", "CapacityIsNotFound")),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_best_effort_atomic(count: int, result: str | None, want: tuple[str, ...], refused: bool) -> None:
    request_ = request("r", count=count, of=BEST_EFFORT_ATOMIC_CLASS)
    scale_up_calls = []

    def scale_up(placed: Any, unplaced: Any) -> Any:
        scale_up_calls.append((placed.placed_count, len(unplaced)))
        yield from ()
        assert result is not None
        return done(result)

    steps = provision_best_effort_atomic_steps(
        snapshot(),
        request_,
        build_request_pods(request_, TEMPLATES),
        loop_requests(request_),
        HintingSimulator(),
        scale_up,
        now=N0,
    )
    ran = run_steps(steps, *([REFUSED] if refused else []))
    assert written(ran) == [want]
    assert ran.actions[0].object.status.conditions[-1].observed_generation is None, "an apply leaves it out"
    assert scale_up_calls == ([] if result is None else [(3, count - 3)])
    outcome = ran.value
    if refused and result is None:
        assert outcome.status.result == "ScaleUpError"
        assert outcome.status.error.message == "capacity available, but failed to admit workload: conflict"
    else:
        assert outcome.status.result == (result or "ScaleUpNotNeeded")
        error = outcome.status.error
        assert (error and error.message) == ("error during ScaleUp: no" if result == "ScaleUpError" else None)
    lost = refused and result == "ScaleUpSuccessful"
    text = "scale up requested, but failed to admit workload: conflict"
    assert (outcome.failure and outcome.failure.message) == (text if lost else None)
