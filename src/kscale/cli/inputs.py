"""Input options of commands, reading of dumps, and messages about what was read.

The garbage collector is tuned only in kscale's own process, not where another program calls ``kscale.cli.app.app``.
"""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

import kscale
from kscale.cli.failures import convert_dump_errors
from kscale.cli.options import OptionGroup, option_errors
from kscale.cli.terminal import Terminal, format_counts, plural
from kscale.snapshot.caches import collector_paused

if TYPE_CHECKING:
    from kscale.errors import Problem
    from kscale.objects.api.meta import KubeObject
    from kscale.snapshot.cluster import Cluster
    from kscale.snapshot.loading import LoadReport
    from kscale.snapshot.manifests import Manifests
    from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "DUMP_COMMAND",
    "DUMP_HELP",
    "Dump",
    "Files",
    "NamingSource",
    "Source",
    "check_namespace",
    "collect_garbage_of_connections",
    "daemon_sets_alone",
    "freeze_objects",
    "kind_of",
    "log_read_objects",
    "manifests",
    "namespaces_of",
    "parse_duration_option",
    "parse_moment",
    "read",
    "read_cluster",
    "return_large_buffers",
    "start",
    "start_garbage_collector",
    "workloads_without_pods",
]


_GC_THRESHOLD: Final = 50_000
"""Objects that are created before the collector runs: decisions create very many, and few in cycles."""

_GC_THRESHOLD_OF_PROGRAMS: Final = 5_000
"""As above, for programs that run until they are stopped.

Each closed connection leaves some objects in cycles, which may hold its buffers. A collection that comes late would let
hostile clients occupy memory.
"""

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BUFFER: Final = 1 << 20

_is_own_process = False
"""Whether the process is the command's own."""


def start() -> None:
    """Stop the garbage collector while the process imports, as imported objects are not garbage.

    Also marks the process as kscale's own, so that :func:`start_garbage_collector` has an effect.
    """
    global _is_own_process  # noqa: PLW0603  # a process has one garbage collector
    _is_own_process = True
    gc.disable()


def start_garbage_collector() -> None:
    """Start the garbage collector, without the objects imported so far. Called when a command begins.

    Does nothing in another program's process.
    """
    if _is_own_process:
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        gc.enable()


def collect_garbage_of_connections() -> None:
    """Run the garbage collector often enough for a program with many short connections.

    Does nothing in another program's process.
    """
    if _is_own_process:
        gc.set_threshold(_GC_THRESHOLD_OF_PROGRAMS)


def return_large_buffers() -> None:
    """Let the C library return each freed buffer of 1 MiB or more to the system at once.

    Otherwise glibc raises this limit to the size of freed buffers, up to 32 MiB. Later large responses then lie between
    small objects, and a program holds much more memory than it uses. Does nothing in another program's process, and
    without glibc.
    """
    if _is_own_process:
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER)


def freeze_objects(*inputs: object) -> None:
    """Exclude all current objects from later garbage collections, and keep ``inputs`` until the process ends.

    Called after a dump was read, as it takes time to release many objects. Does nothing in another program's process.
    """
    if _is_own_process:
        gc.freeze()
        _kept_inputs.extend(inputs)


_kept_inputs: list[object] = []


def parse_moment(text: str, option: str = "--now") -> datetime:
    """Parse an option's RFC 3339 time.

    Raises typer.BadParameter if the text is malformed or outside the years 1678 to 2262.
    """
    from kscale.objects.times import nanoseconds, to_datetime

    with option_errors(option):
        if not -(1 << 63) < nanoseconds(text) < 1 << 63:
            raise ValueError(f"{text} is not between the years 1678 and 2262")
        return to_datetime(text)


def parse_duration_option(text: str, option: str) -> int:
    """Parse an option's Go duration as nanoseconds. Raises typer.BadParameter if it is malformed or negative."""
    from kscale.objects.times import parse_duration

    with option_errors(option):
        nanoseconds = parse_duration(text)
    if nanoseconds < 0:
        raise typer.BadParameter("a duration must not be negative", param_hint=option)
    return nanoseconds


_SHORT: Final = {
    "deploy": "Deployment",
    "rs": "ReplicaSet",
    "rc": "ReplicationController",
    "sts": "StatefulSet",
    "ds": "DaemonSet",
    "cj": "CronJob",
    "po": "Pod",
}
_KINDS: Final = {kind.lower(): kind for kind in (*_SHORT.values(), "Job")}


