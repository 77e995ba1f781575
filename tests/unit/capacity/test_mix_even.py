"""Bins that are filled evenly: all items are in them, they hold what is in them, and small items lose little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import is_nightly
from kscale.capacity.mix.heuristics import pack_evenly
from kscale.capacity.mix.packing import Packed
from kscale.scheduling.bounds.effort import Effort
from kscale.scheduling.bounds.instance import UNLIMITED, BinKinds
from kscale.scheduling.bounds.mixed_bins import Fluid

pytest.importorskip("highspy", reason="the extra [solver] is not installed")


def looked_at(kinds: BinKinds, packed: Packed) -> None:
    """Every bin holds what is in it, there are no more bins than may be, and nothing was lost or made."""
    for kind, pattern in zip(packed.kind.tolist(), packed.pattern, strict=True):
        assert kinds.can_hold(pattern)[kind]
    assert (packed.copies @ packed.pattern + packed.missing == kinds.count).all()
    used = np.bincount(packed.kind, packed.copies, kinds.size).astype(np.int64)
    assert (used >= kinds.least).all()
    assert (used <= np.where(kinds.available == UNLIMITED, used, kinds.available)).all()


@st.composite
def kinds_of_bins(draw: st.DrawFn) -> BinKinds:
    classes, size = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    return BinKinds.of(
        [[draw(st.integers(0, 6)), draw(st.integers(0, 6))] for _ in range(classes)],
        [draw(st.integers(0, 30)) for _ in range(classes)],
        [[draw(st.integers(1, 20)), draw(st.integers(1, 20))] for _ in range(size)],
        [draw(st.integers(1, 9)) for _ in range(size)],
        allowed=[[draw(st.booleans()) for _ in range(size)] for _ in range(classes)],
        max_per_bin=[draw(st.integers(1, 40)) for _ in range(classes)],
        available=[draw(st.sampled_from([UNLIMITED, UNLIMITED, 3, 0])) for _ in range(size)],
    )


@given(kinds_of_bins())
def test_everything_is_somewhere_and_fits(kinds: BinKinds) -> None:
    packed = pack_evenly(kinds, Effort())
    if packed is None:
        assert not kinds.count.any()
        return
    looked_at(kinds, packed)
    endless = kinds.available == UNLIMITED
    assert not packed.missing[kinds.most[endless].any(axis=0)].any(), "a bin of an endless kind takes it"


def mixture(seed: int) -> BinKinds:
    """Items that ask for cpu and items that ask for memory, small against bins; some only in the dear kind, of some no
    two in one bin."""
    random = np.random.default_rng(seed)
    demand = random.integers(1, 25, size=(60, 2))
    demand[::2, 1] //= 4
    demand[1::2, 0] //= 4
    allowed = np.ones((60, 2), dtype=bool)
    allowed[:12, 1] = False
    count = random.integers(1, 40, size=60)
    count[5] = 9
    most = np.where(np.arange(60) == 5, 1, 1_000)
    return BinKinds.of(demand, count, [[200, 200], [100, 60]], [200, 70], allowed=allowed, max_per_bin=most)


def test_small_items_lose_next_to_nothing() -> None:
    """All together. Of flows that cost the same each version of the solver has its own, and one of these instances may
    need a bin or two more for it: of 20 none lost over 2.1 % with HiGHS 1.16, none over 2.8 % with 1.15."""
    cost = proven = 0
    for kinds in map(mixture, range(10 if is_nightly() else 5)):
        packed, proof = pack_evenly(kinds, Effort()), Fluid(kinds).bound()
        assert packed is not None
        assert proof is not None
        looked_at(kinds, packed)
        assert not packed.missing.any()
        assert packed.cost(kinds) <= proof.value * 1.03
        cost, proven = cost + packed.cost(kinds), proven + proof.value
    assert cost <= proven * 1.012


def test_too_many_kinds_are_left_to_others() -> None:
    kinds = BinKinds.of([[1]], [5], [[10]] * 13, [1] * 13)
    assert pack_evenly(kinds, Effort()) is None
    assert pack_evenly(kinds.only(np.arange(12)), Effort()) is not None
    assert pack_evenly(kinds.only(np.arange(12)), Effort(0)) is None, "there is no time for it"
