"""``kscale cost`` and ``kscale headroom --lose``: what is said, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

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
    found = kscale("headroom", *DUMP, "--lose", "pairs", "-q")
    assert found.code == 1
    assert "may not be lost alone" in found.stdout
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
        found = kscale("headroom", *DUMP, *GROUPS, *more)
        assert (found.code, found.stdout) == (2, "")
        assert "node groups are of use with --lose pool=GROUP, or --repair" in found.stderr


def test_a_repair_without_groups(tmp_path: Path) -> None:
    bare = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "alone"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}  # fmt: skip
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "status": {"phase": "Running"},
           "spec": {"nodeName": "alone", "containers": containers}}  # fmt: skip
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": [bare, pod]}))
    found = kscale("headroom", "-f", tmp_path / "dump.json", "--lose", "node=alone", "--repair")
    assert (found.code, "--repair needs node groups" in found.stderr) == (2, True), found.stderr