def kind_of(text: str) -> str:
    """Return the kind of a resource name such as ``deployments``, ``deploy`` or ``deployment.apps``.

    Other texts are returned unchanged.
    """
    name = text.lower().partition(".")[0]
    return _SHORT.get(name) or _KINDS.get(name) or _KINDS.get(name.removesuffix("s")) or text


DUMP_COMMAND = (
    "kubectl get nodes,pods,namespaces,services,deployments,replicasets,statefulsets,daemonsets,"
    "replicationcontrollers,jobs,cronjobs,poddisruptionbudgets,persistentvolumeclaims,persistentvolumes,"
    "storageclasses,csinodes,csidrivers,csistoragecapacities,volumeattachments,limitranges,resourcequotas,"
    "priorityclasses,runtimeclasses,horizontalpodautoscalers "
    "-A -o json"
)
# A paragraph after \b is printed without wrapping, so that it can be copied.
DUMP_HELP = f"""A full dump comes from

\b
{DUMP_COMMAND} > cluster.json

(add resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses where the cluster has them, and
verticalpodautoscalers). It needs the permission to list these kinds in all namespaces (the built-in ClusterRole view,
and list on nodes, persistentvolumes and the storage.k8s.io kinds) and nothing else: secrets and configmaps are not
read."""

SHOWN = 10  # warnings shown without -v

# Kinds whose absence changes a result, and what is assumed then.
_MATTER: dict[str, str] = {
    "PodDisruptionBudget": "every pod may be moved",
    "DaemonSet": "new nodes get only the DaemonSet pods of the node that their template copies",
    "PersistentVolumeClaim": "pods with claims cannot be judged",
    "PersistentVolume": "bound claims cannot be judged",
    "StorageClass": "unbound claims cannot be judged",
    "CSINode": "volume limits are not known",
    "Namespace": "namespace selectors match nothing",
    "ResourceSlice": "pods with device claims cannot be judged",
    "Service": "default spread constraints do not see services",
}


@dataclass(eq=False, repr=False, init=False)
class Files(OptionGroup):
    """The option that names the files to read.

    Attributes
    ----------
    filename : FILE
        A dump: file, directory, or - for stdin; JSON or YAML, .gz or .zst. Repeatable.
    """

    title = "Input"
    common = ("filename",)

    filename: Annotated[list[str], typer.Option("-f", "--filename")] = field(default_factory=list)

    def check(self) -> None:
        """Check the input options.

        Raises typer.BadParameter if nothing is named, a name is empty, or stdin is closed or named twice.
        """
        if not self.has_input:
            raise typer.BadParameter("nothing to read: name a dump, or - for stdin", param_hint="-f")
        if "" in self.filename:
            raise typer.BadParameter("an empty name is no file; . is this directory", param_hint="-f")
        if "-" in self.filename and sys.stdin is None:
            raise typer.BadParameter("stdin is closed", param_hint="-f")
        if self.filename.count("-") > 1:
            raise typer.BadParameter("stdin can be read once only, and - is named twice", param_hint="-f")

    @property
    def has_input(self) -> bool:
        """Return whether the options name any input."""
        return bool(self.filename) or self.live

    @property
    def live(self) -> bool:
        """Return whether a live cluster is read."""
        return False

    @property
    def source_names(self) -> str:
        """Return the names of the input files, separated by commas, for messages."""
        return ", ".join("stdin" if name == "-" else name for name in self.filename)

    @property
    def inputs(self) -> list[str]:
        """Return the names of the files and clusters that are read, for the header of a page."""
        return [self.source_names] if self.has_input else []

    def words(self) -> list[str]:
        """Return the ``-f`` options that name the input, as command-line words quoted for a shell."""
        return [word for name in self.filename for word in ("-f", shlex.quote(name))]


@dataclass(eq=False, repr=False, init=False)
class Dump(Files):
    """Options of commands that read the whole cluster.

    Attributes
    ----------
    skip_invalid
        Skip objects that cannot be read, and report their number.
    threads
        Number of threads. The result does not depend on it.
    """

    skip_invalid: bool = False
    threads: Annotated[int | None, typer.Option(min=1)] = None

    def unknown(self, kinds: Iterable[str]) -> Iterable[str]:
        """Return those of ``kinds`` that the cluster may have although :meth:`load` read none: for a dump, all."""
        return kinds

    def load(self, terminal: Terminal, update: Callable[[str], None]) -> Cluster:  # noqa: ARG002  # only for live clusters
        """Load the cluster from the files. Raises InputError if a file cannot be read.

        ``update``, for texts about the progress, is called for live clusters only.
        """
        with convert_dump_errors():
            return kscale.load(*self.filename, strict=not self.skip_invalid, threads=self.threads)


