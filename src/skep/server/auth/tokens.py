"""Verify bearer tokens: signature, times, issuer, audience.

PyJWT does the parsing and the cryptography; which key and which algorithm it is given is decided
here, before it sees the token. Every refusal is an `Unauthenticated` in words that tell the caller
what to change and nothing of the keys.

Pure: keys and rules are arguments; only the clock is PyJWT's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from skep.model.errors import InvalidToken, Unauthenticated
from skep.server.auth.keys import KeySet

TOKEN_BYTES_MAX: Final = 8 * 1024
"""Also what most proxies allow for a header."""

_TEXT_BY_ERROR: Final[Mapping[type[PyJWTError], str]] = {
    ExpiredSignatureError: "Token has expired",
    ImmatureSignatureError: "Token is not valid yet",
    InvalidAudienceError: "Invalid token audience",
    InvalidIssuerError: "Invalid token issuer",
    MissingRequiredClaimError: "Token lacks one of the claims exp, iss and aud",
}


class UnknownKey(InvalidToken):
    """Token is signed with a key that is not known."""

    code = "unknown_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must be like."""

    algorithms: frozenset[str]
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    """One of them must be meant; none given means that it is not checked."""
    leeway_s: float = 30.0


def bearer_token(header: bytes | None) -> str:
    """Return the token of an `Authorization` header. Like Queen, take a bare one as well.

    Raises:
        Unauthenticated: There is none, or it is too large to look at.
    """
    if not header:
        raise Unauthenticated
    if len(header) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"Token is larger than {TOKEN_BYTES_MAX} bytes")
    scheme, _, rest = header.strip().partition(b" ")
    token = rest.strip() if rest else scheme
    if rest and scheme.lower() != b"bearer":
        raise InvalidToken("Authorization is not of the kind Bearer")
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidToken("Token is malformed") from None


def verify_token(token: str, keys: KeySet, rules: TokenRules) -> dict[str, Any]:
    """Return the claims of a token that can be believed.

    Raises:
        UnknownKey: It may be good, but the key it names is not here.
        Unauthenticated: It is not.
    """
    algorithm, key_id = _read_header(token, rules)
    candidates = keys.find(algorithm, key_id)
    if not candidates:
        raise UnknownKey
    for candidate in candidates:
        try:
            return jwt.decode(
                token,
                candidate.key,
                algorithms=[candidate.algorithm],
                issuer=rules.issuer,
                audience=list(rules.audiences) or None,
                leeway=rules.leeway_s,
                options={"require": ["exp"], "verify_aud": bool(rules.audiences)},
            )
        except InvalidSignatureError:
            continue
        except PyJWTError as error:
            raise InvalidToken(_TEXT_BY_ERROR.get(type(error), "Token is malformed")) from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidToken("Token is malformed") from error
    if key_id is not None and all(candidate.id != key_id for candidate in candidates):
        raise UnknownKey  # keys without an id were tried, but the one it names is not here
    raise InvalidToken("Invalid token signature")


def _read_header(token: str, rules: TokenRules) -> tuple[str, str | None]:
    """Return the algorithm and the key id that an unverified token claims to have."""
    try:
        header = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise InvalidToken("Token is malformed") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise InvalidToken("Token is signed by an algorithm that is not accepted here")
    if "crit" in header:
        raise InvalidToken("Token has critical headers that are not understood here")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("Token is malformed")
    return algorithm, key_id
