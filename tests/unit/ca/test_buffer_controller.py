"""The controller of capacity buffers as a step machine, against objects as plain data."""

from __future__ import annotations

from typing import Any

import pytest

from builders import N0, at
from kscale.ca.capacity_buffers import reconcile_buffers_steps
from kscale.ca.capacity_buffers.pod_templates import default_pod_requests
from kscale.effects import (
    Action,
    ApiError,
    Create,
    Discover,
    GetScale,
    GetUnstructured,
    List,
    Patch,
    Preview,
    WriteStatus,
)
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.cluster_autoscaler import CapacityBuffer
from kscale.objects.api.core import Pod
from kscale.objects.api.policy import ResourceQuota
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMapper
from performing import performed

MANAGED = "capacitybuffer-spare-pod-template"
PROBE = {"httpGet": {"port": 80}}
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "creationTimestamp": None},
    "spec": {
        "containers": [{"name": "c", "image": "i", "livenessProbe": PROBE, "resources": {"requests": {"cpu": "1"}}}]
    },
}


class Server:
    """Objects by (kind, name) of one namespace. ``refuses``: what is asked of these kinds of actions fails."""

    def __init__(self, **objects: Any) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.scales: dict[str, Scale] = {}
        self.refuses: set[type] = set()
        self.writes: list[Action] = []
        self.previews: list[dict[str, Any]] = []
        self.reconciled: list[CapacityBuffer] = []

    def put(self, kind: str, name: str, **content: Any) -> None:
        metadata = {"name": name, "namespace": "shop", "generation": 1, "resourceVersion": "7"}
        self.objects[kind, name] = {**content, "metadata": {**metadata, **content.get("metadata", {})}}

    def __call__(self, action: Action) -> Any:
        if type(action) in self.refuses:
            return ApiError("no", reason="Forbidden", code=403)
        match action:
            case GetUnstructured(kind=kind, name=name):
                plural = f"{kind.lower()}s"
                return self.objects.get((kind, name)) or ApiError(f'{plural} "{name}" not found', 404, "NotFound")
            case Preview(content=content):
                self.previews.append(content)
                token = {"name": "kube-api-access-x7"}
                spec = {**content["spec"], "volumes": [token, {"name": "data"}], "schedulerName": "default-scheduler"}
                spec["containers"] = [{**each, "volumeMounts": [token]} for each in spec["containers"]]
                return {"metadata": {**content["metadata"], "name": "fake-pod-q"}, "spec": spec}
            case Create(object=made):
                self.writes.append(action)
                data = to_dict(made)
                self.put("PodTemplate", made.name, template=data["template"], metadata={**data["metadata"]})
            case Patch(patch=operations):
                self.writes.append(action)
                template_ = self.objects["PodTemplate", action.name]
                template_["metadata"]["generation"] += 1
                template_["template"] = operations[1].value
            case Discover():
                return RESTMapper()
            case GetScale(name=name):
                return self.scales.get(name) or ApiError("the server could not find the requested resource", 404)
            case List():
                return [from_dict(each, Pod) for (kind, _), each in self.objects.items() if kind == "Pod"]
            case WriteStatus():
                self.writes.append(action)
        return None

    def reconcile(self, *buffers: CapacityBuffer, quotas: Any = (), **options: Any) -> list[str]:
        steps = reconcile_buffers_steps(buffers, quotas, now=N0, **options)
        self.reconciled, errors = performed(steps, self, now=N0).value
        assert isinstance(errors, list)
        return errors

    def statuses(self) -> list[CapacityBuffer]:
        result = [each.object for each in self.writes if isinstance(each, WriteStatus)]
        self.writes.clear()
        return result


def buffer(name: str = "spare", **spec: Any) -> CapacityBuffer:
    about = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1, "creationTimestamp": at()}
    return from_dict({"metadata": about, "spec": {"provisioningStrategy": "", **spec}}, CapacityBuffer)


def of_template(name: str = "spare", **spec: Any) -> CapacityBuffer:
    return buffer(name, **{"podTemplateRef": {"name": "web"}, "replicas": 3, **spec})


def ready(updated: CapacityBuffer) -> str:
    return next(each.message for each in updated.status.conditions if each.type == "ReadyForProvisioning")


def server() -> Server:
    created = Server()
    created.put("PodTemplate", "web", template=TEMPLATE)
    return created


