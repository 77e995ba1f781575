"""What every object carries: names, labels, owners (upstream: ``k8s.io/apimachinery/pkg/apis/meta/v1``)."""

# Annotations are values here: msgspec makes decoders of them, and a text would have to be compiled first.

import msgspec

from kscale.objects.base import ApiStruct, Int64

__all__ = [
    "Condition",
    "KubeObject",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ObjectMeta",
    "OwnerReference",
    "object_key",
]


class OwnerReference(ApiStruct):
    """Who an object belongs to; at most one reference of an object has ``controller`` true."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct):
    """Identity, labels, owners and life span. Times are RFC 3339 texts (:mod:`kscale.objects.times`)."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class LabelSelectorRequirement(ApiStruct):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(ApiStruct):
    """A label query; an absent selector matches nothing, an empty one everything (:mod:`kscale.objects.selectors`)."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] = []


class Condition(ApiStruct):
    """One observation in a status: ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_heartbeat_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: Int64 | None = None


class KubeObject(ApiStruct):
    """An object of the API: has a kind and metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of an object without namespace."""
        return object_key(self.metadata.namespace, self.metadata.name)


def object_key(namespace: str, name: str) -> str:
    """How upstream writes the identity of an object: ``namespace/name``, or ``name``."""
    return f"{namespace}/{name}" if namespace else name
