"""Patches for a new pod (``admission-controller/resource/pod``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from kscale.effects import ZERO_TIME, GetScale, Moment, PatchOperation, Progress, StepsOf, moment
from kscale.errors import InputError
from kscale.objects.base import ResourceList
from kscale.objects.core import Pod
from kscale.objects.decode import from_dict
from kscale.objects.field_errors import FieldError, internal
from kscale.objects.kind_check import check_kind
from kscale.objects.vpa import ContainerPolicies, VerticalPodAutoscaler, update_mode
from kscale.vpa.admission.matching import VpaIndex
from kscale.vpa.capping import CappingError
from kscale.vpa.container_resources import ContainerResources, ProviderError, containers_resources
from kscale.vpa.controllers import Controllers
from kscale.vpa.limit_range import LimitRangeLookup
from kscale.vpa.options import CPU_STARTUP_BOOST, AdmissionOptions, gate
from kscale.vpa.patches import (
    OBSERVED_CONTAINERS,
    VPA_UPDATES,
    annotate,
    ensure_annotations,
    escape,
    observed_text,
)
from kscale.vpa.resources import CurrentResources, resource_order
from kscale.vpa.scales import without_asking
from kscale.vpa.startup_boost import BoostError, apply_boost, boosts_nothing

__all__ = ["PodAdmission", "admit_pod", "admit_pod_steps", "patch_pod", "read_pod"]

_ROOT: Final = "."


class PodAdmission(msgspec.Struct, kw_only=True):
    """What is done to a pod. It is always allowed; an error means that nothing is patched.

    - ``vpa``: the one in charge; None: there is none, or the pod cannot be read.
    - ``patches``: the JSON patch, in the order in which it applies; empty without a VPA and where there is an error.
    - ``errors``: why nothing is patched, in upstream's words (one ``InternalError`` of the whole pod); empty: nothing
      went wrong.
    - ``diagnostics``: what upstream logs about owners and targets that it cannot resolve, and what it would have
      crashed on.
    """

    vpa: VerticalPodAutoscaler | None = None
    patches: list[PatchOperation] = []
    errors: list[FieldError] = []
    diagnostics: list[str] = []
    allowed: bool = True

    def __repr__(self) -> str:
        said = "; ".join(map(str, self.errors)) or f"{len(self.patches)} patches"
        return f"<PodAdmission by {self.vpa.key if self.vpa is not None else 'no VPA'}: {said}>"


def admit_pod(
    pod: Pod | Mapping[str, Any],
    vpas: VpaIndex | Iterable[VerticalPodAutoscaler],
    *,
    namespace: str = "",
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> PodAdmission:
    """What the webhook does to a pod about to be created in ``namespace``.

    ``vpas``: an index that is kept, or VPAs to be indexed; ``controllers``, ``limit_ranges``: none by default
    (:func:`~kscale.vpa.controllers_of` takes those of a dump, owners of custom kinds included). Raises
    :class:`~kscale.vpa.scales.ScaleNeededError` where ``controllers`` would have to ask for a scale
    (:func:`admit_pod_steps` does).
    """
    steps = admit_pod_steps(
        pod,
        vpas,
        now=ZERO_TIME,
        namespace=namespace,
        controllers=controllers,
        limit_ranges=limit_ranges,
        options=options,
    )
    return without_asking(steps)[0]


def admit_pod_steps(
    pod: Pod | Mapping[str, Any],
    vpas: VpaIndex | Iterable[VerticalPodAutoscaler],
    *,
    now: datetime | Moment,
    namespace: str = "",
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> StepsOf[GetScale, PodAdmission]:
    """The same for a pod made in ``namespace``, as a step machine, which asks for the scales that are not known."""
    read = read_pod(pod, namespace)
    if isinstance(read, PodAdmission):
        return read
    index = vpas if isinstance(vpas, VpaIndex) else VpaIndex(vpas)
    known = controllers if controllers is not None else Controllers()
    unmatched: list[str] = []
    vpa = yield from index.match_steps(read, known, Progress(moment(now)), unmatched)
    if vpa is None:
        return PodAdmission(diagnostics=unmatched)
    admitted = patch_pod(read, vpa, limit_ranges, options)
    admitted.diagnostics = [*unmatched, *admitted.diagnostics]
    return admitted


def read_pod(pod: Pod | Mapping[str, Any], namespace: str = "") -> Pod | PodAdmission:
    """Return the pod of a review, or, if it cannot be read, the admission that says so.

    A pod without a name gets the beginning of its generated name, and ``namespace``, as upstream does.
    """
    try:
        if isinstance(pod, Pod):
            read = pod
        else:
            check_kind(pod, Pod)
            read = from_dict(pod, Pod)
    except InputError as error:
        return PodAdmission(errors=[internal(_ROOT, error.problems[0].message)])
    if read.metadata.name:
        return read
    metadata = msgspec.structs.replace(read.metadata, name=f"{read.metadata.generate_name}%", namespace=namespace)
    return msgspec.structs.replace(read, metadata=metadata)


def patch_pod(
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> PodAdmission:
    """Return the patches that the VPA in charge of a pod makes."""
    options = options or AdmissionOptions()
    try:
        resources, diagnostics = _resource_patches(pod, vpa, limit_ranges, options)
    except (BoostError, CappingError, ProviderError) as error:
        return PodAdmission(vpa=vpa, errors=[internal(_ROOT, str(error))])
    observed = annotate(OBSERVED_CONTAINERS, observed_text(pod))
    patches = [*ensure_annotations(pod), *resources, observed]
    return PodAdmission(vpa=vpa, patches=patches, diagnostics=diagnostics)


def _resource_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, options: AdmissionOptions
) -> tuple[list[PatchOperation], list[str]]:
    try:
        wanted, notes, diagnostics = containers_resources(pod, vpa, limit_ranges)
    except (CappingError, ProviderError) as error:
        where = f"{pod.namespace}/{pod.name}"
        raise ProviderError(f"failed to calculate resource patch for pod {where}: {error}") from None
    if update_mode(vpa) == "Off":
        wanted, notes = [ContainerResources() for _ in wanted], {}
    boosting = gate(options.feature_gates, CPU_STARTUP_BOOST)
    current, policies = CurrentResources(pod), ContainerPolicies(vpa.spec.resource_policy)
    patches: list[PatchOperation] = []
    updates: list[str] = []
    for i, (container, resources) in enumerate(zip(pod.spec.containers, wanted, strict=True)):
        if boosting:
            policy = policies.get(container.name)
            if policy is not None and policy.mode == "Off":
                continue
            resources, boost = apply_boost(container, vpa, policies, resources, options.max_allowed_cpu_boost)
            patches += boost
            if boosts_nothing(container.name, vpa, policies):
                diagnostics.append(f"container {container.name}: a startupBoost without cpu boosts nothing")
        own, note = _container_patches(i, current.get(container.name), resources, notes.get(container.name, []))
        if own:
            patches += own
            updates.append(note)
    if updates:
        patches.append(annotate(VPA_UPDATES, f"Pod resources updated by {vpa.name}: {'; '.join(updates)}"))
    return patches, diagnostics


def _container_patches(
    index: int,
    current: tuple[ResourceList | None, ResourceList | None],
    wanted: ContainerResources,
    notes: list[str],
) -> tuple[list[PatchOperation], str]:
    requests, limits = current
    path = f"/spec/containers/{index}/resources"
    patches: list[PatchOperation] = []
    said = list(notes)
    if requests is None and limits is None:
        patches.append(PatchOperation("add", path, {}))
    for old, new, field, word in (
        (requests, wanted.requests, "requests", "request"),
        (limits, wanted.limits, "limits", "limit"),
    ):
        patches += value_patches(f"{path}/{field}", old, new)
        said += [f"{name} {word}" for name in resource_order(new or {})]
    return patches, f"container {index}: {', '.join(said)}"


def value_patches(path: str, current: ResourceList | None, new: ResourceList | None) -> list[PatchOperation]:
    """Set resources below ``path``, which is made first where it does not exist."""
    if not new:
        return []
    patches = [PatchOperation("add", path, {})] if current is None else []
    return patches + [PatchOperation("add", f"{path}/{escape(name)}", str(new[name])) for name in resource_order(new)]
