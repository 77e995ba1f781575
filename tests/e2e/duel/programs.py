"""The programs that are duelled: how upstream's and kscale's are begun, each with an account of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.control_plane import ControlPlane, free_ports
from e2e.rights import installed

__all__ = ["CLUSTER_AUTOSCALER", "PROGRAMS", "READS_METRICS", "USER", "Known", "Player", "StuckError"]

USER: Final = "duellist"
"""How the names of all their accounts begin."""
CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
READS_METRICS: Final = frozenset({"horizontal", "vpa-recommender"})
_NAMESPACE: Final = "kube-system"
_PROGRAM: Final = Path(__file__).parents[1] / "program.py"
_ANYTHING: Final[Sequence[Any]] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


class StuckError(RuntimeError):
    """A program ended, or a step did not come to its end."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A program: ``binary`` of upstream's, ``component`` that its events name, ``flags`` of every case; a case may say
    the same flag again."""

    binary: str
    component: str
    flags: Sequence[str]


PROGRAMS: Final[Mapping[str, Known]] = {
    CLUSTER_AUTOSCALER: Known(
        binary="cluster-autoscaler",
        component="cluster-autoscaler",
        flags=(
            "--cloud-provider=externalgrpc", "--scan-interval=1s", "--scale-down-unneeded-time=5s",
            "--scale-down-delay-after-add=3s", "--scale-down-delay-after-delete=0s",
            "--node-delete-delay-after-taint=1s", "--new-pod-scale-up-delay=0s", "--expander=least-waste", "--v=4",
        ),
    ),
    "horizontal": Known(
        binary="kube-controller-manager",
        component="horizontal-pod-autoscaler",
        flags=("--horizontal-pod-autoscaler-sync-period=2s", "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
               "--horizontal-pod-autoscaler-cpu-initialization-period=0s", "--leader-elect=false", "--v=4"),
    ),
    "vpa-recommender": Known(
        binary="vpa-recommender", component="vpa-recommender", flags=("--recommender-interval=1s", "--v=4")
    ),
    "vpa-updater": Known(binary="vpa-updater", component="vpa-updater", flags=("--updater-interval=2s", "--v=4")),
    "vpa-admission": Known(
        binary="vpa-admission-controller",
        component="vpa-admission-controller",
        flags=("--status-lease-update-interval=2s", "--v=4"),
    ),
}  # fmt: skip
"""By what ``kscale run`` calls them."""


class Player:
    """One program of a side; it can be started again. ``binaries``: upstream's (None: kscale plays).

    ``port``: of another way to the API server; ``clock``: see ``program.py``, of kscale's; ``plain``: without the
    flags and the limited account that every case has.
    """

    def __init__(
        self,
        name: str,
        plane: ControlPlane,
        binaries: Path | None,
        flags: Sequence[str],
        *,
        port: int = 0,
        clock: Path | None = None,
        plain: bool = False,
    ) -> None:
        self.known = dataclasses.replace(PROGRAMS[name], flags=()) if plain else PROGRAMS[name]
        self.log = plane.directory / "log" / f"{name}.log"
        self._name, self._plane, self._binaries, self._clock = name, plane, binaries, clock
        self._process: subprocess.Popen[bytes] | None = None
        config = plane.directory / f"{name}.kubeconfig"
        user = f"{USER}-{self.side}-{name}"
        # No more than the manifests give.
        access = plane.account(user, _ANYTHING) if binaries or plain else installed(plane, name, *flags, name=user)
        server = {"server": f"https://127.0.0.1:{port}"} if port else None
        config.write_text(json.dumps(plane.config(server, user={"token": access.token.reveal()})))
        self._words = [*self._program(config), f"--kubeconfig={config}", *self.known.flags, *flags]

    def start(self, *flags: str) -> None:
        """Begins it, with further flags; its log goes on."""
        environment = {name: value for name, value in os.environ.items() if name != "HOSTNAME"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._words, *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**environment, "NAMESPACE": _NAMESPACE, "E2E_CLOCK": str(self._clock or "")},
            )

    def stop(self) -> None:
        """Ends it as a kubelet does. Upstream's programs of the VPA do not listen to that: it ends them at once."""
        assert self._process is not None
        self._process.terminate()
        if (code := self._process.wait(30)) and not self._binaries:
            raise StuckError(f"{self._name} ended with {code}:\n{self.tail()}")
        self._process = None

    def ended(self) -> int:
        """Waits until it has ended by itself; gives its status."""
        assert self._process is not None
        code = self._process.wait(60)
        self._process = None
        return code

    def kill(self) -> None:
        """Ends it if it runs, at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def check(self) -> None:
        """Raises :class:`StuckError` if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise StuckError(f"{self._name} ended:\n{self.tail()}")

    @property
    def side(self) -> str:
        """Whose program it is."""
        return "upstream" if self._binaries else "kscale"

    def cpu_seconds(self) -> float:
        """That it has used since it was started, in user and system mode."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field: str = "VmRSS") -> float:
        """In MiB; ``VmHWM``: the most that it has had."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def _program(self, config: Path) -> list[str]:
        (port,) = free_ports(1)
        secure = self._binaries is not None and self._name == "horizontal"
        self.metrics_url = f"{'https' if secure else 'http'}://127.0.0.1:{port}/metrics"
        if self._binaries is None:
            words = [sys.executable, str(_PROGRAM), "run", self._name, f"--address=127.0.0.1:{port}"]
        elif secure:
            return self._controller_manager(config, port)
        else:
            words = [str(self._binaries / self.known.binary), f"--address=127.0.0.1:{port}"]
        return [*words, *self._webhook()] if self._name == "vpa-admission" else words

    def _controller_manager(self, config: Path, port: int) -> list[str]:
        """Upstream's HPA is a part of the control plane's own program; nothing else of it runs here."""
        return [
            str(self._plane.program), "kube-controller-manager", "--controllers=horizontal-pod-autoscaler-controller",
            "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self._plane.directory / self._name}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
        ]  # fmt: skip

    def _webhook(self) -> list[str]:
        at = self._plane.directory
        self.issue_certificate()
        (self.webhook_port,) = free_ports(1)
        return [
            f"--port={self.webhook_port}", "--register-by-url=true", "--webhook-address=https://localhost",
            f"--webhook-port={self.webhook_port}", f"--tls-cert-file={at / 'webhook.crt'}",
            f"--tls-private-key={at / 'webhook.key'}", f"--client-ca-file={at / 'ca.crt'}",
        ]  # fmt: skip

    def issue_certificate(self) -> None:
        """Gives the webhook another certificate; each file is there whole at any time."""
        issued = self._plane.authority.issue_cert("localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        for name, data in (("webhook.crt", chain), ("webhook.key", issued.private_key_pem.bytes())):
            new = self._plane.directory / f"{name}.new"
            new.write_bytes(data)
            new.rename(self._plane.directory / name)
