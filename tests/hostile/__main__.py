"""A hostile API server against all programs: ``python tests/hostile [--smoke] [--only TEXT]``; ``--soak --minutes N``.

``--client``: hostile clients of the programs' own ports instead.

Each scenario lets something go wrong between the server and all five programs, which are real processes, and then
behaves. A program must still run, do its work, and hold no more memory than before. ``KSCALE_HOSTILE_SCALE`` stretches
every deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hostile.campaign import Campaign
from hostile.client import attack_all
from hostile.provider import SCENARIOS as OF_PROVIDER
from hostile.scenarios import SCENARIOS
from hostile.soak import soak

parser = argparse.ArgumentParser(prog="python tests/hostile", description=__doc__)
parser.add_argument("--smoke", action="store_true", help="one scenario of each kind")
parser.add_argument("--only", default="", metavar="TEXT", help="scenarios whose name has this in it")
parser.add_argument("--without-commands", action="store_true", help="programs alone, which is faster")
parser.add_argument("--soak", action="store_true", help="random faults under churn instead, for a long time")
parser.add_argument("--client", action="store_true", help="hostile clients of metrics, webhook and expander instead")
parser.add_argument("--minutes", type=float, default=120.0, help="of the soak")
parser.add_argument("--seed", type=int, default=0, help="of the soak; 0: another each time")
arguments = parser.parse_args()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without the programs
scale = float(os.environ.get("KSCALE_HOSTILE_SCALE", "1"))
with tempfile.TemporaryDirectory(prefix="hostile") as folder:
    if arguments.soak:
        sys.exit(asyncio.run(soak(Path(folder), minutes=arguments.minutes, seed=arguments.seed, scale=scale)))
    if arguments.client:
        sys.exit(asyncio.run(attack_all(Path(folder), scale=scale, only=arguments.only, smoke=arguments.smoke)))
    chosen = [each for each in SCENARIOS if arguments.only in each.name and (each.smoke or not arguments.smoke)]
    of_provider = [each for each in OF_PROVIDER if arguments.only in each.name and (each.smoke or not arguments.smoke)]
    campaign = Campaign(Path(folder), scale, commands=not arguments.without_commands)
    sys.exit(asyncio.run(campaign.run(chosen, of_provider)))
