"""docs/aws.md lists every flag, setting, tag, name and environment variable of upstream's AWS provider, and says what
becomes of each. The lists here are upstream's (``cloudprovider/aws``, its README, and the SDK's variables)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import pytest
import typer

from kscale.ca.node_group_set import COMPARATOR_IGNORED_LABELS, Comparator
from kscale.ca.options import AutoscalingOptions
from kscale.cli.app import app
from kscale.cli.cluster_autoscaler_flags import IDLE
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.nodegroup import ProviderError
from kscale.world.aws.auto_scaling_groups import AutoScalingGroups, read_auto_discovery
from kscale.world.aws.client import AwsClient, read_cloud_config
from kscale.world.aws.provider import AwsGroups
from kscale.world.aws.templates import (
    labels_from_tags,
    managed_nodegroup_name,
    node_group_options,
    options_from_tags,
    resources_from_tags,
    taints_from_tags,
)
from unit.cli.support import kscale

PAGE: Final = (Path(__file__).parents[3] / "docs" / "aws.md").read_text()
ROW: Final = re.compile(r"^\| `([^`]+)` \| (taken|no effect|refused) \|", re.MULTILINE)
TAGS: Final = "k8s.io/cluster-autoscaler/"
TEMPLATE: Final = f"{TAGS}node-template/"
OPTIONS: Final = f"{TEMPLATE}autoscaling-options/"
SIMILAR: Final = (
    "alpha.eksctl.io/instance-id", "alpha.eksctl.io/nodegroup-name", "eks.amazonaws.com/nodegroup",
    "k8s.amazonaws.com/eniConfig", "lifecycle", "topology.ebs.csi.aws.com/zone", "topology.k8s.aws/zone-id",
)  # fmt: skip
UPSTREAM: Final[Mapping[str, Mapping[str, str]]] = {
    "Flags": {
        **dict.fromkeys(
            ("--cloud-provider=aws", "--cloud-config", "--nodes", "--node-group-auto-discovery",
             "--aws-use-static-instance-list", "--balancing-ignore-label", "--memory-difference-ratio",
             "--max-free-difference-ratio", "--max-allocatable-difference-ratio"),
            "taken",
        ),
        "--expander=price": "refused",
        "--cluster-name": "no effect",
    },
    "Cloud configuration file": {
        **{f"ServiceOverride.{name}": "taken" for name in ("Service", "Region", "URL", "SigningRegion")},
        **{f"ServiceOverride.{name}": "refused" for name in ("SigningMethod", "SigningName")},
        "Global": "no effect",
    },
    "Tags of Auto Scaling groups": {
        **{f"{TAGS}{name}": "taken" for name in ("enabled", "CLUSTER")},
        **{f"{TEMPLATE}{name}/NAME": "taken" for name in ("label", "taint", "resources")},
        **{
            f"{OPTIONS}{name}": "taken"
            for name in ("scaledownutilizationthreshold", "scaledowngpuutilizationthreshold", "scaledownunneededtime",
                         "scaledownunreadytime", "ignoredaemonsetsutilization")
        },
        **{f"{OPTIONS}{name}": "no effect" for name in ("maxnodeprovisiontime", "maxnodestartuptime")},
        **{f"eks:{name}": "taken" for name in ("cluster-name", "nodegroup-name", "NAME")},
    },
    "Labels, annotations and names of nodes": dict.fromkeys(
        ("k8s.io/cluster-autoscaler-enabled", "k8s.amazonaws.com/accelerator", "fargate", *SIMILAR), "taken"
    ),
    "Environment variables": {
        **{
            f"AWS_{name}": "taken"
            for name in (
                "REGION", "DEFAULT_REGION", "MAX_ATTEMPTS", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN",
                "PROFILE", "CONFIG_FILE", "SHARED_CREDENTIALS_FILE", "ROLE_ARN", "ROLE_SESSION_NAME",
                "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_FULL_URI", "CONTAINER_CREDENTIALS_RELATIVE_URI",
                "CONTAINER_AUTHORIZATION_TOKEN", "CONTAINER_AUTHORIZATION_TOKEN_FILE", "EC2_METADATA_DISABLED",
                "EC2_METADATA_SERVICE_ENDPOINT", "STS_REGIONAL_ENDPOINTS", "ENDPOINT_URL", "ENDPOINT_URL_AUTO_SCALING",
                "ENDPOINT_URL_EC2", "ENDPOINT_URL_EKS", "CA_BUNDLE", "USE_FIPS_ENDPOINT", "USE_DUALSTACK_ENDPOINT",
            )
        },
        **{f"AWS_{name}": "no effect" for name in ("RETRY_MODE", "SDK_LOAD_CONFIG")},
    },
}  # fmt: skip


def section(heading: str) -> str:
    """The text of a part of the page."""
    return PAGE.split(f"### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]


def named(heading: str, verdict: str) -> list[str]:
    return [name for name, each in UPSTREAM[heading].items() if each == verdict]


@pytest.mark.parametrize("heading", UPSTREAM)
def test_page_lists_every_upstream_setting(heading: str) -> None:
    rows = ROW.findall(section(heading))
    assert dict(rows) == UPSTREAM[heading]
    assert len(rows) == len(UPSTREAM[heading])


# -- flags -------------------------------------------------------------------------------------------------------------


def flags_of_the_program() -> set[str]:
    context = click.Context(typer.main.get_command(app))
    command: Any = context.command
    for name in ("run", "cluster-autoscaler"):
        command = command.get_command(context, name)
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("flag", named("Flags", "taken"))
def test_flags_that_are_taken_are_flags_of_the_program(flag: str) -> None:
    name = flag.partition("=")[0]
    assert name in flags_of_the_program()
    assert name.removeprefix("--") not in IDLE


@pytest.mark.parametrize("flag", [name for name in named("Flags", "taken") if "ratio" in name or "ignore" in name])
def test_flags_of_similarity_reach_the_comparator_of_aws(flag: str) -> None:
    name = flag.removeprefix("--").replace("-", "_")
    value: Any = ["mine"] if "ignore" in name else 0.5
    usual, changed = (
        Comparator.from_options(options, "aws")
        for options in (AutoscalingOptions(), AutoscalingOptions(**{name: value}))
    )
    assert usual != changed


def test_flags_without_effect_are_accepted() -> None:
    assert {flag.removeprefix("--") for flag in named("Flags", "no effect")} <= IDLE.keys()


def test_the_arguments_of_a_stock_deployment_are_accepted() -> None:
    """As the page shows them, and nothing of them is without effect but klog's."""
    (script,) = [
        block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "--dry-run" in block
    ]
    (line,) = [line for line in script.replace("\\\n", " ").splitlines() if line.startswith("kscale run")]
    words = shlex.split(line)[1:]
    result = kscale(*words, "--nothing-like-it")
    assert (result.code, "No such option: --nothing-like-it" in result.stderr) == (2, True)
    assert len([word for word in words if word.startswith("--")]) >= 7


