"""What is kept with a snapshot: one value of each type, and never in a pickle."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from kscale.snapshot.caches import TypedCache


class Squares(dict[int, int]):
    pass


def test_value_is_created_once() -> None:
    memo, created = TypedCache(), []

    def make() -> Squares:
        created.append(1)
        return Squares({2: 4})

    assert memo.get(Squares, make) is memo.get(Squares, make)
    assert created == [1]
    memo.clear()
    assert memo.get(Squares, make) == {2: 4}
    assert created == [1, 1]


def test_an_empty_value_is_a_value() -> None:
    memo = TypedCache()
    assert memo.get(Squares, Squares) is memo.get(Squares, Squares)


def test_threads_get_the_same_value() -> None:
    memo, ready = TypedCache(), Barrier(4)

    def ask() -> int:
        ready.wait()
        return id(memo.get(Squares, Squares))

    with ThreadPoolExecutor(4) as pool:
        assert len({future.result() for future in [pool.submit(ask) for _ in range(4)]}) == 1


def test_nothing_is_pickled_or_copied() -> None:
    memo = TypedCache()
    memo.get(Squares, lambda: Squares({2: 4}))
    for other in (pickle.loads(pickle.dumps(memo)), copy.copy(memo), copy.deepcopy(memo)):
        assert other.get(Squares, Squares) == {}
