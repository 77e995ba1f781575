"""``kscale recommend``: histories of every form, and such as are not as they should be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kscale.vpa
from kscale.series import usage_csv
from kscale.vpa.advice import workloads as vpa_history
from unit.cli.recommend.support import (
    HEADER,
    MIB,
    START,
    answer,
    dump,
    recommend,
    refused,
    rows,
    written,
)
from unit.cli.support import Run, kscale


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


@pytest.mark.parametrize("size", [200, 1 << 20])
def test_layouts_do_not_matter(cluster: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(usage_csv, "_SLICE", size)
    pods = [rows(90, pod=f"web-5d4f8-{name}", cpu=0.1 * i, memory=i * 150 * MIB) for i, name in enumerate("abcdefg", 1)]
    by_container = [line for pod in pods for line in pod]
    by_time = [line for lines in zip(*pods, strict=True) for line in lines]
    expected = answer(recommend(cluster, by_container, "-o", "json"))
    table = cluster.parent / "by_time.parquet"
    pq.write_table(pq.read_table(pa.BufferReader(written(cluster, by_time))), table, row_group_size=100)
    for threads in (1, 2, 3):
        assert answer(recommend(cluster, by_time, "-o", "json", "--threads", threads)) == expected
        history = ("--history", table, "--threads", threads)
        assert answer(kscale("recommend", "-f", cluster, *history, "-o", "json")) == expected


LINES = [f"{START + 60 * i},shop,web-5d4f8-abcde,app,{0.05 * (i % 7)},{(200 + i) * MIB}\n" for i in range(400)]


def from_files(cluster: Path, *histories: tuple[str, list[str]]) -> Run:
    options: list[object] = []
    for name, lines in histories:
        path = cluster.parent / name
        path.write_bytes(written(cluster, lines) if name.endswith("parquet") else (HEADER + "".join(lines)).encode())
        options += ["--history", path]
    return kscale("recommend", "-f", cluster, *options, "-o", "json")


def test_order_of_files_does_not_matter(cluster: Path) -> None:
    expected = answer(recommend(cluster, LINES, "-o", "json"))
    for files in (
        [("late.csv", LINES[200:]), ("early.csv", LINES[:200])],
        [("c.parquet", LINES[300:]), ("a.csv", LINES[:200]), ("b.parquet", LINES[200:300])],
        [("odd.csv", LINES[1::2]), ("even.csv", LINES[::2])],  # both at the same times: sorted together
    ):
        run = from_files(cluster, *files)
        assert answer(run) == expected
        assert "out of order" not in run.stderr


def test_order_of_slices_does_not_matter(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answer(recommend(cluster, LINES, "-o", "json"))
    monkeypatch.setattr(usage_csv, "_SLICE", 2000)
    assert answer(recommend(cluster, LINES[::-1], "-o", "json")) == expected
    shuffled = [LINES[i * 119 % 400] for i in range(400)]
    run = recommend(cluster, shuffled, "-o", "json")
    assert answer(run) == expected
    assert "400 samples" not in run.stderr
    assert "800 samples" in run.stderr
    twice = recommend(cluster, shuffled + shuffled, "-o", "json")
    assert answer(twice)["containers"] == expected["containers"]
    assert "400 samples that are doubled or out of order" in twice.stderr  # those of CPU; memory may come twice


def test_a_long_history_that_goes_back_is_counted(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_csv, "_SLICE", 2000)
    monkeypatch.setattr(vpa_history, "_MAX_SORTED_ROWS", 399)
    run = recommend(cluster, LINES[::-1], "-o", "json")
    assert answer(run)["containers"][0]["samples"] < 400
    assert "samples that are doubled or out of order, discarded" in run.stderr


def test_answers_of_prometheus_in_any_order(cluster: Path) -> None:
    def matrix(name: str, metric: str, begin: int, end: int) -> Path:
        points = [[START + 60 * i, str(0.1 + i % 5 / 100)] for i in range(begin, end)]
        labels = {"__name__": metric, "namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app"}
        result = [{"metric": labels, "values": points}]
        path = cluster.parent / name
        path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
        return path

    full_matrix = matrix("whole.json", "cpu", 0, 300)
    expected = answer(kscale("recommend", "-f", cluster, "--history", full_matrix, "-o", "json"))
    late, early = matrix("late.json", "cpu", 150, 300), matrix("early.json", "cpu", 0, 150)
    run = kscale("recommend", "-f", cluster, "--history", late, "--history", early, "-o", "json")
    assert answer(run) == expected
    both = matrix("memory.json", "container_memory_working_set_bytes", 0, 300)
    run = kscale("recommend", "-f", cluster, "--history", both, "--history", full_matrix, "-o", "json")
    assert "missing" not in run.stderr  # a series of one resource lacks nothing of the other
    assert answer(run)["counts"] == {"samples": 600}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (rows(150) + rows(150), "samples that are doubled or out of order"),
        (rows(150) + rows(3, cpu="nan", pod="web-5d4f8-bcdfg"), "missing values"),
        (rows(150) + rows(3, cpu="inf", pod="web-5d4f8-bcdfg"), "infinite values"),
        (rows(150) + rows(3, cpu=-1, pod="web-5d4f8-bcdfg"), "negative samples, taken as 0"),
        (rows(150) + rows(3, container="other"), "containers that their workload does not have"),
        (rows(150) + rows(3, pod="nobody"), "pods of no known workload"),
        (rows(150) + rows(3, pod="web-7c9d2-qwrtz"), "deleted pods, mapped to their workload"),
    ],
)
def test_odd_rows_are_counted(cluster: Path, lines: list[str], message: str) -> None:
    run = recommend(cluster, lines)
    assert run.code == 0
    assert message in run.stderr
    assert "500m -> " in run.stdout


def test_samples_from_the_future(cluster: Path) -> None:
    run = recommend(cluster, rows(150), "--now", "2026-01-05T01:00:00Z")
    assert run.code == 0
    assert "178 samples later than the time of the recommendation" in run.stderr  # of 300, those of minutes 61 to 149


def test_gaps_of_days_and_empty_histories(cluster: Path) -> None:
    late = [line.replace(line[:10], str(int(line[:10]) + 5 * 86400)) for line in rows(100)]
    assert "500m -> " in recommend(cluster, rows(100) + late).stdout
    assert "no data" in recommend(cluster, []).stdout
    assert "not enough data" in recommend(cluster, rows(5)).stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,namespace,pod,cpu_cores\n1,a,b,1\n", "no column 'container'"),
        ("time,namespace,pod,container\n1,a,b,c\n", "neither a column 'cpu_cores' nor 'memory_bytes'"),
        (HEADER + "1,a,b,c,many,1\n", "not readable as CSV"),
        (HEADER + "soon,a,b,c,1,1\n", '"soon" is not a time'),
    ],
)
def test_histories_that_cannot_be_read(cluster: Path, text: str, message: str) -> None:
    path = cluster.parent / "bad.csv"
    path.write_text(text)
    run = kscale("recommend", "-f", cluster, "--history", path)
    assert run.code == 2
    assert message in run.stderr


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


def test_damaged_files(cluster: Path) -> None:
    complete = written(cluster, rows(300))
    for end in (0, 4, len(complete) // 2, len(complete) - 1):
        assert "cut.parquet: not readable as Parquet" in refused(cluster, "cut.parquet", complete[:end])
    torn = complete[:4] + b"\xff" * 64 + complete[68:]  # the first page's header; the footer is as it was
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
    message = refused(cluster, "cut.csv", text.encode() + b"1767571260,shop,web")
    assert "cut.csv: not readable as CSV" in message
    assert "row 201" in message


def test_cells_that_cannot_be_are_named(cluster: Path) -> None:
    good, at = "".join(rows(99)), f"{START + 99 * 60},shop,web-5d4f8-abcde,app"
    message = refused(cluster, "cell.csv", f"{HEADER}{good}{at},much,1\n".encode())
    assert "cell.csv: not readable as CSV: column 'cpu_cores': row 100: CSV conversion error to double" in message
    message = refused(cluster, "time.csv", f"{HEADER}{good}soon,shop,web-5d4f8-abcde,app,1,1\n".encode())
    assert 'time.csv: row 100: time: "soon" is not a time' in message
    message = refused(cluster, "twice.csv", b"pod,time,pod,namespace,container,cpu_cores\n")
    assert "twice.csv: the column 'pod' comes twice" in message


def test_a_wrong_unit_of_time_is_suspected(cluster: Path) -> None:
    run = recommend(cluster, rows(150), "--time-unit", "ms")
    assert run.code == 0
    assert "the newest sample is of 1970-01-21T10:59:40Z: is the unit of time right?" in run.stderr


def test_a_history_of_others(cluster: Path) -> None:
    run = recommend(cluster, [])
    assert run.stdout.startswith("No advice: requests would stay as they are (of 0.5 cpu, 1Gi).")
    assert "warning: no samples of these workloads" in run.stderr
    record = answer(recommend(cluster, [], "-o", "json"))
    assert record["now"] is None
    assert [one["info"] for one in record["containers"]] == [["no data"]]


@pytest.mark.parametrize(
    ("time", "more", "message"),
    [
        ("1767571200000", (), "too far from 1970: is the unit right?"),
        ("1e300", (), "too far from 1970: is the unit right?"),
        ("nan", (), 'row 3: time: "nan" is not a time'),
        ("", (), "row 3: time: a row without time"),
        ("9000000000", (), "9000000000 is too far from 1970"),
        ("1767571200.5e9", (), "is too far from 1970"),
        ("5", ("--time-unit", "h"), "is not a unit of time"),
    ],
)
def test_times_that_cannot_be(cluster: Path, time: str, more: tuple[str, ...], message: str) -> None:
    line = f"{time},shop,web-5d4f8-abcde,app,1,1\n"
    assert message in refused(cluster, "odd.csv", (HEADER + "".join(rows(2)) + line).encode(), *more)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_invalid_prometheus_values_are_counted(cluster: Path, value: str) -> None:
    metric = {"__name__": "cpu_usage", "namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app"}
    values = [[START + 60 * i, "0.1" if i % 10 else value] for i in range(200)]
    path = cluster.parent / "range.json"
    data = {"resultType": "matrix", "result": [{"metric": metric, "values": values}]}
    path.write_text(json.dumps({"status": "success", "data": data}))
    run = kscale("recommend", "-f", cluster, "--history", path)
    assert run.code == 0
    assert f"20 {'missing' if value == 'NaN' else 'infinite'} values" in run.stderr
    assert "180 samples" in run.stderr


def test_a_moment_long_after_the_samples(cluster: Path) -> None:
    (one,) = answer(recommend(cluster, rows(200), "--now", "2026-02-01T00:00:00Z", "-o", "json"))["containers"]
    assert (one["cpu"]["target"], one["samples"], one["info"]) == (126, 200, ["old data"])


def test_samples_of_init_containers(cluster: Path) -> None:
    document = dump()
    document["items"][2]["spec"]["initContainers"] = [{"name": "setup"}]
    cluster.write_text(json.dumps(document))
    run = recommend(cluster, rows(150) + rows(3, container="setup"), "-o", "json")
    assert answer(run)["containers"][0]["samples"] == 150
    assert "6 samples of init containers, left out" in run.stderr
    assert "300 samples\n" in run.stderr


def test_deleted_pods_are_matched_by_series_labels(cluster: Path) -> None:
    document = dump()
    labels = {"app": "web", "app.kubernetes.io/part-of": "shop"}
    document["items"][0]["spec"]["selector"] = {"matchLabels": labels}
    document["items"][0]["spec"]["template"] = {
        "metadata": {"labels": labels}, "spec": document["items"][0]["spec"]["template"]["spec"],
    }  # fmt: skip
    cluster.write_text(json.dumps({**document, "items": document["items"][:1]}))

    def count(**metric: str) -> int:
        names = {"namespace": "shop", "pod": "odd", "container": "app", "resource": "cpu"}
        series = {"metric": {**names, **metric},
                  "values": [[START + 60 * i, "0.1"] for i in range(150)]}  # fmt: skip
        path = cluster.parent / "range.json"
        path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}))
        (one,) = answer(kscale("recommend", "-f", cluster, "--history", path, "-o", "json"))["containers"]
        return int(one["samples"])

    assert count(label_app="web", label_app_kubernetes_io_part_of="shop") == 150
    assert count(pod_label_app="web", pod_label_app_kubernetes_io_part_of="shop") == 150
    assert count(label_app="web") == 0  # not all that the selector asks for
    assert count(label_app="db", label_app_kubernetes_io_part_of="shop") == 0
    document["items"][0]["spec"]["selector"]["matchExpressions"] = [{"key": "canary", "operator": "DoesNotExist"}]
    cluster.write_text(json.dumps({**document, "items": document["items"][:1]}))
    assert count(label_app="web", label_app_kubernetes_io_part_of="shop") == 150
    assert count(label_app="web", label_app_kubernetes_io_part_of="shop", label_canary="yes") == 0


FUTURE = "2027-03-01T00:00:00Z"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [f"{FUTURE},shop,web-5d4f8-abcde,app,0.1,1\n"],
            "1 containers (shop/web-5d4f8-abcde/app) with samples of up to",
        ),
        (
            rows(150, pod="web-5d4f8-bcdfg") + [f"{FUTURE},shop,web-5d4f8-ghjkl,app,0.1,1\n"] * 2,
            (
                "1 containers (shop/web-5d4f8-ghjkl/app) with samples of up to 2027-03-01T00:00:00Z, more than eight "
                "days after most (2026-01-05T02:29:00Z): kscale uses this time as the current time (--now sets another)"
            ),
        ),
        ([f"{FUTURE},shop,nobody,app,0.1,1\n"], "1 containers that are not known with samples of up to 2027-03-01"),
    ],
)
def test_a_sample_from_the_far_future_is_named(cluster: Path, lines: list[str], message: str) -> None:
    warned = recommend(cluster, rows(150) + lines)
    assert warned.code == 0
    assert message in warned.stderr
    run_ = recommend(cluster, rows(150) + lines, "--now", "2026-01-05T03:00:00Z")
    assert "after most" not in run_.stderr
    assert "later than the time of the recommendation" in run_.stderr or "nobody" in lines[0]
    assert "after most" not in recommend(cluster, rows(150)).stderr


def metric_of(cluster: Path, name: str, *more: str, file: str = "range.json", **labels: str) -> Run:
    metric = {**({"__name__": name} if name else {}), "namespace": "shop", "pod": "web-5d4f8-abcde", "container": "app"}
    points = [[START + 60 * i, str(300 * MIB + i)] for i in range(200)]
    result = [{"metric": {**metric, **labels}, "values": points}]
    path = cluster.parent / file
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    return kscale("recommend", "-f", cluster, "--history", path, "-o", "json", *more)


@pytest.mark.parametrize("name", ["container_mem_rss", "container_memory_rss", "memory", "mem_used", "pod:memory:sum"])
def test_memory_is_known_by_its_name(cluster: Path, name: str) -> None:
    (one,) = answer(metric_of(cluster, name))["containers"]
    assert (one["samples"], one["info"]) == (0, ["no CPU data"])


def test_missing_metric_options_are_requested(cluster: Path) -> None:
    for name in ("usage", "", "container_fs_usage_bytes", "cpu_by_memory"):
        run = metric_of(cluster, name)
        assert (run.code, run.stdout) == (2, "")
        assert "range.json: data.result[0].metric: " in run.stderr
        assert "may be of CPU or of memory: say which (--metric)" in run.stderr
        for flags in (("--metric", "memory"), ()):
            known = metric_of(cluster, name, *flags, file="range.json" if flags else "mem.json")
            assert answer(known)["containers"][0]["info"] == ["no CPU data"]
    assert answer(metric_of(cluster, "usage", resource="memory"))["containers"][0]["info"] == ["no CPU data"]
    assert answer(metric_of(cluster, "usage", "--metric", "cpu"))["containers"][0]["samples"] == 200


@pytest.mark.parametrize("value", ["1_0", " 1", "1 ", "infinity", "١", "1e", ""])
def test_values_that_prometheus_does_not_write(cluster: Path, value: str) -> None:
    result = [{"metric": {"__name__": "cpu", "namespace": "shop"}, "values": [[START, "1"], [START + 60, value]]}]
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    message = refused(cluster, "odd.json", text.encode())
    assert f"odd.json: data.result[0].values: not a value of Prometheus: {value!r}" in message


def test_a_counter_is_not_taken_for_cores(cluster: Path) -> None:
    run = metric_of(cluster, "container_cpu_usage_seconds_total")
    assert (run.code, run.stdout) == (2, "")
    assert "range.json: data.result[0].metric: container_cpu_usage_seconds_total counts seconds" in run.stderr
    assert "ask for rate(container_cpu_usage_seconds_total[5m])" in run.stderr
