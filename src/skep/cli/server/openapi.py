"""`skep openapi`: the HTTP API, for programs and for people."""

from typing import Annotated

import typer

from skep.cli.shared.extras import require_server_extra


def openapi(
    *,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the table of all routes as Markdown.")
    ] = False,
) -> None:
    """Print the OpenAPI document of the HTTP API. No database is needed."""
    require_server_extra()
    from skep.app.parts.document import describe_api

    document = describe_api()
    if reference:
        from skep.cli.server.http_page import render_http_page

        typer.echo(render_http_page(document), nl=False)
        return
    from msgspec import json

    typer.echo(json.format(json.encode(document)).decode())
