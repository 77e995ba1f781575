"""What a loop hands to the next one about provisioning requests."""

from __future__ import annotations

import msgspec

from kscale.effects import Moment
from kscale.effects.moments import Nanoseconds

__all__ = ["ProvisioningState", "RetryTimes"]

RetryTimes = dict[str, Nanoseconds]
"""How long a request waits after its next failure (nanoseconds, by uid), the one used last at the end."""


class ProvisioningState(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What is remembered of provisioning requests.

    - ``retries``: requests for which nothing was found.
    - ``requests_next``: where pods wait, too, the next scale-up is for a request (upstream's
      ``ProvisioningRequestScaleUpMode``).
    - ``hints``, ``booking_hints``: where pods of requests that are there would go (pod UID -> node): as the classes of
      requests found, and as they were booked.
    - ``last_processed``: when a request was last accepted, given up or looked at.
    """

    retries: RetryTimes = {}
    requests_next: bool = False
    hints: dict[str, str] = {}
    booking_hints: dict[str, str] = {}
    last_processed: Moment | None = None
