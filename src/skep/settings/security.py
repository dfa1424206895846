"""Check the security settings against each other.

Wrong combinations prevent the start. A broker open to the whole network starts, with a warning.
"""

import ipaddress
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from skep.settings.fields import InvalidSettings, Settings

SECRET_BYTES_MIN: Final = 32
"""RFC 7518: as many bits as the hash of HS256 has."""

_PUBLISHED_SECRETS: Final = ("change-me-in-production", "your-secret")
"""Prefixes of example secrets that are published in guides."""

_ORIGIN: Final = re.compile(r"https?://[^/\s,*]+")
_HOST_PATTERN: Final = re.compile(r"[^/\s,:]+")


def listed(text: str | None) -> tuple[str, ...]:
    """Return the entries of a comma-separated list."""
    return tuple(part for part in re.split(r"[\s,]+", text or "") if part)


def jwt_secret(settings: Settings) -> str | None:
    """Return the shared secret of tokens."""
    if settings.jwt_secret is not None and settings.jwt_secret_file is not None:
        raise InvalidSettings("jwt_secret and jwt_secret_file are mutually exclusive: set one")
    secret = settings.jwt_secret
    if settings.jwt_secret_file is not None:
        secret = _text_of("jwt_secret_file", settings.jwt_secret_file).strip()
    if secret is None:
        return None
    if secret.lower().startswith(_PUBLISHED_SECRETS):
        raise InvalidSettings("jwt_secret is a published example: use a random secret")
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise InvalidSettings(f"jwt_secret must have at least {SECRET_BYTES_MIN} bytes")
    return secret


def jwt_public_keys(settings: Settings) -> str:
    """Return the public keys of tokens as PEM blocks; empty if there are none."""
    path = settings.jwt_public_key_file
    from_file = "" if path is None else _text_of("jwt_public_key_file", path)
    return "\n".join(filter(None, (settings.jwt_public_key, from_file)))


def check_security(settings: Settings) -> None:
    """Refuse settings that contradict each other."""
    has_secret = jwt_secret(settings) is not None
    has_public = bool(settings.jwt_jwks_url or jwt_public_keys(settings))
    if settings.jwt_enabled:
        _check_keys(settings.jwt_algorithm, has_secret=has_secret, has_public=has_public)
    url = settings.jwt_jwks_url
    if url is not None and (
        urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc
    ):
        raise InvalidSettings("jwt_jwks_url must be a URL that starts with https:// or http://")
    roles = (settings.jwt_role_admin, settings.jwt_role_read_write, settings.jwt_role_read_only)
    if len(set(roles)) < len(roles):
        raise InvalidSettings("jwt_role_admin, _read_write and _read_only must be different names")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidSettings("tls_certificate and tls_key must be set together")
    if settings.tls_client_authority is not None and settings.tls_certificate is None:
        raise InvalidSettings("tls_client_authority requires tls_certificate and tls_key")
    for origin in listed(settings.cors_origins):
        if not _ORIGIN.fullmatch(origin):
            raise InvalidSettings(
                "cors_origins must be origins such as https://app.example.com, without a path "
                "or a wildcard"
            )
    if not all(map(_HOST_PATTERN.fullmatch, listed(settings.allowed_hosts))):
        raise InvalidSettings(
            "allowed_hosts must be host names such as skep.example.com, without scheme or port"
        )


def security_warnings(settings: Settings) -> list[str]:
    """Return warnings about a broker that the network can reach."""
    if is_loopback(settings.host):
        return []
    if not settings.jwt_enabled:
        text = (
            f"AUTHENTICATION IS DISABLED: any client that can reach {settings.host}, port "
            f"{settings.port}, may read, write and delete everything. Set jwt_enabled, or listen "
            "on 127.0.0.1 behind a proxy that authenticates clients."
        )
        return [text]
    if settings.tls_certificate is None:
        text = (
            f"tokens and messages are not encrypted on {settings.host}, port {settings.port}: set "
            "tls_certificate and tls_key unless a proxy terminates TLS"
        )
        return [text]
    return []


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; false for other host names."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_keys(algorithm: str, *, has_secret: bool, has_public: bool) -> None:
    if algorithm == "HS256" and not has_secret:
        raise InvalidSettings("jwt_enabled with HS256 requires jwt_secret or jwt_secret_file")
    if algorithm not in {"HS256", "auto"} and not has_public:
        raise InvalidSettings(
            f"jwt_enabled with {algorithm} requires jwt_jwks_url, jwt_public_key or "
            "jwt_public_key_file"
        )
    if not (has_secret or has_public):
        raise InvalidSettings("jwt_enabled requires jwt_secret, jwt_public_key or jwt_jwks_url")


def _text_of(name: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSettings(f"cannot read {name} {path}: {reason}") from error
    if not text.strip():
        # A failed mount or a failed copy.
        raise InvalidSettings(f"{name} {path} is empty")
    return text
