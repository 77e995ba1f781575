"""AWS in commands: the cloud provider of ``kscale run``, ``-g aws:``, and instance types of a live account."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kscale.errors import InputError, Problem
from kscale.objects.nodegroup import NodeGroup, ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kscale.capacity.catalogue import Catalogue
    from kscale.cli.cluster_autoscaler_flags import AutoscalerFlags
    from kscale.cli.terminal import Terminal
    from kscale.objects.api.core import Node
    from kscale.world.aws.client import AwsClient
    from kscale.world.aws.provider import AwsGroups
    from kscale.world.aws.templates import MachineType
    from kscale.world.nodegroups.provider import Nodes
    from kscale.world.protocols import Clock

__all__ = ["GROUPS_PREFIX", "build_provider", "check_flags", "describe_instance_types", "read_live_groups"]

GROUPS_PREFIX: Final = "aws:"
"""Beginning of a ``-g`` that names groups of a live account instead of a file."""
_TAG: Final = "tag="
_DEFAULT_CATALOGUE: Final = "aws"
_GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
_MIB: Final = 1 << 20
_log = logging.getLogger(__name__)


def check_flags(process: AutoscalerFlags) -> None:
    """Check the flags of the provider. Raises InputError for values that cannot be used."""
    from kscale.world.aws.auto_scaling_groups import read_auto_discovery, read_group_spec
    from kscale.world.aws.client import read_cloud_config

    for text in process.nodes or ():
        read_group_spec(text)
    for text in process.node_group_auto_discovery or ():
        read_auto_discovery(text)
    if process.cloud_config:
        read_cloud_config(process.cloud_config)
    machines = _machines_of(process.aws_instance_types)
    if process.aws_use_static_instance_list and not machines:
        text = "there is no static list: --aws-instance-types names a catalogue (kscale catalogue import)"
        raise InputError(Problem(text, field="--aws-use-static-instance-list"))


def build_provider(process: AutoscalerFlags, clock: Clock, nodes: Nodes) -> tuple[AwsGroups, AwsClient]:
    """Return the cloud provider and its client, which has to be closed. Blocks while the groups are read.

    Raises InputError for unusable flags, without a region, and if AWS cannot be read: as upstream, the program does not
    start then. Raises MissingExtraError without boto3.
    """
    from kscale.world.aws.auto_scaling_groups import AutoScalingGroups, read_auto_discovery, read_group_spec
    from kscale.world.aws.client import AwsClient, read_cloud_config
    from kscale.world.aws.provider import AwsGroups

    client = AwsClient(overrides=read_cloud_config(process.cloud_config) if process.cloud_config else ())
    tags: dict[str, str] = {}
    for text in process.node_group_auto_discovery or ():
        tags |= read_auto_discovery(text)  # as in upstream, a group has to have the tags of all specifications
    if not tags and not process.nodes:
        _log.warning("neither --nodes nor --node-group-auto-discovery is set: there are no node groups")
    groups = AutoScalingGroups(
        client,
        specs=[read_group_spec(text) for text in process.nodes or ()],
        tags=tags,
        now=clock.now,
        monotonic=clock.monotonic,
        machines=_machines_of(process.aws_instance_types),
        describe_machines=not process.aws_use_static_instance_list,
    )
    try:
        groups.refresh()
    except ProviderError as error:
        client.close()
        raise InputError(Problem(error.message, field="--cloud-provider")) from None
    return AwsGroups(groups, nodes), client


def _machines_of(name: str) -> Mapping[str, MachineType]:
    """Return the instance types of a catalogue by name.

    If no ``name`` is given: those of the imported catalogue ``aws``; empty if there is none. Raises InputError if the
    catalogue cannot be read.
    """
    from kscale.capacity.catalogue import list_catalogues, read_catalogue

    if not name and _DEFAULT_CATALOGUE not in list_catalogues():
        return {}
    return _machine_types(read_catalogue(name or _DEFAULT_CATALOGUE))


def _machine_types(catalogue: Catalogue) -> dict[str, MachineType]:
    """Convert the types of a catalogue to those of the cloud provider, by name."""
    from kscale.world.aws.templates import MachineType

    return {
        kind.name: MachineType(
            name=kind.name,
            vcpus=kind.capacity["cpu"].value(),
            memory_mib=kind.capacity["memory"].value() // _MIB,
            gpus=sum(kind.capacity[name].value() for name in _GPU_RESOURCES if name in kind.capacity),
            architecture=kind.arch,
        )
        for kind in catalogue.values()
    }


def read_live_groups(
    name: str, nodes: Sequence[Node], catalogue: Catalogue | None, terminal: Terminal
) -> list[NodeGroup]:
    """Return Auto Scaling groups of a live account. Groups that cannot get new nodes are left out, with a warning.

    Parameters
    ----------
    name : str
        ``aws:`` (all groups of the region), ``aws:tag=KEY[=VALUE],...`` (groups with all these tags), or
        ``aws:NAME,...``.
    nodes : sequence of Node
        Nodes of the cluster. A group with nodes here is modelled on them, as by the autoscaler.
    catalogue : Catalogue, optional
        Prices of instance types, and the types that EC2 does not describe.
    terminal : Terminal
        Where the warnings go.

    Raises
    ------
    InputError
        If AWS cannot be read, or has no such groups.
    MissingExtraError
        Without boto3.
    """
    from kscale.world.aws.auto_scaling_groups import AutoScalingGroups, read_auto_discovery
    from kscale.world.aws.client import AwsClient
    from kscale.world.aws.provider import AwsGroups

    selection = name.removeprefix(GROUPS_PREFIX)
    is_tags = selection.startswith(_TAG)
    names = [] if is_tags else list(filter(None, selection.split(",")))
    client = AwsClient()
    try:
        groups = AutoScalingGroups(
            client,
            tags=read_auto_discovery(f"asg:{selection}") if is_tags else {},
            names=names,
            everything=not selection,
            now=time.time_ns,
            monotonic=time.monotonic_ns,
            machines={} if catalogue is None else _machine_types(catalogue),
        )
        live = list(AwsGroups(groups, lambda: nodes).refresh())
    except ProviderError as error:
        raise InputError(Problem(error.message, name)) from None
    finally:
        client.close()
    missing = [each for each in names if each not in {group.id for group in live}]
    if missing:
        raise InputError([Problem("AWS has no such Auto Scaling group", name, each) for each in missing])
    if not live:
        raise InputError(Problem(f"there are no such Auto Scaling groups in {client.region}", name))
    return _growable([_priced(group, catalogue, client.region) for group in live], terminal)


def _growable(groups: Sequence[NodeGroup], terminal: Terminal) -> list[NodeGroup]:
    """Return the groups that have a node to copy, without their template, or a template; each other one is reported."""
    result = []
    for group in groups:
        if group.nodes:
            result.append(replace(group, template=None, template_error=None))
        elif group.template is None:
            terminal.warn(f"group {group.id} left out: {group.template_error}")
        else:
            result.append(group)
    return result


def _priced(group: NodeGroup, catalogue: Catalogue | None, region: str) -> NodeGroup:
    """Return the group with the price of its instance type, if the catalogue has one for the region."""
    if catalogue is None or group.template is None:
        return group
    kind = (group.template.node.metadata.labels or {}).get("node.kubernetes.io/instance-type", "")
    return replace(group, price=catalogue[kind].price(region)) if kind in catalogue else group


def describe_instance_types(region: str) -> tuple[Any, str]:
    """Return the instance types of a region in the form of ``aws ec2 describe-instance-types``, and the region.

    Raises InputError if AWS cannot be read, and MissingExtraError without boto3.
    """
    from kscale.world.aws.client import AwsClient

    client = AwsClient(region)
    try:
        return {"InstanceTypes": client.all_instance_types()}, client.region
    except ProviderError as error:
        raise InputError(Problem(error.message, "--live aws")) from None
    finally:
        client.close()
