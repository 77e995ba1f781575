"""What a dump of a live cluster lacks, asked for: scales that were not listed, and what the metrics APIs answer."""

from __future__ import annotations

from kscale.effects import Discover, Moment, Progress, Steps
from kscale.hpa.batch_pods import batch_pods
from kscale.hpa.dump import Dump
from kscale.hpa.encode import Observed, choose
from kscale.hpa.gathering import are_usual, gather_metrics, gather_scales
from kscale.hpa.options import HPAOptions
from kscale.hpa.state import ControllerState
from kscale.objects.autoscaling import Scale
from kscale.objects.rest_mapping import RESTMapper

__all__ = ["ask_for_rest"]


def ask_for_rest(dump: Dump, state: ControllerState | None, options: HPAOptions, now: Moment) -> Steps[None]:
    """Asks what :meth:`Dump.decide <kscale.hpa.dump.Dump.decide>` with ``state`` and ``options`` needs beside the
    objects in ``dump``, as the controller asks it. Afterwards the dump is of the moment at which all was answered; what
    was not is in ``unanswered``, and an error of those HPAs that need it."""
    progress = Progress(now)
    hpas, keys = list(dump.hpas.values()), list(dump.hpas)
    unanswered = []
    mapper = RESTMapper()
    if not are_usual(hpas):
        outcome = yield from progress.act(Discover())
        if outcome.error is None:
            mapper = outcome.value
        else:
            unanswered.append(f"what the server serves: {outcome.error.message}")
    dump.known_mapper = mapper
    found = dump.scales()
    listed = {key: scale for key, scale in found.items() if isinstance(scale, Scale)}
    gathered = yield from gather_scales(progress, hpas, keys, listed, mapper, options.workers)
    scales = {**found, **gathered}  # of a kind that is not served there is nothing to gather, but an error
    pods = batch_pods(dump.pods.cluster)
    observed = Observed.of(hpas, scales, pods, dump.metrics, None, mapper)
    chosen = choose(observed, dump.settled() if state is None else state, options)
    metrics = yield from gather_metrics(progress, chosen.questions(), options.workers)
    metrics.know_pods(dump.pods.cluster)
    dump.known_scales, dump.metrics = scales, metrics
    dump.unanswered = [*unanswered, *metrics.unanswered()]
    dump.newest = progress.now
