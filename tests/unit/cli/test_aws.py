"""Commands on a live AWS account, which moto emulates on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kscale.cli.aws import build_provider
from kscale.cli.cluster_autoscaler_flags import AutoscalerFlags
from kscale.world.clock import SystemClock
from unit.cli.support import kscale as run

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of an account with the groups ``web`` (m5.large, no instances) and ``other``."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    folder = tmp_path_factory.mktemp("aws")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"), "XDG_DATA_HOME": str(folder),
        }.items():  # fmt: skip
            patch.setenv(name, value)
        ec2, autoscaling = (boto3.client(name, region_name="us-east-1") for name in ("ec2", "autoscaling"))
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        launch = {"InstanceType": "m5.large", "ImageId": image}
        ec2.create_launch_template(LaunchTemplateName="launch", LaunchTemplateData=launch)
        for name, desired in (("web", 0), ("other", 1)):
            tag = {"Key": "team", "Value": name, "PropagateAtLaunch": False}
            autoscaling.create_auto_scaling_group(
                AutoScalingGroupName=name, MinSize=0, MaxSize=5, DesiredCapacity=desired,
                LaunchTemplate={"LaunchTemplateName": "launch"}, AvailabilityZones=["us-east-1a"],
                Tags=[tag | {"ResourceId": name, "ResourceType": "auto-scaling-group"}],
            )  # fmt: skip
        yield url
    server.stop()


def dump_of(folder: Path, *nodes: dict[str, Any]) -> Path:
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }  # fmt: skip
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, *nodes]}))
    return path


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("aws:", ["other", "web"]),
        ("aws:web", ["web"]),
        ("aws:web,other", ["other", "web"]),
        ("aws:tag=team=web", ["web"]),
        ("aws:tag=team", ["other", "web"]),
    ],
)
def test_groups_of_a_live_account_are_estimated(name: str, groups: list[str], tmp_path: Path) -> None:
    answer = run("estimate", "-f", dump_of(tmp_path), "-g", name, "-o", "json")
    assert answer.code == 0, answer.stderr
    results = json.loads(answer.stdout)["groups"]
    assert sorted(each["group"] for each in results) == groups
    assert {each["nodes"] for each in results} == {1}


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aws:nothing", "aws:nothing: nothing: AWS has no such Auto Scaling group"),
        ("aws:tag=nobody", "there are no such Auto Scaling groups in us-east-1"),
        ("aws:tag=", "tag value not supplied"),
    ],
)
def test_groups_that_the_account_does_not_have_are_an_error(name: str, why: str, tmp_path: Path) -> None:
    answer = run("scale-up", "-f", dump_of(tmp_path), "-g", name)
    assert answer.code == 2
    assert why in answer.stderr


@pytest.mark.usefixtures("account")
def test_a_scale_up_goes_by_the_limits_and_sizes_of_the_account(tmp_path: Path) -> None:
    answer = run("scale-up", "-f", dump_of(tmp_path), "-g", "aws:web", "-o", "json")
    assert answer.code == 0, answer.stderr
    (increase,) = json.loads(answer.stdout)["scaleUps"]
    assert (increase["group"], increase["currentSize"], increase["newSize"], increase["maxSize"]) == ("web", 0, 1, 5)


M5 = {
    "InstanceType": "m5.large", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10},
}  # fmt: skip


@pytest.mark.usefixtures("account")
def test_the_types_of_a_live_account_become_a_catalogue_and_the_fallback_of_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # moto takes minutes to list its types
    monkeypatch.setattr("kscale.world.aws.client.AwsClient.all_instance_types", lambda _: [M5])
    answer = run("catalogue", "import", "--live", "aws", "-o", "json")
    assert answer.code == 0, answer.stderr
    (catalogue,) = json.loads(answer.stdout)["catalogues"]
    assert (catalogue["name"], catalogue["types"]) == ("aws", 1)
    flags = AutoscalerFlags(nodes=["0:3:web"], aws_use_static_instance_list=True)
    provider, client = build_provider(flags, SystemClock(), list)
    (group,) = provider.refresh()
    client.close()
    assert (group.max_size, group.template_error) == (3, None)
    assert group.template is not None
    assert (group.template.node.status.capacity or {})["memory"].value() == 8 << 30


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "either FILE or --live is needed"),
        (["file", "--live", "aws"], "either FILE or --live is needed"),
        (["file", "--region", "us-east-1"], "it is of use with --live only"),
    ],
)
def test_a_catalogue_is_of_a_file_or_of_a_live_account(arguments: list[str], why: str) -> None:
    answer = run("catalogue", "import", *arguments)
    assert answer.code == 2
    assert why in answer.stderr
