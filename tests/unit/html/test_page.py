"""The page of an answer: well formed, self-contained, whatever names there are in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.html import page
from kscale.views import Block, Cell, Chart, Column, DrawnNode, DrawnPod, Folded, Origin, Packing, Table, View

VOID = {"meta"}
HOSTILE = "</td></script><script>document.title='taken'</script><img src=x onerror=\"x\">' \x1b[31m\u202egnp"


class Reader(HTMLParser):
    """The elements of a page, checked for nesting; the text that a reader sees, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self.open[-1:] != ["style"]:
            self.text += data


def blocks(name: str) -> Sequence[Block]:
    pods = [DrawnPod(name, name, {"cpu": 1.5, "memory": 2.0}), DrawnPod("daemon", "agent", {"cpu": 0.5})]
    room = {"cpu": 4.0, "memory": 8.0}
    node = DrawnNode([name, "n2"], name, room, {"cpu": "4", "memory": "8 GiB"}, pods, "bad")
    return (
        Packing(name, [node], left_out=3),
        Folded(name, [(name, [name, "a line"])]),
        Chart(name, [0.0, 3600.0], {name: [1.0, 2.0], "other": [0.0, 7.5]}),
    )


def make_page(name: str, record: bytes = b"{}") -> str:
    table = Table(
        [Column(name), Column("NODES", "right"), Column("WIDE", wide=True)],
        [[name, 1234, None], [Cell("big", "warn", 7), 0.5, name]],
        title=name,
    )
    return page(name, View(name, [table, Table([Column("EMPTY")], [])], [name]), blocks(name), record=record)


@given((st.text(max_size=60) | st.just(HOSTILE)).map(lambda text: f"{text}!"))
def test_names_are_text_and_nothing_else(name: str) -> None:
    plain, result = Reader(make_page("name")), Reader(make_page(name))
    assert [tag for tag, _ in result.tags] == [tag for tag, _ in plain.tags]
    for (_, mine), (_, its) in zip(result.tags, plain.tags, strict=True):
        assert mine.keys() == its.keys(), "no attribute more"
    assert result.scripts == plain.scripts
    assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e]", make_page(name))


def test_page_is_self_contained() -> None:
    text = make_page("shop/web", b'{"kind":"Sample","name":"</script><b>"}')
    result = Reader(text)
    record, script = result.scripts
    assert json.loads(record) == {"kind": "Sample", "name": "</script><b>"}
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = [has["content"] for tag, has in result.tags if has.get("http-equiv") == "Content-Security-Policy"]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in result.tags}
    for tag, has in result.tags:
        assert not {"src", "href", "onclick"} & has.keys(), tag
    assert "url(" not in text
    assert "@import" not in text


def test_page_is_complete_without_scripts() -> None:
    result = Reader(make_page("shop/web"))
    cells, pods = ("1,234", "big", "-"), ("cpu 50% of 4", "memory 25% of 8 GiB", "2 × shop/web", "2 pods")
    more = (
        "Alike: shop/web, n2",
        "3 more nodes are not drawn",
        "other: 0 to 7.5, at the end 7.5",
    )
    for text in (*cells, *pods, *more):
        assert text in result.text
    assert "EMPTY" not in result.text
    sorts = [has["data-sort"] for tag, has in result.tags if "data-sort" in has]
    assert sorts == ["1234", "7", "0.5"]


def test_bars_are_as_wide_as_requests() -> None:
    pieces = [has for tag, has in Reader(make_page("web")).tags if tag == "rect" and has["class"] != "room"]
    assert [(each["x"], each["width"]) for each in pieces] == [("0.0", "375.0"), ("375.0", "125.0"), ("0.0", "250.0")]
    full = DrawnNode(["n"], "", {"cpu": 1.0}, {}, [DrawnPod("a", "a", {"cpu": 3.0})])
    text = page("t", View("h"), [Packing("p", [full])])
    assert 'width="1000.0"' in text, "what is over a node's room is not drawn outside of it"
    assert "cpu 300% of" in text
    assert ">1 pod<" in text


@pytest.mark.parametrize(("steps", "path"), [(True, "M64.0 124.0H976.0V12.0"), (False, "M64.0 124.0L976.0 12.0")])
def test_a_line_reaches_over_the_whole_picture(steps: bool, path: str) -> None:
    text = page("t", View("h"), [Chart("c", [0.0, 3600.0], {"a": [1.0, 2.0]}, steps=steps)])
    assert f' d="{path}"' in text


