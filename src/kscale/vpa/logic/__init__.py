"""From merged histograms to recommendations (upstream: ``pkg/recommender/logic``)."""

from __future__ import annotations

from kscale.vpa.logic.estimators import Amounts, estimate, minimums
from kscale.vpa.logic.recommender import recommended_amounts

__all__ = ["Amounts", "estimate", "minimums", "recommended_amounts"]
