"""The task runner: the same commands here and in CI. `nox -l` lists them."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["lint", "test"]
nox.options.reuse_existing_virtualenvs = True

EXTRAS = "cli,data,dra,grpc,kube,metrics,plots,plugins,regex,solver"


def groups(*names: str) -> list[str]:
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *names)


@nox.session
def demo(session: nox.Session) -> None:
    """Build kscale and answer the bundled example: how many nodes do the pending pods need?"""
    session.install(".[cli]")
    example = Path("examples")
    session.run(
        "kscale",
        "estimate",
        "-f",
        str(example / "cluster.json.gz"),
        "-g",
        str(example / "groups.yaml"),
        success_codes=[0, 1],
    )


@nox.session
def test(session: nox.Session) -> None:
    """Build kscale and run every test."""
    session.install(f".[{EXTRAS}]", *groups("test"))
    session.run("python", "-m", "pytest", "-n", "auto", "-q", *session.posargs)


@nox.session
def fresh(session: nox.Session) -> None:
    """Tests of properties with new examples, for two minutes (or --property-time=SECONDS)."""
    session.install(f".[{EXTRAS}]", *groups("test"))
    seed = random.randrange(1 << 32)
    given = ["--property-time=120", *session.posargs]
    session.run(
        "python",
        "-m",
        "pytest",
        "-n",
        "auto",
        "-q",
        "--hypothesis-profile=fresh",
        f"--hypothesis-seed={seed}",  # printed with the command: the same seed finds the same again
        *given,
    )


@nox.session
def e2e(session: nox.Session) -> None:
    """End-to-end tests against a real control plane, which is built once (needs Go); `-- -m smoke`: a part of them."""
    session.install(f".[{EXTRAS}]", *groups("test"))
    session.run("python", "-m", "pytest", "-o", "python_files=e2e_*.py", "-q", "tests/e2e", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, mypy strict, and the floors."""
    session.install(f".[{EXTRAS}]", *groups("lint", "test"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")


@nox.session
def bench(session: nox.Session) -> None:
    """The benchmarks; each asserts its answer and prints its conditions."""
    session.install(f".[{EXTRAS}]", *groups("test"))
    session.run("python", "-m", "pytest", "benchmarks", "--benchmark-enable", "--benchmark-only", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Mutants of a sample of the decision code; build/mutants.txt lists those that no test notices."""
    session.install(f".[{EXTRAS}]", *groups("test"), "cosmic-ray>=8.4")
    session.run("python", ".ci/mutants.py", *session.posargs)


@nox.session
def sanitize(session: nox.Session) -> None:
    """The native tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    session.install(*groups("build", "test"), "numpy", "msgspec")
    session.install(
        "--no-build-isolation",
        "--no-deps",
        "--force-reinstall",
        ".",
        "-Ccmake.define.KSCALE_SANITIZE=ON",
        "-Cbuild-dir=build/asan",
        "-Cinstall.strip=false",
    )
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")
    ]
    session.run(
        "python",
        "-m",
        "pytest",
        "-s",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/native",
        *map(str, sorted(Path("tests/unit").glob("**/test_*_kernel.py"))),
        "tests/unit/series/test_usage_text.py",
        *session.posargs,
        env={
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
        },
    )


@nox.session
def dist(session: nox.Session) -> None:
    """An sdist, a wheel made from it, and an import of that wheel."""
    session.install("build")
    session.run("python", "-m", "build", "--outdir", "dist")
    wheel = max(Path("dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    session.install("--force-reinstall", f"{wheel}")
    session.run("python", "-c", "import kscale; print(kscale.build_info())")


if __name__ == "__main__":
    sys.exit("run me with nox")