def test_the_whole_chart_is_in_its_picture() -> None:
    text = page("t", View("h"), [*blocks("n"), Chart("c", [0.0, 3600.0], {"a": [0.0, 2.0]}, unit="nodes")])
    _, _, width, height = re.findall(r'viewBox="(\S+) (\S+) (\S+) (\S+)" class="chart"', text)[-1]
    drawing = text[text.rindex('class="chart"') :]
    drawing = drawing[: drawing.index("</svg>")]
    assert max(map(float, re.findall(r'\by[12]?="([^"]*)"', drawing))) <= float(height)
    assert max(map(float, re.findall(r'\bx[12]?="([^"]*)"', drawing))) <= float(width)
    assert min(map(float, re.findall(r"V([\d.]+)", drawing))) < 0.9 * float(height), "the axis takes no more than that"


def chart_texts(longest: float, highest: float, unit: str = "nodes") -> list[str]:
    text = page("t", View("h"), [Chart("c", [0.0, longest], {"a": [0.0, highest]}, unit=unit)])
    return re.findall(r"<text[^>]*>([^<]*)</text>", text)


@pytest.mark.parametrize(
    ("longest", "highest", "values", "times"),
    [
        (5400.0, 4.0, ["0", "1", "2", "3", "4"], ["0 min", "15 min", "30 min", "45 min", "60 min", "75 min", "90 min"]),
        (50.0, 0.3, ["0", "0.1", "0.2", "0.3"], ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]),
        (30 * 86400.0, 4_300.0, ["0", "1,000", "2,000", "3,000", "4,000", "5,000"],
         ["0 d", "5 d", "10 d", "15 d", "20 d", "25 d", "30 d"]),
        (86400.0, 27.0, ["0", "10", "20", "30"], ["0 h", "6 h", "12 h", "18 h", "24 h"]),
        (0.0, 0.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"], ["0 s", "1 s"]),
    ],
)  # fmt: skip
def test_a_chart_has_axes_with_units(longest: float, highest: float, values: list[str], times: list[str]) -> None:
    assert chart_texts(longest, highest) == [*values, "nodes", *times, "time since the start"]
    assert "nodes" not in chart_texts(longest, highest, unit="")


@pytest.mark.parametrize(
    ("highest", "values"), [(0.0, ["0", "1"]), (1.0, ["0", "1"]), (7.0, ["0", "2", "4", "6", "8"])]
)
def test_an_axis_of_whole_numbers_shows_no_others(highest: float, values: list[str]) -> None:
    text = page("t", View("h"), [Chart("c", [0.0, 50.0], {"a": [0.0, highest]}, integral=True)])
    assert re.findall(r"<text[^>]*>([^<]*)</text>", text)[: len(values) + 1] == [*values, "0 s"]


def test_page_shows_time_inputs_and_command() -> None:
    origin = Origin("2026-07-01 12:00:00 UTC", "a.json, <b>", "kscale cost -f a.json -f '<b>' -o html", "0.1.0")
    reader = Reader(page("t", View("h"), origin=origin))
    assert "Made 2026-07-01 12:00:00 UTC from a.json, <b> with kscale 0.1.0." in reader.text
    assert "kscale cost -f a.json -f '<b>' -o html" in reader.text
    assert "Made" not in Reader(page("t", View("h"))).text


def test_a_cell_of_several_numbers_is_sorted_by_the_first() -> None:
    table = Table([Column("NODES")], [[Cell("3 of 9", "", (3, 9))]])
    tags = Reader(page("t", View("h", [table]))).tags
    assert [attributes["data-sort"] for _, attributes in tags if "data-sort" in attributes] == ["3"]


def test_long_lines_are_thinned_to_their_highest() -> None:
    values = [0.0] * 10_000
    values[4_321] = 9.0
    text = page("t", View("h"), [Chart("c", [float(i) for i in range(10_000)], {"a": values})])
    path = re.search(r' d="([^"]+)"', text)
    assert path is not None
    assert path[1].count("H") < 2_100
    assert "V34.4" in path[1], "the peak is there"


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_in_a_browser(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(make_page(HOSTILE), encoding="utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    result = subprocess.run([*command, f"file://{tmp_path}/page.html"], capture_output=True, check=True, text=True)
    page_ = Reader(result.stdout)
    assert sum(tag == "button" for tag, _ in page_.tags) == 3, "the page's own script ran: headings sort"
    assert "<title>taken" not in result.stdout, "and no other"
