"""The options of expanders: what each needs, and what it is given."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kscale.errors import InputError, Problem
from kscale.files import read_file

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kscale.ca.expander.types import ExpanderInput
    from kscale.ca.options import AutoscalingOptions
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.objects.nodegroup import NodeGroup

__all__ = ["check_expanders", "expander_input", "ranker"]


def check_expanders(options: AutoscalingOptions) -> None:
    from kscale.ca.errors import AutoscalerError
    from kscale.ca.expander.registry import EXPANDER_NAMES, GRPC, build_chain

    try:
        build_chain(options.expander_names)
    except AutoscalerError as error:
        raise typer.BadParameter(f"{error}; there are {', '.join(EXPANDER_NAMES)}", param_hint="--expander") from None
    if GRPC in options.expander_names and not options.legacy:
        if not options.grpc_expander_url:
            raise typer.BadParameter("the grpc expander needs --grpc-expander-url", param_hint="--expander")
        if not options.grpc_expander_cert:
            text = "GRPC Expander Cert not specified, insecure connections not allowed: give --grpc-expander-cert"
            raise typer.BadParameter(text, param_hint="--expander")


def ranker(options: AutoscalingOptions) -> AbstractContextManager[GrpcExpander | None]:
    """Who answers for the grpc expander."""
    if "grpc" not in options.expander_names or options.legacy:  # which release 1.3 did not have
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
    """The data of the ConfigMap. A file that is none is the value of its key; what that is worth, the expander says."""
    import yaml

    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", str(path))) from None
    try:
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # such as a date that there is not
        found = None
    if not isinstance(found, dict) or found.get("kind") != "ConfigMap":
        return {"priorities": text}
    data = found.get("data") or {}
    if not isinstance(data, dict):
        raise InputError(Problem("is no object", str(path), "ConfigMap", "data"))
    wrong = [key for key, value in data.items() if not isinstance(value, str)]
    if wrong:
        raise InputError([Problem("is no text", str(path), "ConfigMap", f"data[{key}]") for key in wrong])
    return {str(key): value for key, value in data.items()}
