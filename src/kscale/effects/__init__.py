"""Actions and outcomes: the language between decisions and the world.

A decision that has to act before it is complete is a *step machine*: a generator that yields an :data:`Action` and is
sent its :class:`Outcome`. It never reads a clock, waits or does I/O; the code that runs it does. All packages, drivers
and worlds use these types.

Modules: ``moments`` (time), ``actions`` (actions, events and observations), ``outcomes`` and ``legal_outcomes`` (which
action may have which outcome), ``steps`` (writing a machine), ``dry_run`` (:func:`run_dry`), ``virtual_time``
(:class:`VirtualTime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.lazy import import_on_use

if TYPE_CHECKING:
    from kscale.effects.actions import Action as Action
    from kscale.effects.actions import Create as Create
    from kscale.effects.actions import CreatedGroups as CreatedGroups
    from kscale.effects.actions import CreateGroup as CreateGroup
    from kscale.effects.actions import DecreaseTargetSize as DecreaseTargetSize
    from kscale.effects.actions import Deferred as Deferred
    from kscale.effects.actions import Delete as Delete
    from kscale.effects.actions import DeleteGroup as DeleteGroup
    from kscale.effects.actions import DeleteNodes as DeleteNodes
    from kscale.effects.actions import Discover as Discover
    from kscale.effects.actions import Emit as Emit
    from kscale.effects.actions import Event as Event
    from kscale.effects.actions import Evict as Evict
    from kscale.effects.actions import Exchange as Exchange
    from kscale.effects.actions import Get as Get
    from kscale.effects.actions import GetMetric as GetMetric
    from kscale.effects.actions import GetPrices as GetPrices
    from kscale.effects.actions import GetScale as GetScale
    from kscale.effects.actions import GetUnstructured as GetUnstructured
    from kscale.effects.actions import HasInstances as HasInstances
    from kscale.effects.actions import InBackground as InBackground
    from kscale.effects.actions import IncreaseSize as IncreaseSize
    from kscale.effects.actions import List as List
    from kscale.effects.actions import Machine as Machine
    from kscale.effects.actions import Metric as Metric
    from kscale.effects.actions import Observation as Observation
    from kscale.effects.actions import Observe as Observe
    from kscale.effects.actions import Patch as Patch
    from kscale.effects.actions import PatchOperation as PatchOperation
    from kscale.effects.actions import Preview as Preview
    from kscale.effects.actions import Prices as Prices
    from kscale.effects.actions import PutScale as PutScale
    from kscale.effects.actions import QueryPrometheus as QueryPrometheus
    from kscale.effects.actions import Ranking as Ranking
    from kscale.effects.actions import RankOption as RankOption
    from kscale.effects.actions import RankOptions as RankOptions
    from kscale.effects.actions import ReadStores as ReadStores
    from kscale.effects.actions import Refresh as Refresh
    from kscale.effects.actions import Resize as Resize
    from kscale.effects.actions import Steps as Steps
    from kscale.effects.actions import StepsOf as StepsOf
    from kscale.effects.actions import Together as Together
    from kscale.effects.actions import Wait as Wait
    from kscale.effects.actions import Within as Within
    from kscale.effects.actions import WriteStatus as WriteStatus
    from kscale.effects.dry_run import DryRun as DryRun
    from kscale.effects.dry_run import MissingResponseError as MissingResponseError
    from kscale.effects.dry_run import Respond as Respond
    from kscale.effects.dry_run import dry_run_steps as dry_run_steps
    from kscale.effects.dry_run import run_dry as run_dry
    from kscale.effects.dry_run import run_dry_at_once as run_dry_at_once
    from kscale.effects.legal_outcomes import LEGAL_OUTCOMES as LEGAL_OUTCOMES
    from kscale.effects.legal_outcomes import IllegalOutcomeError as IllegalOutcomeError
    from kscale.effects.legal_outcomes import check_outcome as check_outcome
    from kscale.effects.moments import LAST_TIME as LAST_TIME
    from kscale.effects.moments import SECOND as SECOND
    from kscale.effects.moments import ZERO_TIME as ZERO_TIME
    from kscale.effects.moments import Moment as Moment
    from kscale.effects.moments import duration as duration
    from kscale.effects.moments import from_text as from_text
    from kscale.effects.moments import later as later
    from kscale.effects.moments import moment as moment
    from kscale.effects.moments import timedelta_of as timedelta_of
    from kscale.effects.moments import to_datetime as to_datetime
    from kscale.effects.moments import to_text as to_text
    from kscale.effects.outcomes import CANCELED as CANCELED
    from kscale.effects.outcomes import DEADLINE_EXCEEDED as DEADLINE_EXCEEDED
    from kscale.effects.outcomes import ApiError as ApiError
    from kscale.effects.outcomes import Outcome as Outcome
    from kscale.effects.steps import Progress as Progress
    from kscale.effects.virtual_time import Perform as Perform
    from kscale.effects.virtual_time import Running as Running
    from kscale.effects.virtual_time import VirtualTime as VirtualTime
    from kscale.effects.virtual_time import run_virtually as run_virtually

__all__ = [
    "CANCELED",
    "DEADLINE_EXCEEDED",
    "LAST_TIME",
    "LEGAL_OUTCOMES",
    "SECOND",
    "ZERO_TIME",
    "Action",
    "ApiError",
    "Create",
    "CreateGroup",
    "CreatedGroups",
    "DecreaseTargetSize",
    "Deferred",
    "Delete",
    "DeleteGroup",
    "DeleteNodes",
    "Discover",
    "DryRun",
    "Emit",
    "Event",
    "Evict",
    "Exchange",
    "Get",
    "GetMetric",
    "GetPrices",
    "GetScale",
    "GetUnstructured",
    "HasInstances",
    "IllegalOutcomeError",
    "InBackground",
    "IncreaseSize",
    "List",
    "Machine",
    "Metric",
    "MissingResponseError",
    "Moment",
    "Observation",
    "Observe",
    "Outcome",
    "Patch",
    "PatchOperation",
    "Perform",
    "Preview",
    "Prices",
    "Progress",
    "PutScale",
    "QueryPrometheus",
    "RankOption",
    "RankOptions",
    "Ranking",
    "ReadStores",
    "Refresh",
    "Resize",
    "Respond",
    "Running",
    "Steps",
    "StepsOf",
    "Together",
    "VirtualTime",
    "Wait",
    "Within",
    "WriteStatus",
    "check_outcome",
    "dry_run_steps",
    "duration",
    "from_text",
    "later",
    "moment",
    "run_dry",
    "run_dry_at_once",
    "run_virtually",
    "timedelta_of",
    "to_datetime",
    "to_text",
]


import_on_use(
    __name__,
    {
        "actions": (
            "Action",
            "Create",
            "CreatedGroups",
            "CreateGroup",
            "DecreaseTargetSize",
            "Deferred",
            "Delete",
            "DeleteGroup",
            "DeleteNodes",
            "Discover",
            "Emit",
            "Event",
            "Evict",
            "Exchange",
            "Get",
            "GetMetric",
            "GetPrices",
            "GetScale",
            "GetUnstructured",
            "HasInstances",
            "InBackground",
            "IncreaseSize",
            "List",
            "Machine",
            "Metric",
            "Observation",
            "Observe",
            "Patch",
            "PatchOperation",
            "Preview",
            "Prices",
            "PutScale",
            "QueryPrometheus",
            "Ranking",
            "RankOption",
            "RankOptions",
            "ReadStores",
            "Refresh",
            "Resize",
            "Steps",
            "StepsOf",
            "Together",
            "Wait",
            "Within",
            "WriteStatus",
        ),
        "dry_run": ("DryRun", "MissingResponseError", "Respond", "dry_run_steps", "run_dry", "run_dry_at_once"),
        "legal_outcomes": ("LEGAL_OUTCOMES", "IllegalOutcomeError", "check_outcome"),
        "moments": (
            "LAST_TIME",
            "SECOND",
            "ZERO_TIME",
            "Moment",
            "duration",
            "from_text",
            "later",
            "moment",
            "timedelta_of",
            "to_datetime",
            "to_text",
        ),
        "outcomes": ("CANCELED", "DEADLINE_EXCEEDED", "ApiError", "Outcome"),
        "steps": ("Progress",),
        "virtual_time": ("Perform", "Running", "VirtualTime", "run_virtually"),
    },
)
