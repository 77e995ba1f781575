"""The common shape of results: plain data, JSON, Arrow tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar, get_args

import msgspec
import pyarrow as pa
import pytest

import kscale
from kscale import hpa, records, schemas
from kscale.capacity.cost import cost
from kscale.errors import InputError, MissingExtraError
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.records import Record

EXAMPLES = Path(__file__).parents[2] / "examples"
AMOUNTS = {"cpu": "1", "memory": "1Gi", "pods": "10"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"allocatable": AMOUNTS}}


def pod(name: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


@pytest.fixture
def cluster() -> kscale.Cluster:
    return kscale.load(NODE, pod("a", "600m"), pod("b", "600m"))


def test_a_placement_has_one_row_per_pod(cluster: kscale.Cluster) -> None:
    placed = kscale.place(cluster.snapshot())
    assert placed.to_arrow().to_pylist() == [
        {"pod": "shop/a", "node": "node-1", "reason": None},
        {"pod": "shop/b", "node": None, "reason": "fits no node"},
    ]


def test_an_estimate_has_one_row_per_pod(cluster: kscale.Cluster) -> None:
    options = kscale.EstimateOptions(max_nodes=1)
    table = kscale.estimate(
        cluster.snapshot(), template={"metadata": {"name": "big"}, "status": NODE["status"]}, options=options
    ).to_arrow()
    assert table.to_pylist() == [
        {"pod": "shop/a", "node": "big-e-0", "reason": None},
        {"pod": "shop/b", "node": None, "reason": "no further node was permitted"},
    ]


def test_a_fit_has_the_number_of_nodes_per_pod(cluster: kscale.Cluster) -> None:
    table = kscale.fit(cluster.snapshot()).to_arrow()
    assert table.schema == pa.schema({"pod": pa.string(), "nodes": pa.int64()})
    assert table.to_pylist() == [{"pod": "shop/a", "nodes": 1}, {"pod": "shop/b", "nodes": 1}]


def test_an_empty_result_keeps_its_columns() -> None:
    table = kscale.place(kscale.load(NODE).snapshot()).to_arrow()
    assert table.num_rows == 0
    assert table.schema == pa.schema({"pod": pa.string(), "node": pa.string(), "reason": pa.string()})


def test_plain_data_and_json_are_the_same(cluster: kscale.Cluster) -> None:
    fit = kscale.fit(cluster.snapshot())
    assert fit.to_dict() == {
        "apiVersion": "kscale.dev/v1alpha1",
        "kind": "FitResult",
        "rows": [{"pod": "shop/a", "nodes": 1}, {"pod": "shop/b", "nodes": 1}],
    }
    assert json.loads(fit.to_json()) == fit.to_dict()
    assert json.loads(fit.to_json(indent=2)) == fit.to_dict()
    assert b"\n" in fit.to_json(indent=2)


def test_plans_of_the_cluster_autoscaler(cluster: kscale.Cluster) -> None:
    template = kscale.NodeTemplate(node=from_dict({"metadata": {"name": "t"}, "status": NODE["status"]}, Node))
    groups = [kscale.NodeGroup(id="web", max_size=5, template=template)]
    plan = kscale.scale_up(kscale.load(pod("a", "600m"), pod("b", "600m")), groups, now=1_800_000_000 * 10**9)
    assert plan.to_arrow().to_pylist() == [{"group": "web", "current": 0, "new": 2}]
    assert plan.to_dict()["scaleUps"] == [{"group": "web", "current": 0, "new": 2, "max": 5}]
    down = kscale.scale_down(
        kscale.load(NODE), [kscale.NodeGroup(id="web", max_size=5, nodes=["node-1"])], now=1_800_000_000 * 10**9
    )
    assert down.to_arrow().column_names == ["node", "decision", "movedPods", "reason"]


def test_any_reader_of_arrow_streams_takes_a_result(cluster: kscale.Cluster) -> None:
    placed = kscale.place(cluster.snapshot())
    assert pa.table(placed).equals(placed.to_arrow())


def test_decisions_have_one_row_per_hpa() -> None:
    decisions = hpa.read_dump(EXAMPLES / "shop.json").decide()
    rows = {row["hpa"]: row for row in pa.table(decisions).to_pylist()}
    assert (rows["shop/pay"]["current"], rows["shop/pay"]["desired"]) == (6, 5)
    assert rows["shop/mail"]["desired"] is None


class Size(msgspec.Struct, rename="camel"):
    cpu_cores: float
    labels: list[str]


class Item(msgspec.Struct, rename="camel"):
    item_name: str
    count: int | None
    ready: bool
    size: Size | None
    extra: dict[str, int]


class Report(Record, frozen=True):
    KIND: ClassVar[str] = "Report"
    ROWS: ClassVar[str] = "items"
    items: list[Item]


def test_a_record_has_one_column_per_field_of_its_items() -> None:
    report = Report(
        items=[
            Item("a", 1, True, Size(2, ["x"]), {"n": 1}),
            Item("b", None, False, None, {}),
        ]
    )
    table = report.to_arrow()
    types = {"itemName": pa.string(), "count": pa.int64(), "ready": pa.bool_(), "size.cpuCores": pa.float64()}
    assert table.schema == pa.schema({**types, "size.labels": pa.list_(pa.string()), "extra": pa.string()})
    assert table.to_pylist() == [
        {"itemName": "a", "count": 1, "ready": True, "size.cpuCores": 2.0, "size.labels": ["x"], "extra": '{"n":1}'},
        {"itemName": "b", "count": None, "ready": False, "size.cpuCores": None, "size.labels": None, "extra": "{}"},
    ]


class Sentence(Record, frozen=True):
    KIND: ClassVar[str] = "Sentence"
    text: str


def test_a_record_without_rows_is_no_table() -> None:
    with pytest.raises(InputError, match=r"Sentence is not a table: use to_dict\(\)"):
        Sentence(text="a").to_arrow()


def test_without_pyarrow_the_error_names_the_extra(cluster: kscale.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"kscale-core\[data\]"):
        kscale.fit(cluster.snapshot()).to_arrow()


@pytest.mark.parametrize("kind", sorted({*schemas.DOCUMENTS} - {"ClusterAnswers", "SchemaList"}))
def test_every_published_record_is_a_table_of_known_columns(kind: str) -> None:
    record = schemas.record_type(kind)
    (annotation,) = (field.type for field in msgspec.structs.fields(record) if field.name == record.ROWS)
    columns = list(records._columns_of(get_args(annotation)[0]))
    assert columns
    assert len(dict(columns)) == len(columns)
    assert {type_ for _, type_ in columns} <= {str, int, float, bool, list}


def test_reports_of_the_example_are_tables() -> None:
    cluster, groups = kscale.load(EXAMPLES / "cluster.json.gz"), kscale.read_groups(EXAMPLES / "groups.yaml")
    applied = kscale.fit_manifests(cluster, EXAMPLES / "web.yaml", placements=True)
    (row,) = applied.to_arrow().to_pylist()
    assert (row["name"], row["replicas"], row["fit"]) == ("web", 80, 12)
    assert sum(json.loads(row["placement"]).values()) == 12
    plan = kscale.mix(cluster, groups, options=kscale.MixOptions(plan_effort=1, bound_effort=1))
    assert [line["nodes"] for line in plan.to_arrow().to_pylist()] == [line.nodes for line in plan.lines]
    dump = hpa.read_dump(EXAMPLES / "shop.json")
    sizes = {row["name"]: row["desiredReplicas"] for row in hpa.hpa_report(dump).to_arrow().to_pylist()}
    assert (sizes["pay"], sizes["mail"]) == (5, None)


def test_costs_have_one_row_per_workload() -> None:
    report = cost(kscale.load(EXAMPLES / "cluster.json.gz"), kscale.read_groups(EXAMPLES / "groups.yaml"))
    table = report.to_arrow()
    assert table["name"].to_pylist() == [share.name for share in report.workloads]
    assert table["cost"].to_pylist() == [share.cost for share in report.workloads]
