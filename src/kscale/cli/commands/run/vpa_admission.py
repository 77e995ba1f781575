"""``kscale run vpa-admission``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.commands.run import run_if_simulated
from kscale.cli.go_flags import GoCommand, StructFlags, positive_seconds, struct_flags, struct_of
from kscale.cli.options import OptionGroup, Switch
from kscale.cli.process import run_program
from kscale.cli.process_flags import IDLE, ApiFlags, ProcessFlags, WorldFlags, host_name
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.vpa.admission.review import MAX_BODY_BYTES
from kscale.vpa.options import AdmissionOptions

if TYPE_CHECKING:
    from kscale.world.serve.tls import ReloadingContext

__all__ = ["COMMAND", "command"]


@struct_flags(AdmissionOptions)
class AdmissionFlags(StructFlags):
    """Flags of the admission controller's decisions.

    Attributes
    ----------
    status_lease_namespace
        Namespace of the status lease; empty: the environment variable NAMESPACE, or kube-system.
    """

    title = "Decisions"
    common = ("vpa_object_namespace",)


class COMMAND(GoCommand):
    """The typer command, with upstream's flags."""

    idle = IDLE


@dataclass(eq=False, repr=False, init=False)
class Process(ProcessFlags):
    """Process flags with the admission controller's port. The TLS flags name the webhook's certificate.

    Attributes
    ----------
    tls_cert_file : FILE
        Certificate file of the webhook.
    tls_private_key_file : FILE
        File of the webhook certificate's private key.
    """

    address: str = ":8944"
    tls_cert_file: str = "/etc/tls-certs/serverCert.pem"
    tls_private_key_file: Annotated[str, typer.Option("--tls-private-key")] = "/etc/tls-certs/serverKey.pem"

    def tls(self) -> ReloadingContext | None:
        """Return None: metrics are served without TLS."""
        return None


@dataclass(eq=False, repr=False, init=False)
class WebhookFlags(OptionGroup):
    """Flags of the webhook's address and registration.

    Attributes
    ----------
    port
        Port of the webhook.
    client_ca_file : FILE
        File of the certificate authority that signed the webhook's certificate.
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
        How long the API server waits for the webhook, in seconds.
    webhook_failure_policy_fail
        Refuse pods while the webhook does not answer.
    webhook_labels : A:B,...
        Labels of the webhook's registration.
    max_review_bytes
        Maximum size of a review in bytes; a longer one is answered with status 413.
    max_review_containers
        Maximum number of containers of a pod; a pod with more is admitted without patches.
    review_timeout : DURATION
        Time limit for a large review; after it the pod is admitted without patches.
    vpa_object_namespace
        Only read VPAs in this namespace; empty: in all namespaces.
    ignored_vpa_object_namespaces : A,B,...
        Ignore VPAs in these namespaces.
    """

    title = "Webhook"
    common = ("register_webhook", "webhook_service")

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
    vpa_object_namespace: str = ""
    ignored_vpa_object_namespaces: str = ""


def command(
    *, process: Process, api: ApiFlags, webhook: WebhookFlags, flags: AdmissionFlags, world: WorldFlags
) -> None:
    """Write recommendations into new pods, and validate VPAs, as upstream's vpa-admission-controller does.

    It serves over TLS, registers its webhook ten seconds after everything is listed, and renews the lease that the
    updater checks. Runs instead of upstream's.

    Raises
    ------
    InputError
        If flags or files cannot be used.
    """
    ignored = [each for each in webhook.ignored_vpa_object_namespaces.split(",") if each]
    if ignored and webhook.vpa_object_namespace:
        flag = "--ignored-vpa-object-namespaces"
        text = f"--vpa-object-namespace and {flag} are mutually exclusive and can't be set together."
        raise InputError(Problem(text, field=flag))
    if not process.dry_run and webhook.register_by_url and not webhook.webhook_address:
        raise InputError(Problem("an address is needed to register by URL", field="--webhook-address"))
    own = os.environ.get("NAMESPACE", "")
    options = struct_of(flags, AdmissionOptions, status_lease_namespace=flags.status_lease_namespace or own)
    if run_if_simulated(world, "vpa_admission", options, idle=[process, api, webhook]):
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
    registration = struct_of(webhook, RegistrationOptions, ignored_vpa_object_namespaces=ignored, namespace=own)
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
    """Return the content of a file; None if it cannot be read."""
    try:
        return read_file(path)
    except OSError:
        return None
