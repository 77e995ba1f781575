"""ProvisioningRequests of a loop: classes, conditions and pods (upstream: ``provisioningrequest``,
``provisioningrequest/supported_classes.go``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from msgspec.structs import replace

from kscale.ca.pod_lists import CONSUME_ANNOTATIONS
from kscale.effects import Delete, Moment, Progress, StepsOf, WriteStatus, moment, to_text
from kscale.objects.api.cluster_autoscaler import ProvisioningRequest
from kscale.objects.api.core import Pod, PodStatus, PodTemplate
from kscale.objects.api.meta import Condition, ObjectMeta, OwnerReference
from kscale.objects.conditions import is_true
from kscale.objects.pod_admission import with_defaults

__all__ = [
    "ACCEPTED_CONDITION",
    "BEST_EFFORT_ATOMIC_CLASS",
    "BOOKING_EXPIRED_CONDITION",
    "CAPACITY_FOUND_MESSAGE",
    "CAPACITY_NOT_FOUND_MESSAGE",
    "CHECK_CAPACITY_CLASS",
    "FAILED_CONDITION",
    "PROVISIONED_CONDITION",
    "PROVISIONING_CLASS_ANNOTATION",
    "LoopRequests",
    "MissingTemplatesError",
    "build_request_pods",
    "has_condition",
    "is_check_capacity_request",
    "is_supported_request",
    "mark_accepted",
    "set_request_condition",
]


CHECK_CAPACITY_CLASS: Final = "check-capacity.autoscaling.x-k8s.io"
BEST_EFFORT_ATOMIC_CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_INSTANCE_PARAMETER: Final = "processorInstance"


def is_supported_request(request: ProvisioningRequest, instance: str = "") -> bool:
    """Check whether this autoscaler handles a request of this class.

    ``instance`` is ``--check-capacity-processor-instance``: with a name, only check-capacity requests are handled.
    """
    if request.spec.provisioning_class_name == BEST_EFFORT_ATOMIC_CLASS:
        return not instance
    return is_check_capacity_request(request, instance)


def is_check_capacity_request(request: ProvisioningRequest, instance: str = "") -> bool:
    """Check whether a request is of the check-capacity class for exactly this instance.

    The instance is a parameter of the request, or (the old form) a prefix of the class name.
    """
    name, wanted = request.spec.provisioning_class_name, (request.spec.parameters or {}).get(_INSTANCE_PARAMETER, "")
    if wanted:
        return wanted == instance and name == CHECK_CAPACITY_CLASS
    return name == instance + CHECK_CAPACITY_CLASS


RequestConditionType = Literal["Accepted", "BookingExpired", "Failed", "Provisioned"]
ACCEPTED_CONDITION: Final[RequestConditionType] = "Accepted"
BOOKING_EXPIRED_CONDITION: Final[RequestConditionType] = "BookingExpired"
FAILED_CONDITION: Final[RequestConditionType] = "Failed"
PROVISIONED_CONDITION: Final[RequestConditionType] = "Provisioned"

CAPACITY_FOUND_MESSAGE: Final = "Capacity is found in the cluster"
CAPACITY_NOT_FOUND_MESSAGE: Final = "Capacity is not found, CA will try to find it later."


def has_condition(request: ProvisioningRequest, *types: RequestConditionType) -> bool:
    """Check whether any of these conditions of the request is True."""
    return any(is_true(request.status.conditions, type_) for type_ in types)


def set_request_condition(
    request: ProvisioningRequest,
    type_: RequestConditionType,
    reason: str,
    message: str,
    now: datetime | Moment,
    *,
    holds: bool = True,
    observed: bool = True,
) -> ProvisioningRequest:
    """Return the request with the condition ``type_``, which replaces the one of the same type.

    Its status is True if ``holds``, otherwise False. The transition time is always ``now``. With ``observed`` the
    condition has the request's generation. Raises InputError if ``now`` is not a time.
    """
    now = moment(now)
    new = Condition(
        type=type_,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=to_text(now),
        observed_generation=(request.metadata.generation or 0) if observed else None,
    )
    conditions = [new if each.type == type_ else each for each in request.status.conditions]
    if new not in conditions:
        conditions.append(new)
    return replace(request, status=replace(request.status, conditions=conditions))


def mark_accepted(request: ProvisioningRequest, now: Moment) -> ProvisioningRequest:
    """Return the request with the condition Accepted."""
    return set_request_condition(
        request, ACCEPTED_CONDITION, "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler", now
    )


PROVISIONING_CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
_REQUEST_API_VERSION: Final = "autoscaling.x-k8s.io/v1"


class MissingTemplatesError(ValueError):
    """Pod sets whose templates are missing, with upstream's message."""


