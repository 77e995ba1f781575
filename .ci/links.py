"""Every link of the built documentation to a page, a file or a heading of it (``nox -s docs``), and no others.

    python .ci/links.py build/docs

Fails with those that lead nowhere. Links to other sites are not followed: that needs a network, and says nothing of
the change at hand.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """``anchors``: what of a page can be linked to; ``links``: as they are written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # the signature of HTMLParser
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def broken(root: Path) -> tuple[int, list[str]]:
    """How many links inside a built site were followed, and a line for each that leads nowhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in root.rglob("*.html")}
    followed, lines = 0, []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                lines.append(f"{path.relative_to(root.resolve())}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                lines.append(f"{path.relative_to(root.resolve())}: {link}: no such heading")
    return followed, lines


def main(root: Path) -> None:
    followed, lines = broken(root)
    if lines or not followed:
        sys.exit("\n".join(lines) or f"no links in {root}")
    sys.stdout.write(f"{followed} links inside the documentation hold\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
