"""The pod template that a buffer's controller keeps for it (``capacitybuffer/translators/podtemplate.go``).

Objects are plain data here: what is made of a template has all of its fields, also those that kscale has no names for.
"""

from __future__ import annotations

from typing import Any, Final

from kscale.effects import (
    Create,
    GetWhole,
    Patch,
    PatchOperation,
    Progress,
    StepsOf,
)
from kscale.effects.outcomes import NOT_FOUND
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.core import PodTemplate
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.meta import KubeObject, ObjectMeta, OwnerReference

__all__ = ["API_VERSION", "Ensuring", "PodTemplateData", "ensure_managed_template", "template_of_pod"]

API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
_PREFIX: Final = "capacitybuffer-"
_SUFFIX: Final = "-pod-template"
_LONGEST: Final = 253
_TOKEN_VOLUME: Final = "kube-api-access-"

Ensuring = GetWhole | Create | Patch
"""What keeping a template asks for."""


class PodTemplateData(KubeObject):
    """A PodTemplate whose template is plain data."""

    template: dict[str, Any] = {}


def template_of_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """The template of pods like this one, which was not made: without the volume of its token, whose name is new each
    time."""
    metadata, spec = pod.get("metadata") or {}, dict(pod.get("spec") or {})
    spec["volumes"] = _without_tokens(spec.get("volumes"))
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [{**each, "volumeMounts": _without_tokens(each.get("volumeMounts"))} for each in spec[kind]]
    return {"metadata": {key: metadata.get(key) for key in ("labels", "annotations")}, "spec": spec}


def _without_tokens(volumes: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [each for each in volumes or () if not each.get("name", "").startswith(_TOKEN_VOLUME)]


def ensure_managed_template(
    p: Progress, buffer: CapacityBuffer, template: dict[str, Any]
) -> StepsOf[Ensuring, tuple[PodTemplate | None, str]]:
    """Makes the buffer's template, or brings it up to date; the template as it is then, or why there is none."""
    about = ObjectMeta(
        name=f"{_PREFIX}{buffer.name[: _LONGEST - len(_PREFIX) - len(_SUFFIX)]}{_SUFFIX}",
        namespace=buffer.namespace,
        owner_references=[
            OwnerReference(
                api_version=API_VERSION,
                kind="CapacityBuffer",
                name=buffer.name,
                uid=buffer.metadata.uid,
                controller=True,
            )
        ],
    )
    asks = GetWhole(kind="PodTemplate", api_version="v1", namespace=about.namespace, name=about.name)
    found = yield from p.act(asks)
    wanted = _pruned(template)
    if found.error is None:
        if _pruned(found.value.get("template")) == wanted:
            return from_dict(found.value, PodTemplate), ""
        done = yield from p.act(_update(about, found.value, wanted))
    elif found.error.reason == NOT_FOUND:
        made = PodTemplateData(api_version="v1", kind="PodTemplate", metadata=about, template=wanted)
        done = yield from p.act(Create(made))
    else:
        return None, f"capacity buffer client can't get pod template: {found.error.message}"
    if done.error is None:  # its generation, and what the API server filled in
        found = yield from p.act(asks)
        done = found
    if done.error is not None:
        return None, done.error.message
    return from_dict(found.value, PodTemplate), ""


def _update(about: ObjectMeta, held: dict[str, Any], wanted: dict[str, Any]) -> Patch:
    owners = [to_dict(owner) for owner in about.owner_references]
    return Patch(
        kind="PodTemplate",
        api_version="v1",
        namespace=about.namespace,
        name=about.name,
        type="json",
        resource_version=held["metadata"].get("resourceVersion", ""),
        patch=(
            PatchOperation(op="add", path="/metadata/ownerReferences", value=owners),
            PatchOperation(op="replace", path="/template", value=wanted),
        ),
    )


def _pruned(value: Any) -> Any:
    """Without members that are empty: to the API they are as if they were not there."""
    if isinstance(value, dict):
        kept = {key: _pruned(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in (None, {}, [], "")}
    return [_pruned(each) for each in value] if isinstance(value, list) else value
