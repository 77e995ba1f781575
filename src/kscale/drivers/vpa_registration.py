"""Registration of the admission webhook of the VPA (upstream: ``admission-controller/config.go``)."""

from __future__ import annotations

import base64
import logging
from typing import Final

import msgspec

from kscale.effects import Create, Delete, Get, Patch, Progress, StepsOf
from kscale.errors import KscaleError
from kscale.objects.api.coordination import (
    MutatingWebhook,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ServiceReference,
    WebhookClientConfig,
)
from kscale.objects.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta

__all__ = [
    "NAME",
    "RegistrationError",
    "RegistrationOptions",
    "configuration",
    "labels_of",
    "patch_ca_steps",
    "register_steps",
]

_log = logging.getLogger(__name__)
NAME: Final = "vpa-webhook-config"
_WEBHOOK: Final = "vpa.k8s.io"
_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "MutatingWebhookConfiguration"


class RegistrationError(KscaleError, RuntimeError):
    """The webhook could not be registered; the process ends, as upstream's."""


class RegistrationOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Upstream's flags for the registration of the webhook.

    - ``register_webhook``: whether the program registers the webhook; ``register_by_url``: as
      ``webhook_address:webhook_port`` and not as the service ``webhook_service`` of its ``namespace``.
    - ``webhook_timeout_seconds``: how long the API server waits; ``webhook_failure_policy_fail``: whether pods are
      rejected if the webhook does not respond. ``webhook_labels``: of the configuration (``key1:value1,key2:value2``).
    - ``ignored_vpa_object_namespaces``: namespaces whose pods are not sent.
    """

    register_webhook: bool = True
    register_by_url: bool = False
    webhook_address: str = ""
    webhook_port: str = ""
    webhook_service: str = "vpa-webhook"
    webhook_timeout_seconds: int = 30
    webhook_failure_policy_fail: bool = False
    webhook_labels: str = ""
    ignored_vpa_object_namespaces: list[str] = []
    namespace: str = ""


def labels_of(text: str) -> dict[str, str]:
    """Parse the labels of the flag, which may be in quotation marks. Raises ValueError with upstream's text.

    Upstream: ``pkg/admission-controller/config.go``, convertLabelsToMap.
    """
    labels: dict[str, str] = {}
    if not text:
        return labels
    text = text.strip('"')
    for part in text.split(","):
        key, colon, value = part.partition(":")
        if not colon or not key.strip():
            raise ValueError(f"labels '{text}' are invalid, the format should be: 'key1:value1,key2:value2'")
        labels[key.strip()] = value.strip()
    return labels


def configuration(options: RegistrationOptions, ca: bytes) -> MutatingWebhookConfiguration:
    """Build the webhook configuration to register. ``ca``: the certificate of the CA, PEM.

    Invalid labels are logged and omitted.
    """
    try:
        labels = labels_of(options.webhook_labels)
    except ValueError as error:
        _log.error("Unable to parse webhook labels: %s", error)
        labels = {}
    where = WebhookClientConfig(ca_bundle=base64.b64encode(ca).decode())
    if options.register_by_url:
        where.url = f"{options.webhook_address}:{options.webhook_port}"
    else:
        where.service = ServiceReference(namespace=options.namespace, name=options.webhook_service)
    # Upstream splits an empty flag into one empty name, so it never uses --vpa-object-namespace here.
    ignored = options.ignored_vpa_object_namespaces or [""]
    namespaces = LabelSelectorRequirement(key="kubernetes.io/metadata.name", operator="NotIn", values=ignored)
    webhook = MutatingWebhook(
        name=_WEBHOOK,
        admission_review_versions=["v1"],
        rules=[
            RuleWithOperations(operations=["CREATE"], api_groups=[""], api_versions=["v1"], resources=["pods"]),
            RuleWithOperations(
                operations=["CREATE", "UPDATE"],
                api_groups=["autoscaling.k8s.io"],
                api_versions=["*"],
                resources=["verticalpodautoscalers"],
            ),
        ],
        failure_policy="Fail" if options.webhook_failure_policy_fail else "Ignore",
        client_config=where,
        side_effects="None",
        timeout_seconds=options.webhook_timeout_seconds,
        namespace_selector=LabelSelector(match_expressions=[namespaces]),
    )
    return MutatingWebhookConfiguration(
        api_version=_API_VERSION, kind=_KIND, metadata=ObjectMeta(name=NAME, labels=labels or None), webhooks=[webhook]
    )


def register_steps(options: RegistrationOptions, ca: bytes, progress: Progress) -> StepsOf[Get | Delete | Create, None]:
    """Delete the existing webhook configuration, if any, and create it anew (upstream: ``selfRegistration``).

    Raises :class:`RegistrationError` if the deletion or creation fails.
    """
    existing = yield from progress.act(Get(kind=_KIND, api_version=_API_VERSION, name=NAME))
    if existing.error is None:
        deletion = yield from progress.act(Delete(kind=_KIND, api_version=_API_VERSION, name=NAME))
        if deletion.error is not None:
            raise RegistrationError(f"cannot delete {_KIND} {NAME}: {deletion.error.message}")
    creation = yield from progress.act(Create(configuration(options, ca)))
    if creation.error is not None:
        raise RegistrationError(f"cannot create {_KIND} {NAME}: {creation.error.message}")
    _log.info("Self registration as MutatingWebhook succeeded")


def patch_ca_steps(ca: bytes, progress: Progress) -> StepsOf[Patch, bool]:
    """Replace the CA bundle (``ca``: PEM) in the webhook configuration. Returns whether the patch succeeded."""
    bundle = {"caBundle": base64.b64encode(ca).decode()}
    patched = yield from progress.act(
        Patch(
            kind=_KIND,
            api_version=_API_VERSION,
            name=NAME,
            type="strategic",
            patch={"webhooks": [{"name": _WEBHOOK, "clientConfig": bundle}]},
        )
    )
    if patched.error is not None:
        _log.error("Unable to patch the CA bundle: %s", patched.error.message)
        return False
    _log.info("The CA bundle was replaced")
    return True
