"""The public API against that of the last release (``nox -s api``): what a program could do then, it can do now.

    python .ci/api.py             # status 1, and a line for everything that a caller would miss
    python .ci/api.py --write     # at a release: .ci/api.json is what there is now

The API is what the modules of ``docs/reference`` have in ``__all__``, with signatures and members of classes, and the
documents of ``docs/schemas``. What is new is no break; a name or parameter that is gone, a parameter that has become
necessary or keyword-only, a field of a document that is gone or of another type is one.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WORDS = {"attribute", "class", "module", "value"}
"""What is said of a public name that has no parameters."""
RELEASED = ROOT / ".ci" / "api.json"


def parameters(call: Any) -> str | None:
    """The parameters as source text, every default an ellipsis; None if Python cannot tell."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return None
    plain = [
        each.replace(annotation=each.empty, default=each.default if each.default is each.empty else ...)
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))[1:-1].replace("Ellipsis", "...")


def described(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A public name and, of a class, its public members: (name, parameters or what it is)."""
    if inspect.isclass(value):
        yield name, parameters(value) or "class"
        own = [base for base in value.__mro__ if base.__module__.partition(".")[0] == "kscale"]
        for member in sorted({member for base in own for member in vars(base) if not member.startswith("_")}):
            found = inspect.getattr_static(value, member)
            function = getattr(found, "__func__", found)
            text = parameters(function) if inspect.isfunction(function) else None
            yield f"{name}.{member}", "attribute" if text is None else text
    elif inspect.ismodule(value):
        yield name, "module"
    else:
        yield name, (parameters(value) if callable(value) else None) or "value"


def fields(document: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a document and of the objects in it, with their types."""
    for definition, body in {"": schema, **schema.get("$defs", {})}.items():
        for field, found in body.get("properties", {}).items():
            kept = {key: found[key] for key in ("type", "$ref", "anyOf", "items", "enum", "const") if key in found}
            yield f"{document}#{definition}.{field}", json.dumps(kept, sort_keys=True)


def public() -> dict[str, dict[str, str]]:
    """Return the public API: names with their parameters, and the fields of documents with their types."""
    names: dict[str, str] = {}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        module = importlib.import_module(page.stem)
        for name in module.__all__:
            names.update(described(f"{page.stem}.{name}", getattr(module, name)))
    documents: dict[str, str] = {}
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        documents.update(fields(path.stem, json.loads(path.read_text())))
    return {"documents": documents, "names": names}


def narrower(then: str, now: str) -> str | None:
    """What a call that was possible with the parameters ``then`` would miss ``now``; None: nothing."""
    before, after = (inspect.signature(eval(f"lambda {text}: 0")).parameters for text in (then, now))
    kinds = {each.kind for each in after.values()}
    places = [each.name for each in after.values() if each.kind <= each.POSITIONAL_OR_KEYWORD]
    for place, each in enumerate(before.values()):
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            if each.kind not in kinds:
                return f"takes no {each} any more"
            continue
        found = after.get(each.name)
        if found is None and each.VAR_KEYWORD not in kinds:
            return f"has no parameter {each.name} any more"
        if each.kind <= each.POSITIONAL_OR_KEYWORD and places[place : place + 1] != [each.name]:
            return f"takes {each.name} no more as argument {place + 1}"
        if each.default is not each.empty and found is not None and found.default is found.empty:
            return f"needs {each.name} now"
    needed = [
        each.name
        for each in after.values()
        if each.name not in before and each.default is each.empty and each.kind <= each.KEYWORD_ONLY
        and each.kind is not each.VAR_POSITIONAL
    ]  # fmt: skip
    return f"needs {needed[0]} now" if needed else None


def breaks(then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for everything that was possible and is not possible any more."""
    lines = []
    for name, text in then["names"].items():
        found = now["names"].get(name)
        if found is None:
            lines.append(f"{name}: gone")
        elif text != found:
            words = WORDS & {text, found}
            problem = f"{text!r} is {found!r} now" if words else narrower(text, found)
            lines += [f"{name}: {problem}"] if problem else []
    for field, text in then["documents"].items():
        found = now["documents"].get(field)
        if found != text:
            lines.append(f"{field}: gone" if found is None else f"{field}: {text} is {found} now")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make what there is now the released API")
    given = parser.parse_args()
    now = public()
    if given.write:
        RELEASED.write_text(json.dumps(now, indent=0, sort_keys=True) + "\n")
        return
    found = breaks(json.loads(RELEASED.read_text()), now)
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
