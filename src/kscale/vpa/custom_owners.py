"""Custom owners and targets in a live cluster, as objects that a cluster read once can hold.

The programs of the VPA ask for the scale of an owner when they need it. A command that reads a cluster once asks for
all of them: :func:`request_custom_owners_steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from kscale.effects import ApiError, Discover, GetScale, Moment, Progress, Steps
from kscale.objects.api.autoscaling import Scale
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import CustomWorkload, KubeObject
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind, group_of, is_custom_group
from kscale.objects.pod_owners import controller_of
from kscale.objects.rest_mapping import RESTMapper, RESTMappingError, ServedResource
from kscale.objects.scale import CustomResourceDefinition, ScalePaths
from kscale.snapshot.cluster import Cluster
from kscale.vpa.controllers import WELL_KNOWN_KINDS

__all__ = ["CustomOwner", "CustomOwners", "find_custom_owners", "request_custom_owners_steps"]

_PATHS: Final = ScalePaths()


class CustomOwner(NamedTuple):
    """An object of a custom kind that owns something, or that a VPA has as its target."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group} {self.namespace}/{self.name}"


class CustomOwners(NamedTuple):
    """What the API server answers about custom owners.

    ``objects``: a definition for each kind that is served, which says whether the kind has a scale, and an object for
    each scale. ``problems``: requests that failed, as texts.
    """

    objects: list[KubeObject]
    problems: list[str]


def find_custom_owners(cluster: Cluster) -> list[CustomOwner]:
    """Return the custom owners of pods and controllers, and the custom targets of VPAs, each once."""
    found: dict[CustomOwner, None] = {}
    for item in _owned(cluster):
        owner = controller_of(item.metadata)
        if owner is not None and _is_custom(owner.api_version, owner.kind):
            found[CustomOwner(group_of(owner.api_version), owner.kind, item.namespace, owner.name)] = None
    for vpa in cluster.all("VerticalPodAutoscaler"):
        target = vpa.spec.target_ref
        if target is not None and _is_custom(target.api_version, target.kind):
            found[CustomOwner(group_of(target.api_version), target.kind, vpa.namespace, target.name)] = None
    return list(found)


def _owned(cluster: Cluster) -> Iterator[KubeObject]:
    pods: Iterable[Pod] = cluster.pods()
    yield from pods
    for kind in sorted(WELL_KNOWN_KINDS):
        yield from cluster.all(kind)


def _is_custom(api_version: str, kind: str) -> bool:
    return kind not in WELL_KNOWN_KINDS and is_custom_group(group_of(api_version))


def request_custom_owners_steps(owners: Iterable[CustomOwner], at_most: int, now: Moment) -> Steps[CustomOwners]:
    """Ask what the server serves, and for the scale of each owner whose kind has one.

    ``at_most``: how many requests are made at a time.
    """
    progress = Progress(now)
    outcome = yield from progress.act(Discover())
    if outcome.error is not None:
        return CustomOwners([], [f"what the server serves: {outcome.error.message}"])
    mapper: RESTMapper = outcome.value
    objects: list[KubeObject] = []
    served: dict[tuple[str, str], ServedResource | None] = {}
    requested: list[tuple[CustomOwner, ServedResource]] = []
    for owner in owners:
        key = owner.group, owner.kind
        if key not in served:
            served[key] = resource = _find_resource(mapper, *key)
            objects += [_build_definition(resource)] if resource is not None else []
        resource = served[key]
        if resource is not None and resource.scale:
            requested.append((owner, resource))
    machines = [partial(_request_scale_steps, owner, resource) for owner, resource in requested]
    answers = (yield from progress.together(machines, at_most=at_most)) if machines else []
    problems = []
    for (owner, resource), answer in zip(requested, answers, strict=True):
        if isinstance(answer, ApiError):
            problems.append(f"the scale of {owner}: {answer.message}")
        else:
            objects.append(_build_workload(owner, resource, answer))
    return CustomOwners(objects, problems)


def _find_resource(mapper: RESTMapper, group: str, kind: str) -> ServedResource | None:
    """Return the resource of a kind, one with a scale first; None if the kind is not served."""
    try:
        resources = [mapper.preferred(name) for name in mapper.resources(group, kind)]
    except RESTMappingError:
        return None
    return next((each for each in resources if each.scale), resources[0])


def _request_scale_steps(owner: CustomOwner, resource: ServedResource, now: Moment) -> Steps[Scale | ApiError]:
    action = GetScale(namespace=owner.namespace, resource=resource.group_resource, name=owner.name)
    outcome = yield from Progress(now).act(action)
    answer: Scale | ApiError = outcome.error if outcome.error is not None else outcome.value
    return answer


def _build_definition(resource: ServedResource) -> CustomResourceDefinition:
    """Build the definition of a kind whose objects hold their scale as :func:`_build_workload` writes it."""
    paths = {
        "specReplicasPath": _PATHS.spec_replicas,
        "statusReplicasPath": _PATHS.status_replicas,
        "labelSelectorPath": _PATHS.label_selector,
    }
    versions = [{"name": resource.version, "subresources": {"scale": paths}}] if resource.scale else []
    names = {"kind": resource.kind, "plural": resource.name}
    return from_dict(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": resource.group_resource},
            "spec": {"group": resource.group, "names": names, "versions": versions},
        },
        CustomResourceDefinition,
    )


def _build_workload(owner: CustomOwner, resource: ServedResource, scale: Scale) -> KubeObject:
    version = resource.api_version
    return from_dict(
        {
            "apiVersion": version,
            "kind": resource.kind,
            "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": scale.metadata.uid},
            "spec": {"replicas": scale.spec.replicas},
            "status": {"replicas": scale.status.replicas, "selector": scale.status.selector},
        },
        find_kind(version, resource.kind) or CustomWorkload,
    )
