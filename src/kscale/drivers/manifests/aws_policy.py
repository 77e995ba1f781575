"""The IAM policy of the Cluster Autoscaler on AWS: the API operations that it calls, and the groups that it may change.

Upstream: the policies in ``cloudprovider/aws/README.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kscale.errors import InputError, Problem

__all__ = ["ROLE_ANNOTATION", "aws_policy", "read_role"]

ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"
"""Annotation of a service account whose pods EKS gives a role."""

_READS: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
)
_WRITES: Final = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")
_TYPES: Final = "ec2:DescribeInstanceTypes"
_ROLE: Final = re.compile(r"arn:(aws[a-z-]*):iam::\d{12}:role/[\w+=,.@/-]+")
_WILDCARD: Final = re.compile(r"[*?$]")


def read_role(arn: str) -> str:
    """Check the ARN of an IAM role and return its partition (``aws``, ``aws-cn``, ``aws-us-gov``).

    Raises InputError for any other text.
    """
    match = _ROLE.fullmatch(arn)
    if match is None:
        raise InputError(Problem(f"not the ARN of an IAM role: {arn!r}", field="--role-arn"))
    return match[1]


def aws_policy(
    *,
    names: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    static_types: bool = False,
    partition: str = "aws",
) -> dict[str, Any]:
    """Build the least IAM policy with which the autoscaler works.

    Parameters
    ----------
    names : sequence of str
        Names of groups (``--nodes``).
    tags : mapping of str to str, optional
        Tags that discovered groups have (``--node-group-auto-discovery``); an empty value stands for every value.
    static_types : bool
        Whether instance types come from a file (``--aws-use-static-instance-list``).
    partition : str
        Partition of the account in ARNs.

    Returns
    -------
    dict
        The policy document. Descriptions are allowed for everything, since IAM does not restrict them to resources;
        changes only for the groups.
    """
    reads = [action for action in _READS if not (static_types and action == _TYPES)]
    statements: list[dict[str, Any]] = [{"Sid": "Describe", "Effect": "Allow", "Action": reads, "Resource": "*"}]
    groups = f"arn:{partition}:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/"
    if names:
        resources = [f"{groups}{_escape(name)}" for name in dict.fromkeys(names)]
        statements.append({"Sid": "ScaleNamedGroups", "Effect": "Allow", "Action": [*_WRITES], "Resource": resources})
    if tags:
        equal = {f"aws:ResourceTag/{key}": _escape(value) for key, value in tags.items() if value}
        present = {f"aws:ResourceTag/{key}": "false" for key, value in tags.items() if not value}
        conditions = {name: rules for name, rules in (("StringEquals", equal), ("Null", present)) if rules}
        statements.append(
            {
                "Sid": "ScaleDiscoveredGroups",
                "Effect": "Allow",
                "Action": [*_WRITES],
                "Resource": f"{groups}*",
                "Condition": conditions,
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}


def _escape(text: str) -> str:
    """Escape the characters that IAM reads as wildcards or variables."""
    return _WILDCARD.sub(lambda match: f"${{{match[0]}}}", text)
