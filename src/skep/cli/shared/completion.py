"""Names that a shell completes. Quick, and silent whatever happens: a person is typing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from skep.client import Client

NAMES_MAX: Final = 100
PATIENCE_S: Final = 0.7


def complete_context(incomplete: str) -> list[str]:
    """Return the contexts that begin so."""
    from skep.cli.shared.contexts import ContextBook

    try:
        return [each.name for each in ContextBook().all() if each.name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 (what goes wrong must not appear in the line being typed)
        return []


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the queues that begin so, from the broker that the flags typed so far name."""

    def ask(client: "Client") -> list[str]:
        page = client.queues.find(search=incomplete or None, limit=NAMES_MAX)
        return [queue.name for queue in page.queues if queue.name.startswith(incomplete)]

    return ask_quietly(context, ask)


def ask_quietly(context: typer.Context, ask: Callable[["Client"], list[str]]) -> list[str]:
    """Ask the broker that the flags typed so far name; nothing if it does not answer at once."""
    from skep.cli.shared.connection import find_server
    from skep.client import Client

    try:
        typed = {name: context.params.get(name) for name in ("url", "token", "context")}
        server = find_server(ConnectionChoice(**typed))
        with Client(
            server.urls,
            token=server.token,
            retries=0,
            timeout_s=PATIENCE_S,
            connect_timeout_s=PATIENCE_S,
        ) as client:
            return ask(client)
    except Exception:  # noqa: BLE001 (what goes wrong must not appear in the line being typed)
        return []


QueueName: TypeAlias = Annotated[
    str, typer.Argument(help="The name of a queue.", autocompletion=complete_queue)
]
