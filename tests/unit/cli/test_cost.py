"""``kscale cost`` and ``kscale headroom --lose``: what is said, and how it ends."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from unit.cli.support import kscale

EXAMPLES = Path(__file__).parents[3] / "examples"
DUMP = ("-f", EXAMPLES / "cluster.json.gz", "-q")
GROUPS = ("-g", EXAMPLES / "groups.yaml")


def test_cost_with_the_cheapest_mix_beside() -> None:
    got = kscale("cost", *DUMP, *GROUPS, "--budget", 0.2, "-o", "json")
    report = json.loads(got.stdout)
    assert (got.code, report["nodeCount"], report["unpriced"]) == (0, 40, 0)
    assert report["ideal"]["cost"] > 0
    table = kscale("cost", *DUMP, *GROUPS, "--budget", 0).stdout
    assert table.startswith("$27.87/h for 40 nodes: $23.68 requested, $4.19 idle.\n")
    unpriced = kscale("cost", *DUMP)
    assert (unpriced.code, "no node has a known price" in unpriced.stderr) == (2, True)


def test_cost_by_team_adds_up(tmp_path: Path) -> None:
    question = ("cost", *DUMP, *GROUPS, "--budget", 0, "--window", "30d", "--storage-price", "*=0.08")
    got = kscale(*question, "--by", "workload", "-o", "json")
    divided = json.loads(got.stdout)["allocation"]
    assert (divided["by"], divided["hours"], divided["idleRule"]) == ("workload", 720.0, "proportional")
    for name in ("cost", "requested", "idle", "storage"):
        assert sum(round(100 * line[name]) for line in divided["lines"]) == round(100 * divided[name])
    rows = list(csv.DictReader(io.StringIO(kscale(*question, "--by", "namespace", "-o", "csv").stdout)))
    assert {"namespace", "requested", "idle", "storage", "cost"} < set(rows[0])
    assert sum(round(100 * float(row["cost"])) for row in rows) == round(100 * divided["cost"])
    page = kscale(*question, "--by", "namespace", "-o", "html").stdout
    assert "Cost of 720 h by namespace" in page
    assert "requested" in page


def test_cost_by_usage(tmp_path: Path) -> None:
    dump = json.loads(gzip.decompress((EXAMPLES / "cluster.json.gz").read_bytes()))["items"]
    pods = [item for item in dump if item["kind"] == "Pod" and item["spec"].get("nodeName")]
    rows = ["time,namespace,pod,container,cpu_cores,memory_bytes"]
    for item in pods:
        metadata, container = item["metadata"], item["spec"]["containers"][0]["name"]
        for time, cores in ((1000, 8), (4600, 1), (8200, 1)):
            rows.append(f"{time},{metadata['namespace']},{metadata['name']},{container},{cores},1000000")
    (tmp_path / "usage.csv").write_text("\n".join(rows))
    question = ("cost", *DUMP, *GROUPS, "--budget", 0, "--history", tmp_path / "usage.csv", "--idle", "separate")

    def idle(*more: object) -> float:
        got = kscale(*question, *more, "-o", "json")
        assert got.code == 0, got.stderr
        lines = {line["name"]: line for line in json.loads(got.stdout)["allocation"]["lines"]}
        assert lines["ads"]["byUsage"] > 0
        return float(lines["(idle)"]["byUsage"])

    assert idle() == idle("--now", "1970-01-01T03:00:00Z")
    assert idle("--window", "1h") > idle(), "the first samples, of much usage, are not in the last hour"
    assert idle("--now", "1970-01-01T00:20:00Z") < idle()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--by", "team"), 'by is "team"'),
        (("--window", "0s"), "is no length of time"),
        (("--window", "fortnight"), "--window"),
        (("--storage-price", "gp3"), "'gp3' is not CLASS=PRICE"),
        (("--storage-price", "gp3=-1"), "is not CLASS=PRICE"),
        (("--storage-price", "gp3= 1"), "is not CLASS=PRICE"),
        (("--now", "2026-01-01T00:00:00Z"), "needs --history or --prometheus-url"),
        (("--prometheus-url", "http://x", "--history", "u.csv"), "it excludes --history"),
    ],
)
def test_a_mistake_in_the_division_is_named(more: tuple[str, ...], text: str) -> None:
    refused = kscale("cost", *DUMP, *GROUPS, "--budget", 0, *more)
    assert (refused.code, refused.stdout) == (2, "")
    assert text in " ".join(refused.stderr.split())


def test_losses_by_name() -> None:
    got = kscale("headroom", *DUMP, *GROUPS, "--lose", "pool=compute", "--repair")
    assert got.code == 1
    assert got.stdout.splitlines()[0] == "1 of 1 loss would leave pods homeless."
    assert "2 x compute, $1.360/h" in got.stdout
    pairs = json.loads(kscale("headroom", *DUMP, "--lose", "pairs", "-o", "json").stdout)
    assert len(pairs["pairs"]["alone"]) == 40
    assert kscale("headroom", *DUMP, "--repair").code == 2
    assert kscale("headroom", *DUMP, "--lose", "rack=1").code == 2


def test_nodes_that_may_not_be_lost_alone_fail_the_pairs() -> None:
    result = kscale("headroom", *DUMP, "--lose", "pairs", "-q")
    assert result.code == 1
    assert "may not be lost alone" in result.stdout
    useless = kscale("headroom", *DUMP, "--lose", "pairs", "--pod", "examples/web.yaml")
    assert (useless.code, "no effect with --lose" in useless.stderr) == (2, True)


def test_a_budget_and_a_catalogue_that_cannot_be_meant() -> None:
    never = kscale("cost", *DUMP, *GROUPS, "--budget", "nan")
    assert (never.code, "nan is not a number of seconds" in never.stderr) == (2, True), never.stderr
    misspelt = kscale("cost", *DUMP, *GROUPS, "--catalogue", "nope")
    assert (misspelt.code, "nope: No such file or directory" in misspelt.stderr) == (2, True), misspelt.stderr
    misspelt = kscale("mix", *DUMP, *GROUPS, "--catalogue", "nope", "--budget", "0")
    assert (misspelt.code, "nope: No such file or directory" in misspelt.stderr) == (2, True), misspelt.stderr


def test_groups_that_nothing_reads() -> None:
    for more in ((), ("--lose", "zone=us-east-1a"), ("--lose", "pairs")):
        result = kscale("headroom", *DUMP, *GROUPS, *more)
        assert (result.code, result.stdout) == (2, "")
        assert "node groups are of use with --lose pool=GROUP, or --repair" in result.stderr


def test_a_repair_without_groups(tmp_path: Path) -> None:
    bare = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "alone"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}  # fmt: skip
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "status": {"phase": "Running"},
           "spec": {"nodeName": "alone", "containers": containers}}  # fmt: skip
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": [bare, pod]}))
    result = kscale("headroom", "-f", tmp_path / "dump.json", "--lose", "node=alone", "--repair")
    assert (result.code, "--repair needs node groups" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("more", [(), ("--window", "1h")])
def test_warnings_of_a_response_without_samples_are_reported_once(tmp_path: Path, more: tuple[str, ...]) -> None:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": []}, "warnings": ["partial response"]}
    (tmp_path / "none.json").write_text(json.dumps(answer))
    files = ("--history", tmp_path / "none.json", "--history", tmp_path / "none.json")
    got = kscale("cost", *DUMP[:2], *GROUPS, "--budget", 0, *files, *more)
    assert (got.code, got.stderr.count("partial response")) == (0, 1), got.stderr
