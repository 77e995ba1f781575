"""``kscale recommend`` on a generated cluster, and on histories that are not as they should be."""

from __future__ import annotations

import csv
import gzip
import json
import re
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
        "request": 500, "requested": 500, "limit": None, "target": 126, "targetLimit": None, "lowerBound": 124,
        "upperBound": 1037, "uncappedTarget": 126, "compare": None, "severity": "warning",
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
    run = recommend(cluster, rows(150), "--now", "2026-01-05T01:00:00Z")
    assert run.code == 0
    assert "178 samples later than the moment asked about" in run.stderr  # of 300, those of minutes 61 to 149


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
    for option, value, said in (
        ("-r", "statefulset", "no workload of the kind statefulset"),
        ("-n", "other", "no workload in the namespace other"),
        ("-l", "app=db", "no workload with the pod labels app=db"),
    ):
        run = recommend(cluster, rows(200), option, value)
        assert run.stdout.startswith("No workload")
        assert said in run.stderr
        assert "samples" not in run.stderr  # none were asked for
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
    assert "an HPA scales by a resource that these requests are of: shop/Deployment/web" in run.stderr
    (one,) = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    assert (one["vpa"], one["implied"]) == ("own", False)
    assert (one["cpu"]["compare"], one["memory"]["compare"]) == (200, 500 * MIB)


def test_every_format(cluster: Path) -> None:
    assert recommend(cluster, rows(200), "-o", "name").stdout == "shop/Deployment/web\n"
    assert "SAMPLES" in recommend(cluster, rows(200), "-o", "wide").stdout
    assert "| Deployment/web |" in recommend(cluster, rows(200), "-o", "markdown").stdout
    (row,) = csv.DictReader(recommend(cluster, rows(200), "-o", "csv").stdout.splitlines())
    assert (row["workload"], row["cpu_millicores_request"], row["cpu_millicores_target"]) == (
        "Deployment/web",
        "500",
        "126",
    )
    assert (row["memory_bytes_request"], row["memory_bytes_limit"]) == (str(2**30), "")
    assert all(re.fullmatch(r"[a-z_]+", name) for name in row)
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


# -- dumps that are not as they should be ------------------------------------------------------------------------------


def vpa(name: str, created: str = "2026-01-01T00:00:00Z", target: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, **spec},
    }  # fmt: skip


def at_least(cpu: str) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "*", "minAllowed": {"cpu": cpu}}]}}


def with_items(cluster: Path, *items: dict[str, Any]) -> None:
    given = dump()
    cluster.write_text(json.dumps({**given, "items": [*given["items"], *items]}))


def test_a_vpa_of_another_recommender(cluster: Path) -> None:
    plain = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    with_items(cluster, vpa("deployment-web", recommenders=[{"name": "custom"}], **at_least("7")))
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["vpa"], one["implied"]) == ("deployment-web-2", True)  # under a name of its own
    assert [{**one, "vpa": "deployment-web"}] == plain
    assert "1 VPAs of another recommender, not taken" in run.stderr


def test_the_oldest_of_two_vpas_wins(cluster: Path) -> None:
    with_items(
        cluster, vpa("a", "2026-01-02T00:00:00Z", **at_least("7")), vpa("b", "2025-01-01T00:00:00Z", **at_least("3"))
    )
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert (one["vpa"], one["cpu"]["target"], one["cpu"]["uncappedTarget"]) == ("b", 3000, 126)
    assert "1 VPAs on a workload that an older VPA is for" in run.stderr


def test_a_vpa_object_keeps_its_spec(cluster: Path) -> None:
    other = dump()["items"][0]
    other["metadata"]["name"] = "db"
    own = vpa("own", updatePolicy={"updateMode": "Recreate"}, **at_least("3"))
    with_items(cluster, own, {**other, "spec": {**other["spec"], "selector": {"matchLabels": {"app": "db"}}}})
    (found,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "vpa").stdout)  # none for db: no advice
    assert (found["metadata"]["name"], found["spec"]) == ("own", own["spec"])
    (item,) = found["status"]["recommendation"]["containerRecommendations"]
    assert (item["target"]["cpu"], item["uncappedTarget"]["cpu"]) == ("3", "126m")
    (patch,) = yaml.safe_load_all(recommend(cluster, rows(200), "-o", "patch").stdout)
    assert patch["metadata"]["name"] == "web"
    small = yaml.safe_load(recommend(cluster, rows(200, memory=MIB), "-o", "vpa").stdout)
    (item,) = small["status"]["recommendation"]["containerRecommendations"]
    assert item["target"]["memory"] == "250Mi"


