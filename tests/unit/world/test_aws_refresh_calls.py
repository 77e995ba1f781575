"""A refresh of 300 Auto Scaling groups with 5,000 instances makes no more requests than upstream's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

import pytest

from kscale.effects import SECOND
from kscale.objects.api.core import Node, NodeSpec
from kscale.objects.api.meta import ObjectMeta
from kscale.world.aws.auto_scaling_groups import AutoScalingGroups, GroupSpec
from kscale.world.aws.client import AwsClient
from kscale.world.aws.provider import AwsGroups
from prepared_aws import PreparedAws

pytest.importorskip("boto3", reason="the extra [aws] is not installed")

GROUPS, INSTANCES, SHORT, TEMPLATES = 300, 5_000, 7, 40
MINUTE = 60 * SECOND


@pytest.fixture(scope="module")
def session() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("ACCESS_KEY_ID", "testing"), ("SECRET_ACCESS_KEY", "testing")):
            patch.setenv(f"AWS_{name}", value)
        yield patch


class Account:
    """A provider of a prepared account. :meth:`refresh` is one loop's, ``seconds`` after the last one's."""

    def __init__(self, aws: PreparedAws, client: AwsClient, *, named: bool) -> None:
        self.aws, self.now = aws, 0
        groups = AutoScalingGroups(
            client,
            specs=[GroupSpec(0, 100, name) for name in aws.names] if named else [],
            tags={} if named else {"k8s.io/cluster-autoscaler/enabled": ""},
            now=lambda: self.now,
            monotonic=lambda: self.now,
        )
        self.nodes = [
            Node(metadata=ObjectMeta(name=f"n{i}"), spec=NodeSpec(provider_id=id_))
            for i, id_ in enumerate(aws.provider_ids())
        ]
        self.provider = AwsGroups(groups, lambda: self.nodes)

    def refresh(self, seconds: int) -> Counter[str]:
        """Return the requests of the refresh."""
        self.now += seconds * SECOND
        before = self.aws.counts.copy()
        groups = self.provider.refresh()
        assert len(groups) == GROUPS
        assert sum(len(group.nodes) for group in groups) == INSTANCES
        assert all(group.template is not None for group in groups)
        assert sum(len(group.instances) for group in groups) == INSTANCES + SHORT
        return self.aws.counts - before


@pytest.mark.parametrize("named", [False, True], ids=["discovered", "named"])
@pytest.mark.parametrize("configured", [False, True], ids=["launch templates", "launch configurations"])
def test_a_refresh_makes_no_more_requests_than_upstream(
    named: bool, configured: bool, session: pytest.MonkeyPatch
) -> None:
    with PreparedAws(GROUPS, INSTANCES, short=SHORT, templates=TEMPLATES, configured=configured) as aws:
        session.setenv("AWS_ENDPOINT_URL", aws.url)
        client = AwsClient("us-east-1")
        try:
            account = Account(aws, client, named=named)
            first = account.refresh(0)
            loops = [account.refresh(10) for _ in range(5)]
            steady = account.refresh(10)
        finally:
            client.close()
    # Upstream (getAutoscalingGroupsByNames, getAutoscalingGroupsByTags): 100 groups a page, and 100 names a request.
    described = {"DescribeAutoScalingGroups": ceil(GROUPS / 100)}
    # Upstream (isNodeGroupAvailable): a request for each group that is short of instances, from the second refresh on
    # with an effect.
    activities = {"DescribeScalingActivities": SHORT}
    # Upstream (getInstanceTypesForAsgs): 50 launch configurations a request, or a request for each group.
    types = {"DescribeLaunchConfigurations": ceil(GROUPS / 50)} if configured else {
        "DescribeLaunchTemplateVersions": GROUPS
    }  # fmt: skip
    # Upstream describes all instance types at the start, which are several pages.
    limits = Counter({**described, **activities, **types, "DescribeInstanceTypes": 1})
    assert first <= limits
    assert first["DescribeLaunchTemplateVersions"] == (0 if configured else TEMPLATES)
    assert loops == [Counter()] * 5, "between two refreshes nothing is requested"
    assert steady == Counter({**described, **activities})
