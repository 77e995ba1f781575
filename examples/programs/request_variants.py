"""Which requests would save most? Decide 2,000 variants of a cluster in a pool of processes.

python request_variants.py cluster.json.gz groups.yaml
"""

from __future__ import annotations

import itertools
import math
import sys
from datetime import UTC, datetime

import kscale
from kscale.capacity.whatif import Base, ScenarioRow, scenarios_from, whatif


def decide(base: Base, variants: list[tuple[float, float]]) -> list[ScenarioRow]:
    """Decide some variants: factors of the requests of CPU and memory. Runs in a worker process."""
    scenarios = []
    for cpu, memory in variants:
        factors = {"cpu": f"x{cpu:.3f}", "memory": f"x{memory:.3f}"}
        name = f"cpu {factors['cpu']}, memory {factors['memory']}"
        scenarios.append({"name": name, "edits": [{"requests": factors}]})
    return list(whatif(base, scenarios_from({"question": "estimate", "scenarios": scenarios})).scenarios)


def run(base: Base, count: int, processes: int | None = None) -> list[ScenarioRow]:
    """Return the rows of ``count`` variants, the cheapest first."""
    side = math.ceil(count**0.5)
    factors = [0.5 + 0.5 * step / side for step in range(1, side + 1)]
    variants = list(itertools.islice(itertools.product(factors, factors), count))
    rows = []
    for answer in kscale.sweep(decide, variants, base=base, executor=processes):
        if answer.error is not None or answer.value is None:
            raise RuntimeError(f"variant {answer.index}") from answer.error
        rows.append(answer.value)
    return sorted(rows, key=lambda row: (row.pending, row.cost if row.cost is not None else float("inf")))


def main() -> None:
    dump, groups_file = sys.argv[1:]
    base = Base(kscale.load(dump), kscale.read_groups(groups_file), datetime.now(UTC))
    for row in run(base, 2_000, processes=2)[:10]:
        print(f"{row.name}: {row.pending} pods pending, ${row.cost:.2f}/h")


if __name__ == "__main__":
    main()
