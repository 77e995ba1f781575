"""Custom resources in a scenario: those that an HPA scales, with their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.custom import CustomObject, CustomResource, custom_resources
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind, group_of
from kscale.objects.meta import KubeObject
from kscale.objects.rest_mapping import BUILT_IN
from kscale.snapshot.sources import RawObject, Source, read
from kscale.world.simulated.custom_resources import pod_template_problem

__all__ = ["CustomObjects", "custom_objects"]

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")


class CustomObjects(msgspec.Struct, kw_only=True):
    """``resources``: the custom kinds that HPAs scale; ``objects``: the objects of these kinds.

    ``warnings``: HPAs whose targets cannot be simulated, and why.
    """

    resources: list[CustomResource] = []
    objects: list[CustomObject] = []
    warnings: list[str] = []


def custom_objects(objects: Sequence[KubeObject], sources: Iterable[Source]) -> CustomObjects:
    """Return the custom resources that HPAs among ``objects`` scale; ``sources``: where all objects were read from.

    Sources are read again only if an HPA names a kind that is not built in. Raises InputError for definitions and
    objects that cannot be read.
    """
    wanted = {
        (group_of(reference.api_version), reference.kind)
        for item in objects
        for reference in [_target(item)]
        if reference is not None
    } - {(each.group, each.kind) for each in BUILT_IN}
    if not wanted:
        return CustomObjects()
    found = CustomObjects()
    problems: list[Problem] = []
    for record in read(*sources):
        if not isinstance(record, RawObject) or not isinstance(record.data, (msgspec.Raw, dict)):
            continue
        kind = group_of(record.api_version), record.kind
        if kind != _DEFINITION and (kind not in wanted or find_kind(record.api_version, record.kind) is not None):
            continue
        try:
            data = _plain(record)
            if kind == _DEFINITION:
                found.resources += [each for each in custom_resources(data) if (each.group, each.kind) in wanted]
            else:
                found.objects.append(_object(data))
        except InputError as error:
            problems += [
                Problem(each.message, record.source, f"{record.kind} {record.where}".strip(), each.field)
                for each in error.problems
            ]
    if problems:
        raise InputError(problems)
    _check(objects, found)
    return found


def _target(item: KubeObject) -> Any:
    if isinstance(item, HorizontalPodAutoscaler | HorizontalPodAutoscalerV1):
        return item.spec.scale_target_ref
    return None


def _plain(record: RawObject) -> dict[str, Any]:
    if isinstance(record.data, msgspec.Raw):
        data: dict[str, Any] = msgspec.json.decode(record.data, type=dict[str, Any])
        return data
    assert isinstance(record.data, dict)
    return record.data


def _object(data: dict[str, Any]) -> CustomObject:
    named = from_dict(data, CustomObject)
    if named.metadata.namespace:
        return named
    return from_dict({**data, "metadata": {**data.get("metadata", {}), "namespace": "default"}}, CustomObject)


def _check(objects: Sequence[KubeObject], found: CustomObjects) -> None:
    """Drop objects of kinds without a scale, and warn of each HPA whose target cannot be simulated."""
    scaled = {(each.group, each.kind) for each in found.resources}
    found.objects = [each for each in found.objects if (group_of(each.api_version), each.kind) in scaled]
    built_in = {(each.group, each.kind) for each in BUILT_IN}
    there = {(each.kind, each.key): each for each in found.objects}
    for item in objects:
        reference = _target(item)
        if reference is None or (group_of(reference.api_version), reference.kind) in built_in:
            continue
        why = ""
        if (group_of(reference.api_version), reference.kind) not in scaled:
            why = f"there is no CustomResourceDefinition of {reference.kind} with a scale"
        else:
            target = there.get((reference.kind, f"{item.namespace or 'default'}/{reference.name}"))
            why = "it is not there" if target is None else pod_template_problem(target)
        if why:
            named = f"HorizontalPodAutoscaler {item.namespace or 'default'}/{item.name}"
            found.warnings.append(f"{named}: its target {reference.kind} {reference.name} is not simulated: {why}")
