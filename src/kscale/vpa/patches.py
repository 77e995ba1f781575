"""JSON patches (RFC 6902) on pods, and the annotations that the VPA writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kscale.effects import PatchOperation
from kscale.objects.core import Pod
from kscale.objects.names import dns_label_errors

__all__ = [
    "IN_PLACE_UPDATED",
    "OBSERVED_CONTAINERS",
    "STARTUP_BOOST",
    "VPA_UPDATES",
    "AnnotationError",
    "annotate",
    "annotation_pointer",
    "ensure_annotations",
    "escape",
    "observed_containers",
    "observed_text",
    "remove_annotation",
]

VPA_UPDATES: Final = "vpaUpdates"
OBSERVED_CONTAINERS: Final = "vpaObservedContainers"
IN_PLACE_UPDATED: Final = "vpaInPlaceUpdated"
STARTUP_BOOST: Final = "vpaCpuStartupBoost"
_SEPARATOR: Final = ", "


class AnnotationError(ValueError):
    """An annotation that cannot be read, with upstream's text."""


def escape(token: str) -> str:
    """A key as part of a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def annotation_pointer(name: str) -> str:
    """Where an annotation stands."""
    return f"/metadata/annotations/{escape(name)}"


def annotate(name: str, value: str) -> PatchOperation:
    """Set an annotation."""
    return PatchOperation("add", annotation_pointer(name), value)


def remove_annotation(name: str) -> PatchOperation:
    """Take an annotation away. Upstream's patch carries a null value."""
    return PatchOperation("remove", annotation_pointer(name), None)


def ensure_annotations(pod: Pod) -> list[PatchOperation]:
    """What has to come first when the pod has no annotations at all."""
    return [PatchOperation("add", "/metadata/annotations", {})] if pod.metadata.annotations is None else []


def observed_text(pod: Pod) -> str:
    """The value of the annotation that lists a pod's containers."""
    return _SEPARATOR.join(container.name for container in pod.spec.containers)


def observed_containers(text: str) -> list[str]:
    """The containers that the annotation lists; raises :class:`AnnotationError`."""
    if not text:
        return []
    names = text.split(_SEPARATOR)
    for name in names:
        wrong = dns_label_errors(name)
        if wrong:
            raise AnnotationError(f"incorrect format: {name} is not a valid container name: {_go_list(wrong)}")
    return names


def _go_list(items: Iterable[str]) -> str:
    return f"[{' '.join(items)}]"
