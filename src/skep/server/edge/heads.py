"""Answer HEAD wherever GET is answered, except on hot routes: a poll would consume messages."""

from typing import Any, cast

from litestar.types import ASGIApp, Message, Receive, Scope, Send


def answering_heads(app: ASGIApp) -> ASGIApp:
    """Return an application that answers HEAD as it answers GET, without the body.

    The answer ends with its head. What the application still sends is dropped, and it is told that
    the client disconnected: event streams have no end of their own.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await app(scope, receive, send)
            return
        is_begun = False

        async def send_head(message: Message) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # A copy: the server leaves out the body because its own says HEAD.
        await app(cast("Any", {**scope, "method": "GET"}), receive, send_head)

    return run
