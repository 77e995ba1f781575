"""The expander's server, asked by our client and by messages of another hand, over loopback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from builders import node, pod
from kscale import ca
from kscale.ca.expander.rankers import best_of, least_cost, least_waste, needed_nodes
from kscale.drivers import GrpcExpander
from kscale.drivers.grpc_expander import ExpanderServer
from kscale.effects import ApiError, Ranking, RankOption, RankOptions
from kscale.errors import InputError
from kscale.objects.decode import to_dict
from kscale.objects.protobuf.conversion import encode
from unit.drivers.expander_server import MESSAGES


class Issued:
    """Files of a server's certificate."""

    def __init__(self, folder: Path, issuer: trustme.CA) -> None:
        created = issuer.issue_cert("127.0.0.1")
        self.cert, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self.cert.write_bytes(b"".join(blob.bytes() for blob in created.cert_chain_pems))
        self.key.write_bytes(created.private_key_pem.bytes())
        issuer.cert_pem.write_to_path(self.ca)


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Issued(tmp_path_factory.mktemp("tls"), trustme.CA())


@contextmanager
def serving(issued: Issued, rank: Any, **more: str) -> Iterator[ExpanderServer]:
    with ExpanderServer(rank, "127.0.0.1:0", cert=str(issued.cert), key=str(issued.key), **more) as server:
        yield server


OPTIONS = [
    ca.Option(group="a", node_count=3, pods=[ca.PodRun(pod("web", 500), 2), ca.PodRun(pod("job", 100))], debug="why"),
    ca.Option(group="b", node_count=1, pods=[ca.PodRun(pod("web", 500), 2)]),
]
NODES = {"a": node("template-a", 4000, 1 << 32), "b": node("template-b", 8000, 1 << 33)}


def expand_with(issued: Issued, rank: Any) -> tuple[list[str], list[str]]:
    with serving(issued, rank) as server, GrpcExpander(server.url, issued.ca) as client:
        result = ca.expand(OPTIONS, "grpc", ca.ExpanderInput(nodes=NODES), rank=client)
    return [option.group for option in result.survivors], result.warnings


def test_rank_request_arrives_complete(issued: Issued) -> None:
    questions: list[RankOptions] = []

    def rank(question: RankOptions) -> Ranking:
        questions.append(question)
        return Ranking(groups=("b",))

    assert expand_with(issued, rank) == (["b"], [])
    (question,) = questions
    result = [(o.group, o.node_count, o.debug, [(run.count, run.pod.name) for run in o.pods]) for o in question.options]
    assert result == [("a", 3, "why", [(2, "web"), (1, "job")]), ("b", 1, "", [(2, "web")])]
    sent = to_dict(pod("web", 500))
    assert {"apiVersion": "v1", "kind": "Pod", **to_dict(question.options[0].pods[0].pod)} == sent
    assert {name: to_dict(each) for name, each in question.nodes.items()} == {
        name: to_dict(each) for name, each in NODES.items()
    }


def test_pods_of_a_controller_are_read_once(issued: Issued) -> None:
    """Messages of another hand: pods that differ in names, uids and status alone are one run."""
    pods = [pod(f"web-{i}", 500) for i in range(50)] + [pod("job", 100)]
    datas = [encode("Pod", to_dict(each)).data for each in pods]
    option = MESSAGES["Option"](nodeGroupId="a", nodeCount=7, podBytes=datas)
    request = MESSAGES["BestOptionsRequest"](options=[option, option])
    questions: list[RankOptions] = []

    def rank(question: RankOptions) -> Ranking:
        questions.append(question)
        return Ranking(groups=("a",))

    with serving(issued, rank) as server:
        credentials = grpc.ssl_channel_credentials(root_certificates=issued.ca.read_bytes())
        with grpc.secure_channel(server.url, credentials) as channel:
            data = channel.unary_unary("/grpcplugin.Expander/BestOptions")(request.SerializeToString(), timeout=10)
    assert [each.nodeGroupId for each in MESSAGES["BestOptionsResponse"].FromString(data).options] == ["a"]
    first, second = questions[0].options
    assert [(run.count, run.pod.name) for run in first.pods] == [(50, "web-0"), (1, "job")]
    assert second.pods[0].pod is first.pods[0].pod


def broken(question: RankOptions) -> Ranking:
    raise KeyError("group")


def test_failures_are_grpc_errors(issued: Issued) -> None:
    failed = "GRPC call failed, no options filtered: rpc error: code = Unknown desc = "
    assert expand_with(issued, lambda question: ApiError("not today")) == (["a", "b"], [f"{failed}not today"])
    assert expand_with(issued, broken) == (["a", "b"], [f"{failed}KeyError: 'group'"])
    with serving(issued, broken) as server:
        credentials = grpc.ssl_channel_credentials(root_certificates=issued.ca.read_bytes())
        with grpc.secure_channel(server.url, credentials) as channel, pytest.raises(grpc.RpcError, match="no question"):
            channel.unary_unary("/grpcplugin.Expander/BestOptions")(b"\x0a\x05", timeout=10)


def test_clients_without_a_certificate_are_refused(issued: Issued) -> None:
    with serving(issued, broken, client_ca=str(issued.ca)) as server, GrpcExpander(server.url, issued.ca) as client:
        result = ca.expand(OPTIONS, "grpc", rank=client)
    assert "code = Unavailable" in result.warnings[0]


