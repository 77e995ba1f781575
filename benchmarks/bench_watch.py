"""What a watch brings to a cluster that lives for long: lines, lists in pages, comings and goings, and its pickle.

One process; the answers are asserted. ``KSCALE_BENCH_SCALE`` (default 0.1) scales the numbers of pods; at 1 the targets
are 10 us of CPU a line for 100,000 watch lines of pods of 7 KB into a cluster of 150,000, and 100 us for one that
comes alone; 5 s of CPU and 400 MiB for 450,000 pods listed in pages of 500, of which placed ones keep no text; memory
as before + 5 % after 1,000,000 pods with labels of their own came and went, 2,000 at a time; 10 us a pod given as a
struct, 500 at a time; 60 MiB and 0.3 s for the pickle of a snapshot of 150,000 pods of which 2,000 wait. Times are of
this process's CPU, all threads: that is what a busy machine leaves as it is. Memory is what the process has resident.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from floor import floor
from msgspec.structs import replace

from kscale.capacity.generate import generate
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.snapshot import Snapshot

SCALE = float(os.environ.get("KSCALE_BENCH_SCALE", "0.1"))
LINES, PODS, ALL_PODS, COMING = (round(SCALE * n) for n in (100_000, 150_000, 450_000, 1_000_000))
PAGE, CHUNK, ALIVE, PENDING = 500, 256, 2_000, max(20, round(SCALE * 2_000))


def pods_of(count: int, *, pending: int = 0, lean: bool = False) -> Iterator[str]:
    """Texts of pods with a version each."""
    created = generate(max(20, count // 30), count, seed=1, pending=pending, lean=lean)
    texts = (text for text in created.texts() if text.startswith('{"apiVersion":"v1","kind":"Pod",'))
    return (versioned(text, 1000 + at) for at, text in enumerate(texts))


def versioned(text: str, version: int) -> str:
    head, _, rest = text.partition('"resourceVersion":"')
    if not rest:
        return text.replace('"metadata":{', f'"metadata":{{"resourceVersion":"{version}",', 1)
    return f'{head}"resourceVersion":"{version}{rest[rest.index(chr(34)) :]}'


def pages(texts: Iterator[str], size: int) -> Iterator[bytes]:
    """Answers to a list of pods."""
    part = list(itertools.islice(texts, size))
    while part:
        following = list(itertools.islice(texts, size))
        more = ',"continue":"more"' if following else ""
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"{more}}},"items":['
        yield (head + ",".join(part) + "]}").encode()
        part = following


def resident() -> int:
    """Bytes that the process has in memory, without what the allocator only holds back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def same(one: Snapshot, right: Snapshot) -> bool:
    """Whether two snapshots hold the same pods, in any order."""
    return (sorted(one.pods), sorted(one.pending), one.counts) == (
        sorted(right.pods), sorted(right.pending), right.counts
    )  # fmt: skip


class Spent:
    """CPU of this process in what was called through it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.process_time() - begin


def listed(pods: Sequence[str], **options: Any) -> Cluster:
    cluster = Cluster(**options)
    cluster.replace("Pod", pages(iter(pods), PAGE))
    return cluster


@pytest.mark.parametrize(
    ("texts", "together"), [("all", CHUNK), ("pending", CHUNK), ("pending", 1)], ids=["all", "pending", "alone"]
)
def test_watch_lines(benchmark: Any, texts: Any, together: int) -> None:
    """Three of five lines change a pod, one adds one, one removes one; ``together``: lines that arrive at once."""
    count = LINES if together > 1 else LINES // 20
    created = list(pods_of(PODS + LINES // 5))
    initial, new = created[:PODS], created[PODS:]
    rng, version = random.Random(1), itertools.count(10**6)
    lines, alive = [], dict(enumerate(initial))
    for at in range(count):
        if at % 5 < 3:
            number = rng.randrange(PODS)
            text, type_ = alive.get(number), "MODIFIED"
            if text is None:
                continue
            text = alive[number] = versioned(text, next(version)).replace('"Running"', '"Running" ', 1)
        elif at % 5 == 3 and new:
            text, type_ = versioned(new.pop(), next(version)), "ADDED"
            alive[PODS + len(alive) + at] = text
        else:
            number = rng.randrange(PODS)
            text, type_ = alive.pop(number, None), "DELETED"
            if text is None:
                continue
            text = versioned(text, next(version))
        lines.append(f'{{"type":"{type_}","object":{text}}}\n')
    chunks = ["".join(lines[at : at + together]).encode() for at in range(0, len(lines), together)]
    cluster, spent = listed(initial, texts=texts), Spent()

    def fed() -> None:
        for chunk in chunks:
            result = spent(cluster.watched, chunk)
            assert result.used == len(chunk)
            assert not result.problems

    benchmark.pedantic(fed, rounds=1)
    each = spent.seconds / len(lines) * 1e6
    benchmark.extra_info |= {"us_a_line": each}
    size = sum(map(len, chunks))
    print(f"\n{each:.1f} us of CPU a line of {size / len(lines):.0f} bytes (target: {10 if together > 1 else 100})")
    assert same(cluster.snapshot(), listed(list(alive.values())).snapshot())
    floor(benchmark, size)


def test_pages_of_placed_pods(benchmark: Any) -> None:
    cluster, spent, size = Cluster(texts="pending"), Spent(), 0
    coming = [pages(pods_of(ALL_PODS, pending=PENDING), PAGE)]
    first = next(coming[0])
    before = resident()

    def fed() -> None:
        nonlocal size
        with cluster.relist("Pod") as listing:
            for page in itertools.chain([first], coming.pop()):
                size += len(page)
                assert not spent(listing.pages, page).problems

    benchmark.pedantic(fed, rounds=1)
    mib = (resident() - before) / 2**20
    benchmark.extra_info |= {"cpu_seconds": spent.seconds, "mib": mib}
    print(f"\n{spent.seconds:.2f} s of CPU for {ALL_PODS} pods (target {5 * SCALE:.2f} s), {mib:.0f} MiB more than "
          f"before (target {400 * SCALE:.0f} MiB)")  # fmt: skip
    snapshot = cluster.snapshot()
    assert len(cluster.keys("Pod")) >= ALL_PODS * 0.999  # a few names collide
    assert len(snapshot.pending) >= PENDING * 0.9
    floor(benchmark, size)


def test_pods_that_come_and_go(benchmark: Any) -> None:
    """Each has labels and a controller of its own, as a job's pod has."""
    template = next(text for text in pods_of(3000, lean=True) if '"nodeName"' in text)
    pod = json.loads(template)
    pod["metadata"] |= {
        "name": "pod-@@", "uid": "00000000-0000-0000-0000-0000@@", "resourceVersion": "@@",
        "labels": {"batch.kubernetes.io/job-name": "job-@@"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job-@@", "uid": "job-uid-@@",
                             "controller": True}],
    }  # fmt: skip
    template = json.dumps(pod)
    cluster, spent = Cluster(), Spent()

    def lines(first: int, count: int) -> bytes:
        out = []
        for number in range(first, first + count):
            out.append(f'{{"type":"ADDED","object":{template.replace("@@", str(10**8 + number))}}}\n')
            if number >= ALIVE:
                deleted = template.replace("@@", str(10**8 + number - ALIVE))
                out.append(f'{{"type":"DELETED","object":{deleted}}}\n')
        return "".join(out).encode()

    def fed(first: int, end: int) -> None:
        for at in range(first, end, 500):
            result = spent(cluster.watched, lines(at, min(500, end - at)))
            assert not result.problems
            if at % 5000 == 0:
                cluster.snapshot().pod_index.select("default", "a=b")

    fed(0, 10 * ALIVE)
    before = resident()
    benchmark.pedantic(lambda: fed(10 * ALIVE, 10 * ALIVE + COMING), rounds=1)
    after = resident()
    more = after / before - 1
    benchmark.extra_info |= {"mib_before": before / 2**20, "mib_after": after / 2**20}
    print(f"\n{before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB after {COMING} pods ({more:+.1%}, target +5 %); "
          f"{spent.seconds / (2 * COMING) * 1e6:.1f} us of CPU a line")  # fmt: skip
    assert len(cluster.keys("Pod")) == ALIVE
    interner = cluster.interner
    print(f"{len(interner.classes)} classes, {len(interner.identities)} identities, {len(interner.shapes)} shapes, "
          f"{len(interner.controllers)} controllers, {len(cluster.reader.classes)} combinations")  # fmt: skip
    assert more <= 0.05


