"""``kscale recommend`` on a generated cluster, and on histories that are not as they should be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import kscale.vpa
from unit.cli.support import Run, kscale

START = 1767571200  # 2026-01-05T00:00:00Z
HEADER = "time,namespace,pod,container,cpu_cores,memory_bytes\n"
MIB = 2**20


def dump() -> dict[str, Any]:
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "app", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
        },
    }
    owner = {"apiVersion": "apps/v1", "controller": True, "uid": "u"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web-5d4f8", "namespace": "shop",
            "ownerReferences": [{**owner, "kind": "Deployment", "name": "web"}],
        },
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-5d4f8-abcde", "namespace": "shop", "labels": labels,
            "ownerReferences": [{**owner, "kind": "ReplicaSet", "name": "web-5d4f8"}],
        },
        "spec": {"nodeName": "n1", **template["spec"]},
        "status": {"phase": "Running"},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "List", "items": [deployment, replica_set, pod]}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(dump()))
    return path


def rows(
    count: int, *, pod: str = "web-5d4f8-abcde", cpu: object = 0.1, memory: object = 300 * MIB, container: str = "app"
) -> list[str]:
    return [f"{START + 60 * i},shop,{pod},{container},{cpu},{memory}\n" for i in range(count)]


def recommend(cluster: Path, lines: list[str], *more: object) -> Run:
    history = cluster.parent / "usage.csv"
    history.write_text(HEADER + "".join(lines))
    return kscale("recommend", "-f", cluster, "--history", history, *more)


def answer(run: Run) -> dict[str, Any]:
    assert run.code == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_table(cluster: Path) -> None:
    run = recommend(cluster, rows(200))
    assert run.code == 0
    assert run.stdout.splitlines()[0].startswith("Requests would fall by 0.374 cpu and ")
    assert "500m -> 126m [" in run.stdout
    assert "Deployment/web" in run.stdout
    assert "400 samples" in run.stderr


def test_record_names_what_was_decided(cluster: Path) -> None:
    record = answer(recommend(cluster, rows(200), "-o", "json"))
    assert (record["kind"], record["strategy"], record["now"]) == (
        "RecommendationReport",
        "vpa",
        "2026-01-05T03:19:00Z",
    )
    (one,) = record["containers"]
    assert (one["vpa"], one["implied"], one["pods"], one["samples"]) == ("deployment-web", True, 1, 200)
    assert one["cpu"] == {
        "request": 500, "limit": None, "target": 126, "targetLimit": None, "lowerBound": 124, "upperBound": 1037,
        "compare": None, "severity": "warning",
    }  # fmt: skip
    assert one["memory"]["target"] == 380258472


def test_parquet_equals_csv(cluster: Path) -> None:
    lines = rows(300) + rows(300, pod="web-5d4f8-xyzxz", cpu=0.4)
    expected = answer(recommend(cluster, lines, "-o", "json"))
    parts = [line.strip().split(",") for line in lines]
    table = pa.table(
        {
            "time": pa.array([int(p[0]) * 1000 for p in parts]).cast(pa.timestamp("ms", "UTC")),
            **{name: [p[i] for p in parts] for i, name in enumerate(["namespace", "pod", "container"], 1)},
            "cpu_cores": [float(p[4]) for p in parts],
            "memory_bytes": [float(p[5]) for p in parts],
        }
    )
    path = cluster.parent / "usage.parquet"
    pq.write_table(table, path, row_group_size=100)
    assert answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json")) == expected
    damaged = cluster.parent / "damaged.parquet"
    damaged.write_bytes(path.read_bytes()[:-200])
    run = kscale("recommend", "-f", cluster, "--history", damaged)
    assert run.code == 2
    assert "damaged.parquet: not readable as Parquet" in run.stderr


def test_order_of_rows_does_not_matter(cluster: Path) -> None:
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.05 * (i % 7)},{(200 + i) * MIB}\n" for i in range(150)]
    expected = answer(recommend(cluster, lines, "-o", "json"))
    assert answer(recommend(cluster, lines[::-1], "-o", "json")) == expected


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (rows(150) + rows(150), "samples that are doubled or out of order"),
        (rows(150) + rows(3, cpu="nan", pod="web-5d4f8-bcdfg"), "missing values"),
        (rows(150) + rows(3, cpu="inf", pod="web-5d4f8-bcdfg"), "infinite values"),
        (rows(150) + rows(3, cpu=-1, pod="web-5d4f8-bcdfg"), "negative samples, taken as 0"),
        (rows(150) + rows(3, container="other"), "containers that their workload does not have"),
        (rows(150) + rows(3, pod="nobody"), "pods of no known workload"),
        (rows(150) + rows(3, pod="web-7c9d2-qwrtz"), "pods gone, mapped to their workload"),
    ],
)
def test_odd_rows_are_counted(cluster: Path, lines: list[str], said: str) -> None:
    run = recommend(cluster, lines)
    assert run.code == 0
    assert said in run.stderr
    assert "500m -> " in run.stdout


def test_samples_from_the_future(cluster: Path) -> None:
    run = recommend(cluster, rows(150), "--now", "2026-01-04T00:00:00Z")
    assert run.code == 0
    assert "later than the moment asked about" in run.stderr


def test_gaps_of_days_and_empty_histories(cluster: Path) -> None:
    late = [line.replace(line[:10], str(int(line[:10]) + 5 * 86400)) for line in rows(100)]
    assert "500m -> " in recommend(cluster, rows(100) + late).stdout
    assert "no data" in recommend(cluster, []).stdout
    assert "not enough data" in recommend(cluster, rows(5)).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,namespace,pod,cpu_cores\n1,a,b,1\n", "no column 'container'"),
        ("time,namespace,pod,container\n1,a,b,c\n", "neither a column 'cpu_cores' nor 'memory_bytes'"),
        (HEADER + "1,a,b,c,many,1\n", "not readable as CSV"),
        (HEADER + "soon,a,b,c,1,1\n", '"soon" is not a time'),
    ],
)
def test_histories_that_cannot_be_read(cluster: Path, text: str, said: str) -> None:
    path = cluster.parent / "bad.csv"
    path.write_text(text)
    run = kscale("recommend", "-f", cluster, "--history", path)
    assert run.code == 2
    assert said in run.stderr


def test_prometheus(cluster: Path) -> None:
    def series(name: str, value: str) -> dict[str, Any]:
        metric = {"__name__": name, "ns": "shop", "pod_name": "web-5d4f8-abcde", "container": "app"}
        return {"metric": metric, "values": [[START + 60 * i, value] for i in range(200)]}

    result = [series("cpu_usage", "0.1"), series("container_memory_working_set_bytes", str(300 * MIB))]
    path = cluster.parent / "range.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    mapped = ("--label-map", "namespace=ns,pod=pod_name", "-o", "json")
    ours = answer(kscale("recommend", "-f", cluster, "--history", path, *mapped))
    assert ours["containers"] == answer(recommend(cluster, rows(200), "-o", "json"))["containers"]


def test_objects_for_kubectl(cluster: Path) -> None:
    (vpa,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "vpa").stdout)
    assert vpa["spec"]["updatePolicy"] == {"updateMode": "Off"}
    assert vpa["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    (item,) = vpa["status"]["recommendation"]["containerRecommendations"]
    assert item["target"] == {"cpu": "126m", "memory": "380258472"}
    target = cluster.parent / "patch.yaml"
    run = recommend(cluster, rows(200), "-o", "patch", "--qos", "guaranteed", "--output-file", target)
    assert (run.code, run.stdout) == (0, "")
    (patch,) = yaml.safe_load_all(target.read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["requests"] == {"cpu": "126m", "memory": "380258472"}


def test_strategies_and_their_settings(cluster: Path) -> None:
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.01 * i},{300 * MIB}\n" for i in range(200)]
    (one,) = answer(recommend(cluster, lines, "--strategy", "percentile", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["cpu"]["targetLimit"]) == (1891, None)
    assert one["memory"]["target"] == one["memory"]["targetLimit"] == 345 * MIB
    (half,) = answer(
        recommend(cluster, lines, "--strategy", "percentile", "--cpu-percentile", 50, "-o", "json")
    )["containers"]  # fmt: skip
    assert half["cpu"]["target"] == 995
    (both,) = answer(recommend(cluster, lines, "--strategy", "percentile-limit", "-o", "json"))["containers"]
    assert both["cpu"]["target"] < both["cpu"]["targetLimit"]
    run = recommend(cluster, lines, "--strategy", "vpa", "--cpu-percentile", 50)
    assert run.code == 2
    assert "strategy vpa has no setting cpu_percentile" in run.stderr
    assert "no strategy 'best'" in recommend(cluster, lines, "--strategy", "best").stderr


def test_choice_and_fail_on(cluster: Path) -> None:
    assert recommend(cluster, rows(200), "-r", "statefulset").stdout.startswith("No workload")
    assert recommend(cluster, rows(200), "-n", "other").stdout.startswith("No workload")
    assert recommend(cluster, rows(200), "-l", "app=db").stdout.startswith("No workload")
    assert recommend(cluster, rows(200), "--fail-on", "severity>=warning").code == 1
    assert recommend(cluster, rows(200), "--fail-on", "severity>=critical", "--min-memory", "900").code == 0
    assert recommend(cluster, rows(200), "--fail-on", "badness>3").code == 2


def node() -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "4Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}


def test_effect_on_the_number_of_nodes(cluster: Path) -> None:
    given = dump()
    pod = given["items"].pop()
    for i in range(4):
        given["items"].append({**pod, "metadata": {**pod["metadata"], "name": f"web-5d4f8-abcd{i}"}})
    cluster.write_text(json.dumps({**given, "items": [*given["items"], node()]}))
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    record = answer(recommend(cluster, lines, "--effect", "-o", "json"))
    assert record["effect"] == {
        "node": "n1", "pods": 4, "nodesBefore": 2, "nodesAfter": 1, "homelessBefore": 0, "homelessAfter": 0,
        "noLongerFit": [], "nodePrice": None, "savedPerHour": None,
    }  # fmt: skip
    assert "need 1 nodes instead of 2." in recommend(cluster, lines, "--effect").stdout


def priced(cluster: Path, **labels: str) -> None:
    given = dump()
    pod = given["items"].pop()
    for i in range(4):
        given["items"].append({**pod, "metadata": {**pod["metadata"], "name": f"web-5d4f8-abcd{i}"}})
    machine = node()
    machine["metadata"]["labels"] = labels
    cluster.write_text(json.dumps({**given, "items": [*given["items"], machine]}))


CATALOGUE = (
    "instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_us_east_1,ondemand_usd_per_hour_eu_west_1\n"
    "m9.small,amd64,1,4096,0,0.05,0.06\n"
)


@pytest.mark.parametrize(
    ("labels", "price"),
    [
        ({"node.kubernetes.io/instance-type": "m9.small"}, 0.05),
        ({"node.kubernetes.io/instance-type": "m9.small", "topology.kubernetes.io/region": "eu-west-1"}, 0.06),
        ({"node.kubernetes.io/instance-type": "m9.small", "topology.kubernetes.io/region": "mars-1"}, 0.05),
        ({"node.kubernetes.io/instance-type": "m9.huge"}, None),
        ({}, None),
    ],
)
def test_worth_at_catalogue_prices(cluster: Path, labels: dict[str, str], price: float | None) -> None:
    priced(cluster, **labels)
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    catalogue = cluster.parent / "types.csv"
    catalogue.write_text(CATALOGUE)
    run = recommend(cluster, lines, "--effect", "--catalogue", catalogue, "-o", "json")
    effect = answer(run)["effect"]
    assert (effect["nodePrice"], effect["savedPerHour"]) == (price, price)
    assert ("no price for nodes like n1" in run.stderr) == (price is None)
    table = recommend(cluster, lines, "--effect", "--catalogue", catalogue).stdout
    assert ("an hour a node that saves" in table) == (price is not None)
    assert recommend(cluster, lines, "--catalogue", catalogue).code == 2


def test_worth_at_the_prices_of_groups(cluster: Path) -> None:
    priced(cluster, pool="a")
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    groups = cluster.parent / "groups.yaml"
    groups.write_text(yaml.safe_dump({"groups": [{"id": "a", "nodeSelector": {"pool": "a"}, "price": 2.5}]}))
    effect = answer(recommend(cluster, lines, "--effect", "-g", groups, "-o", "json"))["effect"]
    assert (effect["nodePrice"], effect["savedPerHour"]) == (2.5, 2.5)
    table = recommend(cluster, lines, "--effect", "-g", groups).stdout
    assert "At 2.5 an hour a node that saves 2.5 an hour, 1,825 a month." in table


def test_pods_that_would_no_longer_fit(cluster: Path) -> None:
    priced(cluster)
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}", cpu=3)]
    run = recommend(cluster, lines, "--effect")
    assert "Pods that fit on no such node: 4 (before: 0); not packed." in run.stdout
    assert "Pods that would no longer fit: shop/web-5d4f8-abcd0, " in run.stdout


def test_qualities_of_service(cluster: Path) -> None:
    plain = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    same = recommend(cluster, rows(200), "--qos", "guaranteed", "-o", "json")
    (one,) = answer(same)["containers"]
    assert one["cpu"]["target"] == one["cpu"]["targetLimit"] == plain["cpu"]["target"]
    between = recommend(cluster, rows(200), "--qos", "burstable", "-o", "json")
    (one,) = answer(between)["containers"]
    for resource in ("cpu", "memory"):
        bounds = plain[resource]["lowerBound"], plain[resource]["upperBound"]
        assert (one[resource]["target"], one[resource]["targetLimit"]) == bounds
    assert answer(between)["quality"] == "burstable"
    assert answer(between)["changeMillicores"] == plain["cpu"]["lowerBound"] - 500
    assert "limit 126m" in recommend(cluster, rows(200), "--qos", "guaranteed").stdout
    assert recommend(cluster, rows(200), "--qos", "guaranteed", "-o", "vpa").code == 2


OWN = """
import msgspec
from kscale.vpa.strategies import Advised, CompiledStrategy, Strategy

