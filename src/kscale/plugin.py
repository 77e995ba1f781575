"""User-written predicates and scorers, compiled by numba and run in the native loop without the GIL (extra [plugins]).
kscale's own: upstream's plug-ins are written in Go.

A predicate is called last, after every Filter of the profile, for each pod and node that passed so far::

    @kscale.plugin.predicate(reason="node(s) would be left with too little memory")
    def keeps_a_reserve(request, free, slots):
        return free[1] - request[1] >= 1 << 30

    profile = kscale.SchedulerProfile(predicates=(keeps_a_reserve,))

``request`` and ``free`` are int64 arrays of the columns cpu (milli-units), memory, ephemeral storage (bytes) and then
the ``resources`` that the decorator names; ``slots`` is how many more pods the node can run. Functions must be
deterministic, must not start threads, and may be called from several threads concurrently; none of this is checked. A
function that raises ends the call with :class:`kscale.errors.NativeError`; it never counts as a verdict.

Plug-ins are registered by name when they are compiled. Another one of the same name replaces the first, so that a
module can be reloaded, or a notebook's cell run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.errors import InputError
from kscale.imports import library
from kscale.objects.argument_types import typed
from kscale.scheduling.coercion import PodsLike, pods_of
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import Snapshot

__all__ = ["PredicatePlugin", "ScorePlugin", "predicate", "registered", "scorer", "scores"]

_Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class PredicatePlugin:
    """A compiled predicate. Keeps the code at its address alive."""

    name: str
    reason: str
    resources: tuple[str, ...]
    address: int
    _code: Any = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ScorePlugin:
    """A compiled scorer. Keeps the code at its address alive."""

    name: str
    resources: tuple[str, ...]
    address: int
    _code: Any = field(repr=False, compare=False)


_REGISTRY: dict[str, PredicatePlugin | ScorePlugin] = {}


@typed
def registered(name: str) -> PredicatePlugin | ScorePlugin:
    """Return the plug-in that was last registered under a name. Raises InputError if there is none."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise InputError(f"no plug-in {name!r}; known: {', '.join(sorted(_REGISTRY)) or 'none'}") from None


def _numba() -> Any:
    """Import and return numba. Raises MissingExtraError if it is not installed."""
    return library("numba", "a compiled plug-in")


@overload
def predicate(function: _Function) -> PredicatePlugin: ...
@overload
def predicate(
    *, name: str | None = ..., reason: str | None = ..., resources: Sequence[str] = ...
) -> Callable[[_Function], PredicatePlugin]: ...


def predicate(
    function: _Function | None = None,
    *,
    name: str | None = None,
    reason: str | None = None,
    resources: Sequence[str] = (),
) -> PredicatePlugin | Callable[[_Function], PredicatePlugin]:
    """Compile ``function(request, free, slots) -> bool`` into a predicate and register it under its name.

    A plug-in of the same name is replaced.

    Parameters
    ----------
    function : callable, optional
        Returns whether a pod may run on a node. ``request``: what the pod requests, ``free``: what the node has left,
        both int64 (cpu in milli-units, memory and ephemeral storage in bytes, then ``resources``); ``slots``: how many
        more pods the node can run. If the function raises while pods are checked, the checking call raises NativeError.
        Without a function, a decorator is returned.
    name : str, optional
        Name of the plug-in. Default: the function's name.
    reason : str, optional
        Reason reported for a pod that the predicate rejects. Default: a text with the plug-in's name.
    resources : sequence of str
        Extended resources that ``request`` and ``free`` contain besides cpu, memory and ephemeral storage.

    Returns
    -------
    PredicatePlugin
        Or a decorator that returns one.

    Raises
    ------
    MissingExtraError
        If the extra ``[plugins]`` is not installed.
    TypeError
        If the function does not take three arguments.
    numba.core.errors.NumbaError
        If numba cannot compile the function.
    """

    def compile_it(inner: _Function) -> PredicatePlugin:
        numba = _numba()
        types = numba.types
        judged = numba.njit((*_inputs(types), types.int64), boundscheck=True)(inner)
        array = types.CPointer(types.int64)
        signature = types.int32(array, array, types.int64, types.int64, types.int64, types.int64)

        @numba.cfunc(signature)
        def call(request_at, free_at, columns, slots, _pod, _node):  # type: ignore[no-untyped-def]  # numba infers the types
            request = numba.carray(request_at, (columns,))
            free = numba.carray(free_at, (columns,))
            try:
                fits = judged(request, free, slots)
            except Exception:  # noqa: BLE001  # no exception may leave a C callback
                return 2
            return 0 if fits else 1

        chosen = name or inner.__name__
        text = reason or f"node(s) rejected by plug-in {chosen}"
        plugin = PredicatePlugin(chosen, text, tuple(resources), call.address, call)
        _REGISTRY[plugin.name] = plugin
        return plugin

    return compile_it if function is None else compile_it(function)


