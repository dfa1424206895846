"""Verify bearer tokens: signature, times, issuer, audience.

PyJWT does the parsing and the cryptography; which key and algorithm it uses is decided here, before
it sees the token. Each key has one algorithm, which follows from its kind: a shared secret verifies
HS256, an RSA key RS256, a P-256 key ES256, an Ed25519 key EdDSA. So a public key can never serve as
an HMAC secret, and `none` has no key. Keys of other kinds in a JWKS document are ignored, secrets
too. Every refusal is an `Unauthenticated` that reveals nothing of the keys.

Pure: keys and rules are arguments; only the clock is PyJWT's. `authenticator` remembers tokens that
were verified, so most requests do not come here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from skep.model.errors import BadRequest, InvalidToken, Unauthenticated

PUBLIC_ALGORITHMS: Final = frozenset({"RS256", "ES256", "EdDSA"})
SECRET_ALGORITHM: Final = "HS256"  # noqa: S105 (a name)

SECRET_BYTES_MIN: Final = 32
"""RFC 7518: as many bits as the hash has."""

RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 32
"""Per set. A token without a key id is tried with each key of its algorithm."""

_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class UnusableKey(BadRequest):
    """The key cannot be used to verify tokens."""

    code = "unusable_key"


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key and its algorithm."""

    algorithm: str
    key: PublicKey | bytes = field(repr=False)
    id: str | None = None


KeySet: TypeAlias = tuple[VerificationKey, ...]
"""The keys in force."""


def matching(keys: KeySet, algorithm: str, key_id: str | None) -> list[VerificationKey]:
    """Return the keys that may have signed a token; a missing id matches any."""
    return [
        key
        for key in keys
        if key.algorithm == algorithm and (key_id is None or key.id in {None, key_id})
    ]


def spelled(keys: KeySet) -> frozenset[tuple[str, str | None, object]]:
    """Return a value that differs between different sets."""
    return frozenset((key.algorithm, key.id, _numbers(key.key)) for key in keys)


def secret_key(secret: str) -> VerificationKey:
    """Return the key of a shared secret."""
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise UnusableKey(f"a secret must have at least {SECRET_BYTES_MIN} bytes")
    return VerificationKey(SECRET_ALGORITHM, secret.encode())


def pem_keys(text: str) -> KeySet:
    r"""Return the public keys of a text with PEM blocks; `\n` may replace line breaks."""
    blocks = list(_PEM_BLOCK.finditer(text.replace("\\n", "\n")))
    if not blocks:
        raise UnusableKey("no PEM block found")
    return tuple(_pem_key(block[1], block[0].encode()) for block in blocks)


def _pem_key(kind: str, block: bytes) -> VerificationKey:
    if "PRIVATE" in kind:
        raise UnusableKey("found a private key: configure only public keys")
    try:
        if kind == "CERTIFICATE":
            key: object = load_pem_x509_certificate(block).public_key()
        else:
            key = load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKey(f"cannot read a PEM block ({kind.lower()})") from error
    return _bound(key, None)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def document_keys(document: bytes) -> KeySet:
    """Return the usable keys of a JWKS document."""
    try:
        entries = msgspec.json.decode(document, type=_Document).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusableKey("the document is not a JWKS") from error
    found = (_document_key(entry) for entry in entries[:KEYS_MAX])
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise UnusableKey("the document has no key for RS256, ES256 or EdDSA")
    return keys


def _document_key(entry: dict[str, Any]) -> VerificationKey | None:
    if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
        return None
    public = {name: value for name, value in entry.items() if name not in _PRIVATE_MEMBERS}
    key_id = entry.get("kid")
    try:
        bound = _bound(PyJWK(public).key, key_id if isinstance(key_id, str) else None)
    except (PyJWTError, UnusableKey, UnsupportedAlgorithm, ValueError, TypeError):
        return None
    return bound if entry.get("alg", bound.algorithm) == bound.algorithm else None


def _bound(key: object, key_id: str | None) -> VerificationKey:
    """Bind a key to its algorithm."""
    match key:
        case RSAPublicKey() if key.key_size >= RSA_BITS_MIN:
            return VerificationKey("RS256", key, key_id)
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return VerificationKey("ES256", key, key_id)
        case Ed25519PublicKey():
            return VerificationKey("EdDSA", key, key_id)
        case _:
            raise UnusableKey("a key must be RSA with at least 2048 bits, P-256 or Ed25519")


def _numbers(key: PublicKey | bytes) -> object:
    match key:
        case bytes():
            return key
        case Ed25519PublicKey():
            return key.public_bytes_raw()
        case _:
            return cast("Any", key).public_numbers()


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
    """Requirements for tokens."""

    algorithms: frozenset[str]
    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    """A token must name one of them; not checked if empty."""
    leeway_s: float = 30.0


def bearer_token(header: bytes | None) -> str:
    """Return the token of an `Authorization` header. Like Queen, accept a bare one as well."""
    if not header:
        raise Unauthenticated
    if len(header) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"Token is larger than {TOKEN_BYTES_MAX} bytes")
    scheme, _, rest = header.strip().partition(b" ")
    token = rest.strip() if rest else scheme
    if rest and scheme.lower() != b"bearer":
        raise InvalidToken("Authorization scheme is not Bearer")
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidToken("Token is malformed") from None


def verify_token(token: str, keys: KeySet, rules: TokenRules) -> dict[str, Any]:
    """Return the claims of a valid token.

    Raises:
        UnknownKey: Its key is unknown.
        Unauthenticated: It is not valid.
    """
    algorithm, key_id = _read_header(token, rules)
    candidates = matching(keys, algorithm, key_id)
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
        raise UnknownKey  # only keys without an id were tried
    raise InvalidToken("Invalid token signature")


def _read_header(token: str, rules: TokenRules) -> tuple[str, str | None]:
    """Return the algorithm and the key id of an unverified token."""
    try:
        header = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise InvalidToken("Token is malformed") from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise InvalidToken("Token is signed with an algorithm that is not accepted")
    if "crit" in header:
        raise InvalidToken("Token has unknown critical headers")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("Token is malformed")
    return algorithm, key_id