def test_files_that_cannot_be_used(issued: Issued, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        ExpanderServer(broken, "127.0.0.1:0", cert=str(tmp_path / "none"), key=str(issued.key))
    (tmp_path / "odd").write_text("no certificate")
    with pytest.raises(InputError, match="belong together"):
        ExpanderServer(broken, "127.0.0.1:0", cert=str(tmp_path / "odd"), key=str(issued.key))
    with serving(issued, broken) as server, pytest.raises(InputError, match="nothing can be served"):
        ExpanderServer(broken, server.url, cert=str(issued.cert), key=str(issued.key))


# -- rules -----------------------------------------------------------------------------------------------------------


def question(*options: tuple[str, int, Sequence[ca.PodRun]], **nodes: Any) -> RankOptions:
    created = [RankOption(group=group, node_count=count, debug="", pods=pods) for group, count, pods in options]
    return RankOptions(options=created, nodes=nodes)


WEB = [ca.PodRun(pod("web", 1000, 1 << 30), 4)]


def test_least_cost() -> None:
    """Four pods of a core: two nodes of 4 cores at 1 an hour, or one of 8 at 1.5."""
    options = question(("a", 2, WEB), ("b", 1, WEB), a=node("a", 4000, 1 << 34), b=node("b", 8000, 1 << 35))
    ranked = least_cost(options, {"a": 1.0, "b": 1.5})
    assert best_of(ranked) == ["b"]
    assert [each.score for each in ranked] == [
        pytest.approx((2.0 / (4 * 1.5 / (8 + 32 / 7.5) * (1 + 1 / 7.5)),)),
        pytest.approx((1.5 / (4 * 1.5 / (8 + 32 / 7.5) * (1 + 1 / 7.5)),)),
    ]
    assert best_of(least_cost(options, {"a": 0.7, "b": 1.5})) == ["a"]
    assert best_of(least_cost(options, {"a": 0.75, "b": 1.5})) == ["a", "b"]
    without = least_cost(options, {"a": 9.0})
    assert best_of(without) == ["a"]
    assert [each.note for each in without if each.score is None] == ["its price is not known"]
    with pytest.raises(InputError, match="price is not known"):
        best_of(least_cost(options, {}))


def test_an_option_for_fewer_pods_is_not_cheaper_for_that() -> None:
    few, all_ = [ca.PodRun(pod("web", 1000, 1 << 30), 1)], WEB
    options = question(("a", 1, few), ("b", 1, all_), a=node("a", 4000, 1 << 34), b=node("b", 4000, 1 << 34))
    assert best_of(least_cost(options, {"a": 1.0, "b": 1.2})) == ["b"]


def test_least_waste_is_upstreams() -> None:
    asked_options = question(("a", 2, WEB), ("b", 1, WEB), a=node("a", 4000, 1 << 34), b=node("b", 4000, 1 << 34))
    ranked = least_waste(asked_options)
    assert best_of(ranked) == ["b"]
    options = [ca.Option(group=o.group, node_count=o.node_count, pods=list(o.pods)) for o in asked_options.options]
    theirs = ca.expand(options, "least-waste", ca.ExpanderInput(nodes=asked_options.nodes)).steps[0].filtered.scores
    assert {each.group: each.score[0] for each in ranked if each.score} == theirs
    assert "2 nodes, 1 are proven to be needed" in ranked[0].note
    lacking = least_waste(question(("a", 2, WEB)))
    assert (lacking[0].score, lacking[0].note) == (None, "No node info for: a")
    large = [ca.PodRun(pod("large", 8000, 1), 1)]
    mixed = least_waste(
        question(("a", 1, large), ("b", 1, WEB), a=node("a", 4000, 1 << 34), b=node("b", 4000, 1 << 34))
    )
    assert mixed[0].score is None
    assert best_of(mixed) == ["b"], "one option that is wrong does not spoil the others"


def test_tie_prefers_the_best_packed_option() -> None:
    """Both waste a half; five pods of 0.6 need five nodes of a core, four pods of a core but two of two."""
    odd = [ca.PodRun(pod("odd", 600, 0), 4)]
    even = [ca.PodRun(pod("even", 600, 0), 4)]
    options = question(("a", 4, odd), ("b", 2, even), a=node("a", 1000, 1 << 30), b=node("b", 2000, 2 << 30))
    ranked = {each.group: each.score for each in least_waste(options)}
    assert ranked["a"] == (pytest.approx(1.4), 0.0)
    assert ranked["b"] == (pytest.approx(1.4), 0.0)
    spread = question(("a", 4, WEB), ("b", 2, WEB), a=node("a", 2000, 1 << 31), b=node("b", 4000, 1 << 32))
    scores = {each.group: each.score for each in least_waste(spread)}
    assert scores["a"] is not None
    assert scores["b"] is not None
    assert scores["a"][0] == scores["b"][0]
    assert (scores["a"][1], scores["b"][1]) == (2.0, 1.0)
    assert best_of(least_waste(spread)) == ["b"]


def test_needed_nodes() -> None:
    (option,) = question(("a", 9, [ca.PodRun(pod("odd", 600, 1), 5), ca.PodRun(pod("small", 400, 1), 5)])).options
    assert needed_nodes(option, node("a", 1000, 1 << 30)) == 5
    assert needed_nodes(RankOption(group="a", node_count=1, debug="", pods=[]), node("a", 1000, 1)) == 0
    with pytest.raises(InputError, match="does not fit"):
        needed_nodes(option, node("a", 500, 1 << 30))
