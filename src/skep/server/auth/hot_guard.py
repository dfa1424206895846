"""Let callers in, or say why not: for the hot routes here, for all others in `admission`.

A hot handler is wrapped once and then runs with the identity of its caller. Nearly always that is
known at once. If keys or the namespace of a queue have to be fetched first, the exchange waits in a
task of its own and the handler runs afterwards, unless the client is gone by then.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from typing import Final, TypeAlias

from skep.model.errors import SkepError
from skep.server.auth.access import Access, Level
from skep.server.auth.authenticator import Authenticator
from skep.server.auth.identity import ANYONE, Identity
from skep.server.auth.scopes import Scopes
from skep.server.hot.exchange import Exchange, HotHandler, respond_error, run_handler

IdentifiedHandler: TypeAlias = Callable[[Exchange, Identity], None]

AUTHORIZATION: Final = b"authorization"


class Door:
    """The way in to one broker process."""

    def __init__(
        self,
        scopes: Scopes,
        *,
        authenticator: Authenticator | None = None,
        public_paths: Collection[str] = (),
    ) -> None:
        """Without an authenticator everybody may do everything."""
        self.scopes: Final = scopes
        self.authenticator: Final = authenticator
        self._public_paths: Final = frozenset(public_paths)
        self._waiting: Final[set[asyncio.Task[None]]] = set()

    @property
    def is_guarded(self) -> bool:
        """Whether callers have to say who they are."""
        return self.authenticator is not None

    def left_s(self, identity: Identity) -> float:
        """Return how long a token is still good; infinity where there are none."""
        return math.inf if self.authenticator is None else self.authenticator.left_s(identity)

    def is_public(self, access: Access, path: str) -> bool:
        """Whether a request needs no token. Only what reads can be made public by its path."""
        if access.level is Level.NONE:
            return True
        return access.level is Level.READ_ONLY and path in self._public_paths

    async def stop(self) -> None:
        """Let nobody wait any longer."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def guard(self, level: Level, handler: IdentifiedHandler) -> HotHandler:
        """Return a handler of the same name that lets in callers of this level."""
        authenticator = self.authenticator
        if authenticator is None:

            @wraps(handler)
            def open_to_all(exchange: Exchange) -> None:
                handler(exchange, ANYONE)

            return open_to_all

        def let_in(exchange: Exchange, identity: Identity) -> None:
            identity.require(level)
            handler(exchange, identity)

        @wraps(handler)
        def guarded(exchange: Exchange) -> None:
            header = exchange.header(AUTHORIZATION)
            identity = authenticator.identify(header)
            if identity is not None:
                let_in(exchange, identity)
                return

            async def wait() -> Callable[[], None]:
                known = await authenticator.identify_patiently(header)
                return lambda: let_in(exchange, known)

            self._later(exchange, wait())

        return guarded

    def preview(self, exchange: Exchange) -> None:
        """Refuse, before its body is read, a request whose token is certain to be refused.

        Raises:
            SkepError: It is.
        """
        if self.authenticator is not None:
            self.authenticator.identify(exchange.header(AUTHORIZATION))

    def admit(
        self,
        exchange: Exchange,
        identity: Identity,
        proceed: Callable[[], None],
        *,
        queues: Collection[str] = (),
        partitions: Collection[int] = (),
    ) -> None:
        """Call `proceed`, now or later, if the caller may change all of these.

        Raises:
            Forbidden: It may not.
        """
        level = Level.READ_WRITE
        if self.scopes.allow_now(identity, level, queues=queues, partitions=partitions):
            proceed()
            return

        async def wait() -> Callable[[], None]:
            await self.scopes.require(identity, level, queues=queues, partitions=partitions)
            return proceed

        self._later(exchange, wait())

    def _later(self, exchange: Exchange, wait: Awaitable[Callable[[], None]]) -> None:
        task = asyncio.get_running_loop().create_task(_run_later(exchange, wait))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)


async def _run_later(exchange: Exchange, wait: Awaitable[Callable[[], None]]) -> None:
    is_gone = False

    def note_gone() -> None:
        nonlocal is_gone
        is_gone = True

    exchange.when_aborted(note_gone)
    try:
        proceed = await wait
    except SkepError as error:
        if not is_gone:
            respond_error(exchange, error)
        return
    if not is_gone:
        run_handler(lambda _: proceed(), exchange)
