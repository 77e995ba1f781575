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

__all__ = ["API_VERSION", "Ensuring", "PodTemplateData", "ensure_managed_template", "marks_of", "template_of_pod"]

API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
_PREFIX: Final = "capacitybuffer-"
_SUFFIX: Final = "-pod-template"
_LONGEST: Final = 253
_TOKEN_VOLUME: Final = "kube-api-access-"

_MAPS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead"})
_ABSENT_WHEN_EMPTY: Final = _MAPS | {"metadata", "resources", "volumeAttributes", "options"}
"""Members that are no pointers in the API's types: an empty one is as none. An empty selector, though, is all."""
_TEXT_POINTERS: Final = frozenset({"storageClassName", "volumeAttributesClassName"})
"""Texts that mean something when they are empty."""

Ensuring = GetWhole | Create | Patch
"""What keeping a template asks for."""


class PodTemplateData(KubeObject):
    """A PodTemplate whose template is plain data."""

    template: dict[str, Any] = {}


def template_of_pod(pod: dict[str, Any]) -> dict[str, Any]:
    """The template of pods like this one, which was not made: without the volume of its token, whose name is new each
    time."""
    spec = _without_tokens(pod.get("spec") or {}, "volumes")
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_without_tokens(each, "volumeMounts") for each in spec[kind]]
    return {"metadata": marks_of(pod), "spec": spec}


def marks_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a template of pods like this one: its labels and annotations, those that it has."""
    metadata = pod.get("metadata") or {}
    return {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}


def _without_tokens(holder: dict[str, Any], member: str) -> dict[str, Any]:
    kept = [each for each in holder.get(member) or () if not each.get("name", "").startswith(_TOKEN_VOLUME)]
    return {**{key: each for key, each in holder.items() if key != member}, **({member: kept} if kept else {})}


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
    if found.error is None:
        if _pruned(found.value.get("template")) == _pruned(template):
            return from_dict(found.value, PodTemplate), ""
        done = yield from p.act(_update(about, found.value, template))
    elif found.error.reason == NOT_FOUND:
        made = PodTemplateData(api_version="v1", kind="PodTemplate", metadata=about, template=template)
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


def _pruned(value: Any, member: str = "") -> Any:
    """For comparison only (``Semantic.DeepEqual``): without members whose emptiness is as their absence. ``member``:
    what the value is in its holder."""
    if isinstance(value, dict):
        kept = {key: _pruned(each, key) for key, each in value.items()}
        return {key: each for key, each in kept.items() if not _is_absent(each, key, in_map=member in _MAPS)}
    return [_pruned(each) for each in value] if isinstance(value, list) else value


def _is_absent(value: Any, member: str, *, in_map: bool) -> bool:
    if value == "":
        return not in_map and member not in _TEXT_POINTERS
    return value is None or value == [] or (value == {} and member in _ABSENT_WHEN_EMPTY)
