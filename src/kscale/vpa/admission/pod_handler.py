"""Patches for a new pod, and the VPA that controls it (upstream: ``admission-controller/resource/pod``,
``resource/vpa/matcher.go``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from kscale.effects import ZERO_TIME, GetScale, Moment, PatchOperation, Progress, StepsOf, moment
from kscale.errors import InputError
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import ContainerPolicies, VerticalPodAutoscaler, update_mode
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.kinds import check_kind
from kscale.objects.names import FieldError, internal
from kscale.objects.selectors import Selector
from kscale.vpa.capping import CappingError, LimitRangeLookup
from kscale.vpa.container_resources import (
    OBSERVED_CONTAINERS_ANNOTATION,
    VPA_UPDATES_ANNOTATION,
    BoostError,
    ContainerResources,
    ProviderError,
    add_annotation,
    apply_boost,
    ensure_annotations,
    escape_json_pointer,
    format_observed_containers,
    has_empty_boost,
    has_startup_boost,
    recommend_container_resources,
)
from kscale.vpa.controllers import WELL_KNOWN_KINDS, ControllerKey, Controllers, TargetError, run_without_requests
from kscale.vpa.options import CPU_STARTUP_BOOST_GATE, AdmissionOptions, is_gate_enabled
from kscale.vpa.resources import CurrentResources, order_resources
from kscale.vpa.target import (
    find_controlling_vpa,
    find_topmost_owner_steps,
    get_pod_owner,
    resolve_target_selector_steps,
)

__all__ = ["PodAdmission", "VpaIndex", "admit_pod", "admit_pod_steps", "patch_pod", "read_review_pod"]


_TargetKey = tuple[str, str, str]  # namespace, kind, name
_CACHED_MATCHES: Final = 4096


class VpaIndex:
    """Index of VPAs by the controller that they target.

    ``vpas``: the initial VPAs; :meth:`apply` and :meth:`remove` change the index. Not safe for concurrent use.

    The VPA of pods with the same owner and labels is cached until the spec of a VPA, an owner, a selector or a scale
    changes.
    """

    __slots__ = ("_by_target", "_changes", "_matches", "_target_of", "_version")

    def __init__(self, vpas: Iterable[VerticalPodAutoscaler] = ()) -> None:
        self._by_target: dict[_TargetKey, dict[tuple[str, str], VerticalPodAutoscaler]] = {}
        self._target_of: dict[tuple[str, str], _TargetKey] = {}
        self._changes = 0
        self._matches: dict[bytes, tuple[str, str] | None] = {}
        """Namespace and name of the VPA by the digest of a pod's owner and labels; as of ``_version``."""
        self._version: object = None
        for vpa in vpas:
            self.apply(vpa)

    def __len__(self) -> int:
        return len(self._target_of)

    def __repr__(self) -> str:
        return f"<VpaIndex: {len(self)} VPAs with a target>"

    def apply(self, vpa: VerticalPodAutoscaler) -> None:
        """Add a VPA, or replace the one of the same namespace and name.

        A VPA without a target is not added, and an earlier version of it is removed.
        """
        key, target = (vpa.namespace, vpa.name), vpa.spec.target_ref
        place = None if target is None else (vpa.namespace, target.kind, target.name)
        if self._target_of.get(key) != place:
            self.remove(*key)
        if place is not None:
            known = self._by_target.setdefault(place, {})
            if _may_change_pods(known.get(key), vpa):
                self._changes += 1
            known[key] = vpa
            self._target_of[key] = place

    def remove(self, namespace: str, name: str) -> None:
        """Remove a VPA; a missing one is ignored."""
        place = self._target_of.pop((namespace, name), None)
        if place is not None:
            self._changes += 1
            known = self._by_target[place]
            del known[namespace, name]
            if not known:
                del self._by_target[place]

    def targeting(self, controller: ControllerKey) -> list[VerticalPodAutoscaler]:
        """Return the VPAs that target a controller, whatever its ``apiVersion``."""
        return list(self._by_target.get((controller.namespace, controller.kind, controller.name), {}).values())

    def match_steps(
        self, pod: Pod, controllers: Controllers, progress: Progress, diagnostics: list[str] | None = None
    ) -> StepsOf[GetScale, VerticalPodAutoscaler | None]:
        """Find the strongest VPA that targets the pod's topmost controller; None if there is none.

        VPAs in mode Off count only with a startup boost. Unknown scales are requested through ``progress``.
        ``diagnostics`` receives what upstream logs if it finds no controller or selector. Raises InputError if several
        VPAs match and the creation time of one is malformed.
        """
        owner = get_pod_owner(pod)
        if owner is None:
            return None
        diagnostics = [] if diagnostics is None else diagnostics
        version = self._get_version(controllers)
        if version is None:
            return (yield from self._find_steps(pod, controllers, progress, diagnostics))[0]
        if version != self._version:
            self._matches, self._version = {}, version
        digest = hashlib.blake2b(_ENCODER.encode((owner, pod.metadata.labels)), digest_size=32).digest()
        if digest in self._matches:
            key = self._matches[digest]
            return None if key is None else self._by_target[self._target_of[key]][key]
        vpa, is_final = yield from self._find_steps(pod, controllers, progress, diagnostics)
        if is_final and version == self._version == self._get_version(controllers):  # unchanged during requests
            if len(self._matches) >= _CACHED_MATCHES:
                del self._matches[next(iter(self._matches))]
            self._matches[digest] = None if vpa is None else (vpa.namespace, vpa.name)
        return vpa

    def _get_version(self, controllers: Controllers) -> tuple[object, ...] | None:
        """Return a value that differs after each change of VPAs or controllers that may change a match.

        None if ``controllers`` does not count its changes.
        """
        version = controllers.version
        return None if version is None else (self._changes, *version)

    def _find_steps(
        self, pod: Pod, controllers: Controllers, progress: Progress, diagnostics: list[str]
    ) -> StepsOf[GetScale, tuple[VerticalPodAutoscaler | None, bool]]:
        """Find the VPA of a pod without the cache. Returns (the VPA or None, whether the result may be cached).

        The result may not be cached if an owner or selector cannot be resolved, which adds a message to
        ``diagnostics``, or if the selector is that of a scale, which is requested for each pod as upstream does.
        """
        try:
            parent = yield from find_topmost_owner_steps(pod, controllers, progress)
        except TargetError as error:
            diagnostics.append(f"Failed to get parent controller for pod {pod.key}: {error}")
            return None, False
        if parent is None:
            return None, True
        is_final = parent.kind in WELL_KNOWN_KINDS
        candidates: list[tuple[VerticalPodAutoscaler, Selector]] = []
        for vpa in self.targeting(parent):
            if update_mode(vpa) == "Off" and not has_startup_boost(vpa):
                continue
            try:
                candidates.append((vpa, (yield from resolve_target_selector_steps(vpa, controllers, progress))))
            except TargetError as error:
                diagnostics.append(f"Skipping VPA object {vpa.key} because we cannot fetch selector: {error}")
                is_final = False
        return find_controlling_vpa(pod, parent, candidates), is_final


