"""The one language between decisions and the world.

A decision that must act in its middle is a *step machine*: a generator that yields an :data:`Action` and is sent its
:class:`Outcome`. It never reads a clock, waits or talks to anybody; whoever runs it does. All wings, drivers and worlds
speak these nouns and no others.

Modules by noun: ``moments`` (time), ``outcomes`` (what is sent back), ``reports`` (events and observations),
``cloud``, ``api``, ``metrics``, ``ranking`` (what is asked for), ``actions`` (all of them, and how machines are typed),
``answers`` (which action may be answered how), ``steps`` (writing a machine), ``dry_run`` (:func:`as_if_done`),
``virtual_time`` (:class:`VirtualTime`).
"""

from __future__ import annotations

from kscale.effects.actions import (
    Action,
    Exchange,
    InBackground,
    Machine,
    ReadStores,
    Steps,
    StepsOf,
    Together,
    Wait,
    Within,
)
from kscale.effects.answers import ANSWERS, WrongAnswerError, check_answer
from kscale.effects.api import (
    Create,
    Delete,
    Discover,
    Evict,
    Get,
    GetScale,
    GetWhole,
    List,
    Patch,
    PatchOperation,
    Preview,
    PutScale,
    Resize,
    WriteStatus,
)
from kscale.effects.cloud import (
    CreatedGroups,
    CreateGroup,
    DecreaseTargetSize,
    DeleteGroup,
    DeleteNodes,
    GetPrices,
    HasInstances,
    IncreaseSize,
    Prices,
    Refresh,
)
from kscale.effects.deferred import Deferred
from kscale.effects.dry_run import DryRun, Respond, UnansweredError, as_if_done, done_at_once
from kscale.effects.foreseen import foreseen_steps
from kscale.effects.metrics import GetMetric, QueryPrometheus
from kscale.effects.moments import (
    LAST_TIME,
    SECOND,
    ZERO_TIME,
    Moment,
    duration,
    from_text,
    later,
    moment,
    timedelta_of,
    to_datetime,
    to_text,
)
from kscale.effects.outcomes import CANCELED, DEADLINE_EXCEEDED, ApiError, Outcome
from kscale.effects.ranking import Ranking, RankOption, RankOptions
from kscale.effects.reports import Emit, Event, Metric, Observation, Observe
from kscale.effects.steps import Progress
from kscale.effects.virtual_time import Perform, Running, VirtualTime, run_virtually

__all__ = [
    "ANSWERS",
    "CANCELED",
    "DEADLINE_EXCEEDED",
    "LAST_TIME",
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
    "GetWhole",
    "HasInstances",
    "InBackground",
    "IncreaseSize",
    "List",
    "Machine",
    "Metric",
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
    "UnansweredError",
    "VirtualTime",
    "Wait",
    "Within",
    "WriteStatus",
    "WrongAnswerError",
    "as_if_done",
    "check_answer",
    "done_at_once",
    "duration",
    "foreseen_steps",
    "from_text",
    "later",
    "moment",
    "run_virtually",
    "timedelta_of",
    "to_datetime",
    "to_text",
]
