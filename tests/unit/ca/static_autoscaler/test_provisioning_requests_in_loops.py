"""Provisioning requests in whole loops: in upstream's order, in turns with other pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from builders import N0, at, container, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale import ca
from kscale.ca.provisioning_requests import BEST_EFFORT_ATOMIC_CLASS, CHECK_CAPACITY_CLASS
from kscale.ca.scale_up_status import (
    SCALE_UP_ERROR,
    SCALE_UP_NO_OPTIONS_AVAILABLE,
    SCALE_UP_NOT_NEEDED,
    SCALE_UP_SUCCESSFUL,
)
from kscale.effects import Action, ApiError, Moment, WriteStatus
from kscale.objects.api.cluster_autoscaler import PodSet, PodTemplateRef, ProvisioningRequest, ProvisioningRequestSpec
from kscale.objects.api.core import Node, Pod, PodSpec, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.nodegroup import NodeGroup

MINUTE = span(minutes=1)
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
TEMPLATE = PodTemplate(
    metadata=ObjectMeta(name="web", namespace="shop"),
    template=PodTemplateSpec(spec=PodSpec(containers=[container(600, 100)])),
)


def machine(name: str) -> Node:
    return node(name, 1000, 1000, ready=True)


def request(name: str = "r", count: int = 1, of: str = CHECK_CAPACITY_CLASS, **parameters: str) -> ProvisioningRequest:
    return ProvisioningRequest(
        api_version="autoscaling.x-k8s.io/v1",
        kind="ProvisioningRequest",
        metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", creation_timestamp=at(minutes=-1)),
        spec=ProvisioningRequestSpec(
            pod_sets=[PodSet(pod_template_ref=PodTemplateRef(name="web"), count=count)],
            provisioning_class_name=of,
            parameters=parameters or None,
        ),
    )


def running(name: str, on: str, cpu: int = 600, **metadata: Any) -> Pod:
    created = pod(name, cpu, 100, owner_references=owner("ReplicaSet", "rs", "apps/v1"), **metadata)
    created.spec.node_name = on
    return created


def waiting(name: str, cpu: int = 600, **metadata: Any) -> Pod:
    created = pod(name, cpu, 100, owner_references=owner("ReplicaSet", "rs", "apps/v1"), **metadata)
    created.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    return created


def life(*requests: ProvisioningRequest, nodes: str = "n1", pods: list[Pod] | None = None, **flags: Any) -> Life:
    """A group of up to four machines for one pod each. The first is taken, unless said otherwise."""
    names = nodes.split()
    group = NodeGroup(id="g", min_size=0, max_size=4, nodes=names, template=template(machine("like")))
    cloud = Cloud([group], [machine(name) for name in names], [running("p", "n1")] if pods is None else pods)
    options = {
        "enable_provisioning_requests": True,
        "scale_down_unneeded_time": timedelta(minutes=1),
        "scale_down_delay_after_add": timedelta(minutes=2),
        "skip_nodes_with_custom_controller_pods": False,
        "max_node_provision_time": timedelta(hours=1),
    }
    case = Life(cloud, N0, **(options | flags))
    case.others = [TEMPLATE]
    cloud.objects = {each.key: each for each in requests}
    return case


def conditions(case: Life, name: str = "r") -> dict[str, tuple[str, str]]:
    """Condition -> status, reason."""
    request = case.cloud.objects[f"shop/{name}"]
    assert isinstance(request, ProvisioningRequest)
    return {each.type: (each.status, each.reason) for each in request.status.conditions}


def result(report: ca.LoopReport) -> str:
    assert report.scale_up is not None
    return report.scale_up.result


def refusing(reason: str) -> Any:
    """Refuses every status that ends with a condition of this reason."""

    def fate(action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        written = action.object if isinstance(action, WriteStatus) else None
        if isinstance(written, ProvisioningRequest) and written.status.conditions[-1].reason == reason:
            return ApiError("conflict"), 0, False
        return None, 0, True

    return fate


def test_capacity_that_is_there_is_booked_until_it_is_taken() -> None:
    case = life(request(), nodes="n1 n2")
    report = case.loop(N0)
    assert conditions(case) == {
        "Accepted": ("True", "Accepted"),
        "Provisioned": ("True", "CapacityIsFound"),
    }
    assert (result(report), case.called()) == (SCALE_UP_SUCCESSFUL, [])
    assert report.scale_up is not None
    assert (report.scale_up.placed, report.scale_up.unschedulable_count) == ({"shop/r-0-0": "n2"}, 0)
    assert report.scale_up.remain_unschedulable == []
    assert report.state.scale_down.last_scale_up == N0, "scale-down waits as after any scale-up"
    assert report.state.provisioning.last_processed == N0
    for minute in range(1, 6):
        report = case.loop(N0 + minute * MINUTE)
    assert "shop/r-0-0" in report.snapshot_after.pods, "booked: scale-down leaves the node alone"
    assert (result(report), case.called()) == (SCALE_UP_NOT_NEEDED, [])
    case.cloud.pods["shop/own"] = running("own", "n2", namespace="shop", annotations={CONSUME: "r"})
    case.loop(N0 + 6 * MINUTE)
    assert conditions(case)["BookingExpired"] == ("True", "CapacityBookingConsumed")


def test_a_booking_ends_after_ten_minutes() -> None:
    case = life(request(), nodes="n1 n2")
    case.loop(N0)
    report = case.loop(N0 + 10 * MINUTE)
    assert "BookingExpired" not in conditions(case)
    report = case.loop(N0 + 11 * MINUTE)
    assert conditions(case)["BookingExpired"] == ("True", "CapacityReservationTimeExpired")
    assert "shop/r-0-0" not in report.snapshot_after.pods
    for minute in (12, 13, 14):
        case.loop(N0 + minute * MINUTE)
    assert case.called() == [("down", "g", "n2")]


def test_capacity_that_is_not_there_is_looked_for_again() -> None:
    case = life(request())
    tried = []
    for minute in range(9):
        before = case.state.provisioning.last_processed
        report = case.loop(N0 + minute * MINUTE)
        if report.state.provisioning.last_processed != before:
            tried.append(minute)
            assert result(report) == SCALE_UP_NO_OPTIONS_AVAILABLE
    assert tried == [0, 2, 5], "after more than one minute, then two, then four"
    assert conditions(case)["Provisioned"] == ("False", "CapacityIsNotFound")
    assert (case.called(), report.state.scale_down.last_scale_up) == ([], None)


@pytest.mark.parametrize(("count", "grown"), [(3, [("up", "g", 3)]), (4, [])])
def test_all_nodes_or_none(count: int, grown: list[Any]) -> None:
    case = life(request(count=count, of=BEST_EFFORT_ATOMIC_CLASS))
    report = case.loop(N0)
    assert case.called() == grown
    assert result(report) == (SCALE_UP_SUCCESSFUL if grown else SCALE_UP_NO_OPTIONS_AVAILABLE)
    reason = ("True", "CapacityIsProvisioned") if grown else ("False", "CapacityIsNotFound")
    assert conditions(case)["Provisioned"] == reason
    assert report.scale_up is not None
    assert len(report.scale_up.remain_unschedulable) == (0 if grown else 1)


def test_requested_capacity_is_booked_on_upcoming_nodes() -> None:
    case = life(request(count=2, of=BEST_EFFORT_ATOMIC_CLASS))
    case.loop(N0)
    assert case.called() == [("up", "g", 2)]
    case.cloud.pods["default/other"] = waiting("other")
    case.loop(N0 + MINUTE)
    assert case.called() == [], "the pod fits on a node that is coming: pods that wait are looked at before bookings"
    case.cloud.pods["default/another"] = waiting("another")
    case.cloud.pods["default/third"] = waiting("third")
    case.loop(N0 + 2 * MINUTE)
    assert case.called() == [("up", "g", 1)]


def test_capacity_that_is_there_needs_no_nodes() -> None:
    case = life(request(of=BEST_EFFORT_ATOMIC_CLASS), nodes="n1 n2")
    report = case.loop(N0)
    assert (result(report), case.called()) == (SCALE_UP_NOT_NEEDED, [])
    assert conditions(case)["Provisioned"] == ("True", "CapacityIsFound")


def test_some_of_a_request_fit_already() -> None:
    case = life(request(count=3, of=BEST_EFFORT_ATOMIC_CLASS), nodes="n1 n2")
    report = case.loop(N0)
    assert case.called() == [("up", "g", 2)]
    assert report.scale_up is not None
    assert report.scale_up.placed == {"shop/r-0-0": "n2"}
    assert (report.scale_up.triggered, report.scale_up.remain_unschedulable) == (["shop/r-0-1", "shop/r-0-2"], [])
    assert report.scale_up.unschedulable_count == 0


def test_pods_that_consume_a_request_ask_for_no_nodes() -> None:
    case = life(pods=[running("p", "n1"), waiting("own", namespace="shop", annotations={CONSUME: "r"})])
    report = case.loop(N0)
    assert (result(report), case.called()) == (SCALE_UP_NOT_NEEDED, [])
    assert report.scale_up is not None
    assert (report.scale_up.lists.consuming, report.scale_up.lists.asked) == (1, 0)
    assert [event.message for event in case.cloud.events if event.regarding.name == "own"] == [
        "Unschedulable pod didn't trigger scale-up, because it's consuming ProvisioningRequest shop/r"
    ]


def test_without_the_flag_nothing_is_known_of_requests() -> None:
    own = waiting("own", namespace="shop", annotations={CONSUME: "r"})
    case = life(request(), pods=[running("p", "n1"), own], enable_provisioning_requests=False)
    case.loop(N0)
    assert (case.called(), conditions(case)) == ([("up", "g", 1)], {})


def test_requests_and_pods_take_turns() -> None:
    case = life(request("a", of=BEST_EFFORT_ATOMIC_CLASS), pods=[running("p", "n1"), waiting("q")])
    first = case.loop(N0)
    assert "Provisioned" not in conditions(case, "a")
    assert first.scale_up is not None
    assert (first.scale_up.triggered, first.scale_up.remain_unschedulable[0].pods) == (["default/q"], ["shop/a-0-0"])
    assert "take turns" in first.scale_up.remain_unschedulable[0].why
    assert first.state.provisioning.requests_next
    assert case.called() == [("up", "g", 1)]
    case.cloud.pods["default/r"] = waiting("r", 700)
    second = case.loop(N0 + MINUTE)
    assert conditions(case, "a")["Provisioned"] == ("True", "CapacityIsProvisioned")
    assert second.scale_up is not None
    assert second.scale_up.triggered == ["shop/a-0-0"]
    assert not second.state.provisioning.requests_next


def test_a_salvo_is_for_both() -> None:
    case = life(request("a", of=BEST_EFFORT_ATOMIC_CLASS), pods=[running("p", "n1"), waiting("q")], salvo_scale_up=True)
    report = case.loop(N0)
    assert case.called() == [("up", "g", 1), ("up", "g", 1)]
    assert report.scale_up is not None
    assert report.scale_up.triggered == ["default/q", "shop/a-0-0"]
    assert conditions(case, "a")["Provisioned"] == ("True", "CapacityIsProvisioned")


def test_a_request_opens_the_gate() -> None:
    """Whatever the number of nodes, and however new the request is."""
    new = request()
    new.metadata.creation_timestamp = at(seconds=-1)
    case = life(new, nodes="n1 n2", max_nodes_total=1)
    assert result(case.loop(N0)) == SCALE_UP_SUCCESSFUL


def test_a_batch() -> None:
    requests = [request(name) for name in "abcd"]
    case = life(
        *requests,
        nodes="n1 n2 n3",
        check_capacity_batch_processing=True,
        check_capacity_provisioning_request_max_batch_size=3,
    )
    assert result(case.loop(N0)) == SCALE_UP_SUCCESSFUL
    conditions_by_name = {name: conditions(case, name) for name in "abcd"}
    assert [conditions_by_name[name].get("Provisioned") for name in "abcd"] == [
        ("True", "CapacityIsFound"),
        ("True", "CapacityIsFound"),
        ("False", "CapacityIsNotFound"),
        None,
    ]
    assert conditions_by_name["c"]["Accepted"] == ("True", "Accepted")
    assert conditions_by_name["d"] == {}
    assert case.state.provisioning.last_processed == N0


def test_a_request_that_cannot_be_accepted_gives_way() -> None:
    case = life(request("a"), request("b"), nodes="n1 n2")
    case.cloud.fate = lambda action, now: (
        (ApiError("conflict"), 0, False)
        if isinstance(action, WriteStatus) and action.object.metadata.name == "a"
        else (None, 0, True)
    )
    report = case.loop(N0)
    assert (conditions(case, "a"), conditions(case, "b")["Provisioned"]) == ({}, ("True", "CapacityIsFound"))
    assert report.warnings == ["failed add Accepted condition to ProvReq shop/a, err: conflict"]


def test_failed_status_write_does_not_count_as_a_scale_up() -> None:
    """The nodes are asked for; the loop does not count as one that scaled up."""
    case = life(request(of=BEST_EFFORT_ATOMIC_CLASS))
    case.cloud.fate = refusing("CapacityIsProvisioned")
    report = case.loop(N0)
    assert case.called() == [("up", "g", 1)]
    assert report.state.scale_down.last_scale_up is None
    assert report.state.cluster.scale_up_requests.keys() == {"g"}


def test_failed_status_write_is_an_error_unless_another_succeeded() -> None:
    case = life(request())
    case.cloud.fate = refusing("CapacityIsNotFound")
    report = case.loop(N0)
    assert result(report) == SCALE_UP_ERROR
    assert report.scale_up is not None
    assert report.scale_up.error is not None
    assert report.scale_up.error.message == "error during ScaleUp: failed to update ProvReq shop/r, err: conflict"
    assert report.error is None, "as with any scale-up that failed"


def test_requests_that_are_over_go() -> None:
    old = request("old")
    old.metadata.creation_timestamp = at(days=-8)
    ended = request("ended")
    ended.status.conditions = [Condition(type="Failed", status="True", last_transition_time=at(days=-8))]
    case = life(old, ended)
    case.loop(N0)
    assert conditions(case, "old") == {"Failed": ("True", "Expired")}
    assert list(case.cloud.objects) == ["shop/old"]


def test_other_instances_and_classes_are_left_alone() -> None:
    case = life(
        request("mine", processorInstance="me"),
        request("theirs", processorInstance="they"),
        request("atomic", of=BEST_EFFORT_ATOMIC_CLASS),
        nodes="n1 n2 n3",
        check_capacity_processor_instance="me",
    )
    for minute in range(3):
        case.loop(N0 + minute * MINUTE)
    assert conditions(case, "mine")["Provisioned"] == ("True", "CapacityIsFound")
    assert (conditions(case, "theirs"), conditions(case, "atomic")) == ({}, {})


def test_hints_live_as_long_as_their_request() -> None:
    case = life(request(), nodes="n1 n2")
    case.loop(N0)
    assert case.loop(N0 + MINUTE).state.provisioning.booking_hints == {"shop/r-0-0": "n2"}
    assert case.state.provisioning.hints == {"shop/r-0-0": "n2"}
    case.cloud.objects.clear()
    later = case.loop(N0 + 2 * MINUTE).state.provisioning
    assert (later.hints, later.booking_hints) == ({}, {})
