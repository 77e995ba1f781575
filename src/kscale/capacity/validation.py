"""What a dump holds: read everything, decide nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from kscale.capacity.autoscaler_admission import refusals_of, unserved_version
from kscale.capacity.namespace_labels import asks_labels, warning
from kscale.errors import InputError, Problem
from kscale.objects.core import Node, Pod
from kscale.records import Record
from kscale.snapshot.loading import LoadReport, load_objects

__all__ = ["KindCount", "Validation", "validate"]


class KindCount(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """How many objects of a kind were read; ``modelled`` is false for kinds that no answer depends on."""

    kind: str
    objects: int
    modelled: bool = True


class Validation(Record, frozen=True):
    """What was read from the sources: counts per kind, and what is wrong or odd.

    ``problems``: objects that cannot be used, with file, object and field. ``refused``: HPAs, VPAs and ScaledObjects
    that can be read, but that the API server or a webhook refuses to store. ``warnings``: used, but no API server would
    hold it (``warningCount`` counts those that the list leaves out, too). Of ``objects``, sources that cannot be read
    at all counted as one each (``unreadable``), ``damaged`` cannot be read; ``damagedObjects`` names them and those
    that are refused. Those of
    ``kinds`` that are not modelled come on top. ``valid`` = no problem.
    """

    KIND = "Validation"
    valid: bool
    sources: list[str]
    objects: int
    damaged: int
    unreadable: int
    kinds: list[KindCount]
    problems: list[str]
    damaged_objects: list[str]
    warnings: list[str]
    warning_count: int
    refused: int = 0


def validate(sources: Sequence[str]) -> Validation:
    """Read all sources (paths, or ``-``), whatever is wrong with them; the record of what was seen."""
    report = LoadReport()
    nodes: set[str] = set()
    placed: Counter[str] = Counter()
    in_doubt = 0
    refused: list[Problem] = []
    lacking: list[str] = []
    with suppress(InputError):  # of sources that cannot be read at all, raised at the end: the report has them
        for loaded in load_objects(*sources, strict=False, report=report):
            for refusal in refusals_of(loaded.obj, loaded.raw):
                problem = replace(report.place(), message=refusal.message, field=refusal.field)
                if refusal.is_warning:
                    lacking.append(str(problem))
                else:
                    refused.append(problem)
            if isinstance(loaded.obj, Node):
                nodes.add(loaded.obj.name)
            elif isinstance(loaded.obj, Pod):
                in_doubt += loaded.obj.status.phase not in ("Succeeded", "Failed") and asks_labels(loaded.obj.spec)
                if loaded.obj.spec.node_name:
                    placed[loaded.obj.spec.node_name] += 1
    if unserved := report.skipped["HorizontalPodAutoscaler.autoscaling"]:
        name = f"{unserved:,} HorizontalPodAutoscaler{'s' if unserved > 1 else ''}"
        refused.append(Problem(unserved_version("autoscaling/v2beta1"), object=name, field="apiVersion"))
    strays = {name: count for name, count in placed.items() if name not in nodes}
    lacking += [
        str(Problem(f"not in the input; pods on it: {count:,}", object=f"Node {name}"))
        for name, count in strays.items()
    ]
    if in_doubt and not report.read["Namespace"]:
        lacking.append(warning(in_doubt))
    kinds = [KindCount(kind=kind, objects=count) for kind, count in sorted(report.read.items())]
    kinds += [KindCount(kind=kind, objects=count, modelled=False) for kind, count in sorted(report.skipped.items())]
    return Validation(
        valid=not (report.problems or refused),
        sources=list(sources),
        objects=report.total,
        unreadable=len({problem.source for problem in report.problems if problem.of_source}),
        damaged=report.total - report.read.total(),
        kinds=kinds,
        refused=len({(problem.source, problem.object) for problem in refused}),
        problems=[str(problem) for problem in (*report.problems, *refused)],
        damaged_objects=list(
            dict.fromkeys(
                ": ".join(filter(None, (problem.source, problem.object))) for problem in (*report.problems, *refused)
            )
        ),
        warnings=[*map(str, report.warnings), *lacking],
        warning_count=report.warning_count + len(lacking),
    )