@dataclass(eq=False, repr=False, init=False)
class NamingSource(Dump):
    """Options of commands about named objects.

    Attributes
    ----------
    namespace
        Namespace of objects that are named without one.
    """

    common = ("namespace",)

    namespace: Annotated[str | None, typer.Option("-n", "--namespace")] = None


@dataclass(eq=False, repr=False, init=False)
class Source(NamingSource):
    """Options of commands about some of the pods.

    Attributes
    ----------
    namespace
        Answer for this namespace only.
    all_namespaces
        Answer for all namespaces (the default).
    selector
        Answer only for pods with these labels, such as app=web,tier!=db.
    """

    namespace: Annotated[str | None, typer.Option("-n", "--namespace")] = None
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces")] = False
    selector: Annotated[str, typer.Option("-l", "--selector")] = ""

    def check(self) -> None:
        """Check the input options. Raises typer.BadParameter for contradictions."""
        super().check()
        if self.namespace is not None and self.all_namespaces:
            raise typer.BadParameter("-n and -A exclude each other", param_hint="-n")

    def select_pods(self, cluster: Cluster, snapshot: Snapshot, terminal: Terminal) -> list[str] | None:
        """Return the keys of the pending pods that ``-n`` and ``-l`` select; None if all are.

        Raises typer.BadParameter for a malformed selector. Warns if the namespace is not in the input.
        """
        if self.namespace is None and not self.selector:
            return None
        from kscale.objects.selectors import parse_selector

        with option_errors("-l"):
            selector = parse_selector(self.selector)
        prefix = "" if self.namespace is None else f"{self.namespace}/"
        if self.namespace is not None:
            check_namespace(self.namespace, namespaces_of(cluster, snapshot), terminal)
        return [
            name
            for name in snapshot.pending
            if name.startswith(prefix) and (not self.selector or selector.matches(snapshot.pod(name).metadata.labels))
        ]


def manifests(names: Sequence[str], source: Files, terminal: Terminal, namespace: str | None = None) -> Manifests:
    """Read the manifests of ``--pod``, and log what was read.

    Objects without a namespace are in ``namespace``. Raises BadParameter if both ``--pod`` and ``-f`` read stdin, and
    InputError if the manifests have no workload.
    """
    from kscale.objects.kinds import DEFAULT_NAMESPACE
    from kscale.snapshot.manifests import read_manifests

    if "-" in names and "-" in source.filename:
        raise typer.BadParameter("stdin can be read once only, and - is named by -f too", param_hint="--pod")
    result = read_manifests(*names, namespace=namespace or DEFAULT_NAMESPACE)
    log_read_objects(result.report, ", ".join("stdin" if name == "-" else name for name in names), terminal)
    return result


def daemon_sets_alone(workloads: Iterable[KubeObject]) -> str:
    """Return a hint for manifests that hold only DaemonSets; empty for others."""
    from kscale.objects.api.apps import DaemonSet

    if not all(isinstance(workload, DaemonSet) for workload in workloads):
        return ""
    return (
        "Pods of DaemonSets need no nodes of their own: every new node carries them. "
        "kscale fit --pod asks about nodes that exist."
    )


def check_namespace(name: str | None, known: Iterable[str], terminal: Terminal) -> None:
    """Log a warning if the input does not have namespace ``name``, with similar names as a hint."""
    existing = set(known)
    if name is None or name in existing:
        return
    from difflib import get_close_matches

    similar = get_close_matches(name, existing, n=3)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
    terminal.warn(f'there is no namespace "{name}" in the input{hint}')


def namespaces_of(cluster: Cluster, snapshot: Snapshot) -> set[str]:
    """Return the namespaces of an input, both from Namespace objects and from pods."""
    return {item.name for item in cluster.all("Namespace")} | {key.partition("/")[0] for key in snapshot.table.keys}


