"""The client of the grpc expander, against a server in this process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from builders import node, pod
from kscale import ca
from kscale.drivers import GrpcExpander
from kscale.drivers.grpc_expander import TIMEOUT, answered_groups
from kscale.errors import InputError
from kscale.objects.decode import to_dict
from kscale.objects.protobuf.conversion import encode
from kscale.snapshot.pods.record import pod_record
from unit.drivers.expander_server import MESSAGES, Answer, Server, certificate_of, names, serving

_FAILED = "GRPC call failed, no options filtered: rpc error: code = "
_NO_MESSAGE = "grpc: failed to unmarshal the received message"


@pytest.fixture(scope="module")
def issuer() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def shared(issuer: trustme.CA) -> Iterator[Server]:
    with serving(names(), issuer) as running:
        yield running


@pytest.fixture
def server(shared: Server) -> Server:
    shared.requests.clear()
    return shared


@pytest.fixture
def cert(issuer: trustme.CA, tmp_path: Path) -> Path:
    return certificate_of(issuer, tmp_path)


def _options() -> list[ca.Option]:
    run = [ca.PodRun(pod("web", 500), 2), ca.PodRun(pod("job", 100))]
    return [
        ca.Option(group="a", node_count=3, pods=run, debug="why"),
        ca.Option(group="b", node_count=0, pods=[]),
        ca.Option(group="c", node_count=1, pods=run[:1]),
    ]


def _groups(expansion: ca.Expansion) -> list[str]:
    return [option.group for option in expansion.survivors]


def _abort(request: Any, context: Any) -> Any:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")


@pytest.mark.parametrize(
    ("answer", "remaining", "warnings"),
    [
        (names("c", "a"), ["c", "a"], []),
        (names("b"), ["b"], []),
        (names(), [], ["GRPC returned nil bestOptions"]),
        (names("x", "b", ""), ["b"], [
            "GRPC server returned invalid nodeGroup ID: x", "GRPC server returned invalid nodeGroup ID: ",
        ]),
        (names("x"), ["a", "b", "c"], [
            "GRPC server returned invalid nodeGroup ID: x",
            "Unable to sanitize GPRC returned bestOptions, no options filtered",
        ]),
        (_abort, ["a", "b", "c"], [
            f"{_FAILED}ResourceExhausted desc = later",
        ]),
        (lambda request, context: b"\x0a\x05", ["a", "b", "c"], [
            f"{_FAILED}Internal desc = {_NO_MESSAGE}: 2 bytes that are no answer",
        ]),
    ],
)  # fmt: skip
def test_answers_filter_the_options(
    server: Server, cert: Path, answer: Answer, remaining: list[str], warnings: list[str]
) -> None:
    server.answer = answer
    with GrpcExpander(server.url, cert) as rank:
        result = ca.expand(_options(), "grpc", rank=rank)
    assert (_groups(result), result.warnings) == (remaining, warnings)
    assert len(server.requests) == 1


def test_request_contains_options_and_nodes(server: Server, cert: Path) -> None:
    server.answer = names("a")
    nodes = {"a": node("template-a", 4000, 1 << 30), "z": node("template-z", 8000, 1 << 30)}
    with GrpcExpander(server.url, cert) as rank:
        ca.expand(_options(), "grpc", ca.ExpanderInput(nodes=nodes), rank=rank)
    (request,) = server.requests
    web, job = (encode("Pod", to_dict(each)).data for each in (pod("web", 500), pod("job", 100)))
    assert [(o.nodeGroupId, o.nodeCount, o.debug, list(o.podBytes)) for o in request.options] == [
        ("a", 3, "why", [web, web, job]),
        ("b", 0, "", []),
        ("c", 1, "", [web, web]),
    ]
    assert dict(request.nodeBytesMap) == {name: encode("Node", to_dict(each)).data for name, each in nodes.items()}


def test_one_connection_serves_a_whole_chain_and_many_loops(server: Server, cert: Path) -> None:
    server.answer = names("c", "b")
    with GrpcExpander(server.url, cert) as rank:
        for _ in range(3):
            assert _groups(ca.expand(_options(), "most-pods,grpc", rank=rank)) == ["a"]  # one is left: nobody is asked
            assert _groups(ca.expand(_options(), "grpc,least-nodes", rank=rank)) == ["c"]
    assert len(server.requests) == 3


def test_pods_that_cannot_be_encoded_are_left_out_with_all_of_their_option(server: Server, cert: Path) -> None:
    server.answer = names("a")
    dump = {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"containers": [{"name": "c", "stdin": "yes"}]}}
    record = pod_record(dump)
    options = [
        ca.Option(group="a", node_count=1, pods=[ca.PodRun(pod("web")), ca.PodRun(record.pod, record=record)]),
        ca.Option(group="b", node_count=1, pods=[ca.PodRun(pod("web"))]),
    ]
    with GrpcExpander(server.url, cert) as rank:
        result = ca.expand(options, "grpc", rank=rank)
    assert [len(option.podBytes) for option in server.requests[0].options] == [0, 1]
    assert result.warnings == [
        "Pod shop/odd: spec.containers[0].stdin: true or false is expected, not a text",
        "node group a: no pods are sent to the expander server",
    ]


def test_one_bad_node_leaves_all_nodes_out(server: Server, cert: Path) -> None:
    server.answer = names("a")
    bad = node("bad", 1, 1)
    bad.status.addresses = [{"type": 5}]
    with GrpcExpander(server.url, cert) as rank:
        result = ca.expand(_options(), "grpc", ca.ExpanderInput(nodes={"a": node("n", 1, 1), "b": bad}), rank=rank)
    assert dict(server.requests[0].nodeBytesMap) == {}
    assert result.warnings == [
        "Node bad: status.addresses[0].type: a text is expected, not a number",
        "no nodes are sent to the expander server",
    ]


def test_a_call_ends_after_its_time(server: Server, cert: Path) -> None:
    over = threading.Event()

    def wait(request: Any, context: Any) -> Any:
        over.wait()
        return MESSAGES["BestOptionsResponse"]()

    server.answer = wait
    try:
        with GrpcExpander(server.url, cert, timeout=0.1) as rank:
            result = ca.expand(_options(), "grpc", rank=rank)
    finally:
        over.set()
    assert _groups(result) == ["a", "b", "c"]
    assert result.warnings == [f"{_FAILED}DeadlineExceeded desc = Deadline Exceeded"]


def test_default_timeout_is_five_seconds(server: Server, cert: Path) -> None:
    times_left: list[float] = []

    def note(request: Any, context: Any) -> Any:
        times_left.append(context.time_remaining())
        return MESSAGES["BestOptionsResponse"]()

    server.answer = note
    with GrpcExpander(server.url, cert) as rank:
        ca.expand(_options(), "grpc", rank=rank)
    assert 0 < times_left[0] <= 5 == TIMEOUT


def test_long_answers(server: Server, cert: Path) -> None:
    def answer(size: int) -> Answer:
        option = MESSAGES["Option"](nodeGroupId="b", debug="x" * size)
        return lambda request, context: MESSAGES["BestOptionsResponse"](options=[option])

    with GrpcExpander(server.url, cert, timeout=60) as rank:
        server.answer = answer(8 << 20)
        assert _groups(ca.expand(_options(), "grpc", rank=rank)) == ["b"]
        server.answer = answer(128 << 20)
        result = ca.expand(_options(), "grpc", rank=rank)
    assert _groups(result) == ["a", "b", "c"]
    assert "code = ResourceExhausted desc = " in result.warnings[0]


def test_long_questions(server: Server, cert: Path) -> None:
    server.answer = names("b")
    options = [*_options(), ca.Option(group="d", node_count=1, pods=[], debug="x" * (8 << 20))]
    with GrpcExpander(server.url, cert, timeout=60) as rank:
        assert _groups(ca.expand(options, "grpc", rank=rank)) == ["b"]


def test_server_with_untrusted_certificate_gets_no_request(server: Server, tmp_path: Path) -> None:
    with GrpcExpander(server.url, certificate_of(trustme.CA(), tmp_path)) as rank:
        result = ca.expand(_options(), "grpc", rank=rank)
    assert _groups(result) == ["a", "b", "c"]
    assert result.warnings[0].startswith(f"{_FAILED}Unavailable desc = ")
    assert server.requests == []


def test_server_with_certificate_for_another_host_gets_no_request(issuer: trustme.CA, cert: Path) -> None:
    with serving(names("a"), issuer, host="expander.example") as other, GrpcExpander(other.url, cert) as rank:
        result = ca.expand(_options(), "grpc", rank=rank)
    assert "code = Unavailable" in result.warnings[0]
    assert other.requests == []


@pytest.mark.parametrize("name", ["https_proxy", "http_proxy", "grpc_proxy"])
def test_local_server_is_called_without_proxy(
    server: Server, cert: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    server.answer = names("b")
    with GrpcExpander(server.url, cert) as rank:
        assert _groups(ca.expand(_options(), "grpc", rank=rank)) == ["b"]


def test_unreachable_server_keeps_every_option(issuer: trustme.CA, cert: Path) -> None:
    with serving(names("a"), issuer) as stopped:
        pass
    with GrpcExpander(stopped.url, cert) as rank:
        result = ca.expand(_options(), "grpc", rank=rank)
    assert _groups(result) == ["a", "b", "c"]
    assert "code = Unavailable" in result.warnings[0]


def test_without_certificate_or_url_there_is_no_client(tmp_path: Path, cert: Path) -> None:
    with pytest.raises(InputError, match="GRPC Expander Cert not specified, insecure connections not allowed"):
        GrpcExpander("127.0.0.1:1", "")
    with pytest.raises(InputError, match="needs the url of its server"):
        GrpcExpander("", cert)
    with pytest.raises(FileNotFoundError):
        GrpcExpander("127.0.0.1:1", tmp_path / "none.pem")
    for name, text in (("text.pem", b"hello"), ("bytes.pem", b"\xff\xfe")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(InputError, match=rf"{name}: there is no certificate in it \(PEM is expected\)"):
            GrpcExpander("127.0.0.1:1", tmp_path / name)


def test_without_grpcio_the_extra_is_named(cert: Path) -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from kscale.drivers import GrpcExpander\n"
        "from kscale.errors import MissingExtraError\n"
        "try:\n    GrpcExpander('127.0.0.1:1', sys.argv[1])\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(cert)], capture_output=True, text=True, check=True)
    assert done.stdout == "the grpc expander needs the extra [grpc]: pip install 'kscale-core[grpc]'\n"


def test_text_that_is_not_utf_8_is_an_error_of_the_call(cert: Path) -> None:
    with GrpcExpander("127.0.0.1:1", cert) as rank:
        result = ca.expand([ca.Option(group="\ud800", node_count=1, pods=[])], "grpc", rank=rank)
    assert "error while marshaling: invalid UTF-8" in result.warnings[0]


@pytest.mark.parametrize("damaged", [b"\x0a", b"\x0a\x01\x0a", b"\x0a\x03\x0a\x01\xff", b"\x0c", b"\x02\x00"])
def test_invalid_answers_raise_a_value_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"no answer|not UTF-8"):
        answered_groups(damaged)


def test_fields_that_a_later_protocol_may_have_are_passed_over() -> None:
    option = MESSAGES["Option"](nodeGroupId="a", nodeCount=3, debug="d", podBytes=[b"p"]).SerializeToString()
    later = b"\x48\x07" + b"\x51" + b"8" * 8 + b"\x7d" + b"4" * 4  # numbers 9, 10 and 15 of three wire types
    option += later
    assert answered_groups(later + b"\x0a" + bytes([len(option)]) + option + b"\x3a\x01x") == ["a"]
