"""Every form of a catalogue: what it is read as, that it is written and read again unchanged, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kscale import InputError
from kscale.capacity.catalogue import (
    Catalogue,
    InstanceType,
    Overhead,
    list_catalogues,
    read_catalogue,
    read_prices,
    store_catalogue,
)
from kscale.capacity.catalogue.formats import shape_of, write_table
from kscale.capacity.catalogue.types import allocatable

EXAMPLES = Path(__file__).parents[3] / "examples" / "data"
MIB = 2**20


def ec2(name: str = "m5.4xlarge", **more: Any) -> dict[str, Any]:
    return {
        "InstanceType": name,
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 16, "DefaultCores": 8},
        "MemoryInfo": {"SizeInMiB": 65536},
        "NetworkInfo": {"MaximumNetworkInterfaces": 8, "Ipv4AddressesPerInterface": 30},
        **more,
    }


def sku(name: str = "Standard_D4s_v5", **more: str) -> dict[str, Any]:
    has = {"vCPUs": "4", "MemoryGB": "16", "CpuArchitectureType": "x64", **more}
    listed = [{"name": key, "value": value} for key, value in has.items()]
    return {"name": name, "resourceType": "virtualMachines", "locations": ["eastus"], "capabilities": listed}


def gce(name: str = "n2-standard-8", **more: Any) -> dict[str, Any]:
    return {"name": name, "guestCpus": 8, "memoryMb": 32768, "zone": "us-central1-a", "description": "8 vCPUs", **more}


def karpenter(name: str = "c-4x", **more: Any) -> dict[str, Any]:
    def offering(price: float, capacity_type: str, zone: str, available: bool = True) -> dict[str, Any]:
        labels = {"karpenter.sh/capacity-type": capacity_type, "topology.kubernetes.io/zone": zone}
        requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
        return {"Price": price, "Available": available, "Requirements": requirements}

    return {
        "name": name,
        "architecture": "arm64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "8Gi", "pods": "40", "ephemeral-storage": "20Gi"},
        "offerings": [
            offering(0.2, "on-demand", "us-east-1a"),
            offering(0.1, "on-demand", "us-east-1b"),
            offering(0.05, "on-demand", "us-east-1c", available=False),
            offering(0.07, "spot", "us-east-1a"),
        ],
        **more,
    }


def read(items: Any, **how: Any) -> Catalogue:
    return read_catalogue(json.dumps(items).encode(), **how)


def texts(kind: InstanceType) -> tuple[dict[str, str], dict[str, str]]:
    return {k: str(v) for k, v in kind.capacity.items()}, {k: str(v) for k, v in kind.allocatable.items()}


def test_aws_prints_machines() -> None:
    gpu = {"Gpus": [{"Name": "T4", "Manufacturer": "NVIDIA", "Count": 1}]}
    mac = {"SupportedArchitectures": ["x86_64_mac"]}
    result = read({"InstanceTypes": [ec2(), ec2("g4dn.4xlarge", GpuInfo=gpu), ec2("mac1.metal", ProcessorInfo=mac)]})
    capacity, room = texts(result["m5.4xlarge"])
    assert capacity == {"cpu": "16", "memory": "64Gi", "pods": "234"}
    assert room == {"cpu": "15890m", "memory": "57691Mi", "pods": "234"}, "as the table of Karpenter has it"
    assert (str(result["g4dn.4xlarge"].capacity["nvidia.com/gpu"]), result["g4dn.4xlarge"].gpu_name) == (
        "1",
        "NVIDIA T4",
    )
    assert result.left_out == {"of another architecture": 1}


def test_azure_prints_skus() -> None:
    disk = {"name": "Premium_LRS", "resourceType": "disks", "capabilities": []}
    result = read([sku(), disk, sku("Standard_E4ads_v5", vCPUsAvailable="2", MemoryGB="3.5", GPUs="1")])
    capacity, room = texts(result["Standard_D4s_v5"])
    assert capacity == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    assert room == {"cpu": "3860m", "memory": f"{(16 * 2**30 - 2_250_000_000 - 100 * MIB) // MIB}Mi", "pods": "110"}
    capacity, _ = texts(result["Standard_E4ads_v5"])
    assert capacity == {"cpu": "2", "memory": "3584Mi", "pods": "110", "nvidia.com/gpu": "1"}
    assert result.left_out == {"not a machine": 1}


def test_google_prints_machine_types() -> None:
    gpu = [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]
    tpu = [{"guestAcceleratorType": "ct5lp", "guestAcceleratorCount": 1}]
    tpu[0]["guestAcceleratorType"] = "tpu-v5"
    result = read([gce(), gce(), gce("g2", accelerators=gpu), gce("ct5", accelerators=tpu)])
    assert texts(result["n2-standard-8"])[1] == {"cpu": "7910m", "memory": "29022Mi", "pods": "110"}
    assert str(result["g2"].allocatable["nvidia.com/gpu"]) == "1"
    assert result.left_out == {"the same type in another place": 1, "with TPUs": 1}


def test_karpenter_lists_offerings() -> None:
    result = read([karpenter(), karpenter("win", operatingSystems=["windows"])])
    kind = result["c-4x"]
    assert texts(kind)[0] == texts(kind)[1] == {"cpu": "4", "memory": "8Gi", "pods": "40", "ephemeral-storage": "20Gi"}
    assert (kind.price("us-east-1"), kind.price("us-east-1", spot=True)) == (0.1, 0.07)
    assert result.left_out == {"not for Linux": 1}


def test_karpenter_types_keep_all_resources() -> None:
    resources = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "aws.amazon.com/neuron": "0", "pods": "40"}
    kind = read([karpenter("g-4x", resources=resources)])["g-4x"]
    assert texts(kind)[0] == texts(kind)[1] == {"cpu": "4", "memory": "8Gi", "pods": "40", "nvidia.com/gpu": "2"}


def test_google_prices_by_name() -> None:
    result = read_catalogue(EXAMPLES / "gce_prices.csv")
    kind = result["n2-highmem-4"]
    assert (str(kind.capacity["memory"]), kind.price("us-central1"), kind.price(spot=True)) == ("32Gi", 0.262, 0.0634)
    assert result.left_out == {"the name does not say what it has": 1}, "f1-micro"
    assert shape_of("n1-highcpu-8") == (8, 7372, 0, "")
    assert shape_of("a2-megagpu-16g") == (96, 1392640, 16, "nvidia-tesla-a100")
    assert shape_of("a2-highgpu-2g") == (24, 174080, 2, "nvidia-tesla-a100")
    assert shape_of("g2-standard-24") == (24, 98304, 2, "nvidia-l4")
    assert [shape_of(name) for name in ("m2-ultramem-208", "g2-standard-7", "e2-micro", "custom-4-8192")] == [None] * 4


def test_eks_formula_matches_the_table() -> None:
    kinds = read_catalogue(EXAMPLES / "aws.csv").values()
    assert len(kinds) == 35
    for kind in kinds:
        cpu, memory, pods = (kind.capacity[name].value() for name in ("cpu", "memory", "pods"))
        remaining = allocatable(Overhead.EKS, cpu * 1000, memory, pods, kind.arch)
        assert remaining == (kind.allocatable["cpu"].milli_value(), kind.allocatable["memory"].value()), kind.name


@pytest.mark.parametrize(
    ("of", "cpu", "memory", "expected"),
    [
        # GKE's documentation: 30 GiB leave 26.6 (less 100 MiB); 60 m of the first core, 10, 10, then 2.5 each
        (Overhead.GKE, 8_000, 30 * 1024, (7_910, int((30 - 1 - 0.8 - 0.8 - 14 * 0.06) * 1024) - 100)),
        (Overhead.GKE, 1_000, 600, (940, 600 - 255 - 100)),
        (Overhead.AKS, 1_000, 2_048, (940, 2_048 - 512 - 100)),
        (Overhead.AKS, 3_000, 2_048, (2_880, 2_048 - 512 - 100)),
        (Overhead.AKS, 64_000, 2_048, (63_260, 2_048 - 512 - 100)),
        (Overhead.NONE, 3_000, 2_048, (3_000, 2_048)),
        (Overhead.EKS, 1_000, 64, (940, 0)),
    ],
)
def test_formulas(of: Overhead, cpu: int, memory: int, expected: tuple[int, int]) -> None:
    result = allocatable(of, cpu, memory * MIB, 110, "amd64")
    assert (result[0], result[1] // MIB) == expected


@pytest.mark.parametrize(
    "catalogue",
    [
        read_catalogue(EXAMPLES / "aws.csv"),
        read_catalogue(EXAMPLES / "azure.csv"),
        read_catalogue(EXAMPLES / "gce_prices.csv"),
        read([karpenter()]),
        read([ec2("g4ad", GpuInfo={"Gpus": [{"Name": "Radeon Pro V520", "Manufacturer": "AMD", "Count": 2}]})]),
    ],
    ids=lambda catalogue: Path(catalogue.source).name,
)
def test_written_and_read_again(catalogue: Catalogue) -> None:
    assert dict(read_catalogue(write_table(catalogue).encode())) == dict(catalogue)


def test_own_pods_and_own_formula() -> None:
    kind = read([ec2()], overhead=Overhead.NONE, max_pods=17)["m5.4xlarge"]
    assert texts(kind)[0] == texts(kind)[1] == {"cpu": "16", "memory": "64Gi", "pods": "17"}
    azure = read_catalogue(EXAMPLES / "azure.csv", max_pods=30)["Standard_D4s_v5"]
    assert texts(azure)[1]["memory"] == f"{(16 * 2**30 - 650_000_000 - 100 * MIB) // MIB}Mi"


def test_prices_on_top() -> None:
    result = read([sku(), sku("Standard_Old")])
    retail = [
        {"retailPrice": 0.192, "armRegionName": "eastus", "armSkuName": "Standard_D4s_v5", "skuName": "D4s v5",
         "productName": "Virtual Machines Dsv5 Series", "type": "Consumption", "unitOfMeasure": "1 Hour"},
    ]  # fmt: skip
    retail.append(retail[0] | {"retailPrice": 0.04, "skuName": "D4s v5 Spot"})
    retail.append(retail[0] | {"retailPrice": 0.376, "productName": "Virtual Machines Dsv5 Series Windows"})
    retail.append(retail[0] | {"retailPrice": 0.1, "type": "Reservation"})
    retail.append(retail[0] | {"retailPrice": 0.03, "skuName": "D4s v5 Low Priority"})
    retail.append(retail[0] | {"retailPrice": 9.0, "armSkuName": "Standard_New"})
    priced = read_prices(json.dumps({"Items": retail}).encode()).onto(result)
    assert (priced["Standard_D4s_v5"].prices, priced["Standard_D4s_v5"].spot_prices) == (
        {"eastus": 0.192},
        {"eastus": 0.04},
    )
    assert priced.left_out == {"a price, but no machine of that name": 1}
    pages = [{"Items": retail[:2], "NextPageLink": "https://more"}, {"Items": retail[2:], "NextPageLink": None}]
    assert read_prices(json.dumps(pages).encode()).onto(result) == priced
    rows = b"instance_type,region,usd_per_hour,spot_usd_per_hour\nStandard_Old,west-europe,1.5,\n"
    assert read_prices(rows).onto(priced)["Standard_Old"].price("west-europe") == 1.5
    google = read_prices(EXAMPLES / "gce_prices.csv").onto(read([gce()]))
    assert google["n2-standard-8"].price("us-central1") == 0.3885
    assert read_prices(EXAMPLES / "aws.csv").onto(read([ec2()]))["m5.4xlarge"].price("us-east-1") == 0.768
    without_prices = read_prices(json.dumps([gce("n2-standard-16")]).encode())
    assert without_prices.onto(read([gce()])).left_out == {}, "a type without a price is no price"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "a list of instance types expected: of aws"),
        ({"a": 1}, "a list of instance types expected, got dict"),
        ([1], "a list of instance types expected, got list"),
        ({"InstanceTypes": [{"InstanceType": "m5"}]}, "InstanceTypes[0] (m5): object missing required field"),
        ({"InstanceTypes": [ec2(), ec2("x", MemoryInfo={"SizeInMiB": "many"})]}, "InstanceTypes[1] (x): MemoryInfo"),
        ([sku(), sku("Standard_X", vCPUs="a few")], "[1] (Standard_X): a capability of vCPUs"),
        ([{"name": "Standard_Y", "capabilities": []}], "(Standard_Y): the capabilities have no vCPUs and MemoryGB"),
        ([karpenter(resources={"cpu": "4"})], "(c-4x): the resources have no memory"),
        ([gce(), "n2"], "[1]: expected `object`, got `str`"),
    ],
)
def test_bad_dumps(data: Any, text: str) -> None:
    with pytest.raises(InputError) as error:
        read(data)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"[{", "data was truncated"),
        (b"[{]", "malformed JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"table,key,value\ninstancePrices,n2-standard-8,cheap\n", '"cheap" is not a price'),
    ],
)
def test_bad_texts(raw: bytes, text: str) -> None:
    with pytest.raises(InputError) as error:
        read_catalogue(raw)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"instance_type,region,usd_per_hour\nm5,,1\n", "row 2: region: the cell is empty"),
        (b"instance_type,region,usd_per_hour\n,east,1\n", "row 2: instance_type: the cell is empty"),
        (b"instance_type,region,usd_per_hour\nm5,east,free\n", 'row 2: usd_per_hour: "free" is not a price'),
        (b'{"Items": [{"retailPrice": "x", "armRegionName": "e", "armSkuName": "s"}]}', "Items[0]: retailPrice"),
        (
            b'{"Items": [{"retailPrice": -1, "armRegionName": "e", "armSkuName": "s"}]}',
            "Items[0]: retailPrice: -1.0 is not a price",
        ),
        (
            b'{"Items": [{"retailPrice": 1, "armRegionName": "e", "armSkuName": "s"}], "NextPageLink": "https://more"}',
            "the list continues at https://more",
        ),
    ],
)
def test_bad_prices(raw: bytes, text: str) -> None:
    with pytest.raises(InputError) as error:
        read_prices(raw)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([sku(), sku("Standard_B0", MemoryGB="0")], "[1] (Standard_B0): memory is 0"),
        ([sku(), sku("Standard_B0", vCPUs="0")], "[1] (Standard_B0): cpu is 0"),
        ([gce(), gce("n0", memoryMb=0)], "[1] (n0): memory is 0"),
        ({"InstanceTypes": [ec2(), ec2("m0", MemoryInfo={"SizeInMiB": -1})]}, "InstanceTypes[1] (m0): memory is -1Mi"),
        ([karpenter(), karpenter("c-0", resources={"cpu": "4", "memory": "1000"})], "[1] (c-0): memory is 0"),
    ],
)
def test_a_machine_without_cpu_or_memory_is_left_out_by_name(data: Any, text: str) -> None:
    catalogue = read(data)
    assert (len(catalogue), catalogue.left_out) == (1, {text: 1})
    assert dict(read_catalogue(write_table(catalogue).encode())) == dict(catalogue)


def test_constrained_cores_of_a_dump() -> None:
    cores = {"Standard_HB120-16rs_v2": "120", "Standard_E4-2s_v5": "4"}
    catalogue = read([sku(name, vCPUs=count) for name, count in cores.items()])
    assert [kind.capacity["cpu"].value() for kind in catalogue.values()] == [16, 2]


def test_nothing_is_written_that_cannot_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    network = {"MaximumNetworkInterfaces": 8, "Ipv4AddressesPerInterface": 0}
    catalogue = read({"InstanceTypes": [ec2(), ec2("m5.odd", NetworkInfo=network)]})
    with pytest.raises(InputError, match=r'^<bytes>: type m5\.odd: alloc_pods: "-6" is negative$'):
        store_catalogue(catalogue, "aws")
    assert list_catalogues() == []


def test_a_bad_row_of_a_kept_catalogue_is_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = store_catalogue(read_catalogue(EXAMPLES / "aws.csv"), "aws")
    count = len(read_catalogue("aws"))
    path.write_text(path.read_text() + "odd.large,amd64,2,0,0,,,,,,,1\nodd.two,mips,2,1,0,,,,,,,x\n")
    row = count + 2
    for source, name in (("aws", "aws"), (path, str(path))):
        catalogue = read_catalogue(source)
        assert len(catalogue) == count
        assert catalogue.left_out == {
            f"{name}: row {row} (odd.large): memory_mib: 0: a node has some": 1,
            f'{name}: row {row + 1} (odd.two): arch: "mips" is not one of amd64, arm64': 1,
        }
    (tmp_path / "aws.csv").write_text(path.read_text())
    with pytest.raises(InputError, match="memory_mib: 0: a node has some"):
        read_catalogue(tmp_path / "aws.csv")


def test_many_bad_rows_of_a_kept_catalogue_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = store_catalogue(read_catalogue(EXAMPLES / "aws.csv"), "aws")
    path.write_text(path.read_text() + "".join(f"odd.{i},amd64,0,1,0,,,,,,,1\n" for i in range(100)))
    left_out = read_catalogue("aws").left_out
    assert (len(left_out), sum(left_out.values())) == (21, 100)
    assert left_out["more rows that cannot be read"] == 80


def test_kept_under_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(InputError, match="no catalogue is imported"):
        read_catalogue("aws")
    aws = read_catalogue(EXAMPLES / "aws.csv")
    assert store_catalogue(aws, "aws") == tmp_path / "kscale" / "catalogues" / "aws.csv"
    assert list_catalogues() == ["aws"]
    assert dict(read_catalogue("aws")) == dict(aws)
    with pytest.raises(InputError, match="imported are aws"):
        read_catalogue("gcp")
    (tmp_path / "kscale" / "catalogues" / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"Is a directory|Permission denied"):
        read_catalogue("folder")
    with pytest.raises(InputError, match="is not a valid name of a catalogue"):
        store_catalogue(aws, "../aws")
    monkeypatch.setenv("XDG_DATA_HOME", str(EXAMPLES / "aws.csv"))
    with pytest.raises(InputError, match="Not a directory"):
        store_catalogue(aws, "aws")
