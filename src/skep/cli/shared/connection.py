"""The broker that a command connects to, its client, and shell completion from it.

A command decorated with `@with_client` takes an open client as its first argument, one with
`@with_connection` only what names the broker; both have the options --url, --token and --context.
These win over the variables SKEP_URL, SKEP_TOKEN and SKEP_CONTEXT, those over the current context,
that over the default address of `skep serve`. A context's stored token is sent to that context's
URL only.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import typer
from typer import Argument, Option

from skep.cli.shared.contexts import Context, ContextBook, check_url, split_urls
from skep.cli.shared.options import declare_options
from skep.model.errors import BadRequest
from skep.settings.connection import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    ConnectionChoice,
    connection_variables,
)

if TYPE_CHECKING:
    from skep.client import Client

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL: Final = "http://127.0.0.1:6632"
RETRIES: Final = 2
"""Enough for a hiccup: a person waits. Commands that must outlive a restart retry by themselves."""
NAMES_MAX: Final = 100
COMPLETION_TIMEOUT_S: Final = 0.7


def complete_context(incomplete: str) -> list[str]:
    """Return the contexts that start with a text."""
    try:
        return [each.name for each in ContextBook().all() if each.name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 (an error must not appear in the line being typed)
        return []


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Return the queues that start with a text, from the broker that the typed options name."""

    def ask(client: "Client") -> list[str]:
        page = client.queues.find(search=incomplete or None, limit=NAMES_MAX)
        return [queue.name for queue in page.queues if queue.name.startswith(incomplete)]

    return _ask_broker(context, ask)


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Return the consumer groups that start with a text."""

    def ask(client: "Client") -> list[str]:
        names = {group.name for group in client.groups.find()}
        return sorted(name for name in names if name.startswith(incomplete))

    return _ask_broker(context, ask)


_PANEL: Final = "Connection"
Url = Annotated[
    str | None,
    Option(help="Broker URL; separate several instances by commas.", rich_help_panel=_PANEL),
]
Token = Annotated[str | None, Option(help="Access token.", rich_help_panel=_PANEL)]
ContextName = Annotated[
    str | None,
    Option(
        help="Saved connection, see `skep context list`.",
        autocompletion=complete_context,
        rich_help_panel=_PANEL,
    ),
]
QueueName = Annotated[str, Argument(help="Queue name.", autocompletion=complete_queue)]
GroupName = Annotated[str, Argument(help="Consumer group.", autocompletion=complete_group)]
OnlyQueue = Annotated[
    str | None, Option("--queue", help="Only this queue.", autocompletion=complete_queue)
]
OnlyPartition = Annotated[str | None, Option("--partition", help="Only this partition.")]


@dataclass(frozen=True, slots=True)
class Server:
    """The broker that a command connects to."""

    urls: tuple[str, ...]
    token: str | None
    origin: str
    """What named the URL."""
    token_origin: str | None


@dataclass(frozen=True, slots=True)
class _Source:
    """A place that may name a URL, a token, or both."""

    origin: str
    url: str | None = None
    token: Callable[[], str | None] | None = None
    is_bound: bool = False
    """Whether the token belongs to the URL, and goes nowhere else."""


def find_server(flags: ConnectionChoice, book: ContextBook | None = None) -> Server:
    """Find the broker to connect to.

    Raises:
        BadRequest: A URL is invalid.
        NotFound: There is no such context.
    """
    book = book or ContextBook()
    sources = _sources(flags, connection_variables(), book)
    chosen = next(source for source in sources if source.url is not None)
    urls = split_urls(chosen.url or "")
    if not urls:
        raise BadRequest(f"the URL from {chosen.origin} is empty")
    for url in urls:
        check_url(url)
    for source in sources:
        if source.token is not None and (source is chosen or not source.is_bound):
            token = source.token()
            if token is not None:
                return Server(urls, token, chosen.origin, source.origin)
    return Server(urls, None, chosen.origin, None)


def _sources(
    flags: ConnectionChoice, variables: ConnectionChoice, book: ContextBook
) -> list[_Source]:
    def of_context(context: Context | None, *, is_bound: bool) -> _Source:
        if context is None:
            return _Source("no context")
        return _Source(
            f"context {context.name}", context.url, lambda: book.token_of(context), is_bound
        )

    def named(name: str | None, *, is_bound: bool) -> _Source:
        return of_context(None if name is None else book.find(name), is_bound=is_bound)

    return [
        _Source("--url", flags.url),
        _Source("--token", token=lambda: flags.token),
        # An explicit --context together with --url asks for that combination.
        named(flags.context, is_bound=False),
        _Source(URL_VARIABLE, variables.url),
        _Source(TOKEN_VARIABLE, token=lambda: variables.token),
        named(variables.context, is_bound=True),
        of_context(book.current, is_bound=True),
        _Source("the default", DEFAULT_URL),
    ]


@contextmanager
def opened_client(flags: ConnectionChoice) -> Generator["Client"]:
    """Open a client of the broker that options, variables and contexts name."""
    from skep.client import Client, Unreachable

    server = find_server(flags)
    with Client(server.urls, token=server.token, retries=RETRIES) as client:
        try:
            yield client
        except Unreachable as error:
            message = error.message.rstrip(".")
            raise Unreachable(f"{message} (the URL is from {server.origin})") from error


def with_connection(command: Callable[Concatenate[ConnectionChoice, P], T]) -> Callable[..., T]:
    """Add the options that name the broker; their values are the command's first argument."""

    def run(
        *args: Any,
        url: Url = None,
        token: Token = None,
        context: ContextName = None,
        **kwargs: Any,
    ) -> T:
        return command(ConnectionChoice(url=url, token=token, context=context), *args, **kwargs)

    declare_options(run, command, {"url": Url, "token": Token, "context": ContextName})
    return run


def with_client(command: Callable[Concatenate["Client", P], T]) -> Callable[..., T]:
    """Give a command a client as its first argument, and the options that name the broker."""

    def run(choice: ConnectionChoice, *args: Any, **kwargs: Any) -> T:
        with opened_client(choice) as client:
            return command(client, *args, **kwargs)

    # The client stays in the signature, where `with_connection` puts its own argument.
    declare_options(run, command, {}, hidden=())
    return with_connection(run)


def _ask_broker(context: typer.Context, ask: Callable[["Client"], list[str]]) -> list[str]:
    """Ask the broker that the typed options name; nothing if it does not answer at once."""
    from skep.client import Client

    try:
        typed = {name: context.params.get(name) for name in ("url", "token", "context")}
        server = find_server(ConnectionChoice(**typed))
        with Client(
            server.urls,
            token=server.token,
            retries=0,
            timeout_s=COMPLETION_TIMEOUT_S,
            connect_timeout_s=COMPLETION_TIMEOUT_S,
        ) as client:
            return ask(client)
    except Exception:  # noqa: BLE001 (an error must not appear in the line being typed)
        return []
