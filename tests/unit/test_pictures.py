"""The pictures of the documentation show what kscale answers now, and every page for a task has one."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load() -> ModuleType:
    spec = spec_from_file_location("docs_pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pictures = load()


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_current(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    drawn = pictures.PICTURES[name]()
    again = f"{DOCS.name}/pictures/{name}.svg is another picture: run python docs/pictures.py {name}"
    assert (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == drawn, again


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_texts_stay_inside_the_picture(name: str) -> None:
    root = ET.fromstring((DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8"))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        width = len(text.text or "") * float(text.get("font-size", "13")) * 0.5
        start = float(text.get("x", "0"))
        left_edge = start - {"end": width, "middle": width / 2}.get(text.get("text-anchor", ""), 0)
        assert left_edge > -4, text.text
        assert left_edge + width < pictures.WIDTH, text.text


def pages(*captions: str) -> list[str]:
    """The pages under captions of the index."""
    index = (DOCS / "index.md").read_text()
    result = re.findall(r"^:caption: (.*)\n:maxdepth: 1\n\n((?:[\w./-]+\n)+)", index, re.MULTILINE)
    return [page for caption, block in result if caption.startswith(captions) for page in block.split()]


TASKS = pages("Tutorial", "How to")


@pytest.mark.parametrize("page", TASKS)
def test_tutorials_and_how_to_pages_have_a_picture(page: str) -> None:
    assert re.search(r"!\[[^\]]+\]\([\w/.-]+\.svg\)", (DOCS / f"{page}.md").read_text())


def test_every_picture_is_shown_and_every_kind_of_page_is_in_the_index() -> None:
    texts = "".join(page.read_text() for page in (ROOT / "README.md", *DOCS.glob("*.md")))
    assert [path.stem for path in (DOCS / "pictures").glob("*.svg") if path.name not in texts] == []
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} == pictures.PICTURES.keys()
    assert len(TASKS) > 20
    assert pages("Reference")
    assert pages("Explanation")


def test_everyday_questions_have_a_command_and_a_page_on_the_front_page() -> None:
    rows = re.findall(
        r"^\| (.*\?) \| `kscale .*` \| \[.*\]\(([\w.-]+)\S*\) \|$", (DOCS / "index.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 10
    assert all((DOCS / page).exists() for _, page in rows)
