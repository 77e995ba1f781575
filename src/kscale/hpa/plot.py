"""A replay as a picture (extra ``[plots]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kscale.errors import InputError, MissingExtraError
from kscale.hpa.moments import SECOND
from kscale.hpa.replay import Replay

__all__ = ["plot"]


def plot(runs: Sequence[Replay], path: Path) -> None:
    """Load and capacity above, replicas below, over hours; PNG or SVG by the file's suffix."""
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"{path}: a plot is written as .png or .svg")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plotting", "plots") from None
    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    hours = (runs[0].time - runs[0].time[0]) / (3600 * SECOND)
    above.plot(hours, runs[0].load, color="black", linewidth=0.8, label="load")
    for run in runs:
        above.plot(hours, run.capacity, linewidth=0.8, label=f"{run.name}: capacity at target")
        below.step(hours, run.replicas, where="post", linewidth=0.8, label=run.name)
    above.set_ylabel("load")
    below.set_ylabel("replicas")
    below.set_xlabel("hours")
    for axes in (above, below):
        axes.legend(loc="upper left", fontsize="small")
        axes.set_ylim(bottom=0)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