def build_request_pods(request: ProvisioningRequest, templates: Mapping[str, PodTemplate]) -> list[Pod]:
    """Build the pods of all pod sets of a request, with API defaults. ``templates`` are by ``namespace/name``.

    Raises :class:`MissingTemplatesError` if a referenced template is missing.
    """
    sets = request.spec.pod_sets
    names = [pod_set.pod_template_ref.name for pod_set in sets]
    pod_templates = [templates.get(f"{request.namespace}/{name}") for name in names]
    missing = [name for name, template in zip(names, pod_templates, strict=True) if template is None]
    if missing:
        raise MissingTemplatesError(
            f"missing pod templates, {len(sets)} pod templates were referenced, {len(missing)} templates were missing: "
            f"{','.join(missing)}"
        )
    owner = OwnerReference(
        api_version=request.api_version or _REQUEST_API_VERSION,
        kind=request.kind or "ProvisioningRequest",
        name=request.name,
        uid=request.metadata.uid,
        controller=True,
    )
    pods = []
    for number, (pod_set, template) in enumerate(zip(sets, pod_templates, strict=True)):
        assert template is not None
        pod_template = template.template
        spec = with_defaults(pod_template.spec, pod_template.metadata.labels, namespace=request.namespace)
        annotations = {
            **(pod_template.metadata.annotations or {}),
            CONSUME_ANNOTATIONS[0]: request.name,
            PROVISIONING_CLASS_ANNOTATION: request.spec.provisioning_class_name,
        }
        for copy in range(pod_set.count):
            name = f"{request.name}-{number}-{copy}"
            metadata = ObjectMeta(
                name=name,
                generate_name=f"{request.name}-",
                namespace=request.namespace,
                uid=f"{request.namespace}/{name}",
                creation_timestamp=request.metadata.creation_timestamp,
                labels=pod_template.metadata.labels,
                annotations=annotations,
                owner_references=[owner],
                finalizers=pod_template.metadata.finalizers,
            )
            pods.append(Pod(api_version="v1", kind="Pod", metadata=metadata, spec=spec, status=PodStatus()))
    return pods


class LoopRequests:
    """The ProvisioningRequests of a loop in order, and the pod templates by ``namespace/name``.

    A written request is used for the rest of the loop, even if the API server rejects it: upstream changes the object
    in its informer.
    """

    def __init__(self, requests: Iterable[ProvisioningRequest], templates: Mapping[str, PodTemplate]) -> None:
        self._held = {request.key: request for request in requests}
        self._templates = templates

    def __iter__(self) -> Iterator[ProvisioningRequest]:
        return iter(tuple(self._held.values()))

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def get(self, key: str) -> ProvisioningRequest | None:
        """Return the request with the key (``namespace/name``); None if there is none."""
        return self._held.get(key)

    def pods_of(self, request: ProvisioningRequest) -> list[Pod]:
        """Build the pods of a request (:func:`build_request_pods`).

        Raises :class:`~kscale.ca.provisioning_requests.requests.MissingTemplatesError` if a referenced template is
        missing.
        """
        return build_request_pods(request, self._templates)

    def write(self, p: Progress, request: ProvisioningRequest) -> StepsOf[WriteStatus, str]:
        """Write the status of a request. Returns the error message; empty on success.

        Stores the request in this object, even if the write fails, with the resource version of the response if there
        is one.
        """
        outcome = yield from p.act(WriteStatus(request))
        version = outcome.value or request.metadata.resource_version
        self._held[request.key] = replace(request, metadata=replace(request.metadata, resource_version=version))
        return "" if outcome.error is None else outcome.error.message

    def delete(self, p: Progress, request: ProvisioningRequest) -> StepsOf[Delete, str]:
        """Delete a request.

        Returns the error message; empty on success, when the request is also removed from this object.
        """
        about = request.metadata
        deletion = Delete(
            kind="ProvisioningRequest",
            api_version="autoscaling.x-k8s.io/v1",
            namespace=about.namespace,
            name=about.name,
            uid=about.uid,
        )
        outcome = yield from p.act(deletion)
        if outcome.error is not None:
            return outcome.error.message
        del self._held[request.key]
        return ""