# -- cloud configuration file ------------------------------------------------------------------------------------------

OVERRIDE: Final = {"Service": "ec2", "Region": "here", "URL": "http://127.0.0.1:9", "SigningRegion": "there"}


def configuration(folder: Path, settings: Mapping[str, str], head: str = "") -> str:
    lines = ['[ServiceOverride "1"]', *(f"  {name} = {value}" for name, value in settings.items())]
    path = folder / "cloud.conf"
    path.write_text(head + "\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("name", [name.rpartition(".")[2] for name in named("Cloud configuration file", "taken")])
def test_settings_that_are_taken(name: str, tmp_path: Path) -> None:
    (usual,) = read_cloud_config(configuration(tmp_path, OVERRIDE))
    (changed,) = read_cloud_config(configuration(tmp_path, {**OVERRIDE, name: "other"}))
    assert usual != changed
    with pytest.raises(InputError, match="missing"):
        read_cloud_config(configuration(tmp_path, {key: value for key, value in OVERRIDE.items() if key != name}))


@pytest.mark.parametrize("name", [name.rpartition(".")[2] for name in named("Cloud configuration file", "refused")])
def test_settings_that_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=name):
        read_cloud_config(configuration(tmp_path, {**OVERRIDE, name: "other"}))


def test_settings_without_effect(tmp_path: Path) -> None:
    usual = read_cloud_config(configuration(tmp_path, OVERRIDE))
    assert read_cloud_config(configuration(tmp_path, OVERRIDE, "[Global]\nZone = here-a\n")) == usual


# -- tags --------------------------------------------------------------------------------------------------------------


def option_values(key: str) -> Any:
    for value in ("0.3", "7m", "true"):
        warnings: list[str] = []
        options = node_group_options(options_from_tags({key: value}), "web", warnings)
        if options is not None:
            return options
    return None


