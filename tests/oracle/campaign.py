"""Draws cases by seed, asks upstream and kscale, and makes small what differs."""

from __future__ import annotations

import copy
import gzip
import json
import multiprocessing
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from oracle.families import Kind, find_kinds
from oracle.process import Oracle, OracleError
from oracle.shrinking import shrink

__all__ = ["Campaign", "Difference", "Report", "compare", "input_of", "small_example", "write_reproducer"]

Json = dict[str, Any]

BATCH = 100
_PROGRESS = 300.0
"""Seconds between two lines that tell how far a campaign is."""
_SHRUNK = 25
"""Different differences that are made small; the others are counted."""


@dataclass(frozen=True)
class Difference:
    """A case in which kscale's answer is not upstream's.

    ``where`` names the failed comparison: differences of one cause mostly have it in common.
    """

    kind: str
    index: int
    input: Json
    want: Any
    where: str
    details: str


@dataclass
class Report:
    """What came of a campaign."""

    seed: int
    seconds: float = 0.0
    cases: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    examples: dict[tuple[str, str], Difference] = field(default_factory=dict)
    first: float | None = None
    """Seconds until the first difference."""


def input_of(kind: Kind, seed: int, index: int) -> Json:
    """Return the input of one case; it depends on the seed, the kind and the index alone."""
    return kind.draw(Random(f"{seed}/{kind.name}/{index}"))


def compare(kind: Kind, inputs: Json, want: Any) -> tuple[str, str] | None:
    """Compare kscale's answer with upstream's; returns where they differ, and how, or None."""
    case = {"name": "oracle", "kind": kind.name, "input": copy.deepcopy(inputs), "want": copy.deepcopy(want)}
    try:
        kind.adapter.check(case)
    except Exception as error:  # noqa: BLE001  # an error of kscale is a difference, too
        return _describe(error, str(kind.adapter.__file__))
    return None


_COMPARED = (("got", "expected"), ("got", "want"), ("every", "expected.all"), ("prefilter", "want.prefilter"))
"""Variables of an adapter that it compares: kscale's answer, and upstream's."""


def _describe(error: Exception, adapter: str) -> tuple[str, str]:
    """Return where an adapter failed, with the first thing that differs, and all that differs."""
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == adapter
    ]
    if not frames or not isinstance(error, AssertionError):
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        return where, "".join(traceback.format_exception(error))[-3000:]
    frame, line = frames[-1]
    differing: list[str] = []
    other = ("got", "want") if "expected" in frame.f_locals else None
    for ours, upstream in _COMPARED:
        name, _, key = upstream.partition(".")
        if ours in frame.f_locals and name in frame.f_locals and (ours, name) != other:
            right = frame.f_locals[name]
            right = right.get(key, []) if key else right
            if ours == "got" and isinstance(right, dict):  # an adapter leaves out the rest
                right = {name: right[name] for name in frame.f_locals[ours] if name in right}
            differing += _differing(frame.f_locals[ours], right, "")
        if differing:
            break
    shape = re.sub(r"\"[^\"]*\"|'[^']*'|-?\d+(\.\d+)?", "#", differing[0])[:200] if differing else ""
    return f"{Path(adapter).name}:{line} {shape}", "\n".join([str(error), *differing[:10]])


def _differing(ours: Any, upstream: Any, path: str) -> list[str]:
    """Return a line for everything that differs between two answers."""
    ours, upstream = _by_plugin(ours), _by_plugin(upstream)
    if isinstance(ours, dict) and isinstance(upstream, dict):
        keys = list(dict.fromkeys([*upstream, *ours]))
        parts = [(key, ours.get(key, _ABSENT), upstream.get(key, _ABSENT)) for key in keys]
    elif isinstance(ours, list) and isinstance(upstream, list) and len(ours) == len(upstream):
        parts = list(zip(range(len(ours)), ours, upstream, strict=True))
    elif ours == upstream:
        return []
    else:
        return [f"{path}: kscale {ours!r}, upstream {upstream!r}"[:1500]]
    return [line for key, one, right in parts for line in _differing(one, right, f"{path}.{key}")]


