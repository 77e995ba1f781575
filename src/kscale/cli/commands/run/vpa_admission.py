"""``kscale run vpa-admission``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kscale.cli.go_flags import GoCommand
from kscale.cli.options import OptionGroup
from kscale.cli.process import run_program
from kscale.cli.process_flags import ProcessFlags, host_name
from kscale.cli.simulated import WorldFlags, ran_simulated
from kscale.cli.struct_flags import flags_of, struct_of
from kscale.cli.vpa_flags import COMMON, IDLE, PANEL, Address, ApiFlags
from kscale.errors import InputError, Problem
from kscale.vpa.options import AdmissionOptions

if TYPE_CHECKING:
    from kscale.world.serve.tls import ReloadingContext

__all__ = ["COMMAND", "command"]

_HELPS: Final = {
    "max_allowed_cpu_boost": "The most CPU that a startup boost may give.",
    "status_lease_name": "The lease by which it says that it lives.",
    "status_lease_namespace": "Where it is; empty: NAMESPACE of the environment, or kube-system.",
    "status_lease_update_interval": "How often it is renewed.",
    "feature_gates": COMMON["feature_gates"],
}
AdmissionFlags: Any = flags_of("AdmissionFlags", AdmissionOptions, _HELPS, panel=PANEL)


class COMMAND(GoCommand):
    """Its flags are upstream's."""

    idle = IDLE


@dataclass
class Process(ProcessFlags):
    """With the admission controller's port; its certificate is the webhook's."""

    address: Address = ":8944"
    tls_cert_file: Annotated[
        str, typer.Option("--tls-cert-file", metavar="FILE", help="The webhook's certificate.", rich_help_panel=PANEL)
    ] = "/etc/tls-certs/serverCert.pem"
    tls_private_key_file: Annotated[
        str, typer.Option("--tls-private-key", metavar="FILE", help="Its key.", rich_help_panel=PANEL)
    ] = "/etc/tls-certs/serverKey.pem"

    def tls(self) -> ReloadingContext | None:
        """Metrics are served without it."""
        return None


@dataclass
class WebhookFlags(OptionGroup):
    """Where reviews are taken, and how the API server is told."""

    port: Annotated[int, typer.Option("--port", help="Of the webhook.", rich_help_panel=PANEL)] = 8000
    client_ca_file: Annotated[
        str, typer.Option("--client-ca-file", metavar="FILE", help="Who signed the certificate.", rich_help_panel=PANEL)
    ] = "/etc/tls-certs/caCert.pem"
    reload_cert: Annotated[
        bool, typer.Option("--reload-cert/--no-reload-cert", help="Files may be replaced.", rich_help_panel=PANEL)
    ] = False
    min_tls_version: Annotated[
        str, typer.Option("--min-tls-version", metavar="tls1_2|tls1_3", help="The oldest TLS.", rich_help_panel=PANEL)
    ] = "tls1_2"
    tls_ciphers: Annotated[
        str, typer.Option("--tls-ciphers", metavar="A,B,...", help="Suites of TLS 1.2.", rich_help_panel=PANEL)
    ] = ""
    register_webhook: Annotated[
        bool,
        typer.Option("--register-webhook/--no-register-webhook", help="Register itself.", rich_help_panel=PANEL),
    ] = True
    register_by_url: Annotated[
        bool,
        typer.Option(
            "--register-by-url/--no-register-by-url",
            help="By --webhook-address, not as a service.",
            rich_help_panel=PANEL,
        ),
    ] = False
    webhook_address: Annotated[
        str, typer.Option("--webhook-address", metavar="URL", help="With --register-by-url.", rich_help_panel=PANEL)
    ] = ""
    webhook_port: Annotated[
        str, typer.Option("--webhook-port", help="With --register-by-url.", rich_help_panel=PANEL)
    ] = ""
    webhook_service: Annotated[
        str, typer.Option("--webhook-service", help="The service, without --register-by-url.", rich_help_panel=PANEL)
    ] = "vpa-webhook"
    webhook_timeout_seconds: Annotated[
        int, typer.Option("--webhook-timeout-seconds", help="How long the server waits.", rich_help_panel=PANEL)
    ] = 30
    webhook_failure_policy_fail: Annotated[
        bool,
        typer.Option(
            "--webhook-failure-policy-fail/--no-webhook-failure-policy-fail",
            help="Refuse pods while nobody answers.",
            rich_help_panel=PANEL,
        ),
    ] = False
    webhook_labels: Annotated[
        str, typer.Option("--webhook-labels", metavar="A:B,...", help="Of the registration.", rich_help_panel=PANEL)
    ] = ""
    vpa_object_namespace: Annotated[
        str, typer.Option("--vpa-object-namespace", help=COMMON["vpa_object_namespace"], rich_help_panel=PANEL)
    ] = ""
    ignored_vpa_object_namespaces: Annotated[
        str,
        typer.Option(
            "--ignored-vpa-object-namespaces",
            metavar="A,B,...",
            help=COMMON["ignored_vpa_object_namespaces"],
            rich_help_panel=PANEL,
        ),
    ] = ""


def command(
    *, process: Process, api: ApiFlags, webhook: WebhookFlags, flags: AdmissionFlags, world: WorldFlags
) -> None:
    """Write recommendations into new pods, and validate VPAs, as upstream's vpa-admission-controller does.

    It serves over TLS, registers itself ten seconds after it knows everything, and renews the lease that the updater
    looks at. To be run in place of upstream's.
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
    from kscale.drivers.vpa_admission import Serving, admission_program
    from kscale.drivers.vpa_registration import RegistrationOptions
    from kscale.world.serve.cipher_suites import cipher_suites, tls_version
    from kscale.world.serve.tls import ReloadingContext

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
    build = partial(
        admission_program,
        options=options,
        registration=registration,
        serving=Serving(address=f":{webhook.port}", tls=tls),
        namespace=webhook.vpa_object_namespace,
        holder=host_name(),
        ca=ca,
        reload=webhook.reload_cert,
    )
    run_program("vpa-admission-controller", process, build, qps=api.kube_api_qps, burst=api.kube_api_burst)


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