def test_pods_given_as_structs(benchmark: Any) -> None:
    """What a simulated world tells of pods made from templates, 500 at a time: they wait, get a node, run and go."""
    templates = list(listed(list(pods_of(300, lean=True))).pods())
    waiting, bound, running = [], [], []
    for number in range(PODS // 5):
        template = templates[number % len(templates)]
        metadata = replace(template.metadata, name=f"pod-{number}", uid=f"uid-{number}")
        waiting.append(replace(template, metadata=metadata, spec=replace(template.spec, node_name="")))
        bound.append(replace(waiting[-1], spec=replace(template.spec, node_name=f"node-{number % 97}")))
        running.append(replace(bound[-1], status=replace(template.status, phase="Running")))
    deleted = [pod.key for pod in running[: len(running) // 2]]
    cluster, spent = Cluster(), Spent()

    def fed() -> None:
        for pods in (waiting, bound, running):
            for at in range(0, len(pods), 500):
                spent(cluster.apply_pods, pods[at : at + 500])
        for at in range(0, len(deleted), 500):
            spent(lambda at=at: cluster.apply_pods((), removed=deleted[at : at + 500]))
        spent(cluster.tidy)

    benchmark.pedantic(fed, rounds=1)
    each = spent.seconds / (3 * len(bound) + len(deleted)) * 1e6
    benchmark.extra_info |= {"us_an_event": each}
    print(f"\n{each:.1f} us of CPU an event (target: 10)")
    assert same(cluster.snapshot(), Cluster(running[len(deleted) :]).snapshot())


def test_pickle_of_a_snapshot(benchmark: Any) -> None:
    cluster = listed(list(pods_of(PODS, pending=PENDING)))
    snapshot = cluster.snapshot()
    snapshot.pod_index.select("default", "a=b")
    buffers: list[pickle.PickleBuffer] = []

    def dumped() -> bytes:
        buffers.clear()
        return pickle.dumps(snapshot, protocol=5, buffer_callback=buffers.append)

    head, spent = benchmark.pedantic(lambda: dumped(), rounds=3), Spent()
    spent(dumped)
    apart = sum(len(each.raw()) for each in buffers)
    size = (len(head) + apart) / 2**20
    benchmark.extra_info |= {"mib": size, "mib_apart": apart / 2**20, "cpu_seconds": spent.seconds}
    print(f"\n{size:.1f} MiB, of which {apart / 2**20:.1f} out of band (target: {60 * SCALE:.0f}); "
          f"{spent.seconds:.3f} s (target: {0.3 * SCALE:.3f})")  # fmt: skip
    back = pickle.loads(head, buffers=buffers)
    assert same(back, snapshot)
    assert [pod.data() for pod in back.pending_records] == [pod.data() for pod in snapshot.pending_records]
    assert all(np.array_equal(back.free(name), snapshot.free(name)) for name in snapshot.columns.allocatable)