def _by_plugin(answer: Any) -> Any:
    """Return a list of what plug-ins say as a dictionary by plug-in."""
    if isinstance(answer, list) and answer and all(isinstance(each, dict) and "plugin" in each for each in answer):
        return {each["plugin"]: each for each in answer}
    return answer


_ABSENT = "(absent)"


class Campaign:
    """Asks for cases of some kinds until the time or the number of cases is reached.

    Parameters
    ----------
    kinds
        Kinds to ask for, in turn by weight.
    programs
        Oracle program by its name: ``kubernetes``, ``vpa``.
    seed
        Where the inputs come from.
    jobs
        Number of processes.
    """

    def __init__(self, kinds: Sequence[Kind], programs: dict[str, Path], *, seed: int, jobs: int) -> None:
        self.kinds = list(kinds)
        self.programs = programs
        self.seed, self.jobs = seed, jobs

    def run(self, *, cases: int = 0, seconds: float = 0.0, stop_at_first: bool = False) -> Report:
        """Run until ``cases`` were compared, or ``seconds`` have passed; returns the report."""
        report = Report(self.seed)
        begin, shown_at = time.monotonic(), 0.0
        batches = self._batches(cases)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            self.jobs, mp_context=context, initializer=_start_worker, initargs=(self.programs, self.seed)
        ) as pool:
            pending: set[Future[_Result]] = set()
            while True:
                over = (seconds and time.monotonic() - begin > seconds) or (stop_at_first and report.differing)
                while not over and len(pending) < self.jobs * 2 and (batch := next(batches, None)) is not None:
                    pending.add(pool.submit(_run_batch, *batch))
                if not pending:
                    break
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                passed = time.monotonic() - begin
                for future in done:
                    self._count(report, future.result(), passed)
                if passed - shown_at > _PROGRESS:
                    shown_at = passed
                    print(
                        f"{report.cases.total()} cases after {passed:.0f} s, {report.differing.total()} different",
                        flush=True,
                    )
        report.seconds = time.monotonic() - begin
        return report

    def _batches(self, cases: int) -> Iterator[tuple[str, int, int]]:
        """Yield (kind, first index, count); without end if ``cases`` is 0."""
        turn = [kind.name for kind in self.kinds for _ in range(kind.weight)]
        first: Counter[str] = Counter()
        total = 0
        while not cases or total < cases:
            for name in turn:
                count = min(BATCH, cases - total) if cases else BATCH
                if count <= 0:
                    return
                yield name, first[name], count
                first[name] += count
                total += count

    def _count(self, report: Report, result: _Result, seconds: float) -> None:
        report.cases[result.kind] += result.cases
        for reason in result.left_out:
            report.left_out[f"{result.kind}: {reason}"] += 1
        for difference in result.differences:
            report.differing[difference.kind] += 1
            report.first = seconds if report.first is None else report.first
            key = difference.kind, difference.where
            current = report.examples.get(key)
            if current is None:
                print(
                    f"DIFFERENT after {seconds:.0f} s: {difference.kind} {difference.index}, {difference.where}",
                    flush=True,
                )
            if current is None or len(str(difference.input)) < len(str(current.input)):
                report.examples[key] = difference

    def shrunk(self, report: Report, *, seconds: float = 30.0) -> list[Difference]:
        """Return an example of every difference, made small."""
        results = []
        by_name = {kind.name: kind for kind in self.kinds}
        with ExitStack() as stack:
            oracles = {name: stack.enter_context(Oracle(path)) for name, path in self.programs.items()}
            for difference in list(report.examples.values())[:_SHRUNK]:
                kind = by_name[difference.kind]
                results.append(small_example(difference, kind, oracles[kind.program], seconds))
        return results


