"""Upstream's Go benchmarks and ours on the same workloads, in one run: prints a table in Markdown.

    python benchmarks/versus --upstream DIR [--rounds N] [--built DIR] [WORKLOAD ...]

``DIR``: a checkout of github.com/kubernetes-sigs/cluster-autoscaler (Go builds its tests from public modules). The two
take turns, so that a machine that gets slower does so for both; each figure is the least of the rounds. Both sides
assert their answers. ``--built`` keeps Go's test programs for the next run with the same commit. What stands inside
each clock is said in ``WORKLOADS``: it is not the same where a program does more than a decision.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_NANOSECONDS = re.compile(r"\s(\d+(?:\.\d+)?) ns/op")


@dataclass(frozen=True)
class Workload:
    """One workload on both sides.

    ``package``, ``benchmark``: upstream's, below ``pkg``, as ``go test -bench`` takes it; ``ours``: as pytest takes it.
    ``edits``: file of the package, a text in it, and what stands there instead when it is built. The checkout stays as
    it is.
    """

    what: str
    package: str
    benchmark: str
    ours: str
    clocks: str
    edits: tuple[tuple[str, str, str], ...] = ()


WORKLOADS = {
    "estimate": Workload(
        "51,000 pods in two groups: 2,595 nodes of a template",
        "estimator",
        "^BenchmarkBinpackingEstimate$",
        "bench_packing.py::test_estimate_51000_pods[two groups-cold]",
        "upstream: groups of pods given; ours: the grouping, too",
    ),
    "scale-up": Workload(
        "50,000 pods without controller: 1,000 nodes of a group",
        "core/bench",
        "^BenchmarkRunOnceScaleUp$",
        "bench_scale_up.py::test_50000_pods_in_a_whole_loop",
        "both: a whole loop from objects in memory",
    ),
    "scale-down": Workload(
        "2,000 nodes at 40 %: 1,200 can go",
        "core/bench",
        "^BenchmarkRunOnceScaleDown$",
        "bench_scale_down.py::test_2000_nodes_at_40_percent[loop]",
        "upstream: a whole loop, taints in a fake client included; ours: `kscale.scale_down`",
    ),
    "fork": Workload(
        "fork, add two nodes, revert, 100,000 nodes",
        "simulator/clustersnapshot/predicate",
        r"^BenchmarkForkAddRevert$/^.*delta.*\(100000_nodes,_1_pods\)$",
        "bench_packing.py::test_fork_add_two_revert",
        "both: the calls on a snapshot; upstream with a pod a node, ours with spread compiled",
        # As it stands its snapshots want a CSINode of every node and are given none: each stays empty, of which the
        # benchmark gives the time, and fails. And it builds every size, up to three million pods, for the one asked.
        (
            (
                "predicate_snapshot_test.go",
                "NewDeltaSnapshotStore(), fwHandle, true, 1, true,",
                "NewDeltaSnapshotStore(), fwHandle, true, 1, false,",
            ),
            (
                "predicate_snapshot_test.go",
                "NewBasicSnapshotStore(), fwHandle, true, 1, true,",
                "NewBasicSnapshotStore(), fwHandle, true, 1, false,",
            ),
            (
                "predicate_snapshot_benchmark_test.go",
                "nodeTestCases := []int{1, 10, 100, 1000, 5000, 15000, 100000}",
                "nodeTestCases := []int{100000}",
            ),
            ("predicate_snapshot_benchmark_test.go", "podTestCases := []int{0, 1, 30}", "podTestCases := []int{1}"),
        ),
    ),
}


def digest_of(upstream: Path, workload: Workload) -> str:
    """What tells one program from another: of the checkout's commit (if git knows one), its place, its ``go.mod``, and
    what is edited."""
    commit = ""
    if git := shutil.which("git"):
        command = [git, "-C", str(upstream), "rev-parse", "--verify", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True).stdout
    inputs = f"{commit}\n{upstream.resolve()}\n{workload.edits}\n".encode() + (upstream / "go.mod").read_bytes()
    return hashlib.sha256(inputs).hexdigest()[:12]


def overlay(folder: Path, workload: Workload, room: Path) -> list[str]:
    """The arguments by which Go builds the edited files instead of those in ``folder``. They stand in ``room``.

    Raises ``SystemExit`` for a text that is not there: this commit has another benchmark.
    """
    replaced = {}
    for number, name in enumerate(dict.fromkeys(name for name, _, _ in workload.edits)):
        text = (folder / name).read_text()
        for _, old, new in (edit for edit in workload.edits if edit[0] == name):
            if old not in text:
                raise SystemExit(f"{folder / name} has no {old!r}: the benchmark is another one")
            text = text.replace(old, new)
        edited = room / f"{number}.go"
        edited.write_text(text)
        replaced[str((folder / name).resolve())] = str(edited)
    if not replaced:
        return []
    (room / "overlay.json").write_text(json.dumps({"Replace": replaced}))
    return [f"-overlay={room / 'overlay.json'}"]


def upstream_seconds(upstream: Path, built: Path, workload: Workload) -> float:
    """One round of upstream's benchmark. Its program is kept in ``built`` under the name of the checkout's commit."""
    program = built / f"{workload.package.replace('/', '-')}-{digest_of(upstream, workload)}"
    folder = upstream / "pkg" / workload.package
    if not program.exists():
        with tempfile.TemporaryDirectory() as room:
            edits = overlay(folder, workload, Path(room))
            build = ["go", "test", "-buildvcs=false", "-c", "-o", str(program), *edits, "."]
            subprocess.run(build, cwd=folder, check=True)
    command = [str(program), "-test.run=^$", f"-test.bench={workload.benchmark}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    result = [float(each) for each in _NANOSECONDS.findall(done.stdout)]
    if not result:
        raise SystemExit(f"{' '.join(command)} says no time:\n{done.stdout}{done.stderr}")
    return min(result) / 1e9


def our_seconds(built: Path, workload: Workload) -> float:
    """The least time of one run of our benchmark."""
    result = built / "ours.json"
    name = str(HERE / workload.ours)
    options = ["--benchmark-enable", "--benchmark-only", f"--benchmark-json={result}", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, name], cwd=HERE.parent, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    (benchmark,) = json.loads(result.read_text())["benchmarks"]
    return float(benchmark["stats"]["min"])


def format_time(seconds: float) -> str:
    """A time with two digits that count."""
    unit, size = next((pair for pair in _UNITS if seconds >= pair[1]), _UNITS[-1])
    return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"


def table(rows: list[tuple[Workload, float, float]]) -> str:
    """The figures in Markdown."""
    head = "| Workload | Upstream | kscale | Ratio | Inside the clocks |\n|---|---|---|---|---|\n"
    lines = (
        f"| {workload.what} | {format_time(theirs)} | {format_time(ours)} | {theirs / ours:.0f} | {workload.clocks} |\n"
        for workload, theirs, ours in rows
    )
    return head + "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--built", type=Path, metavar="DIR", help="keep Go's test programs here (default: for this run)"
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of: {', '.join(WORKLOADS)}; default: all")
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - WORKLOADS.keys():
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    rows = []
    with tempfile.TemporaryDirectory() as room:
        built = (arguments.built or Path(room)).resolve()
        built.mkdir(parents=True, exist_ok=True)
        for name, workload in WORKLOADS.items():
            if arguments.workloads and name not in arguments.workloads:
                continue
            pairs = [
                (upstream_seconds(arguments.upstream, built, workload), our_seconds(Path(room), workload))
                for _ in range(arguments.rounds)
            ]
            rows.append((workload, min(theirs for theirs, _ in pairs), min(ours for _, ours in pairs)))
    print(table(rows), end="")


if __name__ == "__main__":
    main()
