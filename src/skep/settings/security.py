"""What the security settings say together: what contradicts, what is missing, what is dangerous.

Wrong combinations stop the start. A broker that anybody on the network may use starts, because that
is what some networks are for, but says so.
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
"""Beginnings of secrets that stand in the guides of others and so are known to everybody."""

_ORIGIN: Final = re.compile(r"https?://[^/\s,*]+")


def listed(text: str | None) -> tuple[str, ...]:
    """Return the entries of a setting that is a list separated by commas."""
    return tuple(part for part in re.split(r"[\s,]+", text or "") if part)


def jwt_secret(settings: Settings) -> str | None:
    """Return the shared secret of tokens.

    Raises:
        InvalidSettings: It is given twice, too short, known to everybody, or cannot be read.
    """
    if settings.jwt_secret is not None and settings.jwt_secret_file is not None:
        raise InvalidSettings("jwt_secret and jwt_secret_file exclude each other")
    secret = settings.jwt_secret
    if settings.jwt_secret_file is not None:
        secret = _text_of("jwt_secret_file", settings.jwt_secret_file).strip()
    if secret is None:
        return None
    if secret.lower().startswith(_PUBLISHED_SECRETS):
        raise InvalidSettings("jwt_secret is an example from a guide, which everybody knows")
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise InvalidSettings(f"jwt_secret must have at least {SECRET_BYTES_MIN} bytes")
    return secret


def jwt_public_keys(settings: Settings) -> str:
    """Return the public keys of tokens as PEM, one after the other; empty if there are none.

    Raises:
        InvalidSettings: The file cannot be read, or is empty.
    """
    path = settings.jwt_public_key_file
    from_file = "" if path is None else _text_of("jwt_public_key_file", path)
    return "\n".join(filter(None, (settings.jwt_public_key, from_file)))


def check_security(settings: Settings) -> None:
    """Refuse settings that contradict each other.

    Raises:
        InvalidSettings: They do.
    """
    has_secret = jwt_secret(settings) is not None
    has_public = bool(settings.jwt_jwks_url or jwt_public_keys(settings))
    if settings.jwt_enabled:
        _check_keys(settings.jwt_algorithm, has_secret=has_secret, has_public=has_public)
    url = settings.jwt_jwks_url
    if url is not None and (
        urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc
    ):
        raise InvalidSettings("jwt_jwks_url must be a URL that begins with https:// or http://")
    roles = (settings.jwt_role_admin, settings.jwt_role_read_write, settings.jwt_role_read_only)
    if len(set(roles)) < len(roles):
        raise InvalidSettings("jwt_role_admin, _read_write and _read_only must be different words")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidSettings("tls_certificate and tls_key belong together")
    if settings.tls_client_authority is not None and settings.tls_certificate is None:
        raise InvalidSettings("tls_client_authority needs tls_certificate and tls_key")
    for origin in listed(settings.cors_origins):
        if not _ORIGIN.fullmatch(origin):
            raise InvalidSettings(
                "cors_origins must be origins such as https://app.example.com, without a path; "
                "there is no wildcard"
            )


def security_warnings(settings: Settings) -> list[str]:
    """Say what an operator should know before others find out."""
    if is_loopback(settings.host):
        return []
    if not settings.jwt_enabled:
        text = (
            f"ANYBODY who reaches {settings.host}, port {settings.port}, may read, write and "
            "delete everything: callers are not authenticated. Set jwt_enabled, or listen on "
            "127.0.0.1 behind something that authenticates them."
        )
        return [text]
    if settings.tls_certificate is None:
        text = (
            f"tokens and messages travel in clear on {settings.host}, port {settings.port}: set "
            "tls_certificate and tls_key unless something before the broker speaks TLS"
        )
        return [text]
    return []


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name that is not known here is doubted."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_keys(algorithm: str, *, has_secret: bool, has_public: bool) -> None:
    if algorithm == "HS256" and not has_secret:
        raise InvalidSettings("jwt_enabled with HS256 needs jwt_secret or jwt_secret_file")
    if algorithm not in {"HS256", "auto"} and not has_public:
        raise InvalidSettings(
            f"jwt_enabled with {algorithm} needs jwt_jwks_url, jwt_public_key or "
            "jwt_public_key_file"
        )
    if not (has_secret or has_public):
        raise InvalidSettings("jwt_enabled needs a secret, public keys or the URL of a key server")


def _text_of(name: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSettings(f"cannot read {name} {path}: {reason}") from error
    if not text.strip():
        # A failed mount or a failed copy, not a wish to trust nobody.
        raise InvalidSettings(f"{name} {path} is empty")
    return text
