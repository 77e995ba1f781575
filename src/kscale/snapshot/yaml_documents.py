"""Multi-document YAML as plain data (extra ``[yaml]``), read as Kubernetes tools read it: times stay texts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from kscale.errors import MissingExtraError, Problem

__all__ = ["documents"]


@cache
def _loader() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("reading YAML", "yaml") from None
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # the base is chosen at run time
        """The C loader without the conversions that the API's JSON does not have."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_JSON]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

    return Loader


_NOT_JSON = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})


def documents(text: bytes, source: str) -> Iterator[Any | Problem]:
    """Every document that is not empty; a syntax error ends the stream with a :class:`Problem`."""
    loader = _loader()
    import yaml

    try:
        for document in yaml.load_all(text, Loader=loader):
            if document is not None:
                yield document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        yield Problem(f"{place}malformed YAML: {error.problem or error.context}", source)
    except (yaml.YAMLError, ValueError) as error:
        yield Problem(f"malformed YAML: {error}", source)
