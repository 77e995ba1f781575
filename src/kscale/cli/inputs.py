"""What a command reads: the shared options, the reading, and saying on stderr what was read and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

import kscale
from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal

__all__ = ["DUMP_COMMAND", "DUMP_HELP", "Source", "counted", "plural", "read", "say_read"]

DUMP_COMMAND = (
    "kubectl get nodes,pods,namespaces,services,deployments,replicasets,statefulsets,daemonsets,"
    "replicationcontrollers,jobs,cronjobs,poddisruptionbudgets,persistentvolumeclaims,persistentvolumes,"
    "storageclasses,csinodes,csidrivers,csistoragecapacities,volumeattachments,limitranges,horizontalpodautoscalers "
    "-A -o json"
)
DUMP_HELP = (
    f"A full dump comes from: {DUMP_COMMAND} > cluster.json (add resourceclaims,resourceslices,deviceclasses where "
    "the cluster has them, and verticalpodautoscalers). It needs the permission to list these kinds in all namespaces "
    "(the built-in ClusterRole view, and list on nodes, persistentvolumes and the storage.k8s.io kinds), and nothing "
    "else; secrets and configmaps are not read."
)

SHOWN = 10  # warnings said without -v

# Kinds whose absence changes an answer, and what is then taken for granted.
_MATTER: dict[str, str] = {
    "PodDisruptionBudget": "every pod may be moved",
    "DaemonSet": "new nodes are taken to carry the DaemonSet pods of the node they are modelled on only",
    "PersistentVolumeClaim": "pods with claims cannot be judged",
    "PersistentVolume": "bound claims cannot be judged",
    "StorageClass": "unbound claims cannot be judged",
    "CSINode": "volume limits are not known",
    "Namespace": "namespace selectors match nothing",
    "ResourceSlice": "pods with device claims cannot be judged",
    "Service": "default spread constraints do not see services",
}


@dataclass
class Source(OptionGroup):
    """The options that say what is read, and which pods the question is about."""

    filename: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="A dump: file, directory, or - for stdin; JSON or YAML, .gz or .zst. Repeatable.",
        ),
    ] = field(default_factory=list)
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Ask about the pods of this namespace only.")
    ] = None
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Ask about all namespaces (the default).")
    ] = False
    selector: Annotated[
        str, typer.Option("-l", "--selector", help="Ask about the pods with these labels only, e.g. app=web,tier!=db.")
    ] = ""
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Go on without the objects that cannot be read; they are counted.")
    ] = False
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads to use; the answer never depends on it.")
    ] = None


def read(source: Source, terminal: Terminal, *, matter: Iterable[str] = ()) -> Any:
    """The cluster in the sources; what was read is said on stderr, with the kinds of ``matter`` that are missing."""
    if not source.filename:
        raise typer.BadParameter("nothing to read: name a dump, or - for stdin", param_hint="-f")
    if source.namespace is not None and source.all_namespaces:
        raise typer.BadParameter("-n and -A exclude each other", param_hint="-n")
    what = ", ".join("stdin" if name == "-" else name for name in source.filename)
    with terminal.step(f"reading {what}"):
        cluster = kscale.load(*source.filename, strict=not source.skip_invalid)
    say_read(cluster, what, terminal, matter)
    return cluster


def say_read(cluster: Any, what: str, terminal: Terminal, matter: Iterable[str] = ()) -> None:
    """On stderr: the counts per kind, the kinds of ``matter`` that are missing, and what was warned about."""
    terminal.note(f"read {what}: {counted(cluster.counts)}")
    for problem in cluster.problems if terminal.verbose else cluster.problems[:SHOWN]:
        terminal.warn(f"left out: {problem}")
    for warning in cluster.warnings if terminal.verbose else cluster.warnings[:SHOWN]:
        terminal.warn(str(warning))
    unsaid = len(cluster.problems[SHOWN:]) + len(cluster.warnings[SHOWN:])
    if unsaid and not terminal.verbose:
        terminal.note(f"  ... and {unsaid:,} more; -v shows all.")
    missing = [f"no {plural(kind, 2)} ({_MATTER[kind]})" for kind in matter if not cluster.counts.get(kind)]
    if missing:
        terminal.note(f"missing: {'; '.join(missing)}")


def counted(counts: Mapping[str, int]) -> str:
    """``48 nodes, 2,310 pods, 1 deployment``: the counts per kind as a sentence's part."""
    return ", ".join(f"{count:,} {plural(kind, count)}" for kind, count in counts.items()) or "nothing"


def plural(word: str, count: int) -> str:
    """``word`` as English wants it beside ``count``."""
    if count == 1:
        return word
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"
