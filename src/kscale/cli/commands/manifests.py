"""``kscale manifests PROGRAM``: the objects that a program needs in a cluster, as YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kscale.cli.cluster_autoscaler_flags import LoopFlags
from kscale.cli.command import option_groups
from kscale.cli.hpa_options import DecisionFlags
from kscale.cli.options import OptionGroup, flag_of, option_errors
from kscale.cli.output import Format, Show
from kscale.cli.registry import find
from kscale.files import read_file, replace_file

__all__ = [
    "print_cluster_autoscaler",
    "print_horizontal",
    "print_reader",
    "print_vpa_admission",
    "print_vpa_crds",
    "print_vpa_recommender",
    "print_vpa_updater",
]


@dataclass(eq=False, repr=False, init=False)
class DeploymentFlags(OptionGroup):
    """Options of a program's Deployment.

    Attributes
    ----------
    image : NAME
        A container image with kscale in it.
    namespace
        Namespace in which the program runs.
    replicas
        Number of replicas: one leads, the others wait.
    flag : --NAME=VALUE
        Flag for kscale run with this program. Repeatable.
    """

    title = "Deployment"
    common = ("namespace", "replicas")

    image: str
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "kube-system"
    replicas: Annotated[int, typer.Option(min=1)] = 2
    flag: list[str] | None = None

    def arguments(self) -> dict[str, Any]:
        """Return image, namespace, replicas and flags, as keyword arguments of functions that build the objects."""
        return {
            "image": self.image, "namespace": self.namespace, "replicas": self.replicas, "flags": self.flag or (),
        }  # fmt: skip


@dataclass(eq=False, repr=False, init=False)
class AdmissionDeploymentFlags(DeploymentFlags):
    """Options of the admission controller's Deployment.

    Attributes
    ----------
    replicas
        Number of replicas; all of them answer.
    """

    replicas: Annotated[int, typer.Option(min=1)] = 1


_NO_TLS = "the Deployment mounts no such file, and its probes ask without TLS: patch them with it"
_NO_FILE: Final = "the Deployment mounts no such file: patch it with it"
_FOLLOWED_BY_NOTHING: Final = {
    "address": "the port of probes, of monitoring and of the NetworkPolicy is that of the default: patch them with it",
    "tls_cert_file": _NO_TLS,
    "tls_private_key_file": _NO_TLS,
    "client_ca_file": _NO_FILE,
    "prometheus_bearer_token_file": _NO_FILE,
    "aws_instance_types": _NO_FILE,
}
"""Flags that objects besides the arguments would have to follow, and do not."""


_OBJECTS: Final = "kscale.yaml"
_BASE: Final = "kustomization.yaml"
_POLICY: Final = "iam-policy.json"


@dataclass(eq=False, repr=False, init=False)
class ShowObjects(Show):
    """Output options, and the directory for a kustomize base.

    Attributes
    ----------
    directory : DIR
        Directory for a kustomize base instead of stdout: kustomization.yaml and kscale.yaml.
    """

    directory: Path | None = None


def print_objects(show: ShowObjects, objects: Sequence[dict[str, Any]], *, policy: str = "") -> None:
    """Print the objects as YAML documents or as a List in JSON, or write them as a kustomize base.

    YAML is written without anchors, so equal parts are repeated. ``policy``: IAM policy to write beside a base.

    Raises
    ------
    typer.BadParameter
        If neither kubectl nor (with --directory) a kustomize base takes the output format, if a Deployment has
        arguments that its program does not accept, or if the directory has another kustomization or a file that would
        be overwritten.
    """
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                _option_values(container["args"])
    if show.directory is not None:
        if show.output not in (Format.TABLE, Format.YAML):
            raise typer.BadParameter("a kustomize base is written as yaml", param_hint="-o")
        _write_base(show, objects, show.directory, {_POLICY: policy} if policy else {})
        return
    write = show.terminal.stdout.write
    match show.output:
        case Format.JSON:
            import msgspec

            document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
            write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        case Format.TABLE | Format.YAML:
            write(_yaml(objects))
        case _:
            raise typer.BadParameter("kubectl apply takes yaml and json", param_hint="-o")


def _yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """Format objects as YAML documents. Equal parts are repeated, not replaced by aliases."""
    import yaml

    class WithoutAliases(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # yaml's signature
            return True

    text: str = yaml.dump_all(documents, Dumper=WithoutAliases, sort_keys=False)
    return text


def _write_base(show: Show, objects: Sequence[Mapping[str, Any]], directory: Path, others: Mapping[str, str]) -> None:
    """Write a kustomize base with the objects, and ``others`` (name -> content) beside it.

    The files of an earlier base of this command are replaced. Raises typer.BadParameter if the directory has another
    kustomization or a file that would be overwritten.
    """
    base = _yaml([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [_OBJECTS]}])
    file, listed = directory / _BASE, directory / _OBJECTS
    if file.exists():
        if read_file(file) != base.encode():
            raise typer.BadParameter(
                f"{file} exists already and is a different kustomization", param_hint="--directory"
            )
    else:
        for path in (listed, *(directory / name for name in others)):
            if path.exists():
                text = f"{path} exists already, without the {_BASE} of this command"
                raise typer.BadParameter(text, param_hint="--directory")
    directory.mkdir(parents=True, exist_ok=True)
    # Written first: otherwise objects of an interrupted run would seem to belong to somebody else.
    replace_file(file, base.encode())
    replace_file(listed, _yaml(objects).encode(), secret=True)  # it may contain a Secret
    show.terminal.note(f"wrote {len(objects)} objects to {listed}")
    for name, content in others.items():
        replace_file(directory / name, content.encode())
        show.terminal.note(f"wrote {directory / name}")


def own_options(program: str, deployment: DeploymentFlags, **own: str) -> dict[str, Any]:
    """Return the values of the options of ``kscale run PROGRAM`` with these flags, by name.

    Parameters
    ----------
    program : str
        The program's command below ``kscale run``.
    deployment : DeploymentFlags
        Has the flags that the user adds.
    **own : str
        Options that the manifests command itself sets.

    Returns
    -------
    dict
        Value by the name of the option's field.

    Raises
    ------
    typer.BadParameter
        If the program does not accept a flag, if a flag contradicts one of ``own``, or if the printed objects do not
        depend on the flag as they would have to.
    """
    arguments = ["run", program, *(f"{flag_of(name)}={value}" for name, value in own.items())]
    values = _option_values([*arguments, *(deployment.flag or ())])
    for name, value in own.items():
        if values[name] != value:
            raise typer.BadParameter(
                f"{flag_of(name)} is set by this command: its RBAC rules depend on the flag", param_hint="--flag"
            )
    usual = _option_values(arguments)
    for name, why in _FOLLOWED_BY_NOTHING.items():
        if name in values and values[name] != usual[name]:
            raise typer.BadParameter(f"{flag_of(name)}: {why}", param_hint="--flag")
    return values


def _option_values(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse arguments of ``kscale`` and return the values of the command's options, without running it.

    Raises BadParameter for arguments that the command does not accept, also for ``--help``, and InputError for values
    that its program refuses.
    """
    from kscale.cli.app import command_of

    entry = find(" ".join(arguments[:2]))
    assert entry is not None, arguments
    try:
        context = command_of(entry).make_context(entry.name, list(arguments[2:]), help_option_names=[])
    except typer.TyperException as error:
        raise typer.BadParameter(error.format_message(), param_hint="--flag") from None
    values: dict[str, Any] = context.params
    for group in option_groups(entry.load(), values).values():
        if isinstance(group, LoopFlags | DecisionFlags):
            group.options()
    return values


