"""``kscale manifests cluster-autoscaler --cloud-provider aws``: the objects, and the least IAM policy."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import kscale.world.aws
from kscale.drivers.manifests.cluster_autoscaler import aws_policy
from unit.cli.support import Run
from unit.cli.support import kscale as run

COMMAND = ("manifests", "cluster-autoscaler", "--image", "example.org/kscale:1", "--cloud-provider", "aws")
DISCOVERED = "--flag=--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled"
ROLE = "arn:aws:iam::111122223333:role/path/autoscaler"
WRITES = ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
GROUP = "autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/"


def policy(*flags: str) -> Any:
    result = run(*COMMAND, "--iam-policy", *(f"--flag={flag}" for flag in flags))
    assert result.code == 0, result.stderr
    return json.loads(result.stdout)


def changes(document: Any) -> list[dict[str, Any]]:
    """The statements after the one for descriptions."""
    describe, *rest = document["Statement"]
    assert (describe["Effect"], describe["Resource"]) == ("Allow", "*")
    assert not {*describe["Action"]} & {*WRITES}
    for statement in rest:
        assert (statement["Effect"], statement["Action"]) == ("Allow", WRITES)
    return rest


def texts(folder: Path) -> Iterator[str]:
    """Names and string literals in the modules of a folder."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.Attribute):
                yield node.attr


def test_the_policy_allows_the_operations_that_the_provider_calls() -> None:
    """An operation is called by its name or by that of boto3's method."""
    botocore = pytest.importorskip("botocore", reason="the extra [aws] is not installed")
    session = pytest.importorskip("botocore.session", reason="the extra [aws] is not installed").get_session()
    operations = {}
    for service in ("autoscaling", "ec2", "eks"):
        for operation in session.get_service_model(service).operation_names:
            for name in (operation, botocore.xform_name(operation)):
                assert operations.setdefault(name, f"{service}:{operation}").endswith(f":{operation}")
    called = {operations[text] for text in texts(Path(*kscale.world.aws.__path__)) if text in operations}
    document = aws_policy(names=["web"])
    assert {action for statement in document["Statement"] for action in statement["Action"]} == called


def test_only_discovered_groups_may_be_changed() -> None:
    """Tags with a value have it, tags without one are there; as upstream's, all flags' tags together."""
    tag = "asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/prod=owned"
    flags = [f"--node-group-auto-discovery={text}" for text in (tag, "asg:tag=team=a")]
    (statement,) = changes(policy(*flags))
    assert statement["Resource"] == f"arn:aws:{GROUP}*"
    assert statement["Condition"] == {
        "StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/prod": "owned", "aws:ResourceTag/team": "a"},
        "Null": {"aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": "false"},
    }


def test_only_named_groups_may_be_changed() -> None:
    """What IAM would read as a pattern stands for itself."""
    (statement,) = changes(policy("--nodes=1:3:web", "--nodes=0:9:a*b?$", "--nodes=1:4:web"))
    assert statement["Resource"] == [f"arn:aws:{GROUP}web", f"arn:aws:{GROUP}a${{*}}b${{?}}${{$}}"]
    assert "Condition" not in statement
    assert len(changes(policy("--nodes=1:3:web", DISCOVERED.removeprefix("--flag=")))) == 2


def test_a_static_list_of_instance_types_needs_no_descriptions() -> None:
    flag = "--aws-use-static-instance-list"
    used, left_out = (policy("--nodes=1:3:web", *flags)["Statement"][0]["Action"] for flags in ([], [f"{flag}=true"]))
    assert [action for action in used if action not in left_out] == ["ec2:DescribeInstanceTypes"]
    assert policy("--nodes=1:3:web", f"{flag}=false")["Statement"][0]["Action"] == used


def test_the_service_account_has_the_role() -> None:
    result = run(*COMMAND, DISCOVERED, "--role-arn", ROLE)
    assert result.code == 0, result.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(result.stdout)}
    assert objects["ServiceAccount"]["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": ROLE}
    assert all("annotations" not in each["metadata"] for kind, each in objects.items() if kind != "ServiceAccount")
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][2:4] == ["--cloud-provider=aws", "--namespace=kube-system"]
    assert DISCOVERED.removeprefix("--flag=") in container["args"]


def test_resources_are_in_the_partition_of_the_role() -> None:
    role = ROLE.replace("aws", "aws-cn", 1)
    result = run(*COMMAND, "--flag=--nodes=1:3:web", "--role-arn", role, "--iam-policy")
    (statement,) = changes(json.loads(result.stdout))
    assert statement["Resource"] == [f"arn:aws-cn:{GROUP}web"]


def test_the_policy_is_beside_a_kustomize_base(tmp_path: Path) -> None:
    directory = tmp_path / "base"
    result = run(*COMMAND, DISCOVERED, "--directory", directory)
    assert (result.code, result.stdout) == (0, ""), result.stderr
    assert sorted(path.name for path in directory.iterdir()) == [
        "iam-policy.json",
        "kscale.yaml",
        "kustomization.yaml",
    ]
    assert json.loads((directory / "iam-policy.json").read_text()) == policy(DISCOVERED.removeprefix("--flag="))
    assert run(*COMMAND, "--flag=--nodes=1:3:web", "--directory", directory).code == 0
    assert json.loads((directory / "iam-policy.json").read_text()) == policy("--nodes=1:3:web")


def test_existing_policy_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "iam-policy.json").write_text("{}")
    result = run(*COMMAND, DISCOVERED, "--directory", tmp_path)
    assert result.code == 2
    assert "iam-policy.json exists already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["iam-policy.json"]


def failed(arguments: Sequence[str]) -> Run:
    return run("manifests", "cluster-autoscaler", "--image", "example.org/kscale:1", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cloud-provider=aws"], "--node-group-auto-discovery=asg:tag=... or --nodes=MIN:MAX:NAME"),
        (["--cloud-provider=aws", DISCOVERED, "--role-arn=autoscaler"], "not the ARN of an IAM role: 'autoscaler'"),
        (["--cloud-provider=aws", DISCOVERED, "--iam-policy", "-o", "yaml"], "an IAM policy is JSON"),
        (["--cloud-provider=aws", "--flag=--nodes=3:1:web"], "max size must be greater or equal to min size"),
        (
            ["--cloud-provider=aws", "--flag=--node-group-auto-discovery=mig:x=y"],
            "unsupported discoverer specified: mig",
        ),
        (["--cloud-provider=aws", DISCOVERED, "--flag=--aws-instance-types=x"], "the Deployment mounts no such file"),
        (["--cloud-provider=kwok", "--iam-policy"], "--iam-policy"),
        (["--cloud-provider=kwok", f"--role-arn={ROLE}"], "--role-arn"),
        (["--cloud-provider=kwok", "--flag=--nodes=1:3:web"], "--nodes"),
    ],
)
def test_invalid_policy_arguments_are_refused(arguments: list[str], message: str) -> None:
    result = failed(arguments)
    assert (result.code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())
