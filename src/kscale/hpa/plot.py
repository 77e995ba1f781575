"""A replay as a picture (extra ``[plots]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kscale.effects import SECOND
from kscale.errors import InputError
from kscale.files import replacing
from kscale.hpa.replay import Replay
from kscale.libraries import library

__all__ = ["plot"]


def plot(runs: Sequence[Replay], path: Path) -> None:
    """Load and capacity of each metric above, replicas below, over hours; PNG or SVG by the file's suffix."""
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"{path}: a plot is written as .png or .svg")
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics))
    figure = library("matplotlib.figure", "plotting").Figure(figsize=(10, 3 * (len(metrics) + 1)), layout="constrained")
    panels = figure.subplots(len(metrics) + 1, 1, sharex=True)
    for run in runs:
        hours = (run.time - runs[0].time[0]) / (3600 * SECOND)
        for name, load, capacity in zip(run.metrics, run.load, run.capacity, strict=True):
            axes = panels[metrics.index(name)]
            if not axes.lines:
                axes.plot(hours, load, color="black", linewidth=0.8, label="load")
                axes.set_ylabel(name)
            axes.plot(hours, capacity, linewidth=0.8, label=f"{run.name}: capacity at target")
        panels[-1].step(hours, run.replicas, where="post", linewidth=0.8, label=run.name)
    panels[-1].set_ylabel("replicas")
    panels[-1].set_xlabel("hours")
    for axes in panels:
        axes.legend(loc="upper left", fontsize="small")
        axes.set_ylim(bottom=0)
    try:
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