def print_cluster_autoscaler(
    *,
    deployment: DeploymentFlags,
    cloud_provider: str = "externalgrpc",
    cloud_config: str = "",
    monitoring: bool = False,
    role_arn: str = "",
    iam_policy: bool = False,
    show: ShowObjects,
) -> None:
    """Print the objects for kubectl apply: an account with least rights, a Deployment, a disruption budget, a
    NetworkPolicy.

    Parameters
    ----------
    cloud_provider : NAME
        Cloud provider: externalgrpc, kwok, clusterapi or aws.
    cloud_config : SECRET
        Secret that holds the cloud provider's configuration file under the key config.
    monitoring
        Also print objects for the Prometheus operator (what to scrape, alert rules) and a Grafana dashboard.
    role_arn : ARN
        IAM role of the service account (--cloud-provider=aws).
    iam_policy
        Print the least IAM policy instead of the objects (--cloud-provider=aws). With --directory it is always
        written, as iam-policy.json.

    Raises
    ------
    typer.BadParameter
        If the cloud provider is unknown, an option has no effect, or --iam-policy is not printed as JSON; and as
        :func:`print_objects`.
    """
    from kscale.drivers.manifests.cluster_autoscaler import (
        ROLE_ANNOTATION,
        cluster_autoscaler_manifests,
        cluster_autoscaler_monitoring,
    )

    if cloud_provider not in ("externalgrpc", "kwok", "clusterapi", "aws"):
        raise typer.BadParameter(f"there is no cloud provider {cloud_provider!r} here", param_hint="--cloud-provider")
    namespace = deployment.namespace
    options = own_options("cluster-autoscaler", deployment, cloud_provider=cloud_provider, namespace=namespace)
    policy = ""
    if cloud_provider == "aws":
        policy = _aws_policy(options, role_arn)
    else:
        for name, value in (("--role-arn", role_arn), ("--iam-policy", iam_policy), ("--nodes", options["nodes"])):
            if value:
                raise typer.BadParameter("has an effect only with --cloud-provider=aws", param_hint=name)
    if iam_policy and show.directory is None:
        if show.output not in (Format.TABLE, Format.JSON):
            raise typer.BadParameter("an IAM policy is JSON", param_hint="-o")
        show.terminal.stdout.write(policy)
        return
    objects = cluster_autoscaler_manifests(
        config=cloud_config,
        options=options,
        account_annotations={ROLE_ANNOTATION: role_arn} if role_arn else {},
        **deployment.arguments(),
    )
    if monitoring:
        objects += cluster_autoscaler_monitoring(namespace, options["leader_elect_resource_name"])
    print_objects(show, objects, policy=policy)


