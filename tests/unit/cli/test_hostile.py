"""Input that nobody means well, or that was cut, mixed up or closed: each is told by name, none is a bug in kscale."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.objects.api.meta import shorten
from kscale.snapshot.text import files
from unit.cli.command_server import CommandServer
from unit.cli.support import Run
from unit.cli.support import kscale as run
from unit.cli.test_mix import CATALOGUE
from unit.cli.test_replay_hpa import HPA

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]},
}
AMOUNTS = {"cpu": "2", "memory": "8Gi", "pods": "110"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}
GROUPS = [{"id": "a", "max": 3, "template": {"status": {"allocatable": AMOUNTS, "capacity": AMOUNTS}}}]
USAGE = "time,namespace,pod,container,cpu_cores,memory_bytes\n1750000000,shop,web,app,0.5,1000000\n"
LEVELS = 100_000  # beyond any recursion limit: other libraries in the process raise it
DEEP = '{"a":' * LEVELS + "1" + "}" * LEVELS


def listed(*items: Any) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dump.json").write_text(listed(POD, NODE))
    (tmp_path / "groups.json").write_text(json.dumps(GROUPS))
    (tmp_path / "usage.csv").write_text(USAGE)
    (tmp_path / "deep.json").write_text(DEEP)
    (tmp_path / "deep-list.json").write_text("[" * LEVELS + "]" * LEVELS)
    (tmp_path / "utf16.json").write_bytes(b"\xff\xfe{}")
    return tmp_path


def refused(got: Run, *messages: str) -> None:
    assert (got.code, got.stdout) == (2, "")
    assert "bug in kscale" not in got.stderr
    for text in messages:
        assert text in got.stderr


def changed(**spec: Any) -> dict[str, Any]:
    pod = deepcopy(POD)
    pod["spec"].update(spec)
    return pod


@pytest.mark.parametrize("value", [10**30, 2**31, -(2**31) - 1])
def test_numbers_that_the_api_does_not_hold(folder: Path, value: int) -> None:
    (folder / "dump.json").write_text(listed(changed(priority=value), NODE))
    refused(run("estimate", "-f", folder / "dump.json", "--node", "n"), "items[0] (Pod shop/web): spec.priority: ")


def test_a_request_that_wraps_around(folder: Path) -> None:
    """Upstream's arithmetic does, too; it is warned of, and no bound follows from it."""
    pod = deepcopy(POD)
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(2**63 - 1)
    (folder / "dump.json").write_text(listed(pod, NODE))
    got = run("estimate", "-f", folder / "dump.json", "-g", folder / "groups.json", "--ignore-existing")
    assert (got.code, got.stdout.splitlines()[0]) == (0, "1 pod pending: 1 need new nodes, 0 fit nowhere.")
    assert "(Pod shop/web): spec.containers[0].resources.requests.cpu: 9223372036854775807 is too large" in got.stderr


@pytest.mark.parametrize("name", ["deep.json", "deep-list.json"])
def test_deep_groups_files(folder: Path, name: str) -> None:
    got = run("estimate", "-f", folder / "dump.json", "-g", folder / name)
    refused(got, f"{name}: nested too deeply to be read")


@pytest.mark.parametrize("command", ["scale-up", "scale-down"])
@pytest.mark.parametrize(
    ("name", "why"), [("deep.json", "nested too deeply"), ("utf16.json", "not a saved loop state")]
)
def test_invalid_states_are_refused(folder: Path, command: str, name: str, why: str) -> None:
    got = run(command, "-f", folder / "dump.json", "-g", folder / "groups.json", "--state", folder / name)
    refused(got, f"{name}: not a saved loop state", why)


