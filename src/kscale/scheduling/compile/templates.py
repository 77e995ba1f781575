"""Copies of node templates: names, domains and everything that predicates read of new nodes.

The name of a copy, ``<template>-e-<number>``, is its host name, too. Copies that no selector can distinguish share a
node class; those whose name occurs in some selector have a class of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kscale._native import _engine
from kscale.imports import lazy_pattern
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.pod_resources import PODS, to_integers
from kscale.scheduling.compile.node_classes import Domains, NodeClasses
from kscale.scheduling.compile.pod_classes import SharedPodClasses
from kscale.scheduling.compile.resources import Resources
from kscale.scheduling.devices.claims import Devices
from kscale.scheduling.devices.inventory import for_node
from kscale.scheduling.plugins.base import Part
from kscale.scheduling.profile import HOSTNAME, Context, NodeFacts
from kscale.scheduling.volumes import Volumes
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import BeforeLosses, Snapshot

__all__ = ["Copies", "copy_number"]

_COPY: Final = lazy_pattern(r"(.*)-e-(0|[1-9][0-9]{0,8})", re.DOTALL)
_NO_NAME: Final = "\0"  # no selector contains the name of such a copy


@lru_cache(maxsize=1 << 14)
def copy_number(name: str) -> tuple[str, int] | None:
    """Parse the node name of a template's copy to (name of the template, number of the copy); None for other names."""
    match = _COPY.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


class _HostNames(dict[str, dict[int, int]]):
    """Template name -> {copy number: domain}, for host names in the cluster that have the form of a copy's name; cached
    with a snapshot.
    """

    @classmethod
    def of(cls, snapshot: Snapshot) -> _HostNames:
        """Return those host names of the snapshot that have the form of a copy's name. Cached with the snapshot."""

        def make() -> _HostNames:
            names, losses = cls(), BeforeLosses.find(snapshot)
            if losses is not None and not cls.of(losses.snapshot):
                return names
            for value, domain in snapshot.columns.label(HOSTNAME).index.items():
                copy = copy_number(value) if "-e-" in value else None
                if copy is not None:
                    names.setdefault(copy[0], {})[copy[1]] = domain
            return names

        return snapshot.memo.get(cls, make)


class _PreparedTemplate(NamedTuple):
    """The engine's arguments of a template that do not depend on node classes, domains and names.

    ``free``: free amounts of an empty copy in the order of the engine's resources; ``arguments``: of the engine's
    template; ``identity``: equal for equal arguments.
    """

    slots: int
    free: list[int]
    arguments: dict[str, Any]
    identity: str


def _prepare_template(
    template: NodeTemplate,
    pods: Sequence[PodClass],
    facts: NodeFacts,
    position: int,
    resources: Resources,
    parts: Iterable[Part],
    number: Mapping[int, int],
) -> _PreparedTemplate:
    """Compute what the engine reads of a template.

    ``pods``: classes of the pods that come with it; ``facts`` and ``position``: of its copy among all nodes; ``parts``,
    ``number``: as in :meth:`Copies.prepare`.
    """
    amounts = template.node.status.allocatable or {}
    used: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.occupancy.items():
            used[name] = used.get(name, 0) + amount
    free = resources.free_of_new_node(position, to_integers(amounts), used)
    slots = (amounts[PODS].value() if PODS in amounts else 0) - len(pods)
    arguments: dict[str, Any] = {
        "unschedulable": template.node.spec.unschedulable,
        "slots": slots,
        "free": free,
        "pods": [number[pod.index] for pod in pods],
    }
    for part in parts:
        arguments |= part.build_template_arguments(facts)
    return _PreparedTemplate(slots, free, arguments, repr(arguments))


class _PreparedTemplates(dict[tuple[int, tuple[str, ...]], _PreparedTemplate]):
    """Prepared templates by the template's identity and the engine's resources; cached with the pod classes."""

    def __init__(self) -> None:
        self._alive: list[NodeTemplate] = []  # so that no other template gets the same id()

    def add(self, template: NodeTemplate, resources: tuple[str, ...], prepared: _PreparedTemplate) -> None:
        """Cache a prepared template. All are dropped if there are too many."""
        if len(self) >= _MAX_PREPARED:
            self.clear()
            self._alive.clear()
        self._alive.append(template)
        self[id(template), resources] = prepared


_MAX_PREPARED: Final = 1 << 9