def test_pod_template_is_stored_for_a_buffer() -> None:
    api = server()
    assert api.reconcile(of_template()) == []
    assert api.previews == [
        {"metadata": {"labels": {"app": "web"}, "generateName": "fake-pod-"}, "spec": TEMPLATE["spec"]}
    ]
    created = api.objects["PodTemplate", MANAGED]
    assert created["template"]["metadata"] == {"labels": {"app": "web"}}
    (container,) = created["template"]["spec"]["containers"]
    assert container["livenessProbe"] == PROBE, "nothing of the template is lost"
    assert "volumeMounts" not in container
    assert created["template"]["spec"]["volumes"] == [{"name": "data"}]
    (owner,) = created["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("CapacityBuffer", "uid-spare", True)
    (updated,) = api.statuses()
    assert updated.status.pod_template_ref is not None
    assert (updated.status.pod_template_ref.name, updated.status.pod_template_generation, updated.status.replicas) == (
        MANAGED,
        1,
        3,
    )
    assert [(each.type, each.status) for each in updated.status.conditions] == [
        ("ReadyForProvisioning", "True"),
        ("LimitedByQuotas", "False"),
    ]
    assert (api.reconcile(updated), api.writes) == ([], []), "nothing new, nothing to write"


def test_a_template_that_changes() -> None:
    api = server()
    api.reconcile(of_template())
    (updated,) = api.statuses()
    api.put("PodTemplate", "web", template={"spec": {"containers": [{"name": "d", "image": "i"}]}})
    assert api.reconcile(updated) == []
    patch, written = api.writes
    assert isinstance(patch, Patch)
    assert patch.resource_version == "7"
    assert isinstance(written, WriteStatus)
    assert written.object.status.pod_template_generation == 2


def pod_of(selector: dict[str, Any] | None, storage_class: str | None, node_selector: dict[str, str]) -> dict[str, Any]:
    """A template whose members mean something when they are empty."""
    term: dict[str, Any] = {"topologyKey": "zone", "labelSelector": selector, "namespaceSelector": selector}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    claim = {"spec": {"storageClassName": storage_class, "resources": {}}}
    return {
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {}}],
            "affinity": {"podAntiAffinity": anti},
            "nodeSelector": node_selector,
            "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}, {"name": "e", "emptyDir": {}}],
        }
    }


@pytest.mark.parametrize(
    "before",
    [
        None,
        pod_of(None, "", {"node-role.kubernetes.io/web": ""}),
        pod_of({}, None, {"node-role.kubernetes.io/web": ""}),
        pod_of({}, "", {}),
        pod_of({"matchLabels": {"a": "b"}}, "fast", {}),
    ],
)
def test_meaningful_empty_fields_are_written(before: dict[str, Any] | None) -> None:
    api, full_pod = server(), pod_of({}, "", {"node-role.kubernetes.io/web": ""})
    for template in (before, full_pod) if before is not None else (full_pod,):
        api.put("PodTemplate", "web", template=template)
        assert api.reconcile(of_template(), dry_run=False) == []
        (updated,) = api.statuses()
    assert api.objects["PodTemplate", MANAGED]["template"]["spec"] == full_pod["spec"]
    container = api.objects["PodTemplate", MANAGED]["template"]["spec"]["containers"][0]
    del container["resources"]  # as none to the API
    assert (api.reconcile(updated, dry_run=False), api.writes) == ([], []), "nothing new, nothing to write"


def test_quotas_limit_buffers_by_creation_time() -> None:
    api = server()
    late, early = of_template("late"), of_template("early")
    late.metadata.creation_timestamp = at(minutes=1)
    quota = from_dict(
        {"metadata": {"name": "q", "namespace": "shop", "uid": "q"}, "status": {"hard": {"cpu": "4"}}}, ResourceQuota
    )
    api.reconcile(late, early, quotas=[quota])
    result = api.statuses()
    assert [(each.name, each.status.replicas) for each in result] == [("early", 3), ("late", 1)]
    assert (api.reconcile(*result, quotas=[quota]), api.writes) == ([], [])


def test_missing_template_makes_a_buffer_not_ready() -> None:
    api = server()
    text = 'capacity buffer client can\'t get pod template: podtemplates "gone" not found'
    assert api.reconcile(of_template(podTemplateRef={"name": "gone"})) == [text]
    (updated,) = api.statuses()
    assert ready(updated) == f"Buffer not ready for provisioning: {text}"
    assert updated.status.pod_template_ref is None
    assert api.reconcile(of_template(replicas=None)) == [], "a mistake in the buffer is no reason to try again"
    (updated,) = api.statuses()
    assert ready(updated).endswith(
        "couldn't get number of replicas for buffer: replicas, percentage and limits are not defined"
    )
    for action, why in (
        (Preview, "failed to create fake pod: no"),
        (Patch, "failed to create or update managed pod template: no"),
    ):
        api.refuses = {action}
        api.put("PodTemplate", "web", template={"spec": {"containers": [{"name": why, "image": "i"}]}})
        assert api.reconcile(of_template()) == [why]
    api.refuses = {WriteStatus}
    assert api.reconcile(of_template()) == ["no"]
    assert api.reconciled == []
    api.refuses.clear()
    assert api.reconcile(of_template()) == []
    (there,) = api.reconciled
    assert (there.name, there.status.replicas) == ("spare", 3)


