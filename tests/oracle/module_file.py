"""Write the module file of a Kubernetes version: ``python tests/oracle/module_file.py VERSION [--default]``.

Published modules of ``k8s.io/kubernetes`` replace its staging repositories by folders that are not published; the file
replaces them by the modules of the same release. Needs Go and its module proxy.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle.build import KUBERNETES


def module_text(upstream: str, version: str) -> str:
    """Return a module file that requires a version of Kubernetes, of whose module file ``upstream`` is the text."""
    go = re.search(r"^go (\S+)", upstream, re.MULTILINE)
    assert go is not None
    staging = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \./staging", upstream, re.MULTILINE)
    release = "v0" + version.removeprefix("v1")
    replaced = "".join(f"\t{module} => {module} {release}\n" for module in staging)
    replaced += "\tkscale.dev/oracle/harness => ../harness\n"
    return f"module kscale.dev/oracle\n\ngo {go[1]}\n\nrequire k8s.io/kubernetes {version}\n\nreplace (\n{replaced})\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tests/oracle/module_file.py", description=__doc__)
    parser.add_argument("version", help="such as v1.38.0")
    parser.add_argument("--default", action="store_true", help="write go.mod, the version that is asked by default")
    options = parser.parse_args()
    path = KUBERNETES / ("go.mod" if options.default else f"minors/{options.version.removeprefix('v')}.mod")
    with tempfile.TemporaryDirectory() as outside:
        command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{options.version}"]
        result = json.loads(subprocess.run(command, cwd=outside, check=True, capture_output=True, text=True).stdout)
    path.write_text(module_text(Path(result["GoMod"]).read_text(), options.version))
    # Files of other minors import packages that an older one does not have: -e goes on without them.
    modfile = [] if options.default else ["-e", f"-modfile={path}"]
    subprocess.run(["go", "mod", "tidy", *modfile], cwd=KUBERNETES, check=True)


if __name__ == "__main__":
    main()
