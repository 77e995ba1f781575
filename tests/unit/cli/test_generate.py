"""``kscale generate``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from kscale.capacity.groups import read_groups
from unit.cli.support import kscale

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_cluster_on_stdout() -> None:
    run = kscale("generate", "--nodes", 3, "--pods", 20, "--pending", 4, "--seed", 7, "--lean")
    assert run.code == 0
    items = json.loads(run.stdout)["items"]
    assert sum(item["kind"] == "Pod" for item in items) == 20
    assert "3 nodes, 16 pods running and 4 pending" in run.stderr
    assert kscale("generate", "--nodes", 3, "--pods", 20, "-q").stderr == ""


def test_the_bundled_example_is_made_by_the_command(tmp_path: Path) -> None:
    packed, groups = tmp_path / "cluster.json.gz", tmp_path / "groups.yaml"
    assert kscale("generate", "--lean", "--to", packed, "--groups", groups).code == 0
    bundled = (EXAMPLES / "cluster.json.gz").read_bytes()
    assert len(bundled) < 60_000
    assert bundled[4:8] == packed.read_bytes()[4:8] == bytes(4), "the header holds a time"
    # What is packed, not how: another zlib packs the same otherwise.
    assert gzip.decompress(packed.read_bytes()) == gzip.decompress(bundled)
    assert groups.read_text() == (EXAMPLES / "groups.yaml").read_text()


def test_the_groups_file_fits_the_cluster() -> None:
    items = json.loads(gzip.decompress((EXAMPLES / "cluster.json.gz").read_bytes()))["items"]
    names = {item["metadata"]["name"] for item in items if item["kind"] == "Node"}
    groups = read_groups(EXAMPLES / "groups.yaml", node_names=names)
    assert sum(group.target_size or 0 for group in groups) == len(names) == 40


def test_bad_usage_is_named() -> None:
    run = kscale("generate", "--nodes", 1, "--pods", 1000)
    assert run.code == 2
    assert "1 nodes hold at most 230 running pods" in run.stderr
    assert kscale("generate", "--nodes", 0).code == 2
    assert kscale("generate", "--to", "/nowhere/at/all.json").code == 2