def read(
    source: Dump, terminal: Terminal, *, matter: Iterable[str] = (), manifests: Manifests | None = None
) -> tuple[Cluster, Snapshot]:
    """Read the cluster from the sources, apply ``manifests``, and build its snapshot.

    Logs the number of objects per kind and the missing kinds of ``matter``. Warns about pods on unknown nodes and about
    pods (also those of the manifests' workloads) that cannot be judged without namespace labels.

    Returns
    -------
    cluster : Cluster
    snapshot : Snapshot

    Raises
    ------
    InputError
        If an object cannot be read.
    typer.BadParameter
        If the options contradict each other.
    """
    from kscale.objects.validation import missing_amounts
    from kscale.scheduling.plugins.inter_pod_affinity import count_pods_selecting_namespaces, format_namespace_warning

    added_kinds = set() if manifests is None else {item.kind for item in manifests.objects}
    cluster = read_cluster(source, terminal, matter=[kind for kind in matter if kind not in added_kinds])
    if manifests is not None:
        from kscale.snapshot.manifests import with_objects

        cluster = with_objects(cluster, manifests.objects)
    with terminal.step("preparing the snapshot"):
        snapshot = cluster.snapshot(dra=True)  # as the autoscaler of 1.37, where the flag is locked
    orphaned = snapshot.counts["on unknown nodes"]
    if orphaned:
        terminal.warn(f"{orphaned:,} {'pod runs' if orphaned == 1 else 'pods run'} on a node that is not in the input")
    lacking = [(node.name, missing) for node in cluster.nodes() if (missing := missing_amounts(node))]
    if lacking:
        name, missing = lacking[0]
        terminal.warn(
            f"{len(lacking):,} {'node lacks' if len(lacking) == 1 else 'nodes lack'} amounts in status.allocatable, "
            f"which count as 0 ({name}: {', '.join(missing)})"
        )
    in_doubt = count_pods_selecting_namespaces(snapshot, manifests.workloads if manifests is not None else ())
    if in_doubt:
        terminal.warn(format_namespace_warning(in_doubt))
    return cluster, snapshot


def read_cluster(source: Dump, terminal: Terminal, *, matter: Iterable[str] = ()) -> Cluster:
    """Read the cluster from the sources.

    Logs the number of objects per kind and the missing kinds of ``matter``. Raises InputError, or typer.BadParameter if
    the options contradict each other.
    """
    source.check()
    with terminal.step(f"reading {source.source_names}") as update, collector_paused():
        cluster = source.load(terminal, update)
        freeze_objects(cluster)
    if source.has_input:
        log_read_objects(cluster.report, source.source_names, terminal, source.unknown(matter))
    return cluster


def log_read_objects(report: LoadReport, what: str, terminal: Terminal, matter: Iterable[str] = ()) -> None:
    """Log the counts per kind, skipped and odd objects, and the kinds of ``matter`` that were not read.

    ``what``: names of the sources.
    """
    terminal.note(f"read {what}: {format_counts(report.read)}")
    if report.skipped:
        from kscale.objects.kinds import find_misspelled_kind

        meant = [name for kind in report.skipped if (name := find_misspelled_kind(kind))]
        hint = f"; did you mean {' and '.join(meant)}?" if meant else ""
        terminal.note(f"not modelled: {format_counts(report.skipped)}{hint}")
    if report.problems:
        left_out = len({(problem.source, problem.object) for problem in report.problems})
        terminal.warn(f"{left_out:,} of {report.total:,} objects could not be read and are left out:")
        _log_problems(report.problems, len(report.problems), terminal)
    if report.warnings:
        terminal.warn(f"the input has {report.warning_count:,} unusual {plural('object', report.warning_count)}:")
        _log_problems(report.warnings, report.warning_count, terminal)
    missing = [f"no {plural(kind, 2)} ({_MATTER[kind]})" for kind in matter if not report.read[kind]]
    if missing:
        terminal.note(f"missing: {'; '.join(missing)}")


def _log_problems(problems: Sequence[Problem], count: int, terminal: Terminal) -> None:
    """Log the first problems (all if ``verbose``), and how many of ``count`` in total are not shown."""
    shown = problems if terminal.verbose else problems[:SHOWN]
    for problem in shown:
        terminal.note(f"  {problem}")
    if count > len(shown):
        hint = "" if terminal.verbose else "; -v shows more"
        terminal.note(f"  ... and {count - len(shown):,} more{hint}.")


def workloads_without_pods(cluster: Cluster, how: str = "kscale estimate --pod FILE") -> str:
    """Return a hint for an input that has workloads but no pods; empty for other inputs.

    ``how``: the command that the hint recommends.
    """
    from kscale.objects.workloads import WORKLOADS

    counts = {kind: len(cluster.keys(kind)) for kind in WORKLOADS}
    if counts.pop("Pod") or not any(counts.values()):
        return ""
    workloads = format_counts({kind: count for kind, count in counts.items() if count})
    return f"The input has {workloads}, but no Pods. {how} asks about the pods that the workloads of FILE would create."
