"""The one table of what is read of a pod, against what the reading of structs looks into, and the protobuf messages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields

from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ApiStruct
from kscale.objects.decode import from_dict
from kscale.objects.protobuf import messages
from kscale.objects.validation import check
from kscale.snapshot.classes.pod_shapes import shape_key
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.text.pod_reader import READ_FIELDS

AMOUNTS = {"cpu": "1500u", "memory": "1Gi"}
CONTAINER = {
    "name": "a", "image": "i", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}, "env": [{"name": "A"}],
    "ports": [{"hostPort": 80, "containerPort": 80}], "restartPolicy": "Always",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}],
    "volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}],
}  # fmt: skip
POD_LEVEL_RESOURCES = {"resources": {"requests": AMOUNTS}}
STATUS = {"name": "a", "ready": True, "allocatedResources": AMOUNTS, "resources": {"requests": AMOUNTS}}
VOLUMES = [
    {"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "emptyDir": {"medium": "Memory"}},
    {"name": "x", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "y", "configMap": {"name": "c"}},
]  # fmt: skip
TIME = "2026-01-01T00:00:00Z"
PODS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "creationTimestamp": TIME, "labels": {"a": "b"}, **deletion,
            "resourceVersion": "7", "annotations": {"a": "b"}, "generation": 1, "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}],
        },
        "spec": {
            "containers": [CONTAINER], "initContainers": [CONTAINER], "ephemeralContainers": [CONTAINER],
            "volumes": VOLUMES, "nodeName": node, "restartPolicy": "Always", "nodeSelector": {"a": "b"},
            "hostNetwork": True, "hostUsers": False, "tolerations": [{"key": "a"}], "priority": 5, "overhead": AMOUNTS,
            "preemptionPolicy": "Never", "terminationGracePeriodSeconds": 7, **resources,
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
            "schedulingGates": gates, "resourceClaims": [{"name": "c", "resourceClaimName": "d"}], "hostname": "h",
            "affinity": {"podAffinity": {}}, "schedulerName": "default-scheduler", "serviceAccountName": "s",
        },
        "status": {
            "phase": phase, "nominatedNodeName": nominated, "startTime": TIME, "message": "m", **granted,
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": TIME, "message": "m"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
            ],
            "containerStatuses": [STATUS], "initContainerStatuses": [STATUS],
            "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}], "podIP": "1.2.3.4",
        },
    }
    for node, nominated, phase, gates, deletion, resources, granted in (
        ("n1", "", "Running", [], {}, {}, {}),
        ("n1", "", "Running", [], {}, POD_LEVEL_RESOURCES, {**POD_LEVEL_RESOURCES, "allocatedResources": AMOUNTS}),
        ("n1", "", "Succeeded", [], {"deletionTimestamp": TIME}, {}, {}),
        ("", "n2", "Pending", [], {}, {}, {}),
        ("", "", "Pending", [], {}, {}, {}),
        ("", "", "Pending", [{"name": "g"}], {}, {}, {}),
    )
]  # fmt: skip


class Spy:
    """A field that notes that it was read."""

    def __init__(self, name: str, own: Any, read_fields: set[tuple[type, str]]) -> None:
        self._name, self._own, self._read_fields = name, own, read_fields

    def __get__(self, struct: Any, kind: type) -> Any:
        if struct is None:
            return self
        self._read_fields.add((type(struct), self._name))
        return self._own.__get__(struct, kind)

    def __set__(self, struct: Any, value: Any) -> None:
        self._own.__set__(struct, value)


def owner_of(struct: type[ApiStruct], name: str) -> type:
    return next(each for each in struct.__mro__ if name in vars(each))


def read_by(pods: list[Pod], monkeypatch: pytest.MonkeyPatch) -> dict[type, set[str]]:
    """The fields that are read of structs of the table when pods are taken in, checked, and told by their shape."""
    read_fields: set[tuple[type, str]] = set()
    with monkeypatch.context() as patch:
        for struct in READ_FIELDS:
            for field in fields(struct):
                owner = owner_of(struct, field.name)
                if not isinstance(own := vars(owner)[field.name], Spy):
                    patch.setattr(owner, field.name, Spy(field.name, own, read_fields))
        for pod in pods:
            Cluster().apply_decoded(pod, None)
            check(pod)
            shape_key(pod, 0)
    return {struct: {name for kind, name in read_fields if kind is struct} for struct in READ_FIELDS}


def test_fields_read_from_structs_are_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_by([from_dict(pod, Pod) for pod in PODS], monkeypatch)
    assert {kind.__name__: names - set(READ_FIELDS[kind]) for kind, names in read.items()} == {
        kind.__name__: set() for kind in READ_FIELDS
    }


def test_fields_in_the_table_are_read_from_structs(monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_by([from_dict(pod, Pod) for pod in PODS], monkeypatch)
    not_in_table = {"api_version", "kind"}  # whether it is a pod at all, which a struct tells by its type
    assert {kind.__name__: set(names) - read[kind] - not_in_table for kind, names in READ_FIELDS.items()} == {
        kind.__name__: set() for kind in READ_FIELDS
    }


@pytest.mark.parametrize("struct", READ_FIELDS, ids=lambda struct: struct.__name__)
def test_the_table_names_members_of_the_messages(struct: type[ApiStruct]) -> None:
    names = {field.name: field.encode_name for field in fields(struct)}
    message = messages.message({"Condition": "PodCondition"}.get(struct.__name__, struct.__name__))
    assert message is not None
    assert {names[name] for name in READ_FIELDS[struct]} <= message.members
