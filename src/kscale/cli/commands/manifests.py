"""``kscale manifests PROGRAM``: the objects that a program needs in a cluster, as YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kscale.cli.cluster_autoscaler_flags import LoopFlags
from kscale.cli.command import option_groups
from kscale.cli.hpa_options import DecisionFlags
from kscale.cli.output import Format, Show
from kscale.cli.registry import find
from kscale.files import read_file, replace_file

__all__ = [
    "Flags",
    "Image",
    "Namespace",
    "Replicas",
    "ShowObjects",
    "own_options",
    "print_cluster_autoscaler",
    "print_horizontal",
    "print_objects",
    "print_reader",
    "print_vpa_admission",
    "print_vpa_crds",
    "print_vpa_recommender",
    "print_vpa_updater",
]


Image = Annotated[str, typer.Option("--image", metavar="NAME", help="A container image with kscale in it.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Namespace in which the program runs.")]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="Number of replicas: one leads, the others wait.")]
Flags = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="--NAME=VALUE", help="Flag for kscale run with this program. Repeatable."),
]

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


@dataclass(eq=False, repr=False)
class ShowObjects(Show):
    """Output options, and the directory for a kustomize base."""

    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help=f"Directory for a kustomize base instead of stdout: {_BASE} and {_OBJECTS}.",
        ),
    ] = None


def print_objects(show: ShowObjects, objects: Sequence[dict[str, Any]], *, policy: str = "") -> None:
    """Print the objects as YAML documents or as a List in JSON, or write them as a kustomize base.

    YAML is written without anchors, so equal parts are repeated. ``policy``: IAM policy to write beside a base.

    Raises
    ------
    typer.BadParameter
        If kubectl does not read the output format, if a Deployment has arguments that its program does not accept, or
        if the directory has another kustomization or a file that would be overwritten.
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
    import yaml

    class Whole(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
            return True

    text: str = yaml.dump_all(documents, Dumper=Whole, sort_keys=False)
    return text


def _write_base(show: Show, objects: Sequence[Mapping[str, Any]], directory: Path, others: Mapping[str, str]) -> None:
    base = _yaml([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [_OBJECTS]}])
    file, listed = directory / _BASE, directory / _OBJECTS
    if file.exists():
        if read_file(file) != base.encode():
            raise typer.BadParameter(f"{file} is there, and is another kustomization", param_hint="--directory")
    else:
        for path in (listed, *(directory / name for name in others)):
            if path.exists():
                text = f"{path} is there, without the {_BASE} of this command"
                raise typer.BadParameter(text, param_hint="--directory")
    directory.mkdir(parents=True, exist_ok=True)
    # Written first: otherwise objects of an interrupted run would seem to belong to somebody else.
    replace_file(file, base.encode())
    replace_file(listed, _yaml(objects).encode(), secret=True)  # it may contain a Secret
    show.terminal.note(f"wrote {len(objects)} objects to {listed}")
    for name, content in others.items():
        replace_file(directory / name, content.encode())
        show.terminal.note(f"wrote {directory / name}")


def own_options(program: str, flags: Sequence[str], **own: str) -> dict[str, Any]:
    """Return the values of the options of ``kscale run PROGRAM`` with these flags, by name.

    Parameters
    ----------
    program : str
    flags : sequence of str
        Flags that the user adds.
    **own : str
        Options that the manifests command itself sets.

    Raises
    ------
    typer.BadParameter
        If the program does not accept a flag, if a flag contradicts one of ``own``, or if the printed objects do not
        depend on the flag as they would have to.
    """
    options = {name: f"--{name.replace('_', '-')}" for name in own}
    values = _option_values(["run", program, *(f"{options[name]}={value}" for name, value in own.items()), *flags])
    for name, value in own.items():
        if values[name] != value:
            raise typer.BadParameter(
                f"{options[name]} is said by this command: its rules go by it", param_hint="--flag"
            )
    usual = _option_values(["run", program, *(f"{options[name]}={value}" for name, value in own.items())])
    for name, why in _FOLLOWED_BY_NOTHING.items():
        if name in values and values[name] != usual[name]:
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}", param_hint="--flag")
    return values


