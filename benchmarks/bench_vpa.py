"""The VPA recommender's kernels and the whole way from a file of usage to recommendations.

Targets, on two cores at ``KSCALE_VPA_SCALE=1`` (the default is 0.005; sizes and times are about linear in it):

====================================  =====================================================  ==========================
test                                  workload                                               target
====================================  =====================================================  ==========================
kernel_cpu_samples_on_a_shared_grid   100 million CPU samples                                0.2 s
kernel_cpu_samples_at_any_time        100 million CPU samples                                1.2 s
kernel_memory_windows                 100 million memory samples                             1.5 s
kernel_one_pass_over_many_containers  100,000 containers (from scale 0.05 on)                50 ms
from_file_to_recommendation           10,000 containers, 8 days, a sample a minute: 115      10 s, 1 GiB in all, 28 MiB
[parquet-...]                         million rows of CPU and memory                         of histograms
from_file_to_recommendation           the same                                               5 million rows a second,
[csv-...]                                                                                    the same memory
from_file_to_recommendation           10,000 containers, 8 days, a sample an hour            5 s
[json-...]
====================================  =====================================================  ==========================

Files come in two layouts: ``container`` (all rows of one container, then all of the next) and ``time`` (all containers
at one moment, then all at the next, as a scraper writes them; row groups of a million rows). ``own``: every container
is the only one of its workload, so there are as many aggregates as containers, 10,000 at full scale. ``shared``: a
generated cluster, where some twenty containers share an aggregate (483 of them at full scale). JSON is written
series by series.

Two threads, production histograms with a half life of a day. Each benchmark asserts its answer: samples on a shared
grid against the same samples given one by one, samples at any time by their count and, for the first container,
against a histogram filled directly; windows, passes and whole reports against those of one thread, which shows that
threads change nothing and not that the numbers are right (the tests do). The way from file to recommendation is also
gone in a process of its own, whose peak of memory and whose histograms (the bytes of their arrays) are held to the
limits above. ``extra_info`` holds the CPU time of the fastest round beside the wall time that the harness takes, and
rows a second by both: on a shared machine only the CPU time means something.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kscale
from kscale._native import _histogram as native
from kscale.capacity.generate import generate
from kscale.capacity.generate.workloads import UsageOfContainer, usage_of, write_usage
from kscale.effects import ZERO_TIME
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from kscale.series.usage_reader import read_usage
from kscale.vpa import RecommenderOptions
from kscale.vpa.advice import recommend
from kscale.vpa.model.aggregates import AggregateStore
from kscale.vpa.model.histogram import CPU_HISTOGRAM_OPTIONS, MEMORY_HISTOGRAM_OPTIONS, Histograms
from kscale.vpa.recommender.estimators import estimate_resources

SCALE = float(os.environ.get("KSCALE_VPA_SCALE", "0.005"))
CONTAINERS = max(4, int(10_000 * SCALE))
SAMPLES = 10_000
DAY = 86400 * 10**9
START = 1767582000 * 10**9
THREADS = 2


class CpuTime:
    """Remembers the CPU time of the fastest round of a function."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work
        self.best = float("inf")
        self.best_wall = float("inf")

    def __call__(self, *arguments: Any) -> Any:
        begin, begin_wall = time.process_time(), time.perf_counter()
        answer = self.work(*arguments)
        self.best = min(self.best, time.process_time() - begin)
        self.best_wall = min(self.best_wall, time.perf_counter() - begin_wall)
        return answer

    def record(self, benchmark: Any, **more: Any) -> None:
        benchmark.extra_info.update(cpu_seconds=round(self.best, 4), **more)
        if rows := more.get("rows"):
            benchmark.extra_info.update(
                million_rows_per_second=round(rows / self.best_wall / 1e6, 2),
                million_rows_per_cpu_second=round(rows / self.best / 1e6, 2),
            )


@dataclass
class Columns:
    """Empty histograms and containers, one aggregate each."""

    bank: Histograms
    usage: native.Usage
    samples: Any


