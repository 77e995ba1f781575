"""``kscale recommend --prometheus-url``: the same advice as from the same samples in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_prometheus import FakePrometheus
from unit.cli.recommend.support import MIB, START
from unit.cli.support import kscale

STEP = 300
LENGTH = 6 * 3600
CONTAINERS = {
    ("shop", "web-5d4f8-abcde", "app"): (0.163, 300.0 * MIB),
    ("shop", "web-5d4f8-fghij", "app"): (0.2, 310.0 * MIB),
}
HEADER = "time,namespace,pod,container,cpu_cores,memory_bytes\n"
NOW = ("--now", "2026-01-06T00:00:00Z")


def options(url: str) -> tuple[object, ...]:
    return ("--prometheus-url", url, "--history-length", "6h", "-o", "json", *NOW)


def test_advice_from_a_server_is_that_from_a_file(cluster: Path, tmp_path: Path) -> None:
    end = START + 24 * 3600
    lines = [
        f"{time},{','.join(key)},{cpu},{memory}\n"
        for time in range(end - LENGTH, end + 1, STEP)
        for key, (cpu, memory) in CONTAINERS.items()
    ]
    (tmp_path / "usage.csv").write_text(HEADER + "".join(lines))
    written = kscale("recommend", "-f", cluster, "--history", tmp_path / "usage.csv", "-o", "json", *NOW)
    fake = FakePrometheus(CONTAINERS, most=100)
    (tmp_path / "token").write_text("secret\n")
    who = ("--prometheus-bearer-token-file", tmp_path / "token", "--prometheus-header", "X-Scope-OrgID: team")
    what = ("-n", "shop", "--prometheus-label", "cluster=prod")
    with fake.served() as url:
        got = kscale("recommend", "-f", cluster, *options(url), *who, *what)
    assert (got.code, written.code) == (0, 0), got.stderr
    assert json.loads(got.stdout) == json.loads(written.stdout)
    assert {(each["Authorization"], each["X-Scope-OrgID"]) for each in fake.headers} == {("Bearer secret", "team")}
    assert 'cluster="prod",namespace=~"shop"' in fake.requests[-1]["query"]
    assert f"{len(fake.requests)} queries of 127.0.0.1:" in got.stderr


def test_url_password_is_not_shown(cluster: Path) -> None:
    with FakePrometheus(CONTAINERS).served() as url:
        got = kscale("recommend", "-f", cluster, *options(url.replace("//", "//user:hunter2@")))
    assert (got.code, "queries of 127.0.0.1:" in got.stderr) == (0, True), got.stderr
    bad = kscale("recommend", "-f", cluster, *options("http://user:hunter2@127.0.0.1:no"))
    assert (bad.code, "its address is not a valid URL" in bad.stderr) == (2, True), bad.stderr
    assert "hunter2" not in got.stderr + bad.stderr


def test_server_warnings_are_reported_once(cluster: Path) -> None:
    with FakePrometheus(CONTAINERS, warnings=["partial response"]).served() as url:
        got = kscale("recommend", "-f", cluster, *options(url))
    assert (got.code, got.stderr.count("partial response")) == (0, 1), got.stderr


def test_server_errors_are_named(cluster: Path) -> None:
    with FakePrometheus(CONTAINERS, most=1).served() as url:
        got = kscale("recommend", "-f", cluster, *options(url))
    assert (got.code, got.stdout) == (2, "")
    assert "Prometheus does not answer: execution: query processing would load too many samples" in got.stderr
    unreachable = kscale("recommend", "-f", cluster, *options("http://127.0.0.1:9"))
    assert (
        unreachable.code,
        "Prometheus does not answer: dial tcp 127.0.0.1:9: connect: connection refused" in unreachable.stderr,
    ) == (2, True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--prometheus-label", "a=b"), "--prometheus-label: needs --prometheus-url"),
        (("--history", "usage.csv", "--history-length", "6h"), "--history-length: needs --prometheus-url"),
        (("--history", "usage.csv", "--history-resolution", "1m"), "--history-resolution: needs --prometheus-url"),
        (
            ("--history", "usage.csv", "--prometheus-concurrency", "9"),
            "--prometheus-concurrency: needs --prometheus-url",
        ),
        (("--history", "usage.csv", "--prometheus-budget", ""), "--prometheus-budget: needs --prometheus-url"),
        (("--prometheus-url", "http://x", "--metric", "cpu"), "--metric: needs --history"),
        (("--prometheus-url", "http://x", "--time-unit", "s"), "--time-unit: needs --history"),
        (("--prometheus-url", "http://x", "--label-map", "pod=name"), "--label-map: needs --history"),
        (("--prometheus-url", "http://x", "--prometheus-budget", "0"), "--prometheus-budget: 0 is less than a byte"),
        (("--prometheus-url", "http://x", "--history", "usage.csv"), "it excludes --history"),
        (("--prometheus-url", "http://x", "--prometheus-label", "no"), "NAME=VALUE is expected"),
        (("--prometheus-url", "http://x", "--prometheus-label", 'a"=b'), "NAME=VALUE is expected"),
        (("--prometheus-url", "http://x", "--prometheus-header", "X Y:z"), "NAME:VALUE is expected"),
        (("--prometheus-url", "http://x", "--prometheus-header", "X:a\nb: c"), "NAME:VALUE is expected"),
        (("--prometheus-url", "http://x", "--prometheus-budget", "lots"), "'lots' is not a quantity"),
        (("--prometheus-url", "http://x", "--history-length", "long"), "not a valid duration string"),
        (("--prometheus-url", "http://x", "--history-resolution", "1ms"), "less than a second"),
        (("--prometheus-url", "http://x", "--prometheus-bearer-token-file", "nowhere"), "nowhere"),
    ],
)
def test_bad_options(cluster: Path, more: tuple[str, ...], message: str) -> None:
    got = kscale("recommend", "-f", cluster, *more)
    assert (got.code, got.stdout) == (2, "")
    assert message in " ".join(got.stderr.split()), got.stderr
