"""Pod templates of buffers: managed templates, fake pods, and templates of scalable objects.

Objects are plain data here, so that fields that kscale does not model are kept.

Upstream: ``capacitybuffer/translators``, ``capacitybuffer/fakepods``, ``podtemplate.go``.
"""

from __future__ import annotations

from typing import Any, Final

from kscale.effects import (
    Create,
    Discover,
    GetScale,
    GetUnstructured,
    List,
    Patch,
    PatchOperation,
    Preview,
    Progress,
    StepsOf,
)
from kscale.effects.actions import NOT_FOUND
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, ScalableRef
from kscale.objects.api.core import PodSpec, PodTemplate
from kscale.objects.api.meta import KubeObject, ObjectMeta, OwnerReference
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import RESTMappingError
from kscale.objects.pod_resources import container_requests, is_pod_level_resource
from kscale.objects.times import created_at

__all__ = [
    "BUFFER_API_VERSION",
    "TEMPLATE_API_VERSIONS",
    "ManagedTemplateAction",
    "PodTemplateData",
    "ResolveWorkloadAction",
    "ResolvedWorkload",
    "build_pod_template",
    "default_pod_requests",
    "ensure_managed_template",
    "get_labels_and_annotations",
    "resolve_fake_pod",
    "resolve_workload",
]


BUFFER_API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
_NAME_PREFIX: Final = "capacitybuffer-"
_NAME_SUFFIX: Final = "-pod-template"
_MAX_NAME_LENGTH: Final = 253
_TOKEN_VOLUME_PREFIX: Final = "kube-api-access-"

_MAP_FIELDS: Final = frozenset(
    {"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead"}
)
_ABSENT_WHEN_EMPTY: Final = _MAP_FIELDS | {"metadata", "resources", "volumeAttributes", "options"}
"""Members that are no pointers in the API's types: an empty one is as none. An empty selector, though, is all."""
_TEXT_POINTERS: Final = frozenset({"storageClassName", "volumeAttributesClassName"})
"""Texts that mean something when they are empty."""

ManagedTemplateAction = GetUnstructured | Create | Patch
"""Actions that create or update a managed pod template."""


class PodTemplateData(KubeObject):
    """A PodTemplate whose template is plain data."""

    template: dict[str, Any] = {}


def build_pod_template(pod: dict[str, Any]) -> dict[str, Any]:
    """Build the plain data of a pod template from a pod that the API server previewed.

    Of its metadata only labels and annotations are taken. Leaves out the service account token's volume and its mounts,
    because each pod has another name for it.
    """
    spec = _drop_token_volumes(pod.get("spec") or {}, "volumes")
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_drop_token_volumes(each, "volumeMounts") for each in spec[kind]]
    return {"metadata": get_labels_and_annotations(pod), "spec": spec}


