"""Leases and admission webhooks (upstream: ``coordination.k8s.io``, ``admissionregistration.k8s.io``)."""

import msgspec

from kscale.objects.api.meta import ApiStruct, KubeObject, LabelSelector

__all__ = [
    "Lease",
    "LeaseSpec",
    "MutatingWebhook",
    "MutatingWebhookConfiguration",
    "RuleWithOperations",
    "ServiceReference",
    "WebhookClientConfig",
]


class LeaseSpec(ApiStruct):
    """Holder and times of a lease. Times are RFC 3339 with microseconds (:func:`kscale.objects.times.micro_time`).

    A candidate may take over a lease that was not renewed for ``lease_duration_seconds`` after ``renew_time``;
    ``lease_transitions`` counts its holders. ``strategy`` and ``preferred_holder`` belong to coordinated elections.
    """

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(KubeObject):
    """A lease (``coordination.k8s.io/v1``)."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ServiceReference(ApiStruct):
    """A service. ``port`` None means 443."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(ApiStruct):
    """Address of a webhook, a URL or a service.

    ``ca_bundle`` are the certificates that signed the webhook's, in PEM and base64.
    """

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = None


class RuleWithOperations(ApiStruct):
    """Operations and resources for which a webhook is called."""

    operations: list[str] = []
    api_groups: list[str] = []
    api_versions: list[str] = []
    resources: list[str] = []
    scope: str | None = None


class MutatingWebhook(ApiStruct):
    """A webhook that may change objects."""

    name: str = ""
    client_config: WebhookClientConfig = msgspec.field(default_factory=WebhookClientConfig)
    rules: list[RuleWithOperations] = []
    failure_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] = []


class MutatingWebhookConfiguration(KubeObject):
    """Configuration of webhooks that may change objects."""

    webhooks: list[MutatingWebhook] = []
