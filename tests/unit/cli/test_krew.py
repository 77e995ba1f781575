"""The manifest that krew reads, and the archive that it names."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import kscale

ROOT = Path(__file__).parents[3]
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def krew() -> Any:
    spec = importlib.util.spec_from_file_location("krew_of_ci", ROOT / ".ci" / "krew.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def unpacked(tmp_path: Path) -> tuple[Path, str]:
    """The archive as krew unpacks it, with kscale as the only library; its SHA-256."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "kscale").mkdir()
    (libraries / "kscale" / "__main__.py").write_text("import sys; print('kscale', *sys.argv[1:])\n")
    archive = tmp_path / "archive.tar.gz"
    sha256 = krew().pack({THIS: libraries}, archive)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "installed", filter="data")
    return tmp_path / "installed", sha256


def test_the_manifest_is_as_krew_documents_it(unpacked: tuple[Path, str]) -> None:
    """The fields that krew's index takes, and what its validation and its naming guide ask of them."""
    folder, sha256 = unpacked
    text = krew().manifest(kscale.__version__, "https://example.com", "https://example.com/a.tar.gz", sha256, [THIS])
    assert "$" not in text
    created = yaml.safe_load(text)
    assert created.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (created["apiVersion"], created["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert created["metadata"] == {"name": (ROOT / "packaging/krew/kscale.yaml").stem}
    assert re.fullmatch(r"[a-z0-9-]+", created["metadata"]["name"])
    spec = created["spec"]
    assert spec.keys() == {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not re.search(r"[\r\n]|kubectl|plugin", spec["shortDescription"])
    assert THIS in spec["caveats"]
    (platform,) = spec["platforms"]
    assert platform.keys() == {"selector", "uri", "sha256", "bin"}
    assert platform["selector"] == {"matchLabels": {"os": "linux", "arch": "amd64"}}
    assert platform["uri"].endswith(".tar.gz")
    assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
    assert os.access(folder / platform["bin"], os.X_OK)
    assert (folder / "LICENSE").is_file()


def run(program: Path, path: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], env={"PATH": path}, cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_launcher_takes_a_python_with_libraries(unpacked: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = unpacked
    link = tmp_path / "kubectl-kscale"  # as krew links it
    link.symlink_to(folder / "kubectl-kscale")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / f"python{THIS}").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    (programs / "python3").write_text("#!/bin/sh\necho python3.2\n")  # there are no libraries for it
    for program in programs.iterdir():
        program.chmod(0o755)
    done = run(link, f"{programs}:/usr/bin:/bin", "estimate", "-f", "a b")
    assert (done.returncode, done.stdout) == (0, "kscale estimate -f a b\n"), done.stderr


def test_the_launcher_runs_nothing_of_the_folder_it_is_called_in(unpacked: tuple[Path, str], tmp_path: Path) -> None:
    installed, _ = unpacked
    programs, here = tmp_path / "bin", tmp_path / "here"
    programs.mkdir()
    (programs / f"python{THIS}").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    (programs / f"python{THIS}").chmod(0o755)
    (here / "kscale").mkdir(parents=True)
    (here / "kscale" / "__main__.py").write_text("print('of the folder')\n")
    (installed / "lib" / f"python{THIS}" / "kscale" / "__main__.py").write_text("import json; print('kscale')\n")
    (here / "json.py").write_text("print('of the folder')\n")
    (programs / "python3").symlink_to(programs / f"python{THIS}")
    done = run(installed / "kubectl-kscale", f"{programs}:/usr/bin:/bin", folder=here)
    assert (done.returncode, done.stdout) == (0, "kscale\n"), done.stderr


def test_the_launcher_says_which_pythons_it_needs(unpacked: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = unpacked
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "readlink", "ls"):
        (programs / name).symlink_to(f"/bin/{name}")
    done = run(folder / "kubectl-kscale", str(programs))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kubectl kscale needs one of these on the path: python{THIS}\n"


def test_the_python_of_a_wheel_is_in_its_name() -> None:
    assert krew().minor_of(Path("kscale_core-0.1.0-cp312-cp312-manylinux_2_28_x86_64.whl")) == "3.12"


@pytest.mark.parametrize("tags", ["cp314-cp314t", "py3-none", "cp312-abi3"])
def test_a_wheel_for_another_python_is_refused(tags: str) -> None:
    with pytest.raises(ValueError, match="not for an ordinary CPython"):
        krew().minor_of(Path(f"kscale_core-0.1.0-{tags}-manylinux_2_28_x86_64.whl"))


def test_two_wheels_for_a_python_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = [f"kscale_core-0.1.0-cp312-cp312-{system}_x86_64.whl" for system in ("manylinux_2_28", "musllinux_1_2")]
    monkeypatch.setattr(sys, "argv", ["krew.py", "--homepage", "h", "--uri", "u", *wheels])
    created = krew()
    monkeypatch.setattr(created.shutil, "rmtree", lambda *_, **__: pytest.fail("it began to make the archive"))
    with pytest.raises(SystemExit):
        created.main()
    assert "two wheels are for the same Python" in capsys.readouterr().err


def test_a_candidate_has_the_version_that_krew_orders() -> None:
    created = yaml.safe_load(
        krew().manifest("0.2.0rc1", "https://example.com", "https://example.com/a", "0" * 64, [THIS])
    )
    assert created["spec"]["version"] == "v0.2.0-rc.1"
    with pytest.raises(ValueError, match="not a version that krew can order"):
        krew().semantic("0.2.0.post1")
