"""What ``nox -s docs`` says of links inside the built site."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FILE = Path(__file__).parents[2] / ".ci" / "links.py"


def test_broken_links_are_named(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("links", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.html").write_text('<h1 id="a b">x</h1><a href="../index.html#top">y</a>')
    (tmp_path / "index.html").write_text(
        '<p id="top"><a href="deep/other.html#a%20b">1</a><a href="#top">2</a><a href="https://example.org/no">3</a>'
        '<a href="#gone">4</a><img src="gone.png"><a href="deep/other.html#top">5</a>'
    )
    assert module.broken(tmp_path) == (
        6,
        [
            "index.html: #gone: no such heading",
            "index.html: gone.png: no such file",
            "index.html: deep/other.html#top: no such heading",
        ],
    )
