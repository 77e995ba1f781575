"""Commands on a live AWS account, with a stand-in for the calls to AWS."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kscale.cli.aws import build_provider
from kscale.cli.cluster_autoscaler_flags import AutoscalerFlags
from kscale.world.aws.api import AutoScalingGroup
from kscale.world.aws.client import AwsCredentialsError, AwsError
from kscale.world.clock import SystemClock
from unit.cli.support import kscale as run
from unit.world.test_aws_groups import Aws, described

M5 = {
    "InstanceType": "m5.large", "VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10},
}  # fmt: skip


class Account(Aws):
    """An account with the groups ``web`` (without instances) and ``other``, as the commands' client."""

    region = "us-east-1"

    def __init__(self) -> None:
        super().__init__(*(
            described(name, len(ids), *ids, MinSize=0, Tags=[{"Key": "team", "Value": name}])
            for name, ids in (("web", ()), ("other", ("i-1",)))
        ))  # fmt: skip
        self.types = {"m5.large": M5}
        self.closed = 0

    def __call__(self, region: str = "", **_: Any) -> Account:
        self.region = region or self.region
        return self

    def groups_tagged(self, tags: Mapping[str, str]) -> list[AutoScalingGroup]:
        return [
            group
            for group in super().groups_tagged(tags)
            if all(
                any(tag.key == key and value in ("", tag.value) for tag in group.tags) for key, value in tags.items()
            )
        ]

    def all_instance_types(self) -> list[dict[str, Any]]:
        self.called("DescribeInstanceTypes")
        return list(self.types.values())

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Account:
    created = Account()
    monkeypatch.setattr("kscale.world.aws.client.AwsClient", created)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return created


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
def test_scale_up_uses_limits_and_sizes_of_the_account(tmp_path: Path) -> None:
    answer = run("scale-up", "-f", dump_of(tmp_path), "-g", "aws:web", "-o", "json")
    assert answer.code == 0, answer.stderr
    (increase,) = json.loads(answer.stdout)["scaleUps"]
    assert increase == {"group": "web", "current": 0, "new": 1, "max": 5}


def test_the_types_of_a_live_account_become_a_catalogue_and_the_fallback_of_the_provider(account: Account) -> None:
    answer = run("catalogue", "import", "--live", "aws", "--region", "eu-west-1", "-o", "json")
    assert answer.code == 0, answer.stderr
    (catalogue,) = json.loads(answer.stdout)["catalogues"]
    assert (catalogue["name"], catalogue["types"], account.region, account.closed) == ("aws", 1, "eu-west-1", 1)
    flags = AutoscalerFlags(nodes=["0:3:web"], aws_use_static_instance_list=True)
    provider, _ = build_provider(flags, SystemClock(), list)
    (group,) = provider.refresh()
    assert (group.max_size, group.template_error) == (3, None)
    assert group.template is not None
    assert (group.template.node.status.capacity or {})["memory"].value() == 8 << 30
    assert account.calls["DescribeInstanceTypes"] == 1  # by the import


def test_an_account_that_cannot_be_read_is_an_error_of_the_input(account: Account, tmp_path: Path) -> None:
    account.errors["DescribeAutoScalingGroups"] = AwsCredentialsError(
        "DescribeAutoScalingGroups", "ExpiredToken", "old"
    )
    account.errors["DescribeInstanceTypes"] = AwsError("DescribeInstanceTypes", "UnauthorizedOperation", "no")
    estimate = run("estimate", "-f", dump_of(tmp_path), "-g", "aws:")
    assert (estimate.code, "aws:: DescribeAutoScalingGroups: ExpiredToken: old" in estimate.stderr) == (2, True)
    imported = run("catalogue", "import", "--live", "aws")
    assert (imported.code, "DescribeInstanceTypes: UnauthorizedOperation: no" in imported.stderr) == (2, True)
    assert account.closed == 2


@pytest.mark.usefixtures("account")
def test_a_group_without_a_template_is_left_out_with_the_reason(account: Account, tmp_path: Path) -> None:
    account.types = {}
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    answer = run("estimate", "-f", dump_of(tmp_path, node), "-g", "aws:", "-o", "json")
    assert 'group web left out: ASG "web" uses the unknown EC2 instance type "m5.large"' in answer.stderr
    # The other one is modelled on its node.
    assert [each["group"] for each in json.loads(answer.stdout)["groups"]] == ["other"]


def test_a_mix_has_the_prices_of_the_catalogue(account: Account, tmp_path: Path) -> None:
    table = tmp_path / "types.csv"
    table.write_text(
        "instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_us_east_1\nm5.large,amd64,2,8192,0,0.096\n"
    )
    answer = run("mix", "-f", dump_of(tmp_path), "-g", "aws:web", "--catalogue", table, "-o", "json")
    assert answer.code == 0, answer.stderr
    assert account.closed == 1
    assert json.loads(answer.stdout)["cost"] == 0.096


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "either FILE or --live is needed"),
        (["file", "--live", "aws"], "either FILE or --live is needed"),
        (["file", "--region", "us-east-1"], "it has an effect only with --live"),
    ],
)
def test_a_catalogue_is_of_a_file_or_of_a_live_account(arguments: list[str], why: str) -> None:
    answer = run("catalogue", "import", *arguments)
    assert answer.code == 2
    assert why in answer.stderr