def test_pods_with_different_requests(cluster: Path) -> None:
    given = dump()
    pod = given["items"].pop()
    for i, cpu in enumerate(("500m", "2", "3")):
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        spec = {**pod["spec"], "containers": [{"name": "app", "resources": resources}]}
        status = {**pod["status"]}
        if cpu == "3":  # resized in place: what the status reports counts
            status["containerStatuses"] = [{"name": "app", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]
        given["items"].append({**pod, "metadata": {**pod["metadata"], "name": f"p{i}"}, "spec": spec, "status": status})
    cluster.write_text(json.dumps(given))
    record = answer(recommend(cluster, rows(200, pod="p0"), "-o", "json"))
    (one,) = record["containers"]
    assert (record["requestedMillicores"], record["requestedBytes"]) == (3500, 4 << 30)
    assert record["changeMillicores"] == 3 * 126 - 3500
    assert one["info"] == ["requests differ"]
    same = answer(recommend(cluster, rows(200, pod="p0"), "--qos", "guaranteed", "-o", "json"))
    assert same["changeMillicores"] == record["changeMillicores"]


def test_a_moment_long_after_the_samples(cluster: Path) -> None:
    (one,) = answer(recommend(cluster, rows(200), "--now", "2026-02-01T00:00:00Z", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["samples"], one["info"]) == (126, 200, ["old data"])


def test_finished_pods_belong_to_their_owner(cluster: Path) -> None:
    given = dump()
    pod = given["items"].pop()
    finished = {**pod, "metadata": {**pod["metadata"], "name": "oddly-named"}, "status": {"phase": "Failed"}}
    cron = {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tidy", "namespace": "shop"},
        "spec": {"jobTemplate": {"spec": {"template": {
            "metadata": {"labels": {"app": "tidy"}}, "spec": {"containers": [{"name": "app"}]}}}}},
    }  # fmt: skip
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tidy", "uid": "u", "controller": True}
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "by-hand", "namespace": "shop", "ownerReferences": [owner]}, "spec": {},
    }  # fmt: skip
    cluster.write_text(json.dumps({**given, "items": [*given["items"], finished, cron, job]}))
    lines = rows(200, pod="oddly-named") + rows(200, pod="by-hand-bcdfg", cpu=0.3)
    run = recommend(cluster, lines, "-o", "json")
    tidy, web = answer(run)["containers"]
    assert (web["workload"], web["cpu"]["target"], web["pods"]) == ("Deployment/web", 126, 0)
    assert (tidy["workload"], tidy["samples"]) == ("CronJob/tidy", 200)
    assert "no known workload" not in run.stderr


