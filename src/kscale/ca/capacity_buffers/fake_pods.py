"""The pod that a template stands for, as plain data (``capacitybuffer/fakepods``)."""

from __future__ import annotations

from typing import Any, Final

from kscale.effects import Preview, Progress, StepsOf
from kscale.objects.core import PodSpec
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.requests import container_requests

__all__ = ["defaulted_pod", "resolve_pod"]

_HUGE_PAGES: Final = "hugepages-"


def resolve_pod(
    p: Progress, namespace: str, template: dict[str, Any], *, dry_run: bool
) -> StepsOf[Preview, tuple[dict[str, Any], str]]:
    """The pod as the API server would make it (``dry_run``: ``--capacity-buffer-pod-dry-run-enabled``), or as far as
    that can be told without it; and why it would not."""
    pod = _pod_of(template)
    if not dry_run:
        return defaulted_pod(pod), ""
    pod["metadata"]["generateName"] = "fake-pod-"
    found = yield from p.act(Preview(kind="Pod", api_version="v1", namespace=namespace, content=pod))
    return (found.value or {}), ("" if found.error is None else found.error.message)


def _pod_of(template: dict[str, Any]) -> dict[str, Any]:
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata.get(key)}
    return {"metadata": kept, "spec": dict(template.get("spec") or {})}


def defaulted_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with requests where it only has limits: of its containers, and of its own."""
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_with_requests(each) for each in spec[kind]]
    own = spec.get("resources") or {}
    if own.get("limits"):
        asked = {name: amount for name, amount in to_dict(_of_containers(spec)).items() if name.startswith(_HUGE_PAGES)}
        limits = {name: amount for name, amount in own["limits"].items() if _is_pod_level(name)}
        requests = {**limits, **asked, **(own.get("requests") or {})}
        spec["resources"] = {**own, **({"requests": requests} if requests else {})}
    return {**pod, "spec": spec}


def _with_requests(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}} if requests else container


def _of_containers(spec: dict[str, Any]) -> Any:
    return container_requests(from_dict(spec, PodSpec))


def _is_pod_level(name: str) -> bool:
    """Whether a pod as a whole may ask for it."""
    return name in ("cpu", "memory") or name.startswith(_HUGE_PAGES)
