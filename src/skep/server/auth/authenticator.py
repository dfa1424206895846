"""Identify callers by the token in the `Authorization` header.

A token is verified once and cached by its digest until it expires, so that a request costs one
lookup. The cache is bounded, contains no token, and is emptied when keys change, so that tokens of
a withdrawn key become invalid. A single token cannot be revoked.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from skep.model.errors import Unauthenticated, Unavailable
from skep.server.auth.identity import ClaimNames, Identity, identity_of
from skep.server.auth.key_server import KeyServer
from skep.server.auth.tokens import KeySet, TokenRules, UnknownKey, bearer_token, verify_token

REMEMBERED_MAX: Final = 10_000
"""Tokens; about half a kilobyte each, more if they have grants."""


@dataclass(slots=True, eq=False, kw_only=True)
class Authenticator:
    """Turns headers into identities."""

    keys: KeySet
    rules: TokenRules
    names: ClaimNames
    now: Callable[[], float]
    _server: KeyServer | None = field(default=None, init=False)
    _known: OrderedDict[bytes, Identity] = field(
        default_factory=OrderedDict[bytes, Identity], init=False
    )

    def ask(self, server: KeyServer) -> None:
        """Use the keys of a key server, too."""
        self._server = server

    def forget(self) -> None:
        """Empty the cache: keys changed."""
        self._known.clear()

    def replace_keys(self, keys: KeySet) -> None:
        """Replace the keys of the settings."""
        self.keys = keys
        self.forget()

    def left_s(self, identity: Identity) -> float:
        """Return for how many seconds a token is still valid."""
        return identity.expires_at - self.now()

    def identify(self, header: bytes | None) -> Identity | None:
        """Return the caller; None if keys have to be fetched first."""
        if header is None:
            raise Unauthenticated
        digest = sha256(header).digest()
        identity = self._known.get(digest)
        if identity is not None and self.now() < identity.expires_at:
            self._known.move_to_end(digest)
            return identity
        try:
            return self._verify(header, digest)
        except UnknownKey:
            if self._server is None:
                raise
            return None
        except Unavailable:
            return None

    async def identify_patiently(self, header: bytes | None) -> Identity:
        """Return the caller; fetch unknown keys from the key server.

        Raises:
            Unauthenticated: The token is missing or invalid.
            Unavailable: There are no keys yet.
        """
        identity = self.identify(header)
        if identity is not None:
            return identity
        assert self._server is not None
        assert header is not None
        await self._server.fetch_unknown()
        return self._verify(header, sha256(header).digest())

    def _verify(self, header: bytes, digest: bytes) -> Identity:
        claims = self._claims(bearer_token(header))
        identity = identity_of(claims, self.names, leeway_s=self.rules.leeway_s)
        self._known[digest] = identity
        self._known.move_to_end(digest)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return identity

    def _claims(self, token: str) -> dict[str, Any]:
        """Verify with the configured keys and those of the key server, if it has any yet."""
        if self._server is None:
            return verify_token(token, self.keys, self.rules)
        try:
            keys = self.keys + self._server.keys
        except Unavailable as away:
            try:
                return verify_token(token, self.keys, self.rules)
            except UnknownKey:
                raise away from None
        return verify_token(token, keys, self.rules)