@pytest.mark.parametrize(
    "spec",
    [
        {"apiVersion": "autoscaling/v2", "metrics": [{"type": "Resource", "resource": {
            "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}]},
        {"apiVersion": "autoscaling/v2"},
        {"apiVersion": "autoscaling/v1", "targetCPUUtilizationPercentage": 50},
        {"apiVersion": "autoscaling/v2", "metrics": [{"type": "ContainerResource", "containerResource": {
            "name": "cpu", "container": "app", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    ],
)  # fmt: skip
def test_hpas_of_every_form(cluster: Path, spec: dict[str, Any]) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {
        "apiVersion": spec["apiVersion"], "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec},
    }  # fmt: skip
    del hpa["spec"]["apiVersion"]
    with_items(cluster, hpa)
    (one,) = answer(recommend(cluster, rows(200), "-o", "json"))["containers"]
    assert one["info"] == ["HPA detected"]


def test_evictions_for_memory_and_kills_of_long_ago(cluster: Path) -> None:
    calm = answer(recommend(cluster, rows(200), "-o", "json"))["containers"][0]
    event = {
        "apiVersion": "v1", "kind": "Event", "reason": "Evicted",
        "metadata": {
            "name": "e", "namespace": "shop", "creationTimestamp": "2026-01-05T03:00:00Z",
            "annotations": {"offending_containers": "app", "offending_containers_usage": "3Gi",
                            "starved_resource": "memory"},
        },
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-5d4f8-qwrtz"},
    }  # fmt: skip
    with_items(cluster, event)
    run = recommend(cluster, rows(200), "-o", "json")
    (one,) = answer(run)["containers"]
    assert one["info"] == ["OOM"]
    assert one["memory"]["target"] > 3 << 30
    event["metadata"]["creationTimestamp"] = "2025-01-05T03:00:00Z"  # type: ignore[index]  # Json is nested
    with_items(cluster, event)
    lines = rows(200) + rows(200, pod="web-5d4f8-qwrtz")
    run = recommend(cluster, lines, "-o", "json")
    assert answer(run)["containers"][0]["memory"]["target"] <= calm["memory"]["target"]
    assert "1 containers killed for memory too long ago" in run.stderr


def test_a_kill_at_no_time(cluster: Path) -> None:
    given = dump()
    given["items"][2]["status"]["containerStatuses"] = [
        {"name": "app", "lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": "lately"}}}
    ]
    cluster.write_text(json.dumps(given))
    run = recommend(cluster, rows(200))
    assert run.code == 2
    assert "Pod shop/web-5d4f8-abcde: status.containerStatuses[app]" in run.stderr
    assert '"lately" is not an RFC 3339 time' in run.stderr


def test_samples_of_init_containers(cluster: Path) -> None:
    given = dump()
    given["items"][2]["spec"]["initContainers"] = [{"name": "setup"}]
    cluster.write_text(json.dumps(given))
    run = recommend(cluster, rows(150) + rows(3, container="setup"), "-o", "json")
    assert answer(run)["containers"][0]["samples"] == 150
    assert "6 samples of init containers, left out" in run.stderr
    assert "300 samples\n" in run.stderr


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("cpuHistogram", "bucketWeights"), {"20": 2**32}, "bucketWeights[20]: 4294967296 is no uint32"),
        (("cpuHistogram", "bucketWeights"), {"20": -5}, "bucketWeights[20]: -5 is no uint32"),
        (("memoryHistogram", "referenceTimestamp"), "2500-06-01T00:00:00Z", "memoryHistogram.referenceTimestamp: "),
        (("cpuHistogram", "referenceTimestamp"), "0001-06-01T00:00:00Z", "is out of range"),
        (("lastSampleStart",), "lately", 'status.lastSampleStart: "lately" is not an RFC 3339 time'),
    ],
)  # fmt: skip
def test_checkpoints_that_no_server_holds(cluster: Path, where: tuple[str, ...], value: object, said: str) -> None:
    moment = "2026-01-05T00:00:00Z"
    histogram = {"referenceTimestamp": moment, "bucketWeights": {"20": 10000}, "totalWeight": 8.0}
    status: dict[str, Any] = {
        "version": "v3", "firstSampleStart": "2026-01-01T00:00:00Z", "lastSampleStart": moment,
        "totalSamplesCount": 9000, "cpuHistogram": {**histogram}, "memoryHistogram": {**histogram},
    }  # fmt: skip
    checkpoint = {
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": "own-app", "namespace": "shop"},
        "spec": {"vpaObjectName": "own", "containerName": "app"}, "status": status,
    }  # fmt: skip
    with_items(cluster, vpa("own"), checkpoint)
    assert answer(kscale("recommend", "-f", cluster, "-o", "json"))["containers"][0]["cpu"]["target"] > 0
    inner = status
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    with_items(cluster, vpa("own"), checkpoint)
    run = kscale("recommend", "-f", cluster)
    assert run.code == 2
    assert "VerticalPodAutoscalerCheckpoint shop/own-app: " in run.stderr
    assert said in run.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-l", "a in ("), "selector 'a in ('"),
        (("--min-cpu", "nan"), "--min-cpu: nan"),
        (("--min-memory", "inf"), "--min-memory: inf"),
        (("--margin", "-3"), "--margin: -3.0"),
        (("--strategy", "percentile", "--min-cpu", "50"), "--min-cpu: the strategy percentile does not use it"),
        (("--strategy", "percentile", "--cpu-percentile", "200"), "cpu_percentile"),
        (("--strategy", "percentile", "--cpu-percentile", "nan"), "cpu_percentile"),
        (("--strategy", "percentile", "--memory-buffer-percentage", "inf"), "memory_buffer_percentage"),
        (("--strategy", "percentile", "--memory-min-mib", "-7"), "memory_min_mib"),
        (("--strategy", ":X"), "no strategy ':X'"),
    ],
)
def test_options_that_make_no_sense(cluster: Path, options: tuple[str, ...], said: str) -> None:
    run = recommend(cluster, rows(150), *options)
    assert run.code == 2
    assert said in run.stderr
    assert "internal error" not in run.stderr


BROKEN = """
from kscale.vpa.strategies import Advised, Strategy

class Raises(Strategy):
    name = "raises"
    def advise(self, usage):
        raise KeyError("boom")

class Nothing(Strategy):
    name = "nothing"
    def advise(self, usage):
        return None

class Negative(Strategy):
    name = "negative"
    def advise(self, usage):
        return Advised(cpu_request=-5)

class Fraction(Strategy):
    name = "fraction"
    def advise(self, usage):
        return Advised(memory_request=1.5)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Raises", "failed: KeyError: 'boom'"),
        ("Nothing", "returned NoneType, not Advised"),
        ("Negative", "cpu_request: -5 is no whole number"),
        ("Fraction", "memory_request: 1.5 is no whole number"),
    ],
)
def test_strategies_that_fail(cluster: Path, name: str, said: str) -> None:
    path = cluster.parent / "broken.py"
    path.write_text(BROKEN)
    run = recommend(cluster, rows(150), "--strategy", f"{path}:{name}")
    assert run.code == 2
    assert f"strategy {name.lower()}: container app of Deployment/web in shop: " in run.stderr
    assert said in run.stderr
    path.write_text("raise RuntimeError('at import')")
    run = recommend(cluster, rows(150), "--strategy", f"{path}:{name}")
    assert run.code == 2
    assert "RuntimeError: at import" in run.stderr
    assert "internal error" not in run.stderr


def test_effect_without_a_place_for_any_pod(cluster: Path) -> None:
    assert "The dump has no nodes: nothing to pack the pods onto." in recommend(cluster, rows(150), "--effect").stdout
    tiny = node()
    tiny["status"]["allocatable"] = tiny["status"]["capacity"] = {"cpu": "10m", "memory": "4Gi", "pods": "110"}
    with_items(cluster, tiny)
    said = recommend(cluster, rows(150), "--effect").stdout
    assert "None of the 1 running pods fits on an empty node like n1: nothing is packed." in said


def test_gone_pods_by_the_labels_of_their_series(cluster: Path) -> None:
    given = dump()
    labels = {"app": "web", "app.kubernetes.io/part-of": "shop"}
    given["items"][0]["spec"]["selector"] = {"matchLabels": labels}
    given["items"][0]["spec"]["template"] = {
        "metadata": {"labels": labels}, "spec": given["items"][0]["spec"]["template"]["spec"],
    }  # fmt: skip
    cluster.write_text(json.dumps({**given, "items": given["items"][:1]}))

    def count(**metric: str) -> int:
        series = {"metric": {"namespace": "shop", "pod": "odd", "container": "app", **metric},
                  "values": [[START + 60 * i, "0.1"] for i in range(150)]}  # fmt: skip
        path = cluster.parent / "range.json"
        path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}))
        (one,) = answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json"))["containers"]
        return int(one["samples"])

    assert count(label_app="web", label_app_kubernetes_io_part_of="shop") == 150
    assert count(pod_label_app="web", pod_label_app_kubernetes_io_part_of="shop") == 150
    assert count(label_app="web") == 0  # not all that the selector asks for
    assert count(label_app="db", label_app_kubernetes_io_part_of="shop") == 0
