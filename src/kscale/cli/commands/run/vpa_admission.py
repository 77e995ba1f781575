"""``kscale run vpa-admission``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kscale.cli.go_flags import GoCommand
from kscale.cli.options import OptionGroup, Switch
from kscale.cli.process import WorldFlags, ran_simulated, run_program
from kscale.cli.process_flags import (
    COMMON,
    IDLE,
    PANEL,
    Address,
    ApiFlags,
    ProcessFlags,
    flags_of,
    host_name,
    positive_seconds,
    struct_of,
)
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.vpa.admission.review import MAX_BODY_BYTES
from kscale.vpa.options import AdmissionOptions

if TYPE_CHECKING:
    from kscale.world.serve.tls import ReloadingContext

__all__ = ["COMMAND", "command"]

_HELPS: Final = {
    "max_allowed_cpu_boost": "Maximum CPU that a startup boost may set.",
    "status_lease_name": "Name of the lease that shows that the webhook is alive.",
    "status_lease_namespace": "Namespace of the status lease; empty: the environment variable NAMESPACE, or "
    "kube-system.",
    "status_lease_update_interval": "Time between two renewals of the status lease.",
    "feature_gates": COMMON["feature_gates"],
}
AdmissionFlags: Any = flags_of("AdmissionFlags", AdmissionOptions, _HELPS, panel=PANEL)


class COMMAND(GoCommand):
    """The typer command, with upstream's flags."""

    idle = IDLE


@dataclass
class Process(ProcessFlags):
    """Process flags with the admission controller's port. The TLS flags name the webhook's certificate.

    Attributes
    ----------
    tls_cert_file : FILE
        Certificate file of the webhook.
    tls_private_key_file : FILE
        File of the webhook certificate's private key.
    """

    address: Address = ":8944"
    tls_cert_file: str = "/etc/tls-certs/serverCert.pem"
    tls_private_key_file: Annotated[str, typer.Option("--tls-private-key")] = "/etc/tls-certs/serverKey.pem"

    def tls(self) -> ReloadingContext | None:
        """Return None: metrics are served without TLS."""
        return None


@dataclass
class WebhookFlags(OptionGroup):
    """Flags of the webhook's address and registration.

    Attributes
    ----------
    port
        Port of the webhook.
    client_ca_file : FILE
        File of the authority that signed the webhook's certificate.
    reload_cert
        Read the certificate files again when they are replaced.
    min_tls_version : tls1_2|tls1_3
        Oldest TLS version that clients may use.
    tls_ciphers : A,B,...
        Cipher suites of TLS 1.2 that clients may use.
    register_webhook
        Create the webhook's registration at the API server.
    register_by_url
        Register the webhook by --webhook-address instead of its service.
    webhook_address : URL
        Address of the webhook, with --register-by-url.
    webhook_port
        Port in the webhook's registration, with --register-by-url.
    webhook_service
        Service of the webhook, without --register-by-url.
    webhook_timeout_seconds
        How long the API server waits for the webhook.
    webhook_failure_policy_fail
        Refuse pods while the webhook does not answer.
    webhook_labels : A:B,...
        Labels of the webhook's registration.
    max_review_bytes
        Bytes of one review; a longer one is answered with status 413.
    max_review_containers
        Containers of one pod; a pod with more is admitted without patches.
    review_timeout : DURATION
        Time for one large review; after it the pod is admitted without patches.
    """

    port: int = 8000
    client_ca_file: str = "/etc/tls-certs/caCert.pem"
    reload_cert: Switch = False
    min_tls_version: str = "tls1_2"
    tls_ciphers: str = ""
    register_webhook: Switch = True
    register_by_url: Switch = False
    webhook_address: str = ""
    webhook_port: str = ""
    webhook_service: str = "vpa-webhook"
    webhook_timeout_seconds: int = 30
    webhook_failure_policy_fail: Switch = False
    webhook_labels: str = ""
    max_review_bytes: Annotated[int, typer.Option(min=1)] = MAX_BODY_BYTES
    max_review_containers: Annotated[int, typer.Option(min=1)] = 50_000
    review_timeout: str = "10s"
    vpa_object_namespace: Annotated[str, typer.Option(help=COMMON["vpa_object_namespace"])] = ""
    ignored_vpa_object_namespaces: Annotated[
        str, typer.Option(metavar="A,B,...", help=COMMON["ignored_vpa_object_namespaces"])
    ] = ""


def command(
    *, process: Process, api: ApiFlags, webhook: WebhookFlags, flags: AdmissionFlags, world: WorldFlags
) -> None:
    """Write recommendations into new pods, and validate VPAs, as upstream's vpa-admission-controller does.

    It serves over TLS, registers its webhook ten seconds after everything is listed, and renews the lease that the
    updater checks. Runs instead of upstream's.
    """
    ignored = [each for each in webhook.ignored_vpa_object_namespaces.split(",") if each]
    if ignored and webhook.vpa_object_namespace:
        flag = "--ignored-vpa-object-namespaces"
        text = f"--vpa-object-namespace and {flag} are mutually exclusive and can't be set together."
        raise InputError(Problem(text, field=flag))
    if not process.dry_run and webhook.register_by_url and not webhook.webhook_address:
        raise InputError(Problem("an address is needed to register by URL", field="--webhook-address"))
    own = os.environ.get("NAMESPACE", "")
    if not flags.status_lease_namespace:
        flags.status_lease_namespace = own
    options = struct_of(flags, AdmissionOptions)
    if ran_simulated(world, "vpa_admission", options, idle=[process, api, webhook]):
        return
    from kscale.drivers.vpa_admission import ReviewLimits, Serving, admission_program
    from kscale.drivers.vpa_registration import RegistrationOptions
    from kscale.world.serve.tls import ReloadingContext, cipher_suites, tls_version

    tls = ReloadingContext(
        process.tls_cert_file,
        process.tls_private_key_file,
        minimum=tls_version(webhook.min_tls_version),
        ciphers=cipher_suites(webhook.tls_ciphers),
        reload=webhook.reload_cert,
    )
    ca = partial(_read, webhook.client_ca_file)
    if webhook.register_webhook and ca() is None:
        raise InputError(Problem("cannot be read", webhook.client_ca_file, field="--client-ca-file"))
    registration = RegistrationOptions(
        register_webhook=webhook.register_webhook,
        register_by_url=webhook.register_by_url,
        webhook_address=webhook.webhook_address,
        webhook_port=webhook.webhook_port,
        webhook_service=webhook.webhook_service,
        webhook_timeout_seconds=webhook.webhook_timeout_seconds,
        webhook_failure_policy_fail=webhook.webhook_failure_policy_fail,
        webhook_labels=webhook.webhook_labels,
        ignored_vpa_object_namespaces=ignored,
        namespace=own,
    )
    reviews = ReviewLimits(
        body=webhook.max_review_bytes,
        containers=webhook.max_review_containers,
        timeout=positive_seconds(webhook.review_timeout, "--review-timeout"),
    )
    build = partial(
        admission_program,
        options=options,
        registration=registration,
        serving=Serving(address=f":{webhook.port}", tls=tls, limits=process.connection_limits(), reviews=reviews),
        namespace=webhook.vpa_object_namespace,
        holder=host_name(),
        ca=ca,
        reload=webhook.reload_cert,
    )
    run_program("vpa-admission-controller", process, build, qps=api.kube_api_qps, burst=api.kube_api_burst)


def _read(path: str) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None
