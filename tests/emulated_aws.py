"""AWS on loopback: moto's server in a process of its own, and a layer in front of it for what moto does not do.

The layer is an HTTP proxy. It adds what a real account shows and moto does not: capacity that does not come, failed
scaling activities, refused requests, suspended processes that have an effect, short pages, and an account with few
instance types. It also records every request.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

import boto3

__all__ = ["ENABLED", "REGION", "Call", "EmulatedAws", "Refusal"]

REGION: Final = "us-east-1"
ENABLED: Final = "k8s.io/cluster-autoscaler/enabled"
IMAGE: Final = "ami-12c6146b"
"""An image that moto's accounts have."""
TYPES: Final = ("m5.large", "m5.xlarge", "c5.large", "t3.micro", "g4dn.xlarge")
"""The instance types of the account. moto knows more than a thousand, and takes many seconds to list them."""
_READY: Final = 120.0
_NAMESPACE: Final = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
_HOP_BY_HOP: Final = ("connection", "content-length", "host", "keep-alive", "transfer-encoding")


@dataclass(frozen=True)
class Call:
    """A request that the layer received: the API operation and its parameters as the query protocol names them."""

    action: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.parameters.get("AutoScalingGroupName", "")


@dataclass
class Refusal:
    """An error response to the next ``times`` requests of an operation (empty: of every operation; None: for ever)."""

    action: str
    code: str
    message: str
    status: int = 400
    times: int | None = None

    def matches(self, call: Call) -> bool:
        return self.times != 0 and self.action in ("", call.action)


@dataclass
class _CapacityShortage:
    """A group whose instances do not come: the size that was requested, and why AWS says that they fail."""

    message: str
    desired: int | None = None


