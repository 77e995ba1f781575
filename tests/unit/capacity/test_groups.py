"""The groups file: what an entry becomes, and every mistake by name and path."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import zstandard

import kscale
from json_schemas import validate
from kscale import InputError, Quantity
from kscale.capacity.groups import groups_from, groups_schema, groups_schema_text, read_groups
from kscale.records import nulls_last

ROOT = Path(__file__).parents[3]
TEMPLATE = {
    "metadata": {"name": "t", "labels": {"pool": "a"}},
    "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": 110}},
}
CATALOGUE = """instance_type,arch,vcpu,memory_mib,gpu,alloc_cpu,ondemand_usd_per_hour_us_east_1,\
ondemand_usd_per_hour_eu_west_1
m5.xlarge,amd64,4,16384,0,3920m,0.192,0.214
"""


published = cache(groups_schema)


def test_an_entry_becomes_a_node_group() -> None:
    (group,) = groups_from(
        [
            {
                "id": "a",
                "min": 1,
                "max": 20,
                "target": 3,
                "template": TEMPLATE,
                "pods": [{"metadata": {"name": "daemon"}, "spec": {"containers": []}}],
                "labels": {"team": "x"},
                "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}],
                "capacity": {"nvidia.com/gpu": 1},
                "price": 0.5,
                "options": {"zeroOrMaxNodeScaling": True, "maxNodeProvisionTime": 600},
            }
        ]
    )
    assert (group.id, group.min_size, group.max_size, group.target_size, group.price) == ("a", 1, 20, 3, 0.5)
    assert group.template is not None
    assert group.template.node.status.allocatable == {
        "cpu": Quantity("4"),
        "memory": Quantity("16Gi"),
        "pods": Quantity("110"),
    }
    assert group.template.pods[0].metadata.name == "daemon"
    assert group.labels == {"team": "x"}
    assert group.taints[0].effect == "NoSchedule"
    assert group.capacity == {"nvidia.com/gpu": Quantity("1")}
    assert group.options is not None
    assert group.options.zero_or_max_node_scaling is True
    assert group.options.max_node_provision_time == 600


def test_defaults() -> None:
    (group,) = groups_from([{"id": "a", "fromNode": "n1"}])
    assert (group.min_size, group.max_size, group.target_size, group.from_node) == (0, 1000, None, "n1")
    (group,) = groups_from({"groups": [{"id": "a", "nodeSelector": {"pool": "a"}}]})
    assert group.node_selector == {"pool": "a"}
    for nothing in ([], {"groups": []}):
        with pytest.raises(InputError, match="no node group in it"):
            groups_from(nothing)


def test_instance_types(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text(CATALOGUE)
    file = tmp_path / "groups.yaml"
    file.write_text("""
- id: us
  instanceType: m5.xlarge
  catalogue: types.csv
  region: us-east-1
  zone: us-east-1a
- id: eu
  instanceType: m5.xlarge
  catalogue: types.csv
  region: eu-west-1
