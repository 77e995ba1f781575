"""The list of commands, and shell completion. Imports no command, so that ``kscale --help`` stays fast."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

__all__ = [
    "COMMANDS",
    "SECTIONS",
    "Entry",
    "children",
    "complete_explain",
    "expanders",
    "find",
    "place",
    "schema_kinds",
    "strategy_names",
]


class Entry(NamedTuple):
    """One command: its words (``"estimate"``, ``"replay hpa"``), its function as ``module:function``, its help line."""

    name: str
    function: str
    help: str
    section: str = "Capacity"

    def load_module(self) -> ModuleType:
        """Import the module of the command."""
        return import_module(self.function.partition(":")[0])

    def load(self) -> Callable[..., Any]:
        """Import the function of the command."""
        function: Callable[..., Any] = getattr(self.load_module(), self.function.partition(":")[2])
        return function


SECTIONS = ("Capacity", "Autoscalers", "Live", "Tools")  # in the order of the help

# Order here is the order of the help within a section.
COMMANDS: tuple[Entry, ...] = (
    Entry(
        "hpa",
        "kscale.cli.commands.hpa:decide_hpas",
        "What would the HorizontalPodAutoscalers do, and why.",
        "Autoscalers",
    ),
    Entry("explain hpa", "kscale.cli.commands.hpa:explain_hpas", "Pod groups and every step of an HPA.", "Autoscalers"),
    Entry(
        "replay hpa",
        "kscale.cli.commands.replay:replay_hpas",
        "HPAs over recorded load, in virtual time.",
        "Autoscalers",
    ),
    Entry(
        "replay decisions",
        "kscale.cli.commands.replay:replay_decisions",
        "A simulated run once more: the first decision that differs from its log.",
        "Autoscalers",
    ),
    Entry(
        "recommend",
        "kscale.cli.commands.recommend:command",
        "Requests for every workload, from what its containers used.",
        "Autoscalers",
    ),
    Entry(
        "vpa",
        "kscale.cli.commands.vpa:command",
        "What would the VPA's updater and admission do, and why they leave pods alone.",
        "Autoscalers",
    ),
    Entry(
        "simulate",
        "kscale.cli.commands.simulate:command",
        "Autoscalers in a simulated cluster: cost, waiting pods, and what they did.",
        "Autoscalers",
    ),
    Entry(
        "compare",
        "kscale.cli.commands.compare:command",
        "A scenario with the autoscalers of 2018 to 2020 and with today's, side by side.",
        "Autoscalers",
    ),
    Entry(
        "estimate", "kscale.cli.commands.estimate:command", "How many nodes the pending pods need, and why not fewer."
    ),
    Entry("mix", "kscale.cli.commands.mix:command", "The cheapest mix of node types, proven how cheap it can be."),
    Entry(
        "whatif", "kscale.cli.commands.whatif:command", "What each of many scenarios would change, and at what cost."
    ),
    Entry(
        "sweep",
        "kscale.cli.commands.sweep:command",
        "Scenarios by the thousand, on all cores or Dask; a fleet of dumps.",
    ),
    Entry(
        "cost",
        "kscale.cli.commands.cost:command",
        "What the cluster costs an hour, who asked for it, and what is idle.",
    ),
    Entry("explain", "kscale.cli.commands.explain:command", "Why a pod fits nowhere, with the arithmetic."),
    Entry("fit", "kscale.cli.commands.fit:command", "Would a manifest fit on the nodes that exist?"),
    Entry("scale-up", "kscale.cli.commands.scale_up:command", "Which node groups would grow, for which pods, and why."),
    Entry("scale-down", "kscale.cli.commands.scale_down:command", "Which nodes can go, and where their pods land."),
    Entry(
        "headroom",
        "kscale.cli.commands.headroom:command",
        "How many more of a pod fit; does losing a node or zone hurt?",
    ),
    Entry(
        "run cluster-autoscaler",
        "kscale.cli.commands.run.cluster_autoscaler:command",
        "The Cluster Autoscaler, against a cluster.",
        "Live",
    ),
    Entry(
        "run horizontal",
        "kscale.cli.commands.run.horizontal:command",
        "The HorizontalPodAutoscaler controller, against a cluster.",
        "Live",
    ),
    Entry(
        "run vpa-recommender",
        "kscale.cli.commands.run.vpa_recommender:command",
        "The Vertical Pod Autoscaler's recommender on a live cluster.",
        "Live",
    ),
    Entry(
        "run vpa-updater",
        "kscale.cli.commands.run.vpa_updater:command",
        "Its updater: pods that are too far from it are resized or evicted.",
        "Live",
    ),
    Entry(
        "run vpa-admission",
        "kscale.cli.commands.run.vpa_admission:command",
        "Its admission webhook: new pods get what is recommended.",
        "Live",
    ),
    Entry(
        "manifests cluster-autoscaler",
        "kscale.cli.commands.manifests:print_cluster_autoscaler",
        "What the Cluster Autoscaler needs in a cluster, as YAML.",
        "Live",
    ),
    Entry(
        "manifests horizontal",
        "kscale.cli.commands.manifests:print_horizontal",
        "What the horizontal pod autoscaler needs, as YAML.",
        "Live",
    ),
    Entry(
        "manifests vpa-crds",
        "kscale.cli.commands.manifests:print_vpa_crds",
        "The definitions of the Vertical Pod Autoscaler's resources, as YAML.",
        "Live",
    ),
    Entry(
        "manifests vpa-recommender",
        "kscale.cli.commands.manifests:print_vpa_recommender",
        "What its recommender needs, as YAML.",
        "Live",
    ),
    Entry(
        "manifests vpa-updater",
        "kscale.cli.commands.manifests:print_vpa_updater",
        "What its updater needs, as YAML.",
        "Live",
    ),
    Entry(
        "manifests vpa-admission",
        "kscale.cli.commands.manifests:print_vpa_admission",
        "What its admission webhook needs, as YAML.",
        "Live",
    ),
    Entry(
        "manifests reader",
        "kscale.cli.commands.manifests:print_reader",
        "An account that may read what --context asks for, as YAML.",
        "Live",
    ),
    Entry(
        "serve expander",
        "kscale.cli.commands.serve:serve_expander",
        "Rank the options of a Cluster Autoscaler that asks, over gRPC.",
        "Live",
    ),
    Entry(
        "catalogue import",
        "kscale.cli.commands.catalogue_import:import_catalogue",
        "Keep the machines of a cloud, with prices, under a name.",
        "Tools",
    ),
    Entry("catalogue list", "kscale.cli.commands.catalogue:list_catalogues", "The imported catalogues.", "Tools"),
    Entry("catalogue show", "kscale.cli.commands.catalogue:show_catalogue", "The types of a catalogue.", "Tools"),
    Entry(
        "validate",
        "kscale.cli.commands.validate:command",
        "Read everything, decide nothing: what is in a dump.",
        "Tools",
    ),
    Entry(
        "example",
        "kscale.cli.commands.generate:write_examples",
        "Write the files that the documentation works with.",
        "Tools",
    ),
    Entry(
        "generate",
        "kscale.cli.commands.generate:generate_cluster",
        "Make a realistic cluster of any size, as kubectl would dump it.",
        "Tools",
    ),
    Entry(
        "schema", "kscale.cli.commands.schema:command", "Print the JSON Schema of a document kscale writes.", "Tools"
    ),
)


def place(section: str) -> int:
    """Return the index of a section in the help; unknown sections come last."""
    return SECTIONS.index(section) if section in SECTIONS else len(SECTIONS)


def find(words: str) -> Entry | None:
    """Return the command with exactly these words, or None."""
    return next((entry for entry in COMMANDS if entry.name == words), None)


def children(prefix: str) -> list[str]:
    """Return the words that may follow ``prefix`` (empty for the top level), in order, without duplicates."""
    depth = len(prefix.split())
    start = f"{prefix} " if prefix else ""
    return list(
        dict.fromkeys(
            entry.name.split()[depth] for entry in COMMANDS if entry.name.startswith(start) and entry.name != prefix
        )
    )


def expanders(incomplete: str) -> list[str]:
    """Return completions of a chain of expanders, by the names that it does not have yet."""
    from kscale.ca.expander.chain import EXPANDER_NAMES

    before, comma, last = incomplete.rpartition(",")
    used = set(before.split(","))
    return [f"{before}{comma}{name}" for name in EXPANDER_NAMES if name.startswith(last) and name not in used]


def strategy_names(incomplete: str) -> list[str]:
    """Return completions of the name of a built-in strategy."""
    from kscale.vpa.strategies import list_strategies

    return [name for name in list_strategies() if name.startswith(incomplete)]


def schema_kinds(incomplete: str) -> list[str]:
    """Return completions of the name of a document or input file that has a schema."""
    from kscale.schemas import DOCUMENTS, INPUTS

    return sorted(name for name in (*DOCUMENTS, *INPUTS) if name.lower().startswith(incomplete.lower()))


def complete_explain(incomplete: str) -> list[str]:
    """Return completions of the first argument of ``kscale explain``."""
    return [word for word in ("hpa",) if word.startswith(incomplete)]
