"""Pods as columns: the kernel against the slow reference, and the arguments it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _projection
from kscale.errors import NativeError
from kscale.snapshot.columns import READY
from reference.pod_columns import is_usual, key_of, moments_of, row_of

NAMES = st.one_of(
    st.text("abyz0189-.", max_size=12),
    st.text("ab-.A_\xe9 ", max_size=6),
    st.integers(250, 256).map(lambda n: "a" * n),
).map(str.encode)
TIMES = st.one_of(
    st.datetimes().map(lambda t: f"{t.year:04}-{t.month:02}-{t.day:02}T{t.hour:02}:{t.minute:02}:{t.second:02}Z"),
    st.tuples(*[st.integers(0, 99)] * 7).map(lambda n: "{:02}{:02}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*n)),
    st.text("0129-:TZ+.", min_size=19, max_size=21),
    st.sampled_from(("2024-02-29T23:59:59Z", "2026-02-29T00:00:00Z", "2100-02-29T00:00:00Z")),
    st.text("0123456789", max_size=12).map("2026-03-01T12:00:00.{}Z".format),
).map(str.encode)

NUMBERS = st.one_of(
    st.integers(0, 10**20).map(str), st.integers(0, 99).map("{:03}".format), st.text("0123456789+-. x", max_size=5)
).map(str.encode)


STATES = (0, 4)
LOOKS = st.fixed_dictionaries({
    "priority": st.integers(-(2**31), 2**31), "waiting": st.integers(-2, 2), "settled": st.integers(-2, 2),
    "waiting_shape": st.integers(0, 2), "settled_shape": st.integers(0, 2), "controller": st.integers(-1, 2),
    "queueing": st.integers(-2, 2), "unplaced": st.integers(1, 3), "phase": st.integers(0, 5),
    "known": st.integers(0, 9).map(bool), "done": st.booleans(), "bare": st.booleans(),
})  # fmt: skip
TEXTS = st.fixed_dictionaries({
    "name": st.just(b"web-1") | st.none() | NAMES,
    "namespace": st.none() | st.text(max_size=4).map(str.encode),
    "uid": st.none() | st.binary(max_size=3),
    "node": st.none() | st.sampled_from((b"", b"n1")),
    "nominated": st.none() | st.sampled_from((b"", b"n2")),
    **dict.fromkeys(("created", "started", "deleted", "since"), st.none() | TIMES),
    "ready": st.none() | st.sampled_from((*(text.encode() for text in READY), b"true")),
    "version": st.none() | NUMBERS,
    "managed": st.none() | st.binary(max_size=3),
})  # fmt: skip


def laid_out(pods: list[dict[str, bytes | None]]) -> dict[str, Any]:
    """A text that holds those of pods, and where they are in it."""
    data, at, length = b"#", [], []
    for name in _projection.POD_SLOTS:
        for pod in pods:
            at.append(len(data))
            length.append(-1 if pod[name] is None else len(pod[name] or b""))
            data += pod[name] or b""
    shape = len(_projection.POD_SLOTS), len(pods)
    return {
        "data": data,
        "at": np.array(at, np.int64).reshape(shape),
        "length": np.array(length, np.int64).reshape(shape),
        "begin": np.arange(len(pods), dtype=np.int64),
        "size": np.full(len(pods), 7, np.int64),
    }


def table_of(looks: list[dict[str, Any]]) -> Any:
    names = _projection.POD_LOOKS.names or ()
    return np.array([tuple(each[name] for name in names) for each in looks], _projection.POD_LOOKS)


@given(
    st.lists(st.tuples(TEXTS, st.integers(-2, 2), st.sampled_from((7, 2**31))), max_size=8),
    st.lists(LOOKS, min_size=4, max_size=4),
    st.booleans(),
)
def test_read_pods(
    given_pods: list[tuple[dict[str, Any], int, int]], looks: list[dict[str, Any]], listed: bool
) -> None:
    looks[0] |= {"known": True, "waiting": -1, "settled": -1}  # of none
    pods = [texts for texts, _, _ in given_pods]
    combined = [number for _, number, _ in given_pods]
    own = [looks[max(number, -1) + 1] for number in combined]
    created = laid_out(pods) | {"size": np.array([size for _, _, size in given_pods], np.int64)}
    read = _projection.read_pods(
        listed=listed, first=5, combined=np.array(combined, np.int32), states=STATES, namespace="default",
        looks=table_of(looks), **created,
    )  # fmt: skip
    usual = [
        is_usual(texts, kind, number, size, listed) for (texts, number, size), kind in zip(given_pods, own, strict=True)
    ]
    if None in usual:
        assert read is None
        return
    assert read is not None
    fast, keys, columns, odd = read
    assert fast.tolist() == usual
    chosen = [i for i, each in enumerate(usual) if each]
    assert keys == [key_of(pods[i], "default") for i in chosen]
    column = dict(zip(_projection.POD_COLUMNS, columns.tolist(), strict=True))
    assert column["where"] == [5 + i for i in chosen]
    unusual = []
    for k, i in enumerate(chosen):
        expected = row_of(pods[i], own[i], *STATES)
        node, size = column["node_at"][k], column["node_size"][k]
        assert (None if size < 0 else created["data"][node : node + size]) == expected.pop("node")
        assert {name: column[name][k] for name in expected} == expected
        assert (column["begin"][k], column["size"][k]) == (i, 7)
        assert column["combined"][k] == max(combined[i], -1) + 1
        for name, slot in (("uid", "uid"), ("cut", "managed")):
            at, size = column[f"{name}_at"][k], column[f"{name}_size"][k]
            assert created["data"][at : at + max(size, 0)] == (pods[i][slot] or b"")
        for name, moment in moments_of(pods[i]).items():
            if moment is None:
                unusual.append((k, _projection.POD_SLOTS.index(name)))
            else:
                assert column[name][k] == moment
    assert odd == unusual


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(("nodeName", "nominatedNodeName", ""))), max_size=8),
    st.lists(LOOKS, min_size=4, max_size=4),
)
def test_unknown_looks_of_watch_lines(given_pods: list[tuple[str, str]], looks: list[dict[str, Any]]) -> None:
    looks[0] |= {"known": True, "waiting": -1, "settled": -1}  # of none
    slots = {
        "nodeName": _projection.POD_SLOTS.index("node"),
        "nominatedNodeName": _projection.POD_SLOTS.index("nominated"),
    }
    rule = ("object", {"kind": "keep", **{name: ("capture", slot) for name, slot in slots.items()}}, ("kind",))
    projector = _projection.Projector(rule, len(_projection.POD_SLOTS), 0)
    events = "".join(
        f'{{"type":"ADDED","object":{{"kind":"{kind}","{member or "other"}":"n"}}}}\n' for kind, member in given_pods
    )
    lines = projector.lines(events.encode())
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind, _ in given_pods))}
    expected = set()
    for kind, member in given_pods:
        place = numbers[kind] + 1
        if not looks[place]["known"] or looks[place]["settled" if member else "waiting"] == -2:
            expected.add(2 * place + bool(member))
    assert lines.unknown(table_of(looks)) == sorted(expected)
    read = lines.pods(table_of(looks), STATES, "", _projection.StringNumbers())
    assert (read is None and given_pods != []) == bool(expected)
    with pytest.raises(NativeError):
        lines.unknown(np.zeros(4, np.int64))
    with pytest.raises(NativeError):
        lines.unknown(np.zeros(len(numbers), _projection.POD_LOOKS))


def test_a_namespace_that_is_not_utf8() -> None:
    pod = dict.fromkeys(_projection.POD_SLOTS) | {"name": b"a", "namespace": b"\xff"}
    with pytest.raises(UnicodeDecodeError):
        read_one(**laid_out([pod]))


def read_one(**change: Any) -> Any:
    looks = np.zeros(2, _projection.POD_LOOKS)
    looks["known"] = True
    created = {
        "listed": True, "first": 0, "combined": np.zeros(1, np.int32), "looks": looks, "states": STATES,
        "namespace": "default", **laid_out([dict.fromkeys(_projection.POD_SLOTS, b"a")]),
    }  # fmt: skip
    return _projection.read_pods(**(created | change))


SLOTS = len(_projection.POD_SLOTS)


@pytest.mark.parametrize(
    "change",
    [
        {"combined": np.ones(1, np.int32)}, {"combined": np.full(1, -4, np.int32)},
        {"combined": np.zeros(2, np.int32)}, {"size": np.zeros(0, np.int64)},
        {"at": np.full((SLOTS, 1), 99)}, {"at": np.full((SLOTS, 1), -1)}, {"length": np.full((SLOTS, 1), 99)},
        {"at": np.zeros((SLOTS, 2), np.int64)}, {"length": np.zeros((1, 1), np.int64)},
        {"at": np.zeros((SLOTS, 2), np.int64)[:, ::2]}, {"looks": np.zeros(2, np.int64)},
        {"looks": np.zeros(0, _projection.POD_LOOKS)}, {"looks": np.zeros(4, _projection.POD_LOOKS)[::2]},
        {"looks": np.zeros(0, _projection.POD_LOOKS), "combined": np.full(1, -3, np.int32)},
        {"data": b""}, {"namespace": None},
    ],
)  # fmt: skip
def test_pods_that_are_not_there(change: dict[str, Any]) -> None:
    assert read_one() is not None
    with pytest.raises((NativeError, ValueError, TypeError)):
        read_one(**change)


class Room:
    """A store of texts that gives the same buffer each time."""

    def __init__(self, begin: int) -> None:
        self.block, self.begin, self.used = b"", begin, 0

    def reserve(self, size: int) -> memoryview:
        self.block = bytearray(size)
        return memoryview(self.block)

    def fill(self, size: int) -> tuple[int, int]:
        self.used = size
        return 7, self.begin


TABLE = ("state", "kept", "at", "stamp", "seen", "source", "offset", "size", "uid_offset", "bound", "version")


@given(
    st.lists(st.tuples(st.binary(max_size=4), st.integers(0, 2), st.integers(0, 1), st.integers(-1, 3)), max_size=6),
    st.booleans(),
    st.sampled_from((None, 0, 5)),
    st.integers(0, 9),
    st.randoms(),
)
def test_table_values(
    pods: list[tuple[bytes, int, int, int]], every: bool, begin: int | None, first: int, random: Any
) -> None:
    column = {name: number for number, name in enumerate(_projection.POD_COLUMNS)}
    columns = np.array([[random.randint(-9, 9) for _ in pods] for _ in column], np.int64).reshape(
        len(column), len(pods)
    )
    data, texts = b"#", []
    for i, (text, state, bound, _) in enumerate(pods):
        uid = random.randint(0, len(text))
        columns[[column[name] for name in ("begin", "size", "uid_at", "uid_size", "cut_size")], i] = (
            len(data), len(text), len(data) + uid, random.randint(0, len(text) - uid), -1
        )  # fmt: skip
        columns[[column["state"], column["bound"]], i] = state, bound
        texts.append((text, uid))
        data += text
    which = random.sample(range(len(pods)), random.randint(0, len(pods)))
    sources = [column.get(name, -1) for name in TABLE]
    room = None if begin is None else Room(begin)
    values = _projection.table_values(
        data, columns, np.array(which, np.int64), np.array(sources, np.int32),
        tuple(TABLE.index(name) for name in _projection.TABLE_COLUMNS), np.array([pod[3] for pod in pods], np.int32),
        first, True, room, every, 2,
    )  # fmt: skip
    assert values.shape == (len(TABLE), len(which))
    for place, i in enumerate(which):
        row = dict(zip(TABLE, values[:, place].tolist(), strict=True))
        text, state, bound, node = pods[i]
        expected = {"state": state, "kept": 0, "at": node, "stamp": first + place, "seen": 1, "bound": bound}
        assert row | expected | {"version": columns[column["version"], i]} == row
        if room is not None:
            kept = every or (not bound and state != 2)
            uid = data[columns[column["uid_at"], i] :][: columns[column["uid_size"], i]]
            at = row["offset"] - room.begin
            assert (row["source"], row["size"]) == (7, len(text) if kept else 0)
            assert bytes(room.block[at : at + row["size"]]) == (text if kept else b"")
            assert bytes(room.block[at + row["uid_offset"] :][: len(uid)]) == uid


@pytest.mark.parametrize(
    "change",
    [
        {"columns": np.zeros((24, 1), np.int64)}, {"which": np.array([1])}, {"which": np.array([-1])},
        {"sources": np.full(9, 25, np.int32)}, {"table": tuple(range(8))}, {"table": (0, 1, 2, 3, 4, 5, 6, 7, 9)},
        {"table": (-1, 1, 2, 3, 4, 5, 6, 7, 8)}, {"node": np.zeros(2, np.int32)},
        {"columns": np.full((25, 1), 4, np.int64)},
    ],
)  # fmt: skip
def test_values_that_are_refused(change: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "data": b"abc", "columns": np.zeros((25, 1), np.int64), "which": np.array([0]),
        "sources": np.zeros(9, np.int32), "table": tuple(range(9)), "node": np.zeros(1, np.int32), "first_stamp": 0,
        "seen": False, "texts": Room(0), "every": True, "finished": 2,
    }  # fmt: skip
    assert _projection.table_values(**arguments).shape == (9, 1)
    with pytest.raises(NativeError):
        _projection.table_values(**(arguments | change))