- {id: own-price, instanceType: m5.xlarge, catalogue: types.csv, price: 0.01}
""")
    us, eu, own = read_groups(file)
    assert (us.price, eu.price, own.price) == (0.192, 0.214, 0.01)
    assert us.template is not None
    labels = us.template.node.metadata.labels or {}
    assert labels["node.kubernetes.io/instance-type"] == "m5.xlarge"
    assert labels["topology.kubernetes.io/zone"] == "us-east-1a"
    (same,) = groups_from([{"id": "a", "instanceType": "m5.xlarge"}], catalogue=tmp_path / "types.csv")
    assert same.template is not None
    assert same.template.node.status.allocatable is not None
    assert same.template.node.status.allocatable["cpu"] == Quantity("3920m")


def test_json_yaml_and_packed_are_one(tmp_path: Path) -> None:
    entries = [{"id": "a", "fromNode": "n1"}, {"id": "b", "template": TEMPLATE}]
    text = json.dumps(entries).encode()
    packed = {"g.json.gz": gzip.compress(text, mtime=0), "g.json.zst": zstandard.compress(text)}
    for name, content in {"g.json": text, "g.yaml": text, "g": text, **packed}.items():
        (tmp_path / name).write_bytes(content)
        assert read_groups(tmp_path / name) == groups_from(entries)
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(InputError, match=r"empty\.yaml: no node group in it: a list of at least one is expected"):
        read_groups(tmp_path / "empty.yaml")


ONE = {"id": "a", "fromNode": "n1"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([ONE, {**ONE, "max": 5}], "groups[1] (a): id: the id is that of groups[0]"),
        ([{**ONE, "min": 5, "max": 2}], "groups[0] (a): min: min 5 is more than max 2"),
        ([{**ONE, "min": -1}], "groups[0] (a): min: -1 is negative"),
        ([{**ONE, "max": -1}], "groups[0] (a): max: -1 is negative"),
        ([{**ONE, "target": -1}], "groups[0] (a): target: -1 is negative"),
        ([{"id": "a"}], "groups[0] (a): no template: give template, fromNode, instanceType, nodes or nodeSelector"),
        ([{**ONE, "template": TEMPLATE}], "groups[0] (a): fromNode: template and fromNode exclude each other"),
        ([{"id": "", "fromNode": "n1"}], "groups[0] (): id: is empty"),
        ([{"fromNode": "n1"}], "groups[0]: object missing required field `id`"),
        (
            [{**ONE, "options": {"maxNodeProvisionTime": -1}}],
            "groups[0] (a): options.maxNodeProvisionTime: -1.0 is negative or not a number",
        ),
        ([{**ONE, "min": "two"}], "groups[0] (a): min: expected `int`, got `str`"),
        ([{**ONE, "capacity": {"cpu": "-1"}}], "groups[0] (a): capacity[cpu]: -1 is negative"),
        ([{**ONE, "capacity": {"cpu": "1O"}}], 'groups[0] (a): capacity.cpu: "1O" is not a quantity'),
        ([{**ONE, "price": float("nan")}], "groups[0] (a): price: nan is not a price"),
        ([{**ONE, "price": -1}], "groups[0] (a): price: -1.0 is not a price"),
        (
            [{**ONE, "taints": [{"key": "a", "effect": "Never"}]}],
            'groups[0] (a): taints[0].effect: "Never" is not one of NoSchedule, PreferNoSchedule, NoExecute',
        ),
        ([{**ONE, "taints": [{"effect": "NoExecute"}]}], "groups[0] (a): taints[0].key: is empty"),
        ([{**ONE, "zone": "a"}], "groups[0] (a): zone: has an effect only with instanceType"),
        ([{**ONE, "pods": [{}]}], "groups[0] (a): pods: has an effect only with template"),
        (
            [{"id": "a", "template": {}}],
            "groups[0] (a): template.status.allocatable: is empty: the node would have room for nothing",
        ),
        ([{"id": "a", "instanceType": "m5.xlarge"}], "groups[0] (a): catalogue: instanceType needs a catalogue"),
        (
            [{"id": "a", "template": {"status": {"allocatable": {"cpu": "-4"}}}}],
            "groups[0] (a): template.status.allocatable.cpu: -4 is negative",
        ),
        ([{"id": "a\nb", "fromNode": "n1"}], "groups[0] (a\\nb): id: has control characters"),
        (
            [{"id": "a", "nodes": ["n", "n"]}],
            'groups[0] (a): nodes[1]: node "n" is of groups[0] already',
        ),
        (
            [{"id": "a", "nodes": ["n"]}, {"id": "b", "nodes": ["n"]}],
            'groups[1] (b): nodes[0]: node "n" is of groups[0] already',
        ),
        ([7], "groups[0]: expected `object`, got `int`"),
        ({"id": "a"}, "a list of node groups expected, got dict"),
    ],
)
def test_mistakes_are_named(entries, message: str) -> None:
    with pytest.raises(InputError) as caught:
        groups_from(entries, source="g.yaml")
    assert str(caught.value) == f"g.yaml: {message}"


@pytest.mark.parametrize(
    ("entry", "where", "known"),
    [
        ({"maxSize": 3}, "object contains unknown field `maxSize`; there are id, min, max, ", "capacity"),
        ({"options": {"x": 1}}, "options: object contains unknown field `x`; there are ", "maxNodeProvisionTime"),
        (
            {"taints": [{"key": "a", "effects": "NoExecute"}]},
            "taints[0]: object contains unknown field `effects`; there are ",
            "effect",
        ),
    ],
)
def test_unknown_field_error_lists_the_known_fields(entry: dict[str, Any], where: str, known: str) -> None:
    with pytest.raises(InputError) as caught:
        groups_from([{**ONE, **entry}])
    text = str(caught.value)
    assert text.startswith(f"groups[0] (a): {where}")
    assert known in text.partition("; there are ")[2].split(", ")


SLICE = {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "gpu"}]}}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"resourceSlice": [SLICE]},
            "template.resourceSlice: unknown field; there are apiVersion, kind, ",
        ),
        (
            {"status": {"allocateable": {}}},
            "template.status.allocateable: unknown field; there are capacity, ",
        ),
        ({"metadata": {"label": {}}}, "template.metadata.label: unknown field; there are name, "),
        (
            {"spec": {"taints": [{"key": "a", "efect": "x"}]}},
            "template.spec.taints[0].efect: unknown field; ",
        ),
        ({"resourceSlices": [{"spec": {"drivers": "d"}}]}, "template.resourceSlices[0].spec.drivers: unknown field; "),
        ({"csiNode": {"spec": {"drivers": [{"nme": "d"}]}}}, "template.csiNode.spec.drivers[0].nme: unknown field; "),
        ({"resourceSlices": [{"spec": {"driver": "d"}}]}, "template.resourceSlices[0].spec.pool.name: is empty"),
        (
            {"resourceSlices": [{"spec": {**SLICE["spec"], "allNodes": True}}]},
            "template.resourceSlices[0].spec.allNodes: is not of one node: a template has its own devices only",
        ),
    ],
)
def test_invalid_template_fields_are_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        groups_from([{"id": "a", "template": {**TEMPLATE, **more}}])
    assert f"groups[0] (a): {message}" in str(caught.value)


def test_node_from_the_api_server_is_a_template() -> None:
    metadata = {"name": "n", "managedFields": [{"manager": "kubelet"}], "selfLink": "/n", "annotations": {"a": "b"}}
    status = {**TEMPLATE["status"], "nodeInfo": {"kubeletVersion": "v1.37.0"}, "images": [{"names": ["x"]}]}
    groups_from([{"id": "a", "template": {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}}])


def test_sizes_outside_of_the_limits_are_those_of_real_clusters() -> None:
    low, high = groups_from([{**ONE, "min": 3, "target": 2}, {**ONE, "id": "b", "max": 4, "target": 5}])
    assert (low.target_size, high.target_size) == (2, 5)


def test_devices_and_drivers_of_new_nodes() -> None:
    drivers = [{"name": "ebs", "allocatable": {"count": 3}}]
    other = {"metadata": {"name": "t"}, "spec": {**SLICE["spec"], "pool": {"name": "p", "resourceSliceCount": 5}}}
    template = {**TEMPLATE, "resourceSlices": [SLICE, other], "csiNode": {"spec": {"drivers": drivers}}}
    (group,) = groups_from([{"id": "a", "template": template}])
    assert group.template is not None
    assert group.template.csi_node is not None
    assert [each.name for each in group.template.csi_node.spec.drivers] == ["ebs"]
    assert [each.spec.pool.resource_slice_count for each in group.template.resource_slices] == [2, 5]
    validate([{"id": "a", "template": template}], published())


def test_a_group_without_nodes_grows_for_its_devices() -> None:
    claim = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "count": 1}}]}}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "d", "creationTimestamp": "2026-05-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "g", "resourceClaimName": "g"}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    cluster = kscale.load(
        {"kind": "Node", "metadata": {"name": "n"}, "status": {**TEMPLATE["status"], "conditions": []}},
        {"kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}},
        {"kind": "ResourceClaim", "metadata": {"name": "g", "namespace": "d"}, **claim},
        pod,
    )
    now = datetime(2026, 5, 2, tzinfo=UTC)
    for slices, sizes in (([SLICE], ["{a 0->1 (max: 1000)}"]), ([], [])):
        groups = groups_from([{"id": "a", "target": 0, "template": {**TEMPLATE, "resourceSlices": slices}}])
        options = kscale.ca.AutoscalingOptions(scale_up_from_zero=True)
        plan = kscale.scale_up(cluster, groups, now=now, options=options)
        assert [str(info) for info in plan.scale_ups] == sizes


def test_all_mistakes_are_reported() -> None:
    with pytest.raises(InputError) as caught:
        groups_from([{"id": "a"}, ONE, {"id": "c", "min": 3, "max": 1}, {"nope": 1}])
    assert [problem.object for problem in caught.value.problems] == ["groups[0] (a)", "groups[1] (a)"] + [
        "groups[2] (c)"
    ] * 2 + ["groups[3]"]


def test_node_names_are_checked_when_known() -> None:
    groups_from([ONE])
    groups_from([ONE], node_names={"n1"})
    with pytest.raises(InputError, match='fromNode: there is no node "n1"'):
        groups_from([ONE], node_names=set())
    with pytest.raises(InputError, match=r'nodes\[1\]: there is no node "n2"'):
        groups_from([{"id": "a", "nodes": ["n1", "n2"]}], node_names={"n1"})


def test_catalogue_mistakes_are_the_entrys(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text(CATALOGUE)
    (tmp_path / "bad.csv").write_text(CATALOGUE.replace("0.192", "NaN"))

    def refused(**entry: str) -> str:
        with pytest.raises(InputError) as caught:
            groups_from([{"id": "a", "instanceType": "m5.xlarge", **entry}], folder=tmp_path)
        return str(caught.value)

    near = 'no instance type "m5.xlage" in the catalogue; did you mean m5.xlarge?'
    assert refused(catalogue="types.csv", instanceType="m5.xlage") == (
        f"groups[0] (a): instanceType: {tmp_path / 'types.csv'}: {near}"
    )
    assert "catalogue:" in refused(catalogue="none.csv")
    assert 'row 2: ondemand_usd_per_hour_us_east_1: "NaN" is not a price' in refused(catalogue="bad.csv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.json", b"[{]", "malformed JSON"),
        ("g.yaml", b"- id: [\n", "malformed YAML"),
        ("g.yaml", b"- {id: a, fromNode: n}\n---\n- {id: b, fromNode: n}\n", "one YAML document expected, 2 found"),
        ("g.yaml.gz", gzip.compress(b"- {id: a, fromNode: n}", mtime=0)[:-9], "the gzip data ends too early"),
        ("g.yaml", b"just text", "a list of node groups expected, got str"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_groups(tmp_path / name)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(InputError, match="No such file"):
        read_groups(tmp_path / "none.yaml")


def test_schemas_are_the_same_with_every_version_of_msgspec() -> None:
    """0.21 has null before the name of a struct, 0.22 behind it."""
    null, node = {"type": "null"}, {"$ref": "#/$defs/Node"}
    assert nulls_last({"p": {"anyOf": [null, node], "default": None}}) == {
        "p": {"anyOf": [node, null], "default": None}
    }
    assert nulls_last([{"anyOf": [node, null]}, "null"]) == [{"anyOf": [node, null]}, "null"]


def test_the_published_schema_is_current() -> None:
    written = ROOT / "docs" / "schemas" / "groups.schema.json"
    assert written.read_text(encoding="utf-8") == groups_schema_text()
    jsonschema.Draft202012Validator.check_schema(groups_schema())


def test_schema_agrees_with_the_reader() -> None:
    good = [
        {"id": "a", "template": TEMPLATE, "capacity": {"cpu": "1", "pods": 3}, "options": {"maxNodeProvisionTime": 9}}
    ]
    validate(good, published())
    assert groups_from(good)
    for bad in ([{"fromNode": "n"}], [{**ONE, "x": 1}], [{**ONE, "options": {"x": 1}}], [{**ONE, "min": "1"}], {}):
        with pytest.raises(jsonschema.ValidationError):
            validate(bad, published())
        with pytest.raises(InputError):
            groups_from(bad)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**ONE, "labels": {"a b": "x"}}, 'labels: "a b": name part must consist of'),
        ({**ONE, "labels": {"a": "-"}}, 'labels[a]: "-": a valid label must be'),
        ({**ONE, "nodeSelector": {"a/b/c": "-"}}, 'nodeSelector: "a/b/c": a valid label key '),
        (
            {"id": "a", "template": {**TEMPLATE, "metadata": {"labels": {"a": "b c"}}}},
            'template.metadata.labels[a]: "b c": a valid label must be',
        ),
        ({**ONE, "taints": [{"key": "a!", "effect": "NoExecute"}]}, 'taints[0]: "a!": name part must consist of'),
    ],
)
def test_labels_that_no_node_has(entry, message: str) -> None:
    with pytest.raises(InputError) as caught:
        groups_from([entry])
    assert str(caught.value).startswith(f"groups[0] (a): {message}")


@pytest.mark.parametrize(
    "entry",
    [
        {**ONE, "min": -1},
        {**ONE, "target": -1},
        {**ONE, "price": -1},
        {**ONE, "id": ""},
        {**ONE, "id": "a\nb"},
        {"id": "a"},
        {"id": "a", "nodes": []},
        {"id": "a", "fromNode": None},
        {"fromNode": "n1"},
        {**ONE, "id": None},
        {**ONE, "template": TEMPLATE},
        {**ONE, "maxSize": 3},
        {**ONE, "options": {"maxNodeProvisionTime": -1}},
        {**ONE, "capacity": {"cpu": "-1"}},
        {**ONE, "capacity": {"cpu": -1}},
        {**ONE, "labels": {"a b": "x"}},
        {**ONE, "labels": {"a": "-"}},
        {**ONE, "taints": [{"key": "a", "effect": "Never"}]},
        {**ONE, "taints": [{"effect": "NoExecute"}]},
        {**ONE, "zone": "a"},
        {**ONE, "pods": [{"metadata": {"name": "p"}}]},
        {"id": "a", "nodes": ["n", "n"]},
        7,
    ],
)
def test_schema_refuses_entries_that_the_reader_refuses(entry) -> None:
    with pytest.raises(InputError):
        groups_from([entry])
    with pytest.raises(jsonschema.ValidationError):
        validate([entry], published())


@pytest.mark.parametrize(
    "entry",
    [
        ONE,
        {**ONE, "min": None, "max": None, "nodes": None, "taints": None, "pods": None, "exists": None, "zone": None},
        {**ONE, "labels": {"a": None, "a.b/c": "x"}, "capacity": {"cpu": "500m", "memory": 4, "gpu": None}},
        {**ONE, "taints": [{"key": "a", "value": None, "effect": "NoExecute"}], "zone": "", "price": 0},
        {"id": "a", "template": TEMPLATE, "pods": [{"metadata": {"name": "p"}}], "fromNode": None},
        {"id": "a", "nodeSelector": {"a": "b"}},
    ],
)
def test_schema_accepts_entries_that_the_reader_accepts(entry) -> None:
    for data in ([entry], {"groups": [entry]}):
        assert len(groups_from(data)) == 1
        validate(data, published())


def test_empty_list_is_refused_by_schema_and_reader() -> None:
    for data in ([], {"groups": []}, {"id": "a"}):
        with pytest.raises(InputError):
            groups_from(data)
        with pytest.raises(jsonschema.ValidationError):
            validate(data, published())


def test_a_key_of_the_file_that_comes_twice(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('[{"id": "a", "fromNode": "n1", "max": 3, "max": 5}]')
    with pytest.raises(InputError, match=r"groups\.json: \[0\]\.max: the key max comes twice"):
        read_groups(path)
