"""The openb traces: what is read of them, what is refused, and that the rest of kscale takes it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import kscale
from kscale.simulation.traces import GPU_MILLI, OpenbNode, OpenbPod, read_openb_nodes, read_openb_pods

DATA = Path(__file__).parents[3] / "examples" / "data"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time\n"


def test_the_excerpt() -> None:
    nodes, pods = read_openb_nodes(DATA / "openb_nodes.csv"), read_openb_pods(DATA / "openb_pods.csv")
    assert (len(nodes), sum(node.gpu for node in nodes)) == (24, 97)
    assert (len(pods), sum(pod.num_gpu * pod.gpu_milli for pod in pods)) == (100, 82_160)
    assert nodes[0] == OpenbNode(sn="openb-node-0000", cpu_milli=32000, memory_mib=262144, gpu=0)
    assert (pods[1].creation_time, pods[1].gpu_milli, pods[1].models) == (427061, 460, ())
    assert sum(bool(pod.models) for pod in pods) == 30


def test_excerpt_pods_are_placed() -> None:
    nodes, pods = read_openb_nodes(DATA / "openb_nodes.csv"), read_openb_pods(DATA / "openb_pods.csv")
    snapshot = kscale.Cluster([each.manifest() for each in (*nodes, *pods)]).snapshot()
    assert snapshot.free(GPU_MILLI).sum() == 1000 * sum(node.gpu for node in nodes)
    placed = kscale.place(snapshot, scores=kscale.ScoreOptions())
    by_name = {pod.name: pod for pod in pods}
    on = {node.sn: node for node in nodes}
    assert len(placed.placed) > len(pods) // 2
    for key, name in placed.placed.items():
        pod = by_name[key.removeprefix("openb/")]
        assert not pod.num_gpu or on[name].gpu
        assert not pod.models or on[name].model in pod.models


def test_packed_files_and_files_with_fewer_columns(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv.gz"
    path.write_bytes(gzip.compress(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,100,200,1,460\n"))
    assert read_openb_pods(path) == [OpenbPod(name="p", cpu_milli=100, memory_mib=200, num_gpu=1, gpu_milli=460)]


def test_acceptable_gpu_models_are_read() -> None:
    pod = OpenbPod(name="p", cpu_milli=1, memory_mib=1, num_gpu=1, gpu_milli=1000, gpu_spec="V100M32|T4|V100M32|")
    assert pod.models == ("T4", "V100M32")
    affinity = pod.manifest()["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["T4", "V100M32"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,cpu_milli,memory_mib,num_gpu\n", "row 1: gpu_milli: the column is missing"),
        (PODS + "p,1,1,1,1001,,0\n", "row 2: gpu_milli: Expected `int` <= 1000"),
        (PODS + "p,1,1,-1,1,,0\n", "row 2: num_gpu: Expected `int` >= 0"),
        (PODS + "p,1,,1,1,,0\n", "row 2: Object missing required field `memory_mib`"),
        (PODS + "p,1,1,1,1,,0\nq,much,1,1,1,,0\n", "row 3: cpu_milli: Expected `int`, got `str`"),
        (PODS + "p,1,1,1,0,,0\n", "row 2: num_gpu is 1, of which gpu_milli is 0"),
        (PODS + "p,1,1,0,0,,0\nq,1,1,0,0,,0\np,1,1,0,0,,0\n", "row 4: name: another row has this name"),
        (PODS + "p\0q,1,1,0,0,,0\n", "row 2: name: Expected `str` matching regex"),
        (PODS + "p,1,1\n", "row 2: fewer cells than the header has columns"),
    ],
)
def test_invalid_pod_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text)
    with pytest.raises(kscale.InputError) as caught:
        read_openb_pods(path)
    assert message in str(caught.value)


def test_a_node_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu\nn,1,1,0\nn,1,1,0\n")
    with pytest.raises(kscale.InputError, match="row 3: sn: another row has this name"):
        read_openb_nodes(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(kscale.InputError, match="not readable as CSV"):
        read_openb_nodes(tmp_path / "nothing.csv")
