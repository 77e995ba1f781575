"""The catalogue reader: what a row means, and every bad cell by row and column."""

from __future__ import annotations

import gzip

import pytest

from kscale import InputError, Quantity
from kscale.capacity.catalogue import Overhead, read_catalogue, read_prices

AWS = b"""instance_type,arch,vcpu,memory_mib,gpu,alloc_cpu,alloc_memory,alloc_pods,alloc_ephemeral,alloc_gpu,gpu_name,\
ondemand_usd_per_hour_us_east_1
m5.4xlarge,amd64,16,65536,0,15890m,57691Mi,234,17Gi,,,0.768
g4ad.4xlarge,amd64,16,65536,1,15890m,59946Mi,29,17Gi,1,radeon-pro-v520,
t4g.small,arm64,2,2048,0,1930m,1413Mi,11,17Gi,,,0.0168
"""
AZURE = b"""instance_type,sku_family,vcpu,memory_mib,gpu,arch,ondemand_usd_per_hour_eastus,\
ondemand_usd_per_hour_westeurope
Standard_D4s_v5,standardDSv5Family,4,16384,0,amd64,0.192,0.23
"""


def test_a_type_with_allocatable_columns() -> None:
    kind = read_catalogue(AWS)["m5.4xlarge"]
    assert {r: str(q) for r, q in kind.capacity.items()} == {
        "cpu": "16",
        "memory": "64Gi",
        "pods": "234",
        "ephemeral-storage": "17Gi",
    }
    assert kind.allocatable["cpu"] == Quantity("15890m")
    assert kind.allocatable["memory"].value() == 57691 * 2**20
    assert kind.price() == kind.price("us-east-1") == 0.768
    assert kind.price("mars") is None


def test_instance_type_becomes_a_node() -> None:
    node = read_catalogue(AWS)["m5.4xlarge"].node(zone="us-east-1a", region="us-east-1", labels={"team": "a"})
    labels = node.metadata.labels
    assert labels is not None
    assert labels["node.kubernetes.io/instance-type"] == "m5.4xlarge"
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels["topology.kubernetes.io/zone"] == "us-east-1a"
    assert labels["failure-domain.beta.kubernetes.io/region"] == "us-east-1"
    assert labels["team"] == "a"
    assert node.status.conditions[0].type == "Ready"
    assert "topology.kubernetes.io/zone" not in (read_catalogue(AWS)["t4g.small"].node().metadata.labels or {})
    assert read_catalogue(AWS)["t4g.small"].template().node.status.allocatable["pods"] == Quantity("11")


def test_gpus_by_maker_and_no_price() -> None:
    kind = read_catalogue(AWS)["g4ad.4xlarge"]
    assert str(kind.allocatable["amd.com/gpu"]) == "1"
    assert kind.price() is None


def test_without_allocatable_columns_everything_is() -> None:
    kind = read_catalogue(AZURE, overhead=Overhead.NONE)["Standard_D4s_v5"]
    assert kind.allocatable == kind.capacity
    assert (str(kind.allocatable["cpu"]), str(kind.allocatable["memory"]), str(kind.allocatable["pods"])) == (
        "4",
        "16Gi",
        "110",
    )
    assert kind.price() == 0.192
    assert kind.price("westeurope") == 0.23


def test_files_packed_or_not(tmp_path) -> None:
    for name, content in (("a.csv", AWS), ("a.csv.gz", gzip.compress(AWS, mtime=0))):
        (tmp_path / name).write_bytes(content)
        assert len(read_catalogue(tmp_path / name)) == 3


def test_an_unknown_type_proposes_a_near_one() -> None:
    with pytest.raises(InputError, match=r'no instance type "m5\.4xlage" in the catalogue; did you mean m5\.4xlarge\?'):
        read_catalogue(AWS)["m5.4xlage"]
    assert read_catalogue(AWS).get("nothing") is None
    assert "nothing" not in read_catalogue(AWS)


