"""Namespaces and keys, as operators see them."""

from typing import Final

from skep.broker.kv.browse import KvBrowser, KvListRequest, KvNamespaces, KvPage
from skep.broker.kv.operations import refuse_query
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes.section import AnyRequest, Body, Section, routes_of

_PATH: Final = "/api/v1/resources/kv"


@routes_of("Keys and values")
def kv_browse_routes(section: Section, browser: KvBrowser) -> None:
    """Declare the routes that list keys."""

    @section.get(f"{_PATH}/namespaces", access.READ)
    async def list_kv_namespaces(request: AnyRequest) -> KvNamespaces:
        """List the namespaces that have keys."""
        refuse_query(request.url.query)
        return await browser.list_namespaces()

    @section.post(f"{_PATH}/list", access.READ_BY_BODY, body=Body(KvListRequest))
    async def list_kv(request: AnyRequest, asked: KvListRequest) -> KvPage:
        """List the keys of a namespace."""
        refuse_query(request.url.query)
        requester_of(request).require_namespace(asked.namespace)
        return await browser.list_keys(asked)