def _option_values(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse arguments of ``kscale`` and return the values of the command's options, without running it.

    Raises BadParameter for arguments that the command does not accept, also for ``--help``.
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
    image: Image,
    namespace: Namespace = "kube-system",
    cloud_provider: Annotated[
        str,
        typer.Option("--cloud-provider", metavar="NAME", help="Cloud provider: externalgrpc, kwok, clusterapi or aws."),
    ] = "externalgrpc",
    cloud_config: Annotated[
        str,
        typer.Option(
            "--cloud-config",
            metavar="SECRET",
            help="Secret that holds the cloud provider's configuration file under the key config.",
        ),
    ] = "",
    replicas: Replicas = 2,
    flag: Flags = None,
    monitoring: Annotated[
        bool,
        typer.Option(
            "--monitoring",
            help="Also print objects for the Prometheus operator (what to scrape, alert rules) and a "
            "Grafana dashboard.",
        ),
    ] = False,
    role_arn: Annotated[
        str,
        typer.Option("--role-arn", metavar="ARN", help="IAM role of the service account (--cloud-provider=aws)."),
    ] = "",
    iam_policy: Annotated[
        bool,
        typer.Option(
            "--iam-policy",
            help="Print the least IAM policy instead of the objects (--cloud-provider=aws). With --directory it is "
            f"always written, as {_POLICY}.",
        ),
    ] = False,
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes: an account with the least rights, a Deployment, a budget, a NetworkPolicy."""
    from kscale.drivers.manifests.aws_policy import ROLE_ANNOTATION
    from kscale.drivers.manifests.cluster_autoscaler import cluster_autoscaler_manifests, cluster_autoscaler_monitoring

    if cloud_provider not in ("externalgrpc", "kwok", "clusterapi", "aws"):
        raise typer.BadParameter(f"there is no cloud provider {cloud_provider!r} here", param_hint="--cloud-provider")
    flags = flag or ()
    options = own_options("cluster-autoscaler", flags, cloud_provider=cloud_provider, namespace=namespace)
    policy = ""
    if cloud_provider == "aws":
        policy = _aws_policy(options, role_arn)
    else:
        for name, value in (("--role-arn", role_arn), ("--iam-policy", iam_policy), ("--nodes", options["nodes"])):
            if value:
                raise typer.BadParameter("is of use with --cloud-provider=aws only", param_hint=name)
    if iam_policy and show.directory is None:
        if show.output not in (Format.TABLE, Format.JSON):
            raise typer.BadParameter("an IAM policy is JSON", param_hint="-o")
        show.terminal.stdout.write(policy)
        return
    objects = cluster_autoscaler_manifests(
        image=image,
        namespace=namespace,
        config=cloud_config,
        flags=flags,
        options=options,
        replicas=replicas,
        account_annotations={ROLE_ANNOTATION: role_arn} if role_arn else {},
    )
    if monitoring:
        objects += cluster_autoscaler_monitoring(namespace, options["leader_elect_resource_name"])
    print_objects(show, objects, policy=policy)


def _aws_policy(options: Mapping[str, Any], role_arn: str) -> str:
    """Return the IAM policy for the groups that the flags name, as JSON.

    Raises BadParameter if the flags name no groups: the policy would allow nothing, or everything.
    """
    import msgspec

    from kscale.drivers.manifests.aws_policy import aws_policy, read_role
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


def print_horizontal(
    *, image: Image, namespace: Namespace = "kube-system", replicas: Replicas = 2, flag: Flags = None, show: ShowObjects
) -> None:
    """Print what kubectl apply takes for the horizontal pod autoscaler.

    An account with the least rights, a Deployment, a budget, a NetworkPolicy.
    """
    from kscale.drivers.manifests.autoscalers import autoscaler_manifests

    flags = flag or ()
    options = own_options("horizontal", flags, leader_elect_resource_namespace=namespace)
    print_objects(
        show,
        autoscaler_manifests(
            "horizontal", image=image, namespace=namespace, flags=flags, options=options, replicas=replicas
        ),
    )


def print_vpa_crds(*, show: ShowObjects) -> None:
    """Print the definitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint (autoscaling.k8s.io/v1)."""
    from kscale.drivers.manifests.autoscalers import vpa_definitions

    print_objects(show, vpa_definitions())


def print_vpa_recommender(
    *, image: Image, namespace: Namespace = "kube-system", replicas: Replicas = 2, flag: Flags = None, show: ShowObjects
) -> None:
    """Print what kubectl apply takes for the recommender of the Vertical Pod Autoscaler.

    An account with the least rights, a Deployment, a budget, a NetworkPolicy.
    """
    from kscale.drivers.manifests.autoscalers import autoscaler_manifests

    flags = flag or ()
    options = own_options("vpa-recommender", flags, leader_elect_resource_namespace=namespace)
    print_objects(
        show,
        autoscaler_manifests(
            "vpa-recommender", image=image, namespace=namespace, flags=flags, options=options, replicas=replicas
        ),
    )


def print_vpa_updater(
    *, image: Image, namespace: Namespace = "kube-system", replicas: Replicas = 2, flag: Flags = None, show: ShowObjects
) -> None:
    """Print what kubectl apply takes for the updater of the Vertical Pod Autoscaler.

    An account with the least rights, a Deployment, a budget, a NetworkPolicy.
    """
    from kscale.drivers.manifests.autoscalers import autoscaler_manifests

    flags = flag or ()
    options = own_options(
        "vpa-updater",
        flags,
        leader_elect_resource_namespace=namespace,
        admission_controller_status_lease_namespace=namespace,
    )
    print_objects(
        show,
        autoscaler_manifests(
            "vpa-updater", image=image, namespace=namespace, flags=flags, options=options, replicas=replicas
        ),
    )


def print_vpa_admission(
    *,
    image: Image,
    namespace: Namespace = "kube-system",
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Number of replicas; all of them answer.")] = 1,
    tls_secret: Annotated[
        str,
        typer.Option(
            "--tls-secret",
            metavar="NAME",
            help="Secret with serverCert.pem, serverKey.pem and caCert.pem, as upstream's script creates it.",
        ),
    ] = "vpa-tls-certs",
    cert_manager: Annotated[
        bool,
        typer.Option("--cert-manager", help="Have cert-manager make and renew the certificate."),
    ] = False,
    self_signed: Annotated[
        bool,
        typer.Option("--self-signed", help="Make an authority and a certificate now, good for ten years."),
    ] = False,
    api_server_network: Annotated[
        list[str] | None,
        typer.Option(
            "--api-server-network",
            metavar="CIDR",
            help="Network of the API servers, the only ones that may reach the webhook. Repeatable; default: any.",
        ),
    ] = None,
    flag: Flags = None,
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes for the admission controller of the Vertical Pod Autoscaler.

    An account with the least rights, a Service, a Deployment, a budget, a NetworkPolicy. It registers its webhook
    itself.
    """
    from kscale.drivers.manifests.autoscalers import admission_manifests, secret_of, webhook_service

    if cert_manager and self_signed:
        raise typer.BadParameter("--cert-manager and --self-signed exclude each other", param_hint="--self-signed")
    callers = [_network(text) for text in api_server_network or ()]
    flags = flag or ()
    options = own_options("vpa-admission", flags, status_lease_namespace=namespace)
    objects = admission_manifests(
        image=image,
        namespace=namespace,
        flags=flags,
        options=options,
        replicas=replicas,
        secret=tls_secret,
        keys="cert-manager" if cert_manager else "upstream",
        callers=callers,
    )
    if self_signed:
        from datetime import UTC, datetime

        from kscale.world.serve.tls import self_signed_pair

        pair = self_signed_pair(f"{webhook_service(options)}.{namespace}.svc", datetime.now(UTC))
        objects.insert(0, secret_of(pair, tls_secret, namespace))
    print_objects(show, objects)


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--api-server-network") from None


def print_reader(
    *,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of the service account.")
    ] = "kube-system",
    show: ShowObjects,
) -> None:
    """Print what kubectl apply takes for an account that may read what --context asks for, and nothing else.

    A ServiceAccount, a ClusterRole and its binding, all named kscale-reader: lists of the kinds that plans depend on
    (no Secret, no ConfigMap), scales, and the metrics APIs. kubectl create token kscale-reader makes a token of it.
    """
    from kscale.drivers.manifests.autoscalers import reader_manifests

    print_objects(show, reader_manifests(namespace))
