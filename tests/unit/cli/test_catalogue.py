"""``kscale catalogue``: kept, listed, shown, and used by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.cli.support import kscale
from unit.cli.test_answers import node, pod, write

EXAMPLES = Path(__file__).parents[3] / "examples" / "data"


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def test_imported_catalogue_is_listed_shown_and_used(tmp_path: Path) -> None:
    none = kscale("catalogue", "list")
    assert none.stdout.splitlines()[0] == "0 catalogues are imported."
    got = kscale("catalogue", "import", EXAMPLES / "gce_prices.csv", "--name", "gcp")
    assert got.code == 0
    assert got.stdout.splitlines()[0] == "Kept 24 types as gcp: 24 have a price, 24 one of spot."
    assert "1 left out: the name does not say what it has" in got.stderr
    listed = json.loads(kscale("catalogue", "list", "-o", "json").stdout)
    assert [(one["name"], one["types"], one["regions"]) for one in listed["catalogues"]] == [
        ("gcp", 24, ["us-central1"])
    ]
    catalogue = json.loads(kscale("catalogue", "show", "gcp", "--instance-type", "e2-*-4", "-o", "json").stdout)
    assert [(one["name"], one["price"], one["spotPrice"]) for one in catalogue["types"]] == [
        ("e2-highcpu-4", 0.09894, 0.02968),
        ("e2-highmem-4", 0.1808, 0.05424),
        ("e2-standard-4", 0.13402, 0.04021),
    ]
    dump = write(tmp_path / "dump.json", node("n1"), *(pod(f"p{i}", "2") for i in range(4)))
    question = ("mix", "-q", "-f", dump, "--catalogue", "gcp", "--instance-type", "e2-standard-*", "--ignore-existing")
    spot = json.loads(kscale(*question, "--spot", "-o", "json").stdout)
    assert {line["capacityType"] for line in spot["lines"]} == {"spot"}
    half = json.loads(kscale(*question, "--spot", "--spot-share", "0", "-o", "json").stdout)
    assert {line["capacityType"] for line in half["lines"]} == {"on-demand"}
    assert half["cost"] > spot["cost"]
    zones = json.loads(kscale(*question, "--spot", "--zone", "a", "--zone", "b", "-o", "json").stdout)
    assert all(name.endswith(("-a-spot", "-b-spot")) for name in zones["offers"])


def test_prices_pods_and_formula_at_the_import(tmp_path: Path) -> None:
    machines = [{"name": "n2-standard-8", "guestCpus": 8, "memoryMb": 32768}]
    (tmp_path / "machines.json").write_text(json.dumps(machines))
    more = ("--prices", EXAMPLES / "gce_prices.csv", "--max-pods", 20, "--overhead", "none")
    assert kscale("catalogue", "import", tmp_path / "machines.json", *more).code == 0
    (kind,) = json.loads(kscale("catalogue", "show", "machines", "-o", "json").stdout)["types"]
    assert kind["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "20"}
    assert kind["price"] == 0.3885


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("import", "nowhere.json"), "nowhere.json: No such file"),
        (("import", str(EXAMPLES / "aws.csv"), "--name", "a/b"), '"a/b" is not a valid name'),
        (("import", str(EXAMPLES / "aws.csv"), "--prices", str(EXAMPLES / "README.md")), "the column is missing"),
        (("show", "gcp"), "gcp: No such file or directory; no catalogue is imported"),
        (("show", str(EXAMPLES / "aws.csv"), "--instance-type", "m9*"), 'no instance type like "m9*"'),
        (("show", str(EXAMPLES / "aws.csv"), "--region", "mars"), 'no prices of region "mars"'),
    ],
)
def test_refused(arguments: tuple[str, ...], text: str) -> None:
    got = kscale("catalogue", *arguments)
    assert (got.code, got.stdout) == (2, "")
    assert text in got.stderr


def test_a_table_without_types_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("instance_type,arch,vcpu,memory_mib,gpu\n")
    got = kscale("catalogue", "import", tmp_path / "none.csv")
    assert (got.code, got.stdout) == (2, "")
    assert "none.csv: no instance type in it" in got.stderr


def test_one_bad_catalogue_or_row_leaves_the_others_usable(tmp_path: Path, shelf: Path) -> None:
    table = "instance_type,sku_family,vcpu,memory_mib,gpu,arch,ondemand_usd_per_hour_eastus\n"
    rows = (
        "Standard_B1ls,standardBSFamily,1,0,0,amd64,0.0052\nStandard_D2s_v5,standardDSv5Family,2,8192,0,amd64,0.096\n"
    )
    (tmp_path / "azure.csv").write_text(table + rows)
    got = kscale("catalogue", "import", tmp_path / "azure.csv")
    assert (got.code, got.stdout.splitlines()[0][:24]) == (0, "Kept 1 types as azure: 1")
    assert "1 left out:" in got.stderr
    assert "row 2 (Standard_B1ls): memory_mib: 0: a node has some" in got.stderr
    assert kscale("catalogue", "import", EXAMPLES / "aws.csv").code == 0
    store = shelf / "kscale" / "catalogues"
    (store / "broken.csv").write_text("nothing of it\n")
    (store / "azure.csv").write_text((store / "azure.csv").read_text() + "odd,amd64,2,0,0,,,,,,,1\n")
    listed = kscale("catalogue", "list", "-o", "json")
    assert listed.code == 0
    record = json.loads(listed.stdout)
    assert [one["name"] for one in record["catalogues"]] == ["aws", "azure"]
    assert [(one["name"], one["problem"].partition(": ")[2]) for one in record["damaged"]] == [
        ("broken", "row 1: instance_type: the column is missing")
    ]
    table = kscale("catalogue", "list")
    assert table.stdout.splitlines()[0] == "2 catalogues are imported; 1 cannot be read."
    assert "row 3 (odd): memory_mib: 0: a node has some" in table.stderr
    run_ = kscale("catalogue", "show", "azure")
    assert (run_.code, "row 3 (odd): memory_mib: 0" in run_.stderr) == (0, True)
    dump = write(tmp_path / "dump.json", node("n1"), pod("p", "1"))
    question = ("mix", "-f", dump, "--ignore-existing", "--instance-type", "*", "-o", "json")
    mixed = kscale(*question, "--catalogue", "azure")
    assert (mixed.code, json.loads(mixed.stdout)["offers"]) == (0, {"Standard_D2s_v5": 1})
    assert mixed.stderr.count("row 3 (odd): memory_mib: 0") == 1
    refused = kscale(*question, "--catalogue", "broken")
    assert (refused.code, "broken: row 1: instance_type: the column is missing" in refused.stderr) == (2, True)


def test_spot_needs_types_with_a_spot_price(tmp_path: Path) -> None:
    dump = write(tmp_path / "dump.json", node("n1"), pod("p", "2"))
    bare = kscale("mix", "-f", dump, "--spot")
    assert (bare.code, "--spot needs --instance-type" in bare.stderr) == (2, True)
    got = kscale("mix", "-f", dump, "--catalogue", EXAMPLES / "aws.csv", "--instance-type", "m5*", "--spot")
    assert (got.code, "none of the types has a spot price" in got.stderr) == (2, True)
