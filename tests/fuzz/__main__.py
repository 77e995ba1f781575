"""Search for input that gives an error without a name: ``python tests/fuzz TARGET --seconds N`` (Atheris).

Without a target it prints their names.

What is found stands in ``build/fuzz/TARGET/crash-...``; the corpus stays in ``build/fuzz/TARGET/corpus``.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

if len(sys.argv) == 1:
    from targets import TARGETS

    print(*TARGETS)
    sys.exit()

import atheris

with atheris.instrument_imports(include=["kscale", "targets"]):  # kernels are not: calls of them are in targets
    import kscale

    for room in (
        "objects",
        "series",
        "snapshot",
        "scheduling",
        "ca.expander",
        "capacity.groups",
        "capacity.whatif",
        "simulation",
        "world",
    ):
        package = importlib.import_module(f"kscale.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    from targets import SEEDS, TARGETS  # instrumented

assert not kscale.__file__.startswith(str(Path("src").resolve())), "an editable install is not instrumented"

parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
parser.add_argument("target", choices=list(TARGETS))
parser.add_argument("--seconds", type=int, default=60)
arguments = parser.parse_args()

folder = Path("build", "fuzz", arguments.target)
corpus = folder / "corpus"
corpus.mkdir(parents=True, exist_ok=True)
for number, seed in enumerate(SEEDS[arguments.target]):
    (corpus / f"seed-{number}").write_bytes(seed)
limits = [
    f"-max_total_time={arguments.seconds}",
    "-rss_limit_mb=4096",
    "-timeout=20",
    "-verbosity=0",
    "-print_final_stats=1",
]
atheris.Setup([sys.argv[0], f"-artifact_prefix={folder}/", *limits, str(corpus)], TARGETS[arguments.target])
atheris.Fuzz()
