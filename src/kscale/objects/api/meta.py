"""Base classes of API objects: metadata, owners, label selectors, conditions and the API server's Status (upstream:
``k8s.io/apimachinery/pkg/apis/meta/v1``).
"""

from typing import Annotated, Any

import msgspec

from kscale.objects.quantity import Quantity

__all__ = [
    "ApiStruct",
    "Condition",
    "CustomWorkload",
    "Int32",
    "Int64",
    "KubeObject",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ObjectMeta",
    "OwnerReference",
    "ResourceList",
    "Status",
    "StatusCause",
    "StatusDetails",
    "is_older_version",
    "object_key",
    "shorten",
]


class ApiStruct(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A Kubernetes API type: snake_case attributes for camelCase JSON; unknown JSON fields are ignored.

    Optional values are ``None`` when absent or null. Lists default to empty; maps whose absence means something else
    than emptiness are ``None`` when absent.
    """


Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""An int32 of the API; a number beyond it is refused when it is decoded, as Go does."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""The same of an int64."""

ResourceList = dict[str, Quantity]
"""Resource name -> quantity."""


def shorten(text: str, max_length: int = 80) -> str:
    """Return the text for a message, cut after ``max_length`` characters with its length appended."""
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text):,} characters)"


# No future annotations: msgspec builds decoders from annotations, and would have to compile texts first.


class OwnerReference(ApiStruct):
    """The owner of an object. At most one reference of an object has ``controller`` true."""

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
    """A label query. An absent selector matches nothing, an empty one everything (:mod:`kscale.objects.selectors`)."""

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
    """An API object with kind and metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """Return ``metadata.name``."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Return ``metadata.namespace``."""
        return self.metadata.namespace

    @property
    def key(self) -> str:
        """Return ``namespace/name``, or ``name`` without a namespace."""
        return object_key(self.metadata.namespace, self.metadata.name)


class CustomWorkload(KubeObject):
    """A workload of a custom kind; what it says is checked where it is used.

    Kinds without a class of their own are read as this class if something in the input shows that they have a scale
    (:func:`~kscale.objects.custom_workloads.scaled_custom_kinds`).
    """

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


def object_key(namespace: str, name: str) -> str:
    """Return upstream's identity of an object, ``namespace/name`` or ``name`` without a namespace."""
    return f"{namespace}/{name}" if namespace else name


def is_older_version(version: str, other: str) -> bool:
    """Check whether a resource version is older than another one.

    False for versions that cannot be compared (upstream: ``apimachinery/pkg/util/resourceversion``).
    """
    return _is_number(version) and _is_number(other) and (len(version), version) < (len(other), other)


def _is_number(version: str) -> bool:
    """Check whether a resource version is a positive decimal number without leading zeros."""
    return version.isascii() and version.isdigit() and not version.startswith("0")


class StatusCause(ApiStruct):
    """One of several reasons for an error."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct):
    """The object, reasons, and retry time of an error."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: Int32 = 0


class Status(ApiStruct):
    """An API error: ``status`` is ``Failure``, ``code`` the HTTP status, ``reason`` a machine-readable word
    (``Expired``).
    """

    api_version: str = ""
    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: Int32 = 0
    details: StatusDetails | None = None
