"""The documents that kscale writes, and their JSON Schemas (``docs/schemas/*.json``, ``kscale schema``). Not in
upstream."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from kscale.records import Record, schema_of

__all__ = ["DOCUMENTS", "INPUTS", "input_schema_text", "record_type", "schema", "schema_files", "schema_text"]

# kind -> module that defines its record (``:`` and the name, if it is not the kind). One line per document; a test
# compares docs/schemas/ with this list.
DOCUMENTS: dict[str, str] = {
    "CatalogueList": "kscale.capacity.catalogue.types",
    "ClusterAnswers": "kscale.cli.command",
    "CostReport": "kscale.capacity.cost",
    "DecisionReplay": "kscale.simulation.replaying",
    "EstimateReport": "kscale.capacity.records",
    "Explanation": "kscale.capacity.records",
    "FitReport": "kscale.capacity.records",
    "HPAReport": "kscale.hpa.dump.report",
    "HeadroomReport": "kscale.capacity.headroom",
    "InstanceTypeList": "kscale.capacity.catalogue.types",
    "MixPlan": "kscale.capacity.mix.records",
    "ProfileComparison": "kscale.simulation.comparing",
    "RecommendationReport": "kscale.vpa.advice.records",
    "ReplayReport": "kscale.hpa.replay",
    "ScaleDownReport": "kscale.capacity.scale_down",
    "ScaleUpPlan": "kscale.ca.scale_up.records:ScaleUpPlanRecord",
    "SchemaList": "kscale.schemas",
    "SimulationReport": "kscale.simulation.records",
    "SweepReport": "kscale.capacity.whatif.running",
    "VPARoundPlan": "kscale.capacity.vpa_round_plan",
    "Validation": "kscale.capacity.validation",
    "WhatIfReport": "kscale.capacity.whatif.scenarios",
}

# Input files other than Kubernetes objects: name -> module whose ``<name>_schema_text`` returns the schema.
INPUTS: dict[str, str] = {
    "groups": "kscale.capacity.groups",
    "scenarios": "kscale.capacity.whatif.scenarios",
    "simulation": "kscale.simulation.scenario",
}


class SchemaList(Record, frozen=True):
    """The kinds of documents, and the input files, whose schemas are published."""

    KIND = "SchemaList"
    kinds: list[str]
    inputs: list[str]


def record_type(kind: str) -> type[Record]:
    """Return the record type of a published kind. Raises KeyError for an unknown one."""
    module, _, name = DOCUMENTS[kind].partition(":")
    record: type[Record] = getattr(import_module(module), name or kind)
    return record


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a published kind. Raises KeyError for an unknown one."""
    tidy: dict[str, Any] = _tidy(schema_of(record_type(kind)))
    return tidy


def _tidy(value: Any) -> Any:
    """Return a schema whose descriptions, which are docstrings, have no line breaks and no double backticks."""
    if isinstance(value, dict):
        return {
            key: " ".join(item.replace("``", "`").split()) if key == "description" else _tidy(item)
            for key, item in value.items()
        }
    return [_tidy(item) for item in value] if isinstance(value, list) else value


def schema_files() -> dict[str, str]:
    """Return every published schema by file name."""
    files = {f"{kind}.json": schema_text(kind) for kind in DOCUMENTS}
    return files | {f"{name}.schema.json": input_schema_text(name) for name in INPUTS}


def input_schema_text(name: str) -> str:
    """Return the schema of an input file as published, by its ``name`` in :data:`INPUTS`."""
    text: str = getattr(import_module(INPUTS[name]), f"{name}_schema_text")()
    return text


def schema_text(kind: str) -> str:
    """Return the schema of documents of a ``kind`` as published: indented JSON with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(schema(kind)), indent=2).decode() + "\n"