def small_example(difference: Difference, kind: Kind, oracle: Oracle, seconds: float) -> Difference:
    """Return a difference whose input is smaller, and which differs in the same place."""
    last: dict[str, Difference] = {}

    def differs(inputs: Sequence[Any]) -> list[bool]:
        verdicts = []
        for case_input, reply in zip(
            inputs, oracle.ask([(kind.name, case_input) for case_input in inputs]), strict=True
        ):
            verdict = None
            if not reply.error and isinstance(case_input, dict) and not _unsupported(kind, case_input):
                verdict = compare(kind, case_input, reply.output)
            same = verdict is not None and verdict[0] == difference.where
            verdicts.append(same)
            if same and verdict is not None:
                result = Difference(kind.name, difference.index, case_input, reply.output, verdict[0], verdict[1])
                last.setdefault(json.dumps(case_input, sort_keys=True), result)
        return verdicts

    small = shrink(difference.input, differs, fixed=kind.fixed, seconds=seconds)
    return last.get(json.dumps(small, sort_keys=True), difference)


def _unsupported(kind: Kind, inputs: Json) -> str:
    """Return what of an input kscale does not have, or nothing."""
    if not hasattr(kind.adapter, "unsupported"):
        return ""
    return kind.adapter.unsupported({"name": "oracle", "kind": kind.name, "input": inputs, "want": None}) or ""


# -- in worker processes ---------------------------------------------------------------------------------------------


@dataclass
class _Result:
    kind: str
    cases: int = 0
    left_out: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


class _Worker:
    def __init__(self, programs: dict[str, Path], seed: int) -> None:
        self.kinds = find_kinds()
        self.seed = seed
        self.programs = programs
        self.oracles: dict[str, Oracle] = {}

    def oracle(self, name: str) -> Oracle:
        if name not in self.oracles:
            self.oracles[name] = Oracle(self.programs[name]).__enter__()
        return self.oracles[name]

    def run(self, name: str, first: int, count: int) -> _Result:
        kind = self.kinds[name]
        result = _Result(name)
        inputs = []
        for index in range(first, first + count):
            case_input = input_of(kind, self.seed, index)
            reason = _unsupported(kind, case_input)
            if reason:
                result.left_out.append(reason)
            else:
                inputs.append((index, case_input))
        oracle = self.oracle(kind.program)
        sent = oracle.send((name, case_input) for _, case_input in inputs)
        for (index, case_input), reply in zip(inputs, oracle.receive(sent), strict=True):
            result.cases += 1
            if reply.error.startswith("panic: "):
                result.left_out.append("upstream panics: " + reply.error.partition("\n")[0].removeprefix("panic: "))
            elif reply.error:
                where = "the oracle cannot ask: " + reply.error.partition("\n")[0][:200]
                result.differences.append(Difference(name, index, case_input, None, where, reply.error))
            elif (verdict := compare(kind, case_input, reply.output)) is not None:
                result.differences.append(Difference(name, index, case_input, reply.output, *verdict))
        return result


_worker: _Worker | None = None


def _start_worker(programs: dict[str, Path], seed: int) -> None:
    global _worker
    _worker = _Worker(programs, seed)


def _run_batch(name: str, first: int, count: int) -> _Result:
    assert _worker is not None
    try:
        return _worker.run(name, first, count)
    except OracleError:
        _worker.oracles.clear()
        raise


def write_reproducer(difference: Difference, directory: Path, *, seed: int, upstream: str) -> Path:
    """Append a case to ``directory/<kind>.jsonl.gz`` in the recorded format; returns the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{difference.kind}.jsonl.gz"
    case = {
        "name": f"{difference.kind}-seed-{seed}-{difference.index}",
        "kind": difference.kind,
        "tags": ["oracle"],
        "upstream": upstream,
        "input": difference.input,
        "want": difference.want,
    }
    with gzip.open(path, "at", encoding="utf-8") as file:
        file.write(json.dumps(case, sort_keys=True) + "\n")
    return path
