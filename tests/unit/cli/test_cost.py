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
    assert (got.code, report["nodes"], report["unpriced"]) == (0, 40, 0)
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
    assert pairs["pairs"]["alone"] == 40
    assert kscale("headroom", *DUMP, "--repair").code == 2
    assert kscale("headroom", *DUMP, "--lose", "rack=1").code == 2


def test_nodes_that_may_not_be_lost_alone_fail_the_pairs() -> None:
    found = kscale("headroom", *DUMP, "--lose", "pairs", "-q")
    assert found.code == 1
    assert "may not be lost alone" in found.stdout
    useless = kscale("headroom", *DUMP, "--lose", "pairs", "--pod", "examples/web.yaml")
    assert (useless.code, "no effect with --lose" in useless.stderr) == (2, True)