def _with(column: int, cell: str) -> bytes:
    lines = AWS.decode().splitlines()
    cells = lines[1].split(",")
    cells[column] = cell
    return "\n".join([lines[0], ",".join(cells), *lines[2:]]).encode()


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        (0, "", "row 2: instance_type: the cell is empty"),
        (1, "x86", 'row 2: arch: "x86" is not one of amd64, arm64'),
        (2, "NaN", 'row 2: vcpu: "NaN" is not a whole number'),
        (2, "", "row 2: vcpu: the cell is empty"),
        (2, "0", "row 2: vcpu: 0: a node has some"),
        (3, "0", "row 2: memory_mib: 0: a node has some"),
        (3, "-5", 'row 2: memory_mib: "-5" is not a whole number'),
        (3, "٣", 'row 2: memory_mib: "٣" is not a whole number'),
        (5, "1O0m", 'row 2: alloc_cpu: "1O0m" is not a quantity'),
        (5, "-1", 'row 2: alloc_cpu: "-1" is negative'),
        (6, "65Gi", "row 2: alloc_memory: 65Gi is more than the 64Gi there is"),
        (6, "nan", 'row 2: alloc_memory: "nan" is not a quantity'),
        (11, "NaN", 'row 2: ondemand_usd_per_hour_us_east_1: "NaN" is not a price'),
        (11, "inf", 'row 2: ondemand_usd_per_hour_us_east_1: "inf" is not a price'),
        (11, "-1", 'row 2: ondemand_usd_per_hour_us_east_1: "-1" is not a price'),
        (11, "cheap", 'row 2: ondemand_usd_per_hour_us_east_1: "cheap" is not a price'),
        (11, "1,2", "row 2: more cells than the header has columns"),
        (0, "t4g.small", 'row 4: instance_type: "t4g.small" occurs twice'),
    ],
)
def test_bad_cells_are_named(column: int, cell: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_catalogue(_with(column, cell))
    assert str(caught.value) == f"<bytes>: {message}"


def test_half_a_gib_of_azure_is_left_out_by_name() -> None:
    """Its tables count whole GiB; one small type is no reason to refuse all others."""
    small = b"Standard_B1ls,standardBSFamily,1,0,0,amd64,0.0052,0.006\n"
    catalogue = read_catalogue(AZURE + small)
    assert list(catalogue) == ["Standard_D4s_v5"]
    assert catalogue.left_out == {"<bytes>: row 3 (Standard_B1ls): memory_mib: 0: a node has some": 1}
    with pytest.raises(InputError, match=r"row 2 \(Standard_B1ls\): memory_mib: 0: a node has some"):
        read_catalogue(AZURE[: AZURE.index(b"\n") + 1] + small)
    with pytest.raises(InputError, match="row 3: vcpu: 0: a node has some"):
        read_catalogue(AZURE + small.replace(b",1,0,0,", b",0,0,0,"))


@pytest.mark.parametrize(
    ("name", "cores", "expected"),
    [
        ("Standard_HB120-16rs_v2", 120, 16),
        ("Standard_DS11-1_v2", 2, 1),
        ("Standard_GS5-16", 32, 16),
        ("Standard_M416-208ms_v2", 416, 208),
        ("Standard_E4-2ds_v5", 2, 2),  # the table has the cores that run
        ("Standard_D4s_v5", 4, 4),
        ("Standard_NC24ads_A100_v4", 24, 24),
        ("n2-standard-8", 8, 8),
        ("m5-2.large", 8, 8),
    ],
)
def test_azure_types_with_constrained_cores_have_those(name: str, cores: int, expected: int) -> None:
    row = f"{name},standardFamily,{cores},65536,0,amd64,1,1\n".encode()
    kind = read_catalogue(AZURE + row if name != "Standard_D4s_v5" else AZURE)[name]
    assert kind.capacity["cpu"].value() == expected
    assert kind.allocatable["cpu"].milli_value() < expected * 1000


def test_a_column_says_how_many_cores_run() -> None:
    table = b"instance_type,arch,vcpu,vcpus_available,memory_mib,gpu\n"
    catalogue = read_catalogue(table + b"Standard_E4-2s_v5,amd64,4,3,1024,0\nplain,amd64,4,,1024,0\n")
    assert [kind.capacity["cpu"].value() for kind in catalogue.values()] == [3, 4]
    with pytest.raises(InputError, match="row 2: vcpus_available: 5 is more than the 4 there are"):
        read_catalogue(table + b"plain,amd64,4,5,1024,0\n")


def test_all_bad_rows_are_reported() -> None:
    with pytest.raises(InputError) as caught:
        read_catalogue(AWS.replace(b"arm64", b"mips").replace(b"15890m", b"?"))
    assert [problem.object for problem in caught.value.problems] == ["row 2", "row 3", "row 4"]


def test_bad_files_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match=r"row 1: gpu: the column is missing"):
        read_catalogue(b"instance_type,arch,vcpu,memory_mib\n")
    with pytest.raises(InputError, match=r"row 1: vcpu: the column comes twice"):
        read_catalogue(b"instance_type,vcpu,arch,vcpu,memory_mib,gpu\n")
    for nothing in (b"", b" \n", b"null\n", gzip.compress(b"", mtime=0)):
        for read in (read_catalogue, read_prices):
            with pytest.raises(InputError, match=r"^<bytes>: there is nothing in it$"):
                read(nothing)
    with pytest.raises(InputError, match=r"missing\.csv: No such file"):
        read_catalogue(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="damaged gzip"):
        read_catalogue(gzip.compress(AWS, mtime=0)[:-20])
    with pytest.raises(InputError, match="not UTF-8"):
        read_catalogue(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="row 2: fewer cells"):
        read_catalogue(AZURE.splitlines()[0] + b"\nStandard_A1,fam\n")


def test_types_by_pattern() -> None:
    catalogue = read_catalogue(AWS)
    assert [kind.name for kind in catalogue.select(["t4g.small", "*.4xlarge", "m5*"])] == [
        "t4g.small",
        "m5.4xlarge",
        "g4ad.4xlarge",
    ]
    with pytest.raises(InputError, match=r'no instance type like "z\*" in the catalogue'):
        catalogue.select(["z*"])


def test_a_region_has_to_have_prices() -> None:
    catalogue = read_catalogue(AZURE)
    assert catalogue.regions == ["eastus", "westeurope"]
    catalogue.check_region("eastus")
    with pytest.raises(InputError, match='no prices of region "mars": there are eastus, westeurope'):
        catalogue.check_region("mars")
