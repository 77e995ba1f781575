"""The documents that kscale writes, and their JSON Schemas (``docs/schemas/*.json``, ``kscale schema``). kscale's own:
not in upstream.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from kscale.objects.argument_types import typed_late
from kscale.records import Record, schema_of

__all__ = ["DOCUMENTS", "INPUTS", "input_schema_text", "record_type", "schema", "schema_files", "schema_text"]

# kind -> the module that defines its record (``:`` and its name, if that is not the kind). One line per document; a
# test holds docs/schemas/ to this list.
DOCUMENTS: dict[str, str] = {
    "CatalogueList": "kscale.capacity.catalogue.types",
    "ClusterAnswers": "kscale.cli.command",
    "ClusterOverview": "kscale.capacity.overview",
    "ClusterDiff": "kscale.capacity.diff",
    "ConsolidationPlan": "kscale.capacity.consolidation.records",
    "CostAllocation": "kscale.capacity.cost",
    "CostReport": "kscale.capacity.cost",
    "DecisionReplay": "kscale.simulation.running",
    "DrainReport": "kscale.capacity.drain",
    "EstimateReport": "kscale.capacity.records",
    "Explanation": "kscale.capacity.records",
    "FitReport": "kscale.capacity.records",
    "HPAReport": "kscale.hpa.dump.report",
    "HeadroomReport": "kscale.capacity.headroom",
    "InstanceTypeList": "kscale.capacity.catalogue.types",
    "KarpenterPlan": "kscale.capacity.karpenter.plan",
    "MixPlan": "kscale.capacity.mix.records",
    "NodeUsageReport": "kscale.capacity.node_usage",
    "PreemptionReport": "kscale.capacity.preemption",
    "ProfileComparison": "kscale.simulation.comparing",
    "ProvisionerComparison": "kscale.simulation.compared_runs",
    "RecommendationReport": "kscale.vpa.advice.records",
    "ReplayReport": "kscale.hpa.replay",
    "ScaleDownReport": "kscale.capacity.scale_down",
    "ScaleUpPlan": "kscale.ca.scale_up_status:ScaleUpPlanRecord",
    "SchemaList": "kscale.schemas",
    "SimulationReport": "kscale.simulation.records",
    "SweepReport": "kscale.capacity.whatif.running",
    "VPARoundPlan": "kscale.capacity.vpa_round_plan",
    "Validation": "kscale.capacity.validation",
    "WhatIfReport": "kscale.capacity.whatif.scenarios",
}

# What kscale reads besides Kubernetes objects: name -> the module whose ``<name>_schema_text`` writes the schema.
INPUTS: dict[str, str] = {
    "groups": "kscale.capacity.groups",
    "prices": "kscale.capacity.price_list",
    "scenarios": "kscale.capacity.whatif.scenarios",
    "simulation": "kscale.simulation.scenario",
}


class SchemaList(Record, frozen=True):
    """The documents and input files of kscale that have a JSON Schema.

    Attributes
    ----------
    kinds : list of str
        Kinds of documents that kscale writes.
    inputs : list of str
        Names of the input files that kscale reads.
    """

    KIND = "SchemaList"
    kinds: list[str]
    inputs: list[str]


@typed_late
def record_type(kind: str) -> type[Record]:
    """Return the record type of a published kind of documents. Raises KeyError for an unknown kind."""
    module, _, name = DOCUMENTS[kind].partition(":")
    record_class: type[Record] = getattr(import_module(module), name or kind)
    return record_class


@typed_late
def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a published kind of documents. Raises KeyError for an unknown kind."""
    return schema_of(record_type(kind))


def schema_files() -> dict[str, str]:
    """Return the text of every published schema, by its file name."""
    files = {f"{kind}.json": schema_text(kind) for kind in DOCUMENTS}
    return files | {f"{name}.schema.json": input_schema_text(name) for name in INPUTS}


@typed_late
def input_schema_text(name: str) -> str:
    """Return the published schema text of an input file, by its ``name`` in :data:`INPUTS`.

    Raises KeyError for an unknown name.
    """
    text: str = getattr(import_module(INPUTS[name]), f"{name}_schema_text")()
    return text


@typed_late
def schema_text(kind: str) -> str:
    """Return the published schema text of a ``kind`` of documents: indented JSON with a final line feed.

    Raises KeyError for an unknown kind.
    """
    return msgspec.json.format(msgspec.json.encode(schema(kind)), indent=2).decode() + "\n"
