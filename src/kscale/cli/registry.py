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
    section: str

    def load_module(self) -> ModuleType:
        """Import the module of the command."""
        return import_module(self.function.partition(":")[0])

    def load(self) -> Callable[..., Any]:
        """Import the function of the command."""
        function: Callable[..., Any] = getattr(self.load_module(), self.function.partition(":")[2])
        return function


def _section(section: str, *rows: tuple[str, str, str]) -> list[Entry]:
    """Return the entries of a section: words, ``module:function`` below ``kscale.cli.commands``, and help line."""
    return [Entry(name, f"kscale.cli.commands.{function}", text, section) for name, function, text in rows]


SECTIONS = ("Capacity", "Autoscalers", "Live", "Tools")  # in the order of the help

# Order here is the order of the help within a section.
COMMANDS: tuple[Entry, ...] = (
    *_section(
        "Autoscalers",
        ("hpa", "hpa:decide_hpas", "What would the HorizontalPodAutoscalers do, and why."),
        ("explain hpa", "hpa:explain_hpas", "How an HPA computes its size, step by step."),
        ("replay hpa", "replay:replay_hpas", "HPAs over recorded load, in virtual time."),
        (
            "replay decisions",
            "replay:replay_decisions",
            "A simulated run again: the first decision that differs from its log.",
        ),
        ("recommend", "recommend:command", "Requests for every workload, from what its containers used."),
        ("vpa", "vpa:command", "What would the VPA's updater and admission do, and why they leave pods alone."),
        ("simulate", "simulate:command", "Autoscalers in a simulated cluster: cost, waiting pods, and what they did."),
        (
            "compare",
            "compare:command",
            "A scenario with the autoscalers of 2018 to 2020 and with today's, or with Karpenter, side by side.",
        ),
    ),
    *_section(
        "Capacity",
        ("estimate", "estimate:command", "How many nodes the pending pods need, and why not fewer."),
        ("mix", "mix:command", "The cheapest mix of node types, with a proven lower bound of its cost."),
        ("whatif", "whatif:command", "What each of many scenarios would change, and at what cost."),
        ("sweep", "sweep:command", "Thousands of scenarios for one or many clusters, on all cores or on Dask."),
        ("cost", "cost:command", "What the cluster costs per hour, what requests it, and what is idle."),
        ("explain", "explain:command", "Why a pod fits nowhere, with the arithmetic."),
        ("fit", "fit:command", "Would a manifest fit on the nodes that exist?"),
        ("scale-up", "scale_up:command", "Which node groups would grow, for which pods, and why."),
        ("scale-down", "scale_down:command", "Which nodes can be removed, and where their pods would move."),
        ("consolidate", "cluster.consolidate:command", "The steps from the running cluster to a cheaper one."),
        ("nodes", "cluster.nodes:command", "How full each node is, and which pods keep it."),
        ("drain", "cluster.drain:command", "What draining nodes evicts, what blocks it, and where pods land."),
        ("preempt", "cluster.preempt:command", "Whom kube-scheduler evicts for a pending pod, and why there."),
        ("diff", "cluster.diff:command", "What changed between two dumps: nodes, pods, requests, cost."),
        ("headroom", "headroom:command", "How many more copies of a pod fit, and what a lost node or zone does."),
    ),
    *_section(
        "Live",
        ("top", "cluster.top:command", "Nodes, pending pods and the autoscaler's next loop, followed on the terminal."),
        ("run cluster-autoscaler", "run.cluster_autoscaler:command", "The Cluster Autoscaler on a live cluster."),
        ("run horizontal", "run.horizontal:command", "The HorizontalPodAutoscaler controller on a live cluster."),
        (
            "run vpa-recommender",
            "run.vpa_recommender:command",
            "The Vertical Pod Autoscaler's recommender on a live cluster.",
        ),
        (
            "run vpa-updater",
            "run.vpa_updater:command",
            "The Vertical Pod Autoscaler's updater on a live cluster.",
        ),
        (
            "run vpa-admission",
            "run.vpa_admission:command",
            "The Vertical Pod Autoscaler's admission webhook on a live cluster.",
        ),
        (
            "manifests cluster-autoscaler",
            "manifests:print_cluster_autoscaler",
            "What the Cluster Autoscaler needs in a cluster, as YAML.",
        ),
        (
            "manifests horizontal",
            "manifests:print_horizontal",
            "What the horizontal pod autoscaler needs in a cluster, as YAML.",
        ),
        (
            "manifests vpa-crds",
            "manifests:print_vpa_crds",
            "The definitions of the Vertical Pod Autoscaler's resources, as YAML.",
        ),
        (
            "manifests vpa-recommender",
            "manifests:print_vpa_recommender",
            "What the Vertical Pod Autoscaler's recommender needs in a cluster, as YAML.",
        ),
        (
            "manifests vpa-updater",
            "manifests:print_vpa_updater",
            "What the Vertical Pod Autoscaler's updater needs in a cluster, as YAML.",
        ),
        (
            "manifests vpa-admission",
            "manifests:print_vpa_admission",
            "What the Vertical Pod Autoscaler's webhook needs in a cluster, as YAML.",
        ),
        (
            "manifests reader",
            "manifests:print_reader",
            "An account that may read what commands with --context need, as YAML.",
        ),
        ("serve expander", "serve:serve_expander", "Rank scale-up options for a Cluster Autoscaler, over gRPC."),
    ),
    *_section(
        "Tools",
        (
            "catalogue import",
            "catalogue:import_catalogue",
            "Import the machine types of a cloud, with prices, under a name.",
        ),
        ("catalogue list", "catalogue:list_catalogues", "The imported catalogues."),
        ("catalogue show", "catalogue:show_catalogue", "The types of a catalogue."),
        ("validate", "validate:command", "Check the objects of a dump, and report mistakes."),
        ("example", "generate:write_examples", "Write the files that the documentation works with."),
        ("generate", "generate:generate_cluster", "Make a realistic cluster of any size, as kubectl would dump it."),
        ("schema", "schema:command", "Print the JSON Schema of a document kscale writes."),
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
    """Return completions of a list of expanders: the list with each expander name that it does not contain yet."""
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
    """Return completions of the first argument of ``kscale explain``. ``incomplete``: the text typed so far.

    The only completion is ``hpa`` (for ``kscale explain hpa``), because names of pods are not known here. The list is
    empty if the text is not a beginning of ``hpa``.
    """
    return [word for word in ("hpa",) if word.startswith(incomplete)]
