"""What informers must get right, against any API server: the fake one in virtual time, and the real one.

A case is given an :class:`Api` and says nothing of how time passes there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.informer import Informer
from kscale.world.kubernetes.reflector import Reflector
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.stores import ObjectSink
from kscale.world.protocols import Change, Clock, Watch

__all__ = ["CASES", "Api", "pod"]

PODS = Watch(kind="Pod", api_version="v1", namespace="default", typed=True)


class Api(Protocol):
    """An API server, and what can be done to it behind the back of its clients."""

    client: Client
    clock: Clock

    async def create(self, plural: str, obj: dict[str, Any]) -> None: ...

    async def patch(self, plural: str, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        """A merge patch, in the namespace ``default``."""
        ...

    async def delete(self, plural: str, name: str) -> None: ...

    async def names(self, plural: str) -> dict[str, str]:
        """All objects of the namespace ``default``: name and version."""
        ...

    async def cut(self) -> None:
        """Breaks all connections."""
        ...

    def away(self) -> AbstractAsyncContextManager[None]:
        """Breaks all connections of the client, and lets none through meanwhile."""
        ...

    async def forget(self) -> None:
        """Forgets how the present state came about."""
        ...


def pod(name: str, *, node: str = "", **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x"}], **({"nodeName": node} if node else {})}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


class Followed:
    """One informer at work, and all that it told."""

    def __init__(self, api: Api, watch: Watch, **options: Any) -> None:
        self.changes: list[Change] = []
        self.lists = 0
        self.sink = ObjectSink(watch, self.changes.append)
        self.reflector = Reflector(**options)
        self.informer = Informer(
            api.client, Resources(api.client), watch, self.sink, api.clock, reflector=self.reflector, notify=self.listed
        )

    def listed(self) -> None:
        self.lists += 1

    @property
    def names(self) -> dict[str, str]:
        return {each.name: each.metadata.resource_version for each in self.sink.objects.values()}

    def changed_names(self) -> list[str]:
        """``+a``: added, ``~a``: changed, ``-a``: deleted, ``!a``: deleted while not watched."""
        result = []
        for change in self.changes:
            which = change.new or change.old
            assert which is not None
            sign = "+" if change.old is None else "~" if change.new is not None else "!" if change.missed else "-"
            result.append(sign + which.name)
        return result


@asynccontextmanager
async def following(api: Api, watch: Watch = PODS, **options: Any) -> AsyncIterator[Followed]:
    followed = Followed(api, watch, **options)
    task = asyncio.create_task(followed.informer.run())
    try:
        await until(lambda: followed.informer.synced or task.done())
        if task.done():
            task.result()
        yield followed
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


async def equal(api: Api, followed: Followed, plural: str = "pods") -> None:
    """It comes to hold what the server holds."""
    expected_names = await api.names(plural)
    await until(lambda: followed.names == expected_names)


async def objects_come_and_go(api: Api, **options: Any) -> None:
    for name in "ab":
        await api.create("pods", pod(name))
    async with following(api, **options) as followed:
        assert followed.changed_names() == ["+a", "+b"]
        await api.create("pods", pod("c"))
        await api.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
        await api.delete("pods", "b")
        await equal(api, followed)
        changes = [
            each for each in followed.changed_names() if each != "~b"
        ]  # a server may first mark it as being deleted
        assert sorted(changes) == sorted(["+a", "+b", "+c", "~a", "-b"])
        changed = next(change for change in followed.changes if change.old is not None and change.new is not None)
        assert changed.old is not None
        assert changed.new is not None
        assert (changed.old.metadata.labels or {}, changed.new.metadata.labels) == ({}, {"x": "y"})
        assert followed.lists == 1


async def streamed(api: Api) -> None:
    await objects_come_and_go(api)


async def in_one_piece(api: Api) -> None:
    await objects_come_and_go(api, streaming=False)


async def page_by_page(api: Api) -> None:
    for i in range(7):
        await api.create("pods", pod(f"p{i}"))
    async with following(api, streaming=False, paged=True, page_size=2) as followed:
        await equal(api, followed)
        assert followed.changed_names() == [f"+p{i}" for i in range(7)]


async def connections_break(api: Api) -> None:
    await api.create("pods", pod("a"))
    async with following(api) as followed:
        for i in range(3):
            await api.create("pods", pod(f"b{i}"))
            await equal(api, followed)  # a watch that brought nothing for so short a time would be listed again
            await api.cut()
            await api.create("pods", pod(f"c{i}"))
            await api.delete("pods", f"b{i}")
            await equal(api, followed)
        assert followed.lists == 1  # it went on from where it was
        assert [change for change in followed.changed_names() if change.startswith("!")] == []


async def expired_history_is_relisted(api: Api) -> None:
    for name in "abc":
        await api.create("pods", pod(name))
    async with following(api) as followed:
        async with api.away():
            await api.delete("pods", "a")
            await api.create("pods", pod("d"))
            await api.forget()
        await equal(api, followed)
        assert followed.lists == 2
        assert sorted(followed.changed_names()) == ["!a", "+a", "+b", "+c", "+d"]


async def unseen_deletions_are_reported(api: Api) -> None:
    """A list that lacks an object tells of its end, before anything else."""
    for name in "ab":
        await api.create("pods", pod(name))
    async with following(api) as followed:
        before = dict(followed.sink.objects)
    await api.delete("pods", "a")
    await api.create("pods", pod("c"))
    async with following(api) as again:
        pass
    again.changes.clear()
    again.sink.objects.clear()
    again.sink.objects.update(before)
    task = asyncio.create_task(again.informer.run())
    await until(lambda: again.lists == 2)
    task.cancel()
    await asyncio.wait([task])
    assert again.changed_names() == ["!a", "+c"]
    await equal(api, again)


async def selected(api: Api) -> None:
    """A pod that leaves what was selected is gone, as far as this watch can tell."""
    watch = Watch(
        kind="Pod",
        api_version="v1",
        field_selector="spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed",
        typed=True,
    )
    await api.create("pods", pod("a"))
    await api.create("pods", pod("b", node="n1"))
    async with following(api, watch) as followed:
        assert followed.changed_names() == ["+a"]
        await api.create("pods", pod("c"))
        await api.patch("pods", "a", {"status": {"phase": "Failed"}}, "status")
        await until(lambda: set(followed.names) == {"c"})
        assert followed.changed_names() == ["+a", "+c", "-a"]
    labelled = Watch(kind="Pod", api_version="v1", namespace="default", label_selector="x=y", typed=True)
    await api.create("pods", pod("d", x="y"))
    async with following(api, labelled) as followed:
        assert set(followed.names) == {"d"}


async def many_at_once(api: Api) -> None:
    async with following(api) as followed:
        await asyncio.gather(*(api.create("pods", pod(f"p{i:03}")) for i in range(120)))
        await asyncio.gather(
            *(api.patch("pods", f"p{i:03}", {"metadata": {"labels": {"n": str(i)}}}) for i in range(60))
        )
        await asyncio.gather(*(api.delete("pods", f"p{i:03}") for i in range(0, 120, 2)))
        await equal(api, followed)
        assert len(followed.names) == 60


async def other_kinds(api: Api) -> None:
    watch = Watch(kind="PodDisruptionBudget", api_version="policy/v1", typed=True)
    async with following(api, watch) as followed:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
        metadata = {"name": "budget", "namespace": "default"}
        body = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": metadata, "spec": spec}
        await api.create("poddisruptionbudgets.policy", body)
        await until(lambda: set(followed.names) == {"budget"})
        result: Any = next(iter(followed.sink.objects.values()))
        assert (result.kind, result.api_version, result.spec.min_available) == ("PodDisruptionBudget", "policy/v1", 1)


CASES: Sequence[Callable[[Api], Awaitable[None]]] = (
    streamed, in_one_piece, page_by_page, connections_break, expired_history_is_relisted,
    unseen_deletions_are_reported, selected, many_at_once,
    other_kinds,
)  # fmt: skip
