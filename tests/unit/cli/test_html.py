"""``-o html``: what pages show beside tables, from the objects on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kscale import __version__ as kscale_version
from kscale import hpa
from kscale.html.markup import time_of_document
from unit.cli.support import kscale
from unit.cli.test_scale_up import PODS, group, node
from unit.html.test_page import Reader

EXAMPLES = Path(__file__).parents[3] / "examples"
DUMP = ("-q", "-f", EXAMPLES / "cluster.json.gz")
GROUPS = ("-g", EXAMPLES / "groups.yaml")
HPA = Path(hpa.__file__).parent / "examples"
NOW = ("--now", "2026-07-01T00:00:00Z")


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (
            ("estimate", *DUMP, *GROUPS),
            ("general-a: 11 new nodes", "2 × template-node-for-general-a-0-e-0", "Why not more", "Fit nowhere"),
        ),
        (("scale-up", *DUMP, *GROUPS, *NOW), ("compute: 7 new nodes", "Still pending", "cpu ")),
        (("scale-down", *DUMP, *GROUPS, *NOW, "--exhaustive"), ("Nodes now", "What stays")),
        (("mix", *DUMP, *GROUPS, "--budget", "0.2"), ("New nodes", "m5.4xlarge", "Without a place")),
        (("headroom", *DUMP), ("Nodes now", "homeless if lost", "Who would be homeless")),
        (("headroom", *DUMP, "--lose", "zone=us-east-1a"), ("Nodes now", "Without zone=us-east-1a")),
        (("whatif", EXAMPLES / "scenarios.yaml", *DUMP, *GROUPS, *NOW), ("cheap-memory", "QUESTION")),
        (("simulate", EXAMPLES / "simulate-web.yaml", "--horizon", "5m", "-q"), ("Cores", "5 min", "time since")),
        (("cost", *DUMP, *GROUPS, "--budget", "0"), ("$27.87/h for 40 nodes", "Node groups")),
        (("nodes", *DUMP, *GROUPS, *NOW), ("Nodes now", "NoPlaceToMovePods", "27.87/h")),
        (("drain", "ip-10-0-1-37.ec2.internal", *DUMP, *NOW), ("Nodes before the drain", "pending: 3 pods")),
        (
            ("consolidate", *DUMP, "-g", EXAMPLES / "reserved.yaml", *NOW, "--max-steps", "1", "--no-bound"),
            ("Cost per hour after each step", "Nodes today", "Step 1 (replace)", "What stays"),
        ),
        (
            ("preempt", "identity/events-etl-85-scm46srbkm-d7hnt", *DUMP),
            ("Candidates now", "chosen", "payments/prices-mailer-11-tdv9k"),
        ),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else None,
)
def test_pages(words: tuple[object, ...], texts: tuple[str, ...]) -> None:
    got = kscale(*words, "-o", "html")
    assert got.code in (0, 1), got.stderr
    page = Reader(got.stdout)
    for text in texts:
        assert text in page.text
    record = json.loads(page.scripts[0])
    assert record["apiVersion"] == "kscale.dev/v1alpha1"
    assert record["kind"] in page.text


@pytest.mark.parametrize("epoch", ["9" * 30, "9" * 5000, "١", "-1", "1.5", ""])
def test_a_malformed_epoch_is_ignored(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert time_of_document().year >= 2026


def test_page_shows_time_inputs_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1780000000")
    monkeypatch.setattr("sys.argv", ["kscale"])
    page = Reader(kscale("headroom", *DUMP, "-o", "html").stdout)
    dump = EXAMPLES / "cluster.json.gz"
    assert f"Made 2026-05-28 20:26:40 UTC from {dump} with kscale {kscale_version}." in page.text
    assert f"kscale headroom -q -f {dump} -o html" in page.text


PODS_FILE = EXAMPLES / "web.yaml"
RESERVED = EXAMPLES / "reserved.yaml"
SIMULATED = EXAMPLES / "simulate-web.yaml"
WHAT_IF = EXAMPLES / "scenarios.yaml"


@pytest.mark.parametrize(
    ("words", "inputs"),
    [
        (("fit", *DUMP, "--pod", PODS_FILE), [PODS_FILE, DUMP[-1]]),
        (("mix", *DUMP, "--pod", PODS_FILE, *GROUPS, "--budget", "0"), [DUMP[-1], PODS_FILE, GROUPS[-1]]),
        (("consolidate", *DUMP, "-g", RESERVED, *NOW, "--max-steps", "1", "--no-bound"), [DUMP[-1], RESERVED]),
        (("simulate", SIMULATED, "--horizon", "5m", "-q"), [SIMULATED]),
        (("compare", SIMULATED, "--horizon", "5m", "-q"), [SIMULATED]),
        (("whatif", WHAT_IF, *DUMP, *GROUPS, *NOW), [WHAT_IF, DUMP[-1], GROUPS[-1]]),
        (("diff", DUMP[-1], DUMP[-1], "-q"), [DUMP[-1], DUMP[-1]]),
        (("replay", "hpa", HPA / "web_load.csv", "-f", HPA / "web_hpa.yaml", "--request", "500m"),
         [HPA / "web_load.csv", HPA / "web_hpa.yaml"]),
        (("explain", *DUMP, "logistics/users-frontend-84-4hfp5nftww-pk7qz"), [DUMP[-1]]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_a_page_names_every_input(words: tuple[object, ...], inputs: list[object]) -> None:
    page = Reader(kscale(*words, "-o", "html").stdout)
    assert f" from {', '.join(map(str, inputs))} with kscale {kscale_version}." in page.text


@pytest.mark.parametrize(
    "words",
    [("simulate", SIMULATED, "-q"), ("compare", EXAMPLES / "simulate-karpenter.yaml", "-q", "--provisioners")],
    ids=lambda words: words[0],
)
def test_counts_of_a_simulation_have_axes_of_whole_numbers(words: tuple[object, ...]) -> None:
    page = kscale(*words, "--horizon", "5m", "-o", "html").stdout
    sections = re.findall(r"<h2>([^<]*)</h2><div class=\"scrolled\"><svg(.*?)</svg>", page)
    ticks = {title: re.findall(r'text-anchor="end"[^>]*>([^<]*)<', drawing) for title, drawing in sections}
    assert ticks.pop("Cores")
    assert ticks
    assert all(numbers and all(number.isdecimal() for number in numbers) for numbers in ticks.values()), ticks


def test_a_page_hides_the_passwords_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "https://me:secret@host"
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}')
    page = kscale("headroom", "-f", "https://me:secret@host/dump.json", "-o", "html").stdout
    assert "-f https://me:xxxxx@host/dump.json" in page
    assert "secret" not in page


def test_page_ends_with_its_footer() -> None:
    bare = kscale("whatif", EXAMPLES / "scenarios.yaml", *DUMP, *GROUPS, *NOW, "-o", "html").stdout
    assert "<footer" not in bare, "a line that nothing follows"
    load = (HPA / "web_load.csv", "-f", HPA / "web_hpa.yaml", "--request", "500m")
    page = kscale("replay", "hpa", *load, "-o", "html").stdout
    assert "<footer><p>Plant: usage = load / ready pods" in page


def test_nodes_that_may_not_be_lost_alone_are_marked_beside_pairs() -> None:
    record = json.loads(kscale("headroom", *DUMP, "--lose", "pairs", "-o", "json").stdout)
    alone = record["pairs"]["alone"]
    page = Reader(kscale("headroom", *DUMP, "--lose", "pairs", "-o", "html").stdout)
    assert page.text.count("homeless if lost") == len(alone) > 0
    assert all(f"Without {loss['name']}: {loss['homeless']} of" in page.text for loss in alone)


def test_groups_that_are_not_drawn_are_named(tmp_path: Path) -> None:
    dump, groups = tmp_path / "dump.json", tmp_path / "groups.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("n"), *PODS]}))
    groups.write_text(json.dumps([group(f"g{i:02}") for i in range(14)]))
    page = Reader(kscale("estimate", "-q", "-f", dump, "-g", groups, "-o", "html").stdout)
    for text in ("g11: 2 new nodes", "Not drawn", "2 more groups", "g12: 2 new nodes", "g13: 2 new nodes"):
        assert text in page.text


def test_every_placed_pod_is_drawn() -> None:
    page = Reader(kscale("headroom", *DUMP, "-o", "html").stdout)
    shares = [has["aria-label"] for tag, has in page.tags if tag == "svg" and has.get("aria-label")]
    assert len(shares) >= 80, "a bar for cpu and one for memory"
    assert all("%" in (share or "") for share in shares)