@pytest.mark.parametrize("strategy", ["other", "buffer.x-k8s.io/passive"])
def test_buffers_of_other_strategies_are_left_alone(strategy: str) -> None:
    api = server()
    assert (api.reconcile(of_template(provisioningStrategy=strategy)), api.writes) == ([], [])


def of_workload(kind: str = "Deployment", group: str = "apps", **spec: Any) -> CapacityBuffer:
    return buffer(**{"scalableRef": {"apiGroup": group, "kind": kind, "name": "w"}, "percentage": 50, **spec})


def test_the_newest_pod_of_a_workload() -> None:
    api = server()
    api.scales["w"] = from_dict({"status": {"replicas": 7, "selector": "app=web"}}, Scale)
    for name, when in (("old", at()), ("new", at(minutes=1)), ("older", at(minutes=-1))):
        spec = {"nodeName": "n", "containers": [{"name": name, "image": "i"}]}
        api.put("Pod", name, spec=spec, metadata={"creationTimestamp": when, "labels": {"app": "web"}})
    assert api.reconcile(of_workload()) == []
    template = api.objects["PodTemplate", MANAGED]["template"]
    assert template == {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "new", "image": "i"}]}}
    (updated,) = api.statuses()
    assert updated.status.replicas == 4, "half of seven, rounded up"
    assert api.previews == []


@pytest.mark.parametrize(
    ("kind", "group", "spec", "want"),
    [
        ("Deployment", "apps", {"replicas": 4}, 2),
        ("StatefulSet", "apps", {"replicas": 3}, 2),
        ("ReplicaSet", "apps", {"replicas": 2}, 1),
        ("ReplicationController", "core", {"replicas": 2}, 1),
        ("Job", "batch", {"parallelism": 6, "completions": 9}, 3),
    ],
)
def test_the_template_of_a_workload_without_pods(kind: str, group: str, spec: dict[str, Any], want: int) -> None:
    api = server()
    api.scales["w"] = from_dict({"status": {"replicas": 9, "selector": "app=web"}}, Scale)
    api.put(kind, "w", spec={**spec, "template": TEMPLATE})
    assert api.reconcile(of_workload(kind, group)) == []
    (updated,) = api.statuses()
    assert updated.status.replicas == want
    assert len(api.previews) == 1


LIVE = "failed to resolve live pod: failed to get scale object"
SCALE = "failed to get scale sub resource: the server could not find the requested resource"
DEPLOYMENT_NOT_FOUND = 'failed to get Deployment: failed to get Deployment: deployment.apps "w" not found'
UNKNOWN = 'no matches for kind "Robot" in group "example.com"'
UNSUPPORTED = "kind example.com/Robot is not supported to use pod template"


@pytest.mark.parametrize(
    ("kind", "group", "why"),
    [
        ("Deployment", "apps", f"{LIVE}: {SCALE}, failed to resolve scalable object: {DEPLOYMENT_NOT_FOUND}"),
        ("Robot", "example.com", f"{LIVE}: {UNKNOWN}, failed to resolve scalable object: {UNSUPPORTED}"),
    ],
)
def test_a_workload_that_is_not_there(kind: str, group: str, why: str) -> None:
    api = server()
    assert api.reconcile(of_workload(kind, group)) == [why]
    assert ready(api.statuses()[0]) == f"Buffer not ready for provisioning: {why}"


def test_requests_without_the_api_server() -> None:
    api = server()
    limits = {"cpu": "2", "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": {"cpu": "1"}}}
    api.put("PodTemplate", "web", template={"spec": {"containers": [container]}})
    assert api.reconcile(of_template(limits={"cpu": "5", "memory": "2Gi"}), dry_run=False) == []
    assert api.previews == []
    (updated,) = api.statuses()
    assert updated.status.replicas == 2


def test_requests_of_a_pod_as_a_whole() -> None:
    huge = {"name": "c", "resources": {"requests": {"hugepages-2Mi": "4Mi", "cpu": "1"}}}
    own = {"limits": {"cpu": "3", "memory": "1Gi", "example.com/x": "1"}, "requests": {"memory": "512Mi"}}
    result = default_pod_requests({"metadata": {}, "spec": {"containers": [huge], "resources": own}})
    assert result["spec"]["resources"]["requests"] == {"cpu": "3", "memory": "512Mi", "hugepages-2Mi": "4Mi"}
    plain = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    assert default_pod_requests(plain) == plain