def get_labels_and_annotations(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's labels and annotations as the metadata of a template; empty ones are left out."""
    metadata = pod.get("metadata") or {}
    return {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}


def _drop_token_volumes(holder: dict[str, Any], member: str) -> dict[str, Any]:
    """Return a copy of ``holder`` without service account token volumes in its list ``member``.

    An empty list is left out.
    """
    retained = [each for each in holder.get(member) or () if not each.get("name", "").startswith(_TOKEN_VOLUME_PREFIX)]
    return {**{key: each for key, each in holder.items() if key != member}, **({member: retained} if retained else {})}


def ensure_managed_template(
    p: Progress, buffer: CapacityBuffer, template: dict[str, Any]
) -> StepsOf[ManagedTemplateAction, tuple[PodTemplate | None, str]]:
    """Create or update the buffer's managed PodTemplate: the one that the controller itself maintains for the buffer.

    Nothing is written if its present template is equivalent to ``template``. Returns (PodTemplate, ""), or (None, error
    message).
    """
    metadata = ObjectMeta(
        name=f"{_NAME_PREFIX}{buffer.name[: _MAX_NAME_LENGTH - len(_NAME_PREFIX) - len(_NAME_SUFFIX)]}{_NAME_SUFFIX}",
        namespace=buffer.namespace,
        owner_references=[
            OwnerReference(
                api_version=BUFFER_API_VERSION,
                kind="CapacityBuffer",
                name=buffer.name,
                uid=buffer.metadata.uid,
                controller=True,
            )
        ],
    )
    request = GetUnstructured(kind="PodTemplate", api_version="v1", namespace=metadata.namespace, name=metadata.name)
    current = yield from p.act(request)
    if current.error is None:
        if _prune_empty(current.value.get("template")) == _prune_empty(template):
            return from_dict(current.value, PodTemplate), ""
        done = yield from p.act(_build_update_patch(metadata, current.value, template))
    elif current.error.reason == NOT_FOUND:
        created = PodTemplateData(api_version="v1", kind="PodTemplate", metadata=metadata, template=template)
        done = yield from p.act(Create(created))
    else:
        return None, f"capacity buffer client can't get pod template: {current.error.message}"
    if done.error is None:  # read the generation and the API server's defaults
        current = yield from p.act(request)
        done = current
    if done.error is not None:
        return None, done.error.message
    return from_dict(current.value, PodTemplate), ""


def _build_update_patch(metadata: ObjectMeta, current: dict[str, Any], template: dict[str, Any]) -> Patch:
    """Build the patch of the managed PodTemplate ``current``: replace its template and its owners."""
    owners = [to_dict(owner) for owner in metadata.owner_references]
    return Patch(
        kind="PodTemplate",
        api_version="v1",
        namespace=metadata.namespace,
        name=metadata.name,
        type="json",
        resource_version=current["metadata"].get("resourceVersion", ""),
        patch=(
            PatchOperation(op="add", path="/metadata/ownerReferences", value=owners),
            PatchOperation(op="replace", path="/template", value=template),
        ),
    )


def _prune_empty(value: Any, member: str = "") -> Any:
    """Return ``value`` without empty members that mean the same as missing ones.

    Use the result for comparison only (``Semantic.DeepEqual``). ``member`` is the name of the field that holds the
    value.
    """
    if isinstance(value, dict):
        pruned = {key: _prune_empty(each, key) for key, each in value.items()}
        return {key: each for key, each in pruned.items() if not _is_absent(each, key, in_map=member in _MAP_FIELDS)}
    return [_prune_empty(each) for each in value] if isinstance(value, list) else value


def _is_absent(value: Any, member: str, *, in_map: bool) -> bool:
    """Check whether the value of a field ``member`` means the same as a missing field.

    ``in_map``: the value is an entry of a map, such as labels.
    """
    if value == "":
        return not in_map and member not in _TEXT_POINTERS
    return value is None or value == [] or (value == {} and member in _ABSENT_WHEN_EMPTY)


_HUGE_PAGES_PREFIX: Final = "hugepages-"


def resolve_fake_pod(
    p: Progress, namespace: str, template: dict[str, Any], *, dry_run: bool
) -> StepsOf[Preview, tuple[dict[str, Any], str]]:
    """Build a pod of the template.

    With ``dry_run`` (``--capacity-buffer-pod-dry-run-enabled``) the API server creates the pod in a dry-run request.
    Without, kscale itself fills in the requests. Returns (plain data of the pod, ""), or ({}, error message) if the API
    server rejects the pod.
    """
    pod = _build_pod(template)
    if not dry_run:
        return default_pod_requests(pod), ""
    pod["metadata"]["generateName"] = "fake-pod-"
    preview = yield from p.act(Preview(kind="Pod", api_version="v1", namespace=namespace, content=pod))
    return (preview.value or {}), ("" if preview.error is None else preview.error.message)


def _build_pod(template: dict[str, Any]) -> dict[str, Any]:
    """Build the plain data of a pod without a name from that of a pod template."""
    metadata = template.get("metadata") or {}
    pod_metadata = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata.get(key)}
    return {"metadata": pod_metadata, "spec": dict(template.get("spec") or {})}


def default_pod_requests(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with requests filled in where only limits are set: of containers and of the pod itself.

    If the pod itself has limits, huge pages of its containers become requests of the pod, too.
    """
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_default_container_requests(each) for each in spec[kind]]
    own = spec.get("resources") or {}
    if own.get("limits"):
        asked = {
            name: amount
            for name, amount in to_dict(_sum_container_requests(spec)).items()
            if name.startswith(_HUGE_PAGES_PREFIX)
        }
        limits = {name: amount for name, amount in own["limits"].items() if is_pod_level_resource(name)}
        requests = {**limits, **asked, **(own.get("requests") or {})}
        spec["resources"] = {**own, **({"requests": requests} if requests else {})}
    return {**pod, "spec": spec}


def _default_container_requests(container: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the container in which each missing request equals the limit of the resource."""
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}} if requests else container


def _sum_container_requests(spec: dict[str, Any]) -> Any:
    """Return the sum of the container requests of a pod spec (:func:`container_requests`)."""
    return container_requests(from_dict(spec, PodSpec))


ResolveWorkloadAction = Discover | GetScale | List | GetUnstructured | Preview
"""Actions that resolve the workload of a buffer."""

