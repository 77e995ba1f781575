"""Webhooks that an API server asks (``admissionregistration.k8s.io/v1``)."""

from __future__ import annotations

import msgspec

from kscale.objects.base import ApiStruct
from kscale.objects.meta import KubeObject, LabelSelector

__all__ = [
    "MutatingWebhook",
    "MutatingWebhookConfiguration",
    "RuleWithOperations",
    "ServiceReference",
    "WebhookClientConfig",
]


class ServiceReference(ApiStruct):
    """A service; ``port`` None: 443."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(ApiStruct):
    """Where a webhook is: a URL or a service. ``ca_bundle``: who signed its certificate, PEM in base64."""

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = None


class RuleWithOperations(ApiStruct):
    """What a webhook is asked about."""

    operations: list[str] = []
    api_groups: list[str] = []
    api_versions: list[str] = []
    resources: list[str] = []
    scope: str | None = None


class MutatingWebhook(ApiStruct):
    """One webhook that may change objects."""

    name: str = ""
    client_config: WebhookClientConfig = msgspec.field(default_factory=WebhookClientConfig)
    rules: list[RuleWithOperations] = []
    failure_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] = []


class MutatingWebhookConfiguration(KubeObject):
    """Webhooks that may change objects."""

    webhooks: list[MutatingWebhook] = []
