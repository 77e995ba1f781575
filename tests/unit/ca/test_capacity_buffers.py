"""Capacity buffers: how many pods they are, what is written into them, and their pods in a scale-up."""

from __future__ import annotations

from typing import Any

import pytest

from builders import N0, Ran, at, container, run_steps
from kscale.ca.capacity_buffers import (
    CapacityBufferError,
    build_buffer_events,
    compute_buffer_replicas,
    inject_buffer_pods_steps,
    translate_buffer,
)
from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.errors import INTERNAL_ERROR, AutoscalerError
from kscale.ca.node_group_set import ScaleUpInfo
from kscale.ca.scale_up_status import ConsideredGroup, NoScaleUpInfo, ScaleUpStatus
from kscale.effects import SECOND, WriteStatus
from kscale.objects.api.cluster_autoscaler import (
    CapacityBuffer,
    CapacityBufferSpec,
    CapacityBufferStatus,
    LocalObjectRef,
)
from kscale.objects.api.core import PodSpec, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.quantity import Quantity

GIB = 1 << 30
ACTIVE = "buffer.x-k8s.io/active-capacity"


def template(cpu_m: int = 500, memory: int = GIB, name: str = "web", generation: int = 3) -> PodTemplate:
    return PodTemplate(
        metadata=ObjectMeta(name=name, namespace="shop", generation=generation),
        template=PodTemplateSpec(
            metadata=ObjectMeta(labels={"app": "web"}), spec=PodSpec(containers=[container(cpu_m, memory)])
        ),
    )


def limits(**amounts: str) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in amounts.items()}


@pytest.mark.parametrize(
    ("spec", "scale", "want"),
    [
        ({"replicas": 5}, None, 5),
        ({"replicas": -5}, None, 0),
        ({"percentage": 30}, 5, 2),
        ({"percentage": 30}, 0, 0),
        ({"percentage": -30}, 5, 0),
        ({"replicas": 1, "percentage": 100}, 4, 4),
        ({"replicas": 9, "percentage": 100}, 4, 9),
        ({"replicas": 9, "percentage": 100}, None, 9),
        ({"limits": limits(cpu="2")}, None, 4),
        ({"limits": limits(cpu="2200m", memory="3Gi")}, None, 3),
        ({"limits": limits(cpu="499m")}, None, 0),
        ({"replicas": 2, "limits": limits(cpu="2")}, None, 2),
        ({"replicas": 8, "limits": limits(cpu="2")}, None, 4),
    ],
)
def test_replicas(spec: dict[str, Any], scale: int | None, want: int) -> None:
    assert compute_buffer_replicas(CapacityBufferSpec(**spec), template().template, scale) == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, "replicas, percentage and limits are not defined"),
        ({"percentage": 10}, "replicas, percentage and limits are not defined"),
        ({"limits": limits(gpu="1")}, "resources in configured limits not found in the pod template"),
        ({"replicas": 3, "limits": {}}, "resources in configured limits not found in the pod template"),
    ],
)
def test_buffer_without_size_is_an_error(spec: dict[str, Any], want: str) -> None:
    with pytest.raises(CapacityBufferError, match=want):
        compute_buffer_replicas(CapacityBufferSpec(**spec), template().template, None)


def buffer(name: str = "spare", *conditions: tuple[str, bool], **status: Any) -> CapacityBuffer:
    """One that the controller has been at, of three pods, unless said otherwise."""
    status_fields = {
        "pod_template_ref": LocalObjectRef(name="web"),
        "replicas": 3,
        "pod_template_generation": 3,
        "provisioning_strategy": ACTIVE,
        "conditions": [Condition(type=type_, status=str(holds)) for type_, holds in conditions],
        **status,
    }
    return CapacityBuffer(
        api_version="autoscaling.x-k8s.io/v1beta1",
        kind="CapacityBuffer",
        metadata=ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}"),
        status=CapacityBufferStatus(**status_fields),
    )


def test_translation() -> None:
    spec = CapacityBufferSpec(replicas=4, pod_template_ref=LocalObjectRef(name="web"), provisioning_strategy="")
    original = CapacityBuffer(metadata=ObjectMeta(name="spare", namespace="shop"), spec=spec)
    done = translate_buffer(original, template(), now=N0)
    assert done.status == CapacityBufferStatus(
        pod_template_ref=LocalObjectRef(name="web"),
        replicas=4,
        pod_template_generation=3,
        provisioning_strategy=ACTIVE,
        conditions=[
            Condition(
                type="ReadyForProvisioning",
                status="True",
                reason="AttributesSetSuccessfully",
                message="ready",
                last_transition_time=at(),
            )
        ],
    )
    assert original.status == CapacityBufferStatus(), "the given object does not change"
    assert translate_buffer(done, template(), now=N0 + 60 * SECOND) is done, "nothing new, nothing to write"
    without_template = translate_buffer(done, None, now=N0 + 60 * SECOND)
    (condition,) = without_template.status.conditions
    assert (condition.status, condition.reason, condition.last_transition_time) == ("False", "error", at(minutes=1))
    assert condition.message == (
        "Buffer not ready for provisioning: capacity buffer client can't get pod template: "
        'podtemplates "web" not found'
    )
    assert without_template.status.replicas is None


def inject(*buffers: CapacityBuffer, answers: Any = ()) -> Ran:
    return run_steps(inject_buffer_pods_steps(buffers, {"shop/web": template()}, now=N0), *answers)


READY = ("ReadyForProvisioning", True)
PROVIDED = ("Provisioning", True)


