"""A request as pods (``provisioningrequest/pods``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kscale.ca.pod_lists.enforcer import CONSUME_ANNOTATIONS
from kscale.objects.core import Pod, PodStatus, PodTemplate
from kscale.objects.meta import ObjectMeta, OwnerReference
from kscale.objects.pod_defaults import with_defaults
from kscale.objects.provisioning_requests import ProvisioningRequest

__all__ = ["CLASS_ANNOTATION", "MissingTemplatesError", "pods_of_request"]

CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
_API_VERSION: Final = "autoscaling.x-k8s.io/v1"


class MissingTemplatesError(ValueError):
    """Pod sets whose templates are not there, in upstream's words."""


def pods_of_request(request: ProvisioningRequest, templates: Mapping[str, PodTemplate]) -> list[Pod]:
    """The pods of all its sets, as the API server would fill them in. ``templates`` by ``namespace/name``.

    Raises :class:`MissingTemplatesError`.
    """
    sets = request.spec.pod_sets
    names = [pod_set.pod_template_ref.name for pod_set in sets]
    found = [templates.get(f"{request.namespace}/{name}") for name in names]
    missing = [name for name, template in zip(names, found, strict=True) if template is None]
    if missing:
        raise MissingTemplatesError(
            f"missing pod templates, {len(sets)} pod templates were referenced, {len(missing)} templates were missing: "
            f"{','.join(missing)}"
        )
    owner = OwnerReference(
        api_version=request.api_version or _API_VERSION,
        kind=request.kind or "ProvisioningRequest",
        name=request.name,
        uid=request.metadata.uid,
        controller=True,
    )
    pods = []
    for number, (pod_set, template) in enumerate(zip(sets, found, strict=True)):
        assert template is not None
        made = template.template
        spec = with_defaults(made.spec, made.metadata.labels, namespace=request.namespace)
        annotations = {
            **(made.metadata.annotations or {}),
            CONSUME_ANNOTATIONS[0]: request.name,
            CLASS_ANNOTATION: request.spec.provisioning_class_name,
        }
        for copy in range(pod_set.count):
            name = f"{request.name}-{number}-{copy}"
            metadata = ObjectMeta(
                name=name,
                generate_name=f"{request.name}-",
                namespace=request.namespace,
                uid=f"{request.namespace}/{name}",
                creation_timestamp=request.metadata.creation_timestamp,
                labels=made.metadata.labels,
                annotations=annotations,
                owner_references=[owner],
                finalizers=made.metadata.finalizers,
            )
            pods.append(Pod(api_version="v1", kind="Pod", metadata=metadata, spec=spec, status=PodStatus()))
    return pods
