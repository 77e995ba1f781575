"""The integer program over the fillings of a dive: it closes gaps that the dive leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

import kscale
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.mix import solve

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_small_mix_is_cheaper_than_a_dive_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("highspy", reason="the extra [solver] is not installed")
    cluster = kscale.load(EXAMPLES / "cluster.json.gz")
    offers = [
        kscale.Offer(
            name=f"{kind.name}-{zone}",
            type=kind.name,
            zone=zone,
            template=kind.template(zone=zone, region="us-east-1"),
            price=kind.price() or 0.0,
        )
        for kind in read_catalogue(EXAMPLES / "data" / "aws.csv").values()
        if kind.arch == "amd64"
        for zone in ("us-east-1a", "us-east-1b", "us-east-1c")
    ]
    whole = kscale.mix(cluster, offers)
    monkeypatch.setattr(solve, "cheaper", lambda kinds, master, packed, effort: packed)
    dived = kscale.mix(cluster, offers)
    assert whole.cost < dived.cost * 0.97
    assert (whole.pods, whole.nowhere, whole.bound.cost) == (dived.pods, dived.nowhere, dived.bound.cost)
    assert whole.bound.cost is not None
    assert whole.bound.cost <= whole.cost