def test_pods_of_a_buffer() -> None:
    ran = inject(buffer("spare", READY))
    pods = ran.value.pods
    assert [(pod.key, pod.metadata.uid) for pod in pods] == [
        (f"shop/capacity-buffer-spare-{i}", f"uid-spare-{i}") for i in (1, 2, 3)
    ]
    assert pods[0].metadata.labels == {"app": "web"}
    assert pods[0].metadata.annotations == {
        "podType": "capacityBufferFakePod",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
    }
    (owner,) = pods[0].metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("CapacityBuffer", "uid-spare", True)
    assert pods[0].metadata.creation_timestamp is None
    assert {uid: result.name for uid, result in ran.value.buffers.items()} == dict.fromkeys(
        (pod.metadata.uid for pod in pods), "spare"
    )
    (write,) = ran.actions
    assert isinstance(write, WriteStatus)
    assert [(each.type, each.status, each.reason) for each in write.object.status.conditions] == [
        ("ReadyForProvisioning", "True", ""),
        ("Provisioning", "True", "FakePodsInjected"),
    ]


@pytest.mark.parametrize(
    ("capacity_buffer", "pods", "reason"),
    [
        (buffer("b"), 0, None),
        (buffer("b", READY, provisioning_strategy="other"), 0, None),
        (buffer("b", READY, provisioning_strategy=None), 0, None),
        (buffer("b", READY, pod_template_generation=2), 0, None),
        (buffer("b", READY, pod_template_generation=None), 3, "FakePodsInjected"),
        (buffer("b", PROVIDED), 3, "FakePodsInjected"),
        (buffer("b", PROVIDED, ("ReadyForProvisioning", False)), 0, "NotReadyForProvisioning"),
        (buffer("b", READY, replicas=None), 0, "NotReadyForProvisioning"),
        (buffer("b", READY, replicas=0), 0, "BufferIsEmpty"),
        (buffer("b", READY, pod_template_ref=LocalObjectRef(name="x")), 0, "FailedToGetPodTemplate"),
    ],
)
def test_which_buffers_count(capacity_buffer: CapacityBuffer, pods: int, reason: str | None) -> None:
    ran = inject(capacity_buffer)
    assert len(ran.value.pods) == pods
    written = [
        each.reason for write in ran.actions for each in write.object.status.conditions if each.type == "Provisioning"
    ]
    assert written == ([] if reason is None else [reason])


def test_a_failure_that_is_known_is_not_written_again() -> None:
    first = inject(buffer("b", READY, replicas=0)).actions[0].object
    assert inject(first).actions == []


def test_a_status_that_cannot_be_written_stops_nothing() -> None:
    ran = inject(buffer("a", READY), buffer("b", READY), answers=[AutoscalerError(INTERNAL_ERROR, "conflict")])
    assert len(ran.value.pods) == 6
    assert ran.value.warnings == ["Failed to update buffer status for buffer a, error: conflict"]


def test_events() -> None:
    spare, other = buffer("spare"), buffer("other")
    buffers = {"shop/s-1": spare, "shop/s-2": spare, "shop/o-1": other}
    rejected = {"g": ["Insufficient cpu"], "made": ["Insufficient cpu"]}
    status = ScaleUpStatus(
        result="ScaleUpNoOptionsAvailable",
        pods_await_evaluation=["shop/s-9", "shop/o-1"],
        pods_remain_unschedulable=[
            NoScaleUpInfo(pod=name, rejected_groups=rejected) for name in ("shop/s-1", "shop/real", "shop/s-2")
        ],
        considered_groups=[ConsideredGroup(id="g"), ConsideredGroup(id="made", exists=False)],
    )
    remaining = InjectedFakePods(buffers=buffers).without(status)
    assert [pod.pod for pod in remaining.pods_remain_unschedulable] == ["shop/real"]
    assert remaining.pods_await_evaluation == ["shop/s-9"]
    (event,) = build_buffer_events(status, buffers)
    assert (event.regarding.kind, event.regarding.name, event.reason) == (
        "CapacityBuffer",
        "spare",
        "NotTriggerScaleUp",
    )
    assert event.message == (
        "capacity buffer 2 fake pods didn't trigger scale-up: 1 Insufficient cpu,1 Insufficient cpu"
    )


def test_events_of_success() -> None:
    spare, other = buffer("spare"), buffer("other")
    buffers = {"shop/s-1": spare, "shop/o-1": other, "shop/s-2": spare}
    status = ScaleUpStatus(
        result="ScaleUpSuccessful",
        scale_ups=[ScaleUpInfo(group="g", current=1, new=3, max=9)],
        pods_triggered=["shop/s-1", "shop/real", "shop/o-1", "shop/s-2"],
        pods_remain_unschedulable=[NoScaleUpInfo(pod="shop/s-3")],
    )
    made_up = InjectedFakePods(buffers={**buffers, "shop/s-3": spare})
    assert made_up.without(status).pods_triggered == ["shop/real"]
    events = made_up.events(status, lambda key: f"uid of {key}")
    assert {event.regarding.uid for event in events if event.regarding.kind == "Pod"} == {"uid of shop/real"}
    assert [(event.regarding.name, event.reason, event.message) for event in events] == [
        ("spare", "TriggeredScaleUp", "capacity buffer 2 fake pods triggered scale-up: [{g 1->3 (max: 9)}]"),
        ("other", "TriggeredScaleUp", "capacity buffer 1 fake pods triggered scale-up: [{g 1->3 (max: 9)}]"),
        ("real", "TriggeredScaleUp", "pod triggered scale-up: [{g 1->3 (max: 9)}]"),
    ]
