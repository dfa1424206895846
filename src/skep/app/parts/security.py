"""Access control and TLS of a broker, from its settings.

Configured keys are read at startup and by `Security.reload`; a task fetches those of a key server.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from skep.broker.queues.ownership import Ownership
from skep.db.access.slots import Slots
from skep.model.errors import BadRequest
from skep.server.auth import tokens
from skep.server.auth.access import Level
from skep.server.auth.authenticator import Authenticator
from skep.server.auth.guard import Guard
from skep.server.auth.identity import ClaimNames
from skep.server.auth.key_server import KeyServer, fetch_document
from skep.server.auth.scopes import Scopes
from skep.server.auth.tls import ServerTls
from skep.settings import Settings
from skep.settings.security import jwt_public_keys, jwt_secret, listed

_log = logging.getLogger(__name__)


class Security:
    """Access control and TLS of one process."""

    def __init__(
        self,
        settings: Settings,
        slots: Slots,
        *,
        now: Callable[[], float],
        is_away: Callable[[], bool],
    ) -> None:
        """Read keys and certificates; `BadRequest` if they cannot be used."""
        self._settings: Final = settings
        self._authenticator: Final = _authenticator(settings) if settings.jwt_enabled else None
        self._key_server: Final = _key_server(settings, self._authenticator)
        self.tls: Final = server_tls(settings)
        self.guard: Final = Guard(
            Scopes(Ownership(slots, now=now, is_away=is_away)),
            authenticator=self._authenticator,
            public_paths=listed(settings.jwt_skip_paths),
        )

    def start(self) -> None:
        """Start fetching keys, if there is a key server; does nothing if already started."""
        if self._key_server is not None:
            self._key_server.start()

    async def stop(self) -> None:
        """Cancel waiting requests and fetches."""
        await self.guard.stop()
        if self._key_server is not None:
            await self._key_server.stop()

    def reload(self) -> None:
        """Read the key and certificate files again; on failure the previous ones stay in use."""
        if self._authenticator is not None:
            try:
                self._authenticator.replace_keys(_own_keys(self._settings))
            except BadRequest as error:
                _log.error("cannot reload the token keys, the previous ones are kept: %s", error)
        if self.tls is not None:
            try:
                self.tls.reload()
            except BadRequest as error:
                _log.error("cannot reload the certificate, the previous one is kept: %s", error)


def check_files(settings: Settings) -> None:
    """Read keys and certificates, to report errors before the start."""
    server_tls(settings)
    if settings.jwt_enabled:
        _own_keys(settings)


def server_tls(settings: Settings) -> ServerTls | None:
    """Return the TLS of the settings, if any."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return ServerTls(
        settings.tls_certificate,
        settings.tls_key,
        client_authority=settings.tls_client_authority,
    )


def _authenticator(settings: Settings) -> Authenticator:
    chosen = settings.jwt_algorithm
    every = tokens.PUBLIC_ALGORITHMS | {tokens.SECRET_ALGORITHM}
    return Authenticator(
        keys=_own_keys(settings),
        rules=tokens.TokenRules(
            algorithms=every if chosen == "auto" else frozenset({chosen}),
            issuer=settings.jwt_issuer,
            audiences=listed(settings.jwt_audience),
            leeway_s=settings.jwt_clock_skew_s,
        ),
        names=ClaimNames(
            role=settings.jwt_roles_claim,
            roles=settings.jwt_roles_array_claim,
            grants=settings.jwt_grants_claim,
            levels={
                settings.jwt_role_admin: Level.ADMIN,
                settings.jwt_role_read_write: Level.READ_WRITE,
                settings.jwt_role_read_only: Level.READ_ONLY,
            },
        ),
        now=time.time,  # noqa: TID251 (wiring provides the clock)
    )


def _own_keys(settings: Settings) -> tokens.KeySet:
    secret, public = jwt_secret(settings), jwt_public_keys(settings)
    keys = () if secret is None else (tokens.secret_key(secret),)
    return keys + tokens.pem_keys(public) if public else keys


def _key_server(settings: Settings, authenticator: Authenticator | None) -> KeyServer | None:
    url, timeout_s = settings.jwt_jwks_url, settings.jwt_jwks_timeout_s
    if authenticator is None or url is None:
        return None
    server = KeyServer(
        lambda: fetch_document(url, timeout_s),
        refresh_s=settings.jwt_jwks_refresh_s,
        timeout_s=timeout_s,
        on_change=authenticator.forget,
    )
    authenticator.ask(server)
    return server
