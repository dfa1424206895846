"""The keys that tokens are verified with; each is good for one algorithm only.

The algorithm follows from the kind of key, never from the token: a shared secret verifies HS256, an
RSA key RS256, a P-256 key ES256, an Ed25519 key EdDSA. So a public key can never be used as the
secret of an HMAC, and `none` has no key at all. A document of a key server may list keys of other
kinds, for other uses or other readers; they are passed over. Secrets are never taken from it.

Pure. Fetching is `skep.server.auth.key_server`.
"""

import re
from collections.abc import Mapping, Sequence
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
"""RFC 7518 asks for as many bits as the hash has; a shorter secret can be searched for."""

RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 32
"""Keys of one set. A token without a key id is tried with each of its algorithm."""

_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class UnusableKey(BadRequest):
    """The key cannot be used to verify tokens."""

    code = "unusable_key"


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key, and the one algorithm it verifies."""

    algorithm: str
    key: PublicKey | bytes = field(repr=False)
    id: str | None = None


class KeySet:
    """The keys in force."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[VerificationKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __add__(self, other: "KeySet") -> "KeySet":
        return KeySet(self._keys + other._keys)

    def find(self, algorithm: str, key_id: str | None) -> list[VerificationKey]:
        """Return the keys that a token may have been signed with.

        A key without an id may be meant by any; a token without one may mean any.
        """
        return [
            key
            for key in self._keys
            if key.algorithm == algorithm and (key_id is None or key.id in {None, key_id})
        ]

    def spelled(self) -> frozenset[tuple[str, str | None, object]]:
        """Return what tells this set from another."""
        return frozenset((key.algorithm, key.id, _numbers(key.key)) for key in self._keys)


def secret_key(secret: str) -> VerificationKey:
    """Return the key that a shared secret is.

    Raises:
        UnusableKey: It is too short.
    """
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise UnusableKey(f"a secret has at least {SECRET_BYTES_MIN} bytes")
    return VerificationKey(SECRET_ALGORITHM, secret.encode())


def pem_keys(text: str) -> KeySet:
    r"""Return the public keys of a text with PEM blocks; `\n` may stand for the end of a line.

    Raises:
        UnusableKey: There is none, or one of them is no public key that verifies tokens.
    """
    blocks = list(_PEM_BLOCK.finditer(text.replace("\\n", "\n")))
    if not blocks:
        raise UnusableKey("there is no PEM block in it")
    return KeySet([_pem_key(block[1], block[0].encode()) for block in blocks])


def _pem_key(kind: str, block: bytes) -> VerificationKey:
    if "PRIVATE" in kind:
        raise UnusableKey("it holds a private key, which does not belong on a broker")
    try:
        if kind == "CERTIFICATE":
            key: object = load_pem_x509_certificate(block).public_key()
        else:
            key = load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKey(f"a PEM block of it cannot be read ({kind.lower()})") from error
    return _bound(key, None)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def document_keys(document: bytes) -> KeySet:
    """Return the usable keys of a JWKS document.

    Raises:
        UnusableKey: It is no such document, or has no key that we could use.
    """
    try:
        entries = msgspec.json.decode(document, type=_Document).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnusableKey("the document is no JWKS") from error
    keys = [key for entry in entries[:KEYS_MAX] if (key := _document_key(entry)) is not None]
    if not keys:
        raise UnusableKey("the document has no key for RS256, ES256 or EdDSA")
    return KeySet(keys)


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
            raise UnusableKey("a key is RSA of 2048 bits or more, P-256 or Ed25519")


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