class Copies:
    """For each template one copy whose name occurs in no selector, and the copies whose name does.

    ``facts``: facts of all of these, template after template; ``pods``: classes of the pods that come with each
    template.
    """

    def __init__(self, ctx: Context, templates: Sequence[NodeTemplate], shared: SharedPodClasses | None = None) -> None:
        self._ctx = ctx
        self.templates = templates
        self.facts: list[NodeFacts] = []
        interner, self._shared = ctx.snapshot.interner, shared or SharedPodClasses()
        self._are_shared = shared is not None
        self.pods: list[list[PodClass]] = [self._shared.classify(template, interner) for template in templates]
        self._first: list[int] = []
        self._special: list[dict[int, int]] = []  # copy number -> index in ``facts``
        self._room: list[tuple[int, list[int]]] = []
        self._identities: list[tuple[object, ...] | None] = []

    @property
    def claims(self) -> bool:
        """Return whether pods that come with new nodes claim devices."""
        return any(pod.claims for pod_classes in self.pods for pod in pod_classes)

    def add_names(self, names: Collection[str]) -> None:
        """Add facts of the copies that predicates can distinguish to ``facts``.

        These are, for each template, one copy whose name occurs in no selector, and each copy whose name is in
        ``names``: node names and host names that occur in selectors.
        """
        spelled = [(name, copy_number(name)) for name in sorted(names)]
        for template in self.templates:
            base = template.node.metadata.name
            self._first.append(len(self.facts))
            self.facts.append(self._facts(template, f"{base}-e-{_NO_NAME}"))
            special: dict[int, int] = {}
            for name, copy in spelled:
                if copy is not None and copy[0] == base:
                    special[copy[1]] = len(self.facts)
                    self.facts.append(self._facts(template, name))
            self._special.append(special)

    def _facts(self, template: NodeTemplate, name: str) -> NodeFacts:
        """Return the facts of a copy with a name, and add the copy's devices to the context's."""
        facts = self._shared.get_facts(template, name, self._ctx)
        if self._ctx.dra and template.resource_slices:
            suffix = name.removeprefix(f"{template.node.metadata.name}-")
            Devices.of(self._ctx).local_slices += for_node(template.resource_slices, name, suffix)
        return facts

    def prepare(
        self,
        engine: _engine.Engine,
        classes: NodeClasses,
        domains: Domains,
        resources: Resources,
        parts: Iterable[Part],
        number: Mapping[int, int],
        memo: TypedCache,
        *,
        exchangeable: bool,
    ) -> list[_engine.Template]:
        """Build the engine's templates, one per template of the session.

        ``number``: number of a pod class in the engine by the class's index; ``parts``: parts of plug-ins whose
        counters the templates' pods change; ``memo``: cache of these classes; ``exchangeable``: copies of equal
        templates differ only in their names. Also stores what :meth:`room` and :meth:`identity` return.
        """
        of_node = classes.of[classes.existing :]
        has_names = HOSTNAME in domains.keys
        host_names = _HostNames.of(self._ctx.snapshot) if has_names else {}
        # Only templates of shared classes are known to stay unchanged: callers may modify theirs between two sessions.
        is_cached = self._are_shared and resources.are_plain
        known = memo.get(_PreparedTemplates, _PreparedTemplates) if is_cached else _PreparedTemplates()
        prepared = []
        for i, template in enumerate(self.templates):
            first, special = self._first[i], self._special[i]
            facts = self.facts[first]
            part = known.get((id(template), resources.names))
            if part is None:
                position, pods = classes.existing + first, self.pods[i]
                part = _prepare_template(template, pods, facts, position, resources, parts, number)
                known.add(template, resources.names, part)
            self._room.append((part.slots, part.free))
            node_class, domain = int(of_node[first]), domains.get_copy_domains(facts)
            names_in_use = host_names.get(template.node.metadata.name)
            is_special = special or names_in_use or not exchangeable
            self._identities.append(None if is_special else (node_class, *domain, part.identity))
            exceptions = {copy: int(of_node[index]) for copy, index in special.items()}
            prepared.append(
                _engine.Template(
                    engine,
                    **part.arguments,
                    node_class=node_class,
                    domain=domain,
                    named_key=domains.keys.get(HOSTNAME, -1),
                    exceptions=exceptions,
                    taken=names_in_use,
                    number=i,
                )
            )
        return prepared

    # -- queries -----------------------------------------------------------------------------------------------------

    def facts_of(self, i: int, copy: int | None = None) -> NodeFacts:
        """Return what predicates read of copy number ``copy`` of template number ``i``.

        ``copy`` None: a copy whose name occurs in no selector.
        """
        return self.facts[self._first[i] if copy is None else self._special[i].get(copy, self._first[i])]

    def list_sources(self) -> list[NodeTemplate]:
        """Return the template of each copy in ``facts``."""
        counts = (1 + len(special) for special in self._special)
        return [template for template, count in zip(self.templates, counts, strict=True) for _ in range(count)]

    def identity(self, i: int) -> tuple[object, ...] | None:
        """Return a key that is equal for templates with indistinguishable copies; None if that is unknown for ``i``."""
        return self._identities[i]

    def room(self, i: int) -> tuple[int, list[int]]:
        """Return (free pod slots, free amounts) of an empty copy of template number ``i``.

        Amounts are in the order of the engine's resources.
        """
        return self._room[i]


def names_in_selectors(ctx: Context, pods: Iterable[PodClass]) -> frozenset[str]:
    """Return all texts that may be node names or host names in selectors of pods, of their volumes or of the profile.

    These are all values of these selectors, whatever their key, and the node names of the pods.
    """
    names: set[str] = set()
    with_volumes = False
    selectors = [ctx.profile.added_affinity]
    for pod in pods:
        selectors.append(pod.node_affinity)
        names.add(pod.node_name)
        names.update((pod.node_selector or {}).values())
        with_volumes = with_volumes or bool(pod.volumes)
    for selector in selectors:
        for term in selector.node_selector_terms if selector else ():
            for requirement in (*term.match_expressions, *term.match_fields):
                names.update(requirement.values)
    if with_volumes:
        names |= Volumes.of(ctx).selected_names
    return frozenset(names)
