"""Batches that could only find again what the one before them found.

Of equal HPAs, scales, pods and values of metrics a batch decides the same again, unless time makes a difference: by the
age of pods, by what is remembered of sizes before, and by the age of samples. The first two are decided anew, over
columns; of the third a batch can be told that no difference is left to make.
"""

from __future__ import annotations

from dataclasses import replace

from kscale.effects import Moment
from kscale.hpa.batch import Reconciled
from kscale.hpa.decisions import decided_again
from kscale.hpa.options import HPAOptions

__all__ = ["is_settled", "repeated"]


def is_settled(found: Reconciled) -> bool:
    """Whether of all HPAs of a batch the columns said all, no size changed, and all samples were taken a whole window
    after the last pod became what it is: later ones then count as these (``groupPods``)."""
    if found.records or found.problems or found.unfinished or found.late or found.decisions.rescaled.any():
        return False
    samples, pods = found.given.samples, found.given.pods
    taken = samples.time[samples.present != 0]
    if not len(taken) or not len(pods):
        return not len(taken)
    return bool(taken.min() >= pods.transition.max() + samples.window.max())


def repeated(last: Reconciled, now: Moment, options: HPAOptions) -> Reconciled | None:
    """What a batch that decides at ``now`` leaves that finds what the last one found, with the same pods, scales and
    values. None: it finds something else."""
    decisions = decided_again(last.decisions, last.given, since=last.at, now=now, options=options)
    if decisions is None:
        return None
    return replace(last, histories=decisions.memory.histories, decisions=decisions, at=now, written={}, ends={})
