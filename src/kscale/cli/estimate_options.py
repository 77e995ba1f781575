"""Options of estimates and decisions: bounds, CSI nodes, GPU labels, loop state, expanders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kscale.cli.inputs import parse_moment
from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal
from kscale.errors import InputError, Problem, StateError
from kscale.files import read_file, replace_file
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kscale.ca.expander.types import ExpanderInput
    from kscale.ca.loop_state import LoopState
    from kscale.ca.options import AutoscalingOptions
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.snapshot.snapshot import Snapshot

__all__ = ["BoundSource", "CSIOption", "GpuLabel", "LoopMemory", "check_expanders", "expander_input", "ranker"]


class Method(StrEnum):
    """Method of the lower bound."""

    FAST = "fast"
    LP = "lp"


@dataclass(eq=False, repr=False, init=False)
class BoundSource(OptionGroup):
    """Options of the lower bound on the number or cost of nodes.

    Attributes
    ----------
    bound
        Method of the lower bound. fast: sums and sorting; lp: also linear programming (extra [solver]; about 50 ms).
        Default: lp if the extra is installed.
    """

    title = "Details of the decision"

    bound: Method | None = None

    def effort(self, count: int) -> int:
        """Return the work limit, in the solver's units, for the bound of each of ``count`` groups.

        0 without a solver or with ``--bound fast``. The limits of all groups add up to at most that of ten. Raises
        MissingExtraError for ``--bound lp`` without a solver.
        """
        from kscale.capacity.estimate import BOUND_EFFORT
        from kscale.errors import MissingExtraError
        from kscale.scheduling.bounds.master import have_solver

        solver = have_solver()
        if self.bound is Method.LP and not solver:
            raise MissingExtraError("--bound lp", "solver")
        if self.bound is Method.FAST or not solver:
            return 0
        return min(BOUND_EFFORT, 10 * BOUND_EFFORT // max(count, 1))

    @property
    def threads(self) -> int:
        """Return the number of threads for the bound (at most 8). The bound does not depend on it."""
        return min(os.cpu_count() or 1, 8)


@dataclass(eq=False, repr=False, init=False)
class CSIOption(OptionGroup):
    """Whether new nodes get their template's CSINode, which has the CSI drivers and their volume limits.

    Attributes
    ----------
    enable_csi_node_aware_scheduling
        Check the CSI drivers and attach limits of new nodes, as the Cluster Autoscaler does with this flag. Every node
        must then have a CSINode.
    """

    title = "Details of the decision"

    enable_csi_node_aware_scheduling: bool = False

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot; with the option, one in which new nodes have their template's CSINode.

        Raises AutoscalerError if a node has no CSINode then.
        """
        if not self.enable_csi_node_aware_scheduling:
            return snapshot
        from kscale.ca.loop_context import check_csi_nodes

        aware = snapshot.csi_aware()
        check_csi_nodes(aware)
        return aware

    def words(self) -> list[str]:
        """Return the option as command-line words; empty if it is off."""
        return ["--enable-csi-node-aware-scheduling"] if self.enable_csi_node_aware_scheduling else []


@dataclass
class GpuLabel(OptionGroup):
    """Option for the GPU label. By default a cloud's label, if the nodes or groups carry one.

    Attributes
    ----------
    gpu_label : KEY
        The node label that names the type of GPU. Default: that of GKE, EKS, AKS or Cluster API, if the nodes have
        one.
    """

    title = "Details of the decision"

    gpu_label: str | None = None

    def key(self, nodes: Iterable[Node], groups: Iterable[NodeGroup], terminal: Terminal) -> str:
        """Return the node label that names the GPU type.

        ``--gpu-label`` if it is set, else the only known cloud label on the nodes and templates, else the default
        label. Warns if there are labels of several clouds.
        """
        from kscale.ca.gpu import DEFAULT_GPU_LABEL, find_cloud_gpu_labels

        if self.gpu_label:
            return self.gpu_label
        labels = [node.metadata.labels or {} for node in nodes]
        for group in groups:
            labels.append(group.labels or {})
            if group.template is not None:
                labels.append(group.template.node.metadata.labels or {})
        cloud_labels = find_cloud_gpu_labels(labels)
        if len(cloud_labels) == 1:
            terminal.note(f"types of GPUs by the label {cloud_labels[0]} (--gpu-label)")
            return cloud_labels[0]
        if cloud_labels:
            terminal.warn(
                f"nodes have labels of several clouds for GPUs: {', '.join(cloud_labels)}; say which (--gpu-label)"
            )
        return DEFAULT_GPU_LABEL


