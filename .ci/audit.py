"""Known vulnerabilities of what a file of requirements names (``nox -s supply``); advisories need a network.

    python .ci/audit.py REQUIREMENTS ANSWER.json

Fails if there is one, and with other words if the advisories were not reached. What the index does not know cannot be
audited, and is said so, name by name: it is no package without vulnerabilities, and no reason to fail either. Where it
knows nothing, as mirrors without advisories do, nox says that the session was skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def told(answer: str) -> tuple[list[str], list[str], int]:
    """From the JSON of pip-audit: a line for each package with vulnerabilities and for each that was not audited, and
    how many were.
    """
    packages = json.loads(answer)["dependencies"]
    audited = [each for each in packages if "skip_reason" not in each]
    vulnerable = [
        f"{each['name']} {each['version']}: {', '.join(known['id'] for known in each['vulns'])}"
        for each in audited
        if each["vulns"]
    ]
    skipped = [
        f"skipped: {each['name']} is not on the index, so it was not audited ({each['skip_reason']})"
        for each in packages
        if "skip_reason" in each
    ]
    return vulnerable, skipped, len(audited)


def main(installed: str, written: Path) -> None:
    written.unlink(missing_ok=True)
    asked = ["--disable-pip", "--no-deps", "-r", installed, "-f", "json", "-o", str(written)]
    status = subprocess.run([sys.executable, "-m", "pip_audit", *asked], check=False).returncode
    if not written.exists():
        sys.exit("no audit: advisories were not reached (pip-audit says above of what); all else of supply passed")
    vulnerable, skipped, audited = told(written.read_text())
    said = [*skipped, f"audited: {audited}; of these have known vulnerabilities: {len(vulnerable)}"]
    sys.stdout.write("\n".join(said) + "\n")
    if vulnerable:
        sys.exit("known vulnerabilities: " + "; ".join(vulnerable))
    if status not in (0, 1):
        sys.exit(f"pip-audit ended with {status}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