@pytest.mark.parametrize("tag", named("Tags of Auto Scaling groups", "taken"))
def test_tags_that_are_taken(tag: str) -> None:
    name = tag.rpartition("/")[2]
    if tag.startswith(OPTIONS):
        assert option_values(tag) is not None
    elif tag.startswith(f"{TEMPLATE}label/"):
        assert labels_from_tags({tag: "x"}) == {"NAME": "x"}
    elif tag.startswith(f"{TEMPLATE}taint/"):
        (taint,) = taints_from_tags({tag: "x:NoSchedule"})
        assert (taint.key, taint.value, taint.effect) == ("NAME", "x", "NoSchedule")
    elif tag.startswith(f"{TEMPLATE}resources/"):
        assert {key: str(amount) for key, amount in resources_from_tags({tag: "3"}).items()} == {"NAME": "3"}
    elif tag == "eks:NAME":
        assert labels_from_tags({tag: "x"}) == {"NAME": "x"}
    elif tag.startswith("eks:"):
        both = {"eks:cluster-name": "c", "eks:nodegroup-name": "n"}
        assert managed_nodegroup_name(both) == ("c", "n")
        assert managed_nodegroup_name({key: value for key, value in both.items() if key != tag}) is None
    else:
        assert name in ("enabled", "CLUSTER")
        assert read_auto_discovery(f"asg:tag={tag}") == {tag: ""}


@pytest.mark.parametrize("tag", named("Tags of Auto Scaling groups", "no effect"))
def test_tags_without_effect(tag: str) -> None:
    assert option_values(tag) is None


# -- nodes -------------------------------------------------------------------------------------------------------------


def provider() -> AwsGroups:
    api: Any = object()  # nothing is asked
    return AwsGroups(AutoScalingGroups(api, now=lambda: 0, monotonic=lambda: 0), tuple)


def test_names_of_nodes_that_are_taken() -> None:
    off = Node(metadata=ObjectMeta(name="n", annotations={"k8s.io/cluster-autoscaler-enabled": "false"}))
    assert provider().has_instance(off) is False
    with pytest.raises(ProviderError, match="Not implemented"):
        provider().has_instance(Node(metadata=ObjectMeta(name="fargate-10-0-0-1")))
    with pytest.raises(ProviderError, match="wrong id"):
        provider().has_instance(Node(metadata=ObjectMeta(name="n")))
    assert AwsGroups.gpu_label == "k8s.amazonaws.com/accelerator"
    assert {*COMPARATOR_IGNORED_LABELS["aws"]} - {*COMPARATOR_IGNORED_LABELS["generic"]} == {*SIMILAR}


# -- environment variables ---------------------------------------------------------------------------------------------


def constants_of_botocore() -> set[str]:
    """Names of environment variables in botocore's modules."""
    botocore = pytest.importorskip("botocore", reason="the extra [aws] is not installed")
    (folder,) = botocore.__path__
    text = "".join(path.read_text() for path in Path(folder).glob("*.py"))
    return {*re.findall(r"['\"](AWS_[A-Z0-9_]+)['\"]", text)}


ENDPOINTS: Final = {"AWS_ENDPOINT_URL": "ec2", "AWS_ENDPOINT_URL_AUTO_SCALING": "autoscaling",
                    "AWS_ENDPOINT_URL_EC2": "ec2", "AWS_ENDPOINT_URL_EKS": "eks"}  # fmt: skip


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No variable of this machine, and no file of its user."""
    pytest.importorskip("boto3", reason="the extra [aws] is not installed")
    for name in UPSTREAM["Environment variables"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in (("CONFIG_FILE", "none"), ("SHARED_CREDENTIALS_FILE", "none")):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / value))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_variables_that_are_taken_are_read_by_the_library() -> None:
    supported = {*named("Environment variables", "taken")} - ENDPOINTS.keys()
    assert supported - {"AWS_REGION"} <= constants_of_botocore()


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_comes_from_the_environment(name: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv(name, "xx-north-1")
    client = AwsClient()
    assert client.region == "xx-north-1"
    client.close()


def meta(service: str) -> Any:
    client = AwsClient("xx-north-1")
    try:
        return client._service(service).meta
    finally:
        client.close()


@pytest.mark.parametrize(("name", "service"), ENDPOINTS.items())
def test_endpoints_come_from_the_environment(name: str, service: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv(name, "http://127.0.0.1:9")
    assert meta(service).endpoint_url == "http://127.0.0.1:9"


def test_attempts_come_from_the_environment_and_their_mode_does_not(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_RETRY_MODE", "legacy")
    environment.setenv("AWS_MAX_ATTEMPTS", "7")
    retries = meta("autoscaling").config.retries
    assert (retries["mode"], retries["total_max_attempts"]) == ("standard", 7)


def test_variables_without_effect() -> None:
    assert "AWS_SDK_LOAD_CONFIG" not in constants_of_botocore()
