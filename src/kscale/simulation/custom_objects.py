"""Custom resources in a scenario: those that an HPA scales, with their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.custom import CustomObject, CustomResource, custom_resources
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import find_kind, group_of
from kscale.objects.meta import KubeObject
from kscale.objects.rest_mapping import BUILT_IN
from kscale.objects.scale import ScaleError, scale_of, scale_path_problems
from kscale.snapshot.sources import RawObject, Source, read
from kscale.world.simulated.custom_resources import pod_template_problem

__all__ = ["CustomObjects", "custom_objects"]

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")


class CustomObjects(msgspec.Struct, kw_only=True):
    """``resources``: the custom kinds that HPAs scale; ``objects``: the objects of these kinds.

    ``warnings``: HPAs whose targets cannot be simulated or scaled, and why. ``unscaled``: why the objects of a custom
    kind make no pods, by kind.
    """

    resources: list[CustomResource] = []
    objects: list[CustomObject] = []
    warnings: list[str] = []
    unscaled: dict[str, str] = {}


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
    custom = CustomObjects()
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
                scaled = [each for each in custom_resources(data) if (each.group, each.kind) in wanted]
                wrong = scale_path_problems(data) if scaled else []
                if wrong:
                    raise InputError(wrong)
                custom.resources += scaled
            else:
                custom.objects.append(_object(data))
        except InputError as error:
            problems += [
                Problem(each.message, record.source, f"{record.kind} {record.where}".strip(), each.field)
                for each in error.problems
            ]
    if problems:
        raise InputError(problems)
    custom.unscaled = _unscaled(custom)
    _check(objects, custom)
    return custom


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


def _unscaled(found: CustomObjects) -> dict[str, str]:
    """Return why the objects of kinds without a scale make no pods, by kind."""
    scaled = {(each.group, each.kind) for each in found.resources}
    return {
        each.kind: f"there is no CustomResourceDefinition of {each.kind} with a scale"
        for each in found.objects
        if (group_of(each.api_version), each.kind) not in scaled
    }


def _scale_problem(target: CustomObject, resource: CustomResource) -> str:
    """Return what is wrong with the scale of an object, as its ``/scale`` answers; empty if nothing is."""
    try:
        scale = scale_of(to_dict(target), resource.paths)
    except ScaleError as error:
        return f"cannot be scaled: {error}"
    if scale.spec.replicas < 0:
        return f"has a negative size: {resource.paths.spec_replicas} is {scale.spec.replicas}"
    if not resource.paths.label_selector:
        return "cannot be scaled: its CustomResourceDefinition has no labelSelectorPath, by which an HPA finds the pods"
    return ""


def _check(objects: Sequence[KubeObject], found: CustomObjects) -> None:
    """Drop objects of kinds without a scale, and warn of each HPA whose target cannot be simulated."""
    scaled = {(each.group, each.kind): each for each in reversed(found.resources)}
    found.objects = [each for each in found.objects if (group_of(each.api_version), each.kind) in scaled]
    built_in = {(each.group, each.kind) for each in BUILT_IN}
    there = {(each.kind, each.key): each for each in found.objects}
    for item in objects:
        reference = _target(item)
        if reference is None or (group_of(reference.api_version), reference.kind) in built_in:
            continue
        key = group_of(reference.api_version), reference.kind
        target = there.get((reference.kind, f"{item.namespace or 'default'}/{reference.name}"))
        if key not in scaled:
            problem = f"is not simulated: there is no CustomResourceDefinition of {reference.kind} with a scale"
        elif target is None:
            problem = "is not simulated: it is not there"
        elif why := pod_template_problem(target):
            problem = f"is not simulated: {why}"
        else:
            problem = _scale_problem(target, scaled[key])
        if problem:
            named = f"HorizontalPodAutoscaler {item.namespace or 'default'}/{item.name}"
            found.warnings.append(f"{named}: its target {reference.kind} {reference.name} {problem}")