@pytest.fixture
def usual_recursion_limit() -> Iterator[None]:
    """Python's own, whatever a library of another test has set."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_recursion_limit")
def test_a_deep_pod(folder: Path) -> None:
    """As deep as the native reader takes, and too deep for the objects that are made of it."""
    odd = '{"a":' * 1000 + "1" + "}" * 1000
    text = listed(POD, NODE).replace('"spec":', f'"status": {{"odd": {odd}}}, "spec":', 1)
    (folder / "dump.json").write_text(text)
    got = run("scale-up", "-f", folder / "dump.json", "-g", folder / "groups.json")
    refused(got, "shop/web", "nested too deeply")


@pytest.mark.usefixtures("usual_recursion_limit")
@pytest.mark.parametrize("form", ["list", "lines", "api"])
def test_one_deep_object_is_named_and_left_out(folder: Path, form: str) -> None:
    parameters = '{"a":' * 20000 + "1" + "}" * 20000
    opaque = f'{{"opaque":{{"driver":"d","parameters":{parameters}}}}}'
    rest = f'"metadata":{{"name":"gpu","namespace":"team"}},"spec":{{"devices":{{"config":[{opaque}]}}}}'
    head = '"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1"'
    claim, listed_as = f"{{{head},{rest}}}", head.replace('Claim"', 'ClaimList"')
    place, text = {
        "list": (
            "items[1]",
            f'{{"kind":"List","apiVersion":"v1","items":[{json.dumps(NODE)},{claim},{json.dumps(POD)}]}}',
        ),
        "lines": ("line 2", f"{json.dumps(NODE)}\n{claim}\n{json.dumps(POD)}\n"),
        "api": ("items[0]", f'{{{listed_as},"metadata":{{}},"items":[{{{rest}}}]}}'),
    }[form]
    (folder / "dump.json").write_text(text)
    for command in (("estimate",), ("scale-up", "-g", folder / "groups.json")):
        got = run(*command, "-f", folder / "dump.json")
        field = "spec.devices.config[0].opaque.parameters.a"
        refused(got, f"{place} (ResourceClaim team/gpu): {field}", "nested too deeply", "--skip-invalid")
        assert run(*command, "-f", folder / "dump.json", "--skip-invalid").code in (0, 1)


DEEP_YAML = {"flow": "{a: " * 1100 + "1" + "}" * 1100, "block": "".join("\n" + " " * i + "a:" for i in range(1, 1200))}


@pytest.mark.parametrize("deep", DEEP_YAML.values(), ids=DEEP_YAML)
def test_one_deep_yaml_document_is_named_and_left_out(folder: Path, deep: str) -> None:
    head = "kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: gpu, namespace: team}\n"
    path = folder / "dump.yaml"
    path.write_text("---\n".join([yaml_of(NODE), f"{head}spec: {deep}\n", yaml_of(POD)]))
    message = "document 2 (ResourceClaim team/gpu): nested too deeply"
    refused(run("estimate", "-f", path), f"{path}: {message}", "--skip-invalid")
    got = run("estimate", "-f", path, "--skip-invalid")
    assert got.code in (0, 1)
    assert message in got.stderr
    assert "1 pod pending" in got.stdout


def yaml_of(obj: dict[str, Any]) -> str:
    return f"# an object\n{json.dumps(obj, indent=1)}\n"


@pytest.mark.parametrize("now", ["0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z"])
@pytest.mark.parametrize(
    "command",
    [
        ("recommend", "--history", "usage.csv"),
        ("scale-up", "-g", "groups.json"),
        ("scale-down", "-g", "groups.json"),
    ],
)
def test_moments_beyond_64_bits_of_nanoseconds(folder: Path, command: tuple[str, ...], now: str) -> None:
    arguments = [folder / word if word.endswith((".csv", ".json")) else word for word in command]
    got = run(*arguments, "-f", folder / "dump.json", "--now", now)
    refused(got, "--now", "is not between the years 1678 and 2262")


@pytest.mark.parametrize(("closed", "message"), [("<&-", "stdin is closed"), (">&-", "stdout is closed")])
def test_closed_streams(folder: Path, closed: str, message: str) -> None:
    source = "-" if closed == "<&-" else "dump.json"
    command = f"{sys.executable} -m kscale estimate -f {source} --node n {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "bug" not in done.stderr


def test_a_closed_stderr_is_no_reason_to_fail(folder: Path) -> None:
    command = f"{sys.executable} -m kscale estimate -f dump.json --node n 2>&-"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:14]) == (1, "1 pod pending:")


@pytest.mark.parametrize("command", ["generate --nodes 300 --pods 3000", "estimate -f big.json --node n -o json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_output_pipe_ends_quietly(folder: Path, command: str, unbuffered: str) -> None:
    pods = [{**POD, "metadata": {"name": f"web-{i}-{'x' * 100}", "namespace": "shop"}} for i in range(3000)]
    (folder / "big.json").write_text(listed(NODE, *pods))
    text = f"({sys.executable} -m kscale {command} -q; echo $? > status) | head -c 10 > start"
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    subprocess.run(["bash", "-c", text], cwd=folder, check=True, env=env)
    assert (folder / "status").read_text() == "141\n"


def test_null_list_is_empty(folder: Path) -> None:
    """As the clients of some languages write what they have not."""
    pod = deepcopy(POD)
    pod["spec"]["containers"][0]["resources"].update(claims=None, limits=None)
    (folder / "dump.json").write_text(listed(pod, NODE))
    assert run("estimate", "-f", folder / "dump.json", "--node", "n").code == 1


def test_a_long_text_is_not_echoed_whole(folder: Path) -> None:
    pod = deepcopy(POD)
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "x" * 10**6
    (folder / "dump.json").write_text(listed(pod, NODE))
    got = run("estimate", "-f", folder / "dump.json", "--node", "n")
    refused(got, f'requests.cpu: "{"x" * 80}... (1,000,000 characters)" is not a quantity')
    assert len(got.stderr) < 1000
    assert shorten("x" * 80) == "x" * 80


def test_a_device_is_no_file() -> None:
    refused(run("estimate", "-f", "/dev/zero", "--node", "n"), "/dev/zero: a device is no file to read")
    assert "device" not in run("estimate", "-f", "/dev/null", "--node", "n").stderr


def test_decompression_bomb_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_SUSPICIOUS", 1 << 20)
    (folder / "zeros.json.gz").write_bytes(gzip.compress(bytes(32 << 20)))
    got = run("estimate", "-f", folder / "zeros.json.gz", "--node", "n")
    refused(got, "zeros.json.gz: damaged gzip data: it unpacks to more than 300 times its size")
    pods = [{**POD, "metadata": {"name": f"web-{i}", "namespace": "shop"}} for i in range(20_000)]
    (folder / "alike.json.gz").write_bytes(gzip.compress(listed(NODE, *pods).encode()))
    assert run("estimate", "-f", folder / "alike.json.gz", "--node", "n").code == 1


def test_a_dump_is_no_history(folder: Path) -> None:
    got = run("recommend", "-f", folder / "dump.json", "--history", folder / "dump.json")
    refused(got, "dump.json: not a Prometheus answer")


def test_a_template_of_manifests_is_to_be_rendered_first(folder: Path) -> None:
    (folder / "chart.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n")
    refused(
        run("estimate", "-f", folder / "chart.yaml"),
        "malformed YAML: it looks like a template: render it first (helm template)",
    )


def test_an_empty_name_is_no_directory() -> None:
    refused(run("estimate", "-f", ""), "an empty name is no file")


def test_saved_states_and_records_hold_no_annotations(folder: Path) -> None:
    labels = {"pool": "a"}
    node = {**NODE, "metadata": {"name": "n", "labels": labels}}
    node["status"] = {
        **NODE["status"],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}],
    }
    secret = {"name": "n", "annotations": {"example.com/token": "SECRET"}}
    csi = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": secret, "spec": {"drivers": []}}
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": secret,
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    }
    (folder / "dump.json").write_text(listed(POD, node, csi, slice_))
    (folder / "groups.json").write_text(json.dumps([{"id": "a", "max": 3, "nodeSelector": labels}]))
    arguments = ["-f", folder / "dump.json", "-g", folder / "groups.json", "--now", "2026-05-04T12:00:00Z"]
    got = run("scale-up", *arguments, "--save-state", folder / "state.json", "-o", "json")
    state = (folder / "state.json").read_text()
    assert '"resourceSlices"' in state
    assert "SECRET" not in got.stdout + state


@pytest.mark.parametrize("text", ["severity=critical", "severity>=critical", "severity >= critical"])
def test_a_level_without_a_shell_redirect(folder: Path, text: str) -> None:
    arguments = ["recommend", "-f", folder / "dump.json", "--history", folder / "usage.csv", "--fail-on"]
    assert run(*arguments, text).code == 0
    refused(run(*arguments, "severity>critical"), "expected severity=S")


# -- streams and files that cannot be written, devices that never end --------------------------------------------------


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv", "markdown", "html"])
def test_a_full_disk_behind_stdout(folder: Path, commands: CommandServer, form: str) -> None:
    words = ("estimate", "-q", "-f", folder / "dump.json", "-g", folder / "groups.json", "-o", form)
    with open("/dev/full", "w") as full:
        got = commands.run(*words, stdout=full.fileno())
    assert (got.returncode, got.stderr) == (2, "error: stdout: No space left on device\n")


ANSWERS = (
    "mix -q -f dump.json --catalogue types.csv --ignore-existing --instance-type m5*",
    "simulate three-minutes.yaml -q",
    "replay hpa load.csv -f fast.yaml --request 500m -q",
    "whatif scenarios.yaml -q -f dump.json -g groups.json",
    "cost -q -f dump.json -g priced.json",
)
"""Commands whose inputs are in the folder of :func:`inputs`. ``example`` writes files only."""


@pytest.fixture
def inputs(folder: Path) -> Path:
    shutil.copy(Path(kscale.__file__).parent / "examples" / "three-minutes.yaml", folder)
    (folder / "scenarios.yaml").write_text("scenarios:\n- name: none\n  edits: []\n")
    (folder / "types.csv").write_text(CATALOGUE)
    (folder / "priced.json").write_text(json.dumps([{**GROUPS[0], "price": 0.5, "nodes": ["n"]}]))
    (folder / "fast.yaml").write_text(HPA.replace("NAME", "fast"))
    (folder / "load.csv").write_text("time,value\n" + "\n".join(f"{i * 30},{1 + i % 5}" for i in range(20)))
    return folder


@pytest.mark.parametrize(
    "words", ["--help", "--version", "schema EstimateReport", "generate -q --nodes 1 --pods 1 --to -", *ANSWERS]
)
def test_full_disk_behind_other_output_is_an_error(inputs: Path, commands: CommandServer, words: str) -> None:
    with open("/dev/full", "w") as full:
        got = commands.run(*words.split(), stdout=full.fileno(), cwd=inputs)
    assert (got.returncode, got.stderr) == (2, "error: stdout: No space left on device\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
@pytest.mark.parametrize("words", ANSWERS)
def test_a_signal_while_stdout_is_written(
    inputs: Path, commands: CommandServer, words: str, number: int, status: int
) -> None:
    """Nobody reads on, so that the command is in the middle of its answer."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with open(inputs / "stderr", "w") as err:
        command = commands.start(*words.split(), "-o", "html", stdout=writing, stderr=err.fileno(), cwd=inputs)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"<"
        command.send_signal(number)
        assert command.wait() == status
    finally:
        os.close(reading)
    stderr = (inputs / "stderr").read_text()
    assert "Traceback" not in stderr
    assert "bug in kscale" not in stderr


