"""Checks of documents against schemas."""

from __future__ import annotations

from typing import Any

from jsonschema.validators import validator_for


def validate(document: Any, schema: dict[str, Any]) -> None:
    """Raise ValidationError if the document does not match. Use it for schemas that another test checks.

    ``jsonschema.validate`` also checks the schema, which takes a hundred times as long as the document.
    """
    validator_for(schema)(schema).validate(document)