def _inputs(types: Any) -> tuple[Any, Any]:
    """Return the numba types of ``request`` and ``free``: arrays that a plug-in cannot write to.

    ``types``: the module ``numba.types``. Indices are checked against the arrays' bounds.
    """
    column = types.Array(types.int64, 1, "C", readonly=True)
    return column, column


@overload
def scorer(function: _Function) -> ScorePlugin: ...
@overload
def scorer(*, name: str | None = ..., resources: Sequence[str] = ...) -> Callable[[_Function], ScorePlugin]: ...


def scorer(
    function: _Function | None = None, *, name: str | None = None, resources: Sequence[str] = ()
) -> ScorePlugin | Callable[[_Function], ScorePlugin]:
    """Compile ``function(request, free) -> float`` into a scorer and register it under its name.

    A plug-in of the same name is replaced. The compiled scorer contains the loop over nodes: native code calls it once
    per pod, not once per node.

    Parameters
    ----------
    function : callable, optional
        Returns the score of a node for a pod. ``request`` and ``free``: as for :func:`predicate`. Without a function, a
        decorator is returned.
    name : str, optional
        Name of the plug-in. Default: the function's name.
    resources : sequence of str
        Extended resources that ``request`` and ``free`` contain besides cpu, memory and ephemeral storage.

    Returns
    -------
    ScorePlugin
        Or a decorator that returns one.

    Raises
    ------
    MissingExtraError
        If the extra ``[plugins]`` is not installed.
    TypeError
        If the function does not take two arguments.
    numba.core.errors.NumbaError
        If numba cannot compile the function.
    """

    def compile_it(inner: _Function) -> ScorePlugin:
        numba = _numba()
        types = numba.types
        scored = numba.njit(_inputs(types), boundscheck=True, error_model="python")(inner)
        integers, floats = types.CPointer(types.int64), types.CPointer(types.float64)
        signature = types.int32(integers, integers, types.int64, types.int64, floats)

        @numba.cfunc(signature)
        def row(request_at, free_at, nodes, columns, scores_at):  # type: ignore[no-untyped-def]  # numba infers the types
            request = numba.carray(request_at, (columns,))
            free = numba.carray(free_at, (nodes, columns))
            result = numba.carray(scores_at, (nodes,))
            try:
                for node in range(nodes):
                    result[node] = scored(request, free[node])
            except Exception:  # noqa: BLE001  # no exception may leave a C callback
                return 1
            return 0

        plugin = ScorePlugin(name or inner.__name__, tuple(resources), row.address, row)
        _REGISTRY[plugin.name] = plugin
        return plugin

    return compile_it if function is None else compile_it(function)


@typed
def scores(
    snapshot: Snapshot, pods: PodsLike = None, *, scorer: ScorePlugin | str, threads: int = 1
) -> NDArray[np.float64]:
    """Return a scorer's scores of every pod on every node in the snapshot's state.

    Parameters
    ----------
    snapshot : Snapshot
        Cluster state.
    pods : sequence of str, Pod, dict or client object, optional
        Pods to score. Default: the snapshot's pending pods.
    scorer : ScorePlugin or str
        A plug-in, or the name of a registered one.
    threads : int
        Number of threads. The result does not depend on it.

    Returns
    -------
    numpy.ndarray
        float64[pods, nodes].

    Raises
    ------
    InputError
        If ``scorer`` is no scorer or no registered name, or a pod cannot be read.
    NativeError
        If the scorer fails; the message names the first pod for which it did.
    """
    plugin = registered(scorer) if isinstance(scorer, str) else scorer
    if not isinstance(plugin, ScorePlugin):
        raise InputError(f"plug-in {plugin.name!r} is not a scorer")
    columns = (*FIXED_RESOURCES, *plugin.resources)
    classes = snapshot.classify(pods_of(snapshot, pods))
    unique = {pod.index: pod for pod in classes}
    request = np.array([[pod.demand.get(name, 0) for name in columns] for pod in unique.values()], dtype=np.int64)
    free = np.ascontiguousarray(snapshot.free_of(columns).T)
    rows = _engine.score_all(request.reshape(len(unique), len(columns)), free, plugin, threads=threads)
    number = {index: i for i, index in enumerate(unique)}
    return rows[[number[pod.index] for pod in classes]]
