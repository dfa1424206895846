"""Tell who is asking, by the token in the `Authorization` header.

A token is verified once and remembered by its digest until it expires, so that a request costs one
look-up. The memory is bounded, holds no token, and is emptied whenever keys change: what a
withdrawn key signed is good no longer. A single token cannot be revoked before it expires.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from skep.model.errors import Unauthenticated, Unavailable
from skep.server.auth.identity import ClaimNames, Identity, identity_of
from skep.server.auth.key_server import KeyServer
from skep.server.auth.tokens import KeySet, TokenRules, UnknownKey, bearer_token, verify_token

REMEMBERED_MAX: Final = 10_000
"""Tokens; about half a kilobyte each, more if they have grants."""


class Authenticator:
    """Turns headers into identities."""

    def __init__(
        self,
        *,
        keys: KeySet,
        rules: TokenRules,
        names: ClaimNames,
        now: Callable[[], float],
    ) -> None:
        """Take the keys known from the start and a clock that tells seconds since 1970."""
        self._keys: KeySet = keys
        self._rules: Final = rules
        self._names: Final = names
        self._now: Final = now
        self._server: KeyServer | None = None
        self._known: Final[OrderedDict[bytes, Identity]] = OrderedDict()

    def ask(self, server: KeyServer) -> None:
        """Take further keys from a key server."""
        self._server = server

    def forget(self) -> None:
        """Verify every token anew: the keys changed."""
        self._known.clear()

    def replace_keys(self, keys: KeySet) -> None:
        """Take other keys in place of those from the settings."""
        self._keys = keys
        self.forget()

    def left_s(self, identity: Identity) -> float:
        """Return how long a token is still good."""
        return identity.expires_at - self._now()

    def identify(self, header: bytes | None) -> Identity | None:
        """Return who is asking; None if keys have to be fetched to tell.

        Raises:
            Unauthenticated: The token is missing or not to be believed.
        """
        if header is None:
            raise Unauthenticated
        digest = sha256(header).digest()
        identity = self._known.get(digest)
        if identity is not None and self._now() < identity.expires_at:
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
        """Return who is asking; ask the key server for keys that are not known.

        Raises:
            Unauthenticated: The token is missing or not to be believed.
            Unavailable: There are no keys yet.
        """
        identity = self.identify(header)
        if identity is not None:
            return identity
        assert self._server is not None
        assert header is not None
        await self._server.look_again()
        return self._verify(header, sha256(header).digest())

    def _verify(self, header: bytes, digest: bytes) -> Identity:
        claims = self._claims(bearer_token(header))
        identity = identity_of(claims, self._names, leeway_s=self._rules.leeway_s)
        self._known[digest] = identity
        self._known.move_to_end(digest)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return identity

    def _claims(self, token: str) -> dict[str, Any]:
        """Verify with our own keys and those of the key server, which may have none yet."""
        if self._server is None:
            return verify_token(token, self._keys, self._rules)
        try:
            keys = self._keys + self._server.keys
        except Unavailable as away:
            try:
                return verify_token(token, self._keys, self._rules)
            except UnknownKey:
                raise away from None
        return verify_token(token, keys, self._rules)