def _aws_policy(options: Mapping[str, Any], role_arn: str) -> str:
    """Return the IAM policy for the groups that the flags name, as JSON.

    Raises BadParameter if the flags name no groups: the policy would allow nothing, or everything.
    """
    import msgspec

    from kscale.drivers.manifests.cluster_autoscaler import aws_policy, read_role
    from kscale.world.aws.auto_scaling_groups import read_auto_discovery, read_group_spec

    names = [read_group_spec(text).name for text in options["nodes"] or ()]
    tags = {
        key: value
        for text in options["node_group_auto_discovery"] or ()
        for key, value in read_auto_discovery(text).items()
    }
    if not names and not tags:
        text = "--cloud-provider=aws needs --node-group-auto-discovery=asg:tag=... or --nodes=MIN:MAX:NAME"
        raise typer.BadParameter(text, param_hint="--flag")
    document = aws_policy(
        names=names,
        tags=tags,
        static_types=bool(options["aws_use_static_instance_list"]),
        partition=read_role(role_arn) if role_arn else "aws",
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _print_autoscaler(program: str, title: str, *namespaces: str) -> Callable[..., None]:
    """Return a command that prints the objects of an autoscaler with leader election.

    ``title`` names the autoscaler in the help. ``namespaces``: options of the program that are set to the namespace in
    which it runs.
    """

    def command(*, deployment: DeploymentFlags, show: ShowObjects) -> None:
        from kscale.drivers.manifests.autoscalers import autoscaler_manifests

        options = own_options(program, deployment, **dict.fromkeys(namespaces, deployment.namespace))
        print_objects(show, autoscaler_manifests(program, options=options, **deployment.arguments()))

    command.__doc__ = f"""Print the objects of {title} for kubectl apply.

    An account with least rights, a Deployment, a disruption budget, a NetworkPolicy.
    """
    return command


_LEASE: Final = "leader_elect_resource_namespace"
print_horizontal = _print_autoscaler("horizontal", "the horizontal pod autoscaler", _LEASE)
print_vpa_recommender = _print_autoscaler("vpa-recommender", "the recommender of the Vertical Pod Autoscaler", _LEASE)
print_vpa_updater = _print_autoscaler(
    "vpa-updater",
    "the updater of the Vertical Pod Autoscaler",
    _LEASE,
    "admission_controller_status_lease_namespace",
)


def print_vpa_crds(*, show: ShowObjects) -> None:
    """Print the definitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint (autoscaling.k8s.io/v1).

    Raises
    ------
    typer.BadParameter
        As :func:`print_objects`.
    """
    from kscale.drivers.manifests.autoscalers import vpa_definitions

    print_objects(show, vpa_definitions())


def print_vpa_admission(
    *,
    deployment: AdmissionDeploymentFlags,
    tls_secret: str = "vpa-tls-certs",
    cert_manager: bool = False,
    self_signed: bool = False,
    api_server_network: list[str] | None = None,
    show: ShowObjects,
) -> None:
    """Print the objects of the Vertical Pod Autoscaler's admission controller for kubectl apply.

    An account with least rights, a Service, a Deployment, a disruption budget, a NetworkPolicy. It registers its
    webhook itself.

    Parameters
    ----------
    tls_secret : NAME
        Secret with serverCert.pem, serverKey.pem and caCert.pem, as upstream's script creates it.
    cert_manager
        Let cert-manager create and renew the certificate.
    self_signed
        Create a certificate authority and a certificate now, valid for ten years.
    api_server_network : CIDR
        Network of the API servers, the only ones that may reach the webhook. Repeatable; default: any.

    Raises
    ------
    typer.BadParameter
        If --cert-manager and --self-signed are both set, or a network is malformed; and as :func:`print_objects`.
    """
    from kscale.drivers.manifests.autoscalers import admission_manifests, secret_of, webhook_service

    if cert_manager and self_signed:
        raise typer.BadParameter("--cert-manager and --self-signed exclude each other", param_hint="--self-signed")
    with option_errors("--api-server-network"):
        callers = [str(ip_network(text)) for text in api_server_network or ()]
    namespace = deployment.namespace
    options = own_options("vpa-admission", deployment, status_lease_namespace=namespace)
    keys = "cert-manager" if cert_manager else "upstream"
    objects = admission_manifests(
        options=options, secret=tls_secret, keys=keys, callers=callers, **deployment.arguments()
    )
    if self_signed:
        from datetime import UTC, datetime

        from kscale.world.serve.tls import self_signed_pair

        pair = self_signed_pair(f"{webhook_service(options)}.{namespace}.svc", datetime.now(UTC))
        objects.insert(0, secret_of(pair, tls_secret, namespace))
    print_objects(show, objects)


def print_reader(
    *,
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "kube-system",
    show: ShowObjects,
) -> None:
    """Print the objects of an account that may read what commands with --context need, and nothing else.

    A ServiceAccount, a ClusterRole and its binding, all named kscale-reader: lists of the kinds that plans depend on
    (no Secret, no ConfigMap), scales, and the metrics APIs. kubectl create token kscale-reader makes a token of it.

    Parameters
    ----------
    namespace
        Namespace of the service account.

    Raises
    ------
    typer.BadParameter
        As :func:`print_objects`.
    """
    from kscale.drivers.manifests.autoscalers import reader_manifests

    print_objects(show, reader_manifests(namespace))
