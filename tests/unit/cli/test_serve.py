"""``kscale serve expander``: the rules by their names, and the whole process asked over loopback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from builders import node, pod
from kscale import ca
from kscale.cli.commands.serve import ranker
from kscale.drivers import GrpcExpander
from kscale.effects import ApiError, Ranking, RankOption, RankOptions
from kscale.errors import InputError
from unit.cli.support import kscale as run

PODS = [ca.PodRun(pod("web", 1000, 1 << 30), 2)]
QUESTION = RankOptions(
    options=[RankOption(group=group, node_count=count, debug="", pods=PODS) for group, count in (("a", 1), ("b", 2))],
    nodes={"a": node("a", 4000, 1 << 34), "b": node("b", 1000, 1 << 30)},
)
GROUPS = """
- {id: a, price: 4.0, template: {status: {allocatable: {cpu: "4"}}}}
- {id: b, price: 0.5, template: {status: {allocatable: {cpu: "1"}}}}
"""
OWN = """
def pick(question):
    return [option.group for option in sorted(question.options, key=lambda option: -option.node_count)]

def text(question):
    return "a"

def nothing_said(question):
    return None

def other(question):
    return ["c"]

def none_of_them(question):
    return iter(())

constant = 3
"""


def chosen(rule: str, groups: str = "") -> tuple[str | None, ...]:
    result = ranker(rule, groups)(QUESTION)
    assert not isinstance(result, ApiError)
    return result.groups


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_rules(tmp_path: Path, own: str) -> None:
    (tmp_path / "groups.yaml").write_text(GROUPS)
    assert chosen("least-waste") == ("b",)
    assert chosen("least-cost", str(tmp_path / "groups.yaml")) == ("b",)
    assert chosen(f"{own}:pick") == ("b", "a")
    with pytest.raises(InputError, match="returned 'a', not ids of groups"):
        chosen(f"{own}:text")
    with pytest.raises(InputError, match="returned None, not ids of groups"):
        chosen(f"{own}:nothing_said")
    with pytest.raises(InputError, match="returned 'c', which is none of the options"):
        chosen(f"{own}:other")
    assert chosen(f"{own}:none_of_them") == (), "the autoscaler keeps all"


def test_options_without_price_are_reported(tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text(GROUPS.replace("price: 0.5, ", ""))
    result = ranker("least-cost", str(tmp_path / "groups.yaml"))(QUESTION)
    assert result == Ranking(groups=("a",), warnings=("node group b is left out: its price is not known",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("least",), "no rule 'least'"),
        (("least-cost",), "needs the groups' prices"),
        (("least-waste", "-g", "x"), "does not look at prices"),
        (("OWN:nothing",), "there is no function nothing"),
        (("OWN:constant",), "there is no function constant"),
        (("nowhere.py:pick",), "nowhere.py"),
        (("least-waste",), "No such file"),
        (("least-waste", "--log-format=xml"), "neither text nor json"),
    ],
)
def test_unusable_settings_are_named(words: tuple[str, ...], message: str, own: str) -> None:
    files = ("--tls-cert-file", "none.crt", "--tls-private-key-file", "none.key", "--address", "127.0.0.1:0")
    result = run("serve", "expander", *(word.replace("OWN", own) for word in words), *files)
    assert (result.code, result.stdout) == (2, "")
    assert message in result.stderr


def test_process_serves_until_it_is_stopped(tmp_path: Path, own: str) -> None:
    issuer = trustme.CA()
    issued = issuer.issue_cert("127.0.0.1")
    (tmp_path / "crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (tmp_path / "key").write_bytes(issued.private_key_pem.bytes())
    issuer.cert_pem.write_to_path(tmp_path / "ca")
    files = [f"--tls-cert-file={tmp_path / 'crt'}", f"--tls-private-key-file={tmp_path / 'key'}"]
    command = [
        sys.executable,
        "-m",
        "kscale",
        "serve",
        "expander",
        f"{own}:pick",
        "--address=127.0.0.1:0",
        "-v=4",
        *files,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            with GrpcExpander(first.split()[-1], tmp_path / "ca") as client:
                answer = client(QUESTION)
            assert not isinstance(answer, ApiError), answer
            assert answer.groups == ("b", "a")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "of 2 options: b, a" in process.stderr.read()