def closed_pipe() -> int:
    """Return a pipe that nobody reads: a write is EPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def closed_terminal() -> int:
    """Return a terminal that was closed at its other end: a write is EIO."""
    ours, theirs = os.openpty()
    os.close(ours)
    return theirs


@pytest.mark.parametrize(
    "words",
    [
        "--help", "--version", "estimate --help", "schema EstimateReport", "generate -q --nodes 1 --pods 1 --to -",
        "estimate -q -f dump.json -g groups.json", "estimate -q -f dump.json -g groups.json -o json",
        "scale-up -q -f dump.json -g groups.json", "scale-down -q -f dump.json -g groups.json -o yaml",
        "recommend -q -f dump.json --history usage.csv -o csv", "manifests vpa-crds -q", "catalogue list", *ANSWERS,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("stdout", "status", "message"),
    [(closed_pipe, 141, ""), (closed_terminal, 2, "error: stdout: Input/output error\n")],
)
def test_unread_stdout_is_an_error(
    inputs: Path, commands: CommandServer, words: str, stdout: Callable[[], int], status: int, message: str
) -> None:
    descriptor = stdout()
    try:
        got = commands.run(*words.split(), stdout=descriptor, cwd=inputs)
    finally:
        os.close(descriptor)
    assert (got.returncode, got.stderr) == (status, message)


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_name_that_an_ascii_locale_lacks(folder: Path, form: str) -> None:
    pod = deepcopy(POD)
    pod["metadata"]["labels"] = {"owner": "ä"}
    (folder / "dump.json").write_text(listed(pod, NODE))
    groups = [{**GROUPS[0], "id": "größe"}]
    (folder / "groups.json").write_text(json.dumps(groups))
    words = ("estimate", "-q", "-f", "dump.json", "-g", "groups.json", "-o", form)
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    got = subprocess.run(
        [sys.executable, "-m", "kscale", *words],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=folder,
        env={**os.environ, **ascii_locale},
    )
    assert (got.returncode, got.stderr) == (1, "")
    assert "größe" in got.stdout


ENDLESS: dict[str, tuple[str, ...]] = {
    "groups": ("estimate", "-f", "dump.json", "-g", "/dev/zero"),
    "state": ("scale-up", "-f", "dump.json", "-g", "groups.json", "--state", "/dev/zero"),
    "catalogue": ("mix", "-f", "dump.json", "--catalogue", "/dev/zero", "--instance-type", "*"),
    "import": ("catalogue", "import", "/dev/zero", "--name", "x"),
    "priorities": (
        *("scale-up", "-f", "dump.json", "-g", "groups.json", "--expander", "priority"),
        *("--priority-config", "/dev/zero"),
    ),
    "what if": ("whatif", "/dev/zero", "-f", "dump.json", "-g", "groups.json"),
    "scenario": ("simulate", "/dev/zero"),
    "kubeconfig": ("run", "horizontal", "--kubeconfig", "/dev/zero"),
    "history": ("recommend", "-f", "dump.json", "--history", "/dev/zero"),
}


@pytest.mark.parametrize("command", ENDLESS.values(), ids=ENDLESS)
def test_a_device_that_never_ends_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    refused(run(*command), "/dev/zero")


WRITING: dict[str, tuple[str, ...]] = {
    "state": ("scale-up", "-f", "dump.json", "-g", "groups.json", "--save-state", "out"),
    "dump": ("generate", "--nodes", "40", "--pods", "200", "--to", "out"),
    "packed": ("generate", "--nodes", "40", "--pods", "200", "--to", "out.gz"),
    "generated groups": ("generate", "--nodes", "40", "--pods", "20", "--to", "-", "--groups", "out"),
    "usage": ("generate", "--nodes", "4", "--pods", "20", "--to", "-", "--usage", "out.csv"),
    "columns of usage": ("generate", "--nodes", "4", "--pods", "20", "--to", "-", "--usage", "out.parquet"),
    "advice": ("recommend", "-f", "dump.json", "--history", "usage.csv", "-o", "json", "--output-file", "out"),
    "schemas": ("schema", "--directory", "."),
}


@pytest.mark.parametrize("command", WRITING.values(), ids=WRITING)
def test_full_disk_keeps_the_old_file(folder: Path, commands: CommandServer, command: tuple[str, ...]) -> None:
    """Files of more than 300 bytes cannot be written, as on a full disk: the command fails, and the old file stays."""
    names = ("out", "out.gz", "out.csv", "out.parquet", "EstimateReport.json")
    for name in names:
        (folder / name).write_bytes(b"old")
    before = sorted(path.name for path in folder.iterdir())
    got = commands.run(*command, cwd=folder, file_size=300)
    assert (got.returncode, "File too large" in got.stderr) == (2, True)
    assert "bug in kscale" not in got.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
    assert {name: (folder / name).read_bytes() for name in names} == dict.fromkeys(names, b"old")


# -- objects with as many entries as they can hold ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ["explain", "fit"])
def test_all_host_ports_of_two_pods(folder: Path, command: str) -> None:
    """Pair by pair these would be a thousand million comparisons for each node."""
    ports = [{"containerPort": port, "hostPort": port} for port in range(1, 32_769)]
    pods = []
    for name, node in (("waits", None), ("runs", "n")):
        pod = deepcopy(POD)
        pod["metadata"]["name"] = name
        pod["spec"]["containers"][0] |= {"ports": ports, "resources": {}}
        pod["spec"] |= {"nodeName": node} if node else {}
        pods.append(pod)
    (folder / "dump.json").write_text(listed(*pods, NODE))
    (folder / "pod.json").write_text(json.dumps({**pods[0], "metadata": {"name": "new", "namespace": "shop"}}))
    words = ("shop/waits",) if command == "explain" else ("--pod", folder / "pod.json")
    got = run(command, "-q", "-f", folder / "dump.json", *words)
    assert (got.code, got.stderr) == (1, "")
    assert "node(s) didn't have free ports for the requested pod ports" in got.stdout


def test_twenty_thousand_node_selector_terms(folder: Path) -> None:
    terms = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(20_000)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    (folder / "dump.json").write_text(listed(changed(affinity=affinity), NODE))
    got = run("explain", "-q", "-f", folder / "dump.json", "shop/web")
    assert "node(s) didn't match Pod's node affinity/selector" in got.stdout
