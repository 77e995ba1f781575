"""The workload that a buffer goes by (``capacitybuffer/translators/scalable_objects``)."""

from __future__ import annotations

from typing import Any, Final

from kscale.ca.capacity_buffers.fake_pods import resolve_pod
from kscale.ca.capacity_buffers.managed_template import marks_of, template_of_pod
from kscale.effects import Discover, GetScale, GetWhole, List, Preview, Progress, StepsOf, from_text
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.capacity_buffers import CapacityBuffer, ScalableRef
from kscale.objects.rest_mapping import RESTMappingError

__all__ = ["TEMPLATED", "ResolvedWorkload", "Resolving", "resolve_workload"]

Resolving = Discover | GetScale | List | GetWhole | Preview
"""What finding out about a workload asks for."""

TEMPLATED: Final = {
    ("apps", "Deployment"): "apps/v1",
    ("apps", "ReplicaSet"): "apps/v1",
    ("apps", "StatefulSet"): "apps/v1",
    ("core", "ReplicationController"): "v1",
    ("batch", "Job"): "batch/v1",
}
"""(group, kind) of the workloads whose own templates count, and their ``apiVersion``."""

ResolvedWorkload = tuple[dict[str, Any] | None, int | None, str]
"""Template, replicas, why there is none."""


def resolve_workload(p: Progress, buffer: CapacityBuffer, *, dry_run: bool) -> StepsOf[Resolving, ResolvedWorkload]:
    """What the pods of the workload are like, and how many it is to have: as the newest of them is, else as the
    workload's own template says."""
    assert buffer.spec.scalable_ref is not None
    about = buffer.spec.scalable_ref
    template, replicas, live = yield from _newest_pod(p, buffer.namespace, about)
    if template is not None:
        return template, replicas, ""
    template, replicas, problem = yield from _own_template(p, buffer.namespace, about)
    if template is None:
        before = f"failed to resolve live pod: {live}, " if live else ""
        return None, None, f"{before}failed to resolve scalable object: {problem}"
    pod, problem = yield from resolve_pod(p, buffer.namespace, template, dry_run=dry_run)
    if problem:
        return None, None, f"failed to resolve pod spec: {problem}"
    return template_of_pod(pod), replicas, ""


def _newest_pod(p: Progress, namespace: str, about: ScalableRef) -> StepsOf[Resolving, ResolvedWorkload]:
    """By the workload's scale. Without a problem there may be no pod yet."""
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
    newest = max(pods.value, key=lambda pod: from_text(pod.metadata.creation_timestamp))
    pod = yield from p.act(GetWhole(kind="Pod", api_version="v1", namespace=namespace, name=newest.name))
    if pod.error is not None:
        return None, None, f"{missing}{pod.error.message}"
    spec = {name: value for name, value in pod.value["spec"].items() if name != "nodeName"}
    return {"metadata": marks_of(pod.value), "spec": spec}, status.replicas, ""


def _own_template(p: Progress, namespace: str, about: ScalableRef) -> StepsOf[GetWhole, ResolvedWorkload]:
    version = TEMPLATED.get((about.api_group, about.kind))
    if version is None:
        return None, None, f"kind {about.api_group}/{about.kind} is not supported to use pod template"
    found = yield from p.act(GetWhole(kind=about.kind, api_version=version, namespace=namespace, name=about.name))
    if found.error is not None:
        text = found.error.message
        if found.error.reason == NOT_FOUND:  # as a lister says it
            group = "" if about.api_group == "core" else f".{about.api_group}"
            text = f'{about.kind.lower()}{group} "{about.name}" not found'
        return None, None, f"failed to get Deployment: failed to get {about.kind}: {text}"
    spec = found.value.get("spec") or {}
    return spec.get("template") or {}, spec.get("parallelism" if about.kind == "Job" else "replicas"), ""