_ENCODER: Final = msgspec.msgpack.Encoder()


def _may_change_pods(before: VerticalPodAutoscaler | None, after: VerticalPodAutoscaler) -> bool:
    """Check whether a change of a VPA may change the pods that it controls; its status does not.

    ``before``: None for a new VPA.
    """
    return (
        before is None
        or before is after  # it may have been changed in place
        or before.spec != after.spec
        or before.metadata.creation_timestamp != after.metadata.creation_timestamp
    )


_ROOT_PATH: Final = "."


class PodAdmission(msgspec.Struct, kw_only=True):
    """Result of the admission of a pod. The pod is always allowed; with an error nothing is patched.

    - ``vpa``: the controlling VPA; None if there is none, or if the pod cannot be read.
    - ``patches``: the JSON patch, in the order of application; empty without a VPA and with an error.
    - ``errors``: why nothing is patched, in upstream's words (one ``InternalError`` for the pod); empty without error.
    - ``diagnostics``: what upstream logs about owners and targets that it cannot resolve, and what it would have
      crashed on.
    """

    vpa: VerticalPodAutoscaler | None = None
    patches: list[PatchOperation] = []
    errors: list[FieldError] = []
    diagnostics: list[str] = []
    allowed: bool = True

    def __repr__(self) -> str:
        summary = "; ".join(map(str, self.errors)) or f"{len(self.patches)} patches"
        return f"<PodAdmission by {self.vpa.key if self.vpa is not None else 'no VPA'}: {summary}>"