class EmulatedAws:
    """An account in one region. A context manager: leaving ends the server and the layer.

    ``calls``: every request through the layer, in order. ``page_size``: groups per page of DescribeAutoScalingGroups.
    """

    def __init__(self, directory: Path) -> None:
        self._log = directory / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._clients: dict[str, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self.calls: list[Call] = []
        self.page_size = 100
        self._refusals: list[Refusal] = []
        self._held: dict[str, _CapacityShortage] = {}
        self._activities: dict[str, list[dict[str, str]]] = {}
        self._templates: set[str] = set()

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            words = ("-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
            self._process = subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._thread.start()
        try:
            self._port = self._find_port(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for client in self._clients.values():
            client.close()
        if self._process is not None:
            self._process.kill()  # it has nothing to save
            self._process.wait()

    def _find_port(self, process: subprocess.Popen[bytes]) -> int:
        """Return the port that moto chose, once it has written it to its log."""
        end = time.monotonic() + _READY
        while time.monotonic() < end:
            text = self._log.read_text(errors="replace")
            _, sign, rest = text.partition("http://127.0.0.1:")
            if sign and "\n" in rest:
                return int(rest.split()[0])
            if process.poll() is not None:
                raise RuntimeError(f"moto ended:\n{text[-3000:]}")
            time.sleep(0.05)
        raise RuntimeError(f"moto is not ready after {_READY:.0f} s:\n{self._log.read_text()[-3000:]}")

    def reset(self) -> None:
        """Make the account empty again: no groups, no failures, no recorded calls."""
        with self._lock:
            self._send("POST", "/moto-api/reset", {}, b"")
            self._clear()

    # -- the account, past the layer ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Of the layer: the endpoint of programs under test."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which an SDK uses this account."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def autoscaling(self) -> Any:
        """A boto3 client of Auto Scaling, which the layer neither changes nor records."""
        return self._client("autoscaling")

    @property
    def ec2(self) -> Any:
        """A boto3 client of EC2, which the layer neither changes nor records."""
        return self._client("ec2")

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = boto3.client(
                    service,
                    endpoint_url=f"http://127.0.0.1:{self._port}",
                    region_name=REGION,
                    aws_access_key_id="testing",
                    aws_secret_access_key="testing",
                )
            return self._clients[service]

    def create_group(
        self,
        name: str,
        *,
        instance_type: str = "m5.large",
        zones: Sequence[str] = (f"{REGION}a",),
        minimum: int = 0,
        maximum: int = 5,
        desired: int = 0,
        tags: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Create an Auto Scaling group with the tag of discovery.

        ``more``: parameters of the operation instead of a launch template of the instance type.
        """
        if not more:
            more = {"LaunchTemplate": {"LaunchTemplateName": self.template(instance_type), "Version": "$Latest"}}
        all_tags = {ENABLED: "true", **(tags or {})}
        self.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            AvailabilityZones=list(zones),
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in all_tags.items()],
            **more,
        )

    def template(self, instance_type: str) -> str:
        """Return the name of the launch template of an instance type, which is created at the first use."""
        name = f"of-{instance_type}"
        with self._lock:
            if name not in self._templates:
                data = {"InstanceType": instance_type, "ImageId": IMAGE}
                self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
                self._templates.add(name)
        return name

    def groups(self) -> dict[str, Any]:
        """Return the groups as moto has them, by name."""
        pages = self.autoscaling.get_paginator("describe_auto_scaling_groups").paginate()
        return {group["AutoScalingGroupName"]: group for page in pages for group in page["AutoScalingGroups"]}

    def desired(self, group: str) -> int:
        """Return the size that was requested, whether its instances came or not."""
        with self._lock:
            group_state = self._held.get(group)
            if group_state is not None and group_state.desired is not None:
                return group_state.desired
        size: int = self.groups()[group]["DesiredCapacity"]
        return size

    def instances(self, group: str) -> list[str]:
        """Return the provider IDs of a group's instances."""
        return [
            f"aws:///{instance['AvailabilityZone']}/{instance['InstanceId']}"
            for instance in self.groups()[group]["Instances"]
        ]

    def actions(self, *names: str) -> list[Call]:
        """Return the recorded calls of these operations (of all, without names)."""
        with self._lock:
            return [call for call in self.calls if not names or call.action in names]

    # -- what goes wrong ---------------------------------------------------------------------------------------------

    def hold(self, group: str, message: str = "") -> None:
        """From now on no instance comes when a group grows. ``message``: of the failed scaling activity, if one is
        reported."""
        with self._lock:
            self._held[group] = _CapacityShortage(message)

    def release(self, group: str) -> None:
        """Capacity is there again: the instances that were requested come."""
        with self._lock:
            group_state = self._held.pop(group, None)
            if group_state is not None and group_state.desired is not None:
                self.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=group_state.desired)

    def suspend(self, group: str, *processes: str) -> None:
        """Suspend processes of a group. A group whose Launch is suspended does not grow."""
        self.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=list(processes))
        if "Launch" in processes:
            self.hold(group)

    def refuse(self, action: str, code: str, message: str, *, status: int = 400, times: int | None = None) -> Refusal:
        """Refuse requests of an operation (empty: of all). :meth:`accept` ends it."""
        with self._lock:
            refusal = Refusal(action, code, message, status, times)
            self._refusals.append(refusal)
            return refusal

    def accept(self, refusal: Refusal) -> None:
        with self._lock:
            self._refusals.remove(refusal)

    def throttle(self, action: str, times: int) -> Refusal:
        """Refuse the next requests of an operation as AWS does when there are too many."""
        code = "RequestLimitExceeded" if action.startswith("DescribeI") else "Throttling"
        return self.refuse(action, code, "Rate exceeded", times=times)

    def expire_credentials(self) -> Refusal:
        """Refuse everything as AWS does for credentials of a session that is over."""
        return self.refuse("", "ExpiredToken", "The security token included in the request is expired", status=403)

    # -- the layer ---------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, bytes]:
        """Answer a request: status, content type and body."""
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True)) if b"Action=" in body else {}
        call = Call(parameters.get("Action", f"{method} {path}"), parameters)
        with self._lock:
            self.calls.append(call)
            for refusal in self._refusals:
                if refusal.matches(call):
                    if refusal.times is not None:
                        refusal.times -= 1
                    return refusal.status, "text/xml", _error(refusal, call, headers)
            match call.action:
                case "SetDesiredCapacity" if call.group in self._held:
                    if self._keep_back(call.group, int(parameters["DesiredCapacity"])):
                        return 200, "text/xml", _result(call.action, "")
                case "TerminateInstanceInAutoScalingGroup":
                    self._count_termination(parameters["InstanceId"])
                case "DescribeScalingActivities":
                    return 200, "text/xml", _activities(self._activities.get(call.group, ()))
                case "DescribeAutoScalingGroups":
                    size = min(self.page_size, int(parameters.get("MaxRecords", "50")))
                    body = urlencode({**parameters, "MaxRecords": size}).encode()
                case "DescribeInstanceTypes" if not any(
                    name.startswith(("InstanceType.", "Filter.")) for name in parameters
                ):
                    types = {f"InstanceType.{i + 1}": name for i, name in enumerate(TYPES)}
                    rest = {name: value for name, value in parameters.items() if name != "MaxResults"}
                    body = urlencode({**rest, **types}).encode()
        status, kind, content = self._send(method, path, headers, body)
        if call.action == "DescribeAutoScalingGroups" and status == 200:
            content = self._with_requested_sizes(content)
        return status, kind, content

    def _send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            sent = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type", ""), response.read()
        finally:
            connection.close()

    def _keep_back(self, group: str, desired: int) -> bool:
        """Return whether a new size of a held group stays with the layer, as instances would have to come."""
        group_state = self._held[group]
        present = len(self.groups()[group]["Instances"])
        group_state.desired = desired if desired > present else None
        if group_state.desired is not None and group_state.message:
            self._activities.setdefault(group, []).insert(
                0,
                {
                    "ActivityId": str(uuid4()),
                    "AutoScalingGroupName": group,
                    "Description": "Launching a new EC2 instance. Status Reason: Could not launch On-Demand Instances.",
                    "Cause": f"a user request changed the desired capacity from {present} to {desired}",
                    "StartTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
                    "StatusCode": "Failed",
                    "StatusMessage": group_state.message,
                    "Progress": "100",
                },
            )
        return group_state.desired is not None

    def _count_termination(self, instance: str) -> None:
        for name, group in self.groups().items():
            group_state = self._held.get(name)
            if group_state is not None and group_state.desired is not None:
                group_state.desired -= any(each["InstanceId"] == instance for each in group["Instances"])

    def _with_requested_sizes(self, content: bytes) -> bytes:
        with self._lock:
            sizes = {
                name: group_state.desired for name, group_state in self._held.items() if group_state.desired is not None
            }
        if not sizes:
            return content
        ET.register_namespace("", _NAMESPACE)
        root = ET.fromstring(content)
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        for member in root.iter(f"{space}member"):
            name = member.find(f"{space}AutoScalingGroupName")
            desired = member.find(f"{space}DesiredCapacity")
            if name is not None and desired is not None and name.text in sizes:
                desired.text = str(sizes[name.text])
        return ET.tostring(root)


