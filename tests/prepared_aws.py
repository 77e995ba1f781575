"""A large AWS account on loopback that answers from prepared data: only what a refresh of the cloud provider reads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qsl

__all__ = ["PreparedAws"]

_NAMESPACES: Final = {
    "autoscaling": "http://autoscaling.amazonaws.com/doc/2011-01-01/",
    "ec2": "http://ec2.amazonaws.com/doc/2016-11-15/",
}
_ZONES: Final = "abc"


class PreparedAws:
    """``groups`` Auto Scaling groups with ``instances`` in total, in three zones. A context manager.

    - ``short``: so many groups have one instance less than requested.
    - ``templates``: number of launch templates that the groups share.
    - ``configured``: groups have launch configurations instead, one each.

    ``counts``: requests by operation.
    """

    def __init__(
        self, groups: int, instances: int, *, short: int = 0, templates: int = 1, configured: bool = False
    ) -> None:
        self.names = [f"group-{i:03}" for i in range(groups)]
        self.counts: Counter[str] = Counter()
        self._sizes = [instances // groups + (i < instances % groups) for i in range(groups)]
        self._short, self._templates, self._configured = short, templates, configured
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def provider_ids(self) -> list[str]:
        """Return the provider IDs of all instances."""
        return [
            f"aws:///us-east-1{_ZONES[i % 3]}/i-{i:04x}{k:06x}"
            for i, size in enumerate(self._sizes)
            for k in range(size)
        ]

    def answer(self, parameters: dict[str, str]) -> str:
        """Answer a request of the query protocol."""
        action = parameters["Action"]
        self.counts[action] += 1
        match action:
            case "DescribeAutoScalingGroups":
                return self._groups(parameters)
            case "DescribeScalingActivities":
                return _result("autoscaling", action, "<Activities/>")
            case "DescribeLaunchConfigurations":
                names = [value for key, value in parameters.items() if key.startswith("LaunchConfigurationNames.")]
                members = _members(
                    f"<LaunchConfigurationName>{name}</LaunchConfigurationName><InstanceType>m5.large</InstanceType>"
                    for name in names
                )
                return _result("autoscaling", action, f"<LaunchConfigurations>{members}</LaunchConfigurations>")
            case "DescribeLaunchTemplateVersions":
                data = "<launchTemplateData><instanceType>m5.large</instanceType></launchTemplateData>"
                return _ec2(action, f"<launchTemplateVersionSet><item>{data}</item></launchTemplateVersionSet>")
            case "DescribeInstanceTypes":
                item = (
                    "<instanceType>m5.large</instanceType><vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo>"
                    "<memoryInfo><sizeInMiB>8192</sizeInMiB></memoryInfo><processorInfo><supportedArchitectures>"
                    "<item>x86_64</item></supportedArchitectures></processorInfo>"
                )
                return _ec2(action, f"<instanceTypeSet><item>{item}</item></instanceTypeSet>")
        raise AssertionError(f"an unexpected request: {parameters}")

    def _groups(self, parameters: dict[str, str]) -> str:
        chosen = {value for key, value in parameters.items() if key.startswith("AutoScalingGroupNames.")}
        assert len(chosen) <= 100, "AWS accepts 100 names"
        indices = [i for i, name in enumerate(self.names) if not chosen or name in chosen]
        size = int(parameters.get("MaxRecords", "50"))
        assert size <= 100, "AWS returns 100 groups"
        first = int(parameters.get("NextToken", "0"))
        page, rest = indices[first : first + size], indices[first + size :]
        token = f"<NextToken>{first + size}</NextToken>" if rest else ""
        members = _members(self._group(i) for i in page)
        return _result("autoscaling", parameters["Action"], f"<AutoScalingGroups>{members}</AutoScalingGroups>{token}")

    def _group(self, i: int) -> str:
        zone = f"us-east-1{_ZONES[i % 3]}"
        instances = _members(
            f"<InstanceId>i-{i:04x}{k:06x}</InstanceId><AvailabilityZone>{zone}</AvailabilityZone>"
            "<HealthStatus>Healthy</HealthStatus><LifecycleState>InService</LifecycleState>"
            "<InstanceType>m5.large</InstanceType><ProtectedFromScaleIn>false</ProtectedFromScaleIn>"
            for k in range(self._sizes[i])
        )
        template = (
            f"<LaunchConfigurationName>configuration-{i}</LaunchConfigurationName>"
            if self._configured
            else f"<LaunchTemplate><LaunchTemplateName>template-{i % self._templates}</LaunchTemplateName>"
            "<Version>$Latest</Version></LaunchTemplate>"
        )
        tag = "<Key>k8s.io/cluster-autoscaler/enabled</Key><Value>true</Value>"
        return (
            f"<AutoScalingGroupName>{self.names[i]}</AutoScalingGroupName><MinSize>0</MinSize><MaxSize>100</MaxSize>"
            f"<DesiredCapacity>{self._sizes[i] + (i < self._short)}</DesiredCapacity>"
            f"<AvailabilityZones>{_members([zone])}</AvailabilityZones>{template}"
            f"<Tags>{_members([tag])}</Tags><Instances>{instances}</Instances>"
        )


def _members(contents: Iterable[str]) -> str:
    return "".join(f"<member>{content}</member>" for content in contents)


def _result(service: str, action: str, inner: str) -> str:
    space = _NAMESPACES[service]
    return f'<{action}Response xmlns="{space}"><{action}Result>{inner}</{action}Result></{action}Response>'


def _ec2(action: str, inner: str) -> str:
    return f'<{action}Response xmlns="{_NAMESPACES["ec2"]}">{inner}</{action}Response>'


def _handler(aws: PreparedAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            content = aws.answer(dict(parse_qsl(body, keep_blank_values=True))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
