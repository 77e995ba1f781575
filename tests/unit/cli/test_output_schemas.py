"""Every document that -o json writes is what its published schema says, and nothing besides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from json_schemas import validate
from kscale.schemas import DOCUMENTS, schema
from kscale.snapshot.cluster import load
from unit.cli.support import kscale
from unit.cli.test_hpa import ALL
from unit.cli.test_replay_hpa import HPA

EXAMPLES = Path(__file__).parents[3] / "examples"


def strict(value: Any) -> Any:
    """A schema that knows all fields."""
    if isinstance(value, dict):
        created = {key: strict(item) for key, item in value.items()}
        if isinstance(created.get("properties"), dict) and created.get("type") == "object":
            created.setdefault("additionalProperties", False)
        return created
    return [strict(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    created = kscale(
        "generate", "--nodes", 6, "--pods", 60, "--to", folder / "c.json", "--groups", folder / "g.yaml",
        "--usage", folder / "u.csv", "--usage-hours", 3, "-q",
    )  # fmt: skip
    assert created.code == 0
    (folder / "hpa.yaml").write_text(HPA.replace("NAME", "web"), encoding="utf-8")
    (folder / "load.csv").write_text("time,value\n0,1\n30,6\n60,6\n", encoding="utf-8")
    return folder


def question(kind: str, folder: Path) -> tuple[object, ...]:
    dump, groups = ("-f", folder / "c.json"), ("-g", folder / "g.yaml")
    web = EXAMPLES / "simulate-web.yaml"
    if kind == "Explanation":
        estimate = json.loads(kscale("estimate", *dump, *groups, "-o", "json").stdout)
        return ("explain", *dump, *groups, estimate["unschedulable"][0])
    if kind in ("PreemptionReport", "DrainReport"):
        snapshot = load(folder / "c.json").snapshot()
        return ("preempt", snapshot.pending[0], *dump) if kind[0] == "P" else ("drain", snapshot.nodes[0], *dump)
    return {
        "CatalogueList": ("catalogue", "import", EXAMPLES / "data" / "aws.csv"),
        "ClusterDiff": ("diff", folder / "c.json", EXAMPLES / "cluster.json.gz", *groups),
        "ConsolidationPlan": ("consolidate", *dump, *groups),
        "ClusterOverview": ("top", *dump, *groups),
        "CostReport": ("cost", *dump, *groups, "--budget", 0.1),
        "DecisionReplay": ("replay", "decisions", web, EXAMPLES / "data" / "web_decisions.jsonl", "--horizon", "6m"),
        "EstimateReport": ("estimate", *dump, *groups),
        "FitReport": ("fit", *dump, "--pod", folder / "c.json"),
        "HPAReport": ("hpa", *ALL),
        "HeadroomReport": ("headroom", *dump, "--pod", folder / "c.json"),
        "InstanceTypeList": ("catalogue", "show", EXAMPLES / "data" / "aws.csv"),
        "KarpenterPlan": (
            *("scale-up", "-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "nodepools.yaml"),
            *("--catalogue", EXAMPLES / "data" / "aws.csv"),
        ),
        "MixPlan": ("mix", *dump, *groups, "--curve", "--budget", 2),
        "RecommendationReport": ("recommend", *dump, "--history", folder / "u.csv", "--effect"),
        "NodeUsageReport": ("nodes", *dump, *groups),
        "ProfileComparison": ("compare", web, "--horizon", "3m"),
        "ProvisionerComparison": ("compare", EXAMPLES / "simulate-karpenter.yaml", "--provisioners", "--horizon", "1m"),
        "ReplayReport": ("replay", "hpa", folder / "load.csv", "-f", folder / "hpa.yaml", "--request", "500m"),
        "ScaleDownReport": ("scale-down", *dump, *groups, "--now", "2026-01-01T00:00:00Z"),
        "ScaleUpPlan": ("scale-up", *dump, *groups),
        "SchemaList": ("schema",),
        "SimulationReport": ("simulate", web, "--horizon", "1m"),
        "SweepReport": ("sweep", *dump, *groups, "--jobs", 1, "--vary", "flags.expander=price"),
        "Validation": ("validate", *dump),
        "WhatIfReport": ("whatif", EXAMPLES / "scenarios.yaml", *dump, *groups, "--now", "2027-01-01T00:00:00Z"),
    }[kind]


EXCLUSION_REASONS = {"ClusterAnswers", "CostAllocation", "VPARoundPlan"}
"""Documents about several clusters (test_clusters.py), a part of a document (test_cost_allocation.py), and what
programs print (test_run_vpa.py)."""


@pytest.mark.parametrize("kind", sorted(set(DOCUMENTS) - EXCLUSION_REASONS))
def test_a_document_has_no_field_that_its_schema_does_not_know(
    kind: str, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = kscale(*question(kind, cluster), "-o", "json")
    assert result.code in (0, 1), result.stderr
    document = json.loads(result.stdout)
    assert document["kind"] == kind
    published = strict(schema(kind))
    validate(document, published)
    with pytest.raises(jsonschema.ValidationError):
        validate({**document, "unknownField": 1}, published)