def _handler(aws: EmulatedAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, kind, content = aws.answer(self.command, self.path, dict(self.headers.items()), body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET = _answer  # noqa: N815  # http.server's names

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _error(refusal: Refusal, call: Call, headers: Mapping[str, str]) -> bytes:
    """Format an error as the service does: EC2 has another envelope than Auto Scaling."""
    inner = f"<Code>{refusal.code}</Code><Message>{refusal.message}</Message>"
    if "/ec2/" in headers.get("Authorization", ""):
        return f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>{uuid4()}</RequestID></Response>".encode()
    error = f"<Error><Type>Sender</Type>{inner}</Error><RequestId>{uuid4()}</RequestId>"
    return f'<ErrorResponse xmlns="{_NAMESPACE}">{error}</ErrorResponse>'.encode()


def _result(action: str, inner: str) -> bytes:
    metadata = f"<ResponseMetadata><RequestId>{uuid4()}</RequestId></ResponseMetadata>"
    return f'<{action}Response xmlns="{_NAMESPACE}">{inner}{metadata}</{action}Response>'.encode()


def _activities(activities: Iterable[Mapping[str, str]]) -> bytes:
    members = "".join(
        "<member>" + "".join(f"<{name}>{value}</{name}>" for name, value in activity.items()) + "</member>"
        for activity in activities
    )
    action = "DescribeScalingActivities"
    return _result(action, f"<{action}Result><Activities>{members}</Activities></{action}Result>")
