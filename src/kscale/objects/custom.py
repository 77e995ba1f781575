"""Custom resources that have a scale: their definitions, and objects of kinds that only a definition describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kscale.objects.meta import KubeObject
from kscale.objects.rest_mapping import AUTOSCALING_V1, ServedResource
from kscale.objects.scale import ScalePaths, definition_of

__all__ = ["CustomObject", "CustomResource", "custom_resources"]


class CustomObject(KubeObject):
    """An object of a custom kind: plain data below ``spec`` and ``status``, where the paths of a scale lie."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class CustomResource(msgspec.Struct, frozen=True):
    """One version of a custom kind that has a scale. ``paths``: where its scale reads and writes."""

    resource: ServedResource
    paths: ScalePaths

    @property
    def kind(self) -> str:
        """The kind of its objects."""
        return self.resource.kind

    @property
    def group(self) -> str:
        """The API group."""
        return self.resource.group


def custom_resources(definition: Mapping[str, Any]) -> list[CustomResource]:
    """Return the versions of a CustomResourceDefinition (plain data) that have a scale, in its order.

    Raises ``InputError`` for odd shapes.
    """
    group, kind, plural, paths = definition_of(definition)
    return [
        CustomResource(ServedResource(group, version, kind, plural, True, AUTOSCALING_V1), each)
        for version, each in paths.items()
    ]
