"""One key, named by the path.

Keys may contain slashes, and are cut from the path as it was sent.
"""

from pathlib import Path
from typing import Annotated, Any, Final

from litestar import Response

from skep.broker.kv import operations
from skep.broker.kv.accept import Kv
from skep.broker.kv.answer import render_single
from skep.server.api_document.shapes import KvPathDelete, KvPathPut, KvResult
from skep.server.auth import access
from skep.server.auth.guard import Requester, requester_of
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Section,
    in_path,
    rest_of_path,
    routes_of,
)

_ONE: Final = "/api/v1/kv/{ns:str}/{key:path}"

Namespace = Annotated[str, in_path("Namespace of the key.")]
Key = Annotated[Path, in_path("Key; its slashes may stay.")]


@routes_of("Keys and values")
def key_routes(section: Section, kv: Kv) -> None:
    """Declare the routes of one key."""

    @section.get(_ONE, access.READ_BY_BODY, response_description="The key.")
    async def get_key(request: AnyRequest, ns: Namespace, key: Key) -> Response[KvResult]:
        """Read a key.

        Its version is the ETag; `found` is false where there is none.
        """
        del key  # as Litestar cuts it; see `rest_of_path`
        return await _answer(kv, request, requester_of(request), ns, "get")

    @section.put(
        _ONE,
        access.WRITE_BY_BODY,
        body=Body(KvPathPut),
        response_description="What became of it.",
    )
    async def put_key(request: AnyRequest, ns: Namespace, key: Key) -> Response[KvResult]:
        """Store a value under a key."""
        del key
        return await _answer(kv, request, requester_of(request), ns, "put")

    @section.delete(
        _ONE,
        access.WRITE_BY_BODY,
        body=Body(KvPathDelete, is_required=False),
        response_description="What became of it.",
    )
    async def delete_key(request: AnyRequest, ns: Namespace, key: Key) -> Response[KvResult]:
        """Delete a key."""
        del key
        return await _answer(kv, request, requester_of(request), ns, "delete")


async def _answer(
    kv: Kv, request: AnyRequest, requester: Requester, ns: str, op: str
) -> Response[Any]:
    """Carry out the operation that a method and a path mean."""
    operations.refuse_query(request.url.query)
    requester.require_namespace(ns)
    key = rest_of_path(request, 5)
    body = b"" if op == "get" else await request.body()
    plan = operations.planned(operations.in_path(op, ns, key, body))
    result, version = render_single(plan, await kv.carry_out(plan))
    headers = {"etag": f'"{version}"'} if op == "get" and version else {}
    return Response(result, media_type="application/json", headers=headers)