TEMPLATE_API_VERSIONS: Final = {
    ("apps", "Deployment"): "apps/v1",
    ("apps", "ReplicaSet"): "apps/v1",
    ("apps", "StatefulSet"): "apps/v1",
    ("core", "ReplicationController"): "v1",
    ("batch", "Job"): "batch/v1",
}
"""(group, kind) of the workloads whose own templates count, and their ``apiVersion``."""

ResolvedWorkload = tuple[dict[str, Any] | None, int | None, str]
"""Template, number of replicas, and the error if there is no template."""


def resolve_workload(
    p: Progress, buffer: CapacityBuffer, *, dry_run: bool
) -> StepsOf[ResolveWorkloadAction, ResolvedWorkload]:
    """Return the pod template and the desired replicas of the buffer's workload.

    The template is that of the newest pod; if there is none, it is the workload's own template, with defaults of the
    API server if ``dry_run``, else with requests filled in by kscale. Returns (template, replicas or None if the
    workload has none, ""), or (None, None, error message).
    """
    assert buffer.spec.scalable_ref is not None
    about = buffer.spec.scalable_ref
    template, replicas, live = yield from _resolve_from_newest_pod(p, buffer.namespace, about)
    if template is not None:
        return template, replicas, ""
    template, replicas, problem = yield from _resolve_from_template(p, buffer.namespace, about)
    if template is None:
        before = f"failed to resolve live pod: {live}, " if live else ""
        return None, None, f"{before}failed to resolve scalable object: {problem}"
    pod, problem = yield from resolve_fake_pod(p, buffer.namespace, template, dry_run=dry_run)
    if problem:
        return None, None, f"failed to resolve pod spec: {problem}"
    return build_pod_template(pod), replicas, ""


def _resolve_from_newest_pod(
    p: Progress, namespace: str, about: ScalableRef
) -> StepsOf[ResolveWorkloadAction, ResolvedWorkload]:
    """Resolve the workload ``about`` by its scale subresource and its newest pod.

    Returns (template, replicas, ""); (None, replicas, "") if there is no pod yet; or (None, None, error message).
    """
    mapper = yield from p.act(Discover())
    try:
        if mapper.error is not None:
            raise RESTMappingError(mapper.error.message)
        resource = mapper.value.resources(about.api_group, about.kind)[0]
    except RESTMappingError as error:
        return None, None, f"failed to get scale object: {error}"
    scale = yield from p.act(GetScale(namespace=namespace, resource=resource, name=about.name))
    if scale.error is not None:
        return None, None, f"failed to get scale object: failed to get scale sub resource: {scale.error.message}"
    status = scale.value.status
    pods = yield from p.act(
        List(kind="Pod", api_version="v1", namespace=namespace, selector=status.selector or "", watched=False)
    )
    missing = "failed to get existing pod for scale object: failed to list pods: "
    if pods.error is not None:
        return None, None, f"{missing}{pods.error.message}"
    if not pods.value:
        return None, status.replicas, ""
    newest = max(pods.value, key=created_at)
    pod = yield from p.act(GetUnstructured(kind="Pod", api_version="v1", namespace=namespace, name=newest.name))
    if pod.error is not None:
        return None, None, f"{missing}{pod.error.message}"
    spec = {name: value for name, value in pod.value["spec"].items() if name != "nodeName"}
    return {"metadata": get_labels_and_annotations(pod.value), "spec": spec}, status.replicas, ""


def _resolve_from_template(
    p: Progress, namespace: str, about: ScalableRef
) -> StepsOf[GetUnstructured, ResolvedWorkload]:
    """Resolve the workload ``about`` by its own pod template.

    Returns (template, replicas or None if they are not set, ""), or (None, None, error message).
    """
    version = TEMPLATE_API_VERSIONS.get((about.api_group, about.kind))
    if version is None:
        return None, None, f"kind {about.api_group}/{about.kind} is not supported to use pod template"
    response = yield from p.act(
        GetUnstructured(kind=about.kind, api_version=version, namespace=namespace, name=about.name)
    )
    if response.error is not None:
        text = response.error.message
        if response.error.reason == NOT_FOUND:  # in the words of a lister
            group = "" if about.api_group == "core" else f".{about.api_group}"
            text = f'{about.kind.lower()}{group} "{about.name}" not found'
        return None, None, f"failed to get Deployment: failed to get {about.kind}: {text}"
    spec = response.value.get("spec") or {}
    return spec.get("template") or {}, spec.get("parallelism" if about.kind == "Job" else "replicas"), ""
