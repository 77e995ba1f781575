"""Known vulnerabilities of what a file of requirements names (``nox -s supply``); advisories need a network.

    python .ci/audit.py REQUIREMENTS ANSWER.json

Fails if there is one, and with other words if the advisories were not reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def found(answer: str) -> list[str]:
    """A line for each package with vulnerabilities, from the JSON of pip-audit."""
    return [
        f"{each['name']} {each['version']}: {', '.join(known['id'] for known in each['vulns'])}"
        for each in json.loads(answer)["dependencies"]
        if each["vulns"]
    ]


def main(installed: str, written: Path) -> None:
    written.unlink(missing_ok=True)
    # Strict: a package that nothing is known of is no package without vulnerabilities.
    asked = ["--strict", "--disable-pip", "--no-deps", "-r", installed, "-f", "json", "-o", str(written)]
    status = subprocess.run([sys.executable, "-m", "pip_audit", *asked], check=False).returncode
    if not written.exists():
        sys.exit("no audit: advisories were not reached (pip-audit says above of what); all else of supply passed")
    if lines := found(written.read_text()):
        sys.exit("known vulnerabilities: " + "; ".join(lines))
    if status not in (0, 1):
        sys.exit(f"pip-audit ended with {status}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
