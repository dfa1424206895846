"""The reference page of the HTTP API, written from its OpenAPI document."""

from collections.abc import Iterator
from typing import Any, Final

from skep.server.api_document.contract import CONTRACT, ContractRoute, route_shape

_HEAD: Final = """\
# HTTP API

This page is written by `make docs` from the OpenAPI document; do not edit it. A broker serves the
document, with every parameter and body, at `/openapi.json` and as a page at `/docs`; `skep openapi`
prints it without a broker.

`Queen` marks the routes of Queen MQ's wire contract, which its clients call; `Skep` those that only
we have. Errors have one shape everywhere, `{"error", "code"}`. A {queue} or other name in a path is
percent-encoded. The role is what a caller needs where tokens are asked for:
[security.md](security.md).

"""
_SOCKET: Final = """\
One more is no HTTP operation and so not in the document: a WebSocket at
`/api/v1/stream/queue/{queue}`, described in [live.md](live.md).
"""
_CONTRACT_HEAD: Final = """
## The wire contract

Every route of Queen 0.15, of what its clients call beyond that, and of the replay that came with
1.6, all of them served; by section of the wire reference.

| section | route |
|---|---|
"""
_METHODS: Final = ("get", "post", "put", "delete")


def render_http_page(document: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    contract = {route.shape for route in CONTRACT}
    tables = [_table(tag, rows) for tag, rows in _rows_by_tag(document, contract).items()]
    return "".join([_HEAD, *tables, _SOCKET, _CONTRACT_HEAD, *map(_contract_row, CONTRACT)])


def _rows_by_tag(document: dict[str, Any], contract: set[tuple[str, str]]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for method, path, operation in _operations(document):
        origin = "Queen" if route_shape(method, path) in contract else "Skep"
        statuses = " ".join(sorted(operation["responses"]))
        summary = operation["summary"].rstrip(".")
        rows.setdefault(operation["tags"][0], []).append(
            f"| `{method.upper()} {path}` | {summary} | {operation['x-access']} | {statuses} "
            f"| {origin} |\n"
        )
    return dict(sorted(rows.items()))


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in sorted(document["paths"].items()):
        for method in _METHODS:
            if method in item:
                yield method, path, item[method]


def _table(tag: str, rows: list[str]) -> str:
    head = f"## {tag}\n\n| route | does | role | statuses | of |\n|---|---|---|---|---|\n"
    return head + "".join(rows) + "\n"


def _contract_row(route: ContractRoute) -> str:
    return f"| {route.section} | `{route.method} {route.path}` |\n"
