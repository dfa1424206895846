"""Which broker a command speaks to, and the client it gets.

A command of `@with_client` takes an open client as its first argument and has the flags --url,
--token and --context. What they say wins over the variables SKEP_URL, SKEP_TOKEN and SKEP_CONTEXT,
those over the current context, that over the address at which `skep serve` listens by default.
A token that was kept with a context goes to the URL of that context only.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import typer

from skep.cli.shared.contexts import Context, ContextBook, check_url, split_urls
from skep.cli.shared.flags import show_flags
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
"""A person waits: enough to pass a hiccup by. Commands that must outlive a restart say so."""


def _complete_context(incomplete: str) -> list[str]:
    from skep.cli.shared.completion import complete_context

    return complete_context(incomplete)


Url: TypeAlias = Annotated[
    str | None,
    typer.Option(help="URL of the broker; several instances with commas between them."),
]
Token: TypeAlias = Annotated[str | None, typer.Option(help="The token that says who is calling.")]
ContextName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="A broker by its name in `skep context list`.", autocompletion=_complete_context
    ),
]


@dataclass(frozen=True, slots=True)
class Server:
    """The broker that a command speaks to."""

    urls: tuple[str, ...]
    token: str | None
    origin: str
    """Where the URL comes from, for people."""
    token_origin: str | None


@dataclass(frozen=True, slots=True)
class _Source:
    """One place that may say something, from strong to weak."""

    origin: str
    url: str | None = None
    token: Callable[[], str | None] | None = None
    is_bound: bool = False
    """Whether the token belongs to the URL, and goes nowhere else."""


def find_server(flags: ConnectionChoice, book: ContextBook | None = None) -> Server:
    """Decide which broker to speak to.

    Raises:
        BadRequest: A URL is none.
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
        # Whoever names a context and another URL for it asks for just that.
        named(flags.context, is_bound=False),
        _Source(URL_VARIABLE, variables.url),
        _Source(TOKEN_VARIABLE, token=lambda: variables.token),
        named(variables.context, is_bound=True),
        of_context(book.current, is_bound=True),
        _Source("the default", DEFAULT_URL),
    ]


@contextmanager
def opened_client(
    flags: ConnectionChoice, *, retries: int = RETRIES, timeout_s: float = 30.0
) -> Generator["Client"]:
    """Open a client of the broker that flags, variables and contexts name."""
    from skep.client import Client, Unreachable

    server = find_server(flags)
    with Client(server.urls, token=server.token, retries=retries, timeout_s=timeout_s) as client:
        try:
            yield client
        except Unreachable as error:
            # Who named the broker that did not answer is what a person has to know first.
            told = f"{error.message.rstrip('.')} (the URL is from {server.origin})"
            raise Unreachable(told) from error


def with_client(command: Callable[Concatenate["Client", P], T]) -> Callable[..., T]:
    """Give a command a client as its first argument, and the flags that say of which broker."""

    @wraps(command)
    def run(
        *args: Any,
        url: Url = None,
        token: Token = None,
        context: ContextName = None,
        **kwargs: Any,
    ) -> T:
        with opened_client(ConnectionChoice(url=url, token=token, context=context)) as client:
            return command(client, *args, **kwargs)

    show_flags(run, command, {"url": Url, "token": Token, "context": ContextName})
    return run
