"""The addresses in the setting `peers`."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from skep.settings.fields import InvalidSettings, Settings

_WANTED: Final = "`host:port` for UDP, or a URL such as `http://host:6632`"


@dataclass(frozen=True, slots=True)
class PeerAddresses:
    """Where to notify other instances, by datagram and by HTTP."""

    datagrams: tuple[tuple[str, int], ...] = ()
    urls: tuple[str, ...] = ()


def peer_addresses(settings: Settings) -> PeerAddresses:
    """Parse the addresses of the other instances."""
    words = [word.strip() for word in (settings.peers or "").split(",")]
    words = list(dict.fromkeys(word for word in words if word))
    urls = [word for word in words if "://" in word and not word.startswith("udp://")]
    datagrams = [_address(word.removeprefix("udp://")) for word in words if word not in urls]
    return PeerAddresses(tuple(datagrams), tuple(_url(word) for word in urls))


def _address(word: str) -> tuple[str, int]:
    host, port = _host_and_port(f"//{word}", word)
    if port is None:
        raise _malformed(word)
    return host, port


def _url(word: str) -> str:
    if not word.startswith(("http://", "https://")):
        raise _malformed(word)
    _host_and_port(word, word)
    return word.rstrip("/")


def _host_and_port(url: str, word: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _malformed(word) from error
    if not host or port == 0 or parts.path not in {"", "/"} or parts.query or parts.username:
        raise _malformed(word)
    return host, port


def _malformed(word: str) -> InvalidSettings:
    return InvalidSettings(f"peers: {word!r} must be {_WANTED}")