@typed
def admit_pod(
    pod: Pod | Mapping[str, Any],
    vpas: VpaIndex | Iterable[VerticalPodAutoscaler],
    *,
    namespace: str = "",
    controllers: Controllers | None = None,
    limit_ranges: LimitRangeLookup | None = None,
    options: AdmissionOptions | None = None,
) -> PodAdmission:
    """Compute what the webhook does to a pod that is about to be created.

    Parameters
    ----------
    pod : Pod or mapping
        The pod.
    vpas : VpaIndex or iterable of VerticalPodAutoscaler
        An index, or VPAs to index.
    namespace : str
        Namespace of the request; it replaces that of a pod without a name, as upstream does, and is otherwise ignored.
    controllers : Controllers, optional
        Controllers of pods. :func:`~kscale.vpa.read_controllers` returns those of a dump, including owners of custom
        kinds. Default: none.
    limit_ranges : LimitRangeLookup, optional
        Limit ranges. Default: none.
    options : AdmissionOptions, optional
        Options of the admission controller.

    Returns
    -------
    PodAdmission
        Patches and messages. A pod that cannot be read is an error of the result.

    Raises
    ------
    ScaleNeededError
        If ``controllers`` lacks a scale that must be requested (:func:`admit_pod_steps` requests it).
    InputError
        If several VPAs match the pod, and the creation time of one is malformed.
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
    return run_without_requests(steps)[0]


@typed
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
    """Run :func:`admit_pod` as a step machine, which requests unknown scales. ``now`` is the start time."""
    read = read_review_pod(pod, namespace)
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


def read_review_pod(pod: Pod | Mapping[str, Any], namespace: str = "") -> Pod | PodAdmission:
    """Return the pod of a review as a struct; if it cannot be read, return an admission with the error.

    As upstream, a pod without a name gets its ``generateName`` followed by ``%`` as its name, and ``namespace`` as its
    namespace.
    """
    try:
        if isinstance(pod, Pod):
            read = pod
        else:
            check_kind(pod, Pod)
            read = from_dict(pod, Pod)
    except InputError as error:
        return PodAdmission(errors=[internal(_ROOT_PATH, error.problems[0].message)])
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
    """Return the patches of a pod by the VPA that controls it, or the error if they cannot be computed."""
    options = options or AdmissionOptions()
    try:
        resources, diagnostics = _build_resource_patches(pod, vpa, limit_ranges, options)
    except (BoostError, CappingError, ProviderError) as error:
        return PodAdmission(vpa=vpa, errors=[internal(_ROOT_PATH, str(error))])
    observed = add_annotation(OBSERVED_CONTAINERS_ANNOTATION, format_observed_containers(pod))
    patches = [*ensure_annotations(pod), *resources, observed]
    return PodAdmission(vpa=vpa, patches=patches, diagnostics=diagnostics)


def _build_resource_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, limit_ranges: LimitRangeLookup | None, options: AdmissionOptions
) -> tuple[list[PatchOperation], list[str]]:
    """Return the patches of the containers' resources and of the annotation about them, and diagnostics.

    In update mode Off boosts count, recommendations do not. With the boost's gate, containers whose policy is Off get
    no patches. Raises ProviderError if the resources cannot be computed, and BoostError if a boost cannot be.
    """
    try:
        wanted, notes, diagnostics = recommend_container_resources(pod, vpa, limit_ranges)
    except (CappingError, ProviderError) as error:
        where = f"{pod.namespace}/{pod.name}"
        raise ProviderError(f"failed to calculate resource patch for pod {where}: {error}") from None
    if update_mode(vpa) == "Off":
        wanted, notes = [ContainerResources() for _ in wanted], {}
    boosting = is_gate_enabled(options.feature_gates, CPU_STARTUP_BOOST_GATE)
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
            if has_empty_boost(container.name, vpa, policies):
                diagnostics.append(f"container {container.name}: a startupBoost without cpu boosts nothing")
        own, note = _build_container_patches(i, current.get(container.name), resources, notes.get(container.name, []))
        if own:
            patches += own
            updates.append(note)
    if updates:
        patches.append(
            add_annotation(VPA_UPDATES_ANNOTATION, f"Pod resources updated by {vpa.name}: {'; '.join(updates)}")
        )
    return patches, diagnostics


def _build_container_patches(
    index: int,
    current: tuple[ResourceList | None, ResourceList | None],
    wanted: ContainerResources,
    notes: list[str],
) -> tuple[list[PatchOperation], str]:
    """Return the patches of container ``index``, and the text about this container in the pod's annotation.

    ``current``: the container's (requests, limits). If both are None, a patch adds empty resources, even if ``wanted``
    has none. ``wanted``: the resources to set. ``notes``: notes on the recommendation, with which the text begins.
    """
    requests, limits = current
    path = f"/spec/containers/{index}/resources"
    patches: list[PatchOperation] = []
    texts = list(notes)
    if requests is None and limits is None:
        patches.append(PatchOperation("add", path, {}))
    for old, new, field, word in (
        (requests, wanted.requests, "requests", "request"),
        (limits, wanted.limits, "limits", "limit"),
    ):
        patches += build_value_patches(f"{path}/{field}", old, new)
        texts += [f"{name} {word}" for name in order_resources(new or {})]
    return patches, f"container {index}: {', '.join(texts)}"


def build_value_patches(path: str, current: ResourceList | None, new: ResourceList | None) -> list[PatchOperation]:
    """Build the patches that set the resources ``new`` below ``path``, a JSON pointer to requests or limits.

    The first patch creates the object at ``path`` if ``current`` is None. Empty if ``new`` is empty or None.
    """
    if not new:
        return []
    patches = [PatchOperation("add", path, {})] if current is None else []
    return patches + [
        PatchOperation("add", f"{path}/{escape_json_pointer(name)}", str(new[name])) for name in order_resources(new)
    ]
