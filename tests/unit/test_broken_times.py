"""Objects made in Python, which nobody has validated: a time that is none is named by object and field."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

import kscale
from builders import N0, node, pod
from kscale.ca.nodes import get_readiness
from kscale.ca.provisioning_requests.processors import refresh_requests_steps
from kscale.ca.provisioning_requests.requests import LoopRequests
from kscale.capacity.groups import example_node
from kscale.drivers.cluster_autoscaler import is_recent_unschedulable
from kscale.errors import InputError
from kscale.hpa.controller.replica_calculator import PodColumns
from kscale.objects.api.cluster_autoscaler import ProvisioningRequest, ProvisioningRequestStatus
from kscale.objects.api.core import NodeSpec, Pod, PodStatus, Taint
from kscale.objects.api.meta import Condition, ObjectMeta

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
    ],
)
def test_invalid_time_is_a_named_error(entry_point: Callable[[], object], name: str, field: str) -> None:
    with pytest.raises(InputError, match='"noon" is not an RFC 3339 time') as refused:
        entry_point()
    assert [(each.object, each.field) for each in refused.value.problems] == [(name, field)]