def columns(bank: Histograms) -> Columns:
    n = len(bank)

    def unset() -> Any:
        return np.full(n, ZERO_TIME, np.int64)

    def zeros() -> Any:
        return np.zeros(n, np.int64)

    samples = zeros()
    usage = native.Usage(
        np.arange(n, dtype=np.int32), unset(), unset(), unset(), zeros(), zeros(), unset(), unset(), samples,
        np.full(n, DAY, np.int64), np.full(n, 1.2), np.full(n, 104857600.0),
    )  # fmt: skip
    return Columns(bank, usage, samples)


@pytest.fixture(scope="module")
def millicores() -> Any:
    rng = np.random.default_rng(0)
    base = rng.integers(20, 2000, CONTAINERS)
    return np.stack([rng.integers(b // 2, b * 2, SAMPLES, dtype=np.int32) for b in base])


@pytest.fixture(scope="module")
def grid() -> Any:
    return START + np.arange(SAMPLES, dtype=np.int64) * 60 * 10**9


def listed(millicores: Any, times: Any) -> tuple[Any, Any, Any, Any]:
    n = millicores.size
    container = np.repeat(np.arange(CONTAINERS, dtype=np.int32), SAMPLES)
    return container, times, millicores.ravel().astype(np.int64), np.zeros(n, np.uint8)


def test_kernel_cpu_samples_on_a_shared_grid(benchmark: Any, millicores: Any, grid: Any) -> None:
    groups, containers = np.arange(CONTAINERS + 1), np.arange(CONTAINERS, dtype=np.int32)

    def run(into: Columns) -> Columns:
        discarded = np.zeros(CONTAINERS, np.int64)
        into.usage.add_cpu_grid(into.bank.native, groups, containers, grid, millicores, discarded, THREADS)
        return into

    timed = CpuTime(run)
    created = benchmark.pedantic(
        timed, setup=lambda: ((columns(Histograms(CPU_HISTOGRAM_OPTIONS, CONTAINERS, DAY)),), {}), rounds=3
    )
    one_by_one = columns(Histograms(CPU_HISTOGRAM_OPTIONS, CONTAINERS, DAY))
    container, times, values, status = listed(millicores, np.tile(grid, CONTAINERS))
    one_by_one.usage.add_cpu(one_by_one.bank.native, container, times, values, status, 1)
    assert np.array_equal(created.bank.weights, one_by_one.bank.weights)
    timed.record(benchmark, samples=millicores.size)


def test_kernel_cpu_samples_at_any_time(benchmark: Any, millicores: Any, grid: Any) -> None:
    jitter = np.random.default_rng(1).integers(0, 59 * 10**9, millicores.size)
    container, times, values, status = listed(millicores, np.tile(grid, CONTAINERS) + jitter)

    def run(into: Columns) -> Columns:
        into.usage.add_cpu(into.bank.native, container, times, values, status, THREADS)
        return into

    timed = CpuTime(run)
    created = benchmark.pedantic(
        timed, setup=lambda: ((columns(Histograms(CPU_HISTOGRAM_OPTIONS, CONTAINERS, DAY)),), {}), rounds=3
    )
    assert not status.any()
    assert created.samples.sum() == millicores.size
    first = Histograms(CPU_HISTOGRAM_OPTIONS, 1, DAY)
    own = values[:SAMPLES] / 1000.0
    first.add_samples(np.zeros(SAMPLES, np.int64), own, np.full(SAMPLES, 0.1), times[:SAMPLES])
    assert np.array_equal(first.weights[0], created.bank.weights[0])
    timed.record(benchmark, samples=millicores.size)


def test_kernel_memory_windows(benchmark: Any, millicores: Any, grid: Any) -> None:
    container, times, values, status = listed(millicores, np.tile(grid, CONTAINERS))
    values *= 1_000_000

    def run(into: Columns) -> Columns:
        into.usage.add_memory(into.bank.native, container, times, values, status, None, THREADS)
        return into

    timed = CpuTime(run)
    created = benchmark.pedantic(
        timed, setup=lambda: ((columns(Histograms(MEMORY_HISTOGRAM_OPTIONS, CONTAINERS, DAY)),), {}), rounds=3
    )
    single = columns(Histograms(MEMORY_HISTOGRAM_OPTIONS, CONTAINERS, DAY))
    single.usage.add_memory(single.bank.native, container, times, values, status.copy(), None, 1)
    assert np.array_equal(created.bank.weights, single.bank.weights)
    timed.record(benchmark, samples=millicores.size)


def test_kernel_one_pass_over_many_containers(benchmark: Any) -> None:
    n = max(100, int(100_000 * min(1.0, SCALE * 20)))
    rng = np.random.default_rng(2)
    store = AggregateStore(RecommenderOptions())
    store.reserve(n, 0)
    for _ in range(n):
        store.take_row()
    rows = np.repeat(np.arange(n), 40)
    level = rng.lognormal(-1.5, 1.0, n)[rows]
    store.cpu.add_samples(
        rows, level * rng.lognormal(0, 0.4, len(rows)), np.full(len(rows), 0.1), np.full(len(rows), START)
    )
    store.memory.add_samples(rows, level * 4e8, np.ones(len(rows)), np.full(len(rows), START))
    store.first[:n], store.last[:n], store.samples[:n] = START, START + 3 * DAY, 40
    numbers = np.ones(n, np.int64)
    timed = CpuTime(lambda: estimate_resources(store, numbers, store.options, threads=THREADS))
    created = benchmark(timed)
    assert np.array_equal(created, estimate_resources(store, numbers, store.options, threads=1))
    assert (created[:, :, 1] <= created[:, :, 2]).all()
    timed.record(benchmark, containers=n)


def shared_workloads(count: int) -> list[dict[str, Any]]:
    """A generated cluster with at least so many containers: most workloads have many pods."""
    return list(generate(max(2, count // 20), count + 20, seed=1, pending=0, lean=True).objects())


def own_workloads(count: int) -> list[dict[str, Any]]:
    """As many StatefulSets of one pod with one container."""
    result: list[dict[str, Any]] = []
    for i in range(count):
        labels = {"app": f"w{i}"}
        requests = {"cpu": f"{100 + i % 40 * 50}m", "memory": f"{128 + i % 30 * 64}Mi"}
        spec = {"containers": [{"name": "app", "image": "x", "resources": {"requests": requests}}]}
        place: dict[str, Any] = {"namespace": f"team-{i % 20}", "labels": labels}
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"w{i}", "uid": f"u{i}", "controller": True}
        template = {"metadata": {"labels": labels}, "spec": spec}
        result += [
            {
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": f"w{i}", **place},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            },
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": f"w{i}-0", **place, "ownerReferences": [owner]},
                "spec": {"nodeName": "n", **spec}, "status": {"phase": "Running"},
            },
        ]  # fmt: skip
    return result


@dataclass
class Recorded:
    """A dump of a cluster, and the usage of so many of its containers over eight days."""

    folder: Path
    workloads: str
    count: int = max(20, int(10_000 * SCALE))

    def __post_init__(self) -> None:
        objects = (own_workloads if self.workloads == "own" else shared_workloads)(self.count)
        self.dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        self.pods = of_containers([from_dict(item, Pod) for item in objects if item["kind"] == "Pod"], self.count)

    @property
    def dump(self) -> Path:
        return self.folder / "cluster.json"

    def write(self, form: str, layout: str) -> tuple[Path, int]:
        """A file of usage and its rows: a sample a minute, JSON an hour."""
        path = self.folder / f"usage.{form}"
        if form == "json":
            return prometheus(self.folder, self.pods), 192 * self.count
        if layout == "container":
            return path, write_usage(path, self.pods, seed=1, hours=192.0, step=60.0)
        return path, (by_time_csv if form == "csv" else by_time_parquet)(path, self.pods)


def matrices(pods: list[Pod]) -> tuple[Any, list[UsageOfContainer], Any, Any]:
    """(times, names of containers, cpu [time, container], memory [time, container])."""
    times, each = usage_of(pods, seed=1, hours=192.0, step=60.0)
    containers = list(each)
    return (
        times,
        containers,
        np.stack([one.cpu for one in containers], axis=1),
        np.stack([one.memory for one in containers], axis=1),
    )


def by_time_csv(path: Path, pods: list[Pod]) -> int:
    times, containers, cpu, memory = matrices(pods)
    middles = [f",{one.namespace},{one.pod},{one.container}," for one in containers]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("time,namespace,pod,container,cpu_cores,memory_bytes\n")
        for i, now in enumerate(times.tolist()):
            rows = zip(middles, cpu[i].tolist(), memory[i].astype(np.int64).tolist(), strict=True)
            file.writelines(f"{now}{middle}{cores:.6g},{size}\n" for middle, cores, size in rows)
    return int(cpu.size)


def by_time_parquet(path: Path, pods: list[Pod]) -> int:
    times, containers, cpu, memory = matrices(pods)
    together = max(1, 1_000_000 // len(containers))
    writer = None
    for at in range(0, len(times), together):
        now = times[at : at + together]
        columns: dict[str, Any] = {
            "time": pa.array(np.repeat(now * 1000, len(containers))).cast(pa.timestamp("ms", "UTC"))
        }
        for name in ("namespace", "pod", "container"):
            texts = [getattr(one, name) for one in containers]
            numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
            codes = np.tile(np.array([numbers[text] for text in texts], np.int32), len(now))
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(numbers)))
        columns["cpu_cores"] = cpu[at : at + together].ravel()
        columns["memory_bytes"] = memory[at : at + together].ravel()
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return int(cpu.size)


@pytest.fixture(scope="module", params=["own", "shared"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("usage"), request.param)


def of_containers(pods: list[Pod], count: int) -> list[Pod]:
    """Running pods that have so many containers together."""
    chosen = []
    for pod in pods:
        if pod.status.phase == "Running" and len(pod.spec.containers) <= count:
            chosen.append(pod)
            count -= len(pod.spec.containers)
    assert count == 0
    return chosen


def prometheus(folder: Path, pods: list[Pod]) -> Path:
    """Eight days of the same pods at a sample an hour, as Prometheus answers, CPU and memory in one matrix."""
    times, each = usage_of(pods, seed=1, hours=192.0, step=3600.0)
    result = []
    for one in each:
        names: dict[str, Any] = {"namespace": one.namespace, "pod": one.pod, "container": one.container}
        for metric, values in (("cpu_usage", one.cpu), ("container_memory_working_set_bytes", one.memory)):
            points = list(zip(times.tolist(), map(str, values.tolist()), strict=True))
            result.append({"metric": {"__name__": metric, **names}, "values": points})
    path = folder / "usage.json"
    path.write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}, separators=(",", ":"))
    )
    return path


ALONE = """
import json, re, sys
import kscale
from kscale.series.usage_reader import read_usage
from kscale.vpa.advice import report

dump, history, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
fed = []
feed_history = report.feed_history
report.feed_history = lambda *args: fed.append(feed_history(*args)) or fed[0]
made = report.recommend(kscale.load(dump), read_usage(history, threads=threads), threads=threads)
store = fed[0].state.store
print(json.dumps({
    "samples": made.counts["samples"],
    "aggregates": int((store.samples > 0).sum()),
    # not ru_maxrss: that of a child begins with what its parent had
    "peak": int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024,
    "histograms": sum(
        getattr(bank, name).nbytes
        for bank in (store.cpu, store.memory)
        for name in ("weights", "total", "min_bucket", "max_bucket", "reference")
    ),
}))
"""


WAYS = [("parquet", "container"), ("parquet", "time"), ("csv", "container"), ("csv", "time"), ("json", "series")]


@pytest.mark.parametrize(("form", "layout"), WAYS)
def test_from_file_to_recommendation(benchmark: Any, recorded: Recorded, form: str, layout: str) -> None:
    path, rows = recorded.write(form, layout)
    cluster = kscale.load(recorded.dump)
    timed = CpuTime(lambda: recommend(cluster, read_usage(path, threads=THREADS), threads=THREADS))
    created = benchmark.pedantic(timed, rounds=3 if SCALE < 0.5 else 1)
    assert created.counts["samples"] == 2 * rows
    assert sum(one.cpu.target is not None for one in created.containers) > 0
    again = recommend(cluster, read_usage(path, threads=1), threads=1)
    assert again == created
    command = [sys.executable, "-c", ALONE, str(recorded.dump), str(path), str(THREADS)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    alone = json.loads(output.splitlines()[-1])  # an editable build says before it that it is made
    path.unlink()
    assert alone["samples"] == 2 * rows
    assert alone["histograms"] <= 28 * 2**20
    assert alone["peak"] <= 2**30
    timed.tell(
        benchmark, rows=rows, **{f"{name}_mib": round(alone[name] / 2**20, 1) for name in ("peak", "histograms")}
    )
