"""What the metrics APIs answered for a batch of HPAs, so that each HPA finds what it would have been answered alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kscale.effects import ApiError, GetMetric
from kscale.hpa.queries import MetricLists
from kscale.objects.pod_metrics import PodUsage

__all__ = ["GatheredMetrics"]


class GatheredMetrics(MetricLists):
    """Answers by question. Those about resource metrics may be about all pods of a namespace; the rest is answered with
    what just this question was answered."""

    __slots__ = ("_refused", "answers")

    def __init__(self, answers: Mapping[GetMetric, Any]) -> None:
        lists = [each for each in answers.values() if isinstance(each, PodUsage)]
        super().__init__(resource=any(asked.api == "resource" for asked in answers))
        self.answers = answers
        """By question, as they came."""
        self._refused = {
            asked.namespace: found
            for asked, found in answers.items()
            if asked.api == "resource" and isinstance(found, ApiError)
        }
        if lists:
            self.replace_pod_metrics(PodUsage.joined(lists))

    def refusal(self, asked: GetMetric) -> ApiError | None:
        """Why a question about resource metrics has no answer."""
        return self._refused.get(asked.namespace) if asked.api == "resource" else None

    def __call__(self, query: GetMetric) -> Any:
        """The answer to one question that is not about resource metrics, or that was refused."""
        found = self.refusal(query)
        return self.answers[query] if found is None else found

    def unanswered(self) -> list[str]:
        """For each API that refused questions: how many, and the first reason."""
        out = []
        for api in dict.fromkeys(asked.api for asked in self.answers):
            answers = [found for asked, found in self.answers.items() if asked.api == api]
            refused = [found.message for found in answers if isinstance(found, ApiError)]
            if refused:
                name = "metrics.k8s.io" if api == "resource" else f"{api}.metrics.k8s.io"
                out.append(f"{len(refused):,} of {len(answers):,} answers of {name}: {refused[0]}")
        return out
