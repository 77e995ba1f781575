"""Objects made in Python, which nobody has validated: a time that is none is named by object and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, node, pod
from kscale.ca.capacity_buffers.controller import reconcile_buffers_steps
from kscale.ca.nodes import get_readiness, is_long_terminating
from kscale.ca.pod_lists import are_all_pods_new, filter_out_young_pods
from kscale.ca.provisioning_requests.processors import refresh_requests_steps
from kscale.ca.provisioning_requests.requests import LoopRequests
from kscale.ca.static_autoscaler.skip_unchanged import collect_node_moments
from kscale.capacity.evictions import is_protected
from kscale.capacity.groups import example_node
from kscale.drivers.cluster_autoscaler import is_recent_unschedulable
from kscale.effects import Progress, run_dry
from kscale.errors import InputError
from kscale.hpa.batch.hpas import _read_condition_columns
from kscale.hpa.controller.metric_proposals import RESTMetricsClient
from kscale.hpa.controller.replica_calculator import MetricsError, PodColumns
from kscale.objects.api.autoscaling import CrossVersionObjectReference, HorizontalPodAutoscaler
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, ProvisioningRequest, ProvisioningRequestStatus
from kscale.objects.api.coordination import Lease, LeaseSpec
from kscale.objects.api.core import NodeSpec, Pod, PodStatus, Taint
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValueList, PodMetricsList
from kscale.objects.decode import from_dict
from kscale.scheduling.preemption import get_start_time
from kscale.snapshot.pods.record import PodRecord
from kscale.vpa.admission.status_lease import is_status_valid
from kscale.vpa.updater import assess_pod
from kscale.world.simulated.deployments import in_order_of_deletion
from unit.vpa.builders import recommended, vpa

NOON = "noon"
_HERE = node("n1", 1000, 1 << 30, ready=True, labels={"pool": "a"})


def _since(type_: str, *before: Condition, reason: str = "") -> list[Condition]:
    status = "False" if type_ == "PodScheduled" else "True"
    return [*before, Condition(type=type_, status=status, reason=reason, last_transition_time=NOON)]


_OTHER = Condition(type="Other", status="True")
_BROKEN = replace(_HERE, status=replace(_HERE.status, conditions=_since("Ready", _OTHER)))
_TAINTED = replace(
    _HERE,
    spec=NodeSpec(taints=[Taint(key="a"), Taint(key="node.kubernetes.io/not-ready", time_added=NOON)]),
)


def _pod(type_: str, reason: str = "") -> Pod:
    return replace(pod("p", 1, 1), status=PodStatus(phase="Pending", conditions=_since(type_, _OTHER, reason=reason)))


def _request() -> ProvisioningRequest:
    created = ProvisioningRequest(
        metadata=ObjectMeta(name="r", namespace="d", uid="u"),
        status=ProvisioningRequestStatus(conditions=_since("Provisioned", _OTHER)),
    )
    return replace(created, spec=replace(created.spec, provisioning_class_name="check-capacity.autoscaling.x-k8s.io"))


_SECOND = "status.conditions[1].lastTransitionTime"
_CREATED = "metadata.creationTimestamp"
_DELETED = "metadata.deletionTimestamp"
_ENDED = "status.containerStatuses[0].lastState.terminated"
_VPA = vpa(recommended("c", ("2", "200M"), ("2", "200M"), ("2", "200M")), targetRef=None)
_LEASE = Lease(metadata=ObjectMeta(name="l", namespace="d"), spec=LeaseSpec(renew_time=NOON))
_BUFFER = CapacityBuffer(metadata=ObjectMeta(name="b", namespace="d", creation_timestamp=NOON))


def _dated(**times: str) -> Pod:
    return pod("p", 1, 1, **times)


def _started() -> Pod:
    """Return a pod that an annotation protects from disruption after its start."""
    one = pod("p", 1, 1, annotations={"karpenter.sh/do-not-disrupt": "5m"})
    return replace(one, status=PodStatus(start_time=NOON))


def _killed() -> Pod:
    ended = {"reason": "OOMKilled", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": NOON}
    status = {"containerStatuses": [{"name": "c", "lastState": {"terminated": ended}}]}
    return replace(pod("p", 1, 1), status=from_dict(status, PodStatus))


def _hpa() -> HorizontalPodAutoscaler:
    conditions = [
        {"type": "AbleToScale", "status": "True"},
        {"type": "Other", "status": "True", "lastTransitionTime": NOON},
    ]
    body = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": "d"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "maxReplicas": 3},
        "status": {"conditions": conditions},
    }  # fmt: skip
    return from_dict(body, HorizontalPodAutoscaler)


@pytest.mark.parametrize(
    ("entry_point", "name", "field"),
    [
        (lambda: get_readiness(_BROKEN), "Node n1", _SECOND),
        (lambda: get_readiness(_TAINTED), "Node n1", "spec.taints[1].timeAdded"),
        (lambda: example_node([_BROKEN], N0), "Node n1", _SECOND),
        (lambda: PodColumns.from_pods([_pod("Ready")]), "Pod default/p", _SECOND),
        (lambda: kscale.Cluster([_pod("Ready")]), "Pod default/p", _SECOND),
        (
            lambda: is_recent_unschedulable(_pod("PodScheduled", "Unschedulable"), N0),
            "Pod default/p",
            _SECOND,
        ),
        (
            lambda: next(refresh_requests_steps(LoopRequests([_request()], {}), now=N0)),
            "ProvisioningRequest d/r",
            _SECOND,
        ),
        (lambda: _read_condition_columns([_hpa()]), "HorizontalPodAutoscaler d/h", _SECOND),
        (lambda: assess_pod(_killed(), _VPA, now=N0), "Pod default/p", f"{_ENDED}.finishedAt"),
        (lambda: assess_pod(_started(), _VPA, now=N0), "Pod default/p", "status.startTime"),
        (lambda: get_start_time(PodRecord(_started())), "Pod default/p", "status.startTime"),
        (
            lambda: is_long_terminating(_dated(deletion_timestamp=NOON), N0),
            "Pod default/p",
            "metadata.deletionTimestamp",
        ),
        (lambda: filter_out_young_pods([_dated(creation_timestamp=NOON)], N0), "Pod default/p", _CREATED),
        (lambda: are_all_pods_new([_dated(creation_timestamp=NOON)], N0), "Pod default/p", _CREATED),
        (lambda: collect_node_moments([_HERE, _TAINTED]), "Node n1", "spec.taints[1].timeAdded"),
        (lambda: collect_node_moments([_BROKEN]), "Node n1", _SECOND),
        (lambda: is_protected(_started(), N0), "Pod default/p", "status.startTime"),
        (lambda: is_status_valid(_LEASE, N0, 1), "Lease d/l", "spec.renewTime"),
        (lambda: next(reconcile_buffers_steps([_BUFFER], [], now=N0)), "CapacityBuffer d/b", _CREATED),
        (lambda: in_order_of_deletion([_dated(creation_timestamp=NOON)], N0), "Pod default/p", _CREATED),
    ],
)
def test_invalid_time_is_a_named_error(entry_point: Callable[[], object], name: str, field: str) -> None:
    with pytest.raises(InputError, match='"noon" is not an RFC 3339 time') as refused:
        entry_point()
    assert [(each.object, each.field) for each in refused.value.problems] == [(name, field)]


_QUANTITY = {"cpu": "1"}
_CONTAINERS = [{"name": "c", "usage": _QUANTITY}]
_USAGE = {"metadata": {"name": "p"}, "timestamp": NOON, "window": "1m", "containers": _CONTAINERS}
_VALUE = {"describedObject": {"kind": "Pod", "name": "p"}, "timestamp": NOON, "value": "1"}
_WINDOW = {"timestamp": None, "window": NOON}
_EXTERNAL = {"metricName": "m", "timestamp": NOON, "value": "1"}
_DESCRIBED = CrossVersionObjectReference(kind="Service", name="s")


@pytest.mark.parametrize(
    ("request_metric", "api", "item", "kind"),
    [
        (lambda it: it.get_resource_metric("cpu", "d", "", ""), "resource", _USAGE, PodMetricsList),
        (lambda it: it.get_resource_metric("cpu", "d", "", ""), "resource", {**_USAGE, **_WINDOW}, PodMetricsList),
        (lambda it: it.get_raw_metric("m", "d", "", ""), "custom", _VALUE, MetricValueList),
        (lambda it: it.get_object_metric("m", "d", _DESCRIBED, ""), "custom", _VALUE, MetricValueList),
        (lambda it: it.get_external_metric("m", "d", ""), "external", _EXTERNAL, ExternalMetricValueList),
    ],
)
def test_metric_with_an_invalid_time_is_unavailable(
    request_metric: Callable[[RESTMetricsClient], Any], api: str, item: dict[str, Any], kind: type[Any]
) -> None:
    """As in client-go, which cannot decode the response."""
    response = from_dict({"items": [item]}, kind)
    with pytest.raises(MetricsError, match=f"unable to fetch metrics from {api} metrics API: .*noon"):
        run_dry(request_metric(RESTMetricsClient(Progress(0))), now=0, respond=lambda _: response)
