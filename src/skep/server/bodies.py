"""Describe to the API document the bodies that a handler decodes by itself.

Litestar documents the bodies it decodes; but one that is not UTF-8 or nested too deeply it answers
with 500, so our handlers use `skep.server.decoding`, and say here what they expect.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema


def body_of(shape: type[msgspec.Struct], *, is_required: bool = True) -> type[Operation]:
    """Return the `operation_class` of a handler that expects such a body."""
    described = msgspec.json.schema(shape)["$defs"][shape.__name__]
    body = RequestBody(
        content={"application/json": OpenAPIMediaType(schema=_schema(described))},
        required=is_required,
    )

    @dataclass
    class DescribedOperation(Operation):
        def __post_init__(self) -> None:
            self.request_body = body

    return DescribedOperation


def _schema(described: dict[str, Any]) -> Schema:
    properties: dict[str, Any] = described.get("properties", {})
    values: dict[str, Any] | None = described.get("additionalProperties")
    return Schema(
        title=described.get("title"),
        description=described.get("description"),
        type=OpenAPIType(described["type"]) if "type" in described else None,
        default=described.get("default"),
        properties={name: _schema(each) for name, each in properties.items()} or None,
        required=described.get("required") or None,
        any_of=[_schema(each) for each in described.get("anyOf", ())] or None,
        additional_properties=_schema(values) if values else None,
    )
