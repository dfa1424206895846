"""Describe to the API document the bodies that a handler decodes by itself.

Litestar documents the bodies it decodes; but one that is not UTF-8 or nested too deeply it answers
with 500, so our handlers use `skep.server.hot.decoding`, and say here what they expect.
"""

from dataclasses import dataclass
from typing import Any, cast

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema


def body_of(shape: type[msgspec.Struct], *, is_required: bool = True) -> type[Operation]:
    """Return the `operation_class` of a handler that expects such a body."""
    _, components = msgspec.json.schema_components([shape])
    schema = _SpelledSchema(_inlined(components[shape.__name__], components))
    body = RequestBody(
        content={"application/json": OpenAPIMediaType(schema=schema)}, required=is_required
    )

    @dataclass
    class DescribedOperation(Operation):
        def __post_init__(self) -> None:
            self.request_body = body

    return DescribedOperation


class _SpelledSchema(Schema):
    """A schema that is JSON already: what msgspec says of a shape needs no translation."""

    def __init__(self, spelled: dict[str, Any]) -> None:
        super().__init__()
        self._spelled = spelled

    def to_schema(self) -> dict[str, Any]:
        return self._spelled


def _inlined(part: Any, components: dict[str, Any]) -> Any:
    """Put the shapes a schema refers to in their places: Litestar has components of its own."""
    if isinstance(part, list):
        return [_inlined(each, components) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    members = cast("dict[str, Any]", part)
    if "$ref" in members:
        return _inlined(components[members["$ref"].rpartition("/")[2]], components)
    return {name: _inlined(each, components) for name, each in members.items()}