@dataclass
class LoopMemory(OptionGroup):
    """Options for the time of a loop and for the state that is passed from run to run.

    Attributes
    ----------
    state : FILE
        File with the state of an earlier run; read if it exists.
    save_state : FILE
        File to write the state for the next run to.
    now : TIME
        The time of the decision, RFC 3339; default: now.
    """

    title = "State and time"

    state: Path | None = None
    save_state: Path | None = None
    now: str | None = None

    def moment(self) -> datetime:
        """Return the time of the loop: ``--now``, or the current time. Raises typer.BadParameter if it is malformed."""
        return datetime.now(UTC) if self.now is None else parse_moment(self.now)

    def load_state(self) -> LoopState | None:
        """Return the state that an earlier run saved; None if ``--state`` is not set or the file does not exist.

        Raises StateError if the file is not a loop state.
        """
        from kscale.ca.loop_state import LoopState

        if self.state is None or not self.state.exists():
            return None
        try:
            return LoopState.from_json(read_file(self.state))
        except StateError as error:
            raise StateError(f"{self.state}: {error}") from None

    def save(self, state: LoopState) -> None:
        """Write the state to the file of ``--save-state``, if it is set. Raises OSError if that fails."""
        if self.save_state is not None:
            replace_file(self.save_state, state.to_json())


def check_expanders(options: AutoscalingOptions) -> None:
    """Raise BadParameter for an unusable ``--expander``, or a grpc expander without address or certificate."""
    from kscale.ca.errors import AutoscalerError
    from kscale.ca.expander.chain import EXPANDER_NAMES, GRPC_EXPANDER, build_expander_chain

    try:
        build_expander_chain(options.expander_names)
    except AutoscalerError as error:
        raise typer.BadParameter(f"{error}; there are {', '.join(EXPANDER_NAMES)}", param_hint="--expander") from None
    if GRPC_EXPANDER in options.expander_names and not options.legacy:
        if not options.grpc_expander_url:
            raise typer.BadParameter("the grpc expander needs --grpc-expander-url", param_hint="--expander")
        if not options.grpc_expander_cert:
            text = "GRPC Expander Cert not specified, insecure connections not allowed: give --grpc-expander-cert"
            raise typer.BadParameter(text, param_hint="--expander")


def ranker(options: AutoscalingOptions) -> AbstractContextManager[GrpcExpander | None]:
    """Return a context manager with the client of the grpc expander, or with None if that expander is not used."""
    if "grpc" not in options.expander_names or options.legacy:  # release 1.3 had no grpc expander
        return nullcontext()
    from kscale.drivers.grpc_expander import GrpcExpander

    return GrpcExpander(options.grpc_expander_url, options.grpc_expander_cert)


def expander_input(
    names: Iterable[str],
    groups: Iterable[NodeGroup],
    config: Path | None,
    per_core: float | None,
    per_gib: float | None,
) -> ExpanderInput:
    """Return the inputs of the expanders ``names``: priorities from the file ``config``, and prices.

    ``per_core``, ``per_gib``: $ per hour that requested CPU and memory are worth. Raises InputError for a group without
    a price that the price expander needs, and BadParameter for options that are missing or have no effect.
    """
    from kscale.ca.expander.types import ExpanderInput

    if "price" in names:
        unpriced = [group.id for group in groups if group.price is None]
        if unpriced:
            raise InputError(
                [
                    Problem("the price expander needs a price", object=f"node group {name}", field="price")
                    for name in unpriced
                ]
            )
    if "priority" in names and config is None:
        raise typer.BadParameter("the priority expander needs --priority-config", param_hint="--expander")
    if "priority" not in names and config is not None:
        raise typer.BadParameter("needs --expander priority", param_hint="--priority-config")
    if "price" not in names and (per_core is not None or per_gib is not None):
        raise typer.BadParameter("needs --expander price", param_hint="--price-per-core-hour, --price-per-gib-hour")
    for option, rate in (("--price-per-core-hour", per_core), ("--price-per-gib-hour", per_gib)):
        if rate is not None and not isfinite(rate):
            raise typer.BadParameter(f"{rate} is no price", param_hint=option)
    return ExpanderInput(
        priorities=None if config is None else _config_map(config),
        price_per_core_hour=per_core,
        price_per_gib_hour=per_gib,
    )


def _config_map(path: Path) -> dict[str, str]:
    """Return the data of the ConfigMap in a file. Any other text becomes the value of the key ``priorities``.

    Raises InputError if the file is not UTF-8 or the ConfigMap's data are not texts, and OSError if it cannot be read.
    """
    import yaml

    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", str(path))) from None
    try:
        document: Any = yaml.safe_load(text)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        LookupError,
        AttributeError,
        TypeError,
    ):  # as for an invalid date
        document = None
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return {"priorities": text}
    data = document.get("data") or {}
    if not isinstance(data, dict):
        raise InputError(Problem("is no object", str(path), "ConfigMap", "data"))
    wrong = [key for key, value in data.items() if not isinstance(value, str)]
    if wrong:
        raise InputError([Problem("is no text", str(path), "ConfigMap", f"data[{key}]") for key in wrong])
    return {str(key): value for key, value in data.items()}