class Settings(msgspec.Struct, frozen=True):
    factor: float = 1.0

class Peak(Strategy):
    name = "peak"
    Settings = Settings
    def advise(self, usage):
        most = max((float(s.max()) for s in usage.cpu.values()), default=0.0)
        return Advised(cpu_request=round(most * 1000 * self.settings.factor))

class Compiled(CompiledStrategy):
    name = "compiled"
    Settings = Settings
    @staticmethod
    def kernel(cpu, memory, settings):
        most = 0.0
        for x in cpu:
            most = max(most, x)
        if settings[0] < 0:
            raise ValueError("no such factor")
        return most * settings[0], float("nan"), float("nan"), float("nan")
"""


@pytest.mark.parametrize("name", ["Peak", "Compiled"])
def test_a_strategy_of_ones_own(cluster: Path, name: str) -> None:
    path = cluster.parent / "own.py"
    path.write_text(OWN)
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.01 * i},{300 * MIB}\n" for i in range(200)]
    (one,) = answer(recommend(cluster, lines, "--strategy", f"{path}:{name}", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["memory"]["target"]) == (1990, None)
    twice = recommend(cluster, lines, "--strategy", f"{path}:{name}", "--setting", "factor=2", "-o", "json")
    assert answer(twice)["containers"][0]["cpu"]["target"] == 3980
    for more, said in (
        ("factor", "expected NAME=VALUE"),
        ("factor=many", "strategy"),
        ("size=1", "has no setting size"),
    ):
        run = recommend(cluster, lines, "--strategy", f"{path}:{name}", "--setting", more)
        assert run.code == 2
        assert said in run.stderr


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("kscale.vpa.strategies:Strategies", "is no subclass of Strategy"),
        ("no.such.module:Peak", "No module named"),
        ("missing.py:Peak", "No such file"),
    ],
)
def test_strategies_that_are_none(cluster: Path, strategy: str, said: str) -> None:
    run = recommend(cluster, rows(5), "--strategy", strategy)
    assert run.code == 2
    assert said in run.stderr


def test_compare_and_hpa(cluster: Path) -> None:
    given = dump()
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    recommendation = {"containerName": "app", "target": {"cpu": "200m", "memory": "500Mi"}}
    given["items"] += [
        {
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "own", "namespace": "shop"}, "spec": {"targetRef": target},
            "status": {"recommendation": {"containerRecommendations": [recommendation]}},
        },
        {
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": target, "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            },
        },
    ]  # fmt: skip
    cluster.write_text(json.dumps(given))
    run = recommend(cluster, rows(200))
    header = next(line for line in run.stdout.splitlines() if line.startswith("NAMESPACE"))
    assert "COMPARE" in header
    assert "200m, 500Mi" in run.stdout
    assert "HPA detected" in run.stdout
    assert "an HPA uses the utilisation that these requests change: shop/Deployment/web" in run.stderr
    (one,) = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    assert (one["vpa"], one["implied"]) == ("own", False)
    assert (one["cpu"]["compare"], one["memory"]["compare"]) == (200, 500 * MIB)


def test_every_format(cluster: Path) -> None:
    assert recommend(cluster, rows(200), "-o", "name").stdout == "shop/Deployment/web\n"
    assert "SAMPLES" in recommend(cluster, rows(200), "-o", "wide").stdout
    assert "| Deployment/web |" in recommend(cluster, rows(200), "-o", "markdown").stdout
    lines = recommend(cluster, rows(200), "-o", "csv").stdout.splitlines()
    assert len(lines) == 2
    (found,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "yaml").stdout)
    assert found["kind"] == "RecommendationReport"
    run = recommend(cluster, rows(200), "--output-file", cluster.parent / "no" / "file")
    assert run.code == 2
    assert "No such file" in run.stderr


def test_out_of_memory_in_the_dump(cluster: Path) -> None:
    given = dump()
    given["items"][2]["status"]["containerStatuses"] = [{
        "name": "app", "restartCount": 1, "state": {"running": {}},
        "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-01-05T03:00:00Z"}},
    }]  # fmt: skip
    calm = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    cluster.write_text(json.dumps(given))
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert one["info"] == ["OOM"]
    assert one["memory"]["target"] > calm["memory"]["target"]


def test_generated_usage(tmp_path: Path) -> None:
    cluster, usage = tmp_path / "c.json", tmp_path / "usage.parquet"
    made = kscale("generate", "--nodes", 4, "--pods", 30, "--lean", "--to", cluster, "--usage", usage)
    assert made.code == 0, made.stderr
    record = answer(kscale("recommend", "-f", cluster, "--history", usage, "-o", "json"))
    assert any(one["cpu"]["target"] for one in record["containers"])
    for threads in (1, 3):
        same = kscale("recommend", "-f", cluster, "--history", usage, "-o", "json", "--threads", threads)
        assert answer(same) == record


def refused(cluster: Path, name: str, content: bytes, *more: object) -> str:
    path = cluster.parent / name
    path.write_bytes(content)
    run = kscale("recommend", "-f", cluster, "--history", path, *more)
    assert (run.code, run.stdout) == (2, ""), run.stdout
    assert "internal error" not in run.stderr
    return run.stderr


def written(cluster: Path, lines: list[str]) -> bytes:
    """The rows as Parquet, one row group."""
    parts = [line.strip().split(",") for line in lines]
    names = HEADER.strip().split(",")
    columns = {name: [p[i] for p in parts] for i, name in enumerate(names)}
    columns |= {name: [float(x) for x in columns[name]] for name in ("cpu_cores", "memory_bytes")}
    columns["time"] = [int(x) for x in columns["time"]]
    path = cluster.parent / "whole.parquet"
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    return path.read_bytes()


def test_damaged_files(cluster: Path) -> None:
    whole = written(cluster, rows(300))
    for end in (0, 4, len(whole) // 2, len(whole) - 1):
        assert "cut.parquet: not readable as Parquet" in refused(cluster, "cut.parquet", whole[:end])
    torn = whole[:4] + b"\xff" * 64 + whole[68:]  # the first page's header; the footer is as it was
    assert "torn.parquet: not readable as Parquet" in refused(cluster, "torn.parquet", torn)
    text = (HEADER + "".join(rows(300))).encode()
    packed = gzip.compress(text)
    assert "usage.csv.gz: not readable as CSV" in refused(cluster, "usage.csv.gz", packed[: len(packed) // 2])
    assert "empty.csv: no header" in refused(cluster, "empty.csv", b"")
    assert "usage.json: not a Prometheus answer" in refused(cluster, "usage.json", b'{"status": "succ')
    assert "usage.txt: usage is read from" in refused(cluster, "usage.txt", text)
    assert "no such file" in kscale("recommend", "-f", cluster, "--history", cluster.parent / "none.csv").stderr


def test_compressed_and_cut_lines(cluster: Path) -> None:
    text = HEADER + "".join(rows(200))
    expected = answer(recommend(cluster, rows(200), "-o", "json"))
    path = cluster.parent / "packed.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json")) == expected
    path = cluster.parent / "bom.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").rstrip().encode())
    assert answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json")) == expected
    said = refused(cluster, "cut.csv", text.encode() + b"1767571260,shop,web")
    assert "cut.csv: not readable as CSV" in said
    assert "row 201" in said


@pytest.mark.parametrize(
    ("time", "more", "said"),
    [
        ("1767571200000", (), "too far from 1970: is the unit right?"),
        ("1e300", (), "too far from 1970: is the unit right?"),
        ("nan", (), "1 rows without time"),
        ("", (), "without time"),
        ("9000000000", (), "9000000000 is too far from 1970"),
        ("1767571200.5e9", (), "is too far from 1970"),
        ("5", ("--time-unit", "h"), "is not a unit of time"),
    ],
)
def test_times_that_cannot_be(cluster: Path, time: str, more: tuple[str, ...], said: str) -> None:
    line = f"{time},shop,web-5d4f8-abcde,app,1,1\n"
    assert said in refused(cluster, "odd.csv", (HEADER + "".join(rows(2)) + line).encode(), *more)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_prometheus_values_that_are_none(cluster: Path, value: str) -> None:
    metric = {"__name__": "cpu_usage", "namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app"}
    values = [[START + 60 * i, "0.1" if i % 10 else value] for i in range(200)]
    path = cluster.parent / "range.json"
    data = {"resultType": "matrix", "result": [{"metric": metric, "values": values}]}
    path.write_text(json.dumps({"status": "success", "data": data}))
    run = kscale("recommend", "-f", cluster, "--history", path)
    assert run.code == 0
    assert f"20 {'missing' if value == 'NaN' else 'infinite'} values" in run.stderr
    assert "180 samples" in run.stderr


def test_from_checkpoints_alone(cluster: Path) -> None:
    given = dump()
    histogram = {"referenceTimestamp": "2026-01-05T00:00:00Z", "bucketWeights": {"8": 10000}, "totalWeight": 50.0}
    status = {
        "version": "v3",
        "firstSampleStart": "2026-01-01T00:00:00Z",
        "lastSampleStart": "2026-01-05T00:00:00Z",
        "totalSamplesCount": 5000,
        "cpuHistogram": histogram,
        "memoryHistogram": {**histogram, "bucketWeights": {"19": 1}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    version = "autoscaling.k8s.io/v1"
    given["items"] += [
        {"apiVersion": version, "kind": "VerticalPodAutoscaler", "metadata": {"name": "own", "namespace": "shop"},
         "spec": {"targetRef": target}},
        *(
            {"apiVersion": version, "kind": "VerticalPodAutoscalerCheckpoint",
             "metadata": {"name": f"{name}-app", "namespace": "shop"},
             "spec": {"vpaObjectName": name, "containerName": "app"}, "status": status}
            for name in ("own", "gone")
        ),
    ]  # fmt: skip
    cluster.write_text(json.dumps(given))
    run = kscale("recommend", "-f", cluster, "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["samples"], one["cpu"]["target"], one["memory"]["target"]) == (5000, 126, 380258472)
    assert "cannot load checkpoint to missing VPA object shop/gone" in run.stderr
    run = kscale("recommend", "-f", cluster, "--no-checkpoints")
    assert run.code == 2
    assert "nothing to recommend from" in run.stderr


def test_histories_of_one_resource(cluster: Path) -> None:
    path = cluster.parent / "memory.csv"
    lines = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{300 * MIB}\n" for i in range(200)]
    path.write_text("time,namespace,pod,container,memory_bytes\n" + "".join(lines))
    (one,) = answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json"))["containers"]
    assert (one["info"], one["memory"]["target"]) == (["no CPU data"], None)
    run = kscale("recommend", "-f", cluster, "--history", path, "--strategy", "percentile", "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["info"], one["cpu"]["target"], one["memory"]["target"]) == ([], None, 345 * MIB)
