"""The package as a whole: what an import loads, and what the build says of itself."""

from __future__ import annotations

import subprocess
import sys

import kscale


def test_import_loads_numpy_and_msgspec_only() -> None:
    code = (
        "import sys, numpy, msgspec; before = set(sys.modules); import kscale; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(*sorted(new - {'kscale'} - set(sys.stdlib_module_names)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in result.stdout.split() if not name.startswith("_kscale_core_editable")] == []


def test_build_info_names_the_compiler() -> None:
    info = kscale.build_info()
    assert info["kscale"] == kscale.__version__
    assert info["compiler"].split()[0] in {"gcc", "clang"}
    assert info["cpu_level"] in {"x86-64-v4", "x86-64-v3", "default"}
